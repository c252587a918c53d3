//! The writes of a connection, from the call to the response.
//!
//! A write keeps its position and its number until its response arrives.
//!
//! Invariants:
//! - No intention overtakes an earlier one.
//! - An intention that the server may have executed is resent only in a
//!   session.

use std::time::{Duration, Instant};

use weir_core::batch::BatchBuilder;
use weir_core::intention::{Intention, IntentionLimits, Operation};
use weir_core::limits::{BATCH_BYTES_MAX, CALL_ITEMS_MAX, ITEM_BYTES_MAX};
use weir_core::{ClientId, ErrorCode, Outcome, OutcomeRun, Outcomes};
use weir_protocol::{
    CHAIN, HelloOk, Message, OPERATIONS_MAX, Packet, RefusalMessage, is_retryable,
};
use weir_store::{Answer, Proposal, StoreError};

use super::lock::{Guard, PendingWake};
use super::{Broken, FinalError, Link, OUT_BYTES_MAX, State, remote_error};
use crate::remote::pause::{PAUSE_FIRST, PAUSE_MAX, pause_after_refusal, random_fraction};
use crate::reply::{check_cancelled, next_check};

/// Bytes of unsent intentions; above this, callers block.
const OPEN_BYTES_MAX: usize = 16 << 20;
/// Number of unsent intentions; above this, callers block.
const OPEN_ITEMS_MAX: u64 = 100_000;

/// A caller that waits for the outcomes of intentions that it proposed together.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) count: u32,
    pub(super) done: u32,
    outcomes: Outcomes,
    pub(super) answer: Answer,
}

/// The pause after a server refused writes for now. They are then sent again, the first one alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    /// When the first refusal arrived; reset by every outcome.
    since: Instant,
    /// When the first write is sent again.
    until: Instant,
    /// The next pause if the server names none.
    pause: Duration,
    /// Refusals since `since`.
    refusals: u32,
}

impl Link {
    /// Number of the next intention of the session; 1 before a server was reached.
    pub(crate) fn next(&self) -> u64 {
        // The first use returns the error if no server can be reached.
        let next = self.try_next();
        next.unwrap_or_else(|_| self.inner.lock().next())
    }

    /// Returns the next nonce if a server was reached.
    pub(crate) fn try_next(&self) -> Result<u64, StoreError> {
        self.facts()?;
        let mut state = self.inner.lock();
        while state.number_unknown {
            state.usable()?;
            state = self.pause(state)?;
        }
        Ok(state.next())
    }

    /// Continues at a nonce, after the writes in flight have their outcomes.
    pub(crate) fn rewind(&self, nonce: u64) -> Result<(), StoreError> {
        let mut state = self.inner.lock();
        while !state.calls.is_empty() && state.final_error.is_none() {
            state = self.pause(state)?;
        }
        state.rewound = Some(nonce);
        state.writes.rewind(nonce);
        Ok(())
    }

    /// Waits for a change. Fails if the wait of this thread was cancelled.
    fn pause<'a>(&'a self, state: Guard<'a>) -> Result<Guard<'a>, StoreError> {
        drop(self.inner.wait(state, next_check()));
        check_cancelled()?;
        Ok(self.inner.lock())
    }

    /// Queues intentions to be executed in this order. In a session they get its next numbers, and
    /// the first of these is returned.
    pub(crate) fn propose(
        &self,
        intentions: &[Intention<'_>],
    ) -> Result<(Proposal, u64), StoreError> {
        if intentions.len() > CALL_ITEMS_MAX {
            return Err(StoreError::LimitExceeded {
                what: "intentions in one call",
                limit: CALL_ITEMS_MAX as u64,
                value: intentions.len() as u64,
            });
        }
        let operations = intentions.iter().map(operations_of).sum::<usize>();
        if operations > OPERATIONS_MAX {
            return Err(StoreError::LimitExceeded {
                what: "operations in the transactions of one call",
                limit: OPERATIONS_MAX as u64,
                value: operations as u64,
            });
        }
        let (proposal, answer) = Proposal::pair();
        let mut state = self.inner.lock();
        let known = state.facts.as_ref().map(|facts| facts.limits);
        let limits = if let Some(limits) = known {
            limits
        } else {
            drop(state);
            let limits = self.facts()?.limits;
            state = self.inner.lock();
            limits
        };
        if intentions.is_empty() {
            answer.complete(Ok(Outcomes::default()));
            return Ok((proposal, state.next()));
        }
        while state.open_bytes >= OPEN_BYTES_MAX
            || state.open_items >= OPEN_ITEMS_MAX
            || state.number_unknown
        {
            state.usable()?;
            state = self.pause(state)?;
        }
        state.usable()?;
        let first = state.next();
        state.push(self.inner.client, first, intentions, &limits)?;
        let count = u32::try_from(intentions.len()).unwrap_or(u32::MAX);
        state.calls.push_back(Call {
            count,
            done: 0,
            outcomes: Outcomes::default(),
            answer,
        });
        self.inner.notify_writer(state);
        Ok((proposal, first))
    }
}

/// Number of operations of a transaction; 0 for other intentions.
fn operations_of(intention: &Intention<'_>) -> usize {
    match intention.operation {
        Operation::Txn { ops } => ops.len(),
        _ => 0,
    }
}

impl State {
    fn next(&self) -> u64 {
        self.writes.last() + self.open_items + 1
    }

    fn push(
        &mut self,
        client: ClientId,
        first: u64,
        intentions: &[Intention<'_>],
        limits: &IntentionLimits,
    ) -> Result<(), StoreError> {
        let size = intentions.iter().map(Intention::size_hint).sum::<usize>();
        let fits = self.open.back().is_some_and(|last| {
            last.bytes() + size <= BATCH_BYTES_MAX
                && last.len() + intentions.len() <= CALL_ITEMS_MAX
        });
        if !fits {
            self.open.push_back(BatchBuilder::default());
        }
        let Some(batch) = self.open.back_mut() else {
            return Err(StoreError::Closed);
        };
        let before = batch.bytes();
        let pushed = match intentions {
            [one] => {
                let one = numbered(client, first, one);
                batch.push(&one, limits).map_err(|error| (0, error))
            }
            many => {
                let all: Vec<_> = (first..)
                    .zip(many)
                    .map(|(nonce, intention)| numbered(client, nonce, intention))
                    .collect();
                batch.push_all(&all, limits)
            }
        };
        let bytes = batch.bytes();
        if !fits && pushed.is_ok() && batch.len() > 1 && bytes > ITEM_BYTES_MAX {
            // The server would end the connection, because the packet is too long.
            self.open.pop_back();
            return Err(StoreError::LimitExceeded {
                what: "bytes of the intentions of one call",
                limit: ITEM_BYTES_MAX as u64,
                value: bytes as u64,
            });
        }
        self.open_bytes += bytes - before;
        if let Err((index, error)) = pushed {
            if batch.is_empty() {
                self.open.pop_back();
            }
            return Err(StoreError::Refused { index, error });
        }
        self.open_items += intentions.len() as u64;
        Ok(())
    }

    /// When held writes may be sent.
    pub(super) fn due(&self) -> Option<Instant> {
        let waits = self.writes.held().is_some() || !self.open.is_empty();
        let hold = self.hold.filter(|_| waits && self.stream.is_some())?;
        self.writes
            .unanswered()
            .next()
            .is_none()
            .then_some(hold.until)
    }

    /// Whether writes must wait: for the end of the pause, or for the write in flight.
    fn is_held(&self) -> bool {
        let alone = self.writes.unanswered().next().is_none();
        self.hold
            .is_some_and(|hold| !alone || Instant::now() < hold.until)
    }

    /// Encodes a write that is already recorded as sent.
    fn write(&mut self, count: u32, items: &[u8], chained: bool) {
        let chains = self.facts.as_ref().is_some_and(|facts| facts.chains);
        let chained = chained && chains && self.writes.client().is_none();
        let packet = Packet {
            require: if chained { CHAIN } else { &[] },
            ..Packet::new(Message::Write { count, items })
        };
        self.encoder.encode(&packet, &mut self.out);
    }

    /// Moves writes that may be sent now into the output buffer.
    pub(super) fn fill_writes(&mut self) {
        while self.out.len() < OUT_BYTES_MAX
            && !self.is_held()
            && let Some(held) = self.writes.held()
            && self.writes.may_send(held.count, held.items.len())
        {
            let chained = self.writes.unanswered().next().is_some();
            if let Some(write) = self.writes.resend_held() {
                let (count, items) = (write.count, write.items.clone());
                self.write(count, &items, chained);
            }
        }
        while self.out.len() < OUT_BYTES_MAX
            && !self.is_held()
            && self.writes.held().is_none()
            && let Some(batch) = self.open.front()
        {
            let count = u32::try_from(batch.len()).unwrap_or(u32::MAX);
            if !self.writes.may_send(count, batch.bytes()) {
                break;
            }
            let items = batch.items().to_vec();
            self.open.pop_front();
            self.open_items -= u64::from(count);
            self.open_bytes -= items.len();
            self.rewound = None;
            let chained = self.writes.unanswered().next().is_some();
            self.write(count, &items, chained);
            self.writes.sent(count, items);
        }
    }

    /// Processes the response of the server to HELLO, as
    /// [`ClientConnection::opened`](weir_protocol::ClientConnection::opened) does. Unsent intentions
    /// keep their numbers. If the session continues at another nonce at the server, the server
    /// refuses them, or repeats the outcomes that it knows.
    pub(super) fn opened(&mut self, hello: &HelloOk<'_>) -> Result<usize, &'static str> {
        let next = self.writes.last() + 1;
        let again = self.writes.opened(hello)?;
        if self.open_items > 0 {
            self.writes.rewind(next);
        }
        Ok(again)
    }

    /// Fails the writes in flight. Their outcomes remain unknown.
    pub(super) fn fail_in_flight(&mut self, why: &str) {
        let lost = self.writes.drop_all();
        self.hold = None;
        self.fail_calls(lost.end - lost.start, |_| {
            remote_error(ErrorCode::Indeterminate, why)
        });
    }

    /// Handles a refusal of a request that the server does not name, after which the server closes
    /// the connection. The outcomes of the writes in flight are unknown. Later writes wait for the
    /// next connection.
    pub(super) fn refused_unnamed(&mut self, code: ErrorCode, text: &str) {
        if self.writes.client().is_none() {
            let lost = self.writes.connection_lost();
            self.fail_calls(lost.end - lost.start, |_| {
                remote_error(ErrorCode::Indeterminate, text)
            });
        } else {
            // No write of a session is executed without the ones before it.
            self.fail_in_flight(text);
            self.fail_open(|| remote_error(code, text));
            self.number_unknown = true;
        }
        let refusal = FinalError {
            code,
            text: text.to_owned(),
        };
        self.refuse_requests(&refusal);
        self.next_address.get_or_insert(Broken::Again(refusal.text));
    }

    /// Fails the oldest calls, until `items` intentions are covered.
    pub(super) fn fail_calls(&mut self, mut items: u64, error: impl Fn(u64) -> StoreError) {
        while items > 0 {
            let Some(call) = self.pop_call() else {
                break;
            };
            let left = u64::from(call.count - call.done);
            self.to_deliver
                .push(PendingWake::Answer(call.answer, Err(error(items))));
            items = items.saturating_sub(left);
        }
    }

    /// Fails all other calls, whose intentions were never sent.
    pub(super) fn fail_open(&mut self, error: impl Fn() -> StoreError) {
        self.open.clear();
        self.open_bytes = 0;
        self.open_items = 0;
        self.forget_queued();
        for call in self.calls.drain(..) {
            self.to_deliver
                .push(PendingWake::Answer(call.answer, Err(error())));
        }
    }

    /// Delivers a run of outcomes.
    pub(in crate::remote) fn answered(
        &mut self,
        nonce: u64,
        run: &OutcomeRun,
    ) -> Result<(), &'static str> {
        let (known, new) = self.writes.answer(nonce, run.count)?;
        if new > 0 {
            self.hold = None;
        }
        let mut at = u64::from(known);
        let mut left = new;
        while left > 0 {
            let Some(call) = self.calls.front_mut() else {
                return Err("the server sent a response that no call waits for");
            };
            let count = left.min(call.count - call.done);
            call.outcomes.push_run(OutcomeRun {
                count,
                outcome: run.outcome.nth(at),
            });
            call.done += count;
            at += u64::from(count);
            left -= count;
            if call.done == call.count
                && let Some(call) = self.pop_call()
            {
                self.to_deliver
                    .push(PendingWake::Answer(call.answer, Ok(call.outcomes)));
            }
        }
        Ok(())
    }

    /// Handles a refusal of a whole write. The write is kept and resent if the server executed
    /// neither it nor a later write, and if there is time.
    pub(in crate::remote) fn refused(
        &mut self,
        refusal: &RefusalMessage<'_>,
        code: ErrorCode,
        text: &str,
        patience: Duration,
    ) {
        let session = !self.writes.client().is_none();
        let mut in_flight = self.writes.unanswered();
        let front = in_flight.next().map(|write| write.first);
        let alone = in_flight.next().is_none();
        drop(in_flight);
        let Some(front) = front else {
            return;
        };
        if session && refusal.nonce != Some(front) {
            // A consequence of an earlier refusal.
            return;
        }
        let chains = self.facts.as_ref().is_some_and(|facts| facts.chains);
        let is_follow_up = session && code == ErrorCode::NonceGap && self.hold.is_some();
        let may_retry = is_retryable(code) && (session || alone || chains);
        if is_follow_up || (may_retry && self.hold_write(front, refusal, patience)) {
            self.writes.hold_refused();
            return;
        }
        let expected = refusal.expected.unwrap_or(0);
        self.refused_for_good(expected, code, text);
        if self.writes.held().is_none() && self.writes.unanswered().next().is_none() {
            self.hold = None;
        }
    }

    /// Sets the pause before the write with number `first` is resent. Returns `false` if the pause
    /// would exceed the patience. If an earlier write is held, this write waits with it.
    fn hold_write(&mut self, first: u64, refusal: &RefusalMessage<'_>, patience: Duration) -> bool {
        let is_oldest = self.writes.held().is_none_or(|held| first < held.first);
        let now = Instant::now();
        let hold = self.hold.get_or_insert(Hold {
            since: now,
            until: now,
            pause: PAUSE_FIRST,
            refusals: 0,
        });
        if !is_oldest {
            return true;
        }
        let requested = refusal.retry_ms.map(Duration::from_millis);
        let requested = requested
            .map(|requested| pause_after_refusal(requested, refusal.code(), hold.refusals));
        hold.refusals = hold.refusals.saturating_add(1);
        let pause = match (requested, refusal.code()) {
            (Some(requested), _) => requested,
            (None, Some(ErrorCode::Redirect)) => Duration::ZERO,
            (None, _) => hold.pause,
        };
        if hold.since.elapsed().saturating_add(pause) > patience {
            return false;
        }
        if requested.is_none() {
            hold.pause = (hold.pause * 2).min(PAUSE_MAX);
        }
        // A part of the pause is random, so that clients do not resend at the same time.
        hold.until = now + pause + pause.mul_f64(random_fraction() / 8.0);
        true
    }

    fn refused_for_good(&mut self, expected: u64, code: ErrorCode, text: &str) {
        let session = !self.writes.client().is_none();
        let freed = self.writes.refused(code);
        let items = freed.end - freed.start;
        let of_nonce = matches!(
            code,
            ErrorCode::NonceGap | ErrorCode::NonceReused | ErrorCode::SessionExpired
        );
        if session {
            // Their numbers are used, as in a local store.
            if of_nonce {
                self.writes.rewind(freed.end);
            }
            // All later writes of the session fail too, sent or not.
            self.open.clear();
            self.open_bytes = 0;
            self.open_items = 0;
            self.forget_queued();
            for call in std::mem::take(&mut self.calls) {
                let result = if of_nonce {
                    Ok(refusals(call.count, code, expected))
                } else {
                    Err(remote_error(code, text))
                };
                self.to_deliver
                    .push(PendingWake::Answer(call.answer, result));
            }
        } else {
            self.fail_calls(items, |_| remote_error(code, text));
        }
    }
}

/// The intention with its number on this connection.
fn numbered<'a>(client: ClientId, number: u64, intention: &Intention<'a>) -> Intention<'a> {
    let nonce = if client.is_none() { 0 } else { number };
    intention.under(client, nonce)
}

fn refusals(count: u32, code: ErrorCode, expected: u64) -> Outcomes {
    let mut outcomes = Outcomes::default();
    outcomes.push_run(OutcomeRun {
        count,
        outcome: Outcome::Refused { code, expected },
    });
    outcomes
}
