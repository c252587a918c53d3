//! Creates segment files and the small files of the log directory.
//!
//! A file is written under a name that ends in `.new`, synced and renamed; then its directory is
//! synced. Invariant: a file with its final name was synced.

use std::io::{self, IoSlice};
use std::sync::Arc;

use super::format::{FIRST_POSITION, SegmentHeader, StartMark};
use super::sectors::SECTOR_BYTES;
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{IoVerb, StoreError};

/// Directory of the log.
pub(crate) const LOG_DIR: &str = "log";
/// Directory of the bytes that recovery cut off.
pub(crate) const CUT_DIR: &str = "cut";
/// The start file, which records where the log begins.
pub(crate) const START_FILE: &str = "log/start";
/// Suffix of unfinished files.
pub(crate) const BUILDING: &str = ".new";

/// Path of the segment whose first sequence is `first_sequence`.
pub(crate) fn segment_path(first_sequence: u64) -> String {
    format!("{LOG_DIR}/{first_sequence:020}.log")
}

/// The first sequence in a file name of the log directory.
pub(crate) fn parse_segment_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    if digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        digits.parse().ok()
    } else {
        None
    }
}

/// Whether the error is a lack of space.
pub(crate) fn is_full(error: &StoreError) -> bool {
    match error {
        StoreError::DiskFull { .. } => true,
        StoreError::Io { source, .. } => {
            matches!(
                source.kind(),
                io::ErrorKind::StorageFull
                    | io::ErrorKind::QuotaExceeded
                    | io::ErrorKind::FileTooLarge
            )
        }
        _ => false,
    }
}

/// Creates or replaces `path` atomically. `content` writes into a reserved file, which is then
/// synced and renamed; last, its directory is synced. A failure leaves `path` unchanged, unless
/// only the sync of the directory failed.
pub(crate) fn build_file(
    disk: &dyn Disk,
    path: &str,
    reserve_bytes: u64,
    content: impl FnOnce(&dyn DiskFile, &str) -> Result<(), StoreError>,
) -> Result<Arc<dyn DiskFile>, StoreError> {
    let working = format!("{path}{BUILDING}");
    match disk.remove(&working) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(StoreError::io(IoVerb::Remove, &working)(error));
        }
        _ => {}
    }
    let file = disk
        .open(&working, OpenMode::CreateNew)
        .map_err(StoreError::io(IoVerb::Open, &working))?;
    let written = (|| {
        if reserve_bytes > 0 {
            file.allocate(reserve_bytes)
                .map_err(StoreError::io(IoVerb::Resize, &working))?;
        }
        content(&*file, &working)?;
        file.sync_data()
            .map_err(StoreError::io(IoVerb::Sync, &working))?;
        disk.rename(&working, path)
            .map_err(StoreError::io(IoVerb::Rename, path))
    })();
    if let Err(error) = written {
        // Removing the file frees its space now; otherwise the next open removes it.
        let _ = disk.remove(&working);
        return Err(if is_full(&error) {
            disk_full(disk, reserve_bytes)
        } else {
            error
        });
    }
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    disk.sync_dir(directory)
        .map_err(StoreError::io(IoVerb::Sync, directory))?;
    Ok(file)
}

fn disk_full(disk: &dyn Disk, needed_bytes: u64) -> StoreError {
    StoreError::DiskFull {
        needed_bytes,
        free_bytes: disk.free_bytes().unwrap_or(0),
    }
}

/// Creates the segment that `header` describes. `fill` writes the first batches from offset 4096.
/// Replaces a segment of the same name.
pub(crate) fn build_segment(
    disk: &dyn Disk,
    header: &SegmentHeader,
    fill: impl FnOnce(&dyn DiskFile, &str) -> Result<(), StoreError>,
) -> Result<Arc<dyn DiskFile>, StoreError> {
    let path = segment_path(header.first_sequence);
    build_file(disk, &path, header.file_bytes, |file, building| {
        let bytes = header.encode();
        file.write_all_at(&mut [IoSlice::new(&bytes)], 0)
            .map_err(StoreError::io(IoVerb::Write, building))?;
        fill(file, building)
    })
}

/// Like [`build_segment`], for a name that no valid segment has: a failure may remove the name.
pub(crate) fn build_new_segment(
    disk: &dyn Disk,
    header: &SegmentHeader,
    fill: impl FnOnce(&dyn DiskFile, &str) -> Result<(), StoreError>,
) -> Result<Arc<dyn DiskFile>, StoreError> {
    // Without a descriptor for the directory, its sync did not start. Removing the new name lets
    // the caller retry. If that also fails, recovery removes the name.
    build_segment(disk, header, fill).inspect_err(|error| {
        if error.lacks_descriptors() {
            let _ = disk.remove(&segment_path(header.first_sequence));
        }
    })
}

/// Replaces the start file. On a full disk, overwrites it in place, one copy after the other.
pub(crate) fn write_start(disk: &dyn Disk, mark: &StartMark) -> Result<(), StoreError> {
    let bytes = mark.encode();
    let built = build_file(disk, START_FILE, 0, |file, building| {
        file.write_all_at(&mut [IoSlice::new(&bytes), IoSlice::new(&bytes)], 0)
            .map_err(StoreError::io(IoVerb::Write, building))
    });
    match built {
        Err(StoreError::DiskFull { .. }) => {}
        other => return other.map(drop),
    }
    let file = disk
        .open(START_FILE, OpenMode::Write)
        .map_err(StoreError::io(IoVerb::Open, START_FILE))?;
    for copy in [SECTOR_BYTES, 0] {
        file.write_all_at(&mut [IoSlice::new(&bytes)], copy)
            .map_err(StoreError::io(IoVerb::Write, START_FILE))?;
        file.sync_data()
            .map_err(StoreError::io(IoVerb::Sync, START_FILE))?;
    }
    Ok(())
}

/// Reads a header block. The caller must know that the file is long enough.
pub(crate) fn read_block<const N: usize>(
    file: &dyn DiskFile,
    path: &str,
    position: u64,
) -> Result<[u8; N], StoreError> {
    let mut block = [0; N];
    file.read_exact_at(&mut block, position)
        .map_err(StoreError::io(IoVerb::Read, path))?;
    Ok(block)
}

/// Size in bytes of the next segment, from the total size of the existing segments and the bytes
/// that must fit at once (`extent`).
pub(crate) fn next_segment_bytes(total: u64, first: u64, max: u64, extent: u64) -> u64 {
    let least = FIRST_POSITION.saturating_add(extent).saturating_add(1024);
    total
        .clamp(first.min(max), max)
        .max(least)
        .next_multiple_of(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_names_are_parsed_as_they_are_rendered() {
        assert_eq!(segment_path(7), "log/00000000000000000007.log");
        assert_eq!(parse_segment_name("00000000000000000007.log"), Some(7));
        for bad in [
            "7.log",
            "0000000000000000000x.log",
            "00000000000000000007.log.new",
            "start",
        ] {
            assert_eq!(parse_segment_name(bad), None, "{bad}");
        }
        assert_eq!(parse_segment_name("99999999999999999999.log"), None);
    }

    #[test]
    fn segments_grow_with_the_log_and_fit_the_extent() {
        assert_eq!(next_segment_bytes(0, 4 << 20, 64 << 20, 512), 4 << 20);
        assert_eq!(next_segment_bytes(9 << 20, 4 << 20, 64 << 20, 512), 9 << 20);
        assert_eq!(
            next_segment_bytes(1 << 40, 4 << 20, 64 << 20, 512),
            64 << 20
        );
        assert!(next_segment_bytes(0, 4 << 20, 64 << 20, 80 << 20) > 80 << 20);
    }
}
