//! Reads entries while the writer continues.
//!
//! A reader reads the files in large sequential reads, batch by batch, and returns payloads as
//! slices of its buffer.
//!
//! Invariants:
//! - Every payload is compared with its checksum after the read.
//! - A reader returns no entry above the index that the caller permits, and no truncated entry.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::LogIndex;
use super::format::{BATCH_HEADER, BatchHeader, FIRST_POSITION, Kind, Undecodable};
use super::scan::unsupported;
use super::sectors::{apply_mask, crc, is_payload};
use super::view::{SegmentView, Shared, Truncation, is_valid_entry};
use crate::disk::{DiskFile, OpenMode};
use crate::error::{IoVerb, StoreError};

/// Bytes per read.
const CHUNK_BYTES: usize = 1 << 20;

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its index.
    pub index: LogIndex,
    /// The term that was passed to the append.
    pub term: u64,
    /// The item count that was passed to the append.
    pub count: u32,
    /// Sequence of its batch; see `docs/formats/log.md`, section 2.
    pub sequence: u64,
    /// Epoch of its batch. A pair of sequence and epoch identifies only one entry; a repair gives
    /// each entry that it copies a new pair.
    pub epoch: u64,
    /// CRC-32C of the payload, computed at append and verified by this read.
    pub payload_crc: u32,
    /// The payload, a slice of a larger buffer. The slice keeps the whole buffer in memory.
    pub payload: Bytes,
}

/// Creates readers on any thread; cheap to clone.
#[derive(Clone, Debug)]
pub struct LogReaders {
    pub(super) shared: Arc<Shared>,
}

impl LogReaders {
    /// Returns a reader whose first entry is `from`.
    pub fn reader(&self, from: LogIndex) -> LogReader {
        LogReader::new(Arc::clone(&self.shared), from)
    }

    /// Lowest index that was not purged.
    pub fn first_index(&self) -> LogIndex {
        LogIndex(self.shared.read().purged_index + 1)
    }

    /// Highest written index, whether synced or not.
    pub fn last_index(&self) -> LogIndex {
        LogIndex(self.shared.read().last_index)
    }

    /// Term of an existing entry, or of the last purged one.
    pub fn term_at(&self, index: LogIndex) -> Option<u64> {
        self.shared.read().term_at(index.0)
    }

    /// Makes readers see an empty log after the entry `last`. The files do not change.
    pub(crate) fn reset(&self, last: LogIndex, term: u64) {
        self.shared.write().reset(last.0, term);
        self.shared.raise_generation();
    }

    /// Bytes of the segment files, including reserved bytes.
    pub fn file_bytes(&self) -> u64 {
        let view = self.shared.read();
        let bytes = |segment: &Arc<SegmentView>| segment.header.file_bytes;
        view.segments.iter().map(bytes).sum()
    }

    /// The newest purged entry and the newest entry, each with its term; index 0 if there is none.
    pub(crate) fn bounds(&self) -> ((LogIndex, u64), (LogIndex, u64)) {
        let view = self.shared.read();
        let last = view.last_index;
        let Some(last_term) = view.term_at(last) else {
            unreachable!("the newest entry has a term, or is the last purged one");
        };
        let purged = (LogIndex(view.purged_index), view.purged_term);
        (purged, (LogIndex(last), last_term))
    }
}

/// A cursor over the entries of a log.
#[derive(Debug)]
pub struct LogReader {
    shared: Arc<Shared>,
    /// Index of the next entry to return.
    next: u64,
    cursor: Option<Cursor>,
    generation: u64,
    truncations: Vec<Truncation>,
}

/// The position of a reader: `position` in `segment`. `buffer` contains the bytes of the segment
/// file from `buffer_start`.
#[derive(Debug)]
struct Cursor {
    segment: Arc<SegmentView>,
    file: Arc<dyn DiskFile>,
    position: u64,
    buffer: Bytes,
    buffer_start: u64,
}

impl LogReader {
    pub(crate) fn new(shared: Arc<Shared>, from: LogIndex) -> Self {
        let generation = shared.generation();
        Self {
            shared,
            next: from.0,
            cursor: None,
            generation,
            truncations: Vec::new(),
        }
    }

    /// Index of the entry that [`next`](Self::next) returns.
    pub fn position(&self) -> LogIndex {
        LogIndex(self.next)
    }

    /// Returns the next entry, or `None` if its index is above `through` or not yet written.
    /// `through` is the highest index that the caller permits (durable, committed); no entry above
    /// it is returned.
    ///
    /// Fails with [`StoreError::IndexOutOfRange`] if the next index was purged, with
    /// [`StoreError::Damage`] if the bytes are not as written, and with [`StoreError::Io`] if they
    /// cannot be read. After an error, the reader stays before the entry.
    pub fn next(&mut self, through: LogIndex) -> Result<Option<Entry>, StoreError> {
        if self.next > through.0 {
            return Ok(None);
        }
        let result = self.advance();
        if result.is_err() {
            self.cursor = None;
        }
        result
    }

    fn advance(&mut self) -> Result<Option<Entry>, StoreError> {
        let is_located = self.cursor.is_some() && self.generation == self.shared.generation();
        if !is_located && !self.locate()? {
            return Ok(None);
        }
        loop {
            let Some(cursor) = self.cursor.as_mut() else {
                return Ok(None);
            };
            if cursor.position >= cursor.segment.end() {
                let view = self.shared.read();
                let first_sequence = cursor.segment.header.first_sequence;
                let after = view.segment_after(first_sequence).map(Arc::clone);
                drop(view);
                let Some(after) = after else {
                    return Ok(None);
                };
                // A segment gets a successor only after its last batch was published. That batch
                // may have been published since the check above.
                if cursor.position >= cursor.segment.end() {
                    if after.header.next_index > self.next {
                        // The segments between were purged meanwhile.
                        self.not_purged()?;
                    }
                    self.enter(after, FIRST_POSITION)?;
                }
                continue;
            }
            let header = cursor.header()?;
            let wanted = header.kind == Kind::Data
                && header.index == self.next
                && is_valid_entry(&self.truncations, header.index, header.sequence);
            if !wanted {
                cursor.position = header.end();
                continue;
            }
            let payload = cursor.payload(&header)?;
            cursor.position = header.end();
            self.next += 1;
            return Ok(Some(Entry {
                index: LogIndex(header.index),
                term: header.term,
                count: header.count,
                sequence: header.sequence,
                epoch: header.epoch,
                payload_crc: header.payload_crc,
                payload,
            }));
        }
    }

    /// Finds the next entry; `false` if the entry is not written yet.
    fn locate(&mut self) -> Result<bool, StoreError> {
        // Read the generation before the view: a truncation between the two only makes the next
        // call locate again.
        self.generation = self.shared.generation();
        self.not_purged()?;
        let view = self.shared.read();
        if self.next > view.last_index {
            self.cursor = None;
            return Ok(false);
        }
        let found = view.locate(self.next).and_then(|at| {
            view.segment(at.segment)
                .map(|segment| (at, Arc::clone(segment)))
        });
        self.truncations.clear();
        self.truncations.extend_from_slice(view.truncations());
        drop(view);
        let Some((at, segment)) = found else {
            return Err(StoreError::damage(
                "log",
                0,
                "the position of an entry is unknown",
                0,
            ));
        };
        self.enter(segment, at.position)?;
        Ok(true)
    }

    /// Opens the file of a segment and moves to `position` in it.
    fn enter(&mut self, segment: Arc<SegmentView>, position: u64) -> Result<(), StoreError> {
        match self.shared.disk.open(&segment.path, OpenMode::Read) {
            Ok(file) => {
                self.cursor = Some(Cursor::at(segment, file, position));
                Ok(())
            }
            Err(error) => {
                // A purge or reset may have removed the file meanwhile.
                self.cursor = None;
                self.not_purged()?;
                Err(StoreError::io(IoVerb::Open, &segment.path)(error))
            }
        }
    }

    /// Fails if the next entry was purged.
    fn not_purged(&self) -> Result<(), StoreError> {
        let view = self.shared.read();
        if self.next <= view.purged_index {
            return Err(StoreError::IndexOutOfRange {
                what: "the entry was purged",
                index: self.next,
                low: view.purged_index + 1,
                high: view.last_index,
            });
        }
        Ok(())
    }
}

impl Cursor {
    fn at(segment: Arc<SegmentView>, file: Arc<dyn DiskFile>, position: u64) -> Self {
        Self {
            segment,
            file,
            position,
            buffer: Bytes::new(),
            buffer_start: 0,
        }
    }

    /// Makes sure that `bytes` bytes from the current position are buffered. Returns their offset
    /// in the buffer.
    fn fill(&mut self, bytes: usize) -> Result<usize, StoreError> {
        let offset = self.position.checked_sub(self.buffer_start);
        if let Some(offset) = offset.and_then(|offset| usize::try_from(offset).ok())
            && offset
                .checked_add(bytes)
                .is_some_and(|end| end <= self.buffer.len())
        {
            return Ok(offset);
        }
        let available = self.segment.end().saturating_sub(self.position);
        let available = usize::try_from(available).unwrap_or(usize::MAX);
        if bytes > available {
            return Err(self.damage("a batch ends after the written bytes", 0));
        }
        let want = available.min(CHUNK_BYTES).max(bytes);
        // Reuse the buffer if no slice of it is in use.
        let old = std::mem::take(&mut self.buffer);
        let mut buffer = match old.try_into_mut() {
            Ok(mut buffer) if buffer.capacity() >= want => {
                buffer.resize(want, 0);
                buffer
            }
            _ => BytesMut::zeroed(want),
        };
        self.file
            .read_exact_at(&mut buffer, self.position)
            .map_err(StoreError::io(IoVerb::Read, &self.segment.path))?;
        self.buffer = buffer.freeze();
        self.buffer_start = self.position;
        Ok(0)
    }

    fn header(&mut self) -> Result<BatchHeader, StoreError> {
        let at = self.fill(BATCH_HEADER)?;
        let Some(bytes) = self.buffer.get(at..at + BATCH_HEADER) else {
            unreachable!("`fill` buffers as many bytes as it is asked for");
        };
        match BatchHeader::decode(bytes, self.segment.header.salt) {
            Ok(header)
                if header.position == self.position
                    && header.segment_id == self.segment.header.segment_id
                    && header.store_id == self.segment.header.store_id =>
            {
                Ok(header)
            }
            Ok(_) => Err(self.damage("a batch header belongs to another position", 0)),
            Err(Undecodable::Bad) => Err(self.damage("a batch header is not as written", 0)),
            Err(other) => Err(unsupported(&self.segment.path, self.position, other)),
        }
    }

    fn payload(&mut self, header: &BatchHeader) -> Result<Bytes, StoreError> {
        let bytes = usize::try_from(header.payload_bytes)
            .ok()
            .and_then(|payload| payload.checked_add(BATCH_HEADER));
        let Some(bytes) = bytes else {
            return Err(self.damage(
                "a payload is larger than the address space",
                header.sequence,
            ));
        };
        let at = self.fill(bytes)?;
        let mut payload = self.buffer.slice(at + BATCH_HEADER..at + bytes);
        if header.mask != 0 {
            let mut plain = BytesMut::from(&*payload);
            apply_mask(&mut plain, header.mask, 0);
            payload = plain.freeze();
        }
        if !is_payload(crc(&payload), header.payload_crc) {
            return Err(self.damage("a payload is not as written", header.sequence));
        }
        Ok(payload)
    }

    fn damage(&self, what: &'static str, sequence: u64) -> StoreError {
        StoreError::damage(&self.segment.path, self.position, what, sequence)
    }
}
