//! An open store.

use std::path::Path;
use std::sync::Arc;

use weir_core::{ClientId, Intention, TopicName};
use weir_store::{OpenOptions, Proposal, Store};

use crate::error::WeirError;
use crate::session::Session;
use crate::topic::Topic;

/// An event store in a directory. Clones share it; the last one closes it.
#[derive(Clone, Debug)]
pub struct Weir {
    store: Arc<Store>,
}

impl Weir {
    /// Opens the store in `directory` with default options, or makes one.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, WeirError> {
        Self::open_with(directory, &OpenOptions::default())
    }

    /// Opens a store.
    pub fn open_with(
        directory: impl AsRef<Path>,
        options: &OpenOptions,
    ) -> Result<Self, WeirError> {
        let store = Store::open(directory.as_ref(), options)?;
        Ok(Self {
            store: Arc::new(store),
        })
    }

    /// The store underneath: statistics, maintenance, proposals in bulk.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// A handle on a topic, whether it lives or not. Costs nothing.
    pub fn topic(&self, name: &str) -> Result<Topic, WeirError> {
        Ok(Topic::new(Arc::clone(&self.store), TopicName::new(name)?))
    }

    /// A writer whose intentions are executed exactly once, even if they are
    /// sent again after a crash: the store remembers its nonces. The id must
    /// not be used by two writers at once.
    pub fn session(&self, client: ClientId) -> Session {
        Session::new(Arc::clone(&self.store), client)
    }

    /// Hands over intentions without waiting for them.
    pub fn propose(&self, intentions: &[Intention<'_>]) -> Result<Proposal, WeirError> {
        Ok(self.store.propose(intentions)?)
    }

    /// Finishes what is queued and closes the store, whoever else still holds
    /// a handle: their writes are answered with `Closed`, and the directory can
    /// be opened again. Pages that were read stay valid.
    pub fn close(self) -> Result<(), WeirError> {
        Ok(self.store.shut_down()?)
    }
}
