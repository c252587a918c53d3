//! The open store.

use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_core::batch::Author;
use weir_core::intention::IntentionLimits;
use weir_core::program::PROGRAM_STACK_BYTES;
use weir_core::{
    ClientId, CodeHash, Commit, ConsequenceOffset, Digest, Intention, IntentionOffset,
    ProgramCounts, ProgramView, StateMode, TopicId, TopicOptions, Verdicts,
};

use crate::background_tasks::{self, BackgroundTasks};
use crate::claim_locks::ClaimLocks;
use crate::commit::{Committer, SharedCommitter, Task};
use crate::disk::{Disk, FileDisk};
use crate::engine::Engine;
use crate::error::{IoVerb, StoreError};
use crate::identity::{self, Identity};
use crate::key_order::KeyOrders;
use crate::lock::{DirLock, LOCK_FILE};
use crate::log::{LogIndex, LogReaders};
use crate::maintenance_handle::MaintenanceHandle;
use crate::options::{Durability, OpenOptions};
use crate::permit::Exclusive;
use crate::proposal::Proposal;
use crate::queue::{Notify, Prepared, ShutReason};
use crate::read_back::ReadBack;
use crate::read_only;
use crate::reader::{Page, TopicReader};
use crate::recovery::{OpenReport, recover};
use crate::scrub::Scrubber;
use crate::topic::cache::FileCache;

mod maintenance;

/// An open store. Every method may be called from any thread; to share a store, use an [`Arc`].
/// Dropping a store closes it.
pub struct Store {
    pub(crate) engine: Arc<Engine>,
    tasks: Sender<Task>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) report: OpenReport,
    pub(crate) maintenance: Arc<Exclusive>,
    pub(crate) read_back: Arc<ReadBack>,
    pub(crate) orders: Mutex<KeyOrders>,
    pub(crate) background: BackgroundTasks,
    pub(crate) readers: LogReaders,
    pub(crate) scrubber: Scrubber,
    /// Serializes the claims of each group.
    pub(crate) claim_locks: ClaimLocks,
    /// `None` in a store that is open for reading only.
    committer: Option<Arc<SharedCommitter>>,
    thread: Mutex<Option<JoinHandle<Result<(), StoreError>>>>,
    lock: Mutex<Option<DirLock>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

/// The present state of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicInfo {
    /// Name.
    pub name: String,
    /// Number.
    pub id: TopicId,
    /// Whether the topic exists: it was created and not destroyed since.
    pub live: bool,
    /// Intention offset of its CREATE; `None` if the topic is destroyed.
    pub incarnation: Option<IntentionOffset>,
    /// Offset of the oldest remaining record; zero if there is none.
    pub first: ConsequenceOffset,
    /// Offset of the newest record.
    pub last: ConsequenceOffset,
    /// Number of keys with a value.
    pub keys: u64,
    /// Bytes of its records, as stored.
    pub bytes: u64,
    /// Options; the defaults if the topic is destroyed.
    pub options: TopicOptions,
}

/// The present program of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramInfo {
    /// SHA-256 of its module.
    pub code: CodeHash,
    /// Its arguments.
    pub args: Vec<u8>,
    /// The kind of state that the program retains between calls.
    pub mode: StateMode,
    /// Number of entries of its state.
    pub state_entries: u64,
    /// Bytes of its state: keys and values, or memory.
    pub state_bytes: u64,
    /// Counters of all programs of the topic since the store was opened, including the replay of
    /// the open.
    pub counts: ProgramCounts,
}

/// Counters of the programs of a topic since the store was opened, including the replay of the
/// open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramTally {
    /// Name of the topic.
    pub topic: String,
    /// Counters of the calls.
    pub counts: ProgramCounts,
    /// Counters of the verdicts of the programs.
    pub verdicts: Verdicts,
}

/// Counters since the store was opened, and log positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of logged batches.
    pub batches: u64,
    /// Number of logged intentions.
    pub intentions: u64,
    /// Number of syncs of the log.
    pub syncs: u64,
    /// Time spent in syncs of the log, in nanoseconds.
    pub sync_ns: u64,
    /// Number of intentions with the effect VALID.
    pub valid: u64,
    /// Number of intentions with the effect INVALID.
    pub invalid: u64,
    /// Number of intentions with the effect ERROR.
    pub errors: u64,
    /// Number of retried intentions whose outcome came from the session table.
    pub replayed: u64,
    /// Number of intentions that the apply refused.
    pub refused: u64,
    /// Number of written snapshots.
    pub snapshots: u64,
    /// Number of failed writes of topic segments. These writes are retried.
    pub derived_write_errors: u64,
    /// Index of the newest applied log entry.
    pub applied_index: u64,
    /// Index of the newest log entry that is known to be synced.
    pub durable_index: u64,
    /// Index of the newest purged log entry.
    pub purged_index: u64,
    /// Bytes of the files of the log.
    pub log_bytes: u64,
    /// Number of bytes that scrubs have read.
    pub scrubbed_bytes: u64,
    /// Number of complete scrub rounds.
    pub scrub_rounds: u64,
    /// Number of distinct findings of scrubs.
    pub damage: u64,
}

impl Store {
    /// Opens the store in `directory`. Creates it if it does not exist and the options allow this.
    ///
    /// # Errors
    /// - `Locked` if another process has the store open for writing.
    /// - `Damage` if required bytes are wrong. The open then changes nothing on disk.
    /// - `Missing` if there is no store, for a read-only open or without `create`.
    /// - `ChangedWhileRead` if another process changed the files during every attempt of a
    ///   read-only open.
    /// - `ReadOnlyLimit` if a read-only open needs to store more records than
    ///   [`OpenOptions::read_only_bytes_max`] allows.
    pub fn open(directory: &Path, options: &OpenOptions) -> Result<Self, StoreError> {
        let text = directory.display().to_string();
        if options.read_only {
            let disk = FileDisk::open_existing(directory).map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => StoreError::Missing { what: "store" },
                _ => StoreError::io(IoVerb::Open, &text)(error),
            })?;
            return Self::open_disk(Arc::new(disk), options);
        }
        // Check before acquiring the lock, which would create its file.
        if !options.create && !directory.join(identity::PATH).is_file() {
            return Err(StoreError::Missing { what: "store" });
        }
        let disk = FileDisk::open(directory).map_err(StoreError::io(IoVerb::Open, &text))?;
        let (wait, on_locked) = (options.lock_wait, options.on_locked.as_ref());
        let lock = DirLock::acquire_within(directory, &options.program, wait, on_locked)?;
        disk.guard(&lock)
            .map_err(StoreError::io(IoVerb::Find, LOCK_FILE))?;
        Self::open_on(Arc::new(disk), options, Some(lock))
    }

    /// Opens the store on a disk that no other user accesses. During a read-only open, one other
    /// user may write to the disk.
    pub fn open_disk(disk: Arc<dyn Disk>, options: &OpenOptions) -> Result<Self, StoreError> {
        if options.read_only {
            return Ok(Self::read_only(read_only::open(&disk, options)?, options));
        }
        Self::open_on(disk, options, None)
    }

    /// Returns a store without a commit thread, which rejects every write.
    fn read_only(parts: read_only::Parts, options: &OpenOptions) -> Self {
        let read_only::Parts {
            files,
            engine,
            readers,
            report,
        } = parts;
        engine.queue.fail_all(&ShutReason::ReadOnly);
        let background = BackgroundTasks::new(options.cursor_flush, None);
        // Otherwise the store would accept cursors and reject them later.
        background.begin_stop();
        Self {
            engine,
            // The channel has no receiver: the queue rejects tasks.
            tasks: channel().0,
            disk: files,
            report,
            maintenance: Arc::default(),
            read_back: Arc::default(),
            orders: Mutex::default(),
            background,
            readers,
            scrubber: Scrubber::default(),
            claim_locks: ClaimLocks::default(),
            committer: None,
            thread: Mutex::new(None),
            lock: Mutex::new(None),
        }
    }

    /// Whether the store was opened for reading only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.disk.is_read_only()
    }

    fn open_on(
        disk: Arc<dyn Disk>,
        options: &OpenOptions,
        lock: Option<DirLock>,
    ) -> Result<Self, StoreError> {
        let files = Arc::new(FileCache::new(disk));
        let (committer, report, _) = recover(&files, options, None)?;
        Self::start(files, options, lock, committer, report)
    }

    /// Starts the commit thread for a recovered state.
    pub(crate) fn start(
        disk: Arc<dyn Disk>,
        options: &OpenOptions,
        lock: Option<DirLock>,
        committer: Committer,
        report: OpenReport,
    ) -> Result<Self, StoreError> {
        let engine = Arc::clone(&committer.engine);
        let maintenance = committer.maintenance();
        let read_back = Arc::clone(&committer.read_back);
        let readers = committer.log.readers();
        let tasks = committer.task_sender.clone();
        let is_node = committer.replica.is_some();
        committer.register_programs();
        let committer = Arc::new(SharedCommitter::new(committer));
        let shared = Arc::clone(&committer);
        let thread = std::thread::Builder::new()
            .name("weir-commit".into())
            .stack_size(PROGRAM_STACK_BYTES)
            .spawn(move || shared.run())
            .map_err(StoreError::io(IoVerb::Open, "commit thread"))?;
        let store = Self {
            engine,
            tasks,
            disk,
            report,
            maintenance,
            read_back,
            orders: Mutex::default(),
            background: BackgroundTasks::new(options.cursor_flush, options.retention_every),
            readers,
            scrubber: Scrubber::default(),
            claim_locks: ClaimLocks::default(),
            committer: Some(committer),
            thread: Mutex::new(Some(thread)),
            lock: Mutex::new(lock),
        };
        let handle = store.maintenance_handle();
        // The options of a topic may come from another node.
        if is_node || background_tasks::has_limits(&handle) {
            store.background.watch_retention(&handle);
        }
        if let Some(scrub) = options.scrub {
            let readers = store.readers.clone();
            store.scrubber.start(handle, readers, scrub);
        }
        Ok(store)
    }

    pub(crate) fn maintenance_handle(&self) -> MaintenanceHandle {
        MaintenanceHandle {
            engine: Arc::clone(&self.engine),
            tasks: self.tasks.clone(),
            disk: Arc::clone(&self.disk),
            maintenance: Arc::clone(&self.maintenance),
            read_back: Arc::clone(&self.read_back),
        }
    }

    /// See [`MaintenanceHandle::run_on_commit_thread`].
    pub(crate) fn run_on_commit_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Committer) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        self.maintenance_handle().run_on_commit_thread(work)
    }

    /// Returns the report of the open.
    #[must_use]
    pub fn report(&self) -> &OpenReport {
        &self.report
    }

    /// Returns the identity of the store.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.engine.identity
    }

    /// Returns the durability level at which intentions are acknowledged.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.engine.durability
    }

    /// Returns the limits for keys and values, as set at the open.
    #[must_use]
    pub fn limits(&self) -> IntentionLimits {
        self.engine.queue.limits()
    }

    /// Proposes intentions, which are executed one after the other in this order. Returns when they
    /// are queued. Blocks only while the queue is full.
    ///
    /// # Errors
    /// `Refused` if an intention exceeds a limit; no intention is then queued. `Poisoned` after a
    /// failed write or sync.
    pub fn propose(&self, intentions: &[Intention<'_>]) -> Result<Proposal, StoreError> {
        self.submit(intentions, |prepared| {
            self.queue(intentions, prepared, Notify::Now)
        })
    }

    /// Proposes intentions for a caller that waits for their outcomes at once. If no other work is
    /// queued, and the topics have no programs, this thread commits them: the call blocks for the write
    /// and for the sync that the durability level requires, wakes the listeners of the topics, and
    /// returns a complete proposal. Otherwise as [`propose`](Self::propose).
    ///
    /// # Errors
    /// As for [`propose`](Self::propose). An error of the commit is the result of the proposal.
    pub fn propose_inline(&self, intentions: &[Intention<'_>]) -> Result<Proposal, StoreError> {
        self.submit(intentions, |prepared| match &self.committer {
            Some(committer) => committer.propose(intentions, prepared),
            None => self.queue(intentions, prepared, Notify::Now),
        })
    }

    /// Proposes intentions without waking the commit thread, for a caller that soon proposes more.
    /// After its last proposal, the caller must call [`wake`](Self::wake).
    ///
    /// # Errors
    /// As for [`propose`](Self::propose).
    pub fn propose_deferred(&self, intentions: &[Intention<'_>]) -> Result<Proposal, StoreError> {
        self.submit(intentions, |prepared| {
            self.queue(intentions, prepared, Notify::Deferred)
        })
    }

    fn queue(
        &self,
        intentions: &[Intention<'_>],
        prepared: Prepared,
        notify: Notify,
    ) -> Result<Proposal, StoreError> {
        let queue = &self.engine.queue;
        queue.propose(Author::Client, intentions, prepared, notify)
    }

    /// Prepares intentions and proposes them with `propose`.
    fn submit(
        &self,
        intentions: &[Intention<'_>],
        propose: impl FnOnce(Prepared) -> Result<Proposal, StoreError>,
    ) -> Result<Proposal, StoreError> {
        let prepared = self.engine.prepare(intentions)?;
        if background_tasks::sets_limits(intentions) {
            self.background.watch_retention(&self.maintenance_handle());
        }
        let ended = self.background.take_ended(intentions);
        let proposed = propose(prepared);
        if proposed.is_err() {
            self.background.restore(ended);
        }
        proposed
    }

    /// Whether these intentions would wait in the slow lane if they were proposed
    /// now; see [`Proposal::is_costly`].
    #[must_use]
    pub fn is_costly(&self, intentions: &[Intention<'_>]) -> bool {
        let refused = self.engine.refuses_starts(intentions);
        self.engine.queue.is_slow(intentions, refused)
    }

    /// Wakes the commit thread if it sleeps although intentions are queued.
    pub fn wake(&self) {
        self.engine.queue.wake();
    }

    /// Proposes intentions of the process that owns the store, such as the records of a server
    /// about rejected requests. They may name topics with a leading dot, which clients can read but
    /// not write. Must not be used for intentions of clients.
    ///
    /// # Errors
    /// As for [`propose`](Self::propose).
    pub fn propose_own(&self, intentions: &[Intention<'_>]) -> Result<Proposal, StoreError> {
        let prepared = self.engine.prepare(intentions)?;
        self.engine
            .queue
            .propose(Author::Store, intentions, prepared, Notify::Now)
    }

    /// Returns the offset of the newest applied intention.
    #[must_use]
    pub fn applied(&self) -> IntentionOffset {
        self.engine.machine.read().applied()
    }

    /// Returns the offset of the intention that created the newest topic. A list of topics that was
    /// read after this intention is complete.
    #[must_use]
    pub fn newest_topic(&self) -> IntentionOffset {
        self.engine.machine.read().newest_topic()
    }

    /// Blocks until [`applied`](Self::applied) is at least `intention`, until `deadline` (`None`:
    /// no deadline), or until the store is closed. Returns whether `intention` is applied.
    #[must_use]
    pub fn wait_applied(&self, intention: IntentionOffset, deadline: Option<Instant>) -> bool {
        let is_applied = || self.applied() >= intention;
        self.engine.topic_created.wait(is_applied, deadline)
    }

    /// Returns the program of a topic; `None` if the topic has no program or does not exist.
    #[must_use]
    pub fn program(&self, topic: &str) -> Option<ProgramInfo> {
        let machine = self.engine.machine.read();
        let view = machine.topic(topic)?.program?;
        Some(program(&view))
    }

    /// Returns the bytes of a module; `None` if no topic uses it.
    #[must_use]
    pub fn module(&self, code: CodeHash) -> Option<Arc<[u8]>> {
        self.engine.machine.read().module(code)
    }

    /// Returns the programs of all topics that have one, sorted by topic name.
    #[must_use]
    pub fn programs(&self) -> Vec<(String, ProgramInfo)> {
        let machine = self.engine.machine.read();
        let topics = machine.topics();
        let mut programs: Vec<_> = topics
            .filter_map(|view| Some((view.name.as_str().to_owned(), program(&view.program?))))
            .collect();
        drop(machine);
        programs.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        programs
    }

    /// Returns the program counters of the first `limit` topics with a program, in the order of
    /// their creation, and the number of all topics with a program.
    #[must_use]
    pub fn program_counts(&self, limit: usize) -> (Vec<ProgramTally>, usize) {
        let machine = self.engine.machine.read();
        let (mut found, mut count) = (Vec::new(), 0);
        for view in machine.topics() {
            let Some(program) = view.program else {
                continue;
            };
            count += 1;
            if found.len() < limit {
                found.push(ProgramTally {
                    topic: view.name.as_str().to_owned(),
                    counts: program.counts,
                    verdicts: program.verdicts,
                });
            }
        }
        (found, count)
    }

    /// Returns the digest of all applied intentions. Equal logs give equal digests.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.engine.machine.read().digest()
    }

    /// Returns the last executed nonce of a session; 0 for a new session.
    #[must_use]
    pub fn last_nonce(&self, client: ClientId) -> u64 {
        self.engine.machine.read().sessions().last_nonce(client)
    }

    /// Returns the number of stored sessions, and the number of stored client ids that were valid
    /// for one intention only.
    #[must_use]
    pub fn sessions(&self) -> (usize, usize) {
        let machine = self.engine.machine.read();
        let sessions = machine.sessions();
        (sessions.len(), sessions.once_len())
    }

    /// Returns the outcome of a nonce of a session; `None` if the outcome is not stored.
    #[must_use]
    pub fn outcome(&self, client: ClientId, nonce: u64) -> Option<Commit> {
        self.engine.machine.read().sessions().outcome(client, nonce)
    }

    /// Returns a topic by name; `None` if the topic was never created.
    #[must_use]
    pub fn topic(&self, name: &str) -> Option<TopicInfo> {
        let machine = self.engine.machine.read();
        let view = machine.topic(name)?;
        let mut info = info(&view);
        drop(machine);
        self.measure(&mut info);
        Some(info)
    }

    /// Returns all topics, sorted by name. With `include_destroyed`, also returns destroyed topics.
    #[must_use]
    pub fn topics(&self, include_destroyed: bool) -> Vec<TopicInfo> {
        let machine = self.engine.machine.read();
        let mut infos: Vec<TopicInfo> = machine.topics().map(|view| info(&view)).collect();
        drop(machine);
        infos.retain(|info| info.live || include_destroyed);
        infos.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        for info in &mut infos {
            self.measure(info);
        }
        infos
    }

    /// Returns the number of topics, without destroyed ones. Visits each topic and copies nothing.
    #[must_use]
    pub fn topic_count(&self) -> u64 {
        let machine = self.engine.machine.read();
        let live = machine.topics().filter(|view| view.incarnation.is_some());
        live.count() as u64
    }

    /// Returns up to `limit` topics whose names start with `prefix`, sorted by name, from the first
    /// name after `after`. With `include_destroyed`, also returns destroyed topics. The cost
    /// depends on the visited topics, not on the number of all topics.
    #[must_use]
    pub fn topics_after(
        &self,
        after: &str,
        prefix: &str,
        limit: usize,
        include_destroyed: bool,
    ) -> Vec<TopicInfo> {
        let machine = self.engine.machine.read();
        let mut infos: Vec<TopicInfo> = machine
            .topics_by_name(after, prefix)
            .filter(|view| include_destroyed || view.incarnation.is_some())
            .take(limit)
            .map(|view| info(&view))
            .collect();
        drop(machine);
        for info in &mut infos {
            self.measure(info);
        }
        infos
    }

    fn measure(&self, info: &mut TopicInfo) {
        if let Some(files) = self.engine.files(info.id) {
            info.first = files.first();
            info.last = files.last();
            info.bytes = files.bytes();
        }
    }

    /// Returns a reader of the records of a topic after the offset `after`. Zero is the start.
    ///
    /// # Errors
    /// `TopicUnknown` if the topic was never created.
    pub fn read(&self, topic: &str, after: ConsequenceOffset) -> Result<TopicReader, StoreError> {
        let files = self.engine.files_by_name(topic);
        let files = files.ok_or_else(|| StoreError::TopicUnknown {
            name: topic.to_owned(),
        })?;
        Ok(TopicReader::new(files, after))
    }

    /// Returns a reader of a topic that may not exist yet. The topic may be created later; its
    /// first record is then the record of its creation.
    #[must_use]
    pub fn listen(&self, topic: &str, after: ConsequenceOffset) -> TopicReader {
        match self.engine.files_by_name(topic) {
            Some(files) => TopicReader::new(files, after),
            None => TopicReader::for_future_topic(Arc::clone(&self.engine), topic, after),
        }
    }

    /// Returns a page whose first record has the current value of the key; `None` if the key has no
    /// value.
    ///
    /// # Errors
    /// `RecordsGone` if retention has removed the record. `TopicUnknown` if the topic was never
    /// created.
    pub fn get(&self, topic: &str, key: &[u8]) -> Result<Option<Page>, StoreError> {
        // A compaction may move the record after the lookup in the index. A second lookup then
        // finds the new offset.
        for _ in 0..3 {
            let found = {
                let machine = self.engine.machine.read();
                let view = machine.topic(topic);
                let view = view.ok_or_else(|| StoreError::TopicUnknown {
                    name: topic.to_owned(),
                })?;
                view.keys
                    .and_then(|keys| keys.get(key))
                    .map(|offset| (view.id, offset))
            };
            let Some((id, offset)) = found else {
                return Ok(None);
            };
            if let Some(page) = self.record(id, offset)? {
                return Ok(Some(page));
            }
        }
        Err(StoreError::damage(
            topic,
            0,
            "the record of a key is missing",
            0,
        ))
    }

    /// Returns the page whose first record has the offset `offset`; `None` if no record has it.
    pub(crate) fn record(
        &self,
        id: TopicId,
        offset: ConsequenceOffset,
    ) -> Result<Option<Page>, StoreError> {
        let Some(files) = self.engine.files(id) else {
            return Ok(None);
        };
        let mut reader = TopicReader::new(files, ConsequenceOffset(offset.0.saturating_sub(1)));
        let Some(page) = reader.next_page()? else {
            return Ok(None);
        };
        let first = page.iter().next().transpose()?.map(|record| record.offset);
        Ok((first == Some(offset)).then_some(page))
    }

    /// Returns counters and log positions.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let counters = &self.engine.counters;
        Stats {
            batches: counters.batches.get(),
            intentions: counters.items.get(),
            syncs: counters.syncs.get(),
            sync_ns: counters.sync_ns.get(),
            valid: counters.valid.get(),
            invalid: counters.invalid.get(),
            errors: counters.errors.get(),
            replayed: counters.replayed.get(),
            refused: counters.refused.get(),
            snapshots: counters.snapshots.get(),
            derived_write_errors: counters.derived_write_errors.get(),
            applied_index: counters.applied_index.get(),
            durable_index: counters.durable_index.get(),
            purged_index: counters.purged_index.get(),
            log_bytes: counters.log_bytes.get(),
            scrubbed_bytes: counters.scrubbed_bytes.get(),
            scrub_rounds: counters.scrub_rounds.get(),
            damage: counters.damage.get(),
        }
    }

    /// Makes all writes acknowledged so far durable, at any level. Does not wait for the slow lane,
    /// whose calls are not acknowledged yet. Returns the index of the newest applied log entry.
    pub fn sync(&self) -> Result<LogIndex, StoreError> {
        self.run_on_commit_thread(|committer| {
            committer.sync()?;
            Ok(committer.engine.applied_index())
        })?
    }

    /// Executes the queued calls and closes the log cleanly. Dropping the store does this too, but
    /// cannot return an error. Calls that wait in the slow lane fail with `Closed` and are not
    /// executed, except for calls that were partly admitted to the log.
    pub fn close(self) -> Result<(), StoreError> {
        self.stop()
    }

    /// Closes the store while others still own a handle to it. Their writes fail with `Closed` from
    /// now on, and the directory can be opened again.
    pub fn shut_down(&self) -> Result<(), StoreError> {
        self.stop()
    }

    fn stop(&self) -> Result<(), StoreError> {
        // Write the waiting cursors while the queue still accepts calls of the store itself.
        self.scrubber.stop();
        self.background.begin_stop();
        self.engine.queue.begin_close();
        self.background.stop(&self.maintenance_handle());
        self.engine.queue.shut(&ShutReason::Closed);
        // Lock until the end of this function: a second caller must not release the directory while
        // the first one still waits for the thread.
        let mut thread = self.thread.lock();
        let ended = thread.take().map_or(Ok(Ok(())), JoinHandle::join);
        self.engine.topic_created.close();
        for files in self.engine.topics.read().iter() {
            files.close();
        }
        // A checkpoint may still write to the directory: wait for it before releasing the lock.
        drop(self.maintenance.acquire());
        drop(self.lock.lock().take());
        // After a panic on the thread, all waiting calls have already failed.
        let thread = "the commit thread";
        ended.unwrap_or(Err(StoreError::Panicked { thread }))
    }

    /// Blocks up to `time` until the topic has a record after `after`. Returns whether it has one.
    pub fn wait(
        &self,
        topic: &str,
        after: ConsequenceOffset,
        time: Duration,
    ) -> Result<bool, StoreError> {
        let reader = self.read(topic, after)?;
        Ok(reader.wait(std::time::Instant::now().checked_add(time)))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The error cannot be returned. The next open detects the cause.
        drop(self.stop());
    }
}

fn program(view: &ProgramView<'_>) -> ProgramInfo {
    ProgramInfo {
        code: view.code,
        args: view.args.to_vec(),
        mode: view.mode,
        state_entries: view.state_entries,
        state_bytes: view.state_bytes,
        counts: view.counts,
    }
}

fn info(view: &weir_core::machine::TopicView<'_>) -> TopicInfo {
    TopicInfo {
        name: view.name.as_str().to_owned(),
        id: view.id,
        live: view.incarnation.is_some(),
        incarnation: view.incarnation,
        first: ConsequenceOffset::ZERO,
        last: view.last,
        keys: view.keys.map_or(0, |keys| keys.len() as u64),
        bytes: 0,
        options: view.options.cloned().unwrap_or_default(),
    }
}
