//! A reader-writer lock whose writer yields to waiting readers.
//!
//! The writer regularly releases the lock while it works through a batch. Releasing alone does not
//! help readers: a waiting thread wakes more slowly than the writer locks again. The writer
//! therefore checks whether readers wait, and waits for a bounded time until they have the lock.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Maximum time for which the writer waits for readers.
const READERS_WAIT_MAX: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct FairRwLock<T> {
    lock: RwLock<T>,
    /// Number of readers that wait for the lock.
    waiting: AtomicUsize,
}

impl<T> FairRwLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            lock: RwLock::new(value),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Locks for reading.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        if let Some(guard) = self.lock.try_read() {
            return guard;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let guard = self.lock.read();
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        guard
    }

    /// Locks for reading if that does not block.
    pub(crate) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.lock.try_read()
    }

    /// Locks for writing.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.lock.write()
    }

    /// Called by the writer between two portions of work. Blocks until the waiting readers have the
    /// lock, for at most [`READERS_WAIT_MAX`].
    pub(crate) fn yield_to_readers(&self) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let start = Instant::now();
        while self.waiting.load(Ordering::SeqCst) != 0 && start.elapsed() < READERS_WAIT_MAX {
            std::thread::yield_now();
        }
    }
}
