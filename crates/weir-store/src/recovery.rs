//! Opens a store: reads its identity and the newest usable snapshot, and replays the log after the
//! snapshot.
//!
//! The log determines which writes were acknowledged. A damaged snapshot or topic segment is set
//! aside and reported, if the log has enough entries to derive the state without it. If the
//! log was purged, the snapshot is the only copy, and the open fails.
//!
//! Invariant: no file is deleted because another one is missing.

use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use std::time::Instant;

use weir_core::limits::FUEL_DEFAULT;
use weir_core::{Machine, TopicId};

use crate::agreement::DigestSamples;
use crate::clock::{CLOSED_MS_MAX, ClockReport, StoreClock, now_ms};
use crate::clock_moves;
use crate::commit::Topics;
use crate::commit::{Applier, Committer, ReplayCost};
use crate::disk::Disk;
use crate::engine::{Counters, Engine, Positions};
use crate::error::{IoVerb, StoreError};
use crate::fair_lock::FairRwLock;
use crate::identity::{self, Identity};
use crate::install::{self, PendingInstall};
use crate::log::{self, Log, LogIndex, LogOptions, LogReaders, Recovery, batch_bytes};
use crate::node::files::CommittedFile;
use crate::node::{NodeFiles, NodeOptions, files, node_files, node_refused};
use crate::options::{Durability, OpenOptions, OpenProgress};
use crate::queue::{Queue, fuel_of};
use crate::replay::{Ahead, AppliedMembership, Replay, compile_restored};
use crate::snapshot::{self, Snapshot};
use crate::topic::cache::FileCache;
use crate::topic::files::{REBUILD_MARK, directory};
use crate::topic::signal::Signal;
use crate::topic::writer::SegmentList;

/// Bytes of replayed payload after which records are published and written.
const PUBLISH_BYTES: usize = 1 << 20;

/// The report of an open.
#[derive(Debug, Default)]
pub struct OpenReport {
    /// Whether this open created the store.
    pub created: bool,
    /// The report of the recovery of the log.
    pub log: Recovery,
    /// Log index of the snapshot that was used.
    pub snapshot: Option<LogIndex>,
    /// Paths of snapshots that could not be used, each with the error of the snapshot or of a
    /// segment that it lists. The state was derived from an older snapshot or the whole log. The
    /// snapshots are moved to `cut/`.
    pub set_aside: Vec<(String, StoreError)>,
    /// Number of replayed log entries.
    pub replayed_entries: u64,
    /// Number of intentions in the replayed entries.
    pub replayed_intentions: u64,
    /// Fuel that programs used in the replay.
    pub replayed_fuel: u64,
    /// The wall clock compared with the newest stamp.
    pub clock: ClockReport,
}

/// Derives the state of a directory, and creates the committer.
///
/// With `node`, opens the directory as this node of a cluster, and returns the files of the node.
pub(crate) fn recover(
    files: &Arc<FileCache>,
    options: &OpenOptions,
    node: Option<&NodeOptions>,
) -> Result<(Committer, OpenReport, Option<NodeFiles>), StoreError> {
    let disk: Arc<dyn Disk> = Arc::clone(files) as Arc<dyn Disk>;
    let mut report = OpenReport::default();
    let cluster = node.map(|node| node.cluster);
    let identity = identity(&*disk, options, cluster, &mut report)?;
    if node.is_none()
        && let Some((node, _)) = files::node_of(&*disk, identity.store_id)?
    {
        return Err(node_refused(node));
    }
    let defaults = LogOptions::default();
    let synced = options.durability.is_synced();
    let log_options = LogOptions {
        create: report.created,
        segment_bytes_max: options.log_segment_bytes,
        sync_on_roll: synced,
        // Zeros written in advance make later syncs cheap. Levels that do not wait for a sync would
        // only write twice as much.
        zero_ahead_bytes: if synced { defaults.zero_ahead_bytes } else { 0 },
        now_unix_s: now_ms() / 1000,
        ..defaults
    };
    let (mut log, log_recovery) = Log::open(Arc::clone(&disk), identity.store_id, log_options)?;
    if report.created {
        Identity::publish(&*disk)?;
    }
    report.log = log_recovery;
    if node.is_some() {
        install::resume(&*disk, &mut log, &identity.store_id)?;
    }
    let is_empty = log.last_index() == LogIndex::ZERO;
    let node_files = match node {
        Some(node) => Some(node_files(&disk, identity.store_id, node, is_empty)?),
        None => None,
    };
    let readers = log.readers();
    let base = RecoveryInputs {
        files,
        identity: &identity,
        log: &readers,
        snapshots: snapshot::list(&*disk)?,
        options,
    };
    let mut start = base.start(&mut report)?;
    let found = segments_on_disk(&*disk)?;
    start.skip_numbers(&found);
    let started = Instant::now();
    let through = match &node_files {
        Some(files) => committed_through(&readers, files.committed.newest)?.max(start.index),
        None => log.last_index(),
    };
    let replayed_bytes = replay(&readers, &mut start, through, &mut report, options)?;
    let mut replayed = ReplayCost::default();
    replayed.add(report.replayed_fuel, started.elapsed());
    remove_unneeded_files(&*disk, &start.lists, &found, &report)?;
    let Start {
        engine,
        topics,
        membership,
        ..
    } = start;
    start_clock(&engine, &*disk, options, &mut report);
    let term = match node {
        // The log has this term: the entry is in the log, or is the newest purged entry. A
        // snapshot outside of the log was rejected.
        Some(_) => log.term_at(through).ok_or_else(|| {
            let what = "the term of the newest applied entry is missing";
            StoreError::damage("log", 0, what, 0)
        })?,
        // The next batch has this term too.
        None => log.last_term().max(1),
    };
    let applier = Applier::new(Arc::clone(&engine), topics, replayed, term, membership);
    let mut committer = Committer::new(engine, disk, log, applier, options.snapshot_log_bytes);
    committer.replayed_bytes = replayed_bytes;
    committer.log_keep_bytes = options.log_keep_bytes;
    Ok((committer, report, node_files))
}

/// Returns the newest log entry that is known to be committed. Later entries may still be
/// truncated, and must not be applied.
fn committed_through(
    log: &LogReaders,
    committed: Option<(LogIndex, u64)>,
) -> Result<LogIndex, StoreError> {
    let Some((index, term)) = committed else {
        return Ok(LogIndex::ZERO);
    };
    // Entries may be missing after a power cut. Other nodes have them.
    let through = index.min(log.last_index());
    if through == index && log.term_at(index).is_some_and(|found| found != term) {
        let what = "the term differs from that of the log entry";
        return Err(StoreError::damage("cluster/committed", 48, what, 0));
    }
    Ok(through)
}

/// Reads the state of a directory without changing it. The disk of `files` is a
/// [`ReadOnlyDisk`](crate::disk::ReadOnlyDisk), which reads through the disk of `pending` if there
/// is one. Another process may change files at the same time. The read can then fail, and another
/// attempt may succeed.
pub(crate) fn read(
    files: &Arc<FileCache>,
    identity: &Identity,
    pending: Option<&PendingInstall>,
    options: &OpenOptions,
) -> Result<(Arc<Engine>, LogReaders, OpenReport), StoreError> {
    let disk: &Arc<dyn Disk> = &(Arc::clone(files) as Arc<dyn Disk>);
    let mut report = OpenReport::default();
    // List the snapshots before reading the log, so that the log contains the entries of every
    // listed snapshot.
    let snapshots = snapshot::list(&**disk)?;
    let missing = || StoreError::Missing { what: "log" };
    let log = log::read_only(disk, &identity.store_id)?.ok_or_else(missing)?;
    if let Some(pending) = pending {
        pending.switch_log(&log);
    }
    let base = RecoveryInputs {
        files,
        identity,
        log: &log,
        snapshots,
        options,
    };
    let mut start = base.start(&mut report)?;
    let through = match CommittedFile::peek(&**disk, identity.store_id)? {
        Some(committed) => committed.min(log.last_index()).max(start.index),
        None => log.last_index(),
    };
    replay(&log, &mut start, through, &mut report, options)?;
    start_clock(&start.engine, &**disk, options, &mut report);
    Ok((start.engine, log, report))
}

/// Creates the clock, and starts it if its wall clock is known.
fn start_clock(engine: &Engine, disk: &dyn Disk, options: &OpenOptions, report: &mut OpenReport) {
    let newest_ms = engine.machine.read().time_ms();
    let recorded_ms = clock_moves::read(disk);
    let start_ms_max = if options.believe_clock {
        if recorded_ms > 0 && !disk.is_read_only() {
            clock_moves::remove(disk);
        }
        u64::MAX
    } else {
        CLOSED_MS_MAX.saturating_sub(recorded_ms)
    };
    let clock = StoreClock::new(Arc::clone(&options.clock), newest_ms, start_ms_max);
    report.clock = clock_moves::start(&clock, newest_ms, disk).unwrap_or_default();
    engine.clock.get_or_init(|| clock);
}

/// The inputs from which the state is derived.
struct RecoveryInputs<'a> {
    files: &'a Arc<FileCache>,
    identity: &'a Identity,
    log: &'a LogReaders,
    /// Log indexes of the snapshots, newest first.
    snapshots: Vec<LogIndex>,
    options: &'a OpenOptions,
}

/// The state that the replay starts from.
struct Start {
    engine: Arc<Engine>,
    topics: Topics,
    lists: Vec<(TopicId, SegmentList)>,
    index: LogIndex,
    membership: Option<AppliedMembership>,
}

fn identity(
    disk: &dyn Disk,
    options: &OpenOptions,
    cluster: Option<[u8; 16]>,
    report: &mut OpenReport,
) -> Result<Identity, StoreError> {
    if let Some(identity) = Identity::read(disk, identity::PATH)? {
        return Ok(identity);
    }
    if !options.create {
        return Err(StoreError::Missing { what: "store" });
    }
    report.created = true;
    // A crash may have happened after the identity was written and before it was renamed.
    if let Ok(Some(identity)) = Identity::read(disk, identity::NEW) {
        // The bytes that were read may come from the cache of the system and not be on the disk.
        identity.rewrite(disk)?;
        return Ok(identity);
    }
    for dir in ["log", "topics", "snapshots"] {
        if !disk
            .list(dir)
            .map_err(StoreError::io(IoVerb::List, dir))?
            .is_empty()
        {
            return Err(StoreError::damage(
                identity::PATH,
                0,
                "the identity of the store is missing",
                0,
            ));
        }
    }
    let half = || RandomState::new().build_hasher().finish().to_le_bytes();
    let mut store_id = [0; 16];
    store_id[..8].copy_from_slice(&half());
    store_id[8..].copy_from_slice(&half());
    let identity = Identity {
        store_id: cluster.unwrap_or(store_id),
        created_ms: now_ms(),
    };
    identity.prepare(disk)?;
    Ok(identity)
}

impl RecoveryInputs<'_> {
    /// Returns the state of the newest usable snapshot, or the empty state if the log is complete.
    fn start(&self, report: &mut OpenReport) -> Result<Start, StoreError> {
        let Self {
            files,
            identity,
            log,
            options,
            ..
        } = *self;
        let disk = files.disk();
        let seed = options
            .seed
            .unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let log_is_complete = log.first_index() <= LogIndex(1);
        let names = disk.list("").map_err(StoreError::io(IoVerb::List, "."))?;
        let rebuild = log_is_complete && names.iter().any(|name| name == REBUILD_MARK);
        for index in self.snapshots.iter().copied() {
            if index > log.last_index() {
                // The log was synced before the snapshot was written, so the log lost entries.
                let file = snapshot::path(index);
                return Err(StoreError::damage(
                    &file,
                    32,
                    "the log ends before this snapshot",
                    0,
                ));
            }
            if rebuild || index.next() < log.first_index() {
                break;
            }
            let found = Snapshot::read(disk, identity.store_id, index, seed, options.host.as_ref())
                .and_then(|snapshot| fits_log(snapshot, log))
                .and_then(|snapshot| attach(files, identity, options, snapshot));
            match found {
                Ok(start) => {
                    report.snapshot = Some(index);
                    if start.engine.machine.read().has_programs() {
                        compile_restored(&start.engine);
                    }
                    return Ok(start);
                }
                // Only damage sets a snapshot aside. A missing file counts as damage.
                Err(error) if error.is_damage() || error.is_missing_file() => {
                    report.set_aside.push((snapshot::path(index), error));
                }
                Err(error) => return Err(error),
            }
        }
        if !log_is_complete {
            let file = snapshot::path(LogIndex(log.first_index().0 - 1));
            let missing =
                StoreError::damage(&file, 0, "there is no snapshot at the start of the log", 0);
            let first = report.set_aside.drain(..).next();
            return Err(first.map_or(missing, |(_, error)| error));
        }
        let machine = Machine::new(seed).with_host(options.host.clone());
        let engine = engine(identity, options, machine);
        let topics = Topics::new(Arc::clone(&engine), Arc::clone(files));
        Ok(Start {
            engine,
            topics,
            lists: Vec::new(),
            index: LogIndex::ZERO,
            membership: None,
        })
    }
}

/// Fails if the term in the snapshot differs from the term of the log entry with the same index.
fn fits_log(snapshot: Snapshot, log: &LogReaders) -> Result<Snapshot, StoreError> {
    if log
        .term_at(snapshot.index)
        .is_some_and(|term| term != snapshot.term)
    {
        let file = snapshot::path(snapshot.index);
        return Err(StoreError::damage(
            &file,
            40,
            "the term differs from that of the log entry",
            0,
        ));
    }
    Ok(snapshot)
}

fn engine(identity: &Identity, options: &OpenOptions, machine: Machine) -> Arc<Engine> {
    Arc::new(Engine {
        identity: *identity,
        durability: options.durability,
        machine: FairRwLock::new(machine),
        topics: RwLock::default(),
        queue: Queue::new(options.limits, options.durability == Durability::Each),
        counters: Counters::default(),
        damage: Mutex::default(),
        host: options.host.clone(),
        fuel_max: options.program_fuel_max.max(FUEL_DEFAULT),
        reservations: Arc::default(),
        topic_created: Signal::default(),
        poison: OnceLock::new(),
        checkpoint_failure: Mutex::default(),
        clock: OnceLock::new(),
        samples: DigestSamples::default(),
        compile_us: AtomicU64::new(0),
    })
}

/// Opens the segments that a snapshot lists.
fn attach(
    files: &Arc<FileCache>,
    identity: &Identity,
    options: &OpenOptions,
    snapshot: Snapshot,
) -> Result<Start, StoreError> {
    let engine = engine(identity, options, snapshot.machine);
    let mut topics = Topics::new(Arc::clone(&engine), Arc::clone(files));
    for view in engine.machine.read().topics() {
        topics.grow(view.id);
        if let Some(writer) = topics.writers.last_mut() {
            writer.restore(view.last.0, view.trimmed.0);
        }
    }
    for (id, list) in &snapshot.topics {
        let writer = topics.writers.get_mut(id.index()).ok_or_else(|| {
            let file = snapshot::path(snapshot.index);
            StoreError::damage(
                &file,
                512,
                "the list of segments has a topic that the machine lacks",
                0,
            )
        })?;
        writer.attach(list)?;
    }
    Ok(Start {
        engine,
        topics,
        lists: snapshot.topics,
        index: snapshot.index,
        membership: snapshot.membership,
    })
}

impl Start {
    /// Reserves the numbers of all segments on disk, because a segment number is never reused.
    fn skip_numbers(&mut self, found: &[(TopicId, u32)]) {
        for (id, number) in found {
            self.topics.skip_segments(*id, *number);
        }
    }
}

/// Lists every topic segment in the directory.
fn segments_on_disk(disk: &dyn Disk) -> Result<Vec<(TopicId, u32)>, StoreError> {
    let names = |dir: &str| disk.list(dir).map_err(StoreError::io(IoVerb::List, dir));
    let mut found = Vec::new();
    for name in names("topics")? {
        let Some(id) = crate::topic::files::parse_directory(&name) else {
            continue;
        };
        for file in names(&directory(id))? {
            if let Some(number) = crate::topic::files::parse_segment(&file) {
                found.push((id, number));
            }
        }
    }
    Ok(found)
}

/// Removes files that the state does not need: segments that existed before the replay and are not
/// listed, unfinished snapshots, and the rebuild mark. Moves the snapshots that were set aside to
/// `cut/`. Called only after a successful replay.
fn remove_unneeded_files(
    disk: &dyn Disk,
    lists: &[(TopicId, SegmentList)],
    found: &[(TopicId, u32)],
    report: &OpenReport,
) -> Result<(), StoreError> {
    let remove = |path: &str| {
        disk.remove(path)
            .map_err(StoreError::io(IoVerb::Remove, path))
    };
    // An older snapshot may list segments that are removed here. So first make the name of the
    // newest snapshot durable.
    let sync = |dir: &str| {
        disk.sync_dir(dir)
            .map_err(StoreError::io(IoVerb::Sync, dir))
    };
    let names = disk
        .list(snapshot::DIRECTORY)
        .map_err(StoreError::io(IoVerb::List, snapshot::DIRECTORY))?;
    if !names.is_empty() {
        sync(snapshot::DIRECTORY)?;
    }
    let listed: BTreeSet<(TopicId, u32)> = lists
        .iter()
        .flat_map(|(id, list)| list.segments.iter().map(|entry| (*id, entry.number)))
        .collect();
    for (id, number) in found.iter().filter(|segment| !listed.contains(segment)) {
        remove(&crate::topic::files::path(*id, *number))?;
    }
    for file in names
        .iter()
        .filter(|name| name.strip_suffix(".new").is_some())
    {
        remove(&format!("{}/{file}", snapshot::DIRECTORY))?;
    }
    // A damaged snapshot must not count as one of the two retained snapshots.
    for (path, _) in &report.set_aside {
        disk.create_dir("cut")
            .map_err(StoreError::io(IoVerb::Open, "cut"))?;
        let name = path.rsplit('/').next().unwrap_or(path);
        let target = format!("cut/{name}");
        disk.rename(path, &target)
            .map_err(StoreError::io(IoVerb::Rename, path))?;
    }
    let root = disk.list("").map_err(StoreError::io(IoVerb::List, "."))?;
    if root.iter().any(|name| name == REBUILD_MARK) {
        remove(REBUILD_MARK)?;
    }
    Ok(())
}

/// Publishes the records of the replay, and writes them to topic segments. Fails above the limit of
/// a read-only open.
fn publish(topics: &mut Topics, options: &OpenOptions) -> Result<(), StoreError> {
    topics.publish();
    topics.write_out();
    let (bytes, limit_bytes) = (topics.published_bytes(), options.read_only_bytes_max);
    if options.read_only && bytes > limit_bytes {
        return Err(StoreError::ReadOnlyLimit { limit_bytes, bytes });
    }
    Ok(())
}

/// Applies the log entries after the state in `start`, up to `last`. Returns the replayed bytes.
fn replay(
    log: &LogReaders,
    start: &mut Start,
    last: LogIndex,
    report: &mut OpenReport,
    options: &OpenOptions,
) -> Result<u64, StoreError> {
    let entries = last.0 - start.index.0;
    let progress = |entries_done| {
        if let Some(on_progress) = &options.on_progress {
            on_progress.call(OpenProgress {
                entries_done,
                entries,
            });
        }
    };
    progress(0);
    let mut replay = Replay::new(log.reader(start.index.next()), last);
    let mut unpublished = 0;
    let mut replayed = 0;
    let mut machine = start.engine.machine.write();
    let host = start.engine.host.clone().filter(|_| entries > 0);
    std::thread::scope(|scope| {
        let mut ahead = host.and_then(|host| {
            let reader = log.reader(start.index.next());
            Ahead::start(scope, reader, last, host)
        });
        while let Some(entry) = replay.next(&mut machine, &mut start.topics)? {
            if let Some(ahead) = &mut ahead {
                ahead.applied(entry.index);
            }
            report.replayed_entries += 1;
            report.replayed_intentions += u64::from(entry.count);
            report.replayed_fuel = report
                .replayed_fuel
                .saturating_add(fuel_of(replay.outcomes()));
            progress(report.replayed_entries);
            replayed += batch_bytes(entry.payload.len());
            unpublished += entry.payload.len();
            if unpublished > PUBLISH_BYTES {
                publish(&mut start.topics, options)?;
                unpublished = 0;
            }
        }
        Ok::<_, StoreError>(())
    })?;
    drop(machine);
    start.membership = replay.into_membership().or(start.membership.take());
    publish(&mut start.topics, options)?;
    Positions {
        purged: LogIndex(log.first_index().0 - 1),
        snapshot: start.index,
        applied: last,
        last: log.last_index(),
    }
    .assert_order();
    let counters = &start.engine.counters;
    counters.snapshot_index.set(start.index.0);
    counters.applied_index.set(last.0);
    counters.durable_index.set(log.last_index().0);
    counters.purged_index.set(log.first_index().0 - 1);
    counters.log_bytes.set(log.file_bytes());
    Ok(replayed)
}
