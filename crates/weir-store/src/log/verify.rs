//! Checks every byte of a log without changing it.
//!
//! An open stops at the first damage. This module continues and lists all damage, even where an
//! open does not read: zeros after a roll mark, the second copy of the start file, cut files.
//! Invariant: this module never writes.

use std::sync::Arc;

use super::format::{CutHeader, FIRST_POSITION, SegmentHeader, StartMark, Undecodable};
use super::reader::LogReaders;
use super::recover::analyse::Analysis;
use super::recover::files::{SegmentFile, classify, open_segment};
use super::scan::{Probe, Window, probe};
use super::sectors::CrcStream;
use super::sectors::{SECTOR, SECTOR_BYTES};
use super::segment::{BUILDING, CUT_DIR, LOG_DIR, START_FILE, parse_segment_name, read_block};
use super::view::Shared;
use crate::disk::{Disk, OpenMode};
use crate::error::{IoVerb, StoreError};

/// Maximum number of findings in a report; further findings are only valid.
const FINDINGS_MAX: usize = 1_000;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSeverity {
    /// Normal after a crash; the next open repairs it.
    Note,
    /// Bytes that are not as written.
    Damage,
}

/// One finding of a verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFinding {
    /// The file.
    pub file: String,
    /// Byte offset in the file.
    pub position: u64,
    /// Description.
    pub what: &'static str,
    /// Severity.
    pub severity: LogSeverity,
}

/// The result of [`verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// All findings, in the order of files.
    pub findings: Vec<LogFinding>,
    /// Findings that are not listed, because there are too many.
    pub left_out: u64,
    /// Segment files read.
    pub segments: u64,
    /// Valid batches read, including marks.
    pub batches: u64,
    /// Bytes of all files read.
    pub bytes: u64,
}

impl VerifyReport {
    /// Whether nothing is damaged.
    pub fn is_sound(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| finding.severity == LogSeverity::Note)
    }

    fn add(&mut self, severity: LogSeverity, file: &str, position: u64, what: &'static str) {
        let finding = LogFinding {
            file: file.to_owned(),
            position,
            what,
            severity,
        };
        let is_same = |other: &LogFinding| other.file == file && other.position == position;
        if self.findings.iter().any(is_same) {
            return;
        }
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
            return;
        }
        self.left_out += 1;
        let mut notes = self.findings.iter_mut();
        let note = notes.find(|finding| finding.severity == LogSeverity::Note);
        if let Some(note) = note.filter(|_| severity == LogSeverity::Damage) {
            *note = finding;
        }
    }

    /// Records an error about content as a finding. Returns other errors.
    fn add_error<T>(&mut self, result: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(StoreError::Damage {
                file,
                position,
                what,
                ..
            }) => {
                self.add(LogSeverity::Damage, &file, position, what);
                Ok(None)
            }
            Err(StoreError::UnknownContent { file, position }) => {
                self.add(
                    LogSeverity::Damage,
                    &file,
                    position,
                    "written by a newer program",
                );
                Ok(None)
            }
            Err(StoreError::NewerFormat { file, .. }) => {
                self.add(LogSeverity::Damage, &file, 0, "has a newer format");
                Ok(None)
            }
            Err(StoreError::ForeignStore { file }) => {
                self.add(LogSeverity::Damage, &file, 0, "belongs to another store");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Reads every file of the log in `disk`. No process may have the log open for writing. Returns an
/// error only if the disk fails.
pub fn verify(disk: &Arc<dyn Disk>, store_id: &[u8; 16]) -> Result<VerifyReport, StoreError> {
    verify_watched(disk, store_id, &mut |_| {})
}

/// Like `verify`; `on_segment` is called with the size in bytes of each checked segment.
pub(crate) fn verify_watched(
    disk: &Arc<dyn Disk>,
    store_id: &[u8; 16],
    on_segment: &mut dyn FnMut(u64),
) -> Result<VerifyReport, StoreError> {
    let disk = &**disk;
    let mut report = VerifyReport::default();
    let files = report.add_error(classify(disk, store_id))?.flatten();
    let mut torn = None;
    if let Some(files) = &files
        && let Some(analysis) = report.add_error(Analysis::to_read(disk, files))?
    {
        torn = analysis.cuts.first().and_then(|cut| {
            let segment = files.segments.get(cut.segment)?;
            report.add(
                LogSeverity::Note,
                &segment.path,
                cut.from,
                "a torn end, which was not acknowledged",
            );
            Some((segment.header.first_sequence, cut.from))
        });
    }
    let valid: Vec<SegmentHeader> = files
        .iter()
        .flat_map(|files| &files.segments)
        .map(|segment| segment.header)
        .collect();
    for name in disk
        .list(LOG_DIR)
        .map_err(StoreError::io(IoVerb::List, LOG_DIR))?
    {
        let path = format!("{LOG_DIR}/{name}");
        if name == "start" {
            check_start(disk, &mut report)?;
        } else if let Some(sequence) = parse_segment_name(&name) {
            if files.is_some() && !valid.iter().any(|header| header.first_sequence == sequence) {
                report.add(
                    LogSeverity::Note,
                    &path,
                    0,
                    "remains of a purge or repair; the next open removes the file",
                );
                continue;
            }
            if let Some(segment) = report.add_error(open_segment(disk, sequence, store_id))? {
                let after = valid.iter().find(|other| other.first_sequence > sequence);
                check_segment(disk, &segment, after, torn, &mut report)?;
                on_segment(segment.len);
            }
        } else if name.ends_with(BUILDING) {
            report.add(
                LogSeverity::Note,
                &path,
                0,
                "an unfinished file; the next open removes it",
            );
        } else {
            report.add(LogSeverity::Note, &path, 0, "not a file of the log");
        }
    }
    for name in disk
        .list(CUT_DIR)
        .map_err(StoreError::io(IoVerb::List, CUT_DIR))?
    {
        check_cut(disk, &format!("{CUT_DIR}/{name}"), &mut report)?;
    }
    Ok(report)
}

/// Returns readers of the entries before the first damage, and that damage. `None` if there is no
/// log.
pub(crate) fn readable(
    disk: &Arc<dyn Disk>,
    store_id: &[u8; 16],
) -> Result<Option<(LogReaders, Option<StoreError>)>, StoreError> {
    let Some(files) = classify(&**disk, store_id)? else {
        return Ok(None);
    };
    let (analysis, damage) = Analysis::to_damage(&**disk, &files)?;
    let readers = LogReaders {
        shared: Arc::new(Shared::new(Arc::clone(disk), analysis.view)),
    };
    Ok(Some((readers, damage)))
}

/// Returns readers of the log as an open would see it. No process may have the log open for
/// writing. Changes nothing; returns `None` if there is no log.
pub fn read_only(
    disk: &Arc<dyn Disk>,
    store_id: &[u8; 16],
) -> Result<Option<LogReaders>, StoreError> {
    let Some(files) = classify(&**disk, store_id)? else {
        return Ok(None);
    };
    let analysis = Analysis::to_read(&**disk, &files)?;
    Ok(Some(LogReaders {
        shared: Arc::new(Shared::new(Arc::clone(disk), analysis.view)),
    }))
}

fn check_start(disk: &dyn Disk, report: &mut VerifyReport) -> Result<(), StoreError> {
    let file = disk
        .open(START_FILE, OpenMode::Read)
        .map_err(StoreError::io(IoVerb::Open, START_FILE))?;
    let len = file
        .len()
        .map_err(StoreError::io(IoVerb::Read, START_FILE))?;
    report.bytes += len;
    if len != 2 * SECTOR_BYTES {
        report.add(
            LogSeverity::Damage,
            START_FILE,
            len,
            "the start file has the wrong length",
        );
        return Ok(());
    }
    let first = StartMark::decode(&read_block::<SECTOR>(&*file, START_FILE, 0)?);
    let second = StartMark::decode(&read_block::<SECTOR>(&*file, START_FILE, SECTOR_BYTES)?);
    for (copy, mark) in [(0, first), (SECTOR_BYTES, second)] {
        if mark == Err(Undecodable::Bad) {
            report.add(
                LogSeverity::Damage,
                START_FILE,
                copy,
                "one copy of the start file is damaged",
            );
        }
    }
    if first.is_ok() && second.is_ok() && first != second {
        report.add(
            LogSeverity::Note,
            START_FILE,
            SECTOR_BYTES,
            "the copies of the start file differ",
        );
    }
    Ok(())
}

/// Reads a segment to its end, continuing after every bad position.
fn check_segment(
    disk: &dyn Disk,
    segment: &SegmentFile,
    after: Option<&SegmentHeader>,
    torn: Option<(u64, u64)>,
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    report.segments += 1;
    report.bytes += segment.len;
    let first = segment.header.first_sequence;
    // One note has reported everything after a torn position.
    let stop = match torn {
        Some((sequence, _)) if sequence < first => return Ok(()),
        Some((sequence, position)) if sequence == first => position,
        _ => u64::MAX,
    };
    let file = segment.open(disk, OpenMode::Read)?;
    let mut window = Window::new(&segment.path, &*file, segment.len);
    let mut position = FIRST_POSITION;
    while position < stop {
        let (what, next) = match probe(&mut window, &segment.header, position)? {
            Probe::Batch(header) => {
                report.batches += 1;
                position = header.end();
                if after.is_some_and(|after| header.sequence + 1 >= after.first_sequence) {
                    break;
                }
                continue;
            }
            Probe::End => return Ok(()),
            Probe::Zero => match window.nonzero_end(position)? {
                None => return Ok(()),
                Some(_) => ("bytes are not zero, or a header is lost", SECTOR_BYTES),
            },
            Probe::BadHeader => ("a batch header is not as written", SECTOR_BYTES),
            Probe::Unsupported(_) => ("written by a newer program", SECTOR_BYTES),
            Probe::TooLong(_) => ("a batch ends after its file", SECTOR_BYTES),
            Probe::BadPayload(header) => ("a payload is not as written", header.end() - position),
            Probe::BadPadding(header) => ("padding is not zero", header.end() - position),
        };
        report.add(LogSeverity::Damage, &segment.path, position, what);
        position = next_header(&mut window, segment, position + next)?;
    }
    // Data after the roll mark, or after the entries that a repair copied.
    if stop == u64::MAX
        && let Some(end) = window.nonzero_end(position)?
    {
        let at = end.saturating_sub(SECTOR_BYTES).max(position);
        if after.is_some_and(|after| after.repair) {
            report.add(
                LogSeverity::Note,
                &segment.path,
                at,
                "bytes that a repair copied to the next segment",
            );
        } else {
            report.add(
                LogSeverity::Damage,
                &segment.path,
                at,
                "bytes after the last batch are not zero",
            );
        }
    }
    Ok(())
}

/// The next position at which a batch of this segment begins, or the end of the file.
fn next_header(
    window: &mut Window<'_>,
    segment: &SegmentFile,
    from: u64,
) -> Result<u64, StoreError> {
    let mut position = from;
    while position < segment.len {
        match probe(window, &segment.header, position)? {
            Probe::Zero | Probe::BadHeader | Probe::Unsupported(_) => position += SECTOR_BYTES,
            _ => return Ok(position),
        }
    }
    Ok(position)
}

fn check_cut(disk: &dyn Disk, path: &str, report: &mut VerifyReport) -> Result<(), StoreError> {
    if path.ends_with(BUILDING) {
        report.add(
            LogSeverity::Note,
            path,
            0,
            "an unfinished file; the next open removes it",
        );
        return Ok(());
    }
    let file = disk
        .open(path, OpenMode::Read)
        .map_err(StoreError::io(IoVerb::Open, path))?;
    let len = file.len().map_err(StoreError::io(IoVerb::Read, path))?;
    report.bytes += len;
    let header = if len < SECTOR_BYTES {
        Err(Undecodable::Bad)
    } else {
        CutHeader::decode(&read_block(&*file, path, 0)?)
    };
    let Ok(header) = header else {
        report.add(
            LogSeverity::Damage,
            path,
            0,
            "the header of a cut file is not as written",
        );
        return Ok(());
    };
    let mut window = Window::new(path, &*file, len);
    let mut sum = CrcStream::new();
    window.pieces(SECTOR_BYTES, len, |_, piece| sum.update(piece))?;
    if header.bytes != len - SECTOR_BYTES || sum.finish() != header.content_crc {
        report.add(
            LogSeverity::Damage,
            path,
            SECTOR_BYTES,
            "a cut file is not as written",
        );
    }
    Ok(())
}
