//! Retention: removes whole segments from the front of a topic.
//!
//! Each node does this separately and without an intention: keys and offsets do not change, and
//! other nodes may have removed other segments. A removal has three steps:
//!
//! 1. The records are hidden from readers.
//! 2. A new snapshot is written, which does not list the segments.
//! 3. The older snapshots, and then the files of the segments, are removed.
//!
//! Invariants:
//!
//! - A record is not removed before every group that retention waits for has passed the record.
//! - The only clock is the time in the log.

use std::sync::Arc;

use weir_core::{Retention, TopicId};

use crate::commit::Committer;
use crate::error::{IoVerb, StoreError};
use crate::maintenance_handle::MaintenanceHandle;
use crate::permit::ExclusivePermit;
use crate::snapshot;
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
    id: TopicId,
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

/// Runs retention for the topic `only`, or for all topics.
pub(crate) fn retain(
    handle: &MaintenanceHandle,
    only: Option<TopicId>,
    permit: &ExclusivePermit,
) -> Result<RetainReport, StoreError> {
    let candidates =
        handle.run_on_commit_thread(move |committer| candidates(committer, only))??;
    let mut cuts = Vec::new();
    for candidate in &candidates {
        let through = through(candidate)?;
        if through > 0 {
            cuts.push((candidate.id, through));
        }
    }
    if cuts.is_empty() {
        return Ok(RetainReport::default());
    }
    let (segments, report) = handle.run_on_commit_thread(move |committer| cut(committer, &cuts))?;
    if segments.is_empty() {
        return Ok(report);
    }
    let index = handle.checkpoint(permit)?;
    let disk = &*handle.disk;
    snapshot::remove_before(disk, index)?;
    for segment in &segments {
        segment.cache.forget(&segment.path);
        let removed = disk.remove(&segment.path);
        removed.map_err(StoreError::io(IoVerb::Remove, &segment.path))?;
    }
    Ok(report)
}

/// Flushes and returns the topics with retention limits.
fn candidates(
    committer: &mut Committer,
    only: Option<TopicId>,
) -> Result<Vec<Candidate>, StoreError> {
    let engine = Arc::clone(&committer.engine);
    let mut found = Vec::new();
    {
        let machine = engine.machine.read();
        let now_ms = machine.time_ms();
        for view in machine.topics() {
            let Some(options) = view
                .options
                .filter(|options| options.retention.is_limited())
            else {
                continue;
            };
            if only.is_some_and(|only| only != view.id) {
                continue;
            }
            let held = machine.held(view.id);
            found.push((view.id, options.retention.clone(), held, now_ms));
        }
    }
    let mut candidates = Vec::new();
    let mut applier = committer.applier.lock();
    for (id, retention, held, now_ms) in found {
        let topics = &mut applier.topics;
        topics.flush_topic(id)?;
        let Some(writer) = topics.writers.get_mut(id.index()) else {
            continue;
        };
        let files = Arc::clone(&writer.files);
        let blocks = files.contents.read().blocks.clone();
        let mut candidate = Candidate {
            id,
            files,
            retention,
            held,
            now_ms,
            blocks,
        };
        if should_close(&candidate) {
            candidate.blocks = writer.close_segment();
        }
        candidates.push(candidate);
    }
    Ok(candidates)
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
    let over = over(limits.records, run.records)
        || over(limits.bytes, run.bytes)
        || over(limits.age_ms, age_ms);
    let passed = topic.held.is_none_or(|held| last.last <= held);
    over && (passed || run.bytes >= HELD_BYTES_MIN)
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
        let old = match limits.age_ms {
            None => false,
            Some(age_ms) => {
                let newest_ms = match next {
                    Some(next) => next.base.time_ms,
                    None => newest_ms(&topic.files, last)?,
                };
                topic.now_ms.saturating_sub(newest_ms) >= age_ms
            }
        };
        let goes = old
            || limits.records.is_some_and(|stay| records >= stay)
            || limits.bytes.is_some_and(|stay| bytes >= stay);
        if !goes || topic.held.is_some_and(|held| last.last > held) {
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

/// Hides the segments from readers, and returns them. Checks the groups again, because a group may
/// have been moved back since the segments were chosen.
fn cut(committer: &mut Committer, cuts: &[(TopicId, u64)]) -> (Vec<Arc<Segment>>, RetainReport) {
    let engine = Arc::clone(&committer.engine);
    let mut applier = committer.applier.lock();
    let machine = engine.machine.read();
    let mut segments = Vec::new();
    let mut report = RetainReport::default();
    for (id, through) in cuts {
        let Some(writer) = applier.topics.writers.get_mut(id.index()) else {
            continue;
        };
        let through = machine
            .held(*id)
            .map_or(*through, |held| held.min(*through));
        let total = |files: &TopicFiles| {
            let contents = files.contents.read();
            let records = contents.blocks.iter().map(|block| u64::from(block.records));
            (
                records.sum::<u64>(),
                contents.blocks.iter().map(size).sum::<u64>(),
            )
        };
        let before = total(&writer.files);
        let gone = writer.drop_front(through);
        let after = total(&writer.files);
        report.topics += u64::from(!gone.is_empty());
        report.segments += gone.len() as u64;
        report.records += before.0 - after.0;
        report.bytes += before.1 - after.1;
        segments.extend(gone);
    }
    (segments, report)
}
