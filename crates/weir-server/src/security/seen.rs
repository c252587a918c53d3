//! Whether files are other ones than when they were read.

use parking_lot::Mutex;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Number, length and time of change of a file; none: it is not there.
type Stamp = Option<(u64, u64, i64, i64)>;

/// What was seen of some files, always asked about in the same order.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<Vec<Stamp>>);

impl Seen {
    /// Takes them as they are now. To be called before they are read: a change
    /// in between is then noticed later, and never missed.
    pub(super) fn note<'p>(&self, paths: impl Iterator<Item = &'p Path>) {
        let now = paths.map(stamp).collect();
        *self.0.lock() = now;
    }

    /// Whether one of them is another one.
    pub(super) fn has_changed<'p>(&self, paths: impl Iterator<Item = &'p Path>) -> bool {
        let now: Vec<Stamp> = paths.map(stamp).collect();
        *self.0.lock() != now
    }
}

fn stamp(path: &Path) -> Stamp {
    let found = fs::metadata(path).ok()?;
    Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}
