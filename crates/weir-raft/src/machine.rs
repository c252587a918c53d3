//! The machine of a store as the state machine of openraft.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use openraft::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::storage::{ApplyResponder, EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::{OptionalSend, SnapshotMeta};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use weir_core::program::PROGRAM_STACK_BYTES;
use weir_store::replica::{EntryId, Replica, ReplicaEntry, ShippedSnapshot, StagedSnapshot};
use weir_store::{LogIndex, StoreError};

use crate::convert::{entry_id, io_error, log_id, stored_entry, stored_membership};
use crate::gate::Gate;
use crate::types::{LogId, StoredMembership, Types};

/// Entries that are applied before the result is reported to openraft.
const ENTRIES_AT_ONCE: usize = 64;
/// Bytes of a snapshot that are read or sent at a time.
pub(crate) const PART_BYTES: usize = 1 << 20;

type Applied = (ReplicaEntry, Option<ApplyResponder<Types>>);

struct Job {
    entries: Vec<Applied>,
    done: oneshot::Sender<Result<(), StoreError>>,
}

/// The machine of a node. A separate thread applies the entries; it has the stack size that
/// programs need.
#[derive(Debug)]
pub struct StateMachine {
    replica: Replica,
    /// Sends jobs to the apply thread; `None` if the caller applies.
    jobs: Option<mpsc::Sender<Job>>,
    /// Log index of the newest entry in the snapshot that openraft knows.
    known: Arc<AtomicU64>,
    gate: Gate,
}

/// A snapshot of a state machine: the files of this node, or files that another node has sent.
#[derive(Clone, Debug)]
pub struct StateMachineSnapshot(Arc<Content>);

#[derive(Debug)]
enum Content {
    Shipped(ShippedSnapshot),
    /// `None` after the installation.
    Staged(Mutex<Option<StagedSnapshot>>),
}

impl StateMachineSnapshot {
    /// A snapshot that this node has written.
    pub(crate) fn of(shipped: ShippedSnapshot) -> Self {
        Self(Arc::new(Content::Shipped(shipped)))
    }

    /// A snapshot that another node has sent.
    pub(crate) fn staged(staged: StagedSnapshot) -> Self {
        Self(Arc::new(Content::Staged(Mutex::new(Some(staged)))))
    }

    /// The files, if this node has written them.
    pub(crate) fn shipped(&self) -> Option<&ShippedSnapshot> {
        match &*self.0 {
            Content::Shipped(shipped) => Some(shipped),
            Content::Staged(_) => None,
        }
    }

    /// Replaces the state of `replica` with this snapshot.
    fn install(&self, replica: &Replica) -> io::Result<()> {
        let staged = match &*self.0 {
            Content::Staged(staged) => staged.lock().take(),
            Content::Shipped(shipped) => Some(copy(shipped, replica)?),
        };
        let installed = || io::Error::other("the snapshot was installed before");
        replica
            .install(staged.ok_or_else(installed)?)
            .map_err(io_error)
    }
}

/// Stages a snapshot of another store of this process.
pub(crate) fn copy(shipped: &ShippedSnapshot, replica: &Replica) -> io::Result<StagedSnapshot> {
    let staged = replica.stage(shipped.id, shipped.files.clone());
    let mut staged = staged.map_err(io_error)?;
    for (number, file) in shipped.files.iter().enumerate() {
        let mut at = 0;
        while at < file.bytes {
            let part = shipped.read(number, at, PART_BYTES).map_err(io_error)?;
            staged.write(number, at, &part).map_err(io_error)?;
            at += part.len() as u64;
        }
    }
    Ok(staged)
}

/// The metadata of a snapshot.
pub(crate) fn meta(
    id: EntryId,
    membership: Option<(EntryId, Bytes)>,
) -> io::Result<SnapshotMetaOf<Types>> {
    #[cfg(feature = "sim")]
    let membership = crate::planted::membership(membership);
    Ok(SnapshotMeta {
        // A snapshot of the empty state covers no entry.
        last_log_id: (id.index > LogIndex::ZERO).then(|| log_id(id)),
        last_membership: stored_membership(membership)?,
    })
}

fn snapshot_of(shipped: ShippedSnapshot) -> io::Result<SnapshotOf<Types, StateMachineSnapshot>> {
    let meta = meta(shipped.id, shipped.membership.clone())?;
    let snapshot = StateMachineSnapshot::of(shipped);
    Ok(SnapshotOf::<Types, _> { meta, snapshot })
}

/// Runs work that waits for a disk, outside of the async threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    #[cfg(feature = "sim")]
    if crate::runtime::is_seeded() {
        return work();
    }
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(io::Error::other)?
}

/// Finds the newest snapshot, and writes a new one if openraft already knows the newest.
#[derive(Debug)]
pub struct SnapshotBuilder {
    replica: Replica,
    known: Arc<AtomicU64>,
}

impl StateMachine {
    /// Starts the apply thread.
    ///
    /// # Errors
    /// Fails if the system cannot start a thread.
    pub fn new(replica: Replica) -> io::Result<Self> {
        let (jobs, received) = mpsc::channel::<Job>();
        let applier = replica.clone();
        std::thread::Builder::new()
            .name("weir-apply".to_owned())
            .stack_size(PROGRAM_STACK_BYTES)
            .spawn(move || {
                for job in received {
                    // If openraft has ended, no caller waits for the result.
                    drop(job.done.send(apply(&applier, job.entries)));
                }
            })?;
        Ok(Self {
            replica,
            jobs: Some(jobs),
            known: Arc::default(),
            gate: Gate::default(),
        })
    }

    /// A machine that applies on the caller's thread, for simulations.
    #[cfg(feature = "sim")]
    pub(crate) fn inline(replica: Replica) -> Self {
        Self {
            replica,
            jobs: None,
            known: Arc::default(),
            gate: Gate::default(),
        }
    }

    /// The gate that limits the entries that are applied.
    pub(crate) fn gate(&self) -> Gate {
        self.gate.clone()
    }

    async fn apply_allowed(&self, entries: Vec<Applied>) -> io::Result<()> {
        let Some(jobs) = &self.jobs else {
            return apply(&self.replica, entries).map_err(io_error);
        };
        let (done, applied) = oneshot::channel();
        let ended = || io::Error::other("the thread that applies has ended");
        let job = Job { entries, done };
        jobs.send(job).map_err(|_| ended())?;
        applied.await.map_err(|_| ended())?.map_err(io_error)
    }

    fn state(&self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let applied = self.replica.applied();
        let membership = applied.membership;
        #[cfg(feature = "sim")]
        let membership = crate::planted::membership(membership);
        let membership = stored_membership(membership)?;
        Ok((applied.last.map(log_id), membership))
    }
}

fn apply(replica: &Replica, entries: Vec<Applied>) -> Result<(), StoreError> {
    for (entry, responder) in entries {
        let outcomes = replica.apply(entry)?;
        if let Some(responder) = responder {
            responder.send(outcomes);
        }
    }
    Ok(())
}

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotData = StateMachineSnapshot;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        self.state()
    }

    async fn apply<S>(&mut self, entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + OptionalSend,
    {
        let mut chunks = entries.ready_chunks(ENTRIES_AT_ONCE);
        while let Some(chunk) = chunks.next().await {
            let entry = |one: Result<EntryResponder<Types>, io::Error>| {
                one.map(|(entry, responder)| (stored_entry(entry), responder))
            };
            let mut entries = chunk
                .into_iter()
                .map(entry)
                .collect::<Result<Vec<Applied>, _>>()?;
            while let Some((first, _)) = entries.first() {
                let limit = self.gate.pass(first.id.index).await;
                let allowed = entries.partition_point(|(entry, _)| entry.id.index <= limit);
                let later = entries.split_off(allowed);
                self.apply_allowed(entries).await?;
                entries = later;
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        SnapshotBuilder {
            replica: self.replica.clone(),
            known: Arc::clone(&self.known),
        }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<Types>,
        snapshot: StateMachineSnapshot,
    ) -> Result<(), io::Error> {
        let replica = self.replica.clone();
        blocking(move || snapshot.install(&replica)).await?;
        let index = meta
            .last_log_id
            .as_ref()
            .map_or(0, |id| entry_id(id).index.0);
        self.known.fetch_max(index, Ordering::Relaxed);
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<SnapshotOf<Types, StateMachineSnapshot>>, io::Error> {
        let replica = self.replica.clone();
        let newest = blocking(move || replica.ship().map_err(io_error)).await?;
        newest.map(snapshot_of).transpose()
    }
}

impl RaftSnapshotBuilder<Types> for SnapshotBuilder {
    type SnapshotData = StateMachineSnapshot;

    async fn build_snapshot(
        &mut self,
    ) -> Result<SnapshotOf<Types, StateMachineSnapshot>, io::Error> {
        let (replica, known) = (self.replica.clone(), self.known.load(Ordering::Relaxed));
        let newest = blocking(move || {
            let newest = replica.ship().map_err(io_error)?;
            let is_new = |newest: &ShippedSnapshot| newest.id.index.0 > known;
            if newest.as_ref().is_some_and(is_new) {
                return Ok(newest);
            }
            replica.checkpoint().map_err(io_error)?;
            replica.ship().map_err(io_error)
        });
        let missing = || io::Error::other("the new snapshot is missing");
        let newest = newest.await?.ok_or_else(missing)?;
        self.known.fetch_max(newest.id.index.0, Ordering::Relaxed);
        snapshot_of(newest)
    }
}
