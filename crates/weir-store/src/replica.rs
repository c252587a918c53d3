//! A store whose order of batches is decided elsewhere: the seam between the
//! commit path and a log provider (docs/decisions/0064).
//!
//! A provider implements [`IntentionLog`]: it is given batches with those who
//! wait for them, and decides their order. It drives a [`Replica`]: the writer
//! (append, vote, truncate, purge; one thread, in the order of the calls) and the
//! applier (committed entries, in the order of the log). A store without a provider
//! is its own: one thread appends, syncs and applies, and nothing here runs.
//!
//! Invariants: an entry is applied only after the provider has said that it is
//! committed; a vote is durable before `save_vote` reports it, and so is every
//! entry that was appended before it; each waiter of a batch is answered
//! exactly once.

use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use weir_core::{Digest, Outcomes};

use crate::commit::{Applier, Committer};
use crate::disk::{Disk, FileDisk};
use crate::error::{IoVerb, StoreError};
use crate::identity::{self, Identity};
use crate::lock::{DirLock, LOCK_FILE};
use crate::log::{LogIndex, LogReader, LogReaders};
pub use crate::log_index::EntryId;
use crate::maintenance_handle::MaintenanceHandle;
use crate::node::files::{self, CommittedFile, VoteFile};
pub use crate::node::{DirectoryReport, Done, NodeOptions, Vote, new_incarnation};
use crate::node::{NodeFiles, ReplicaWriter, Shared};
use crate::options::OpenOptions;
pub use crate::provider::{IntentionLog, LatencyClass, ProposedBatch, Waiters};
use crate::recovery::recover;
use crate::replay::{
    Appended, AppliedMembership, BLANK, ENTRY_HEAD_BYTES, MEMBERSHIP, blank_payload,
    membership_payload,
};
pub use crate::ship::{ShippedSnapshot, SnapshotFile, StagedSnapshot};
use crate::store::Store;
use crate::topic::cache::FileCache;

/// What an entry holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryBody {
    /// A batch of intentions.
    Batch {
        /// Items in it.
        count: u32,
        /// The batch as it is logged.
        payload: Bytes,
    },
    /// Nothing: a leader appends it at the start of its term.
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

/// One entry, as providers know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaEntry {
    /// Which one.
    pub id: EntryId,
    /// What is in it.
    pub body: EntryBody,
}

/// Entries that an append has not written, so that the caller can append them again.
pub struct Unwritten {
    /// Why. After `DiskFull` the log is as it was, and a later append may succeed.
    pub error: StoreError,
    /// The entries that are not in the log. Those before them are.
    pub entries: Vec<ReplicaEntry>,
    /// The callback of that append; it was not called.
    pub durable: Done,
}

impl std::fmt::Debug for Unwritten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unwritten")
            .field("error", &self.error)
            .field("entries", &self.entries.len())
            .finish_non_exhaustive()
    }
}

/// Called with the result of an append, on the writer thread.
pub type Written = Box<dyn FnOnce(Result<(), Unwritten>) + Send>;

/// What the log of a node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogState {
    /// The newest entry that was purged; none if the log begins at its first.
    pub purged: Option<EntryId>,
    /// The newest entry, purged or not; none in an empty log.
    pub last: Option<EntryId>,
}

/// What the machine of a node stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedState {
    /// The newest applied entry.
    pub last: Option<EntryId>,
    /// The newest applied membership entry, and its body.
    pub membership: Option<(EntryId, Bytes)>,
}

/// Which node of which cluster a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// Number of the node.
    pub node: u64,
    /// Id of the cluster.
    pub cluster: [u8; 16],
    /// Which disk of the node it is: random, made with the directory. 0: not known; an
    /// empty directory gets a random one.
    pub incarnation: u64,
}

/// The seam's half of an open store: what a provider drives. Cheap to clone.
#[derive(Clone)]
pub struct Replica {
    pub(crate) handle: MaintenanceHandle,
    readers: LogReaders,
    applier: Arc<Mutex<Applier>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) cache: Arc<FileCache>,
    /// Seed of the hashes of a machine that is loaded; `None`: random.
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
    /// Which node a directory is; `None` if it is no node of a cluster, or does not
    /// exist. Changes nothing, and does not wait for a process that has it open.
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

    /// Opens the directory as a node of a cluster; makes the node if there is no
    /// store. `provider` gets what is proposed.
    ///
    /// # Errors
    /// As [`Store::open`]; `BAD_OPTION` for a directory that is another node or a
    /// store of its own (see [`Store::into_node`]).
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

    /// As `open_node`, on a disk that nobody else uses.
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
        // A simulation gives each open another seed.
        let run = options.seed.unwrap_or_else(new_incarnation);
        let shared = committer.follow(files, node, provider, run)?;
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

    /// Makes the directory of this store the first node of a cluster, without
    /// conversion of data, and closes it: a membership entry follows the log, and a
    /// vote for `node` stands beside it. Returns the entry.
    pub fn into_node(
        self,
        node: u64,
        incarnation: u64,
        membership: &[u8],
    ) -> Result<EntryId, StoreError> {
        let body = membership.to_vec();
        let id = self.ask(move |committer| committer.become_node(node, incarnation, &body))??;
        self.close()?;
        Ok(id)
    }
}

impl Replica {
    /// Number of the node.
    #[must_use]
    pub fn node(&self) -> u64 {
        self.shared.node
    }

    /// Which disk of the node it is on.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.shared.incarnation
    }

    /// What the node reports of its directory.
    #[must_use]
    pub fn report(&self) -> DirectoryReport {
        // In this order: what is committed is never truncated, so it is still what was synced.
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

    /// What was saved of the reports of other nodes, by their numbers.
    #[must_use]
    pub fn seen(&self) -> Vec<(u64, DirectoryReport)> {
        self.shared.seen.lock().nodes.clone()
    }

    /// Keeps reports of other nodes, so that the next open knows them. With `is_synced`, so that
    /// a power cut does not take them.
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

    /// The vote that was saved last.
    #[must_use]
    pub fn vote(&self) -> Option<Vote> {
        *self.shared.vote.lock()
    }

    /// The newest entry that is known to be committed.
    #[must_use]
    pub fn committed(&self) -> Option<EntryId> {
        let newest = self.shared.committed.lock().newest;
        newest.map(|(index, term)| EntryId { term, index })
    }

    /// Keeps that an entry is committed. It is not synced: what a power cut takes
    /// is learned again.
    pub fn save_committed(&self, id: EntryId) -> Result<(), StoreError> {
        let mut file = self.shared.committed.lock();
        let saved = file.save(id.index, id.term);
        drop(file);
        saved.map_err(|error| self.handle.engine.poison(error))
    }

    /// First and last entry of the log.
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

    /// A reader of entries.
    #[must_use]
    pub fn reader(&self) -> EntryReader {
        EntryReader {
            readers: self.readers.clone(),
            reader: self.readers.reader(self.readers.first_index()),
        }
    }

    /// Appends entries that follow each other. `written` is called when they can be
    /// read, or with those that were not written; `durable` is called when they are as
    /// durable as the level of the store requires.
    pub fn append(&self, mut entries: Vec<ReplicaEntry>, written: Written, durable: Done) {
        self.task(move |committer| {
            let result = match committer.append_entries(&mut entries) {
                Ok(()) => {
                    if let Some(replica) = &mut committer.replica {
                        replica.flushes.push(durable);
                    }
                    Ok(())
                }
                Err(error) => Err(Unwritten {
                    error,
                    entries,
                    durable,
                }),
            };
            written(result);
        });
    }

    /// Saves a vote. `done` hears when it is durable, and everything that was
    /// appended before it.
    pub fn save_vote(&self, vote: Vote, done: Done) {
        self.task(move |committer| done(committer.save_vote(vote)));
    }

    /// Takes back every entry above `index`; nothing happens when there is none.
    pub fn truncate_after(&self, index: LogIndex, done: Done) {
        self.task(move |committer| {
            committer.flush();
            let last = committer.log.last_index();
            let result = if index >= last {
                Ok(())
            } else {
                let result = committer.log.truncate_after(index);
                result.map_err(|error| committer.fail(error))
            };
            committer.note_synced();
            done(result);
        });
    }

    /// Lets go of every entry up to `id`. For one above the last entry the log is
    /// empty after it and continues after that one.
    pub fn purge_through(&self, id: EntryId, done: Done) {
        self.task(move |committer| {
            committer.flush();
            done(committer.purge_through(id));
        });
    }

    /// Does at once what the writer thread would do by and by: a sync for those who wait,
    /// and the seal after it. `done` hears when the thread has nothing left to do. For
    /// simulations.
    #[cfg(feature = "sim")]
    #[doc(hidden)]
    pub fn step(&self, done: Done) {
        self.task(move |committer| {
            committer.flush();
            committer.sync_when_due(true);
            done(Ok(()));
        });
    }

    /// Runs work on the writer thread. A closed store drops the work, and with it
    /// the channel for its result.
    fn task(&self, work: impl FnOnce(&mut Committer) + Send + 'static) {
        if let Err(error) = self.handle.send(work) {
            tracing::debug!(%error, "the log of a closed store was asked for something");
        }
    }

    /// Applies a committed entry, which must follow the one before, and publishes
    /// what it causes. Programs need a thread with a stack of
    /// [`PROGRAM_STACK_BYTES`](weir_core::program::PROGRAM_STACK_BYTES).
    pub fn apply(&self, entry: ReplicaEntry) -> Result<Outcomes, StoreError> {
        let engine = &self.handle.engine;
        engine.writable()?;
        let mut applier = self.applier.lock();
        let next = applier.applied.next();
        let index = entry.id.index;
        let fits = index == next || (self.shared.holes && index > next);
        if !fits {
            return Err(StoreError::IndexOutOfRange {
                what: "an entry to apply",
                index: index.0,
                low: next.0,
                high: next.0,
            });
        }
        let begun = Instant::now();
        let (count, payload) = entry.body.into_payload();
        let fed = applier.feed(index, entry.id.term, count, &payload);
        let outcomes = fed.map_err(|error| engine.poison(error))?;
        applier.spent(&outcomes, begun.elapsed());
        Ok(outcomes)
    }

    /// The newest place of the log whose digest is compared between nodes, and the digest after it;
    /// `None` before the first one since the store was opened.
    #[must_use]
    pub fn digest_sample(&self) -> Option<(LogIndex, Digest)> {
        self.handle.engine.samples.newest()
    }

    /// The digest after an entry, if it is one of those that are remembered to be compared.
    #[must_use]
    pub fn digest_at(&self, index: LogIndex) -> Option<Digest> {
        self.handle.engine.samples.at(index)
    }

    /// What the machine stands for.
    #[must_use]
    pub fn applied(&self) -> AppliedState {
        let applier = self.applier.lock();
        let index = applier.applied;
        let last = (index > LogIndex::ZERO).then_some(EntryId {
            term: applier.term,
            index,
        });
        let membership = applier.membership.as_ref().map(|membership| {
            let AppliedMembership { index, term, body } = membership.clone();
            (EntryId { term, index }, body)
        });
        AppliedState { last, membership }
    }
}

/// Reads entries of a log, written or committed.
#[derive(Debug)]
pub struct EntryReader {
    readers: LogReaders,
    reader: LogReader,
}

impl EntryReader {
    /// The entries from `first` to `last` that the log has; fewer only where it
    /// begins later or ends before. Stops after `bytes_max` of payload, though not
    /// before the first entry.
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
    /// Gives the order to a provider.
    pub(crate) fn follow(
        &mut self,
        files: NodeFiles,
        options: &NodeOptions,
        provider: Arc<dyn IntentionLog>,
        run: u64,
    ) -> Result<Arc<Shared>, StoreError> {
        let NodeFiles {
            vote,
            committed,
            seen,
        } = files;
        let shared = Arc::new(Shared {
            seen: Mutex::new(seen),
            run,
            opened_generation: vote.generation,
            generation: AtomicU64::new(vote.generation),
            synced: AtomicU64::new(self.log.durable_index().0),
            node: vote.node,
            incarnation: vote.incarnation,
            holes: options.holes,
            vote: Mutex::new(vote.vote),
            committed: Mutex::new(committed),
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
            stamp_ms: 0,
            appended: Appended::default(),
        };
        // The tail that is not applied has stamps that the machine does not know.
        let mut tail = self.log.reader(self.engine.applied_index().next());
        while let Some(entry) = tail.next(self.log.last_index())? {
            replica.saw(&entry.payload);
        }
        self.replica = Some(replica);
        Ok(shared)
    }

    /// Appends in order, and removes from `entries` what is in the log.
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
            let is_fresh = next == self.log.first_index();
            let holes = self.replica.as_ref().is_some_and(|r| r.shared.holes);
            if holes && is_fresh && index > next {
                self.log.reset(index, 0)?;
            } else if index != next {
                return Err(StoreError::IndexOutOfRange {
                    what: "an entry to append",
                    index: index.0,
                    low: next.0,
                    high: next.0,
                });
            }
            let is_batch = matches!(entry.body, EntryBody::Batch { .. });
            let (count, payload) = entry.body.clone().into_payload();
            if is_batch && let Some(replica) = &mut self.replica {
                replica.saw(&payload);
            }
            let appended = self.with_descriptors(|this| {
                let appended = this.log.append(term, count, &[&payload]);
                let short = appended.as_ref().is_err_and(StoreError::lacks_descriptors);
                (appended, short)
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
            let why = "the store is no node of a cluster".to_owned();
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
            // What of it is on the disk is not known.
            Err(error) => Err(self.engine.poison(error)),
        }
    }

    fn purge_through(&mut self, id: EntryId) -> Result<(), StoreError> {
        if id.index > self.log.last_index() {
            let reset = self.log.reset(id.index.next(), id.term);
            reset.map_err(|error| self.fail(error))?;
        } else if id.index >= self.log.first_index() {
            // A purge takes what is synced.
            self.sync()?;
            let purged = self.log.purge_through(id.index);
            purged.map_err(|error| self.fail(error))?;
        }
        let counters = &self.engine.counters;
        counters.purged_index.set(self.log.first_index().0 - 1);
        counters.log_bytes.set(self.log.stats().bytes);
        Ok(())
    }

    /// Shows how far the log is synced.
    pub(crate) fn note_synced(&self) {
        if let Some(replica) = &self.replica {
            let synced = self.log.durable_index().0;
            replica.shared.synced.store(synced, Ordering::SeqCst);
        }
    }

    /// Syncs what was appended and tells those who wait for it.
    pub(crate) fn flush(&mut self) {
        let Some(replica) = &mut self.replica else {
            return;
        };
        let flushes = std::mem::take(&mut replica.flushes);
        if flushes.is_empty() {
            return;
        }
        let placed = self.find_place_when_due();
        let synced = placed.and_then(|()| {
            if self.engine.durability.is_synced() {
                self.sync()
            } else {
                self.engine.writable()
            }
        });
        self.note_synced();
        for done in flushes {
            done(match &synced {
                Ok(()) => Ok(()),
                Err(error) => Err(error.for_another()),
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
    ) -> Result<EntryId, StoreError> {
        if self.replica.is_some() {
            let why = "the store is a node of a cluster already".to_owned();
            return Err(StoreError::NodeRefused { why });
        }
        self.engine.writable()?;
        let term = self.term;
        let payload = membership_payload(body);
        let appended = self.log.append(term, 0, &[&payload]);
        let index = appended.map_err(|error| self.fail(error))?;
        self.unsynced = true;
        self.sync()?;
        self.applier.lock().feed(index, term, 0, &payload)?;
        let store_id = self.engine.identity.store_id;
        let vote = Vote {
            term,
            voted_for: node,
            is_committed: true,
        };
        // The vote file comes last: it makes the directory that of a node.
        self.disk
            .create_dir(files::DIRECTORY)
            .map_err(StoreError::io(IoVerb::Open, files::DIRECTORY))?;
        CommittedFile::open(&*self.disk, store_id)?.save(index, term)?;
        VoteFile::create(&*self.disk, store_id, node, incarnation, Some(vote))?;
        Ok(EntryId { term, index })
    }
}
