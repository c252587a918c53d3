//! The committer: the only writer of the log and of the topics, in one order.
//!
//! The commit thread takes all queued batches, appends them, syncs once, applies and publishes them,
//! and only then returns the verdicts (I2). A caller can do the same with its own write, if nothing
//! else is queued (`shared`). Records become visible only when they are as durable as the
//! level promises. After a failed write or sync, this handle writes nothing more.

mod apply;
mod discard;
mod helper;
mod replay_cost;
mod shared;
mod sink;
mod turn;

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_core::ErrorCode;
use weir_core::exact::to_u32;

use crate::checkpoint::finish;
use crate::clock::{ClockReport, StoreClock, TIME_AHEAD_MS_MAX};
use crate::clock_moves;
use crate::disk::{Disk, check_directory};
use crate::engine::Engine;
use crate::error::StoreError;
use crate::log::Log;
use crate::node::ReplicaWriter;
use crate::options::Durability;
use crate::permit::Exclusive;
use crate::provider::{ProposedBatch, Waiters};
use crate::queue::{Pending, ShutReason, Work, fuel_of_a_call};
use crate::read_back::ReadBack;
use crate::snapshot::{Checkpoint, Snapshot};
pub(crate) use apply::Applier;
use apply::LoggedBatches;
use helper::Helper;
pub(crate) use replay_cost::ReplayCost;
pub(crate) use shared::SharedCommitter;
pub(crate) use sink::{Topics, attached};
use turn::SlowTurn;

/// Idle time after which the log is sealed. The seal lets a later open prove that the last batch is
/// durable.
const SEAL_AFTER: Duration = Duration::from_millis(100);
/// Batches with at least this many program calls are applied during the next sync, if there is one.
/// Smaller batches are applied at once, which takes less time than a sync. If their verdicts waited
/// for the next sync, producers could send only half as much for each sync.
const PARALLEL_CALLS_MIN: usize = 128;
/// Pause between two attempts to open a file while the process has no free descriptor.
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(10);
/// At levels that do not wait for syncs, the time between two checks that the directory of the
/// store has not been moved or replaced.
const DIRECTORY_CHECK_EVERY: Duration = Duration::from_secs(1);
/// The lowest term of a store without a cluster.
const LOCAL_TERM: u64 = 1;

/// Work for the commit thread other than intentions. A task runs between two batches.
pub(crate) type Task = Box<dyn FnOnce(&mut Committer) + Send>;

/// The state of the thread that commits.
pub(crate) struct Committer {
    pub(crate) engine: Arc<Engine>,
    /// Where tasks are sent. The queue counts the tasks and wakes the thread.
    pub(crate) task_sender: Sender<Task>,
    tasks: Receiver<Task>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) log: Log,
    /// The term of entries that are appended without a provider.
    pub(crate) term: u64,
    /// Set when a log provider decides the order.
    pub(crate) replica: Option<ReplicaWriter>,
    /// Used by one thread at a time: the one that commits, or `helper` during a sync.
    pub(crate) applier: Arc<Mutex<Applier>>,
    helper: Helper,
    /// Batches that are synced but not yet applied. They are applied during the next sync.
    ready: LoggedBatches,
    /// When the slow lane may be admitted.
    slow_turn: SlowTurn,
    /// Whether the log has entries that are not synced.
    pub(crate) unsynced: bool,
    last_sync: Instant,
    /// When the directory was last checked.
    directory_checked: Instant,
    /// Whether entries were synced after the log was last sealed.
    unsealed: bool,
    /// Log bytes of this process at the newest snapshot.
    pub(crate) snapshot_at: u64,
    /// Log bytes after the newest snapshot when the store was opened.
    pub(crate) replayed_bytes: u64,
    pub(crate) snapshot_log_bytes: u64,
    pub(crate) maintenance: Arc<Exclusive>,
    pub(crate) read_back: Arc<ReadBack>,
    /// Number of newest log bytes that a purge retains; `None` disables automatic purges.
    pub(crate) log_keep_bytes: Option<u64>,
}

impl Committer {
    pub(crate) fn new(
        engine: Arc<Engine>,
        disk: Arc<dyn Disk>,
        log: Log,
        applier: Applier,
        snapshot_log_bytes: u64,
    ) -> Self {
        let applier = Arc::new(Mutex::new(applier));
        let (task_sender, tasks) = channel();
        Self {
            engine,
            task_sender,
            tasks,
            disk,
            term: log.last_term().max(LOCAL_TERM),
            log,
            replica: None,
            applier,
            helper: Helper::default(),
            ready: LoggedBatches::new(),
            slow_turn: SlowTurn::default(),
            unsynced: false,
            last_sync: Instant::now(),
            directory_checked: Instant::now(),
            unsealed: false,
            snapshot_at: 0,
            replayed_bytes: 0,
            snapshot_log_bytes,
            maintenance: Arc::default(),
            read_back: Arc::default(),
            log_keep_bytes: None,
        }
    }

    /// The source of the maintenance permit.
    pub(crate) fn maintenance(&self) -> Arc<Exclusive> {
        Arc::clone(&self.maintenance)
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.engine.is_poisoned()
    }

    /// Applies what need not wait for the next sync. Returns how long the commit thread may wait for
    /// work (`None`: no limit), and when the slow lane is due.
    fn prepare_wait(&mut self) -> (Option<Duration>, Instant) {
        if !self.ready.is_empty() && !self.engine.queue.has_batches() {
            self.apply_ready();
        }
        (self.sleep_max(), self.slow_turn.due_at(Instant::now()))
    }

    /// Does the work that the commit thread took. Returns whether the store is closed and nothing is
    /// left to do.
    fn process(&mut self, work: Work) -> bool {
        let idle = work.is_empty();
        let is_closed = work.shut.as_ref().is_some_and(ShutReason::is_closed);
        if !work.slow_time.is_zero() {
            self.slow_turn.record_apply(work.slow_time, Instant::now());
        }
        if !work.batches.is_empty() {
            self.commit(work.batches);
        }
        if work.tasks > 0 {
            self.apply_ready();
            for _ in 0..work.tasks {
                // A task is sent before it is counted.
                if let Ok(task) = self.tasks.try_recv() {
                    task(self);
                }
            }
            if !self.is_stepped() {
                self.flush();
            }
        }
        // A caller may have committed while the thread waited. A close waits for nothing.
        let is_quiet = is_closed || self.last_sync.elapsed() >= SEAL_AFTER;
        if !self.is_stepped() {
            self.sync_when_due(idle && is_quiet);
        }
        if idle && is_closed {
            self.apply_ready();
        }
        idle && is_closed
    }

    /// Whether a caller can commit its own write: nothing waits for the apply, and no log provider
    /// decides the order.
    fn accepts_callers(&self) -> bool {
        self.ready.is_empty() && self.replica.is_none()
    }

    /// Commits the write of a caller on the thread of the caller.
    fn commit_for_caller(&mut self, pending: Pending) {
        let sleeps = self.sleep_max().is_none();
        self.execute(VecDeque::from([pending]));
        // The commit thread seals and syncs the log when it is due, and begins checkpoints.
        let is_free = || self.maintenance.try_acquire().is_some();
        if (sleeps && self.sleep_max().is_some()) || (self.is_checkpoint_due() && is_free()) {
            drop(self.maintenance_handle().send(Self::checkpoint_when_due));
        }
    }

    /// Registers the topics with programs in the queue, which does not know the cost of their calls
    /// yet. Some programs are not compiled. Must be called before the queue accepts the first call.
    pub(crate) fn register_programs(&self) {
        let machine = self.engine.machine.read();
        let programs: Vec<_> = machine
            .topics()
            .filter_map(|topic| {
                let fuel_max = fuel_of_a_call(topic.options?);
                Some((topic.name.clone(), fuel_max, topic.program?.code))
            })
            .collect();
        drop(machine);
        let is_deferred = |code| {
            let host = self.engine.host.as_ref();
            host.is_some_and(|host| host.is_deferred(code))
        };
        self.engine.queue.restored(&programs, is_deferred);
    }

    fn apply_ready(&mut self) {
        let ready = std::mem::take(&mut self.ready);
        if ready.is_empty() {
            return;
        }
        let applied = self.applier.lock().apply_all(ready);
        self.check(applied);
    }

    /// Poisons the store after a failed apply: an encoded batch cannot be decoded, or a program
    /// cannot be run.
    fn check(&mut self, applied: Result<(), StoreError>) {
        if let Err(error) = applied {
            self.poison(error);
            self.ready.clear();
        } else if self.replica.is_none() {
            self.positions().assert_order();
        }
        let slow = std::mem::take(&mut self.applier.lock().slow_time);
        self.slow_turn.record_apply(slow, Instant::now());
    }

    /// How long the thread may sleep without work; `None` has no limit.
    fn sleep_max(&self) -> Option<Duration> {
        match self.engine.durability {
            _ if self.is_poisoned() || self.is_stepped() => None,
            Durability::Group | Durability::Each => self
                .unsealed
                .then(|| SEAL_AFTER.saturating_sub(self.last_sync.elapsed())),
            Durability::Interval(every) => self
                .unsynced
                .then(|| every.saturating_sub(self.last_sync.elapsed())),
            Durability::Memory => None,
        }
    }

    pub(crate) fn sync_when_due(&mut self, idle: bool) {
        match self.engine.durability {
            _ if self.is_poisoned() => {}
            Durability::Group | Durability::Each if idle && self.unsealed => {
                self.unsealed = false;
                if let Err(error) = self.log.seal() {
                    self.poison(error);
                }
            }
            Durability::Interval(every) if self.unsynced && self.last_sync.elapsed() >= every => {
                // A failure has poisoned the store. `ensure_directory` is needed because the sync
                // of a removed file succeeds.
                drop(self.ensure_directory().and_then(|()| self.sync()));
            }
            _ => {}
        }
    }

    /// Poisons the store if the log is poisoned. An error that left the log unchanged (no space, no
    /// descriptor) does not poison the store: the next write may succeed.
    pub(crate) fn fail(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Poisoned { .. } => self.poison(error),
            StoreError::InDoubt { .. } => self.poison(error).in_doubt(),
            other => other,
        }
    }

    /// See [`Engine::poison`].
    fn poison(&self, error: StoreError) -> StoreError {
        self.engine.poison(error)
    }

    /// Poisons the store if its directory was removed or replaced, because data that is written to
    /// a removed directory is lost.
    fn ensure_directory(&mut self) -> Result<(), StoreError> {
        self.directory_checked = Instant::now();
        check_directory(&*self.disk).map_err(|error| self.poison(error))
    }

    /// Calls [`ensure_directory`](Self::ensure_directory) before each write at levels that wait for a
    /// sync, and at most once per [`DIRECTORY_CHECK_EVERY`] at other levels.
    pub(crate) fn ensure_directory_when_due(&mut self) -> Result<(), StoreError> {
        let is_synced = self.engine.durability.is_synced();
        if is_synced || self.directory_checked.elapsed() >= DIRECTORY_CHECK_EVERY {
            self.ensure_directory()?;
        }
        Ok(())
    }

    /// Makes every logged entry durable.
    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        self.engine.writable()?;
        let start = Instant::now();
        self.log.sync().map_err(|error| self.engine.poison(error))?;
        self.unsynced = false;
        self.unsealed = true;
        self.last_sync = Instant::now();
        let counters = &self.engine.counters;
        counters.syncs.add(1);
        counters
            .sync_ns
            .add(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        counters.durable_index.set(self.log.durable_index().0);
        Ok(())
    }

    /// Starts the clock if the open could not start it. Removes the file of clock moves after a run
    /// has confirmed the time.
    fn update_clock(&self, clock: &StoreClock) {
        if !clock.has_started() {
            let mut newest_ms = self.engine.machine.read().time_ms();
            if let Some(replica) = &self.replica {
                // A leader may stamp before it has applied the entries that it found in its log.
                newest_ms = newest_ms.max(replica.stamp_ms);
            }
            let started = clock_moves::start(clock, newest_ms, &*self.disk);
            if let Some(ClockReport { back_ms, .. }) = started
                && back_ms > TIME_AHEAD_MS_MAX
            {
                tracing::warn!(back_ms, "the wall clock is before the newest stamp");
            }
        }
        if clock.take_confirmation() {
            clock_moves::remove(&*self.disk);
        }
    }

    fn commit(&mut self, batches: VecDeque<Pending>) {
        self.execute(batches);
        if self.replica.is_none() {
            self.checkpoint_when_due();
        }
    }

    /// Commits or proposes batches in this order.
    fn execute(&mut self, batches: VecDeque<Pending>) {
        if let Some(clock) = self.engine.clock.get() {
            self.update_clock(clock);
        }
        if batches.iter().any(|pending| pending.slow.is_none()) {
            self.slow_turn.record_others(Instant::now());
        }
        for pending in &batches {
            self.engine.count_compile_time(&pending.prepared);
        }
        if self.replica.is_some() {
            self.propose(batches);
            return;
        }
        if self.engine.durability == Durability::Each {
            for pending in batches {
                self.commit_group(VecDeque::from([pending]));
            }
        } else {
            self.commit_group(batches);
        }
        let log_bytes = self.log.stats().bytes;
        self.engine.counters.log_bytes.set(log_bytes);
    }

    /// Whether enough log was written since the last checkpoint, or replaying it would cost enough.
    fn is_checkpoint_due(&self) -> bool {
        // With a provider, another thread applies, and this thread must not wait for it.
        let applier = self.applier.try_lock();
        let is_costly = applier.is_some_and(|applier| applier.cost.is_due());
        is_costly || self.log_since_snapshot() > self.snapshot_log_bytes
    }

    /// Starts a checkpoint if it is due.
    pub(crate) fn checkpoint_when_due(&mut self) {
        if !self.is_checkpoint_due() {
            return;
        }
        // If another task has the permit, the checkpoint stays due.
        let Some(permit) = self.maintenance().try_acquire() else {
            return;
        };
        self.apply_ready();
        if !self.is_poisoned() {
            // Reset the counters even if the checkpoint fails: the next attempt is due after the
            // same amount of log.
            self.replayed_bytes = 0;
            self.applier.lock().cost = ReplayCost::default();
            self.snapshot_at = self.log.stats().batch_bytes;
            self.checkpoint_in_background(permit);
        }
    }

    fn log_since_snapshot(&self) -> u64 {
        self.replayed_bytes
            + self
                .log
                .stats()
                .batch_bytes
                .saturating_sub(self.snapshot_at)
    }

    /// Appends all batches, syncs once, applies them and returns the verdicts.
    fn commit_group(&mut self, mut batches: VecDeque<Pending>) {
        let time_ms = self.engine.now_ms();
        let (logged, failed) = self.append_all(&batches, time_ms);
        if let Some(error) = failed {
            let unlogged = batches.split_off(logged);
            for (number, mut pending) in unlogged.into_iter().enumerate() {
                for (_, slot) in pending.waiters.drain(..) {
                    // A part of the first batch may have been written.
                    slot.complete(Err(match number {
                        0 => error.copy_for_caller(),
                        _ => error.not_logged(),
                    }));
                }
                self.engine.queue.recycle(pending);
            }
        }
        if logged == 0 {
            self.apply_ready();
            return;
        }
        self.unsynced = true;
        let before = std::mem::take(&mut self.ready);
        if self.engine.durability.is_synced()
            && let Err(error) = self.sync_while_applying(before)
        {
            let error = error.in_doubt();
            for mut pending in batches {
                for (_, slot) in pending.waiters.drain(..) {
                    slot.complete(Err(error.copy_for_caller()));
                }
            }
            return;
        }
        self.ready
            .extend(batches.into_iter().map(|pending| (pending, time_ms)));
        let calls: usize = self.ready.iter().map(|(pending, _)| pending.calls).sum();
        if !self.engine.durability.is_synced() || calls < PARALLEL_CALLS_MIN {
            self.apply_ready();
        }
    }

    /// Syncs the log while another thread applies `before`, the batches of the previous sync.
    fn sync_while_applying(&mut self, before: LoggedBatches) -> Result<(), StoreError> {
        if before.is_empty() {
            return self.sync();
        }
        let running = self.helper.begin(&self.applier, before);
        let synced = self.sync();
        let applied = running.finish();
        // After a failed apply, the machine is in the middle of a batch: nothing more may be
        // applied to it.
        self.check(applied);
        synced?;
        self.engine.writable()
    }

    /// Proposes batches to the log provider, which returns their verdicts.
    fn propose(&mut self, batches: VecDeque<Pending>) {
        let now_ms = self.engine.now_ms();
        let refused = self.engine.writable().err().or_else(|| self.topics_stuck());
        for mut pending in batches {
            let Some(replica) = self.replica.as_mut().filter(|_| refused.is_none()) else {
                let Some(error) = &refused else { return };
                for (_, slot) in pending.waiters.drain(..) {
                    slot.complete(Err(error.copy_for_caller()));
                }
                self.engine.queue.recycle(pending);
                continue;
            };
            let time_ms = replica.stamp(now_ms);
            let count = to_u32(
                pending.builder.len(),
                "a batch has a bounded number of items",
            );
            let counters = &self.engine.counters;
            counters.batches.add(1);
            counters.items.add(u64::from(count));
            let payload = Bytes::from(pending.builder.to_bytes(time_ms));
            let waiters = Waiters::new(Arc::clone(&self.engine), pending, time_ms);
            replica.provider.propose(ProposedBatch {
                count,
                payload,
                waiters,
            });
        }
    }

    /// Returns the error if no batch can be accepted: topics cannot be written, and the memory for
    /// their unwritten blocks is bounded. `None` if another thread is applying: with a provider, this
    /// thread must not wait for that thread.
    fn topics_stuck(&mut self) -> Option<StoreError> {
        let stuck = self.with_descriptors(|this| {
            let applier = this.applier.try_lock();
            let stuck = applier.and_then(|mut applier| applier.topics.stuck());
            let failure = stuck.as_ref().and_then(|(_, failure)| failure.as_ref());
            let lacks_descriptors = failure.is_some_and(StoreError::lacks_descriptors);
            (stuck, lacks_descriptors)
        });
        stuck.map(|(bytes, failure)| self.topics_error(bytes, failure))
    }

    /// Like [`topics_stuck`](Self::topics_stuck), but does not wait for a file descriptor.
    pub(crate) fn topics_stuck_now(&mut self) -> Option<StoreError> {
        let (bytes, failure) = self.applier.try_lock()?.topics.stuck()?;
        Some(self.topics_error(bytes, failure))
    }

    /// The error of writes while `bytes` of topics wait in memory and cannot be written.
    fn topics_error(&self, bytes: u64, failure: Option<StoreError>) -> StoreError {
        match failure {
            Some(error) if error.code() != ErrorCode::DiskFull => StoreError::TopicsUnwritable {
                unwritten_bytes: bytes,
                cause: Arc::new(error),
            },
            _ => StoreError::DiskFull {
                needed_bytes: bytes,
                free_bytes: self.disk.free_bytes().unwrap_or(0),
            },
        }
    }

    /// Appends batches until an append fails. Returns the number of appended batches and the error.
    fn append_all(
        &mut self,
        batches: &VecDeque<Pending>,
        time_ms: u64,
    ) -> (usize, Option<StoreError>) {
        if let Some(full) = self.topics_stuck() {
            return (0, Some(full));
        }
        if let Err(error) = self.ensure_directory_when_due() {
            return (0, Some(error));
        }
        for (done, pending) in batches.iter().enumerate() {
            if let Err(error) = self.engine.writable() {
                return (done, Some(error));
            }
            let head = pending.builder.head(time_ms);
            let items = pending.builder.items();
            let count = to_u32(
                pending.builder.len(),
                "a batch has a bounded number of items",
            );
            let appended = self.with_descriptors(|this| {
                let appended = this.log.append(this.term, count, &[&head, items]);
                let lacks_descriptors = appended.as_ref().is_err_and(StoreError::lacks_descriptors);
                (appended, lacks_descriptors)
            });
            if let Err(error) = appended {
                return (done, Some(self.fail(error)));
            }
            let counters = &self.engine.counters;
            counters.batches.add(1);
            counters.items.add(u64::from(count));
        }
        (batches.len(), None)
    }

    /// Repeats `act` until it no longer lacks descriptors, or until the store is being closed.
    /// Blocks writes meanwhile. Other parts of the process hold the descriptors and will close
    /// some.
    pub(crate) fn with_descriptors<T>(&mut self, mut act: impl FnMut(&mut Self) -> (T, bool)) -> T {
        let mut since = None;
        loop {
            let (done, lacks_descriptors) = act(self);
            if !lacks_descriptors || self.engine.queue.is_shut() {
                if let Some(since) = since {
                    let waited_ms = Instant::now().saturating_duration_since(since).as_millis();
                    tracing::info!(waited_ms, "a file descriptor is free; writes resume");
                }
                return done;
            }
            since.get_or_insert_with(|| {
                tracing::warn!("no file descriptor is free; writes wait for one");
                Instant::now()
            });
            std::thread::sleep(DESCRIPTOR_PAUSE);
        }
    }

    /// Captures the state for a snapshot. Any thread can then write the snapshot while this thread
    /// continues.
    pub(crate) fn begin_checkpoint(&mut self) -> Result<Checkpoint, StoreError> {
        let checkpoint = self.take_checkpoint();
        checkpoint.inspect_err(|error| self.engine.checkpoint_failed(error))
    }

    fn take_checkpoint(&mut self) -> Result<Checkpoint, StoreError> {
        if self.unsynced {
            self.sync()?;
        }
        self.engine.writable()?;
        let mut applier = self.applier.lock();
        applier.topics.flush_all()?;
        let mut lists = Vec::new();
        let mut unsynced = Vec::new();
        for writer in &mut applier.topics.writers {
            unsynced.extend_from_slice(writer.dirty());
            let list = writer.list();
            if list.next > 1 {
                lists.push((writer.files.id, list));
            }
        }
        applier.cost = ReplayCost::default();
        let (index, term) = (applier.applied, applier.term);
        let membership = applier.membership.clone();
        self.snapshot_at = self.log.stats().batch_bytes;
        self.replayed_bytes = 0;
        self.engine.machine.write().freeze();
        let machine = self.engine.machine.read().clone();
        // Unlock only here: with a provider, another thread applies.
        drop(applier);
        let snapshot = Snapshot {
            index,
            term,
            machine,
            topics: lists,
            membership,
        };
        Ok(Checkpoint { snapshot, unsynced })
    }

    /// Ends cleanly: syncs everything and closes the log with a clean mark. Writes a snapshot first
    /// if the next open would be costly without one, or if the last snapshot failed.
    fn finish(mut self) -> Result<(), StoreError> {
        self.helper.end();
        self.engine.writable()?;
        let failed = self.engine.checkpoint_failure.lock().is_some();
        if failed || self.applier.lock().cost.is_due_at_close() {
            // Waits until a running checkpoint has ended.
            let permit = self.maintenance.acquire();
            if let Ok(checkpoint) = self.begin_checkpoint() {
                // A failure was logged; it only makes the next open slower.
                drop(finish(&self.engine, &*self.disk, &checkpoint, &permit));
            }
            self.engine.writable()?;
        }
        // A failed mark leaves an unclean log, which the next open repairs.
        self.log.close()
    }
}
