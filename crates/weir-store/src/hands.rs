//! What maintenance works with: the store without its callers.

use std::sync::{Arc, mpsc};

use weir_core::Intention;
use weir_core::batch::Author;

use crate::commit::Committer;
use crate::disk::Disk;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::log::LogIndex;
use crate::maintain;
use crate::permit::{Permit, Single};
use crate::proposal::Proposal;
use crate::queue::{Tell, When};
use crate::store::Store;

/// The parts of an open store that a thread of its own needs.
#[derive(Clone)]
pub(crate) struct Hands {
    pub(crate) engine: Arc<Engine>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) maintenance: Arc<Single>,
}

impl Hands {
    /// Runs `work` on the commit thread, between two batches and when nothing
    /// is deferred, and waits for it.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Committer) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        self.ask_when(When::Whole, work)
    }

    /// The same for work that does not look at the machine: it waits for no
    /// program.
    pub(crate) fn ask_at_once<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Committer) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        self.ask_when(When::AtOnce, work)
    }

    fn ask_when<T: Send + 'static>(
        &self,
        when: When,
        work: impl FnOnce(&mut Committer) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let (sender, answer) = mpsc::sync_channel(1);
        let task = Box::new(move |committer: &mut Committer| {
            // The asker may be gone; then nobody wants to know.
            drop(sender.send(work(committer)));
        });
        self.engine.queue.task(when, task)?;
        answer.recv().map_err(|_| StoreError::Closed)
    }

    /// Hands over intentions that bring no program.
    pub(crate) fn propose(
        &self,
        intentions: &[Intention<'_>],
        tell: Tell,
    ) -> Result<Proposal, StoreError> {
        let prepared = self.engine.prepare(intentions)?;
        self.engine
            .queue
            .propose(Author::Client, intentions, prepared, tell)
    }

    /// Writes a snapshot of the state as it is now.
    pub(crate) fn checkpoint(&self, permit: &Permit) -> Result<LogIndex, StoreError> {
        let checkpoint = self.ask(Committer::begin_checkpoint)??;
        maintain::finish(&self.engine, &*self.disk, &checkpoint, permit)
    }
}

impl Store {
    pub(crate) fn hands(&self) -> Hands {
        Hands {
            engine: Arc::clone(&self.engine),
            disk: Arc::clone(&self.disk),
            maintenance: Arc::clone(&self.maintenance),
        }
    }

    /// See [`Hands::ask`].
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Committer) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        self.hands().ask(work)
    }
}
