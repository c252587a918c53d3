//! Retention: removes the oldest records of a topic.
//!
//! A removal has two steps:
//!
//! 1. A node chooses whole segments of its own by the limits of the topic, and proposes a Trim up to
//!    their end. The Trim hides the records from readers on every node, so that all nodes have the
//!    same first record. The proposal of a node that does not lead is refused.
//! 2. Each node removes its segments that have only hidden records. It forgets the segments, writes a
//!    snapshot without them, and removes the older snapshots, and then the files of the segments.
//!    Segments end at different offsets on different nodes, so a node may keep hidden records.
//!
//! Invariants:
//!
//! - A record is not removed before every group that retention waits for has passed the record.
//! - The only clock is the time in the log.
//! - No maintenance permit is held while a proposal waits: the node may have to install a snapshot
//!   before the proposal gets its result.

use std::sync::Arc;

use weir_core::batch::Author;
use weir_core::limits::CALL_ITEMS_MAX;
use weir_core::{
    ErrorCode, Expect, Intention, IntentionOffset, Operation, Retention, TopicId, TopicName,
};

use crate::commit::Committer;
use crate::error::StoreError;
use crate::maintenance_handle::MaintenanceHandle;
use crate::permit::ExclusivePermit;
use crate::proposal::Proposal;
use crate::queue::Notify;
use crate::topic::block::{BlockCursor, HEADER_BYTES};
use crate::topic::files::{BlockRef, BlockStorage, Segment, TopicFiles};

/// The newest segment is closed when it reaches this fraction (1/8) of a limit, because only closed
/// segments can be removed.
const SEGMENTS_PER_LIMIT: u64 = 8;
/// Minimum bytes of a segment to close it while a group still needs its records.
const HELD_BYTES_MIN: u64 = 1 << 20;

/// The report of a run of retention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetainReport {
    /// Number of topics from which records were removed.
    pub topics: u64,
    /// Number of removed segments.
    pub segments: u64,
    /// Number of removed records.
    pub records: u64,
    /// Bytes of the removed records, as stored.
    pub bytes: u64,
}

/// A topic with retention limits.
struct Candidate {
    name: TopicName,
    incarnation: IntentionOffset,
    files: Arc<TopicFiles>,
    retention: Retention,
    held: Option<u64>,
    now_ms: u64,
    blocks: Vec<BlockRef>,
}

/// Consecutive blocks in one segment.
struct Run<'a> {
    blocks: &'a [BlockRef],
    records: u64,
    bytes: u64,
}

/// Runs retention for the topic `only`, or for all topics. Skips a step for which `permit` returns
/// none.
pub(crate) fn retain(
    handle: &MaintenanceHandle,
    only: Option<TopicId>,
    permit: impl Fn() -> Option<ExclusivePermit>,
) -> Result<RetainReport, StoreError> {
    let (trims, chosen) = match permit() {
        Some(permit) => choose(handle, only, &permit)?,
        None => (Vec::new(), Ok(())),
    };
    // Earlier trims free space even if this one fails, for example on a full disk.
    let trimmed = trim(handle, &trims);
    let removed = match permit() {
        Some(permit) => remove(handle, only, &permit),
        None => Ok(RetainReport::default()),
    };
    chosen.and(trimmed).and(removed)
}

/// Records of a topic to remove.
struct Trim {
    topic: TopicName,
    /// The condition that the topic was not created again since the choice.
    condition: [Expect<'static>; 1],
    through: u64,
}

/// Chooses the records to remove, and returns the first error of a topic. A topic that cannot be
/// read or written does not stop the retention of the others.
fn choose(
    handle: &MaintenanceHandle,
    only: Option<TopicId>,
    _permit: &ExclusivePermit,
) -> Result<(Vec<Trim>, Result<(), StoreError>), StoreError> {
    let (topics, mut chosen) =
        handle.run_on_commit_thread(move |committer| candidates(committer, only))?;
    let mut trims = Vec::new();
    for topic in topics {
        match through(&topic) {
            Ok(through) if through > topic.files.trimmed() => trims.push(Trim {
                topic: topic.name,
                condition: [Expect::Incarnation(topic.incarnation.0)],
                through,
            }),
            through => chosen = chosen.and(through.map(drop)),
        }
    }
    Ok((trims, chosen))
}

/// Proposes the trims, and blocks until they are applied here. A node that does not lead trims
/// nothing; the leader chooses for itself.
fn trim(handle: &MaintenanceHandle, trims: &[Trim]) -> Result<(), StoreError> {
    for part in trims.chunks(CALL_ITEMS_MAX) {
        let intentions: Vec<_> = part
            .iter()
            .map(|trim| {
                let through = trim.through;
                let operation = Operation::Trim { through };
                Intention::new(trim.topic.as_str(), operation).expecting(&trim.condition)
            })
            .collect();
        let proposal = handle.propose(Author::Store, &intentions, Notify::Now);
        match proposal.and_then(Proposal::wait) {
            Ok(_) => {}
            Err(error) if is_not_leading(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether a node of a cluster did not lead when it proposed, or lost the lead. The next run tries
/// again.
fn is_not_leading(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Elsewhere { .. }
            | StoreError::Remote {
                code: ErrorCode::NoLeader | ErrorCode::Indeterminate,
                ..
            }
    )
}

/// Removes the segments that have only trimmed records.
fn remove(
    handle: &MaintenanceHandle,
    only: Option<TopicId>,
    permit: &ExclusivePermit,
) -> Result<RetainReport, StoreError> {
    let (retired, report) =
        handle.run_on_commit_thread(move |committer| retire_trimmed_segments(committer, only))?;
    if !retired.is_empty() {
        handle.remove_retired(&retired, permit)?;
    }
    Ok(report)
}

/// Flushes and returns the topics with retention limits, without those whose flush failed. Also
/// returns the first error of a flush.
fn candidates(
    committer: &mut Committer,
    only: Option<TopicId>,
) -> (Vec<Candidate>, Result<(), StoreError>) {
    let engine = &committer.engine;
    let mut candidates = Vec::new();
    let machine = engine.machine.read();
    for view in machine.topics() {
        let (Some(options), Some(incarnation)) = (view.options, view.incarnation) else {
            continue;
        };
        let is_chosen = only.is_none_or(|only| only == view.id);
        if !is_chosen || !options.retention.is_limited() {
            continue;
        }
        candidates.extend(engine.files(view.id).map(|files| Candidate {
            name: view.name.clone(),
            incarnation,
            files,
            retention: options.retention.clone(),
            held: machine.held(view.id),
            now_ms: machine.time_ms(),
            blocks: Vec::new(),
        }));
    }
    drop(machine);
    let topics = &mut committer.applier.lock().topics;
    let (mut flushed, mut result) = (Vec::new(), Ok(()));
    for mut candidate in candidates {
        let id = candidate.files.id;
        if let Err(error) = topics.flush_topic(id) {
            result = result.and(Err(error));
            continue;
        }
        candidate
            .blocks
            .clone_from(&candidate.files.contents.read().blocks);
        if let Some(writer) = topics
            .writers
            .get_mut(id.index())
            .filter(|_| should_close(&candidate))
        {
            candidate.blocks = writer.close_segment();
        }
        flushed.push(candidate);
    }
    (flushed, result)
}

fn size(block: &BlockRef) -> u64 {
    u64::from(block.bytes) + HEADER_BYTES as u64
}

/// Groups the blocks of a topic by segment, in order.
fn runs(blocks: &[BlockRef]) -> impl Iterator<Item = Run<'_>> {
    let same = |a: &BlockRef, b: &BlockRef| match (&a.storage, &b.storage) {
        (BlockStorage::File(a, _), BlockStorage::File(b, _)) => a.number == b.number,
        _ => false,
    };
    blocks.chunk_by(same).map(|blocks| Run {
        blocks,
        records: blocks.iter().map(|block| u64::from(block.records)).sum(),
        bytes: blocks.iter().map(size).sum(),
    })
}

/// Whether the newest segment is large or old enough to close it.
fn should_close(topic: &Candidate) -> bool {
    let Some(run) = runs(&topic.blocks).last() else {
        return false;
    };
    let (Some(first), Some(last)) = (run.blocks.first(), run.blocks.last()) else {
        return false;
    };
    let age_ms = topic.now_ms.saturating_sub(first.base.time_ms);
    let over = |limit: Option<u64>, actual: u64| {
        limit.is_some_and(|limit| actual >= limit / SEGMENTS_PER_LIMIT)
    };
    let limits = &topic.retention;
    let is_over = over(limits.records, run.records)
        || over(limits.bytes, run.bytes)
        || over(limits.age_ms, age_ms);
    let is_passed = topic.held.is_none_or(|held| last.last <= held);
    is_over && (is_passed || run.bytes >= HELD_BYTES_MIN)
}

/// Returns the offset up to which whole segments may be removed; 0 for none.
fn through(topic: &Candidate) -> Result<u64, StoreError> {
    let limits = &topic.retention;
    let mut records: u64 = topic
        .blocks
        .iter()
        .map(|block| u64::from(block.records))
        .sum();
    let mut bytes: u64 = topic.blocks.iter().map(size).sum();
    let mut through = 0;
    let mut all = runs(&topic.blocks).peekable();
    while let Some(run) = all.next() {
        let Some(last) = run.blocks.last() else { break };
        records -= run.records;
        bytes -= run.bytes;
        let next = all.peek().and_then(|run| run.blocks.first());
        let is_expired = match limits.age_ms {
            None => false,
            Some(age_ms) => {
                let newest_ms = match next {
                    Some(next) => next.base.time_ms,
                    None => newest_ms(&topic.files, last)?,
                };
                topic.now_ms.saturating_sub(newest_ms) >= age_ms
            }
        };
        let is_removable = is_expired
            || limits.records.is_some_and(|limit| records >= limit)
            || limits.bytes.is_some_and(|limit| bytes >= limit);
        if !is_removable || topic.held.is_some_and(|held| last.last > held) {
            break;
        }
        through = last.last;
    }
    Ok(through)
}

/// Returns the stamp of the last record of a block, in milliseconds.
fn newest_ms(files: &TopicFiles, block: &BlockRef) -> Result<u64, StoreError> {
    let loaded = files.load(block)?;
    let mut cursor = BlockCursor::new(&loaded.base, loaded.records);
    let mut newest = loaded.base.time_ms;
    while let Some(record) = cursor.next(&loaded.bytes) {
        let damage =
            |what| StoreError::damage(&crate::topic::files::directory(files.id), 0, what, 0);
        newest = record.map_err(damage)?.time_ms;
    }
    Ok(newest)
}

/// Takes the segments that have only trimmed records out of their topics. Returns all retired
/// segments, also those of earlier calls whose files still exist.
fn retire_trimmed_segments(
    committer: &mut Committer,
    only: Option<TopicId>,
) -> (Vec<Arc<Segment>>, RetainReport) {
    let topics = &mut committer.applier.lock().topics;
    let mut report = RetainReport::default();
    let writers = topics.writers.iter_mut();
    for writer in writers.filter(|writer| only.is_none_or(|only| only == writer.files.id)) {
        let removed = writer.drop_front();
        report.topics += u64::from(!removed.is_empty());
        for run in runs(&removed) {
            report.segments += 1;
            report.records += run.records;
            report.bytes += run.bytes;
            if let Some(BlockStorage::File(segment, _)) =
                run.blocks.first().map(|block| &block.storage)
            {
                topics.retired.push(Arc::clone(segment));
            }
        }
    }
    (topics.retired.clone(), report)
}
