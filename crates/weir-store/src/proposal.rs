//! The answer to a call, before and after it is there.

use parking_lot::{Condvar, Mutex};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use weir_core::Outcomes;

use crate::error::StoreError;

/// Outcomes that are on their way. Waiting blocks the thread; as a future it
/// works with any runtime. Dropping it does not take the intentions back.
#[derive(Debug)]
pub struct Proposal {
    slot: Arc<Slot>,
    costly: bool,
}

#[derive(Debug, Default)]
struct Slot {
    state: Mutex<State>,
    done: Condvar,
}

/// Kept small: a producer that does not wait has thousands of them, and the commit thread touches
/// each.
#[derive(Debug, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is about another side: the log, the queue, the caller"
)]
struct State {
    result: Option<Result<Outcomes, StoreError>>,
    /// Outcomes of the parts that are answered, while others are not.
    gathered: Option<Box<Outcomes>>,
    /// Parts that are not answered yet.
    parts: usize,
    /// A part is admitted to the log.
    begun: bool,
    /// All of it is queued for the log.
    received: bool,
    failed: bool,
    waker: Option<Waker>,
    waiting: bool,
}

impl Proposal {
    /// A proposal and the duty to answer it, for those who hand intentions on
    /// to a store that is elsewhere.
    #[must_use]
    pub fn pair() -> (Self, Answer) {
        Self::made(false, false)
    }

    /// A proposal whose intentions are in the queue when its caller gets it.
    pub(crate) fn new(costly: bool) -> (Self, Answer) {
        Self::made(costly, true)
    }

    fn made(costly: bool, received: bool) -> (Self, Answer) {
        let slot = Arc::new(Slot::default());
        {
            let mut state = slot.state.lock();
            (state.parts, state.received) = (1, received);
        }
        let proposal = Self {
            slot: Arc::clone(&slot),
            costly,
        };
        let slot = Some(slot);
        let is_later = false;
        (proposal, Answer { slot, is_later })
    }

    /// Whether the intentions wait in the slow lane, because they are expected
    /// to be costly or must not overtake a call there. The answer may take long:
    /// a caller that bounds its proposals in flight should count these apart.
    #[must_use]
    pub fn is_costly(&self) -> bool {
        self.costly
    }

    /// Whether [`wait`](Self::wait) would return at once.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.slot.state.lock().result.is_some()
    }

    /// Waits for the outcomes, in the order of the intentions.
    ///
    /// # Errors
    /// When the batch could not be made durable. Then nobody knows whether it
    /// is in the log until the store is opened again; under a session, sending
    /// the same nonces again tells.
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
    /// Whether all intentions are queued for the log, or answered. Queued promises nothing: a
    /// crash may lose them, and the verdict may be any.
    #[must_use]
    pub fn is_received(&self) -> bool {
        self.slot.state.lock().is_received()
    }

    /// Waits for at most `time` until all intentions are queued for the log, or answered. Returns
    /// `false` if they are not by then. In a store of this process they are from the start.
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

    /// Polls until all intentions are queued for the log, or answered. One task polls a proposal at
    /// a time.
    pub fn poll_received(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.slot.state.lock();
        if state.is_received() {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Waits for at most `time`; gives the proposal back when it is not
    /// answered by then. That says nothing about what will become of it.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait), inside.
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
}

/// The duty to answer a proposal, or one part of it. Dropping it answers that the
/// outcome is not known, because a thread panicked.
#[derive(Debug)]
pub struct Answer {
    /// `None` once it is answered.
    slot: Option<Arc<Slot>>,
    /// It is for a part that is not the first one. Parts are logged in order, so
    /// until one of them fails, the parts before it are in the log or on their way
    /// there.
    is_later: bool,
}

impl Answer {
    /// Answers the proposal, and wakes its waiter. Parts are answered in order. An
    /// error of a later part says that the outcome of the call is not known: the
    /// parts before it are in the log.
    pub fn complete(mut self, result: Result<Outcomes, StoreError>) {
        drop(self.give(result));
    }

    /// As [`complete`](Self::complete), but the waiter is woken when the returned value is
    /// dropped.
    pub(crate) fn complete_quietly(mut self, result: Result<Outcomes, StoreError>) -> Option<Wake> {
        self.give(result)
    }

    /// Says that all intentions are queued for the log. The waiters are woken when the returned
    /// value is dropped.
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

    /// One answer for each part of the proposal: the waiter gets the outcomes of
    /// all together, or the first error.
    pub(crate) fn split(mut self, parts: usize) -> Vec<Self> {
        let Some(slot) = self.slot.take() else {
            return Vec::new();
        };
        slot.state.lock().parts = parts;
        let part = |number| Self {
            slot: Some(Arc::clone(&slot)),
            is_later: number > 0,
        };
        (0..parts).map(part).collect()
    }

    /// A part is admitted to the log.
    pub(crate) fn begin(&self) {
        if let Some(slot) = &self.slot {
            slot.state.lock().begun = true;
        }
    }

    /// Whether a part was admitted to the log.
    pub(crate) fn has_begun(&self) -> bool {
        self.slot
            .as_ref()
            .is_some_and(|slot| slot.state.lock().begun)
    }

    /// Whether a part was answered with an error.
    pub(crate) fn has_failed(&self) -> bool {
        self.slot
            .as_ref()
            .is_some_and(|slot| slot.state.lock().failed)
    }

    fn give(&mut self, result: Result<Outcomes, StoreError>) -> Option<Wake> {
        let slot = self.slot.take()?;
        let mut state = slot.state.lock();
        assert!(state.parts > 0, "each part is answered once");
        state.parts -= 1;
        if state.failed {
            return None;
        }
        let result = match result {
            Err(error) => {
                state.failed = true;
                Err(if self.is_later {
                    error.after_a_part()
                } else {
                    error
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

/// Wakes the waiter of a proposal when it is dropped.
#[derive(Debug)]
pub struct Wake {
    /// What a thread waits at.
    thread: Option<Arc<Slot>>,
    waker: Option<Waker>,
}

impl Drop for Wake {
    fn drop(&mut self) {
        if let Some(slot) = self.thread.take() {
            slot.done.notify_all();
        }
        if let Some(waker) = self.waker.take() {
            // Foreign code: a panic in it must not end the commit thread.
            let woken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
            drop(woken);
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let thread = "the commit thread";
        let cause = Arc::new(StoreError::Panicked { thread });
        // The batch may be in the log.
        drop(self.give(Err(StoreError::InDoubt { cause })));
    }
}
