//! The part of the store that maintenance uses.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};

use weir_core::Intention;
use weir_core::batch::Author;

use crate::checkpoint;
use crate::commit::{Committer, Task};
use crate::disk::Disk;
use crate::engine::Engine;
use crate::error::{IoVerb, StoreError};
use crate::log::LogIndex;
use crate::permit::{Exclusive, ExclusivePermit};
use crate::proposal::Proposal;
use crate::queue::Notify;
use crate::read_back::ReadBack;
use crate::snapshot::{self, Checkpoint};
use crate::topic::files::Segment;

/// The parts of an open store that a maintenance thread needs.
#[derive(Clone)]
pub(crate) struct MaintenanceHandle {
    pub(crate) engine: Arc<Engine>,
    pub(crate) tasks: Sender<Task>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) maintenance: Arc<Exclusive>,
    pub(crate) read_back: Arc<ReadBack>,
}

impl MaintenanceHandle {
    /// Runs `work` on the commit thread, between two batches.
    ///
    /// # Errors
    /// The reason why the thread accepts no more tasks.
    pub(crate) fn send(
        &self,
        work: impl FnOnce(&mut Committer) + Send + 'static,
    ) -> Result<(), StoreError> {
        // A thread that has ended drops its tasks and the senders of their results.
        let send = || drop(self.tasks.send(Box::new(work)));
        self.engine.queue.task(send)
    }

    /// Runs `work` on the commit thread, between two batches, and blocks until it returns.
    pub(crate) fn run_on_commit_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Committer) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let (sender, answer) = mpsc::sync_channel(1);
        self.send(move |committer: &mut Committer| {
            // The send fails if the caller no longer waits; the result is then not needed.
            drop(sender.send(work(committer)));
        })?;
        answer.recv().map_err(|_| StoreError::Closed)
    }

    /// Proposes intentions that contain no program.
    pub(crate) fn propose(
        &self,
        author: Author,
        intentions: &[Intention<'_>],
        notify: Notify,
    ) -> Result<Proposal, StoreError> {
        let prepared = self.engine.prepare(intentions)?;
        self.engine
            .queue
            .propose(author, intentions, prepared, notify)
    }

    /// Writes a snapshot of the current state, and purges the log up to the previous snapshot.
    pub(crate) fn checkpoint(&self, permit: &ExclusivePermit) -> Result<LogIndex, StoreError> {
        let checkpoint = self.run_on_commit_thread(Committer::begin_checkpoint)??;
        self.finish_checkpoint(&checkpoint, permit)
    }

    /// Like `checkpoint`, for a state that was already captured. A failed purge is retried after
    /// the next snapshot.
    pub(crate) fn finish_checkpoint(
        &self,
        checkpoint: &Checkpoint,
        permit: &ExclusivePermit,
    ) -> Result<LogIndex, StoreError> {
        let index = checkpoint::finish(&self.engine, &*self.disk, checkpoint, permit)?;
        if let Err(error) = self.purge_log(permit) {
            tracing::warn!(%error, "the log was not purged");
        }
        Ok(index)
    }

    /// Writes a snapshot, and removes the files of all retired segments. After an error, the next
    /// call removes the remaining files.
    pub(crate) fn remove_retired(
        &self,
        retired: &[Arc<Segment>],
        permit: &ExclusivePermit,
    ) -> Result<(), StoreError> {
        let index = self.checkpoint(permit)?;
        // An older snapshot may list the segments; the new snapshot is durable.
        snapshot::remove_before(&*self.disk, index)?;
        for segment in retired {
            segment.cache.evict(&segment.path);
            match self.disk.remove(&segment.path) {
                // An earlier call has removed the file, and then failed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed.map_err(StoreError::io(IoVerb::Remove, &segment.path))?,
            }
        }
        // Fails only if the store is closed.
        let clear = |committer: &mut Committer| committer.applier.lock().topics.retired.clear();
        drop(self.run_on_commit_thread(clear));
        Ok(())
    }
}

impl Committer {
    pub(crate) fn maintenance_handle(&self) -> MaintenanceHandle {
        MaintenanceHandle {
            engine: Arc::clone(&self.engine),
            tasks: self.task_sender.clone(),
            disk: Arc::clone(&self.disk),
            maintenance: Arc::clone(&self.maintenance),
            read_back: Arc::clone(&self.read_back),
        }
    }
}
