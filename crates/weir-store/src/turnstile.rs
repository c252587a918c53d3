//! The lock of the machine: one writer that comes again and again, many
//! readers.
//!
//! The writer lets the lock go every so often while it works through a batch.
//! That helps a reader only if the reader gets it then: a waiting thread takes
//! longer to wake than the writer to come back. So the writer asks whether
//! somebody waits, and stays outside until they are in, for a bounded time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::{Duration, Instant};

/// How long the writer stays outside for readers, at most.
const WAY_MAX: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Turnstile<T> {
    lock: RwLock<T>,
    /// Readers that found it locked and are not in yet.
    waiting: AtomicUsize,
}

impl<T> Turnstile<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            lock: RwLock::new(value),
            waiting: AtomicUsize::new(0),
        }
    }

    /// For reading. Like all locks of the store it carries on after a panic.
    pub(crate) fn read_ok(&self) -> RwLockReadGuard<'_, T> {
        match self.lock.try_read() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(guard)) => return guard.into_inner(),
            Err(TryLockError::WouldBlock) => {}
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let guard = self.lock.read().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        guard
    }

    /// For reading, if nobody has to be waited for.
    pub(crate) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        match self.lock.try_read() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// For writing.
    pub(crate) fn write_ok(&self) -> RwLockWriteGuard<'_, T> {
        self.lock.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called by the writer between two turns: lets those in who wait.
    pub(crate) fn give_way(&self) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let start = Instant::now();
        while self.waiting.load(Ordering::SeqCst) != 0 && start.elapsed() < WAY_MAX {
            std::thread::yield_now();
        }
    }
}
