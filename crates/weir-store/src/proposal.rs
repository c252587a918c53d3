//! The pending result of a call: [`Proposal`] for the caller that waits for the result, and
//! [`Answer`] for the side that completes it.

use parking_lot::{Condvar, Mutex};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use weir_core::{ErrorCode, OutcomeRun, Outcomes};

use crate::error::StoreError;

/// Number of verdicts that are set before their waiting callers are woken: about 10 us.
const WAKE_EVERY: usize = 128;

/// Pending outcomes of a call. [`wait`](Self::wait) blocks the thread. As a future, a proposal
/// works with any runtime. Dropping a proposal does not cancel its intentions.
#[derive(Debug)]
pub struct Proposal {
    slot: Arc<Slot>,
    costly: bool,
}

#[derive(Debug)]
struct Slot {
    state: Mutex<State>,
    done: Condvar,
}

/// Must be small: a producer that does not wait has thousands of states, and the commit thread
/// accesses each.
#[derive(Debug, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is about another side: the log, the queue, the caller"
)]
struct State {
    result: Option<Result<Outcomes, StoreError>>,
    /// Outcomes of the completed parts, until all parts are completed.
    gathered: Option<Box<Outcomes>>,
    /// Number of parts that are not completed yet.
    parts: usize,
    /// Whether a part was admitted to the log.
    begun: bool,
    /// Number of parts that were admitted to the log and are not completed yet.
    logging: u32,
    /// The refusal of a part, until all parts that were admitted with it are completed.
    refusal: Option<Box<StoreError>>,
    /// Whether all parts are queued for the log.
    received: bool,
    failed: bool,
    waker: Option<Waker>,
    waiting: bool,
}

impl Proposal {
    /// Returns a proposal and the [`Answer`] that completes it, for callers that send intentions
    /// to a remote store.
    #[must_use]
    pub fn pair() -> (Self, Answer) {
        Self::with_slot(false, false)
    }

    /// Returns a proposal whose intentions are in the queue before the caller receives it.
    pub(crate) fn new(costly: bool) -> (Self, Answer) {
        Self::with_slot(costly, true)
    }

    fn with_slot(costly: bool, received: bool) -> (Self, Answer) {
        let state = State {
            parts: 1,
            received,
            ..State::default()
        };
        let slot = Arc::new(Slot {
            state: Mutex::new(state),
            done: Condvar::new(),
        });
        let proposal = Self {
            slot: Arc::clone(&slot),
            costly,
        };
        let answer = Answer {
            slot: Some(slot),
            is_later: false,
            is_admitted: false,
        };
        (proposal, answer)
    }

    /// Whether the intentions wait in the slow lane, because they are expected to be costly or
    /// must not overtake a call there. The result may take long. A caller that limits its
    /// proposals in flight should count these separately.
    #[must_use]
    pub fn is_costly(&self) -> bool {
        self.costly
    }

    /// Whether [`wait`](Self::wait) would return at once.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.slot.state.lock().result.is_some()
    }

    /// Blocks until the outcomes are known, and returns them in the order of the intentions.
    ///
    /// # Errors
    /// Fails if the batch could not be made durable. Whether the batch is in the log is then
    /// unknown until the store is opened again. With a session, a retry with the same nonces
    /// returns the outcome.
    pub fn wait(self) -> Result<Outcomes, StoreError> {
        let mut state = self.slot.state.lock();
        loop {
            if let Some(result) = state.result.take() {
                return result;
            }
            state.waiting = true;
            self.slot.done.wait(&mut state);
        }
    }
}

impl Proposal {
    /// Whether all intentions are queued for the log, or have a result. Queued intentions have no
    /// guarantee: a crash may lose them, and their verdict can still be any.
    #[must_use]
    pub fn is_received(&self) -> bool {
        self.slot.state.lock().is_received()
    }

    /// Blocks up to `time` until all intentions are queued for the log, or have a result. Returns
    /// `false` if `time` elapses first. A local store returns `true` at once.
    #[must_use]
    pub fn wait_received(&self, time: Duration) -> bool {
        let deadline = Instant::now().checked_add(time);
        let mut state = self.slot.state.lock();
        while !state.is_received() {
            let left = deadline.map_or(time, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            state.waiting = true;
            self.slot.done.wait_for(&mut state, left);
        }
        true
    }

    /// Returns `Ready` when all intentions are queued for the log, or have a result. Only one task
    /// may poll a proposal at a time.
    pub fn poll_received(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.slot.state.lock();
        if state.is_received() {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Blocks up to `time` for the outcomes. Returns the proposal as `Err` if `time` elapses first;
    /// the intentions may still be executed.
    ///
    /// # Errors
    /// The inner result has the errors of [`wait`](Self::wait).
    pub fn wait_for(self, time: Duration) -> Result<Result<Outcomes, StoreError>, Self> {
        let deadline = Instant::now().checked_add(time);
        let mut state = self.slot.state.lock();
        loop {
            if let Some(result) = state.result.take() {
                return Ok(result);
            }
            let left = deadline.map_or(time, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                drop(state);
                return Err(self);
            }
            state.waiting = true;
            self.slot.done.wait_for(&mut state, left);
        }
    }
}

impl Future for Proposal {
    type Output = Result<Outcomes, StoreError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.slot.state.lock();
        if let Some(result) = state.result.take() {
            return Poll::Ready(result);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl State {
    const fn is_received(&self) -> bool {
        self.received || self.result.is_some()
    }

    /// Returns the error of a call after the refusal of a part. `None` until the other admitted
    /// parts are completed: a log provider may refuse one part and append the next. With
    /// `is_partly_logged`, another part is in the log, or may be.
    fn refuse(&mut self, refusal: StoreError, is_partly_logged: bool) -> Option<StoreError> {
        if is_partly_logged {
            return Some(refusal.partly_logged());
        }
        if self.logging == 0 {
            return Some(refusal);
        }
        self.refusal = Some(Box::new(refusal));
        None
    }
}

/// Whether a log provider has refused to append a part.
fn is_refusal(error: &StoreError) -> bool {
    match error {
        StoreError::Elsewhere { .. } => true,
        StoreError::Remote { code, .. } => *code != ErrorCode::Indeterminate,
        _ => false,
    }
}

/// Completes a proposal, or one part of a proposal. Dropping an `Answer` completes it with
/// `InDoubt`: a thread panicked, and the outcome is unknown.
#[derive(Debug)]
pub struct Answer {
    /// `None` after completion.
    slot: Option<Arc<Slot>>,
    /// Whether this answer is for a part after the first one. Parts are logged in order. Unless an
    /// earlier part has failed, all earlier parts are in the log or will be appended before.
    is_later: bool,
    /// Whether the part was admitted to the log.
    is_admitted: bool,
}

impl Answer {
    /// Completes the proposal, and wakes its waiter. Parts are completed in order. If a part after
    /// the first one fails, the proposal fails with an unknown outcome, because the earlier parts
    /// are in the log.
    pub fn complete(mut self, result: Result<Outcomes, StoreError>) {
        drop(self.set_result(result));
    }

    /// As [`complete`](Self::complete), but the waiter is woken when the returned value is
    /// dropped.
    pub(crate) fn complete_deferred(
        mut self,
        result: Result<Outcomes, StoreError>,
    ) -> Option<Wake> {
        self.set_result(result)
    }

    /// Reports that all intentions are queued for the log. Dropping the returned value wakes the
    /// waiters.
    #[must_use]
    pub fn receive(&self) -> Option<Wake> {
        let slot = self.slot.as_ref()?;
        let mut state = slot.state.lock();
        state.received = true;
        let waker = state.waker.take();
        let thread = state.waiting.then(|| Arc::clone(slot));
        drop(state);
        (thread.is_some() || waker.is_some()).then_some(Wake { thread, waker })
    }

    /// Returns one `Answer` for each part of the proposal. The waiter gets the outcomes of all
    /// parts together, or the first error.
    pub(crate) fn split(mut self, parts: usize) -> Vec<Self> {
        let Some(slot) = self.slot.take() else {
            return Vec::new();
        };
        slot.state.lock().parts = parts;
        let part = |number| Self {
            slot: Some(Arc::clone(&slot)),
            is_later: number > 0,
            is_admitted: false,
        };
        (0..parts).map(part).collect()
    }

    /// Admits a part to the log. Returns `false` if a part has failed: no other part may then be
    /// logged.
    #[must_use]
    pub(crate) fn begin(&mut self) -> bool {
        let Some(slot) = &self.slot else { return false };
        let mut state = slot.state.lock();
        if state.failed {
            return false;
        }
        state.begun = true;
        state.logging += 1;
        self.is_admitted = true;
        true
    }

    /// Whether a part was admitted to the log.
    pub(crate) fn has_begun(&self) -> bool {
        self.slot
            .as_ref()
            .is_some_and(|slot| slot.state.lock().begun)
    }

    fn set_result(&mut self, result: Result<Outcomes, StoreError>) -> Option<Wake> {
        let slot = self.slot.take()?;
        let mut state = slot.state.lock();
        assert!(state.parts > 0, "each part is answered once");
        state.parts -= 1;
        state.logging -= u32::from(self.is_admitted);
        let result = match result {
            result if state.failed => {
                let is_logged = self.is_admitted && !result.as_ref().is_err_and(is_refusal);
                let refusal = *state.refusal.take()?;
                Err(state.refuse(refusal, is_logged)?)
            }
            Err(error) => {
                state.failed = true;
                Err(match error {
                    error if is_refusal(&error) => state.refuse(error, self.is_later)?,
                    error if self.is_later => error.partly_logged(),
                    error => error,
                })
            }
            Ok(outcomes) if state.parts == 0 && state.gathered.is_none() => Ok(outcomes),
            Ok(outcomes) => {
                let mut gathered = state.gathered.take().unwrap_or_default();
                for run in outcomes.runs() {
                    gathered.push_run(run.clone());
                }
                if state.parts > 0 {
                    state.gathered = Some(gathered);
                    return None;
                }
                Ok(*gathered)
            }
        };
        state.result = Some(result);
        let waker = state.waker.take();
        let is_waiting = state.waiting;
        drop(state);
        let thread = is_waiting.then_some(slot);
        (thread.is_some() || waker.is_some()).then_some(Wake { thread, waker })
    }
}

/// Dropping this value wakes the waiter of a proposal.
#[derive(Debug)]
pub struct Wake {
    /// The slot at which a thread waits.
    thread: Option<Arc<Slot>>,
    waker: Option<Waker>,
}

impl Drop for Wake {
    fn drop(&mut self) {
        if let Some(slot) = self.thread.take() {
            slot.done.notify_all();
        }
        if let Some(waker) = self.waker.take() {
            // The waker is code of the caller. A panic in it must not end the commit thread.
            let woken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
            drop(woken);
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.slot.is_none() {
            return;
        }
        let thread = "a thread that commits";
        let cause = Arc::new(StoreError::Panicked { thread });
        // The batch may be in the log.
        drop(self.set_result(Err(StoreError::InDoubt { cause })));
    }
}

/// Returns to each waiting caller the outcomes of its own items of an applied batch. `waiters` has
/// the number of items of each caller, in order. Callers are woken in groups: a caller that is
/// woken for its first outcome would use the processor and then wait for the next one.
pub(crate) fn complete_waiters(outcomes: &Outcomes, waiters: &mut Vec<(u32, Answer)>) {
    let mut runs = outcomes.runs().iter();
    let mut current: Option<&OutcomeRun> = None;
    // Number of items of `current` that earlier callers own.
    let mut done = 0;
    let mut wakes = Vec::new();
    for (number, (items, answer)) in waiters.drain(..).enumerate() {
        if number % WAKE_EVERY == 0 {
            wakes.clear();
        }
        let mut own = Outcomes::default();
        let mut missing = items;
        while missing > 0 {
            let Some(run) = current.or_else(|| runs.next()) else {
                break;
            };
            let count = missing.min(run.count - done);
            own.push_run(OutcomeRun {
                count,
                outcome: run.outcome.nth(u64::from(done)),
            });
            missing -= count;
            done += count;
            current = (done < run.count).then_some(run);
            if current.is_none() {
                done = 0;
            }
        }
        assert!(missing == 0, "every item has an outcome");
        wakes.extend(answer.complete_deferred(Ok(own)));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn refusal() -> Result<Outcomes, StoreError> {
        Err(StoreError::Remote {
            code: ErrorCode::NoLeader,
            text: String::new(),
        })
    }

    /// A log provider gets the parts of a call without waiting for their results.
    #[test]
    fn a_refused_call_fails_with_an_unknown_outcome_if_one_of_its_parts_was_logged() {
        for (second, code) in [
            (refusal(), ErrorCode::NoLeader),
            (Ok(Outcomes::default()), ErrorCode::Indeterminate),
        ] {
            let (proposal, answer) = Proposal::new(true);
            let mut parts = answer.split(3);
            assert!(parts[0].begin() && parts[1].begin());
            parts.remove(0).complete(refusal());
            assert!(!parts[1].begin(), "no other part may be logged");
            drop(parts.pop());
            assert!(!proposal.is_done(), "the second part may still be logged");
            parts.remove(0).complete(second);
            assert_eq!(proposal.wait().unwrap_err().code(), code);
        }
    }
}
