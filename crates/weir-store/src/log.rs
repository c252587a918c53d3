//! The log: an ordered sequence of opaque payloads in checksummed segments.
//!
//! `docs/formats/log.md` specifies the bytes and the recovery. The log has one writer and any
//! number of readers.
//!
//! Invariants:
//! - A batch is never overwritten.
//! - A sector with exactly one set bit is never written.
//! - Every later open finds the entries that a sync has covered.
//! - After a failed write or sync, this handle writes nothing more.
//! - An index is durable only after the sync that covers it has returned.
//! - The log does not interpret payloads.

mod format;
mod options;
mod reader;
mod recover;
mod scan;
mod sectors;
mod segment;
mod verify;
mod view;

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;
use std::thread::JoinHandle;

pub use self::options::LogOptions;
pub use self::reader::{Entry, LogReader, LogReaders};
pub use self::recover::{Cut, Recovery};
pub(crate) use self::segment::build_file;
pub use self::verify::{LogFinding, LogSeverity, VerifyReport, read_only, verify};
pub(crate) use self::verify::{readable, verify_watched};
pub use crate::log_index::LogIndex;

use self::format::{
    BATCH_HEADER, BatchHeader, FIRST_POSITION, Kind, SegmentHeader, StartMark, extent_bytes,
};
use self::recover::analyse::UnprovenBatch;
use self::recover::{Recovered, recover};
use self::sectors::{SECTOR, SECTOR_BYTES};
use self::sectors::{SectorCount, apply_mask, count_sectors, crc_parts, mask_to_try};
pub(crate) use self::segment::{LOG_DIR, START_FILE, parse_segment_name};
use self::segment::{build_new_segment, next_segment_bytes, write_start};
use self::view::{SegmentView, Shared};
use crate::disk::{Disk, DiskFile, OpenMode, check_directory};
use crate::error::{IoVerb, StoreError};

/// Maximum payload in bytes. Below this length, CRC-32C detects any two flipped bits.
pub const PAYLOAD_BYTES_MAX: u64 = (256 << 20) - 512;
/// Bytes that a batch with `payload` bytes of payload occupies in a segment.
pub(crate) fn batch_bytes(payload: usize) -> u64 {
    let Some(bytes) = extent_bytes(payload as u64) else {
        unreachable!("a payload in memory has an extent");
    };
    bytes
}

/// Bytes at the end of a segment that are reserved for marks.
const MARK_RESERVE_BYTES: u64 = 8 * SECTOR_BYTES;
/// Number of masks that are tried for a payload; one is nearly always enough.
const MASKS_TRIED: u64 = 64;
/// Zeros ahead save time only if many syncs fall into them. A batch longer than `zero_ahead_bytes`
/// divided by this number gets no zeros. For shorter batches, the zeros start at this size and
/// double up to `zero_ahead_bytes`.
const ZERO_AHEAD_PART: u64 = 16;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Counters since the open, and current sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Segment files.
    pub segments: u64,
    /// Bytes of those files, including reserved bytes.
    pub bytes: u64,
    /// Entries appended.
    pub entries: u64,
    /// Payload bytes appended.
    pub payload_bytes: u64,
    /// Bytes of the written batches, including headers and padding.
    pub batch_bytes: u64,
    /// Batches written, including marks.
    pub batches: u64,
    /// Write calls to segment files.
    pub writes: u64,
    /// Data syncs of segment files.
    pub syncs: u64,
    /// Segments created.
    pub segments_created: u64,
    /// Payloads stored under a mask.
    pub masked: u64,
}

/// The log, open for writing. Dropping it without [`close`](Self::close) is equivalent to a crash.
#[derive(Debug)]
pub struct Log {
    disk: Arc<dyn Disk>,
    options: LogOptions,
    shared: Arc<Shared>,
    segment: Arc<SegmentView>,
    /// The file of `segment`.
    file: Arc<dyn DiskFile>,
    start: StartMark,
    next_segment_id: u64,
    /// Offset of the next batch.
    position: u64,
    /// Offset up to which zeros were written ahead.
    zeroed: u64,
    /// Size in bytes to which the next zeros are aligned; grows while batches are short.
    ahead_bytes: u64,
    sequence: u64,
    durable_sequence: u64,
    last_index: u64,
    last_term: u64,
    durable_index: u64,
    epoch: u64,
    last_kind: Option<Kind>,
    /// The open mark is not written yet, because of a lack of space.
    open_mark_due: bool,
    /// The sync of the previous segment, while a separate thread runs it.
    background_sync: Option<BackgroundSync>,
    /// The failure that stopped all writes.
    poison: Option<Arc<StoreError>>,
    stats: LogStats,
    /// Buffer for a masked payload; nearly always empty.
    masked: Vec<u8>,
}

/// A sync that runs on a separate thread.
#[derive(Debug)]
struct BackgroundSync {
    path: String,
    thread: JoinHandle<std::io::Result<()>>,
    sequence: u64,
    index: u64,
}

impl Log {
    /// Opens the log in `disk` and recovers it from any state that a crash can leave. Everything
    /// that can be read is durable when this call returns.
    ///
    /// Fails with [`StoreError::Damage`] if bytes that could have been acknowledged are not as
    /// written; in this case, nothing was changed. Fails with [`StoreError::Missing`] if there is
    /// no log and `options.create` is off.
    pub fn open(
        disk: Arc<dyn Disk>,
        store_id: [u8; 16],
        options: LogOptions,
    ) -> Result<(Self, Recovery), StoreError> {
        let Recovered {
            analysis,
            start,
            next_segment_id,
            report,
        } = recover(&disk, &store_id, &options)?;
        let Some(segment) = analysis.view.segments.last().map(Arc::clone) else {
            return Err(StoreError::damage(LOG_DIR, 0, "there is no segment", 0));
        };
        let segments = analysis.view.segments.clone();
        let file = open_for_writing(&*disk, &segment)?;
        let position = segment.end();
        let mut log = Self {
            position,
            zeroed: position.next_multiple_of(4096),
            ahead_bytes: options.zero_ahead_bytes / ZERO_AHEAD_PART,
            sequence: analysis.sequence,
            durable_sequence: analysis.proven,
            last_index: analysis.view.last_index,
            last_term: analysis.last_term,
            durable_index: analysis.proven_index.min(analysis.view.last_index),
            epoch: analysis.epoch,
            last_kind: analysis.last_kind,
            shared: Arc::new(Shared::new(Arc::clone(&disk), analysis.view)),
            disk,
            options,
            segment,
            file: Arc::clone(&file),
            start,
            next_segment_id,
            open_mark_due: true,
            background_sync: None,
            poison: None,
            stats: LogStats::default(),
            masked: Vec::new(),
        };
        if let Err(error) = log.make_durable(&segments, &analysis.unproven) {
            drop(log);
            return Err(error.into_root());
        }
        Ok((log, report))
    }

    /// Makes data durable that an earlier process may not have synced, and writes the open mark.
    fn make_durable(
        &mut self,
        segments: &[Arc<SegmentView>],
        marks: &VecDeque<UnprovenBatch>,
    ) -> Result<(), StoreError> {
        let file = Arc::clone(&self.file);
        let mut touched = Vec::new();
        for unproven in marks {
            if let Some(segment) = segments.get(unproven.segment) {
                if Arc::ptr_eq(segment, &self.segment) {
                    self.rewrite_mark(&file, segment, &unproven.header)?;
                } else {
                    let file = open_for_writing(&*self.disk, segment)?;
                    self.rewrite_mark(&file, segment, &unproven.header)?;
                    touched.push((file, segment));
                }
            }
        }
        for (file, segment) in touched {
            self.sync_file(&file, &segment.path)?;
        }
        match self.write_open_mark() {
            // The mark is written later: the sync makes everything durable without it.
            Err(StoreError::DiskFull { .. }) => self.sync(),
            result => result,
        }
    }

    /// Appends one entry and returns its index. The payload is the concatenation of `parts`. The
    /// entry is written but not durable; see [`sync`](Self::sync). `term` must not decrease;
    /// `count` is stored for readers of the payload.
    ///
    /// [`StoreError::DiskFull`], [`StoreError::LimitExceeded`] and a failure to create a new
    /// segment leave the log unchanged. Any other error poisons the log. After
    /// [`StoreError::InDoubt`], a part of the entry may have been written; after any other error,
    /// nothing of it was written.
    pub fn append(
        &mut self,
        term: u64,
        count: u32,
        parts: &[&[u8]],
    ) -> Result<LogIndex, StoreError> {
        let payload_bytes = parts.iter().map(|part| part.len() as u64).sum();
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(StoreError::LimitExceeded {
                what: "the bytes of a log payload",
                limit: PAYLOAD_BYTES_MAX,
                value: payload_bytes,
            });
        }
        if term < self.last_term {
            return Err(StoreError::IndexOutOfRange {
                what: "the term of a log entry",
                index: term,
                low: self.last_term,
                high: u64::MAX,
            });
        }
        self.writable()?;
        if self.open_mark_due {
            self.write_open_mark()?;
        }
        let Some(extent) = extent_bytes(payload_bytes) else {
            unreachable!("a payload of at most PAYLOAD_BYTES_MAX bytes has an extent");
        };
        self.ensure_space(extent, MARK_RESERVE_BYTES)?;
        let index = self.last_index + 1;
        let batch = BatchFields {
            kind: Kind::Data,
            index,
            term,
            epoch: self.epoch,
            count,
        };
        // Nothing of the entry has been written before this point.
        let written = self.write_batch(&batch, parts, payload_bytes);
        let position = written.map_err(StoreError::in_doubt)?;
        let first_sequence = self.segment.header.first_sequence;
        self.shared
            .write()
            .add(index, term, first_sequence, position);
        self.segment.set_end(self.position);
        self.last_index = index;
        self.last_term = term;
        self.stats.entries += 1;
        self.stats.payload_bytes += payload_bytes;
        Ok(LogIndex(index))
    }

    /// Makes all appended entries durable with one data sync, or none if nothing is new. A failure
    /// is final for this handle.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.writable()?;
        self.join_background_sync()?;
        if self.durable_sequence == self.sequence {
            return Ok(());
        }
        let (file, path) = (Arc::clone(&self.file), self.segment.path.clone());
        self.sync_file(&file, &path)?;
        self.durable_sequence = self.sequence;
        self.durable_index = self.last_index;
        Ok(())
    }

    /// Lowest index that was not purged; [`last_index`](Self::last_index) + 1 if there is no entry.
    pub fn first_index(&self) -> LogIndex {
        LogIndex(self.start.purged_index + 1)
    }

    /// Highest written index; [`first_index`](Self::first_index) - 1 if there is no entry.
    pub fn last_index(&self) -> LogIndex {
        LogIndex(self.last_index)
    }

    /// Term of the last entry; if there is none, of the last purged entry.
    pub fn last_term(&self) -> u64 {
        self.last_term
    }

    /// Highest index whose sync has returned.
    pub fn durable_index(&self) -> LogIndex {
        LogIndex(self.durable_index)
    }

    /// Term of an existing entry, or of the last purged one.
    pub fn term_at(&self, index: LogIndex) -> Option<u64> {
        self.shared.read().term_at(index.0)
    }

    /// Sequence of the last batch and the current epoch, for diagnosis. Neither decreases while the
    /// log is open.
    pub fn sequence_and_epoch(&self) -> (u64, u64) {
        (self.sequence, self.epoch)
    }

    /// Returns a reader whose first entry is `from`. The reader may move to another thread.
    pub fn reader(&self, from: LogIndex) -> LogReader {
        LogReader::new(Arc::clone(&self.shared), from)
    }

    /// Returns an object that creates readers and does not borrow the log.
    pub fn readers(&self) -> LogReaders {
        LogReaders {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Removes every entry above `index`, durably. `index` must lie between the last purged and the
    /// last index.
    pub fn truncate_after(&mut self, index: LogIndex) -> Result<(), StoreError> {
        self.writable()?;
        let (low, high) = (self.start.purged_index, self.last_index);
        let Some(term) = self.term_at(index) else {
            let what = "the index of a truncation";
            return Err(StoreError::IndexOutOfRange {
                what,
                index: index.0,
                low,
                high,
            });
        };
        if index.0 == self.last_index {
            return Ok(());
        }
        if self.open_mark_due {
            self.write_open_mark()?;
        }
        self.ensure_space(SECTOR_BYTES, SECTOR_BYTES)?;
        let epoch = self.epoch + 1;
        let batch = BatchFields {
            kind: Kind::Truncate,
            index: index.0,
            term,
            epoch,
            count: 0,
        };
        self.write_batch(&batch, &[], 0)?;
        self.epoch = epoch;
        self.last_index = index.0;
        self.last_term = term;
        self.durable_index = self.durable_index.min(index.0);
        self.shared.write().truncate(index.0, self.sequence);
        self.shared.raise_generation();
        self.segment.set_end(self.position);
        self.sync()
    }

    /// Purges every entry up to `index`, which must lie between the last purged and the last
    /// durable index. Removes files that contain only purged entries. The caller must have a
    /// durable snapshot that covers these entries.
    pub fn purge_through(&mut self, index: LogIndex) -> Result<(), StoreError> {
        self.writable()?;
        let (low, high) = (self.start.purged_index, self.durable_index);
        let term = self.term_at(index).filter(|_| index.0 <= high);
        let Some(term) = term else {
            let what = "the index of a purge";
            return Err(StoreError::IndexOutOfRange {
                what,
                index: index.0,
                low,
                high,
            });
        };
        if index.0 == low {
            return Ok(());
        }
        let (count, first_sequence) = {
            let view = self.shared.read();
            let count = view.purgeable(index.0);
            let first = view
                .segments
                .get(count)
                .map(|segment| segment.header.first_sequence);
            (count, first.unwrap_or(self.start.first_sequence))
        };
        let start = StartMark {
            first_sequence,
            purged_index: index.0,
            purged_term: term,
            generation: self.start.generation + 1,
            ..self.start
        };
        self.poison_on_failure(|log| write_start(&*log.disk, &start))?;
        self.start = start;
        let removed = {
            let mut view = self.shared.write();
            view.purged_index = index.0;
            view.purged_term = term;
            view.drop_front(count)
        };
        self.remove_segments(&removed)
    }

    /// Highest index up to `limit` that a purge can remove while it retains the newest `keep_bytes`
    /// bytes of segments. `None` if no segment would be removed.
    pub fn purgeable_through(&self, limit: LogIndex, keep_bytes: u64) -> Option<LogIndex> {
        let view = self.shared.read();
        let mut kept_bytes = 0;
        let mut through = 0;
        for (age, segment) in view.segments.iter().rev().enumerate() {
            if age > 0 && kept_bytes >= keep_bytes {
                break;
            }
            // The rest of the newest segment is reserved and contains no entry yet.
            kept_bytes += if age == 0 {
                self.position
            } else {
                segment.header.file_bytes
            };
            through = segment.header.next_index - 1;
        }
        let through = through.min(limit.0).min(self.durable_index);
        let removes_segment = through > view.purged_index && view.purgeable(through) > 0;
        removes_segment.then_some(LogIndex(through))
    }

    /// Removes every entry. The next entry will have index `next_index`, after an entry of term
    /// `term`. Used when a snapshot of another node replaces the log.
    pub fn reset(&mut self, next_index: LogIndex, term: u64) -> Result<(), StoreError> {
        self.sync()?;
        let last_index = next_index
            .0
            .checked_sub(1)
            .ok_or(StoreError::IndexOutOfRange {
                what: "the next index of a reset log",
                index: 0,
                low: 1,
                high: u64::MAX,
            })?;
        let sequence = self.sequence + 1;
        let epoch = self.epoch + 1;
        let file_bytes = self.reset_bytes();
        let header = SegmentHeader {
            reset: true,
            first_sequence: sequence,
            next_index: next_index.0,
            last_term: term,
            epoch,
            durable_before: sequence,
            ..self.next_header(file_bytes)
        };
        let mark = BatchHeader {
            durable_before: self.durable_sequence,
            ..mark_header(
                &header,
                Kind::Reset,
                FIRST_POSITION,
                sequence,
                last_index,
                term,
                epoch,
            )
        };
        let bytes = mark.encode(header.salt);
        self.enough_space(file_bytes)?;
        let file = self.poison_on_failure(|log| {
            build_new_segment(&*log.disk, &header, |file, path| {
                file.write_all_at(&mut [IoSlice::new(&bytes)], mark.position)
                    .map_err(StoreError::io(IoVerb::Write, path))
            })
        })?;
        let start = StartMark {
            first_sequence: sequence,
            purged_index: last_index,
            purged_term: term,
            generation: self.start.generation + 1,
            newest_segment: header.segment_id,
            ..self.start
        };
        // The next open completes the reset: an entry that is still appended would be lost.
        write_start(&*self.disk, &start).map_err(|error| self.poison(error))?;
        self.start = start;
        self.enter(header, file);
        self.position = mark.end();
        self.segment.set_end(self.position);
        self.sequence = sequence;
        self.durable_sequence = sequence;
        self.epoch = epoch;
        self.last_index = last_index;
        self.durable_index = last_index;
        self.last_term = term;
        self.last_kind = Some(Kind::Reset);
        let removed = {
            let mut view = self.shared.write();
            view.reset(last_index, term);
            let before = view.segments.len().saturating_sub(1);
            view.drop_front(before)
        };
        self.shared.raise_generation();
        self.remove_segments(&removed)
    }

    /// Size in bytes of the segment that a reset creates.
    fn reset_bytes(&self) -> u64 {
        let first = self.options.segment_bytes_first;
        next_segment_bytes(0, first, self.options.segment_bytes_max, MARK_RESERVE_BYTES)
    }

    /// Bytes that must be free for a reset, including the reserve.
    pub(crate) fn reset_bytes_needed(&self) -> u64 {
        let reserve_bytes = self.options.reserve_bytes;
        self.reset_bytes().saturating_add(reserve_bytes)
    }

    /// Fails with `DiskFull` if there is not enough space for a reset.
    pub(crate) fn check_space_for_reset(&self) -> Result<(), StoreError> {
        self.enough_space(self.reset_bytes())
    }

    /// Proves by a later batch that the existing entries are durable. Called when the log has been
    /// idle. A no-op if no entry was written since the last seal.
    pub fn seal(&mut self) -> Result<(), StoreError> {
        self.sync()?;
        let is_due = self.last_kind.is_some_and(Kind::changes_entries);
        // A seal does not justify a new segment, and must not use the last space for marks.
        let has_space = self.position + MARK_RESERVE_BYTES / 2 <= self.segment.header.file_bytes;
        if !is_due || !has_space {
            return Ok(());
        }
        self.write_mark(Kind::Seal, self.epoch)?;
        self.sync()
    }

    /// Closes the log cleanly: makes everything durable and writes the clean mark.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.sync()?;
        match self.ensure_space(SECTOR_BYTES, SECTOR_BYTES) {
            // All entries are durable. Without the mark, the next open only checks more.
            Err(StoreError::DiskFull { .. }) => return Ok(()),
            Err(error) if error.lacks_descriptors() => return Ok(()),
            result => result?,
        }
        self.write_mark(Kind::Clean, self.epoch)?;
        self.sync()
    }

    /// Counts and sizes.
    pub fn stats(&self) -> LogStats {
        let view = self.shared.read();
        LogStats {
            segments: view.segments.len() as u64,
            bytes: view
                .segments
                .iter()
                .map(|segment| segment.header.file_bytes)
                .sum(),
            ..self.stats
        }
    }
}

/// The fields of a batch that do not depend on its position.
struct BatchFields {
    kind: Kind,
    index: u64,
    term: u64,
    epoch: u64,
    count: u32,
}

impl Log {
    fn writable(&self) -> Result<(), StoreError> {
        match &self.poison {
            None => Ok(()),
            Some(cause) => Err(StoreError::Poisoned {
                cause: Arc::clone(cause),
            }),
        }
    }

    /// Stops all writes permanently; the first cause is stored.
    fn poison(&mut self, error: StoreError) -> StoreError {
        let cause = self.poison.get_or_insert_with(|| error.into_cause());
        StoreError::Poisoned {
            cause: Arc::clone(cause),
        }
    }

    /// Runs `act` and poisons the log if `act` fails. Failures from a lack of space or descriptors,
    /// and failures to open a file, change nothing and do not poison the log.
    fn poison_on_failure<T>(
        &mut self,
        act: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        act(self).map_err(|error| match error {
            StoreError::DiskFull { .. }
            | StoreError::Io {
                verb: IoVerb::Open, ..
            } => error,
            error if error.lacks_descriptors() => error,
            other => self.poison(other),
        })
    }

    fn sync_file(&mut self, file: &Arc<dyn DiskFile>, path: &str) -> Result<(), StoreError> {
        self.stats.syncs += 1;
        let result = file.sync_data().map_err(StoreError::io(IoVerb::Sync, path));
        result.map_err(|error| self.poison(error))
    }

    /// Waits for the background sync, if one is running.
    fn join_background_sync(&mut self) -> Result<(), StoreError> {
        let Some(running) = self.background_sync.take() else {
            return Ok(());
        };
        let result = running
            .thread
            .join()
            .unwrap_or_else(|_| Err(std::io::Error::other("the sync thread panicked")));
        result
            .map_err(StoreError::io(IoVerb::Sync, &running.path))
            .map_err(|error| self.poison(error))?;
        if self.durable_sequence < running.sequence {
            self.durable_sequence = running.sequence;
            self.durable_index = self.durable_index.max(running.index.min(self.last_index));
        }
        Ok(())
    }

    /// Writes one batch at the end and returns its position. Changes only the position and the
    /// sequence of the state of the log.
    fn write_batch(
        &mut self,
        fields: &BatchFields,
        parts: &[&[u8]],
        payload_bytes: u64,
    ) -> Result<u64, StoreError> {
        let segment = Arc::clone(&self.segment);
        let position = self.position;
        let sequence = self.sequence + 1;
        let segment_header = &segment.header;
        let mut header = BatchHeader {
            payload_bytes,
            count: fields.count,
            durable_before: self.durable_sequence,
            payload_crc: crc_parts(parts),
            ..mark_header(
                segment_header,
                fields.kind,
                position,
                sequence,
                fields.index,
                fields.term,
                fields.epoch,
            )
        };
        // Every word of a header has more than one bit set. When sectors are counted, any bytes
        // with at least two set bits can therefore represent the header.
        let stand_in = [u8::MAX; BATCH_HEADER];
        let count = |parts: &[&[u8]]| -> SectorCount {
            count_sectors(std::iter::once(&stand_in[..]).chain(parts.iter().copied()))
        };
        let mut counted = count(parts);
        let mut masked = std::mem::take(&mut self.masked);
        if counted.one_bit > 0 {
            masked = parts.concat();
            for number in 1..=MASKS_TRIED {
                let mask = mask_to_try(segment_header.salt, sequence, number);
                apply_mask(&mut masked, header.mask ^ mask, 0);
                header.mask = mask;
                counted = count(&[&masked]);
                if counted.one_bit == 0 {
                    break;
                }
            }
            self.stats.masked += 1;
        }
        header.zero_sectors = counted.zero;
        let bytes = header.encode(segment_header.salt);
        let end = header.end();
        let stored = [&masked[..]];
        let stored = if header.mask == 0 { parts } else { &stored };
        let result = self.write_slices(&segment, &bytes, stored, position, end, payload_bytes);
        masked.clear();
        self.masked = masked;
        result?;
        self.position = end;
        self.sequence = sequence;
        self.last_kind = Some(fields.kind);
        self.stats.batches += 1;
        self.stats.batch_bytes += end - position;
        Ok(position)
    }

    /// Writes header, payload, padding and, for short batches, zeros ahead, in one call.
    fn write_slices(
        &mut self,
        segment: &SegmentView,
        header: &[u8],
        parts: &[&[u8]],
        position: u64,
        end: u64,
        payload_bytes: u64,
    ) -> Result<(), StoreError> {
        let step = self.options.zero_ahead_bytes;
        let is_short = end - position <= step / ZERO_AHEAD_PART;
        let mut written_end = end;
        if !is_short {
            self.ahead_bytes = step / ZERO_AHEAD_PART;
        } else if end > self.zeroed && self.ahead_bytes > 0 {
            written_end = end
                .next_multiple_of(self.ahead_bytes)
                .min(segment.header.file_bytes);
            self.ahead_bytes = (self.ahead_bytes * 2).min(step);
        }
        let mut padding = written_end - position - BATCH_HEADER as u64 - payload_bytes;
        let mut slices = Vec::with_capacity(parts.len() + 3);
        slices.push(IoSlice::new(header));
        slices.extend(parts.iter().map(|part| IoSlice::new(part)));
        while padding > 0 {
            let len = usize::try_from(padding).map_or(ZEROS.len(), |len| len.min(ZEROS.len()));
            slices.push(IoSlice::new(&ZEROS[..len]));
            padding -= len as u64;
        }
        self.stats.writes += 1;
        if let Err(error) = self.file.write_all_at(&mut slices, position) {
            // The contents of the file are unknown now.
            let error = StoreError::io_at(IoVerb::Write, &segment.path, position)(error);
            return Err(self.poison(error));
        }
        self.zeroed = self.zeroed.max(written_end);
        Ok(())
    }

    /// Writes a mark. The caller must have called `ensure_space`.
    fn write_mark(&mut self, kind: Kind, epoch: u64) -> Result<(), StoreError> {
        let (index, term) = (self.last_index, self.last_term);
        self.write_batch(
            &BatchFields {
                kind,
                index,
                term,
                epoch,
                count: 0,
            },
            &[],
            0,
        )?;
        self.epoch = epoch;
        self.segment.set_end(self.position);
        Ok(())
    }

    fn write_open_mark(&mut self) -> Result<(), StoreError> {
        self.ensure_space(SECTOR_BYTES, SECTOR_BYTES)?;
        self.write_mark(Kind::Open, self.epoch + 1)?;
        self.open_mark_due = false;
        self.sync()
    }

    /// Rewrites a mark that is not proven durable, so that a sync covers it.
    fn rewrite_mark(
        &mut self,
        file: &Arc<dyn DiskFile>,
        segment: &SegmentView,
        header: &BatchHeader,
    ) -> Result<(), StoreError> {
        let mut sector = [0; SECTOR];
        sector[..BATCH_HEADER].copy_from_slice(&header.encode(segment.header.salt));
        self.stats.writes += 1;
        self.poison_on_failure(|_| {
            let parts = &mut [IoSlice::new(&sector)];
            let written = file.write_all_at(parts, header.position);
            written.map_err(StoreError::io_at(
                IoVerb::Write,
                &segment.path,
                header.position,
            ))
        })
    }

    /// Ensures that a batch of `extent` bytes and `reserve` more bytes fit into the current
    /// segment. Switches to the next segment if they do not fit.
    fn ensure_space(&mut self, extent: u64, reserve: u64) -> Result<(), StoreError> {
        let end = self.position.saturating_add(extent).saturating_add(reserve);
        if end <= self.segment.header.file_bytes {
            Ok(())
        } else {
            self.roll(extent)
        }
    }

    /// Switches to a new segment, in four steps (`docs/formats/log.md`, section 4).
    fn roll(&mut self, extent: u64) -> Result<(), StoreError> {
        self.join_background_sync()?;
        self.poison_on_failure(|log| check_directory(&*log.disk))?;
        let total = self
            .shared
            .read()
            .segments
            .iter()
            .map(|s| s.header.file_bytes)
            .sum();
        let (first, max) = (
            self.options.segment_bytes_first,
            self.options.segment_bytes_max,
        );
        let marked = extent.saturating_add(MARK_RESERVE_BYTES);
        let least = next_segment_bytes(0, 0, 0, marked);
        let usual = next_segment_bytes(total, first, max, marked);
        let file_bytes = if self.enough_space(usual).is_ok() {
            usual
        } else {
            least
        };
        self.enough_space(file_bytes)?;
        let header = self.next_header(file_bytes);
        let file =
            self.poison_on_failure(|log| build_new_segment(&*log.disk, &header, |_, _| Ok(())))?;
        self.write_mark(Kind::Roll, self.epoch)?;
        if self.options.sync_on_roll {
            self.sync()?;
        } else {
            self.sync_in_background()?;
        }
        self.enter(header, file);
        Ok(())
    }

    /// Starts the sync of the full segment on a separate thread.
    fn sync_in_background(&mut self) -> Result<(), StoreError> {
        let file = Arc::clone(&self.file);
        let spawned = std::thread::Builder::new()
            .name("weir-log-sync".to_owned())
            .spawn(move || file.sync_data());
        let Ok(thread) = spawned else {
            return self.sync();
        };
        self.stats.syncs += 1;
        self.background_sync = Some(BackgroundSync {
            path: self.segment.path.clone(),
            thread,
            sequence: self.sequence,
            index: self.last_index,
        });
        Ok(())
    }

    /// Header of the next segment. The next batch is the roll mark of the current segment.
    fn next_header(&self, file_bytes: u64) -> SegmentHeader {
        SegmentHeader {
            repair: false,
            reset: false,
            store_id: self.segment.header.store_id,
            segment_id: self.next_segment_id,
            first_sequence: self.sequence + 2,
            next_index: self.last_index + 1,
            last_term: self.last_term,
            epoch: self.epoch,
            durable_before: self.durable_sequence,
            file_bytes,
            previous_id: self.segment.header.segment_id,
            salt: self.options.salt(self.next_segment_id),
            previous_salt: self.segment.header.salt,
        }
    }

    /// Continues in a new segment that already has its final name.
    fn enter(&mut self, header: SegmentHeader, file: Arc<dyn DiskFile>) {
        let path = segment::segment_path(header.first_sequence);
        let segment = Arc::new(SegmentView::new(path, header, FIRST_POSITION));
        self.shared.write().segments.push(Arc::clone(&segment));
        self.segment = segment;
        self.file = file;
        self.next_segment_id += 1;
        self.position = FIRST_POSITION;
        self.zeroed = FIRST_POSITION;
        self.stats.segments_created += 1;
    }

    fn enough_space(&self, bytes: u64) -> Result<(), StoreError> {
        let free_bytes = self
            .disk
            .free_bytes()
            .map_err(StoreError::io(IoVerb::Resize, LOG_DIR))?;
        let needed_bytes = bytes.saturating_add(self.options.reserve_bytes);
        if free_bytes < needed_bytes {
            return Err(StoreError::DiskFull {
                needed_bytes,
                free_bytes,
            });
        }
        Ok(())
    }

    fn remove_segments(&mut self, removed: &[Arc<SegmentView>]) -> Result<(), StoreError> {
        if removed.is_empty() {
            return Ok(());
        }
        self.poison_on_failure(|log| {
            for segment in removed {
                log.disk
                    .remove(&segment.path)
                    .map_err(StoreError::io(IoVerb::Remove, &segment.path))?;
            }
            log.disk
                .sync_dir(LOG_DIR)
                .map_err(StoreError::io(IoVerb::Sync, LOG_DIR))
        })
    }
}

fn open_for_writing(
    disk: &dyn Disk,
    segment: &SegmentView,
) -> Result<Arc<dyn DiskFile>, StoreError> {
    disk.open(&segment.path, OpenMode::Write)
        .map_err(StoreError::io(IoVerb::Open, &segment.path))
}

/// A header with only the fields that every mark has.
fn mark_header(
    segment: &SegmentHeader,
    kind: Kind,
    position: u64,
    sequence: u64,
    index: u64,
    term: u64,
    epoch: u64,
) -> BatchHeader {
    BatchHeader {
        kind,
        store_id: segment.store_id,
        segment_id: segment.segment_id,
        position,
        sequence,
        index,
        term,
        epoch,
        payload_bytes: 0,
        durable_before: 0,
        count: 0,
        zero_sectors: 0,
        payload_crc: 0,
        mask: 0,
    }
}
