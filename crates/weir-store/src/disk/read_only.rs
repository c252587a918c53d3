//! A disk that is only read, with a scratch file for new files.
//!
//! [`ReadOnlyDisk`] lets a store replay its log without changing its directory. Topic segments that
//! the replay creates go to one anonymous file in the directory for temporary files, or in memory
//! if that directory cannot be used. The scratch file has no name and disappears when the process
//! ends.
//!
//! Invariant: no call of this module changes the disk below it.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};

use rustix::fs::{MemfdFlags, Mode, OFlags};

use super::{Disk, DiskFile, DiskSpace, OpenMode};

/// Files in this directory can be created; their bytes go to the scratch file.
const SCRATCH_DIR: &str = "topics/";

fn refused() -> io::Error {
    io::ErrorKind::ReadOnlyFilesystem.into()
}

/// A [`Disk`] that only reads another disk, `base`.
#[derive(Debug)]
pub(crate) struct ReadOnlyDisk {
    base: Arc<dyn Disk>,
    scratch: Arc<Scratch>,
    files: Mutex<HashMap<Box<str>, Arc<ScratchFile>>>,
}

impl ReadOnlyDisk {
    pub(crate) fn new(base: Arc<dyn Disk>) -> Self {
        Self {
            base,
            scratch: Arc::default(),
            files: Mutex::default(),
        }
    }
}

impl Disk for ReadOnlyDisk {
    /// Opens files of `base` for reading in every mode.
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut files = self.files.lock();
        if let Some(file) = files.get(path) {
            return Ok(Arc::clone(file) as Arc<dyn DiskFile>);
        }
        if mode != OpenMode::CreateNew {
            drop(files);
            return self.base.open(path, OpenMode::Read);
        }
        if !path.starts_with(SCRATCH_DIR) {
            return Err(refused());
        }
        let file = Arc::new(ScratchFile {
            scratch: Arc::clone(&self.scratch),
            extents: Mutex::default(),
        });
        files.insert(path.into(), Arc::clone(&file));
        Ok(file)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.base.list(dir)
    }

    /// Directories of the scratch file need not be created.
    fn create_dir(&self, dir: &str) -> io::Result<()> {
        if dir.starts_with(SCRATCH_DIR) {
            return Ok(());
        }
        Err(refused())
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Err(refused())
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Err(refused())
    }

    fn remove_dir(&self, _: &str) -> io::Result<()> {
        Err(refused())
    }

    fn sync_dir(&self, _: &str) -> io::Result<()> {
        Err(refused())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.base.free_bytes()
    }

    fn space(&self) -> Option<DiskSpace> {
        self.base.space()
    }

    fn volatile(&self) -> Option<&'static str> {
        self.base.volatile()
    }

    fn is_read_only(&self) -> bool {
        true
    }
}

/// One anonymous file for all written data; the first write creates the file.
#[derive(Debug, Default)]
struct Scratch {
    file: OnceLock<File>,
    /// Length in bytes. The lock also ensures that only one caller creates the file.
    end: Mutex<u64>,
}

impl Scratch {
    /// Appends `parts` and returns the offset at which they start.
    fn append(&self, parts: &[IoSlice<'_>]) -> io::Result<u64> {
        let mut end = self.end.lock();
        let file = if let Some(file) = self.file.get() {
            file
        } else {
            let file = File::from(anonymous_file()?);
            self.file.get_or_init(|| file)
        };
        let begin = *end;
        let mut at = begin;
        for part in parts {
            file.write_all_at(part, at)?;
            at += part.len() as u64;
        }
        *end = at;
        Ok(begin)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let file = self.file.get().ok_or(io::ErrorKind::UnexpectedEof)?;
        file.read_exact_at(buffer, offset)
    }
}

/// A file without a name, on disk if possible.
fn anonymous_file() -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    if let Ok(file) = rustix::fs::open(std::env::temp_dir(), flags, mode) {
        return Ok(file);
    }
    Ok(rustix::fs::memfd_create(
        "weir-read-only",
        MemfdFlags::CLOEXEC,
    )?)
}

/// Bytes of a file that are contiguous in the scratch file.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// Offset in the file.
    at: u64,
    bytes: u64,
    /// Offset in the scratch file.
    scratch_at: u64,
}

/// An append-only file inside the scratch file.
#[derive(Debug)]
struct ScratchFile {
    scratch: Arc<Scratch>,
    /// Ascending, without gaps.
    extents: Mutex<Vec<Extent>>,
}

fn end_of(extents: &[Extent]) -> u64 {
    extents.last().map_or(0, |last| last.at + last.bytes)
}

impl DiskFile for ScratchFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let extents = self.extents.lock();
        let first = extents.partition_point(|extent| extent.at + extent.bytes <= offset);
        let mut ranges = Vec::new();
        let mut missing = buffer.len() as u64;
        let mut at = offset;
        for extent in extents.iter().skip(first) {
            if missing == 0 {
                break;
            }
            let skipped = at - extent.at;
            let bytes = missing.min(extent.bytes - skipped);
            ranges.push((extent.scratch_at + skipped, bytes));
            at += bytes;
            missing -= bytes;
        }
        drop(extents);
        if missing > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut rest = buffer;
        for (start, bytes) in ranges {
            // `bytes` is at most the length of the buffer.
            let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
            let (part, remaining) = rest.split_at_mut(bytes);
            self.scratch.read_exact_at(part, start)?;
            rest = remaining;
        }
        Ok(())
    }

    fn write_all_at(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut extents = self.extents.lock();
        let end = end_of(&extents);
        if offset != end {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let scratch_at = self.scratch.append(parts)?;
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        match extents.last_mut() {
            Some(last) if last.scratch_at + last.bytes == scratch_at => last.bytes += bytes,
            _ => extents.push(Extent {
                at: end,
                bytes,
                scratch_at,
            }),
        }
        Ok(())
    }

    /// A no-op: the file disappears when the process ends.
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(end_of(&self.extents.lock()))
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::disk::FileDisk;

    #[test]
    fn files_share_the_scratch_file_and_the_base_is_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("kept"), b"base").unwrap();
        let disk = ReadOnlyDisk::new(Arc::new(FileDisk::open(directory.path()).unwrap()));
        disk.create_dir("topics/a").unwrap();
        let a = disk.open("topics/a/1", OpenMode::CreateNew).unwrap();
        let b = disk.open("topics/b/1", OpenMode::CreateNew).unwrap();
        let write = |file: &Arc<dyn DiskFile>, at, bytes: &[u8]| {
            file.write_all_at(&mut [IoSlice::new(bytes), IoSlice::new(b"|")], at)
        };
        write(&a, 0, b"one").unwrap();
        write(&a, 4, b"two").unwrap();
        write(&b, 0, b"other").unwrap();
        write(&a, 8, b"three").unwrap();
        assert!(write(&a, 1, b"x").is_err(), "only appends");
        let again = disk.open("topics/a/1", OpenMode::Write).unwrap();
        let mut found = [0; 9];
        again.read_exact_at(&mut found, 2).unwrap();
        assert_eq!(&found, b"e|two|thr");
        assert_eq!((a.len().unwrap(), b.len().unwrap()), (14, 6));
        assert!(a.read_exact_at(&mut [0; 13], 2).is_err());
        let mut found = [0; 4];
        let base = disk.open("kept", OpenMode::Write).unwrap();
        base.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(&found, b"base");
        assert!(base.write_all_at(&mut [IoSlice::new(b"x")], 0).is_err());
        let kind = |result: io::Result<()>| result.unwrap_err().kind();
        let expected = io::ErrorKind::ReadOnlyFilesystem;
        assert_eq!(
            kind(disk.open("x", OpenMode::CreateNew).map(drop)),
            expected
        );
        assert_eq!(kind(disk.remove("kept")), expected);
        assert_eq!(kind(disk.rename("kept", "x")), expected);
        assert_eq!(kind(disk.create_dir("cut")), expected);
        assert_eq!(kind(disk.sync_dir("")), expected);
        let names: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
        assert_eq!(names.len(), 1);
    }
}
