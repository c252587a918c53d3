//! What the system says about the file system of a store.

use std::io;
use std::path::Path;

/// A file system with its space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileSystem {
    /// Its name; `unknown` for one that is not in the table.
    pub(crate) name: &'static str,
    /// Whether it keeps what is synced: not in memory, not on another machine.
    pub(crate) keeps: bool,
    /// Bytes that this process may still write.
    pub(crate) free_bytes: u64,
    /// Bytes in all.
    pub(crate) total_bytes: u64,
}

/// Magic number, name, and whether a sync there is one of a local disk
/// (linux/magic.h).
const KNOWN: [(u64, &str, bool); 13] = [
    (0xef53, "ext", true),
    (0x5846_5342, "xfs", true),
    (0x9123_683e, "btrfs", true),
    (0x2fc1_2fc1, "zfs", true),
    (0xf2f5_2010, "f2fs", true),
    (0xca45_1a4e, "bcachefs", true),
    (0x794c_7630, "overlay", true),
    (0x6573_5546, "fuse", false),
    (0x0102_1994, "tmpfs", false),
    (0x8584_58f6, "ramfs", false),
    (0x6969, "nfs", false),
    (0xff53_4d42, "cifs", false),
    (0xfe53_4d42, "smb", false),
];

/// The file system of a path that exists.
pub(crate) fn file_system(path: &Path) -> io::Result<FileSystem> {
    let found = rustix::fs::statfs(path)?;
    let magic = u64::try_from(found.f_type).unwrap_or(0) & 0xffff_ffff;
    let space = rustix::fs::statvfs(path)?;
    let known = KNOWN.iter().find(|(number, ..)| *number == magic);
    let (name, keeps) = known.map_or(("unknown", true), |(_, name, keeps)| (*name, *keeps));
    Ok(FileSystem {
        name,
        keeps,
        free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
        total_bytes: space.f_blocks.saturating_mul(space.f_frsize),
    })
}

/// Bytes of the files below a directory; one that goes meanwhile does not count.
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
