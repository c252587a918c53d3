//! Waking those who wait for something that another thread makes true.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::lock_ext::LockExt;

/// A condition that somebody else's data is in; waiting costs the other side
/// one atomic read while nobody waits.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    waiting: AtomicUsize,
    /// Nothing will come any more.
    closed: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Signal {
    /// The data changed. Called after it did.
    pub(crate) fn notify(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock_ok());
            self.changed.notify_all();
        }
    }

    /// Ends all waiting, now and later.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        drop(self.lock.lock_ok());
        self.changed.notify_all();
    }

    /// Waits until `found`, or until `deadline` or the end. Returns whether it
    /// was found.
    pub(crate) fn wait(&self, found: impl Fn() -> bool, deadline: Option<Instant>) -> bool {
        if found() {
            return true;
        }
        let mut guard = self.lock.lock_ok();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let result = loop {
            if found() {
                break true;
            }
            if self.closed.load(Ordering::SeqCst) {
                break false;
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            guard = match left {
                None => self
                    .changed
                    .wait(guard)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => break false,
                Some(left) => {
                    let waited = self.changed.wait_timeout(guard, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        drop(guard);
        result
    }
}
