//! The only writer of the blocks of a topic.
//!
//! The applying thread owns the writer. [`push`](TopicWriter::push) only encodes a record.
//! [`publish`](TopicWriter::publish) makes pushed records visible and never fails.
//! [`flush`](TopicWriter::flush) writes closed blocks to their segment. After an error, the blocks
//! stay in memory, and the flush can be retried.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_core::Record;
use weir_core::exact::{part, to_u32};

use super::block::{BLOCK_FITS, BlockBuilder, HEADER_BYTES, RawBlock};
use super::files::{BlockRef, BlockStorage, Segment, TopicFiles, directory, path};
use crate::disk::OpenMode;
use crate::error::{IoVerb, StoreError};

/// A segment is closed when it has this many bytes.
pub(crate) const SEGMENT_BYTES: u64 = 64 << 20;
/// Bytes of closed blocks of one topic that are collected for one write.
pub(crate) const FLUSH_BYTES: usize = 256 << 10;
/// Maximum bytes of one write, except for a longer record. The maximum bounds the cost of retries
/// while writes fail.
const WRITE_BYTES: u64 = 4 << 20;

/// The list of the segments of a topic in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentList {
    /// Number of the next segment.
    pub(crate) next: u32,
    /// The segments, in order.
    pub(crate) segments: Vec<SegmentEntry>,
}

/// The entry of one segment in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentEntry {
    pub(crate) number: u32,
    /// Bytes that belong to the snapshot. The file may have later bytes.
    pub(crate) bytes: u64,
    /// Offset of the first record; `last` is that of the last one.
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// A checksum over the checksums of all block headers, in order.
    pub(crate) chain: u32,
}

impl SegmentEntry {
    /// Returns the entry with one more block, which ends at `bytes`.
    #[must_use]
    pub(crate) fn with_block(self, bytes: u64, last: u64, header_crc: u32) -> Self {
        let mut both = [0; 8];
        both[..4].copy_from_slice(&self.chain.to_le_bytes());
        both[4..].copy_from_slice(&header_crc.to_le_bytes());
        Self {
            bytes,
            last,
            chain: crc_fast::crc32_iscsi(&both),
            ..self
        }
    }
}

/// Returns the segment entries of `blocks`, in order. Ignores blocks that are only in memory.
pub(crate) fn entries(blocks: &[BlockRef]) -> Vec<SegmentEntry> {
    let mut segments: Vec<SegmentEntry> = Vec::new();
    for block in blocks {
        let BlockStorage::File(segment, at) = &block.storage else {
            continue;
        };
        let number = segment.number;
        if segments.last().is_none_or(|entry| entry.number != number) {
            let first = block.base.first;
            segments.push(SegmentEntry {
                number,
                bytes: 0,
                first,
                last: 0,
                chain: 0,
            });
        }
        let end = at + HEADER_BYTES as u64 + u64::from(block.bytes);
        if let Some(entry) = segments.last_mut() {
            *entry = entry.with_block(end, block.last, block.header_crc);
        }
    }
    segments
}

#[derive(Debug)]
pub(crate) struct TopicWriter {
    pub(crate) files: Arc<TopicFiles>,
    /// Whether the writer has records or a trim that are not published.
    pub(crate) touched: bool,
    /// Offset of the newest record that retention has removed; 0 for none. Readers see it after the
    /// next publish.
    pub(crate) trimmed: u64,
    builder: BlockBuilder,
    /// Number of published bytes of the open block.
    copied: usize,
    /// Blocks that were closed since the last publish.
    closed: Vec<RawBlock>,
    /// Published blocks that are not in a file yet.
    unwritten: Vec<RawBlock>,
    unwritten_bytes: usize,
    next_segment: u32,
    current: Option<(Arc<Segment>, u64)>,
    /// Segments that may not be durable.
    dirty: Vec<Arc<Segment>>,
}

impl TopicWriter {
    pub(crate) fn new(files: Arc<TopicFiles>) -> Self {
        Self {
            files,
            touched: false,
            trimmed: 0,
            builder: BlockBuilder::new(),
            copied: 0,
            closed: Vec::new(),
            unwritten: Vec::new(),
            unwritten_bytes: 0,
            next_segment: 1,
            current: None,
            dirty: Vec::new(),
        }
    }

    /// Sets the offsets of the newest record of the topic, and of the newest record that retention
    /// has removed.
    pub(crate) fn restore(&mut self, last: u64, trimmed: u64) {
        self.trimmed = trimmed;
        let mut contents = self.files.contents.write();
        contents.last = last;
        contents.trimmed = trimmed;
    }

    /// Opens the listed segments, whose blocks become readable, and continues after them. Must be
    /// called after [`restore`](Self::restore).
    pub(crate) fn attach(&mut self, listed: &SegmentList) -> Result<(), StoreError> {
        let mut blocks: Vec<BlockRef> = Vec::new();
        for entry in &listed.segments {
            let found = self.files.attach(entry.number, entry.bytes)?;
            if entries(&found) != [*entry] {
                let file = path(self.files.id, entry.number);
                return Err(StoreError::damage(
                    &file,
                    0,
                    "the blocks differ from those in the snapshot",
                    0,
                ));
            }
            blocks.extend(found);
        }
        for pair in blocks.windows(2) {
            if let [a, b] = pair
                && b.base.first <= a.last
            {
                let file = directory(self.files.id);
                return Err(StoreError::damage(
                    &file,
                    0,
                    "the blocks of a topic are not in order",
                    0,
                ));
            }
        }
        self.next_segment = self.next_segment.max(listed.next);
        let mut contents = self.files.contents.write();
        let last = contents.last;
        if blocks.last().is_some_and(|block| block.last > last) {
            let file = directory(self.files.id);
            return Err(StoreError::damage(
                &file,
                0,
                "a block is after the newest record",
                0,
            ));
        }
        contents.blocks = blocks;
        Ok(())
    }

    /// Encodes a record. Readers do not see the record before [`publish`](Self::publish).
    #[inline]
    pub(crate) fn push(&mut self, record: &Record<'_>) {
        self.builder.push(record);
        if self.builder.is_full() {
            self.close_block();
        }
    }

    fn close_block(&mut self) {
        if self.builder.records() > 0 {
            self.closed.push(self.builder.take());
        }
    }

    /// Makes all pushed records readable, hides trimmed records, and wakes waiting readers.
    pub(crate) fn publish(&mut self) {
        let mut contents = self.files.contents.write();
        contents.trimmed = self.trimmed;
        for raw in self.closed.drain(..) {
            self.copied = 0;
            self.unwritten_bytes += raw.bytes.len();
            contents.last = raw.last;
            contents.open.clear();
            contents.open_records = 0;
            contents.blocks.push(BlockRef {
                base: raw.base,
                last: raw.last,
                records: raw.records,
                bytes: to_u32(raw.bytes.len(), BLOCK_FITS),
                storage: BlockStorage::Memory(raw.bytes.clone()),
                header_crc: 0,
            });
            self.unwritten.push(raw);
        }
        if self.builder.records() > 0 {
            let bytes = self.builder.bytes();
            let new = part(bytes, self.copied.., "the open block only grows");
            contents.open.extend_from_slice(new);
            contents.open_base = self.builder.base();
            contents.open_records = self.builder.records();
            contents.last = self.builder.last();
            self.copied = bytes.len();
        }
        drop(contents);
        self.files.notify();
    }

    /// Returns the bytes of closed blocks that are not in a file yet.
    pub(crate) fn unwritten_bytes(&self) -> usize {
        self.unwritten_bytes
    }

    /// Closes the open block, and publishes and writes all records.
    pub(crate) fn flush_all(&mut self) -> Result<(), StoreError> {
        self.close_block();
        self.publish();
        self.flush()
    }

    /// Writes the published blocks to segments, without a sync.
    pub(crate) fn flush(&mut self) -> Result<(), StoreError> {
        while !self.unwritten.is_empty() {
            let (segment, start) = self.segment()?;
            let space = SEGMENT_BYTES.saturating_sub(start).min(WRITE_BYTES);
            let mut end = start;
            let mut headers = Vec::new();
            let mut positions = Vec::new();
            for raw in &self.unwritten {
                if end > start && end - start >= space {
                    break;
                }
                headers.push(raw.header(&self.files.location(&segment, end)));
                positions.push(end);
                end += (HEADER_BYTES + raw.bytes.len()) as u64;
            }
            let count = headers.len();
            let blocks = headers.iter().zip(&self.unwritten);
            let mut parts: Vec<IoSlice<'_>> = blocks
                .flat_map(|(header, raw)| [IoSlice::new(header), IoSlice::new(&raw.bytes)])
                .collect();
            let written = segment.file()?.write_all_at(&mut parts, start);
            written.map_err(StoreError::io(IoVerb::Write, &segment.path))?;
            segment.written.fetch_max(end, Ordering::AcqRel);
            drop(parts);
            let mut contents = self.files.contents.write();
            let first = contents.blocks.len() - self.unwritten.len();
            let refs = &mut contents.blocks[first..];
            for ((block, position), header) in refs.iter_mut().zip(positions).zip(&headers) {
                block.storage = BlockStorage::File(Arc::clone(&segment), position);
                block.header_crc = RawBlock::own_crc(header);
            }
            drop(contents);
            let written = self
                .unwritten
                .drain(..count)
                .map(|raw| raw.bytes.len())
                .sum::<usize>();
            self.unwritten_bytes -= written;
            if !self
                .dirty
                .iter()
                .any(|other| other.number == segment.number)
            {
                self.dirty.push(Arc::clone(&segment));
            }
            self.current = Some((segment, end));
        }
        Ok(())
    }

    fn segment(&mut self) -> Result<(Arc<Segment>, u64), StoreError> {
        if let Some((segment, end)) = &self.current
            && *end < SEGMENT_BYTES
        {
            return Ok((Arc::clone(segment), *end));
        }
        let segment = create(&self.files, self.next_segment)?;
        self.next_segment += 1;
        self.current = Some((Arc::clone(&segment), 0));
        Ok((segment, 0))
    }

    /// Returns the segments that must be synced before a snapshot may list them.
    pub(crate) fn dirty(&mut self) -> &[Arc<Segment>] {
        self.dirty.retain(|segment| segment.is_dirty());
        &self.dirty
    }

    /// Returns the list of the segments for a snapshot. All blocks must be flushed.
    pub(crate) fn list(&self) -> SegmentList {
        assert!(self.unwritten.is_empty(), "flushed before it is listed");
        let contents = self.files.contents.read();
        SegmentList {
            next: self.next_segment,
            segments: entries(&contents.blocks),
        }
    }

    /// Reserves all segment numbers up to `number`, because files with these numbers exist.
    pub(crate) fn skip_segments(&mut self, number: u32) {
        self.next_segment = self.next_segment.max(number + 1);
    }

    /// Reserves `count` segment numbers for another writer, and returns the first one.
    pub(crate) fn reserve_segments(&mut self, count: u32) -> u32 {
        let first = self.next_segment;
        self.next_segment += count;
        first
    }

    /// Closes the current segment, so that all blocks are in closed segments. Returns all blocks.
    /// They must be flushed before the call.
    pub(crate) fn close_segment(&mut self) -> Vec<BlockRef> {
        self.current = None;
        self.files.contents.read().blocks.clone()
    }

    /// Replaces all blocks up to the offset `through` by `blocks`. A segment must end at `through`.
    pub(crate) fn replace(&mut self, through: u64, blocks: Vec<BlockRef>) {
        let mut contents = self.files.contents.write();
        let at = contents
            .blocks
            .partition_point(|block| block.last <= through);
        contents.blocks.splice(..at, blocks);
    }

    /// Forgets the segments at the front that have only trimmed records, and returns their blocks.
    /// Keeps the current segment.
    pub(crate) fn drop_front(&mut self) -> Vec<BlockRef> {
        let current = self.current.as_ref().map(|(segment, _)| segment.number);
        let mut contents = self.files.contents.write();
        let through = contents.trimmed;
        let mut removed = 0;
        let mut blocks = contents.blocks.as_slice();
        while let Some(BlockStorage::File(segment, _)) = blocks.first().map(|block| &block.storage)
        {
            let number = segment.number;
            let is_in = |block: &&BlockRef| matches!(&block.storage, BlockStorage::File(s, _) if s.number == number);
            let count = blocks.iter().take_while(is_in).count();
            let (own, rest) = blocks.split_at(count);
            if current == Some(number) || own.last().is_none_or(|block| block.last > through) {
                break;
            }
            removed += count;
            blocks = rest;
        }
        contents.blocks.drain(..removed).collect()
    }
}

/// Creates an empty segment file.
pub(crate) fn create(files: &TopicFiles, number: u32) -> Result<Arc<Segment>, StoreError> {
    let disk = files.cache.disk();
    let dir = directory(files.id);
    let path = path(files.id, number);
    disk.create_dir(&dir)
        .map_err(StoreError::io(IoVerb::Open, &dir))?;
    let file = disk
        .open(&path, OpenMode::CreateNew)
        .map_err(StoreError::io(IoVerb::Open, &path))?;
    files.cache.put(&path, file);
    Ok(Arc::new(Segment::new(
        number,
        path,
        Arc::clone(&files.cache),
        0,
    )))
}
