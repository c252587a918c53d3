//! Determines which files of a log directory are valid (`docs/formats/log.md`, section 7.1).
//!
//! Reads names, the start file and segment headers; changes nothing.

use std::sync::Arc;

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{IoVerb, StoreError};
use crate::log::format::{SEGMENT_HEADER, SegmentHeader, StartMark, Undecodable};
use crate::log::scan::unsupported;
use crate::log::sectors::SECTOR;
use crate::log::segment::{
    BUILDING, LOG_DIR, START_FILE, parse_segment_name, read_block, segment_path,
};

/// A segment file with a valid header that matches its name.
#[derive(Clone, Debug)]
pub(crate) struct SegmentFile {
    pub(crate) path: String,
    pub(crate) header: SegmentHeader,
    pub(crate) len: u64,
}

impl SegmentFile {
    /// Opens the file. Callers close the file after each use: a log may have more segments than a
    /// process may have descriptors.
    pub(crate) fn open(
        &self,
        disk: &dyn Disk,
        mode: OpenMode,
    ) -> Result<Arc<dyn DiskFile>, StoreError> {
        disk.open(&self.path, mode)
            .map_err(StoreError::io(IoVerb::Open, &self.path))
    }
}

/// The files of the log directory, classified.
#[derive(Debug)]
pub(crate) struct Files {
    /// The start file; `None` if the creation of the log was interrupted before it.
    pub(crate) start: Option<StartMark>,
    /// Whether one of the two copies was bad.
    pub(crate) start_has_bad_copy: bool,
    /// Valid segments, ascending.
    pub(crate) segments: Vec<SegmentFile>,
    /// Files to remove if the scan finds no damage: remains of purges and unfinished files.
    pub(crate) leftovers: Vec<String>,
    /// Segments that a repair or reset replaced; removed together with `leftovers`.
    pub(crate) replaced: Vec<String>,
    /// Segments before a reset; removed after `start` was rewritten.
    pub(crate) before_reset: Vec<String>,
    /// A number above every existing segment id.
    pub(crate) next_segment_id: u64,
    /// Highest epoch in any header, including replaced segments.
    pub(crate) epoch_seen: u64,
}

/// Classifies the files of the log directory. `None` if there is no log.
pub(crate) fn classify(disk: &dyn Disk, store_id: &[u8; 16]) -> Result<Option<Files>, StoreError> {
    let names = disk
        .list(LOG_DIR)
        .map_err(StoreError::io(IoVerb::List, LOG_DIR))?;
    let mut leftovers = Vec::new();
    let mut sequences = Vec::new();
    let mut has_start = false;
    for name in &names {
        if name.ends_with(BUILDING) {
            leftovers.push(format!("{LOG_DIR}/{name}"));
        } else if name == "start" {
            has_start = true;
        } else if let Some(sequence) = parse_segment_name(name) {
            sequences.push(sequence);
        }
    }
    if !has_start && sequences.is_empty() {
        return Ok(None);
    }
    let (start, start_has_bad_copy) = if has_start {
        let (mark, must_rewrite) = read_start(disk, store_id)?;
        (Some(mark), must_rewrite)
    } else {
        (None, false)
    };
    let lowest = start.map_or(1, |mark| mark.first_sequence);
    let mut segments = Vec::new();
    let mut ids = std::collections::BTreeSet::new();
    let mut epoch_seen = 0;
    for sequence in sequences {
        if sequence < lowest {
            leftovers.push(segment_path(sequence));
            continue;
        }
        let segment = open_segment(disk, sequence, store_id)?;
        if !ids.insert(segment.header.segment_id) {
            let what = "two segments have equal ids";
            return Err(StoreError::damage(&segment.path, 32, what, sequence));
        }
        epoch_seen = epoch_seen.max(segment.header.epoch);
        segments.push(segment);
    }
    let replaced = remove_replaced(&mut segments);
    let first_found = segments
        .first()
        .map(|segment| segment.header.first_sequence);
    let before_reset = remove_before_reset(&mut segments);
    match first_found {
        Some(first) if first == lowest || !before_reset.is_empty() => {}
        _ => {
            return Err(StoreError::damage(
                &segment_path(lowest),
                0,
                "the first segment is missing",
                lowest,
            ));
        }
    }
    let Some(newest) = ids.last().copied() else {
        unreachable!("a log that has its first segment has a newest one");
    };
    if start.is_some_and(|start| newest < start.newest_segment) {
        let what = "the newest segment is missing";
        return Err(StoreError::damage(LOG_DIR, 0, what, 0));
    }
    check_chain(&segments)?;
    Ok(Some(Files {
        start,
        start_has_bad_copy,
        segments,
        leftovers,
        replaced,
        before_reset,
        next_segment_id: newest.saturating_add(1),
        epoch_seen,
    }))
}

/// Reads both copies of the start file. Returns `true` if the file must be rewritten.
pub(crate) fn read_start(
    disk: &dyn Disk,
    store_id: &[u8; 16],
) -> Result<(StartMark, bool), StoreError> {
    let file = disk
        .open(START_FILE, OpenMode::Read)
        .map_err(StoreError::io(IoVerb::Open, START_FILE))?;
    let len = file
        .len()
        .map_err(StoreError::io(IoVerb::Read, START_FILE))?;
    let mut good: Option<StartMark> = None;
    let mut bad = 0;
    let mut differ = false;
    for copy in [0, SECTOR as u64] {
        let decoded = if len >= copy + SECTOR as u64 {
            StartMark::decode(&read_block::<SECTOR>(&*file, START_FILE, copy)?)
        } else {
            Err(Undecodable::Bad)
        };
        match decoded {
            Ok(mark) => {
                differ |= good.is_some_and(|other| other != mark);
                if good.is_none_or(|other| other.generation < mark.generation) {
                    good = Some(mark);
                }
            }
            Err(Undecodable::Bad) => bad += 1,
            Err(other) => return Err(unsupported(START_FILE, copy, other)),
        }
    }
    let Some(mark) = good else {
        return Err(StoreError::damage(
            START_FILE,
            0,
            "both copies of the start file are damaged",
            0,
        ));
    };
    if mark.store_id != *store_id {
        return Err(StoreError::ForeignStore {
            file: START_FILE.to_owned(),
        });
    }
    Ok((mark, differ || bad > 0 || len != 2 * SECTOR as u64))
}

/// Reads the header of a segment and checks it against the name.
pub(crate) fn open_segment(
    disk: &dyn Disk,
    sequence: u64,
    store_id: &[u8; 16],
) -> Result<SegmentFile, StoreError> {
    let path = segment_path(sequence);
    let damage = |position, what| StoreError::damage(&path, position, what, sequence);
    let file = disk
        .open(&path, OpenMode::Read)
        .map_err(StoreError::io(IoVerb::Open, &path))?;
    let len = file.len().map_err(StoreError::io(IoVerb::Read, &path))?;
    if len < SEGMENT_HEADER as u64 {
        return Err(damage(len, "a segment is shorter than its header"));
    }
    let header = match SegmentHeader::decode(&read_block(&*file, &path, 0)?) {
        Ok(header) => header,
        Err(Undecodable::Bad) => return Err(damage(0, "a segment header is not as written")),
        Err(other) => return Err(unsupported(&path, 0, other)),
    };
    if header.store_id != *store_id {
        return Err(StoreError::ForeignStore { file: path });
    }
    if header.first_sequence != sequence {
        return Err(damage(
            40,
            "the name of a segment does not match its header",
        ));
    }
    Ok(SegmentFile { path, header, len })
}

/// Removes from the list all segments before the newest reset, and returns their paths.
fn remove_before_reset(segments: &mut Vec<SegmentFile>) -> Vec<String> {
    let first = segments
        .iter()
        .rposition(|segment| segment.header.reset)
        .unwrap_or(0);
    segments
        .drain(..first)
        .map(|segment| segment.path)
        .collect()
}

/// Removes from the list every segment that follows a later-created segment, and returns their
/// paths.
fn remove_replaced(segments: &mut Vec<SegmentFile>) -> Vec<String> {
    let mut newest = 0;
    let mut replaced = Vec::new();
    segments.retain(|segment| {
        let is_current = segment.header.segment_id > newest;
        newest = newest.max(segment.header.segment_id);
        if !is_current {
            replaced.push(segment.path.clone());
        }
        is_current
    });
    replaced
}

fn check_chain(segments: &[SegmentFile]) -> Result<(), StoreError> {
    for pair in segments.windows(2) {
        let [front, after] = pair else { break };
        if after.header.previous_id != front.header.segment_id
            || after.header.previous_salt != front.header.salt
        {
            return Err(StoreError::damage(
                &after.path,
                88,
                "the previous segment is missing or is a different one",
                after.header.first_sequence,
            ));
        }
        // A repair shortens the previous segment; the scan finds missing bytes.
        if !after.header.repair && front.len != front.header.file_bytes {
            return Err(StoreError::damage(
                &front.path,
                front.len,
                "the length of a segment differs from that at its creation",
                front.header.first_sequence,
            ));
        }
    }
    if let Some(last) = segments.last()
        && last.len != last.header.file_bytes
    {
        return Err(StoreError::damage(
            &last.path,
            last.len,
            "the length of the last segment differs from that at its creation",
            last.header.first_sequence,
        ));
    }
    Ok(())
}
