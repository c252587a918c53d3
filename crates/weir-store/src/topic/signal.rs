//! A signal that wakes threads and tasks which wait for a change made by another thread.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Instant;

/// A condition variable for threads and tasks. The condition depends on data outside of the signal.
/// Without a waiter, [`notify`](Self::notify) costs one atomic read.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    waiting: AtomicUsize,
    /// Whether the signal is closed: there will be no further change.
    closed: AtomicBool,
    lock: Mutex<Watchers>,
    changed: Condvar,
}

/// The waiting tasks.
#[derive(Debug, Default)]
struct Watchers {
    /// Number of the newest registration.
    last: u64,
    wakers: Vec<(u64, Waker)>,
}

/// The result of the registration of a waiting task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registration {
    /// The condition is already true.
    Found,
    /// The signal is closed: the condition will not become true.
    Closed,
    /// The waker will be called. [`Signal::cancel`] with this number cancels the registration.
    Registered(u64),
}

impl Signal {
    /// Wakes all waiters. Must be called after a change of the data.
    pub(crate) fn notify(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
    }

    fn wake(&self) {
        let wakers = std::mem::take(&mut self.lock.lock().wakers);
        self.waiting.fetch_sub(wakers.len(), Ordering::SeqCst);
        self.changed.notify_all();
        for (_, waker) in wakers {
            // The waker is code of the caller. A panic in it must not end the commit thread.
            let woken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
            drop(woken);
        }
    }

    /// Registers `waker` for one call at the next change. Registers nothing if `found` returns true
    /// or the signal is closed.
    pub(crate) fn watch(&self, found: impl Fn() -> bool, waker: &Waker) -> Registration {
        if found() {
            return Registration::Found;
        }
        let mut watchers = self.lock.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let early = if found() {
            Some(Registration::Found)
        } else if self.closed.load(Ordering::SeqCst) {
            Some(Registration::Closed)
        } else {
            None
        };
        if let Some(early) = early {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return early;
        }
        watchers.last += 1;
        let id = watchers.last;
        watchers.wakers.push((id, waker.clone()));
        Registration::Registered(id)
    }

    /// Cancels a registration of [`watch`](Self::watch).
    pub(crate) fn cancel(&self, id: u64) {
        let mut watchers = self.lock.lock();
        if let Ok(at) = watchers.wakers.binary_search_by_key(&id, |(id, _)| *id) {
            watchers.wakers.remove(at);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Closes the signal: wakes all waiters, and later waits return at once.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Blocks until `found` returns true, until `deadline` (`None`: no deadline), or until the
    /// signal is closed. Returns whether `found` returned true.
    pub(crate) fn wait(&self, found: impl Fn() -> bool, deadline: Option<Instant>) -> bool {
        if found() {
            return true;
        }
        let mut guard = self.lock.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let result = loop {
            if found() {
                break true;
            }
            if self.closed.load(Ordering::SeqCst) {
                break false;
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            match left {
                None => self.changed.wait(&mut guard),
                Some(left) if left.is_zero() => break false,
                Some(left) => {
                    self.changed.wait_for(&mut guard, left);
                }
            }
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        drop(guard);
        result
    }
}
