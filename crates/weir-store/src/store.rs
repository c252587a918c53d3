//! The store: a directory that was opened.

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
use crate::commit::{Committer, Task};
use crate::disk::{Disk, FileDisk};
use crate::engine::Engine;
use crate::error::{IoVerb, StoreError};
use crate::identity::{self, Identity};
use crate::key_order::KeyOrder;
use crate::lock::{DirLock, LOCK_FILE};
use crate::log::{LogIndex, LogReaders};
use crate::maintenance_handle::MaintenanceHandle;
use crate::options::{Durability, OpenOptions};
use crate::permit::Exclusive;
use crate::proposal::Proposal;
use crate::queue::{Notify, Shut};
use crate::read_back::ReadBack;
use crate::read_only;
use crate::reader::{Page, TopicReader};
use crate::recovery::{OpenReport, recover};
use crate::scrub::Scrubber;
use crate::topic::cache::FileCache;

mod maintenance;

/// An open store. Cheap to share in an [`Arc`]; every method may be called
/// from any thread. Dropping it closes it.
pub struct Store {
    pub(crate) engine: Arc<Engine>,
    tasks: Sender<Task>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) report: OpenReport,
    pub(crate) maintenance: Arc<Exclusive>,
    pub(crate) read_back: Arc<ReadBack>,
    pub(crate) orders: Mutex<Vec<Option<Arc<Mutex<KeyOrder>>>>>,
    pub(crate) background: BackgroundTasks,
    pub(crate) readers: LogReaders,
    pub(crate) scrubber: Scrubber,
    /// One claim of a group at a time.
    pub(crate) turns: ClaimLocks,
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

/// A topic as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicInfo {
    /// Name.
    pub name: String,
    /// Number.
    pub id: TopicId,
    /// Whether it lives.
    pub live: bool,
    /// Intention offset of its CREATE, when it lives.
    pub incarnation: Option<IntentionOffset>,
    /// Offset of the oldest record that is still there; zero for none.
    pub first: ConsequenceOffset,
    /// Offset of the newest record.
    pub last: ConsequenceOffset,
    /// Keys with a value.
    pub keys: u64,
    /// Bytes of its records, as stored.
    pub bytes: u64,
    /// Options, when it lives.
    pub options: TopicOptions,
}

/// The program of a topic as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramInfo {
    /// SHA-256 of its module.
    pub code: CodeHash,
    /// Its arguments.
    pub args: Vec<u8>,
    /// What it keeps between calls.
    pub mode: StateMode,
    /// Entries of its state.
    pub state_entries: u64,
    /// Bytes of its state: keys and values, or memory.
    pub state_bytes: u64,
    /// What the topic's programs did since the store was opened, the
    /// intentions that were replayed then included.
    pub counts: ProgramCounts,
}

/// What the programs of a topic did since the store was opened, the intentions that were
/// replayed then included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramTally {
    /// Name of the topic.
    pub topic: String,
    /// Its calls.
    pub counts: ProgramCounts,
    /// What became of the writes that it judged.
    pub verdicts: Verdicts,
}

/// Counts since the store was opened, and where it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Batches logged.
    pub batches: u64,
    /// Intentions logged.
    pub intentions: u64,
    /// Syncs of the log.
    pub syncs: u64,
    /// Time spent in them, nanoseconds.
    pub sync_ns: u64,
    /// Effects by kind.
    pub valid: u64,
    /// Said no to.
    pub invalid: u64,
    /// Could not be carried out.
    pub errors: u64,
    /// Answered from the session table.
    pub replayed: u64,
    /// Refused on apply.
    pub refused: u64,
    /// Snapshots written.
    pub snapshots: u64,
    /// Failed writes of topic segments; they are tried again.
    pub derived_write_errors: u64,
    /// Newest log entry that is applied.
    pub applied_index: u64,
    /// Newest log entry known to be synced.
    pub durable_index: u64,
    /// Newest log entry that was purged.
    pub purged_index: u64,
    /// Bytes of the files of the log.
    pub log_bytes: u64,
    /// Bytes that scrubbing has read.
    pub scrubbed_bytes: u64,
    /// Times that scrubbing has read everything.
    pub scrub_rounds: u64,
    /// Places of damage that scrubbing has found.
    pub damage: u64,
}

impl Store {
    /// Opens the store in `directory`, or makes one.
    ///
    /// # Errors
    /// `Locked` when another process has it open for writing; `Damage` when
    /// bytes that must be there are wrong, which changes nothing on disk. A
    /// read-only open fails with `Missing` when there is no store, with
    /// `ChangedWhileRead` when the process that writes the store changed its
    /// files at every attempt, and with `ReadOnlyLimit` when the log makes more
    /// records than it may keep.
    pub fn open(directory: &Path, options: &OpenOptions) -> Result<Self, StoreError> {
        let text = directory.display().to_string();
        if options.read_only {
            let disk = FileDisk::open_existing(directory).map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => StoreError::Missing { what: "store" },
                _ => StoreError::io(IoVerb::Open, &text)(error),
            })?;
            return Self::open_disk(Arc::new(disk), options);
        }
        // Looked for before the lock, which would leave its file.
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

    /// Opens the store on a disk that nobody else uses. A read-only open allows
    /// one other user, who writes.
    pub fn open_disk(disk: Arc<dyn Disk>, options: &OpenOptions) -> Result<Self, StoreError> {
        if options.read_only {
            return Ok(Self::read_only(read_only::open(&disk, options)?, options));
        }
        Self::open_on(disk, options, None)
    }

    /// A store without a commit thread, which refuses every write.
    fn read_only(parts: read_only::Parts, options: &OpenOptions) -> Self {
        let read_only::Parts {
            files,
            engine,
            readers,
            report,
        } = parts;
        engine.queue.leave(&Shut::ReadOnly);
        let background = BackgroundTasks::new(options.cursor_flush, None);
        // A cursor is refused at once, and not after it was taken.
        background.begin_stop();
        Self {
            engine,
            // Nobody receives: the queue refuses tasks.
            tasks: channel().0,
            disk: files,
            report,
            maintenance: Arc::default(),
            read_back: Arc::default(),
            orders: Mutex::default(),
            background,
            readers,
            scrubber: Scrubber::default(),
            turns: ClaimLocks::default(),
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

    /// Starts the commit thread of a state that was recovered.
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
        committer.learn_programs();
        let thread = std::thread::Builder::new()
            .name("weir-commit".into())
            .stack_size(PROGRAM_STACK_BYTES)
            .spawn(move || committer.run())
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
            turns: ClaimLocks::default(),
            thread: Mutex::new(Some(thread)),
            lock: Mutex::new(lock),
        };
        let handle = store.maintenance_handle();
        if background_tasks::has_limits(&handle) {
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

    /// See [`MaintenanceHandle::ask`].
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Committer) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        self.maintenance_handle().ask(work)
    }

    /// What opening found and did.
    #[must_use]
    pub fn report(&self) -> &OpenReport {
        &self.report
    }

    /// Identity of the store.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.engine.identity
    }

    /// The level at which intentions are answered.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.engine.durability
    }

    /// The limits for keys and values that it was opened with.
    #[must_use]
    pub fn limits(&self) -> IntentionLimits {
        self.engine.queue.limits()
    }

    /// Hands intentions over, to be executed in this order, one after the
    /// other. Returns when they are queued; waits only while the queue is
    /// full.
    ///
    /// # Errors
    /// `Refused` for an intention that is over a limit: then none of them is
    /// queued. `Poisoned` after a failed write or sync.
    pub fn propose(&self, intentions: &[Intention<'_>]) -> Result<Proposal, StoreError> {
        self.hand_over(intentions, Notify::Now)
    }

    /// Proposes intentions without waking the commit thread: the caller proposes more in a
    /// moment and must then call [`wake`](Self::wake).
    ///
    /// # Errors
    /// As for [`propose`](Self::propose).
    pub fn propose_quietly(&self, intentions: &[Intention<'_>]) -> Result<Proposal, StoreError> {
        self.hand_over(intentions, Notify::Deferred)
    }

    fn hand_over(
        &self,
        intentions: &[Intention<'_>],
        notify: Notify,
    ) -> Result<Proposal, StoreError> {
        let prepared = self.engine.prepare(intentions)?;
        if background_tasks::sets_limits(intentions) {
            self.background.watch_retention(&self.maintenance_handle());
        }
        self.engine
            .queue
            .propose(Author::Client, intentions, prepared, notify)
    }

    /// Whether these intentions would wait in the slow lane if they were proposed
    /// now; see [`Proposal::is_costly`].
    #[must_use]
    pub fn is_costly(&self, intentions: &[Intention<'_>]) -> bool {
        let refused = self.engine.refuses_starts(intentions);
        self.engine.queue.is_slow(intentions, refused)
    }

    /// Tells the commit thread, if it sleeps, that something was handed over.
    pub fn wake(&self) {
        self.engine.queue.wake();
    }

    /// Proposes intentions of the process that has the store, such as the records of a
    /// server about refused requests. They may name topics with a leading dot, which
    /// clients can read and not write. Intentions of clients must not be proposed here.
    ///
    /// # Errors
    /// As for [`propose`](Self::propose).
    pub fn propose_own(&self, intentions: &[Intention<'_>]) -> Result<Proposal, StoreError> {
        let prepared = self.engine.prepare(intentions)?;
        self.engine
            .queue
            .propose(Author::Store, intentions, prepared, Notify::Now)
    }

    /// Offset of the newest intention.
    #[must_use]
    pub fn applied(&self) -> IntentionOffset {
        self.engine.machine.read().applied()
    }

    /// Returns the intention that created the newest topic. A list of topics that was made
    /// since then is complete.
    #[must_use]
    pub fn newest_topic(&self) -> IntentionOffset {
        self.engine.machine.read().newest_topic()
    }

    /// Blocks until [`applied`](Self::applied) is at least `intention`, until
    /// `deadline` at most, or until the store is closed. Returns whether it is.
    #[must_use]
    pub fn wait_applied(&self, intention: IntentionOffset, deadline: Option<Instant>) -> bool {
        let there = || self.applied() >= intention;
        self.engine.arrivals.wait(there, deadline)
    }

    /// The program of a topic; `None` for a plain topic and for one that does
    /// not live.
    #[must_use]
    pub fn program(&self, topic: &str) -> Option<ProgramInfo> {
        let machine = self.engine.machine.read();
        let view = machine.topic(topic)?.program?;
        Some(program(&view))
    }

    /// The bytes of a module that a topic has.
    #[must_use]
    pub fn module(&self, code: CodeHash) -> Option<Arc<[u8]>> {
        self.engine.machine.read().module(code)
    }

    /// The programs of all topics that live and have one, by name.
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

    /// What the programs of at most `limit` topics did since the store was opened, those that were
    /// created first, and the number of topics that have one.
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

    /// Hash of the intentions that are applied, a prefix of the log; equal for
    /// equal histories.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.engine.machine.read().digest()
    }

    /// Last nonce of a session that was executed; 0 for a new one.
    #[must_use]
    pub fn last_nonce(&self, client: ClientId) -> u64 {
        self.engine.machine.read().sessions().last_nonce(client)
    }

    /// Sessions that are known, and ids that were good for one intention.
    #[must_use]
    pub fn sessions(&self) -> (usize, usize) {
        let machine = self.engine.machine.read();
        let sessions = machine.sessions();
        (sessions.len(), sessions.once_len())
    }

    /// The outcome of a session's nonce, while it is kept.
    #[must_use]
    pub fn outcome(&self, client: ClientId, nonce: u64) -> Option<Commit> {
        self.engine.machine.read().sessions().outcome(client, nonce)
    }

    /// A topic by name; `None` when it never was created.
    #[must_use]
    pub fn topic(&self, name: &str) -> Option<TopicInfo> {
        let machine = self.engine.machine.read();
        let view = machine.topic(name)?;
        let mut info = info(&view);
        drop(machine);
        self.measure(&mut info);
        Some(info)
    }

    /// All topics that live, or all that ever did, by name.
    #[must_use]
    pub fn topics(&self, dead_too: bool) -> Vec<TopicInfo> {
        let machine = self.engine.machine.read();
        let mut infos: Vec<TopicInfo> = machine.topics().map(|view| info(&view)).collect();
        drop(machine);
        infos.retain(|info| info.live || dead_too);
        infos.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        for info in &mut infos {
            self.measure(info);
        }
        infos
    }

    /// How many topics live. Looks at each topic and copies nothing.
    #[must_use]
    pub fn topic_count(&self) -> u64 {
        let machine = self.engine.machine.read();
        let live = machine.topics().filter(|view| view.incarnation.is_some());
        live.count() as u64
    }

    /// Topics whose names begin so, by name, from the first one after `after`
    /// on: at most `limit` that live, or ever did. What is looked at costs, not
    /// what there is.
    #[must_use]
    pub fn topics_after(
        &self,
        after: &str,
        prefix: &str,
        limit: usize,
        dead_too: bool,
    ) -> Vec<TopicInfo> {
        let machine = self.engine.machine.read();
        let mut infos: Vec<TopicInfo> = machine
            .topics_by_name(after, prefix)
            .filter(|view| dead_too || view.incarnation.is_some())
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

    /// Reads a topic's records after `after`; zero: from the first.
    ///
    /// # Errors
    /// `TopicUnknown` when the name never was created.
    pub fn read(&self, topic: &str, after: ConsequenceOffset) -> Result<TopicReader, StoreError> {
        let files = self.engine.files_by_name(topic);
        let files = files.ok_or_else(|| StoreError::TopicUnknown {
            name: topic.to_owned(),
        })?;
        Ok(TopicReader::new(files, after))
    }

    /// Returns a reader of a topic that may not exist yet: its first record is then the
    /// one of its creation.
    #[must_use]
    pub fn listen(&self, topic: &str, after: ConsequenceOffset) -> TopicReader {
        match self.engine.files_by_name(topic) {
            Some(files) => TopicReader::new(files, after),
            None => TopicReader::awaiting(Arc::clone(&self.engine), topic, after),
        }
    }

    /// Finds the record that holds the key's current value. The value is the
    /// first record of the page; `None` when the key has none.
    ///
    /// # Errors
    /// `RecordsGone` when retention has removed the record.
    pub fn get(&self, topic: &str, key: &[u8]) -> Result<Option<Page>, StoreError> {
        // A compaction may move the record between the two steps; the newer
        // index then says where.
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
        Err(StoreError::damage(topic, 0, "the record of a key", 0))
    }

    /// The page whose first record is the one at `offset`, if it is there.
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

    /// Counts and positions.
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

    /// Makes everything answered so far durable, at any level. Does not wait for
    /// the slow lane: what waits there is not answered yet. Returns the newest
    /// log entry that is applied.
    pub fn sync(&self) -> Result<LogIndex, StoreError> {
        self.ask(|committer| {
            committer.sync()?;
            Ok(committer.engine.applied_index())
        })?
    }

    /// Finishes what is queued and closes the log cleanly. Dropping does the
    /// same but cannot return an error. Calls that wait in the slow lane are
    /// answered with `Closed` and not executed, unless a part of them is in the
    /// log already.
    pub fn close(self) -> Result<(), StoreError> {
        self.stop()
    }

    /// Closes the store while others still hold a handle: their writes fail with `Closed`
    /// from now on, and the directory can be opened again.
    pub fn shut_down(&self) -> Result<(), StoreError> {
        self.stop()
    }

    fn stop(&self) -> Result<(), StoreError> {
        // Cursors that wait are written while something is still taken.
        self.scrubber.stop();
        self.background.begin_stop();
        self.engine.queue.begin_close();
        self.background.stop(&self.maintenance_handle());
        self.engine.queue.shut(&Shut::Closed);
        // Held to the end: a second caller must not release the directory
        // while the first one still waits for the thread.
        let mut thread = self.thread.lock();
        let ended = thread.take().map_or(Ok(Ok(())), JoinHandle::join);
        self.engine.arrivals.close();
        for files in self.engine.topics.read().iter() {
            files.close();
        }
        // A checkpoint may still be writing; the directory is ours until then.
        drop(self.maintenance.acquire());
        drop(self.lock.lock().take());
        // A panic on the thread has already answered everybody who waited.
        let thread = "the commit thread";
        ended.unwrap_or(Err(StoreError::Panicked { thread }))
    }

    /// Waits until a record after `after` can be read from the topic, at
    /// most for `time`.
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
        // Nobody is left to hear of it; the next open finds out.
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
