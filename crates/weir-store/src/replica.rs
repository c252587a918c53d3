//! A store in a cluster: the calls that a log provider makes. The provider decides the order of
//! batches (docs/decisions/0064).
//!
//! A provider implements [`IntentionLog`]. It receives batches with the callers that wait for them,
//! and decides their order. It calls a [`Replica`], which has two sides:
//!
//! - the writer: append, vote, truncate and purge, on one thread in the order of the calls;
//! - the applier: applies committed entries in the order of the log.
//!
//! A store without a provider does not use this module: its committer appends, syncs and applies.
//!
//! Invariants:
//!
//! - An entry is applied only after the provider has reported it as committed.
//! - A vote, and every entry that was appended before it, is durable before `save_vote` reports
//!   success. At levels that do not sync, this holds for the vote only.
//! - Each waiter of a batch gets exactly one result.

use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use weir_core::{Digest, Outcomes};

use crate::checkpoint;
use crate::commit::{Applier, Committer};
use crate::disk::{Disk, FileDisk};
use crate::error::{IoVerb, StoreError};
use crate::identity::{self, Identity};
use crate::lock::{DirLock, LOCK_FILE};
use crate::log::{LogIndex, LogReader, LogReaders};
pub use crate::log_index::EntryId;
use crate::maintenance_handle::MaintenanceHandle;
use crate::node::files::{self, CommittedFile, VoteFile};
pub use crate::node::{
    AppliedState, Callback, DirectoryReport, NodeOptions, Vote, new_incarnation,
};
use crate::node::{NodeFiles, ReplicaWriter, Shared};
use crate::options::OpenOptions;
use crate::permit::ExclusivePermit;
pub use crate::provider::{IntentionLog, LatencyClass, ProposedBatch, Waiters};
use crate::recovery::recover;
use crate::replay::{
    Appended, BLANK, Content, ENTRY_HEAD_BYTES, MEMBERSHIP, blank_payload, membership_payload,
};
pub use crate::ship::{ShippedSnapshot, SnapshotFile, StagedSnapshot};
use crate::store::Store;
use crate::topic::cache::FileCache;

/// The content of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryBody {
    /// A batch of intentions.
    Batch {
        /// Number of items in the batch.
        count: u32,
        /// The batch in the encoding of the log.
        payload: Bytes,
    },
    /// Empty. A leader appends a blank entry at the start of its term.
    Blank,
    /// The members of the cluster, as the provider encodes them.
    Membership(Bytes),
}

impl EntryBody {
    fn into_payload(self) -> (u32, Bytes) {
        match self {
            Self::Batch { count, payload } => (count, payload),
            Self::Blank => (0, blank_payload()),
            Self::Membership(body) => (0, membership_payload(&body)),
        }
    }

    fn of(count: u32, payload: Bytes) -> Self {
        match payload.first() {
            Some(&BLANK) => Self::Blank,
            Some(&MEMBERSHIP) => {
                Self::Membership(payload.slice(ENTRY_HEAD_BYTES.min(payload.len())..))
            }
            _ => Self::Batch { count, payload },
        }
    }
}

/// One log entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaEntry {
    /// Term and index.
    pub id: EntryId,
    /// The content.
    pub body: EntryBody,
}

/// Entries that a failed append did not write. The caller can retry the append with them.
pub struct FailedAppend {
    /// The error. After `DiskFull`, the log has no partial entry, and a later append may succeed.
    pub error: StoreError,
    /// The entries that are not in the log. The earlier entries of the append are in the log.
    pub entries: Vec<ReplicaEntry>,
    /// The `durable` callback of the append, which was not called.
    pub durable: Callback,
}

impl std::fmt::Debug for FailedAppend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FailedAppend")
            .field("error", &self.error)
            .field("entries", &self.entries.len())
            .finish_non_exhaustive()
    }
}

/// A callback that the writer thread calls with the result of an append.
pub type AppendCallback = Box<dyn FnOnce(Result<(), FailedAppend>) + Send>;

/// The bounds of the log of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogState {
    /// The newest purged entry; `None` if no entry was purged.
    pub purged: Option<EntryId>,
    /// The newest entry, purged or not; `None` in an empty log.
    pub last: Option<EntryId>,
}

/// Identifies the node and the cluster of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// Number of the node.
    pub node: u64,
    /// Id of the cluster.
    pub cluster: [u8; 16],
    /// Identifies the disk of the directory: a random number, chosen when the directory becomes a
    /// node. 0 if unknown.
    pub incarnation: u64,
}

/// The interface of an open store for a log provider. Cheap to clone.
#[derive(Clone)]
pub struct Replica {
    pub(crate) handle: MaintenanceHandle,
    readers: LogReaders,
    applier: Arc<Mutex<Applier>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) cache: Arc<FileCache>,
    /// Seed of the hash tables of a loaded machine; `None`: random.
    pub(crate) seed: Option<u64>,
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replica")
            .field("node", &self.shared.node)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Returns the node of a directory; `None` if the directory does not exist or is not a node of
    /// a cluster. Changes no file, and does not wait for a process that has the directory open.
    pub fn node_identity(directory: &Path) -> Result<Option<NodeIdentity>, StoreError> {
        let text = directory.display().to_string();
        if !directory.join(files::DIRECTORY).is_dir() {
            return Ok(None);
        }
        let disk = FileDisk::open(directory).map_err(StoreError::io(IoVerb::Open, &text))?;
        let Some(identity) = Identity::read(&disk, identity::PATH)? else {
            return Ok(None);
        };
        let cluster = identity.store_id;
        let node = files::node_of(&disk, cluster)?;
        Ok(node.map(|(node, incarnation)| NodeIdentity {
            node,
            cluster,
            incarnation,
        }))
    }

    /// Opens the directory as a node of a cluster. Creates the node if the directory has no store.
    /// `provider` receives the proposed batches.
    ///
    /// # Errors
    /// As [`Store::open`]. `BAD_OPTION` for a directory of another node, and for a store with data
    /// outside of a cluster (see [`Store::into_node`]).
    pub fn open_node(
        directory: &Path,
        options: &OpenOptions,
        node: &NodeOptions,
        provider: Arc<dyn IntentionLog>,
    ) -> Result<(Self, Replica), StoreError> {
        let text = directory.display().to_string();
        let disk = FileDisk::open(directory).map_err(StoreError::io(IoVerb::Open, &text))?;
        let lock = DirLock::acquire(directory, &options.program)?;
        disk.guard(&lock)
            .map_err(StoreError::io(IoVerb::Find, LOCK_FILE))?;
        Self::open_node_on(Arc::new(disk), options, node, provider, Some(lock))
    }

    /// As `open_node`, on a disk that no other user accesses.
    pub fn open_node_disk(
        disk: Arc<dyn Disk>,
        options: &OpenOptions,
        node: &NodeOptions,
        provider: Arc<dyn IntentionLog>,
    ) -> Result<(Self, Replica), StoreError> {
        Self::open_node_on(disk, options, node, provider, None)
    }

    fn open_node_on(
        disk: Arc<dyn Disk>,
        options: &OpenOptions,
        node: &NodeOptions,
        provider: Arc<dyn IntentionLog>,
        lock: Option<DirLock>,
    ) -> Result<(Self, Replica), StoreError> {
        let cache = Arc::new(FileCache::new(disk));
        let recovered = recover(&cache, options, Some(node))?;
        let (mut committer, report, Some(files)) = recovered else {
            return Err(StoreError::Missing { what: "node" });
        };
        // A simulation sets a different seed for each open.
        let run = options.seed.unwrap_or_else(new_incarnation);
        let shared = committer.use_provider(files, node, provider, run)?;
        let applier = Arc::clone(&committer.applier);
        let store = Self::start(Arc::clone(&cache) as _, options, lock, committer, report)?;
        let replica = Replica {
            handle: store.maintenance_handle(),
            readers: store.readers.clone(),
            applier,
            shared,
            cache,
            seed: options.seed,
        };
        Ok((store, replica))
    }

    /// Returns the body of the newest membership entry in the state; `None` if there is none. A
    /// backup has none.
    ///
    /// # Errors
    /// `Closed` if the store is closed.
    pub fn membership(&self) -> Result<Option<Bytes>, StoreError> {
        self.run_on_commit_thread(|committer| {
            let applier = committer.applier.lock();
            Some(applier.membership.as_ref()?.body.clone())
        })
    }

    /// Makes the directory of this store the first node of a cluster, and closes the store. Appends
    /// a membership entry to the log, and creates a vote file with a vote for `node`. Converts no
    /// data. If the store has a membership of another cluster, writes a snapshot with the new
    /// membership, because a node that joins would use the old one. Returns the id of the
    /// membership entry.
    pub fn into_node(
        self,
        node: u64,
        incarnation: u64,
        membership: &[u8],
    ) -> Result<EntryId, StoreError> {
        let body = membership.to_vec();
        let permit = self.maintenance.acquire();
        let id = self.run_on_commit_thread(move |committer| {
            committer.become_node(node, incarnation, &body, &permit)
        })??;
        self.close()?;
        Ok(id)
    }
}

impl Replica {
    /// Returns the number of the node.
    #[must_use]
    pub fn node(&self) -> u64 {
        self.shared.node
    }

    /// Returns the incarnation, which identifies the disk of the directory.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.shared.incarnation
    }

    /// Returns the report of the node about its directory.
    #[must_use]
    pub fn report(&self) -> DirectoryReport {
        // Read the committed entry before the synced index: committed entries are never truncated,
        // so the entry is still in the log when the synced index is read.
        let committed = self.committed().filter(|id| id.index > LogIndex::ZERO);
        let synced = LogIndex(self.shared.synced.load(Ordering::SeqCst));
        let newest = committed.and_then(|committed| {
            if committed.index <= synced {
                return Some(committed);
            }
            let term = self.readers.term_at(synced)?;
            (synced > LogIndex::ZERO).then_some(EntryId {
                term,
                index: synced,
            })
        });
        DirectoryReport {
            incarnation: self.shared.incarnation,
            generation: self.shared.generation.load(Ordering::SeqCst),
            run: self.shared.run,
            newest,
        }
    }

    /// Whether another node has seen a later state of the directory than this one.
    #[must_use]
    pub fn is_older_than(&self, seen: &DirectoryReport) -> bool {
        if ![0, self.shared.incarnation].contains(&seen.incarnation) {
            return false;
        }
        let is_older_run =
            seen.run != self.shared.run && seen.generation >= self.shared.opened_generation;
        let lacks = |id: EntryId| {
            let (_, (last, _)) = self.readers.bounds();
            let has_another = |found| found != id.term;
            last < id.index || self.readers.term_at(id.index).is_some_and(has_another)
        };
        is_older_run || seen.newest.is_some_and(lacks)
    }

    /// Returns the saved reports of other nodes, in ascending order of node numbers.
    #[must_use]
    pub fn seen(&self) -> Vec<(u64, DirectoryReport)> {
        self.shared.seen.lock().nodes.clone()
    }

    /// Saves reports of other nodes for the next open. With `is_synced`, the reports survive a
    /// power cut.
    pub fn save_seen(
        &self,
        nodes: Vec<(u64, DirectoryReport)>,
        is_synced: bool,
    ) -> Result<(), StoreError> {
        self.shared.seen.lock().save(nodes, is_synced)
    }

    /// Whether an append is reported durable only after a sync.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.handle.engine.durability.is_synced()
    }

    /// Reads the clock before the first stamp of the process. The first known wall clock shows how
    /// long the store was closed; a later one may have jumped.
    pub fn observe_clock(&self) {
        let engine = &self.handle.engine;
        if engine.clock.get().is_some_and(|clock| !clock.has_started()) {
            engine.now_ms();
        }
    }

    /// Returns the last saved vote.
    #[must_use]
    pub fn vote(&self) -> Option<Vote> {
        *self.shared.vote.lock()
    }

    /// Returns the newest entry that this node knows to be committed.
    #[must_use]
    pub fn committed(&self) -> Option<EntryId> {
        let newest = self.shared.committed.lock().newest;
        newest.map(|(index, term)| EntryId { term, index })
    }

    /// Saves that an entry is committed, without a sync. After a power cut, the leader reports the
    /// position again.
    pub fn save_committed(&self, id: EntryId) -> Result<(), StoreError> {
        let mut file = self.shared.committed.lock();
        let saved = file.save(id.index, id.term);
        drop(file);
        saved.map_err(|error| self.handle.engine.poison(error))
    }

    /// Returns the newest purged entry and the last entry of the log.
    #[must_use]
    pub fn log_state(&self) -> LogState {
        let ((purged, purged_term), (last, last_term)) = self.readers.bounds();
        let id =
            |index: LogIndex, term| (index > LogIndex::ZERO).then_some(EntryId { term, index });
        LogState {
            purged: id(purged, purged_term),
            last: id(last, last_term),
        }
    }

    /// Returns a reader of entries, at the first entry of the log.
    #[must_use]
    pub fn reader(&self) -> EntryReader {
        EntryReader {
            readers: self.readers.clone(),
            reader: self.readers.reader(self.readers.first_index()),
        }
    }

    /// Appends entries with consecutive indexes. Calls `written` when the entries can be read, or
    /// with the entries that were not written. Calls `durable` when the entries are as durable as
    /// the level of the store requires.
    pub fn append(
        &self,
        mut entries: Vec<ReplicaEntry>,
        written: AppendCallback,
        durable: Callback,
    ) {
        self.task(move |committer| {
            let result = match committer.append_entries(&mut entries) {
                Ok(()) => {
                    if let Some(replica) = &mut committer.replica {
                        replica.flushes.push(durable);
                    }
                    Ok(())
                }
                Err(error) => Err(FailedAppend {
                    error,
                    entries,
                    durable,
                }),
            };
            written(result);
        });
    }

    /// Saves a vote. Calls `done` when the vote is durable. Flushes the earlier appends first.
    pub fn save_vote(&self, vote: Vote, done: Callback) {
        self.task(move |committer| done(committer.save_vote(vote)));
    }

    /// Removes every entry after `index` from the log. A no-op if there is none.
    pub fn truncate_after(&self, index: LogIndex, done: Callback) {
        self.task(move |committer| {
            committer.flush();
            let last = committer.log.last_index();
            let result = if index >= last {
                Ok(())
            } else {
                let result = committer.log.truncate_after(index);
                result.map_err(|error| committer.fail(error))
            };
            committer.publish_synced();
            done(result);
        });
    }

    /// Purges every entry up to `id`. If `id` is after the last entry, the log is empty afterwards,
    /// and its next entry follows `id`.
    pub fn purge_through(&self, id: EntryId, done: Callback) {
        self.task(move |committer| {
            committer.flush();
            done(committer.purge_through(id));
        });
    }

    /// From now on, appended entries are synced by the next [`step`](Self::step), or before a call
    /// that requires it. For simulations.
    #[cfg(feature = "sim")]
    #[doc(hidden)]
    pub fn sync_in_steps(&self) {
        self.task(|committer| {
            if let Some(replica) = &mut committer.replica {
                replica.is_stepped = true;
            }
        });
    }

    /// Runs the deferred work of the writer thread at once: the sync for waiting callers, and the
    /// seal after it. Calls `done` afterwards. For simulations.
    #[cfg(feature = "sim")]
    #[doc(hidden)]
    pub fn step(&self, done: Callback) {
        self.task(move |committer| {
            committer.flush();
            committer.sync_when_due(true);
            done(Ok(()));
        });
    }

    /// Runs `work` on the writer thread. A closed store drops `work` without a call, together with
    /// its callbacks.
    fn task(&self, work: impl FnOnce(&mut Committer) + Send + 'static) {
        if let Err(error) = self.handle.send(work) {
            tracing::debug!(%error, "a request for the log of a closed store");
        }
    }

    /// Applies a committed entry and publishes its records. The entry must follow the last applied
    /// one. Programs need a thread with a stack of
    /// [`PROGRAM_STACK_BYTES`](weir_core::program::PROGRAM_STACK_BYTES).
    pub fn apply(&self, entry: ReplicaEntry) -> Result<Outcomes, StoreError> {
        let engine = &self.handle.engine;
        engine.writable()?;
        let mut applier = self.applier.lock();
        let next = applier.applied.next();
        let index = entry.id.index;
        let fits = index == next || (self.shared.allow_gaps && index > next);
        if !fits {
            return Err(StoreError::IndexOutOfRange {
                what: "the index of an entry to apply",
                index: index.0,
                low: next.0,
                high: next.0,
            });
        }
        let started = Instant::now();
        let is_membership = matches!(entry.body, EntryBody::Membership(_));
        let (count, payload) = entry.body.into_payload();
        let newest_topic = engine.machine.read().newest_topic();
        let outcomes = applier
            .apply_committed(index, entry.id.term, count, &payload)
            .map_err(|error| engine.poison(error))?;
        let time = started.elapsed();
        let apply_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        engine.counters.apply_ns.set(apply_ns);
        applier.add_cost(&outcomes, time);
        let has_new_topic = engine.machine.read().newest_topic() > newest_topic;
        if has_new_topic
            && let Ok(Content::Batch(batch)) = Content::read(&payload, index, entry.id.term, count)
        {
            let (queue, machine) = (&engine.queue, &engine.machine);
            queue.report_created(machine, &batch, &outcomes);
        }
        let mut state = self.shared.applied.lock();
        state.last = Some(entry.id);
        if is_membership {
            *state = applier.state();
        }
        drop(state);
        Ok(outcomes)
    }

    /// Returns the newest log position whose digest nodes compare, and the digest at this position.
    /// `None` before the first such position after the open.
    #[must_use]
    pub fn digest_sample(&self) -> Option<(LogIndex, Digest)> {
        self.handle.engine.samples.newest()
    }

    /// Returns the digest after an entry, if it is one of the stored digests for comparison.
    #[must_use]
    pub fn digest_at(&self, index: LogIndex) -> Option<Digest> {
        self.handle.engine.samples.at(index)
    }

    /// Returns the log position of the machine. Does not wait for an apply or an installation.
    #[must_use]
    pub fn applied(&self) -> AppliedState {
        self.shared.applied.lock().clone()
    }
}

/// Reads entries of a log, committed or not.
#[derive(Debug)]
pub struct EntryReader {
    readers: LogReaders,
    reader: LogReader,
}

impl EntryReader {
    /// Returns the entries from `first` to `last` that are in the log. Stops when the payloads have
    /// at least `bytes_max` bytes, which must not be 0.
    pub fn read(
        &mut self,
        first: LogIndex,
        last: LogIndex,
        bytes_max: usize,
    ) -> Result<Vec<ReplicaEntry>, StoreError> {
        let first = first.max(self.readers.first_index());
        let last = last.min(self.readers.last_index());
        if self.reader.position() != first {
            self.reader = self.readers.reader(first);
        }
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while bytes < bytes_max
            && let Some(entry) = self.reader.next(last)?
        {
            bytes += entry.payload.len().max(1);
            entries.push(ReplicaEntry {
                id: EntryId {
                    term: entry.term,
                    index: entry.index,
                },
                body: EntryBody::of(entry.count, entry.payload),
            });
        }
        Ok(entries)
    }
}

impl Committer {
    /// Makes this committer a writer thread that appends in the order of `provider`.
    pub(crate) fn use_provider(
        &mut self,
        files: NodeFiles,
        options: &NodeOptions,
        provider: Arc<dyn IntentionLog>,
        run: u64,
    ) -> Result<Arc<Shared>, StoreError> {
        let NodeFiles {
            vote,
            mut committed,
            seen,
        } = files;
        committed.limit_to(self.log.last_index(), self.log.last_term())?;
        let shared = Arc::new(Shared {
            seen: Mutex::new(seen),
            run,
            opened_generation: vote.generation,
            generation: AtomicU64::new(vote.generation),
            synced: AtomicU64::new(self.log.durable_index().0),
            node: vote.node,
            incarnation: vote.incarnation,
            allow_gaps: options.allow_gaps,
            vote: Mutex::new(vote.vote),
            committed: Mutex::new(committed),
            applied: Mutex::new(self.applier.lock().state()),
            staging: Arc::default(),
        });
        self.engine
            .queue
            .set_in_flight_max(provider.latency_class().in_flight_max());
        let mut replica = ReplicaWriter {
            provider,
            shared: Arc::clone(&shared),
            vote,
            flushes: Vec::new(),
            is_stepped: false,
            stamp_ms: 0,
            appended: Appended::default(),
        };
        // The machine does not know the stamps of entries that are not applied yet.
        let mut tail = self.log.reader(self.engine.applied_index().next());
        while let Some(entry) = tail.next(self.log.last_index())? {
            replica.observe_stamp(&entry.payload);
        }
        self.replica = Some(replica);
        Ok(shared)
    }

    /// Appends `entries` in order. Removes the entries from `entries` that are in the log.
    fn append_entries(&mut self, entries: &mut Vec<ReplicaEntry>) -> Result<(), StoreError> {
        let mut done = 0;
        let result = self.append_counted(entries, &mut done);
        entries.drain(..done);
        result
    }

    fn append_counted(
        &mut self,
        entries: &[ReplicaEntry],
        done: &mut usize,
    ) -> Result<(), StoreError> {
        self.engine.writable()?;
        if let Some(full) = self.topics_stuck_now() {
            return Err(full);
        }
        for entry in entries {
            let EntryId { term, index } = entry.id;
            let next = self.log.last_index().next();
            let is_empty = next == self.log.first_index();
            let allow_gaps = self.replica.as_ref().is_some_and(|r| r.shared.allow_gaps);
            if allow_gaps && is_empty && index > next {
                self.log.reset(index, 0)?;
            } else if index != next {
                return Err(StoreError::IndexOutOfRange {
                    what: "the index of an entry to append",
                    index: index.0,
                    low: next.0,
                    high: next.0,
                });
            }
            let is_batch = matches!(entry.body, EntryBody::Batch { .. });
            let (count, payload) = entry.body.clone().into_payload();
            if is_batch && let Some(replica) = &mut self.replica {
                replica.observe_stamp(&payload);
            }
            let appended = self.with_descriptors(|this| {
                let appended = this.log.append(term, count, &[&payload]);
                let lacks_descriptors = appended.as_ref().is_err_and(StoreError::lacks_descriptors);
                (appended, lacks_descriptors)
            });
            appended.map_err(|error| self.fail(error))?;
            self.unsynced = true;
            *done += 1;
            if is_batch && let Some(replica) = &mut self.replica {
                replica.appended.add(&payload, self.engine.host.as_ref());
            }
        }
        Ok(())
    }

    fn save_vote(&mut self, vote: Vote) -> Result<(), StoreError> {
        self.flush();
        self.engine.writable()?;
        let Some(replica) = &mut self.replica else {
            let why = "the store is not a node of a cluster".to_owned();
            return Err(StoreError::NodeRefused { why });
        };
        match replica.vote.save(vote) {
            Ok(()) => {
                *replica.shared.vote.lock() = Some(vote);
                let generation = replica.vote.generation;
                replica
                    .shared
                    .generation
                    .store(generation, Ordering::SeqCst);
                Ok(())
            }
            // After a failed write, the content of the vote file on disk is unknown.
            Err(error) => Err(self.engine.poison(error)),
        }
    }

    fn purge_through(&mut self, id: EntryId) -> Result<(), StoreError> {
        if id.index > self.log.last_index() {
            let reset = self.log.reset(id.index.next(), id.term);
            reset.map_err(|error| self.fail(error))?;
        } else if id.index >= self.log.first_index() {
            // Only synced entries can be purged.
            self.sync()?;
            let purged = self.log.purge_through(id.index);
            purged.map_err(|error| self.fail(error))?;
        }
        let counters = &self.engine.counters;
        counters.purged_index.set(self.log.first_index().0 - 1);
        counters.log_bytes.set(self.log.stats().bytes);
        Ok(())
    }

    /// Publishes the index up to which the log is synced.
    pub(crate) fn publish_synced(&self) {
        if let Some(replica) = &self.replica {
            let synced = self.log.durable_index().0;
            replica.shared.synced.store(synced, Ordering::SeqCst);
        }
    }

    /// Whether only the steps of a simulation sync and seal the log.
    pub(crate) fn is_stepped(&self) -> bool {
        let replica = self.replica.as_ref();
        replica.is_some_and(|replica| replica.is_stepped)
    }

    /// Syncs the appended entries if the level requires it, and calls the waiting callbacks.
    pub(crate) fn flush(&mut self) {
        let Some(replica) = &mut self.replica else {
            return;
        };
        let flushes = std::mem::take(&mut replica.flushes);
        if flushes.is_empty() {
            return;
        }
        let checked = self.ensure_directory_when_due();
        let synced = checked.and_then(|()| {
            if self.engine.durability.is_synced() {
                self.sync()
            } else {
                self.engine.writable()
            }
        });
        self.publish_synced();
        for done in flushes {
            done(match &synced {
                Ok(()) => Ok(()),
                Err(error) => Err(error.copy_for_caller()),
            });
        }
        self.engine.counters.log_bytes.set(self.log.stats().bytes);
        self.checkpoint_when_due();
    }

    /// See [`Store::into_node`].
    fn become_node(
        &mut self,
        node: u64,
        incarnation: u64,
        body: &[u8],
        permit: &ExclusivePermit,
    ) -> Result<EntryId, StoreError> {
        if self.replica.is_some() {
            let why = "the store is already a node of a cluster".to_owned();
            return Err(StoreError::NodeRefused { why });
        }
        self.engine.writable()?;
        let term = self.term;
        let payload = membership_payload(body);
        let appended = self.log.append(term, 0, &[&payload]);
        let index = appended.map_err(|error| self.fail(error))?;
        self.unsynced = true;
        self.sync()?;
        let mut applier = self.applier.lock();
        let had_members = applier.membership.is_some();
        applier.apply_committed(index, term, 0, &payload)?;
        drop(applier);
        if had_members {
            let snapshot = self.begin_checkpoint()?;
            checkpoint::finish(&self.engine, &*self.disk, &snapshot, permit)?;
        }
        let store_id = self.engine.identity.store_id;
        let vote = Vote {
            term,
            voted_for: node,
            is_committed: true,
        };
        // With the vote file, the directory belongs to a node. The other files follow it, so a
        // directory that has them and no vote file has lost its vote.
        VoteFile::create(&*self.disk, store_id, node, incarnation, Some(vote))?;
        CommittedFile::open(&*self.disk, store_id)?.save(index, term)?;
        Ok(EntryId { term, index })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::mpsc;

    use weir_core::{ErrorCode, Intention, Operation, TopicOptions};

    use super::*;

    /// A provider that drops every batch.
    struct Dropped;

    impl IntentionLog for Dropped {
        fn propose(&self, _: ProposedBatch) {}

        fn latency_class(&self) -> LatencyClass {
            LatencyClass::Disk
        }

        fn purgeable(&self, _: EntryId) {}
    }

    fn open(directory: &Path) -> (Store, Replica) {
        let node = NodeOptions {
            node: 1,
            cluster: [1; 16],
            incarnation: 0,
            allow_gaps: false,
        };
        Store::open_node(directory, &OpenOptions::default(), &node, Arc::new(Dropped)).unwrap()
    }

    const fn id(index: u64) -> EntryId {
        EntryId {
            term: 1,
            index: LogIndex(index),
        }
    }

    #[test]
    fn the_applied_position_does_not_wait_for_an_apply() {
        let directory = tempfile::tempdir().unwrap();
        let (store, replica) = open(directory.path());
        let members = Bytes::from_static(b"members");
        for (index, body) in [
            (1, EntryBody::Blank),
            (2, EntryBody::Membership(members.clone())),
            (3, EntryBody::Blank),
        ] {
            let entry = ReplicaEntry {
                id: id(index),
                body,
            };
            replica.apply(entry).unwrap();
        }
        // An apply holds the applier.
        let applier = replica.applier.lock();
        let expected = AppliedState {
            last: Some(id(3)),
            membership: Some((id(2), members)),
        };
        assert_eq!(replica.applied(), expected);
        assert_eq!(applier.state(), expected);
        drop(applier);
        store.close().unwrap();
    }

    /// While the writer thread waits, the consensus sends no heartbeats.
    #[test]
    fn appends_and_proposals_do_not_wait_for_an_apply() {
        let directory = tempfile::tempdir().unwrap();
        let (store, replica) = open(directory.path());
        let applier = replica.applier.lock();
        for index in 1..=2 {
            let (sender, results) = mpsc::channel();
            let durable = sender.clone();
            let entry = ReplicaEntry {
                id: id(index),
                body: EntryBody::Blank,
            };
            replica.append(
                vec![entry],
                Box::new(move |written| sender.send(written.is_ok()).unwrap()),
                Box::new(move |synced| durable.send(synced.is_ok()).unwrap()),
            );
            assert_eq!([results.recv(), results.recv()], [Ok(true), Ok(true)]);
        }
        let options = &TopicOptions::default();
        let create = Intention::new("t", Operation::Create { options });
        let proposed = store.propose(&[create]).unwrap();
        // The provider has dropped the batch.
        let error = proposed.wait().unwrap_err();
        assert_eq!(error.code(), ErrorCode::Indeterminate);
        drop(applier);
        store.close().unwrap();
    }
}
