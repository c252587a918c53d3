//! Waking those who wait for something that another thread makes true.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Instant;

/// A condition that somebody else's data is in; waiting costs the other side
/// one atomic read while nobody waits.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    waiting: AtomicUsize,
    /// Nothing will come any more.
    closed: AtomicBool,
    lock: Mutex<Watchers>,
    changed: Condvar,
}

/// Tasks that wait without a thread.
#[derive(Debug, Default)]
struct Watchers {
    /// Number of the one that came last.
    last: u64,
    wakers: Vec<(u64, Waker)>,
}

/// What became of the registration of a task that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registration {
    /// It is so already.
    Found,
    /// It will never be.
    Closed,
    /// The waker will be called; until then this number takes it back.
    Waits(u64),
}

impl Signal {
    /// The data changed. Called after it did.
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
            // Foreign code: a panic in it must not end the commit thread.
            let woken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
            drop(woken);
        }
    }

    /// Asks for one call of the waker with the next change, unless it is found
    /// or closed by now.
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
        Registration::Waits(id)
    }

    /// Takes back what [`watch`](Self::watch) asked for.
    pub(crate) fn forget(&self, id: u64) {
        let mut watchers = self.lock.lock();
        if let Ok(at) = watchers.wakers.binary_search_by_key(&id, |(id, _)| *id) {
            watchers.wakers.remove(at);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Ends all waiting, now and later.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Waits until `found`, or until `deadline` or the end. Returns whether it
    /// was found.
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
