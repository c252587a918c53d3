//! Recovers the log from any state of the directory (`docs/formats/log.md`, section 7).
//!
//! Recovery has two phases. First, it lists and analyses the files without changing anything. Then
//! it acts on the findings, in an order in which a crash at any step leads to the same result
//! at the next open.
//!
//! Invariants:
//! - Nothing is removed before the whole log was read without damage.
//! - Data that may have been acknowledged is never cut.

pub(crate) mod analyse;
pub(crate) mod files;
mod repair;

use std::io;
use std::sync::Arc;

use self::analyse::Analysis;
use self::files::{Files, classify};
use super::format::{Kind, SegmentHeader, StartMark};
use super::options::LogOptions;
use super::segment::{CUT_DIR, LOG_DIR, build_new_segment, next_segment_bytes, write_start};
use crate::disk::{Disk, OpenMode};
use crate::error::{IoVerb, StoreError};

/// Maximum number of repairs. One repair should suffice; the analysis after it checks this.
const REPAIRS_MAX: usize = 2;

/// The findings and actions of an open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that do not depend on each other"
)]
pub struct Recovery {
    /// There was no log, and one was created.
    pub created: bool,
    /// The log was closed cleanly.
    pub clean: bool,
    /// Torn ends that were cut off, in the order of the log.
    pub cuts: Vec<Cut>,
    /// Number of entries that were copied to a new segment because they were not proven durable.
    pub copied_entries: u64,
    /// A repair segment was created.
    pub repaired: bool,
    /// The start file had one bad copy and was rewritten.
    pub start_rewritten: bool,
    /// Number of removed files: remains of purges and repairs, unfinished files,
    /// and expired cut files.
    pub removed_files: u64,
    /// Batches read, including marks.
    pub batches: u64,
    /// Bytes of the batches that were read.
    pub bytes: u64,
}

/// A torn end that recovery cut off. None of its data was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment file.
    pub file: String,
    /// Offset of the bytes in the segment file.
    pub position: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// File that retains the bytes for 7 days, relative to the store directory; `None` if there was
    /// not enough space.
    pub kept_in: Option<String>,
}

/// A recovered directory, before the log writes its open mark.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) analysis: Analysis,
    pub(crate) start: StartMark,
    pub(crate) next_segment_id: u64,
    pub(crate) report: Recovery,
}

/// Recovers the directory so that the log can be read and written.
pub(crate) fn recover(
    disk: &Arc<dyn Disk>,
    store_id: &[u8; 16],
    options: &LogOptions,
) -> Result<Recovered, StoreError> {
    let disk = &**disk;
    let mut report = Recovery::default();
    sync_directories(disk)?;
    for round in 0..=REPAIRS_MAX {
        let Some(files) = classify(disk, store_id)? else {
            if !options.create {
                return Err(StoreError::Missing { what: "log" });
            }
            create(disk, store_id, options)?;
            report.created = true;
            continue;
        };
        let analysis = Analysis::of(disk, &files)?;
        report.batches += analysis.batches;
        report.bytes += analysis.bytes;
        if round == 0 {
            report.clean = analysis.last_kind == Some(Kind::Clean);
        }
        if analysis.needs_repair() {
            if round == REPAIRS_MAX {
                break;
            }
            repair::repair(disk, store_id, options, &files, &analysis, &mut report)?;
            continue;
        }
        let start = tidy(disk, store_id, options, &files, &analysis, &mut report)?;
        return Ok(finish(&files, analysis, start, report));
    }
    Err(StoreError::damage(
        LOG_DIR,
        0,
        "the log is still unrepaired after a repair",
        0,
    ))
}

/// Syncs the directories, because the previous process may have ended between a rename and the sync
/// of its directory. No file name is read before this call.
fn sync_directories(disk: &dyn Disk) -> Result<(), StoreError> {
    for directory in ["", LOG_DIR, CUT_DIR] {
        match disk.sync_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result.map_err(StoreError::io(IoVerb::Sync, directory))?,
        }
    }
    Ok(())
}

/// Creates an empty log: its first segment, then the start file.
fn create(disk: &dyn Disk, store_id: &[u8; 16], options: &LogOptions) -> Result<(), StoreError> {
    disk.create_dir(LOG_DIR)
        .map_err(StoreError::io(IoVerb::Open, LOG_DIR))?;
    disk.sync_dir("")
        .map_err(StoreError::io(IoVerb::Sync, "."))?;
    let header = SegmentHeader {
        repair: false,
        reset: false,
        store_id: *store_id,
        segment_id: 1,
        first_sequence: 1,
        next_index: 1,
        last_term: 0,
        epoch: 1,
        durable_before: 0,
        file_bytes: next_segment_bytes(
            0,
            options.segment_bytes_first,
            options.segment_bytes_max,
            0,
        ),
        previous_id: 0,
        salt: options.salt(1),
        previous_salt: 0,
    };
    build_new_segment(disk, &header, |_, _| Ok(()))?;
    write_start(disk, &first_start(store_id))
}

fn first_start(store_id: &[u8; 16]) -> StartMark {
    StartMark {
        store_id: *store_id,
        first_sequence: 1,
        purged_index: 0,
        purged_term: 0,
        generation: 1,
        newest_segment: 1,
    }
}

/// Completes a purge, reset, repair or creation that an earlier process did not finish.
fn tidy(
    disk: &dyn Disk,
    store_id: &[u8; 16],
    options: &LogOptions,
    files: &Files,
    analysis: &Analysis,
    report: &mut Recovery,
) -> Result<StartMark, StoreError> {
    let mut start = files.start.unwrap_or_else(|| first_start(store_id));
    let moved = analysis
        .reset
        .filter(|sequence| *sequence > start.first_sequence);
    if let Some(first_sequence) = moved {
        start.first_sequence = first_sequence;
        start.purged_index = analysis.view.purged_index;
        start.purged_term = analysis.view.purged_term;
        start.newest_segment = files.next_segment_id - 1;
    }
    if files.start.is_none() || files.start_has_bad_copy || moved.is_some() {
        start.generation += 1;
        write_start(disk, &start)?;
        report.start_rewritten = files.start_has_bad_copy;
    }
    let removable = files
        .leftovers
        .iter()
        .chain(&files.before_reset)
        .chain(&files.replaced);
    let mut removed = 0;
    for path in removable {
        match disk.remove(path) {
            Ok(()) => removed += 1,
            // Writing the start file already replaced the unfinished file of this name.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(StoreError::io(IoVerb::Remove, path)(error)),
        }
    }
    if removed > 0 {
        disk.sync_dir(LOG_DIR)
            .map_err(StoreError::io(IoVerb::Sync, LOG_DIR))?;
    }
    report.removed_files += removed;
    for (number, pair) in files.segments.windows(2).enumerate() {
        let [front, after] = pair else { break };
        let end = analysis.ends.get(number).copied().unwrap_or(front.len);
        if after.header.repair && front.len > end {
            let file = front.open(disk, OpenMode::Write)?;
            file.set_len(end)
                .map_err(StoreError::io(IoVerb::Resize, &front.path))?;
            // This sync only ensures that no invalid bytes remain on disk.
            file.sync_data()
                .map_err(StoreError::io(IoVerb::Sync, &front.path))?;
        }
    }
    report.removed_files += repair::remove_old_cuts(disk, options)?;
    Ok(start)
}

fn finish(files: &Files, analysis: Analysis, start: StartMark, report: Recovery) -> Recovered {
    Recovered {
        analysis,
        start,
        next_segment_id: files.next_segment_id,
        report,
    }
}
