//! The lock of a connection, and its two condition variables.
//!
//! Invariant: no answer is delivered and no task is woken while the state is
//! locked, because a woken task may lock it at once.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};
use std::panic::AssertUnwindSafe;
use std::task::Waker;
use std::time::{Duration, Instant};

use weir_core::{ClientId, Outcomes};
use weir_store::{Answer, StoreError, Wake};

use super::State;
use crate::remote::ConnectOptions;
use crate::remote::address::Address;

/// An action to execute when the state is unlocked.
#[derive(Debug)]
pub(super) enum PendingWake {
    Answer(Answer, Result<Outcomes, StoreError>),
    Received(Wake),
    Wake(Waker),
}

pub(in crate::remote) struct Inner {
    pub(in crate::remote) client: ClientId,
    pub(in crate::remote) options: ConnectOptions,
    /// The addresses that the caller named; at least one.
    pub(in crate::remote) configured_addresses: Vec<Address>,
    state: Mutex<State>,
    /// Signals that a packet can be sent.
    pub(in crate::remote) work: Condvar,
    /// Signals a change to waiting callers.
    pub(in crate::remote) changed: Condvar,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

impl Inner {
    pub(super) fn new(
        client: ClientId,
        configured_addresses: Vec<Address>,
        options: ConnectOptions,
        state: State,
    ) -> Self {
        Self {
            client,
            options,
            configured_addresses,
            state: Mutex::new(state),
            work: Condvar::new(),
            changed: Condvar::new(),
        }
    }

    pub(in crate::remote) fn lock(&self) -> Guard<'_> {
        // Only a bug of this crate can panic under the lock, and the state is still valid then.
        let state = self.state.lock();
        Guard {
            inner: self,
            state: Some(state),
        }
    }

    /// Waits for a change until `until` at most. Returns `false` at that time.
    pub(in crate::remote) fn wait<'a>(
        &'a self,
        state: Guard<'a>,
        until: Option<Instant>,
    ) -> (Guard<'a>, bool) {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return (state, false);
        }
        (state.sleep(&self.changed, left), true)
    }

    /// Waits until a packet can be sent, or until the waiting calls fail.
    pub(in crate::remote) fn wait_for_work<'a>(&'a self, mut state: Guard<'a>) -> Guard<'a> {
        let gives_up_at = state.gives_up_at(self.options.patience);
        let due = state.due().or(gives_up_at);
        let time = due.map(|due| due.saturating_duration_since(Instant::now()));
        state.writer_sleeps = true;
        let mut state = state.sleep(&self.work, time);
        state.writer_sleeps = false;
        state
    }

    /// Signals that a packet can be sent.
    pub(super) fn notify_writer(&self, mut state: Guard<'_>) {
        let writer_sleeps = std::mem::take(&mut state.writer_sleeps);
        drop(state);
        if writer_sleeps {
            self.work.notify_one();
        }
    }
}

/// The locked state. Responses are delivered after it is unlocked, because a woken task may lock it
/// immediately.
pub(in crate::remote) struct Guard<'a> {
    inner: &'a Inner,
    state: Option<MutexGuard<'a, State>>,
}

impl Deref for Guard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        match &self.state {
            Some(state) => state,
            None => unreachable!("a guard that waits is not used"),
        }
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        match &mut self.state {
            Some(state) => state,
            None => unreachable!("a guard that waits is not used"),
        }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let to_deliver = self
            .state
            .as_mut()
            .map(|state| std::mem::take(&mut state.to_deliver));
        drop(self.state.take());
        // In reverse order, a caller that waits for the oldest response wakes once for all of them.
        for wake in to_deliver.into_iter().flatten().rev() {
            match wake {
                PendingWake::Answer(answer, result) => answer.complete(result),
                PendingWake::Received(wake) => drop(wake),
                PendingWake::Wake(waker) => {
                    // The waker is foreign code: its panic must not end this thread.
                    let woken = AssertUnwindSafe(|| waker.wake());
                    drop(std::panic::catch_unwind(woken));
                }
            }
        }
    }
}

impl<'a> Guard<'a> {
    /// Waits for a signal. If there are responses to deliver, delivers them instead and returns, so
    /// that the caller checks its condition again.
    fn sleep(mut self, signal: &Condvar, time: Option<Duration>) -> Guard<'a> {
        let inner = self.inner;
        if !self.to_deliver.is_empty() {
            drop(self);
            return inner.lock();
        }
        if let Some(state) = &mut self.state {
            match time {
                None => signal.wait(state),
                Some(time) => {
                    signal.wait_for(state, time);
                }
            }
        }
        self
    }
}
