//! The committer, which the commit thread shares with callers that commit their own writes.
//!
//! A caller that waits for its outcome would wake the commit thread, sleep, and be woken. If no other
//! work is queued, it commits on its own thread instead, which saves two context switches
//! (docs/decisions/0099).
//!
//! Invariants:
//! - Batches are taken from the queue and committed under one lock, so the log has the order of the
//!   queue.
//! - A caller never waits for this lock, and never runs a program: only the commit thread has the
//!   stack for it.
//! - After a panic, the store is poisoned before the lock is free.

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use weir_core::Intention;
use weir_core::batch::Author;

use super::Committer;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::proposal::Proposal;
use crate::queue::{Notify, Prepared, ShutReason};

pub(crate) struct SharedCommitter {
    engine: Arc<Engine>,
    /// `None` after the commit thread has ended.
    committer: Mutex<Option<Committer>>,
}

/// Poisons the store after a panic.
struct PoisonOnPanic<'a>(&'a Engine);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let thread = "the commit thread";
            self.0.poison(StoreError::Panicked { thread });
        }
    }
}

/// Shuts the queue when the commit thread ends, also after a panic.
struct ShutdownGuard<'a>(&'a SharedCommitter);

impl Drop for ShutdownGuard<'_> {
    fn drop(&mut self) {
        let engine = &self.0.engine;
        if std::thread::panicking() {
            // Fails the batches that were not applied, and the tasks.
            drop(self.0.committer.lock().take());
        }
        let cause = engine.poison.get().map(Arc::clone);
        let why = cause.map_or(ShutReason::Closed, ShutReason::Poisoned);
        engine.queue.fail_all(&why);
    }
}

impl SharedCommitter {
    pub(crate) fn new(committer: Committer) -> Self {
        Self {
            engine: Arc::clone(&committer.engine),
            committer: Mutex::new(Some(committer)),
        }
    }

    /// The body of the commit thread.
    pub(crate) fn run(&self) -> Result<(), StoreError> {
        let shutdown_guard = ShutdownGuard(self);
        let queue = &self.engine.queue;
        loop {
            let (patience, slow_due) = self.with(Committer::prepare_wait);
            queue.wait(patience, slow_due);
            let is_over = self.with(|committer| {
                // Callers that committed during the wait have postponed the slow lane.
                let slow_due = committer.slow_turn.due_at(Instant::now());
                committer.process(queue.take(slow_due))
            });
            if is_over {
                break;
            }
        }
        let Some(committer) = self.committer.lock().take() else {
            unreachable!("only this thread takes the committer");
        };
        // The queue is shut, so the thread of `read_back` sends no more tasks to this thread.
        committer.read_back.stop();
        let ended = committer.finish();
        drop(shutdown_guard);
        ended
    }

    /// Runs a part of the work of the commit thread.
    fn with<T>(&self, work: impl FnOnce(&mut Committer) -> T) -> T {
        let mut committer = self.lock();
        // Dropped before the lock.
        let _poison = PoisonOnPanic(&self.engine);
        work(&mut committer)
    }

    fn lock(&self) -> MappedMutexGuard<'_, Committer> {
        MutexGuard::map(self.committer.lock(), |committer| {
            let Some(committer) = committer else {
                unreachable!("only the commit thread takes the committer");
            };
            committer
        })
    }

    /// Proposes intentions for a caller that waits for their outcomes. If the caller can commit them
    /// by itself, the returned proposal is complete.
    pub(crate) fn propose(
        &self,
        intentions: &[Intention<'_>],
        prepared: Prepared,
    ) -> Result<Proposal, StoreError> {
        let queue = &self.engine.queue;
        if let Some(mut shared) = self.committer.try_lock()
            && let Some(committer) = shared.as_mut().filter(|one| one.accepts_callers())
            && let Some((proposal, pending)) =
                queue.encode_for_caller(Author::Client, intentions, &prepared)?
        {
            // A panic must not end the thread of the caller.
            let commit = AssertUnwindSafe(|| committer.commit_for_caller(pending));
            if catch_unwind(commit).is_err() {
                let thread = "a caller that committed its write";
                self.engine.poison(StoreError::Panicked { thread });
            }
            return Ok(proposal);
        }
        queue.propose(Author::Client, intentions, prepared, Notify::Now)
    }
}
