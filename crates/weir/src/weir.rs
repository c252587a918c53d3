//! An open store.

use std::path::Path;
use std::sync::Arc;

use weir_core::{ClientId, Intention, ProgramHost, TopicName};
use weir_store::{OpenOptions, Proposal, Store, StoreError, VerifyReport};

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

    /// Opens a store. Without a host in the options the programs of topics
    /// run on the engine that this crate brings (feature `programs`).
    pub fn open_with(
        directory: impl AsRef<Path>,
        options: &OpenOptions,
    ) -> Result<Self, WeirError> {
        let store = match (&options.host, program_host()) {
            (None, Some(host)) => {
                let mut options = options.clone();
                options.host = Some(host);
                Store::open(directory.as_ref(), &options)?
            }
            _ => Store::open(directory.as_ref(), options)?,
        };
        Ok(Self {
            store: Arc::new(store),
        })
    }

    /// The store underneath: statistics, maintenance, proposals in bulk.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The store underneath, to be shared with whoever serves it; `None` when it
    /// is behind a server itself.
    #[must_use]
    pub fn shared_store(&self) -> Option<Arc<Store>> {
        Some(Arc::clone(&self.store))
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

/// Checks the store in a directory that nobody has open, programs included.
///
/// # Errors
/// Only when it cannot be read at all (no store, locked, not permitted); what
/// is wrong with a store that can be read is in the report.
pub fn verify(directory: &Path) -> Result<VerifyReport, StoreError> {
    weir_store::verify_with(directory, program_host().as_ref())
}

/// The engine of this process: one, so that a module is compiled once however
/// many stores are open.
#[cfg(feature = "programs")]
#[allow(
    clippy::unnecessary_wraps,
    reason = "without the feature there is none"
)]
fn program_host() -> Option<Arc<dyn ProgramHost>> {
    use std::sync::LazyLock;
    static HOST: LazyLock<Arc<weir_program::WasmtimeHost>> = LazyLock::new(Arc::default);
    Some(Arc::clone(&*HOST) as Arc<dyn ProgramHost>)
}

#[cfg(not(feature = "programs"))]
fn program_host() -> Option<Arc<dyn ProgramHost>> {
    None
}
