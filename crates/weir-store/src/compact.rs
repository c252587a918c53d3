//! Compaction of a topic: the last record of each key is retained, and offsets do not change.
//!
//! Removed are:
//!
//! - a PUT whose key has a newer record;
//! - a DELETE whose key was written or deleted again, or that is older than the tombstone time;
//! - records of earlier incarnations;
//! - records that retention has removed from reads.
//!
//! Retained are:
//!
//! - records without a key;
//! - CREATE, ALTER and REPLACE of the current incarnation;
//! - records that are younger than the lag;
//! - records that a group has not passed, if compaction waits for the group.
//!
//! A retained record keeps its offset, so readers skip gaps.
//!
//! The calling thread writes the retained records to new segments while commits continue. The
//! commit thread then swaps the block list in one step. The old segments are removed only when a
//! snapshot lists the new ones.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_core::exact::to_u32;
use weir_core::{Compaction, ConsequenceOffset, Record, RecordKind, TopicId, TopicOptions};

use crate::engine::Engine;
use crate::error::{IoVerb, StoreError};
use crate::store::Store;
use crate::topic::block::{BLOCK_FITS, BlockBuilder, HEADER_BYTES, RawBlock};
use crate::topic::files::{BlockRef, BlockStorage, Segment, TopicFiles, path};
use crate::topic::writer::{SEGMENT_BYTES, create};

/// The result of a topic compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicCompactReport {
    /// Number of records before the compaction.
    pub records_before: u64,
    /// Number of records after the compaction.
    pub records_after: u64,
    /// Stored size in bytes before the compaction.
    pub bytes_before: u64,
    /// Stored size in bytes after the compaction.
    pub bytes_after: u64,
}

/// The part of a topic that is compacted: whole segments that are no longer appended to.
struct Input {
    files: Arc<TopicFiles>,
    blocks: Vec<BlockRef>,
    first_segment: u32,
    /// First segment number after the reserved ones.
    end_segment: u32,
    options: TopicOptions,
    incarnation: u64,
    now_ms: u64,
    /// Records after this offset are retained for a group.
    held: u64,
    /// Retention has removed the records up to this offset.
    trimmed: u64,
}

/// Decides for each record whether it is retained.
struct CompactionFilter<'a> {
    engine: &'a Engine,
    input: &'a Input,
    id: TopicId,
    /// Offset of the last DELETE record of each deleted key.
    deletes: HashMap<Box<[u8]>, u64>,
}

impl Store {
    /// Compacts a topic now, with the options of the topic. Fails if compaction is off for the
    /// topic. Does not block writes or reads.
    pub fn compact_topic(&self, topic: &str) -> Result<TopicCompactReport, StoreError> {
        let permit = self.maintenance.acquire();
        let unknown = || StoreError::TopicUnknown {
            name: topic.to_owned(),
        };
        let id = self.engine.machine.read().topic(topic).map(|view| view.id);
        let id = id.ok_or_else(unknown)?;
        let input = self.compact_input(id)?.ok_or_else(unknown)?;
        if input.options.compaction == Compaction::Off {
            return Err(StoreError::CompactionOff {
                name: topic.to_owned(),
            });
        }
        let Some(through) = input.blocks.last().map(|block| block.last) else {
            return Ok(TopicCompactReport::default());
        };
        let written = self.write_compacted(id, &input);
        if written.is_err() {
            self.remove_new_segments(&input);
        }
        let (blocks, report) = written?;
        let replaced = segments_of(&input.blocks);
        let retired = self.run_on_commit_thread(move |committer| {
            let topics = &mut committer.applier.lock().topics;
            if let Some(writer) = topics.writers.get_mut(id.index()) {
                writer.replace(through, blocks);
                topics.retired.extend(replaced);
            }
            topics.retired.clone()
        })?;
        let handle = self.maintenance_handle();
        handle.remove_retired(&retired, &permit)?;
        Ok(report)
    }

    /// Removes the segments of a compaction that failed before they became a part of the topic. A
    /// full disk may be the cause, and every retry writes further segments.
    fn remove_new_segments(&self, input: &Input) {
        for number in input.first_segment..input.end_segment {
            let path = path(input.files.id, number);
            input.files.cache.evict(&path);
            // Most of the reserved numbers have no file. The next open removes what is left.
            drop(self.disk.remove(&path));
        }
    }

    /// Closes the current segment and returns everything up to its end.
    fn compact_input(&self, id: TopicId) -> Result<Option<Input>, StoreError> {
        self.run_on_commit_thread(move |committer| {
            let machine = committer.engine.machine.read();
            let view = machine.topic_by_id(id);
            let live = view.and_then(|view| {
                let options = view.options?.clone();
                Some((options, view.incarnation?.0, view.trimmed.0))
            });
            let now_ms = machine.time_ms();
            let held = machine.held(id).unwrap_or(u64::MAX);
            drop(machine);
            let Some((options, incarnation, trimmed)) = live else {
                return Ok(None);
            };
            let topics = &mut committer.applier.lock().topics;
            topics.flush_topic(id)?;
            let Some(writer) = topics.writers.get_mut(id.index()) else {
                return Ok(None);
            };
            let blocks = writer.close_segment();
            let segments = segments_of(&blocks).len();
            let reserved = to_u32(segments, "a topic has at most 2^32 segments") + 1;
            let first_segment = writer.reserve_segments(reserved);
            let end_segment = first_segment + reserved;
            let files = Arc::clone(&writer.files);
            Ok(Some(Input {
                files,
                blocks,
                first_segment,
                end_segment,
                options,
                incarnation,
                now_ms,
                held,
                trimmed,
            }))
        })?
    }

    fn write_compacted(
        &self,
        id: TopicId,
        input: &Input,
    ) -> Result<(Vec<BlockRef>, TopicCompactReport), StoreError> {
        let mut report = TopicCompactReport::default();
        let mut filter = CompactionFilter {
            engine: &self.engine,
            input,
            id,
            deletes: HashMap::new(),
        };
        for block in &input.blocks {
            report.records_before += u64::from(block.records);
            report.bytes_before += u64::from(block.bytes) + HEADER_BYTES as u64;
            each_record(&input.files, block, |record| {
                if record.kind == RecordKind::Delete {
                    filter.deletes.insert(record.key.into(), record.offset.0);
                }
                Ok(())
            })?;
        }
        let mut out = Output::new(input);
        let mut retained_intention = 0;
        for block in &input.blocks {
            each_record(&input.files, block, |record| {
                // The last record of an intention is retained if another record of the intention is
                // retained. A reader thus still sees where the intention ends.
                let is_last_of_retained =
                    record.flags.last() && retained_intention == record.intention.0;
                if is_last_of_retained || filter.retains(record) {
                    retained_intention = record.intention.0;
                    report.records_after += 1;
                    out.push(record)?;
                }
                Ok(())
            })?;
        }
        let blocks = out.finish()?;
        let size = |block: &BlockRef| u64::from(block.bytes) + HEADER_BYTES as u64;
        report.bytes_after = blocks.iter().map(size).sum();
        Ok((blocks, report))
    }
}

/// Returns the segments of blocks, in order.
fn segments_of(blocks: &[BlockRef]) -> Vec<Arc<Segment>> {
    let mut segments: Vec<Arc<Segment>> = Vec::new();
    for block in blocks {
        if let BlockStorage::File(segment, _) = &block.storage
            && segments
                .last()
                .is_none_or(|last| last.number != segment.number)
        {
            segments.push(Arc::clone(segment));
        }
    }
    segments
}

fn each_record(
    files: &TopicFiles,
    block: &BlockRef,
    mut work: impl FnMut(&Record<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let loaded = files.load(block)?;
    let mut cursor = crate::topic::block::BlockCursor::new(&loaded.base, loaded.records);
    while let Some(record) = cursor.next(&loaded.bytes) {
        let damage =
            |what| StoreError::damage(&crate::topic::files::directory(files.id), 0, what, 0);
        work(&record.map_err(damage)?)?;
    }
    Ok(())
}

impl CompactionFilter<'_> {
    fn retains(&self, record: &Record<'_>) -> bool {
        if record.offset.0 <= self.input.trimmed {
            return false;
        }
        let options = &self.input.options;
        let age_ms = self.input.now_ms.saturating_sub(record.time_ms);
        if age_ms < options.compaction_lag_ms.unwrap_or(0) || record.offset.0 > self.input.held {
            return true;
        }
        if record.intention.0 < self.input.incarnation {
            return false;
        }
        match record.kind {
            RecordKind::Put if record.key.is_empty() => true,
            RecordKind::Put => self.current_offset(record.key) == Some(record.offset),
            RecordKind::Delete => {
                let is_newest = self.deletes.get(record.key) == Some(&record.offset.0);
                let is_recent = options.tombstone_ttl_ms.is_none_or(|ttl| age_ms < ttl);
                is_newest && is_recent && self.current_offset(record.key).is_none()
            }
            _ => true,
        }
    }

    /// Offset of the key's current value. If this offset is after the input, all records of the key
    /// in the input are older.
    fn current_offset(&self, key: &[u8]) -> Option<ConsequenceOffset> {
        let machine = self.engine.machine.read();
        machine.topic_by_id(self.id)?.keys?.get(key)
    }
}

/// Writes the retained records to new segments.
struct Output<'a> {
    input: &'a Input,
    builder: BlockBuilder,
    next_segment: u32,
    current: Option<(Arc<Segment>, u64)>,
    blocks: Vec<BlockRef>,
}

impl<'a> Output<'a> {
    fn new(input: &'a Input) -> Self {
        let next_segment = input.first_segment;
        let builder = BlockBuilder::new();
        Self {
            input,
            builder,
            next_segment,
            current: None,
            blocks: Vec::new(),
        }
    }

    fn push(&mut self, record: &Record<'_>) -> Result<(), StoreError> {
        self.builder.push(record);
        if self.builder.is_full() {
            self.write()
        } else {
            Ok(())
        }
    }

    fn write(&mut self) -> Result<(), StoreError> {
        if self.builder.records() == 0 {
            return Ok(());
        }
        let raw: RawBlock = self.builder.take();
        let (segment, position) = match self.current.take() {
            Some((segment, end)) if end < SEGMENT_BYTES => (segment, end),
            full => {
                if let Some((segment, _)) = full {
                    segment.sync()?;
                }
                assert!(
                    self.next_segment < self.input.end_segment,
                    "enough numbers were reserved"
                );
                let segment = create(&self.input.files, self.next_segment)?;
                self.next_segment += 1;
                (segment, 0)
            }
        };
        let header = raw.header(&self.input.files.location(&segment, position));
        let mut parts = [
            std::io::IoSlice::new(&header),
            std::io::IoSlice::new(&raw.bytes),
        ];
        let written = segment.file()?.write_all_at(&mut parts, position);
        written.map_err(StoreError::io(IoVerb::Write, &segment.path))?;
        let end = position + (HEADER_BYTES + raw.bytes.len()) as u64;
        segment.written.fetch_max(end, Ordering::AcqRel);
        self.blocks.push(BlockRef {
            base: raw.base,
            last: raw.last,
            records: raw.records,
            bytes: to_u32(raw.bytes.len(), BLOCK_FITS),
            storage: BlockStorage::File(Arc::clone(&segment), position),
            header_crc: RawBlock::own_crc(&header),
        });
        self.current = Some((segment, end));
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<BlockRef>, StoreError> {
        self.write()?;
        if let Some((segment, _)) = &self.current {
            segment.sync()?;
        }
        let dir = crate::topic::files::directory(self.input.files.id);
        let synced = self.input.files.cache.disk().sync_dir(&dir);
        synced.map_err(StoreError::io(IoVerb::Sync, &dir))?;
        Ok(self.blocks)
    }
}
