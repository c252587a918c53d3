//! Space of a file system, and sizes of the files of a store.

use std::io;
use std::path::Path;

/// Space of a file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    /// Bytes that this process may still write.
    pub(crate) free_bytes: u64,
    /// Total bytes.
    pub(crate) total_bytes: u64,
}

/// The space of the file system that holds `path`, which must exist.
pub(crate) fn space(path: &Path) -> io::Result<Space> {
    let space = rustix::fs::statvfs(path)?;
    Ok(Space {
        free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
        total_bytes: space.f_blocks.saturating_mul(space.f_frsize),
    })
}

/// Bytes of the files below a directory. A file that is removed during the scan does not count.
pub(crate) fn bytes_below(path: &Path) -> u64 {
    let entries = path.read_dir().into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => bytes_below(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}
