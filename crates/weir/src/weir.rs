//! An open store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weir_core::{ClientId, ErrorCode, Intention, ProgramHost, TopicName};
use weir_protocol::{Consistency, Message};
use weir_store::{
    CompactReport, Durability, History, OpenOptions, ProgramInfo, Proposal, SalvageReport, Stats,
    Store, StoreError, TopicInfo, VerifyProgress, VerifyReport,
};

use crate::backend::Backend;
use crate::error::{WeirError, remote_error};
use crate::remote::ConnectOptions;
use crate::reply::Reply;
use crate::session::Session;
use crate::status::Status;
use crate::topic::Topic;

/// An event store: in a directory that this process has open, or at a server. Clones share it.
/// Dropping the last clone closes it. For a server, that waits up to 5 s for the responses to
/// queued writes; [`close`](Self::close) waits up to the patience of the connection.
#[derive(Clone, Debug)]
pub struct Weir {
    backend: Backend,
}

impl Weir {
    /// Opens the store in `directory` with default options. Creates it if there is none.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, WeirError> {
        Self::open_with(directory, &OpenOptions::default())
    }

    /// Opens the store in `directory` for reads only. Writes nothing into the directory, which
    /// another process may have open for writes. Reads return the state at the moment of the open.
    /// Writes fail with [`StoreError::ReadOnly`].
    ///
    /// # Errors
    /// `Missing` if there is no store.
    pub fn open_read_only(directory: impl AsRef<Path>) -> Result<Self, WeirError> {
        Self::open_with(directory, &OpenOptions::read_only())
    }

    /// Opens a store. If the options name no host, the programs of topics run on the
    /// engine of this crate (feature `programs`).
    pub fn open_with(
        directory: impl AsRef<Path>,
        options: &OpenOptions,
    ) -> Result<Self, WeirError> {
        let backend = Backend::open(directory.as_ref(), &with_engine(options))?;
        Ok(Self { backend })
    }

    /// Opens the store, or connects to the server that has it open, through the socket in the
    /// directory. `connect` has the options of that connection.
    ///
    /// # Errors
    /// `Locked` with the process id if another process has the directory open and does not serve it
    /// at that socket.
    pub fn open_or_connect(
        directory: impl AsRef<Path>,
        options: &OpenOptions,
        connect: &ConnectOptions,
    ) -> Result<Self, WeirError> {
        let error = match Self::open_with(directory, options) {
            Err(WeirError::Store(error)) => error,
            opened => return opened,
        };
        match Self::served(&error, connect) {
            Some(connected) => connected,
            None => Err(error.into()),
        }
    }

    /// Connects to the server at the socket that a `Locked` error names. `None` if no server
    /// responds there, or if the error is another one.
    pub fn served(error: &StoreError, connect: &ConnectOptions) -> Option<Result<Self, WeirError>> {
        let StoreError::Locked {
            socket: Some(socket),
            ..
        } = error
        else {
            return None;
        };
        // The socket may belong to a server that has ended, or that is about to start.
        if !crate::remote::answers(socket) {
            return None;
        }
        Some(Self::connect_with(
            &format!("unix:{}", socket.display()),
            connect,
        ))
    }

    /// Connects to a server: `weir://HOST[:PORT]`, `weirs://HOST[:PORT]` (TLS)
    /// or `unix:PATH`. All calls work as with [`open`](Self::open), except for maintenance.
    ///
    /// # Errors
    /// `Remote` with `BadAddress`, `Unreachable`, or the error of the server.
    pub fn connect(url: &str) -> Result<Self, WeirError> {
        Self::connect_with(url, &ConnectOptions::default())
    }

    /// Connects to a server with options. Requests without a response are repeated after a
    /// lost connection. Writes are repeated only in a session ([`session`](Self::session)),
    /// whose nonces make that safe; without a session their outcome is `Remote` with
    /// `Indeterminate`.
    pub fn connect_with(url: &str, options: &ConnectOptions) -> Result<Self, WeirError> {
        let backend = Backend::connect(url, options)?;
        Ok(Self { backend })
    }

    /// Asynchronous [`connect_with`](Self::connect_with).
    pub fn connect_async(url: &str, options: &ConnectOptions) -> Reply<Self> {
        let (url, options) = (url.to_owned(), options.clone());
        Reply::new(async move {
            let backend = Backend::connect_async(url, options).await?;
            Ok(Self { backend })
        })
    }

    /// Returns a handle to a store that this process has open.
    #[must_use]
    pub fn with_store(store: Arc<Store>) -> Self {
        let backend = Backend::of(store);
        Self { backend }
    }

    /// Returns a handle whose reads from a server, and whose waits of a query, fail after
    /// `patience` with `Remote` and `Deadline`. It replaces the patience of the connection. A local
    /// store waits only for its disk. Writes are not affected.
    #[must_use]
    pub fn within(&self, patience: Duration) -> Self {
        let backend = self.backend.within(patience);
        Self { backend }
    }

    /// Returns a handle whose reads, listeners, queries and claims at a cluster have this
    /// consistency. It replaces that of the connection
    /// ([`ConnectOptions::consistency`](crate::ConnectOptions::consistency)). No effect on a local
    /// store.
    #[must_use]
    pub fn with_consistency(&self, consistency: Consistency) -> Self {
        let backend = self.backend.with_consistency(consistency);
        Self { backend }
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.backend
    }

    /// The local store, for maintenance; `None` if the store is at a server.
    #[must_use]
    pub fn local(&self) -> Option<&Store> {
        self.backend.local().map(|store| &**store)
    }

    /// The local store, for statistics, maintenance and bulk proposals.
    ///
    /// # Errors
    /// `Remote` with `Unsupported` if the store is at a server; see [`local`](Self::local).
    pub fn store(&self) -> Result<&Store, WeirError> {
        self.local().ok_or_else(|| {
            let text = "the store is at a server, so it is not open here";
            remote_error(ErrorCode::Unsupported, text).into()
        })
    }

    /// Returns the local store, so that a server can share it; `None` if this handle is connected
    /// to a server.
    #[must_use]
    pub fn shared_store(&self) -> Option<Arc<Store>> {
        self.backend.local().map(Arc::clone)
    }

    /// The id of the store.
    pub fn store_id(&self) -> Result<[u8; 16], WeirError> {
        Ok(self.backend.store_id()?)
    }

    /// The durability level of acknowledged writes.
    pub fn durability(&self) -> Result<Durability, WeirError> {
        Ok(self.backend.durability()?)
    }

    /// The topics that exist, by name; with `include_destroyed` also those that were destroyed.
    pub fn topics(&self, include_destroyed: bool) -> Result<Vec<TopicInfo>, WeirError> {
        Ok(self.backend.topics(include_destroyed)?)
    }

    /// The program of a topic; `None` if it has none.
    pub fn program(&self, topic: &str) -> Result<Option<ProgramInfo>, WeirError> {
        Ok(self.backend.program(topic)?)
    }

    /// All topics that have a program, each with its program, by name.
    pub fn programs(&self) -> Result<Vec<(String, ProgramInfo)>, WeirError> {
        Ok(self.backend.programs()?)
    }

    /// Counts since the store was opened.
    pub fn stats(&self) -> Result<Stats, WeirError> {
        Ok(self.backend.stats()?)
    }

    /// The state of the store, and of the server that has it open.
    ///
    /// # Errors
    /// `Forbidden` at a server, without the right `admin`.
    pub fn status(&self) -> Result<Status, WeirError> {
        Ok(self.backend.status()?)
    }

    /// Compacts each topic whose options request it, writes a snapshot and removes the log before
    /// it. Blocks until that is finished; the store accepts writes in the meantime. Afterwards the
    /// topic segments are the only copy of the records of the removed log.
    ///
    /// # Errors
    /// `Forbidden` at a server, without the right `admin`.
    pub fn compact(&self) -> Result<CompactReport, WeirError> {
        Ok(self.backend.compact()?)
    }

    /// Reserves a number in the cluster of the server for a new node. The node will listen for its
    /// peers at `peer` (`HOST:PORT`). Returns the number, with which an empty directory may join at
    /// that address. Until it has joined, the node does not vote and no commit waits for it.
    ///
    /// # Errors
    /// `Forbidden` without the right `admin`; `BadOption` if the address is malformed or belongs to
    /// a member; `Unsupported` for a local store.
    pub fn add_node(&self, peer: &str) -> Result<u64, WeirError> {
        Ok(self.backend.add_node(peer)?)
    }

    /// The history of the store, to be replayed in this process; programs run on `host`. A server
    /// sends the parts of its files when they are needed.
    ///
    /// # Errors
    /// `Forbidden` at a server, without the rights `admin` and `read` on all topics.
    pub fn history(&self, host: Option<Arc<dyn ProgramHost>>) -> Result<History, WeirError> {
        Ok(self.backend.history(host)?)
    }

    /// Removes a node from the cluster of the server. Its directory cannot rejoin under its number.
    /// Returns after a majority has committed the change.
    ///
    /// # Errors
    /// `Forbidden` without the right `admin`; `BadOption` if the node is not a member or is the
    /// only voter; `Unsupported` for a local store.
    pub fn remove_node(&self, node: u64) -> Result<(), WeirError> {
        self.change_cluster(&Message::ClusterRemove { node })
    }

    /// Makes a voter the leader of the cluster. Returns when that node leads.
    ///
    /// # Errors
    /// As for [`remove_node`](Self::remove_node); also if the node does not lead within 5 s.
    pub fn transfer_lead(&self, node: u64) -> Result<(), WeirError> {
        self.change_cluster(&Message::ClusterTransfer { node })
    }

    fn change_cluster(&self, change: &Message<'_>) -> Result<(), WeirError> {
        Ok(self.backend.change_cluster(change)?)
    }

    /// Why the store rejects writes, or why its last checkpoint failed; `None` if neither is the
    /// case. At a server, this is the state when the connection was made.
    pub fn failure(&self) -> Result<Option<String>, WeirError> {
        Ok(self.backend.failure()?)
    }

    /// Makes all acknowledged writes durable, at any durability level. Does not wait for program
    /// calls that are still running.
    pub fn sync(&self) -> Result<(), WeirError> {
        Ok(self.backend.sync()?)
    }

    /// Returns a handle to a topic, which need not exist. Does no I/O. Topics of the store
    /// itself, such as `.weir.audit`, can be read but not written.
    pub fn topic(&self, name: &str) -> Result<Topic, WeirError> {
        Ok(Topic::new(self.backend.clone(), TopicName::any(name)?))
    }

    /// Returns a session: its intentions are executed exactly once, even if they are resent after a
    /// crash, because the store remembers its nonces. No two writers may use one id at the same
    /// time.
    pub fn session(&self, client: ClientId) -> Session {
        Session::new(&self.backend, client)
    }

    /// Proposes intentions. Does not wait for their outcomes.
    ///
    /// # Errors
    /// `Remote` with `BadRequest` for intentions with a nonce at a server. Use a
    /// [`session`](Self::session) for them.
    pub fn propose(&self, intentions: &[Intention<'_>]) -> Result<Proposal, WeirError> {
        Ok(self
            .backend
            .propose_without_session(intentions, Backend::propose)?)
    }

    /// Proposes intentions for a caller that waits for their outcomes at once. If no other write is
    /// queued in a local store, and the topics have no programs, this thread commits them: the call
    /// blocks for the write and the sync, which cannot be cancelled, wakes listeners, and returns a
    /// complete proposal. Otherwise as [`propose`](Self::propose).
    ///
    /// # Errors
    /// As for [`propose`](Self::propose).
    pub fn propose_inline(&self, intentions: &[Intention<'_>]) -> Result<Proposal, WeirError> {
        Ok(self
            .backend
            .propose_without_session(intentions, Backend::propose_inline)?)
    }

    /// Executes the queued writes and closes the store, even if other handles to it exist. Writes
    /// through these handles then fail with `Closed`, and the directory can be opened again. Calls
    /// in the slow lane also fail with `Closed` and are not executed. Pages that were read remain
    /// valid. At a server, waits for the responses to queued writes, up to the patience of the
    /// connection, and closes the connection; the server keeps the store open.
    pub fn close(self) -> Result<(), WeirError> {
        Ok(self.backend.close()?)
    }
}

/// Checks a store that no process has open, including its programs.
///
/// # Errors
/// Only if the store cannot be read at all (no store, locked, not permitted). Otherwise the report
/// lists the damage.
pub fn verify(directory: &Path) -> Result<VerifyReport, StoreError> {
    verify_watched(directory, &mut |_| {})
}

/// Checks a store as [`verify`] does, and calls `watch` about once for each MiB.
///
/// # Errors
/// As [`verify`].
pub fn verify_watched(
    directory: &Path,
    watch: &mut dyn FnMut(VerifyProgress),
) -> Result<VerifyReport, StoreError> {
    weir_store::verify_with(directory, program_host().as_ref(), watch)
}

/// Creates a store in `target` from the readable part of the damaged store in `source`.
/// `target` must be empty or not exist. No process may have `source` open; it is not
/// changed.
///
/// # Errors
/// `Damage` if no state can be recovered; `NotEmpty` for the target.
pub fn salvage(source: &Path, target: &Path) -> Result<SalvageReport, StoreError> {
    weir_store::salvage(source, target, program_host().as_ref())
}

/// Returns the report that [`salvage`] would return, and writes no store.
///
/// # Errors
/// As [`salvage`], without `NotEmpty`.
pub fn salvage_dry_run(source: &Path) -> Result<SalvageReport, StoreError> {
    weir_store::salvage_dry_run(source, program_host().as_ref())
}

/// Returns the options with the program engine of this crate (feature `programs`) if they name
/// none. For callers that open a store in another way.
#[must_use]
pub fn with_engine(options: &OpenOptions) -> OpenOptions {
    let mut options = options.clone();
    options.host = options.host.or_else(program_host);
    options
}

/// The engine that all stores of this process share, so that a module is compiled once.
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
