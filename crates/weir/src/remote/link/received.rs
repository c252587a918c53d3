//! The message RECEIVED, which reports the writes that the server has queued, before their
//! verdicts.
//!
//! The server queues writes in the order in which they are sent, so the queued calls precede the
//! others. Invariant: a call is notified once, and only after its last intention is queued.

use super::State;
use super::lock::PendingWake;
use super::writes::Call;

/// The calls that were notified.
#[derive(Debug, Default)]
pub(super) struct Queued {
    /// Number of notified calls. They are the oldest of the waiting calls.
    calls: usize,
    /// Number of the last intention of the notified calls.
    last: u64,
    /// Without a session: number of the last queued intention.
    to: u64,
}

impl State {
    /// Notes that the server has queued `count` intentions. In a session they start at `nonce`;
    /// otherwise they follow the ones that it queued before.
    pub(in crate::remote) fn received(&mut self, nonce: u64, count: u64) {
        let answered = self.writes.answered();
        let to = if self.writes.client().is_none() {
            self.queued.to.max(answered).saturating_add(count)
        } else {
            nonce.saturating_add(count).saturating_sub(1)
        };
        // The server may send any number, so the client limits it.
        let to = to.min(self.writes.last());
        self.queued.to = to;
        if self.queued.calls == 0 {
            let done = self.calls.front().map_or(0, |call| u64::from(call.done));
            self.queued.last = answered.saturating_sub(done);
        }
        while let Some(call) = self.calls.get(self.queued.calls) {
            let last = self.queued.last + u64::from(call.count);
            if last > to {
                break;
            }
            self.queued.last = last;
            self.queued.calls += 1;
            self.to_deliver
                .extend(call.answer.receive().map(PendingWake::Received));
        }
    }

    /// Resets the state; no call waits any more.
    pub(super) fn forget_queued(&mut self) {
        self.queued = Queued::default();
    }

    /// Removes the oldest call, to deliver its response.
    pub(super) fn pop_call(&mut self) -> Option<Call> {
        self.queued.calls = self.queued.calls.saturating_sub(1);
        self.calls.pop_front()
    }
}
