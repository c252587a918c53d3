//! The committer, which the commit thread shares with callers that commit their own writes.
//!
//! A caller that waits for its outcome would wake the commit thread, sleep, and be woken. If no other
//! work is queued, it commits on its own thread instead, which saves both changes of the thread
//! (docs/decisions/0099).
//!
//! Invariants:
//! - Batches are taken from the queue and committed under one lock, so the log has the order of the
//!   queue.
//! - A caller never waits for this lock, and never runs a program: only the commit thread has the
//!   stack for it.

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use weir_core::Intention;
use weir_core::batch::Author;

use super::Committer;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::proposal::Proposal;
use crate::queue::{Notify, Prepared, ShutReason};

/// Name of the commit thread in errors.
const THREAD: &str = "the commit thread";

pub(crate) struct SharedCommitter {
    engine: Arc<Engine>,
    /// `None` after the commit thread has ended.
    committer: Mutex<Option<Committer>>,
}

/// Shuts the queue when the commit thread ends, also after a panic.
struct ShutdownGuard<'a>(&'a SharedCommitter);

impl Drop for ShutdownGuard<'_> {
    fn drop(&mut self) {
        let engine = &self.0.engine;
        if std::thread::panicking() {
            engine.poison(StoreError::Panicked { thread: THREAD });
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
            let (patience, slow_due) = self.lock().prepare_wait();
            queue.wait(patience, slow_due);
            let mut committer = self.lock();
            if committer.work(queue.take(slow_due)) {
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

    fn lock(&self) -> MappedMutexGuard<'_, Committer> {
        MutexGuard::map(self.committer.lock(), |committer| {
            let Some(committer) = committer else {
                unreachable!("only this thread takes the committer");
            };
            committer
        })
    }

    /// Proposes intentions for a caller that waits for their outcomes. If the caller can commit them
    /// by itself, the proposal is complete when it is returned.
    pub(crate) fn propose(
        &self,
        intentions: &[Intention<'_>],
        prepared: Prepared,
    ) -> Result<Proposal, StoreError> {
        let queue = &self.engine.queue;
        if let Some(mut shared) = self.committer.try_lock()
            && let Some(committer) = shared.as_mut().filter(|one| one.accepts_callers())
            && let Some((proposal, pending)) =
                queue.take_alone(Author::Client, intentions, &prepared)?
        {
            // A panic must not end the thread of the caller.
            let commit = AssertUnwindSafe(|| committer.commit_for_caller(pending));
            if catch_unwind(commit).is_err() {
                self.engine.poison(StoreError::Panicked { thread: THREAD });
            }
            return Ok(proposal);
        }
        queue.propose(Author::Client, intentions, prepared, Notify::Now)
    }
}
