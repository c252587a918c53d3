//! The interface between the store and a file system.
//!
//! All files of the store are accessed through [`Disk`]. The same log, topic and snapshot code
//! therefore runs on a real directory ([`FileDisk`]) and on a simulated one that cuts power at a
//! chosen sync. Paths are relative to the store directory, with `/` between the parts.
//!
//! Invariant: a disk makes no decisions. It executes a call or returns the error of the operating
//! system; the caller decides whether an error is final.

mod file;
mod prefix;
mod read_only;
#[cfg(feature = "sim")]
mod sim;
mod switched;
mod volatile;

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

use crate::error::{IoVerb, StoreError};

pub use self::file::FileDisk;
pub(crate) use self::prefix::PrefixDisk;
pub(crate) use self::read_only::ReadOnlyDisk;
#[cfg(feature = "sim")]
pub(crate) use self::sim::trusts_payloads;
#[cfg(feature = "sim")]
pub use self::sim::{SimCounts, SimDisk, SimFailure, SimOp, trust_payloads};
pub(crate) use self::switched::SwitchedDisk;
pub use self::volatile::{FileSystem, Survival, file_system, volatile_kind};

/// How [`Disk::open`] opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Read only; the file must exist.
    Read,
    /// Read and write; the file must exist.
    Write,
    /// Read and write; the file must not exist yet.
    CreateNew,
}

/// A directory with the few operations the store needs.
///
/// A created, renamed or removed name is durable only after
/// [`sync_dir`](Disk::sync_dir) of its directory.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Opens `path`.
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    /// Names in `dir` (not paths), in ascending byte order; empty when the
    /// directory does not exist.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;
    /// Creates `dir` and its parents. A no-op if `dir` exists.
    fn create_dir(&self, dir: &str) -> io::Result<()>;
    /// Renames a file, replacing the target.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, dir: &str) -> io::Result<()>;
    /// Makes the names of `dir` durable.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;
    /// Bytes that can still be written.
    fn free_bytes(&self) -> io::Result<u64>;
    /// Fails if the path by which the directory was opened no longer refers to this directory.
    fn check_directory(&self) -> io::Result<()> {
        Ok(())
    }
    /// Kind of the file system, if synced data may be lost in a power cut on it; otherwise `None`.
    fn volatile(&self) -> Option<&'static str> {
        None
    }
    /// Whether this disk only reads files of another process, which may remove them at any time.
    fn is_read_only(&self) -> bool {
        false
    }
    /// The file system and its space; `None` if the disk has no file system.
    fn space(&self) -> Option<DiskSpace> {
        None
    }
}

/// A file system and its space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Name of the file system; `unknown` if Weir does not know its type.
    pub file_system: &'static str,
    /// Bytes that this process may still write.
    pub free_bytes: u64,
    /// Total size in bytes.
    pub total_bytes: u64,
}

/// See [`Disk::check_directory`].
pub(crate) fn check_directory(disk: &dyn Disk) -> Result<(), StoreError> {
    disk.check_directory()
        .map_err(StoreError::io(IoVerb::Find, "the directory of the store"))
}

/// An open file. All offsets and lengths are bytes. Positioned reads and
/// writes may be called from several threads at once.
#[expect(clippy::len_without_is_empty, reason = "a file is not a collection")]
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Fills `buffer` from `offset`; `UnexpectedEof` if the file is shorter.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Like `read_exact_at`, but never waits for a device. Returns whether `buffer` was filled; if
    /// not, the contents of `buffer` are undefined.
    fn try_read_exact_at(&self, buffer: &mut [u8], offset: u64) -> bool {
        let _ = (buffer, offset);
        false
    }
    /// Writes all of `parts` in order, from `offset`. After a failed write, any part of the data
    /// may have been written.
    fn write_all_at(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()>;
    /// Makes the written bytes and the length durable (`fdatasync`).
    fn sync_data(&self) -> io::Result<()>;
    /// Current length.
    fn len(&self) -> io::Result<u64>;
    /// Sets the length; a longer file reads as zeros after its old end.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Reserves space for `len` bytes from the start, reading as zeros, so
    /// that later writes below `len` cannot run out of space.
    fn allocate(&self, len: u64) -> io::Result<()>;
}
