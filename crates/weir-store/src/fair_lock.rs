//! A reader-writer lock whose writer lets waiting readers in.
//!
//! The writer releases the lock every so often while it works through a batch.
//! That alone does not help a reader: a waiting thread takes longer to wake than
//! the writer to lock again. So the writer asks whether readers wait, and does
//! not lock again until they have the lock, for a bounded time.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// For how long the writer waits for readers, at most.
const READERS_WAIT_MAX: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct FairRwLock<T> {
    lock: RwLock<T>,
    /// Readers that found it locked and do not have it yet.
    waiting: AtomicUsize,
}

impl<T> FairRwLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            lock: RwLock::new(value),
            waiting: AtomicUsize::new(0),
        }
    }

    /// For reading.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        if let Some(guard) = self.lock.try_read() {
            return guard;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let guard = self.lock.read();
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        guard
    }

    /// For reading, if that does not block.
    pub(crate) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.lock.try_read()
    }

    /// For writing.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.lock.write()
    }

    /// Called by the writer between two turns: waits until the readers that wait
    /// have the lock.
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
