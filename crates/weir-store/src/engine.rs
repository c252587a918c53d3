//! The state that writers and readers share.

use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use weir_core::{
    CodeHash, Intention, Machine, Operation, ProgramHost, Refusal, Setup, StateMode, TopicId,
};

use weir_core::limits::{MEMORY_BYTES_MAX, METER};

use crate::agreement::DigestSamples;
use crate::clock::{StoreClock, now_ms};
use crate::error::StoreError;
use crate::fair_lock::FairRwLock;
use crate::finding::Finding;
use crate::identity::Identity;
use crate::log::LogIndex;
use crate::options::Durability;
use crate::queue::{Prepared, PreparedProgram, Queue, ShutReason};
use crate::topic::files::TopicFiles;
use crate::topic::signal::Signal;

/// Maximum number of different modules of a store. A compiled module has at least two memory
/// mappings, and Linux allows a process 65,530 of them (`vm.max_map_count`). Without a free mapping,
/// a program cannot start in the apply, which poisons the store.
const MODULES_MAX: u64 = 8192;

/// The shared state of an open store. Lock order: committer, queue, machine, topics, contents of a
/// topic. Only the committer is locked across I/O while the store is open.
pub(crate) struct Engine {
    pub(crate) identity: Identity,
    pub(crate) durability: Durability,
    pub(crate) machine: FairRwLock<Machine>,
    pub(crate) topics: RwLock<Vec<Arc<TopicFiles>>>,
    pub(crate) queue: Queue,
    /// Signalled when a topic is created.
    pub(crate) topic_created: Signal,
    pub(crate) counters: Counters,
    /// Findings of the scrub.
    pub(crate) damage: Mutex<Vec<Finding>>,
    /// The time that stamps intentions and ends leases; set after the log was replayed.
    pub(crate) clock: OnceLock<StoreClock>,
    /// Runs the programs of topics.
    pub(crate) host: Option<Arc<dyn ProgramHost>>,
    /// Maximum fuel of a call that topic options may set.
    pub(crate) fuel_max: u64,
    /// The number of references, without this one, is the number of new modules that are not applied
    /// yet.
    pub(crate) reservations: Arc<()>,
    /// The first failed write or sync, after which nothing is written.
    pub(crate) poison: OnceLock<Arc<StoreError>>,
    /// Why the last checkpoint failed; `None` if it succeeded.
    pub(crate) checkpoint_failure: Mutex<Option<String>>,
    /// Digests that the nodes of a cluster compare.
    pub(crate) samples: DigestSamples,
    /// Time to compile the proposed modules, in microseconds, that is not yet part of the replay
    /// cost.
    pub(crate) compile_us: AtomicU64,
}

/// Counters and positions, readable at any time.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) batches: Counter,
    pub(crate) items: Counter,
    pub(crate) syncs: Counter,
    pub(crate) sync_ns: Counter,
    pub(crate) valid: Counter,
    pub(crate) invalid: Counter,
    pub(crate) errors: Counter,
    pub(crate) replayed: Counter,
    pub(crate) refused: Counter,
    pub(crate) snapshots: Counter,
    pub(crate) derived_write_errors: Counter,
    pub(crate) applied_index: Counter,
    /// Time of the newest apply of an entry of a log provider, in nanoseconds.
    pub(crate) apply_ns: Counter,
    pub(crate) durable_index: Counter,
    /// Newest log entry that a durable snapshot covers.
    pub(crate) snapshot_index: Counter,
    pub(crate) purged_index: Counter,
    pub(crate) log_bytes: Counter,
    /// Installed snapshots of other nodes.
    pub(crate) installs: Counter,
    pub(crate) scrubbed_bytes: Counter,
    pub(crate) scrub_rounds: Counter,
    pub(crate) damage: Counter,
}

/// Log indexes that the parts of a store have reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Positions {
    /// Newest entry that is purged or may be purged.
    pub(crate) purged: LogIndex,
    /// Newest entry that a durable snapshot covers; 0 without one.
    pub(crate) snapshot: LogIndex,
    pub(crate) applied: LogIndex,
    /// Newest entry in the log.
    pub(crate) last: LogIndex,
}

impl Positions {
    /// Purged entries are in a snapshot, entries in a snapshot were applied, and applied entries
    /// are in the log.
    pub(crate) fn assert_order(self) {
        // I3
        assert!(
            self.purged <= self.snapshot
                && self.snapshot <= self.applied
                && self.applied <= self.last,
            "purged ≤ snapshot ≤ applied ≤ last: {self:?}"
        );
    }
}

/// A counter that one thread at a time writes and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Release);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// The setup that admits every module that any topic may run.
pub(crate) fn max_setup() -> Setup {
    Setup {
        mode: StateMode::Kv,
        memory_bytes_max: MEMORY_BYTES_MAX,
        meter: METER,
    }
}

impl Engine {
    pub(crate) fn files(&self, id: TopicId) -> Option<Arc<TopicFiles>> {
        self.topics.read().get(id.index()).cloned()
    }

    /// The store's time, never before the newest stamp.
    pub(crate) fn now_ms(&self) -> u64 {
        let newest_ms = self.machine.read().time_ms();
        let clock = self.clock.get();
        let time_ms = clock.map_or_else(now_ms, |clock| clock.now_ms(newest_ms));
        time_ms.max(newest_ms)
    }

    /// Fails if a topic option exceeds a limit that the operator has set.
    fn check_operator_limits(&self, intention: &Intention<'_>) -> Result<(), StoreError> {
        let (Operation::Create { options }
        | Operation::CreateProgram { options, .. }
        | Operation::Alter { options }) = intention.operation
        else {
            return Ok(());
        };
        let (limit, value) = (self.fuel_max, options.program.fuel_max.unwrap_or(0));
        if value <= limit {
            return Ok(());
        }
        let what = "fuel of a call (fuel_max of a topic)";
        Err(StoreError::LimitExceeded { what, limit, value })
    }

    /// Reserves a place for a module among the [`MODULES_MAX`] modules of the store; `None` if the
    /// store has the module. Only the node that proposes an intention checks this limit, so it
    /// changes no outcome. Callers on several threads may exceed it by one module each.
    fn reserve_module(&self, hash: CodeHash) -> Result<Option<Arc<()>>, StoreError> {
        // Read before the stored modules, so that no module is missed: it is stored before its
        // reservation ends.
        let reserved = Arc::strong_count(&self.reservations) - 1;
        let machine = self.machine.read();
        if machine.module(hash).is_some() {
            return Ok(None);
        }
        let value = (machine.module_count() + reserved + 1) as u64;
        drop(machine);
        if value > MODULES_MAX {
            let (what, limit) = ("number of different modules", MODULES_MAX);
            return Err(StoreError::LimitExceeded { what, limit, value });
        }
        Ok(Some(Arc::clone(&self.reservations)))
    }

    /// Compiles the programs of these intentions on the caller's thread before the intentions are
    /// logged, so that the commit thread does not wait for compilation. A module that breaks a rule
    /// is not rejected here; the machine returns that as an effect.
    pub(crate) fn prepare(&self, intentions: &[Intention<'_>]) -> Result<Prepared, StoreError> {
        let writes_only = |one: &Intention<'_>| {
            use Operation::{Cursor, Delete, Put, Txn};
            matches!(
                one.operation,
                Put { .. } | Delete { .. } | Txn { .. } | Cursor { .. }
            )
        };
        if intentions.iter().all(writes_only) {
            return Ok(Prepared {
                starts_refused: true,
                ..Prepared::default()
            });
        }
        let mut prepared = Prepared {
            programs: Vec::new(),
            rejections: Vec::new(),
            starts_refused: self.refuses_starts(intentions),
        };
        let mut modules = BTreeSet::new();
        for intention in intentions {
            self.check_operator_limits(intention)?;
            let (Operation::CreateProgram { code, .. } | Operation::Replace { code, .. }) =
                intention.operation
            else {
                continue;
            };
            let host = self.host.as_ref().ok_or(StoreError::ProgramsOff)?;
            let hash = host.hash(code);
            let reservation = if modules.insert(hash) {
                self.reserve_module(hash)?
            } else {
                None
            };
            match host.admit(code, &max_setup()) {
                Ok(program) => {
                    let program = PreparedProgram::new(program, reservation);
                    prepared.programs.push(program);
                }
                Err(Refusal::Bad(_)) => prepared.rejections.extend(host.keep_rejection(code)),
                Err(Refusal::Unable(why)) => return Err(StoreError::ProgramUnable { why }),
            }
        }
        Ok(prepared)
    }

    /// Adds the time that a replay needs to compile the modules of a batch. Must be called just
    /// before the batch is appended: a snapshot without the batch resets the counter.
    pub(crate) fn count_compile_time(&self, programs: &[PreparedProgram]) {
        // Modules that are already compiled count too, because another process will compile them.
        let time_us: u64 = programs
            .iter()
            .map(|prepared| prepared.program.facts().compile_us)
            .sum();
        if time_us > 0 {
            self.compile_us.fetch_add(time_us, Ordering::Relaxed);
        }
    }

    /// Returns the compile time that was counted since the last call, and resets it.
    pub(crate) fn take_compile_time(&self) -> Duration {
        Duration::from_micros(self.compile_us.swap(0, Ordering::Relaxed))
    }

    /// Whether the current state rejects every program start among these intentions before its
    /// program is called, because the topic already exists or has no program to replace. Such
    /// intentions need not wait in the slow lane.
    pub(crate) fn refuses_starts(&self, intentions: &[Intention<'_>]) -> bool {
        let mut machine = None;
        intentions.iter().all(|intention| {
            let is_create = match intention.operation {
                Operation::CreateProgram { .. } => true,
                Operation::Replace { .. } => false,
                // The state after this operation is not known yet.
                Operation::Create { .. } | Operation::Destroy => return false,
                _ => return true,
            };
            let machine = machine.get_or_insert_with(|| self.machine.read());
            let topic = machine.topic(intention.topic);
            let exists = topic.is_some_and(|topic| topic.incarnation.is_some());
            let has_program = topic.is_some_and(|topic| topic.program.is_some());
            if is_create { exists } else { !has_program }
        })
    }

    /// The files of a topic that exists or existed.
    pub(crate) fn files_by_name(&self, name: &str) -> Option<Arc<TopicFiles>> {
        let id = self.machine.read().topic(name).map(|view| view.id);
        self.files(id?)
    }

    /// Stops all writes permanently. The first cause is stored and logged once. Returns that cause
    /// as the error of every later write.
    pub(crate) fn poison(&self, error: StoreError) -> StoreError {
        let mut first = false;
        let cause = self.poison.get_or_init(|| {
            first = true;
            error.into_cause()
        });
        if first {
            log_poison(cause);
        }
        self.queue.shut(&ShutReason::Poisoned(Arc::clone(cause)));
        let cause = Arc::clone(cause);
        StoreError::Poisoned { cause }
    }

    /// Fails with the cause if the store is poisoned.
    pub(crate) fn writable(&self) -> Result<(), StoreError> {
        match self.poison.get() {
            None => Ok(()),
            Some(cause) => Err(StoreError::Poisoned {
                cause: Arc::clone(cause),
            }),
        }
    }

    /// Records why a checkpoint failed. Logs the failure if the previous checkpoint succeeded.
    pub(crate) fn checkpoint_failed(&self, error: &StoreError) {
        let mut failure = self.checkpoint_failure.lock();
        if failure.is_none() {
            tracing::warn!(%error, "a checkpoint failed; the log grows until one succeeds");
        }
        *failure = Some(error.to_string());
    }

    pub(crate) fn checkpoint_succeeded(&self) {
        *self.checkpoint_failure.lock() = None;
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poison.get().is_some()
    }

    pub(crate) fn applied_index(&self) -> LogIndex {
        LogIndex(self.counters.applied_index.get())
    }

    /// Newest log entry that a durable snapshot covers.
    pub(crate) fn snapshot_index(&self) -> LogIndex {
        LogIndex(self.counters.snapshot_index.get())
    }
}

fn log_poison(cause: &StoreError) {
    let (mut operation, mut file, mut offset, mut errno) = (None, None, None, None);
    if let StoreError::Io {
        subject,
        offset: at,
        verb,
        source,
    } = cause
    {
        operation = Some(tracing::field::display(verb));
        file = Some(subject.as_str());
        offset = *at;
        errno = source.raw_os_error();
    }
    tracing::error!(operation, file, offset, errno, %cause, "the store accepts no more writes");
}
