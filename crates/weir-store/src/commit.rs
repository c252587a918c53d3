//! The commit thread: one log, one order, one owner of the topic writers.
//!
//! It takes everything that waits, appends it, syncs once, applies, publishes,
//! and only then answers (I2). Nothing is visible before it is as durable as
//! the level promises. After a failed write or sync nothing is written again
//! through this handle.

mod apply;
mod discard;
mod helper;
mod replay_cost;
mod sink;
mod turn;

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_core::exact::to_u32;

use crate::checkpoint::finish;
use crate::clock::StoreClock;
use crate::clock_moves;
use crate::disk::{Disk, check_place};
use crate::engine::Engine;
use crate::error::StoreError;
use crate::log::Log;
use crate::node::ReplicaWriter;
use crate::options::Durability;
use crate::permit::Exclusive;
use crate::provider::{ProposedBatch, Waiters};
use crate::queue::{Pending, Shut, fuel_of_a_call};
use crate::read_back::ReadBack;
use crate::snapshot::{Checkpoint, Snapshot};
pub(crate) use apply::Applier;
use apply::Logged;
use helper::Helper;
pub(crate) use replay_cost::ReplayCost;
pub(crate) use sink::{Topics, attached};
use turn::SlowTurn;

/// Idle time after which the log is sealed, so that a later open can prove its
/// last batch durable.
const SEAL_AFTER: Duration = Duration::from_millis(100);
/// Batches with at least as many calls of programs are applied beside the next sync, if there is
/// one. Others are applied at once: that takes less than a sync, and an answer that comes while
/// the next batch is synced lets producers send half as much with each sync.
const BESIDE_CALLS: usize = 128;
/// Time between two tries to open a file while the process has no free descriptor.
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(10);
/// Time after which a level that does not wait for syncs looks again whether the directory of the
/// store is where it was.
const PLACE_CHECK_EVERY: Duration = Duration::from_secs(1);
/// The lowest term of a store without a cluster.
const LOCAL_TERM: u64 = 1;

/// Work for the commit thread that is no intention. It runs between two batches.
pub(crate) type Task = Box<dyn FnOnce(&mut Committer) + Send>;

/// Everything the commit thread owns.
pub(crate) struct Committer {
    pub(crate) engine: Arc<Engine>,
    /// Where tasks are sent to. The queue counts them and wakes the thread.
    pub(crate) task_sender: Sender<Task>,
    tasks: Receiver<Task>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) log: Log,
    /// The term of what is appended here without a provider.
    pub(crate) term: u64,
    /// Set when a log provider decides the order.
    pub(crate) replica: Option<ReplicaWriter>,
    /// Used by one thread at a time: this one, or `helper` during a sync.
    pub(crate) applier: Arc<Mutex<Applier>>,
    helper: Helper,
    /// Batches that are synced and not applied: they are while the next ones
    /// are synced.
    ready: Logged,
    /// When the slow lane may be admitted.
    slow_turn: SlowTurn,
    /// Entries that are logged and not synced.
    pub(crate) unsynced: bool,
    last_sync: Instant,
    /// When the directory was last looked for.
    place_checked: Instant,
    /// Something was synced since the log was sealed.
    unsealed: bool,
    /// Log bytes of this process at the newest snapshot.
    pub(crate) snapshot_at: u64,
    /// Log bytes after the newest snapshot when the store was opened.
    pub(crate) replayed_bytes: u64,
    pub(crate) snapshot_log_bytes: u64,
    pub(crate) maintenance: Arc<Exclusive>,
    pub(crate) read_back: Arc<ReadBack>,
    /// Newest bytes of log that stay; `None`: no purge by itself.
    pub(crate) log_keep_bytes: Option<u64>,
}

/// Shuts the queue when the thread ends, however it ends.
struct ShutdownGuard(Arc<Engine>);

impl Drop for ShutdownGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let thread = "the commit thread";
            self.0.poison(StoreError::Panicked { thread });
        }
        let cause = self.0.poison.get().map(Arc::clone);
        let why = cause.map_or(Shut::Closed, Shut::Poisoned);
        self.0.queue.leave(&why);
    }
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
            ready: Logged::new(),
            slow_turn: SlowTurn::default(),
            unsynced: false,
            last_sync: Instant::now(),
            place_checked: Instant::now(),
            unsealed: false,
            snapshot_at: 0,
            replayed_bytes: 0,
            snapshot_log_bytes,
            maintenance: Arc::default(),
            read_back: Arc::default(),
            log_keep_bytes: None,
        }
    }

    /// Where the permit for maintenance comes from.
    pub(crate) fn maintenance(&self) -> Arc<Exclusive> {
        Arc::clone(&self.maintenance)
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.engine.is_poisoned()
    }

    /// The body of the commit thread.
    pub(crate) fn run(mut self) -> Result<(), StoreError> {
        let door = ShutdownGuard(Arc::clone(&self.engine));
        loop {
            if !self.ready.is_empty() && !self.engine.queue.has_batches() {
                self.apply_ready();
            }
            let slow_in = self.slow_turn.due_in(Instant::now());
            let work = self.engine.queue.take(self.patience(), slow_in);
            let idle = work.is_empty();
            if !work.batches.is_empty() {
                self.commit(work.batches);
            }
            if work.tasks > 0 {
                self.apply_ready();
                for _ in 0..work.tasks {
                    // A task is sent before it is counted.
                    if let Ok(task) = self.tasks.try_recv() {
                        task(&mut self);
                    }
                }
                self.flush();
            }
            self.sync_when_due(idle);
            if idle && work.shut.as_ref().is_some_and(Shut::is_closed) {
                self.apply_ready();
                break;
            }
        }
        // It asks this thread for nothing from here on: the queue is shut.
        self.read_back.stop();
        let ended = self.finish();
        drop(door);
        ended
    }

    /// Tells the queue which topics have programs: it does not know yet what their calls cost, and some
    /// are not compiled. Must be called before the first call is taken.
    pub(crate) fn learn_programs(&self) {
        let machine = self.engine.machine.read();
        let programs: Vec<_> = machine
            .topics()
            .filter_map(|topic| {
                let fuel_max = fuel_of_a_call(topic.options?);
                Some((topic.name.clone(), fuel_max, topic.program?.code))
            })
            .collect();
        drop(machine);
        let is_put_off = |code| {
            let host = self.engine.host.as_ref();
            host.is_some_and(|host| host.is_put_off(code))
        };
        self.engine.queue.restored(&programs, is_put_off);
    }

    fn apply_ready(&mut self) {
        let ready = std::mem::take(&mut self.ready);
        if ready.is_empty() {
            return;
        }
        let applied = self.applier.lock().apply_all(ready);
        self.check(applied);
    }

    /// Stops everything after a failed apply: what was encoded here cannot be
    /// read here, or a program cannot be run.
    fn check(&mut self, applied: Result<(), StoreError>) {
        if let Err(error) = applied {
            self.poison(error);
            self.ready.clear();
        } else if self.replica.is_none() {
            self.positions().assert_order();
        }
        let slow = std::mem::take(&mut self.applier.lock().slow_time);
        self.slow_turn.used(slow, Instant::now());
    }

    /// How long the thread may sleep without work.
    fn patience(&self) -> Option<Duration> {
        match self.engine.durability {
            _ if self.is_poisoned() => None,
            Durability::Group | Durability::Each => self.unsealed.then_some(SEAL_AFTER),
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
                // A failure has poisoned the store. The sync of a file without a name succeeds.
                drop(self.find_place().and_then(|()| self.sync()));
            }
            _ => {}
        }
    }

    /// Stops all writes if the log did. An error that left the log as it was
    /// (no space, no descriptor) stops nothing: the next write may succeed.
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

    /// Stops all writes when the directory was removed or replaced: what is written into one without a
    /// name is lost.
    fn find_place(&mut self) -> Result<(), StoreError> {
        self.place_checked = Instant::now();
        check_place(&*self.disk).map_err(|error| self.poison(error))
    }

    /// As [`find_place`](Self::find_place), before each write at the levels that wait for a sync, once a
    /// second at the others.
    pub(crate) fn find_place_when_due(&mut self) -> Result<(), StoreError> {
        let is_synced = self.engine.durability.is_synced();
        if is_synced || self.place_checked.elapsed() >= PLACE_CHECK_EVERY {
            self.find_place()?;
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

    fn commit(&mut self, batches: VecDeque<Pending>) {
        let clock = self.engine.clock.get();
        if clock.is_some_and(StoreClock::take_confirmation) {
            clock_moves::remove(&*self.disk);
        }
        if batches.iter().any(|pending| pending.slow.is_none()) {
            self.slow_turn.others(Instant::now());
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
        self.checkpoint_when_due();
    }

    /// Begins a checkpoint after enough log, or when a replay would cost enough.
    pub(crate) fn checkpoint_when_due(&mut self) {
        let cost = self.applier.lock().cost;
        if self.log_since_snapshot() <= self.snapshot_log_bytes && !cost.is_due() {
            return;
        }
        // While something else has the permit, the checkpoint stays due.
        let Some(permit) = self.maintenance().try_acquire() else {
            return;
        };
        self.apply_ready();
        if !self.is_poisoned() {
            // Also when it fails: the next try comes after as much log again.
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

    /// Appends all batches, syncs once, applies, answers.
    fn commit_group(&mut self, mut batches: VecDeque<Pending>) {
        let time_ms = self.engine.now_ms();
        let (logged, failed) = self.append_all(&batches, time_ms);
        if let Some(error) = failed {
            let unlogged = batches.split_off(logged);
            for (number, mut pending) in unlogged.into_iter().enumerate() {
                for (_, slot) in pending.waiters.drain(..) {
                    // A part of the first one may have been written.
                    slot.complete(Err(match number {
                        0 => error.for_another(),
                        _ => error.without_doubt(),
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
            && let Err(error) = self.sync_beside(before)
        {
            let error = error.in_doubt();
            for mut pending in batches {
                for (_, slot) in pending.waiters.drain(..) {
                    slot.complete(Err(error.for_another()));
                }
            }
            return;
        }
        self.ready
            .extend(batches.into_iter().map(|pending| (pending, time_ms)));
        let calls: usize = self.ready.iter().map(|(pending, _)| pending.calls).sum();
        if !self.engine.durability.is_synced() || calls < BESIDE_CALLS {
            self.apply_ready();
        }
    }

    /// Syncs; what was synced before is applied meanwhile.
    fn sync_beside(&mut self, before: Logged) -> Result<(), StoreError> {
        if before.is_empty() {
            return self.sync();
        }
        let begun = self.helper.begin(&self.applier, before);
        let synced = self.sync();
        let applied = begun.end();
        // After a failed apply the machine stands in the middle of a batch:
        // nothing more may be applied to it.
        self.check(applied);
        synced?;
        self.engine.writable()
    }

    /// Gives batches to the log provider, which answers them.
    fn propose(&mut self, batches: VecDeque<Pending>) {
        let now_ms = self.engine.now_ms();
        let refused = self.engine.writable().err().or_else(|| self.topics_stuck());
        for mut pending in batches {
            let Some(replica) = self.replica.as_mut().filter(|_| refused.is_none()) else {
                let Some(error) = &refused else { return };
                for (_, slot) in pending.waiters.drain(..) {
                    slot.complete(Err(error.for_another()));
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

    /// Why no batch can be taken: topics cannot be written, and what memory holds
    /// of them is bounded.
    fn topics_stuck(&mut self) -> Option<StoreError> {
        let stuck = self.with_descriptors(|this| {
            let mut applier = this.applier.lock();
            let stuck = applier.topics.stuck_bytes();
            let short = stuck.is_some() && applier.topics.lack_descriptors();
            (stuck, short)
        });
        // Memory is bounded too: read only until topics can be written.
        let needed_bytes = stuck?;
        let free_bytes = self.disk.free_bytes().unwrap_or(0);
        Some(StoreError::DiskFull {
            needed_bytes,
            free_bytes,
        })
    }

    /// As [`topics_stuck`](Self::topics_stuck), unless another thread applies at
    /// present: the append must not wait for it.
    pub(crate) fn topics_stuck_now(&mut self) -> Option<StoreError> {
        let needed_bytes = self.applier.try_lock()?.topics.stuck_bytes()?;
        let free_bytes = self.disk.free_bytes().unwrap_or(0);
        Some(StoreError::DiskFull {
            needed_bytes,
            free_bytes,
        })
    }

    /// Appends until one fails; returns how many are logged.
    fn append_all(
        &mut self,
        batches: &VecDeque<Pending>,
        time_ms: u64,
    ) -> (usize, Option<StoreError>) {
        if let Some(full) = self.topics_stuck() {
            return (0, Some(full));
        }
        if let Err(error) = self.find_place_when_due() {
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
                let short = appended.as_ref().is_err_and(StoreError::lacks_descriptors);
                (appended, short)
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

    /// Repeats `act` until it reports that it did not lack descriptors, or the store is closed.
    /// Writes wait for it: others hold the descriptors, and will close some.
    pub(crate) fn with_descriptors<T>(&mut self, mut act: impl FnMut(&mut Self) -> (T, bool)) -> T {
        let mut since = None;
        loop {
            let (done, short) = act(self);
            if !short || self.engine.queue.is_shut() {
                if let Some(since) = since {
                    let waited_ms = Instant::now().saturating_duration_since(since).as_millis();
                    tracing::info!(waited_ms, "a file descriptor is free; writes go on");
                }
                return done;
            }
            since.get_or_insert_with(|| {
                tracing::warn!("no file descriptor is free; writes wait until one is");
                Instant::now()
            });
            std::thread::sleep(DESCRIPTOR_PAUSE);
        }
    }

    /// Takes the state for a snapshot. Afterwards it can be written by any
    /// thread while this one goes on.
    pub(crate) fn begin_checkpoint(&mut self) -> Result<Checkpoint, StoreError> {
        let taken = self.take_checkpoint();
        taken.inspect_err(|error| self.engine.checkpoint_failed(error))
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
        // Not before: with a provider, another thread applies.
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

    /// Clean end: everything synced, a snapshot if the next open would pay much
    /// without one or the last one failed, then the clean mark.
    fn finish(mut self) -> Result<(), StoreError> {
        self.helper.end();
        self.engine.writable()?;
        let failed = self.engine.checkpoint_failure.lock().is_some();
        if failed || self.applier.lock().cost.is_due_at_close() {
            // A checkpoint that is being written ends before.
            let permit = self.maintenance.acquire();
            if let Ok(checkpoint) = self.begin_checkpoint() {
                // A failure costs the next open its time; it was logged.
                drop(finish(&self.engine, &*self.disk, &checkpoint, &permit));
            }
            self.engine.writable()?;
        }
        // A failed mark leaves an unclean log, which the next open repairs.
        self.log.close()
    }
}
