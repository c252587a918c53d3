//! Repairs the end of the log after an unclean stop (`docs/formats/log.md`, section 7.4).
//!
//! Invariant: a repair does not change the old segments. The next round trims them, after the new
//! segment has its final name.

use std::io::IoSlice;
use weir_core::exact::to_usize;

use super::analyse::{Analysis, CutRange};
use super::files::{Files, SegmentFile};
use super::{Cut, Recovery};
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{IoVerb, StoreError};
use crate::log::format::{
    BATCH_HEADER, BatchHeader, CutHeader, FIRST_POSITION, Kind, SegmentHeader, StartMark,
};
use crate::log::options::LogOptions;
use crate::log::scan::{PayloadSum, Window};
use crate::log::sectors::CrcStream;
use crate::log::sectors::{SECTOR, SECTOR_BYTES};
use crate::log::segment::{
    BUILDING, CUT_DIR, build_file, build_segment, next_segment_bytes, read_block, write_start,
};

/// Bytes per write.
const SINK_BYTES: usize = 1 << 20;

/// Saves the bytes that are cut off, then creates the repair segment.
pub(super) fn repair(
    disk: &dyn Disk,
    store_id: &[u8; 16],
    options: &LogOptions,
    files: &Files,
    analysis: &Analysis,
    report: &mut Recovery,
) -> Result<(), StoreError> {
    for range in &analysis.cuts {
        if let Some(segment) = files.segments.get(range.segment) {
            let kept_in = match save_cut(disk, store_id, options, segment, range) {
                Ok(path) => Some(path),
                // Only people use the saved bytes: a failure to save them must not prevent an open.
                Err(StoreError::DiskFull { .. }) => None,
                Err(error) => return Err(error),
            };
            report.cuts.push(Cut {
                file: segment.path.clone(),
                position: range.from,
                bytes: range.to - range.from,
                kept_in,
            });
        }
    }
    let copies = Copies::of(files, analysis, store_id, options);
    let total = files.segments.iter().map(|segment| segment.len).sum();
    let (first, max) = (options.segment_bytes_first, options.segment_bytes_max);
    let usual = next_segment_bytes(total, first, max, copies.extent);
    let least = next_segment_bytes(0, 0, 0, copies.extent);
    let mut header = SegmentHeader {
        file_bytes: usual,
        ..copies.header
    };
    let mut built = build_segment(disk, &header, |file, path| {
        copies.write(disk, files, file, path)
    });
    if matches!(built, Err(StoreError::DiskFull { .. })) {
        header.file_bytes = least;
        built = build_segment(disk, &header, |file, path| {
            copies.write(disk, files, file, path)
        });
    }
    built?;
    report.repaired = true;
    report.copied_entries += copies.entries.len() as u64;
    if let Some(start) = files.start {
        let (generation, newest_segment) = (start.generation + 1, header.segment_id);
        write_start(
            disk,
            &StartMark {
                generation,
                newest_segment,
                ..start
            },
        )?;
    }
    Ok(())
}

/// The batches of a repair segment.
struct Copies {
    header: SegmentHeader,
    /// Index and term of a truncate record that must be first.
    truncate: Option<(u64, u64)>,
    /// Segment number and old header of each entry.
    entries: Vec<(usize, BatchHeader)>,
    /// Total bytes of all batches.
    extent: u64,
}

impl Copies {
    fn of(files: &Files, analysis: &Analysis, store_id: &[u8; 16], options: &LogOptions) -> Self {
        let mut truncate = None;
        let mut keep = analysis.proven_index;
        let mut entries = Vec::new();
        for batch in &analysis.unproven {
            let header = batch.header;
            match header.kind {
                Kind::Truncate if header.index < keep => {
                    keep = header.index;
                    truncate = Some((header.index, header.term));
                }
                Kind::Data if analysis.view.is_valid(header.index, header.sequence) => {
                    entries.push((batch.segment, header));
                }
                _ => {}
            }
        }
        let extents = entries
            .iter()
            .filter_map(|(_, header)| header.extent_bytes());
        let extent = extents.sum::<u64>() + if truncate.is_some() { SECTOR as u64 } else { 0 };
        let first_sequence = analysis.proven + 1;
        // The segment whose name the repair segment gets, or the segment before it.
        let at = files
            .segments
            .partition_point(|segment| segment.header.first_sequence < first_sequence);
        let (previous_id, previous_salt) = match files.segments.get(at) {
            Some(same) if same.header.first_sequence == first_sequence => {
                (same.header.previous_id, same.header.previous_salt)
            }
            _ => at
                .checked_sub(1)
                .and_then(|front| files.segments.get(front))
                .map_or((0, 0), |front| (front.header.segment_id, front.header.salt)),
        };
        let batches = entries.len() as u64 + u64::from(truncate.is_some());
        let header = SegmentHeader {
            repair: true,
            reset: false,
            store_id: *store_id,
            segment_id: files.next_segment_id,
            first_sequence,
            next_index: analysis.proven_index + 1,
            last_term: analysis.proven_term,
            epoch: analysis.epoch_seen + 1,
            durable_before: analysis.proven + batches,
            file_bytes: 0,
            previous_id,
            salt: options.salt(files.next_segment_id),
            previous_salt,
        };
        Self {
            header,
            truncate,
            entries,
            extent,
        }
    }

    fn write(
        &self,
        disk: &dyn Disk,
        files: &Files,
        to: &dyn DiskFile,
        path: &str,
    ) -> Result<(), StoreError> {
        let mut sink = Sink::new(to, path, FIRST_POSITION);
        let salt = self.header.salt;
        let mut sequence = self.header.first_sequence;
        let mut epoch = self.header.epoch;
        let base = self.header.first_sequence - 1;
        if let Some((index, term)) = self.truncate {
            epoch += 1;
            let header = BatchHeader {
                kind: Kind::Truncate,
                store_id: self.header.store_id,
                segment_id: self.header.segment_id,
                position: sink.position(),
                sequence,
                index,
                term,
                epoch,
                payload_bytes: 0,
                durable_before: base,
                count: 0,
                zero_sectors: 0,
                payload_crc: 0,
                mask: 0,
            };
            sink.put(&header.encode(salt))?;
            sink.fill_to(header.end())?;
            sequence += 1;
        }
        let mut entries = self.entries.iter().peekable();
        while let Some(number) = entries.peek().map(|(number, _)| *number) {
            let Some(from) = files.segments.get(number) else {
                break;
            };
            let file = from.open(disk, OpenMode::Read)?;
            let mut window = Window::new(&from.path, &*file, from.len);
            while let Some((_, old)) = entries.next_if(|(at, _)| *at == number) {
                let header = BatchHeader {
                    segment_id: self.header.segment_id,
                    position: sink.position(),
                    sequence,
                    epoch,
                    durable_before: base,
                    ..*old
                };
                sink.put(&header.encode(salt))?;
                copy_payload(from, &mut window, old, &mut sink)?;
                sink.fill_to(header.end())?;
                sequence += 1;
            }
        }
        sink.flush()
    }
}

/// Copies one payload as it is stored, and compares it with its checksum again.
fn copy_payload(
    from: &SegmentFile,
    window: &mut Window<'_>,
    old: &BatchHeader,
    sink: &mut Sink<'_>,
) -> Result<(), StoreError> {
    let begin = old.position + BATCH_HEADER as u64;
    let mut sum = PayloadSum::new(old);
    let mut result = Ok(());
    window.pieces(begin, begin + old.payload_bytes, |_, piece| {
        sum.update(piece);
        if result.is_ok() {
            result = sink.put(piece);
        }
    })?;
    result?;
    if sum.finish() != old.payload_crc {
        let what = "bytes changed while they were copied";
        return Err(StoreError::damage(
            &from.path,
            old.position,
            what,
            old.sequence,
        ));
    }
    Ok(())
}

/// Writes a file sequentially in large pieces.
struct Sink<'a> {
    file: &'a dyn DiskFile,
    path: &'a str,
    /// Offset of the buffer in the file.
    start: u64,
    buffer: Vec<u8>,
}

impl<'a> Sink<'a> {
    fn new(file: &'a dyn DiskFile, path: &'a str, start: u64) -> Self {
        Self {
            file,
            path,
            start,
            buffer: Vec::new(),
        }
    }

    fn position(&self) -> u64 {
        self.start + self.buffer.len() as u64
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= SINK_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Writes zeros up to `position`, which must be less than a sector away.
    fn fill_to(&mut self, position: u64) -> Result<(), StoreError> {
        let Some(missing @ ..SECTOR_BYTES) = position.checked_sub(self.position()) else {
            unreachable!("a batch ends in its last sector");
        };
        let missing = to_usize(missing, "it is less than a sector");
        self.put(&[0; SECTOR][..missing])
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.file
            .write_all_at(&mut [IoSlice::new(&self.buffer)], self.start)
            .map_err(StoreError::io(IoVerb::Write, self.path))?;
        self.start += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// Saves bytes that are cut off in a cut file.
fn save_cut(
    disk: &dyn Disk,
    store_id: &[u8; 16],
    options: &LogOptions,
    segment: &SegmentFile,
    range: &CutRange,
) -> Result<String, StoreError> {
    disk.create_dir(CUT_DIR)
        .map_err(StoreError::io(IoVerb::Open, CUT_DIR))?;
    disk.sync_dir("")
        .map_err(StoreError::io(IoVerb::Sync, "."))?;
    let path = format!(
        "{CUT_DIR}/{:020}-{:020}.cut",
        segment.header.segment_id, range.from
    );
    let bytes = range.to - range.from;
    build_file(disk, &path, 0, |file, building| {
        let source = segment.open(disk, OpenMode::Read)?;
        let mut window = Window::new(&segment.path, &*source, segment.len);
        let mut stream = CrcStream::new();
        let mut result = Ok(());
        window.pieces(range.from, range.to, |at, piece| {
            stream.update(piece);
            let target = at - range.from + SECTOR as u64;
            if result.is_ok() {
                result = file.write_all_at(&mut [IoSlice::new(piece)], target);
            }
        })?;
        result.map_err(StoreError::io(IoVerb::Write, building))?;
        let header = CutHeader {
            store_id: *store_id,
            segment_id: segment.header.segment_id,
            position: range.from,
            bytes,
            created_unix_s: options.now_unix_s,
            content_crc: stream.finish(),
        };
        file.write_all_at(&mut [IoSlice::new(&header.encode())], 0)
            .map_err(StoreError::io(IoVerb::Write, building))
    })?;
    Ok(path)
}

/// Removes expired and unfinished cut files. Retains cut files that cannot be read.
pub(super) fn remove_old_cuts(disk: &dyn Disk, options: &LogOptions) -> Result<u64, StoreError> {
    let names = disk
        .list(CUT_DIR)
        .map_err(StoreError::io(IoVerb::List, CUT_DIR))?;
    let mut removed = 0;
    for name in names {
        let path = format!("{CUT_DIR}/{name}");
        if name.ends_with(BUILDING) || is_old(disk, &path, options) {
            disk.remove(&path)
                .map_err(StoreError::io(IoVerb::Remove, &path))?;
            removed += 1;
        }
    }
    if removed > 0 {
        disk.sync_dir(CUT_DIR)
            .map_err(StoreError::io(IoVerb::Sync, CUT_DIR))?;
    }
    Ok(removed)
}

fn is_old(disk: &dyn Disk, path: &str, options: &LogOptions) -> bool {
    let header = disk
        .open(path, OpenMode::Read)
        .ok()
        .and_then(|file| read_block::<SECTOR>(&*file, path, 0).ok())
        .and_then(|block| CutHeader::decode(&block).ok());
    header.is_some_and(|header| {
        options.now_unix_s.saturating_sub(header.created_unix_s) > options.cut_keep_s
    })
}
