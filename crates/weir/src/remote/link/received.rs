//! RECEIVED: what the server has queued for its log and not answered.
//!
//! Writes are queued in the order in which they are sent, so the calls that are queued stand in
//! front of those that are not. Invariant: a call is told once, and not before its last intention
//! is queued.

use super::State;
use super::lock::PendingWake;
use super::writes::Call;

/// The calls that were told.
#[derive(Debug, Default)]
pub(super) struct Queued {
    /// How many of those that wait, from the front.
    calls: usize,
    /// Number of the last intention of these calls.
    last: u64,
    /// Without a session: number of the last intention that is queued.
    to: u64,
}

impl State {
    /// The server has queued so many intentions: those from `nonce` on in a session, else those
    /// after the ones that it queued before.
    pub(in crate::remote) fn received(&mut self, nonce: u64, count: u64) {
        let answered = self.writes.answered();
        let to = if self.writes.client().is_none() {
            self.queued.to.max(answered).saturating_add(count)
        } else {
            nonce.saturating_add(count).saturating_sub(1)
        };
        // A server may say any number.
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
            self.given
                .extend(call.answer.receive().map(PendingWake::Received));
        }
    }

    /// No call waits any more.
    pub(super) fn forget_queued(&mut self) {
        self.queued = Queued::default();
    }

    /// The oldest call, which is about to be answered.
    pub(super) fn pop_call(&mut self) -> Option<Call> {
        self.queued.calls = self.queued.calls.saturating_sub(1);
        self.calls.pop_front()
    }
}
