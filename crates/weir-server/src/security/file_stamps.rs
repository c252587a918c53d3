//! Detects whether files have changed since they were read.

use parking_lot::Mutex;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Inode, length and modification time of a file; `None`: no such file.
type Stamp = Option<(u64, u64, i64, i64)>;

/// The stamps of some files, always in one order.
#[derive(Debug, Default)]
pub(super) struct FileStamps(Mutex<Vec<Stamp>>);

impl FileStamps {
    /// Records the current stamps. Call it before reading the files: a change in between is then
    /// detected later, and never missed.
    pub(super) fn record<'p>(&self, paths: impl Iterator<Item = &'p Path>) {
        let now = paths.map(stamp).collect();
        *self.0.lock() = now;
    }

    /// Whether a file has changed.
    pub(super) fn has_changed<'p>(&self, paths: impl Iterator<Item = &'p Path>) -> bool {
        let now: Vec<Stamp> = paths.map(stamp).collect();
        *self.0.lock() != now
    }
}

fn stamp(path: &Path) -> Stamp {
    let found = fs::metadata(path).ok()?;
    Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}
