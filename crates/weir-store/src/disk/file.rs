//! A [`Disk`] on a real directory.
//!
//! All paths are opened relative to one directory descriptor, without following
//! symbolic links. Files are created with mode 0600, directories with 0700.
//!
//! Invariants:
//! - A failed sync is never retried.
//! - Every error is returned.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, retry_on_intr};

use super::{Disk, DiskFile, OpenMode};
use crate::lock::{DirLock, LOCK_FILE};

/// Maximum number of slices in one write call; the usual `IOV_MAX`.
const SLICES_PER_WRITE: usize = 1024;
/// Bytes of zeros in one write, where the file system cannot reserve space.
const ZERO_STEP_BYTES: usize = 1 << 20;
const FILE_MODE: Mode = Mode::from_bits_truncate(0o600);
const DIR_MODE: Mode = Mode::from_bits_truncate(0o700);

/// [`Disk`] on a directory of the operating system.
#[derive(Debug)]
pub struct FileDisk {
    root: OwnedFd,
    path: PathBuf,
    /// The absolute path of the directory, which stays valid if the working directory changes.
    absolute: PathBuf,
    /// The identity of the lock file that protects the directory.
    lock: OnceLock<FileId>,
}

/// Identifies a file independently of its path: device and inode.
type FileId = (u64, u64);

fn file_id(stat: &rustix::fs::Stat) -> FileId {
    (stat.st_dev, stat.st_ino)
}

/// The directories in which a name is created if `path` is created with its parents.
fn parents_of_missing(path: &Path) -> Vec<PathBuf> {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let parent = |path: &Path| match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    path.ancestors()
        .take_while(is_missing)
        .map(parent)
        .collect()
}

const REPLACED: &str = "it was removed or replaced while the store was open";

impl FileDisk {
    /// Opens the directory `path`. Creates the directory (mode 0700) and its parents, durably, if
    /// they do not exist.
    pub fn open(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let parents = parents_of_missing(path);
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)?;
        for parent in parents {
            match File::open(parent) {
                // A process may create a directory in a directory that it may not read.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                parent => parent?.sync_all()?,
            }
        }
        Self::open_existing(path)
    }

    /// Opens the directory `path`, which must exist.
    pub(crate) fn open_existing(path: &Path) -> io::Result<Self> {
        let root = rustix::fs::open(
            path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Self {
            root,
            path: path.to_owned(),
            absolute: std::path::absolute(path)?,
            lock: OnceLock::new(),
        })
    }

    /// From now on, `check_directory` also requires that the lock file stays in the directory. Without
    /// the lock file, another process could lock a new one.
    pub(crate) fn guard(&self, lock: &DirLock) -> io::Result<()> {
        let id = file_id(&retry_on_intr(|| rustix::fs::fstat(lock.file()))?);
        self.lock.get_or_init(|| id);
        Ok(())
    }

    /// The directory, as passed to [`open`](Self::open).
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn open_at(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let path = if path.is_empty() { "." } else { path };
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = if flags.contains(OFlags::CREATE) {
            FILE_MODE
        } else {
            Mode::empty()
        };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        loop {
            match rustix::fs::openat2(&self.root, path, flags, mode, resolve) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                // Kernels before 5.6 and some sandboxes lack openat2.
                Err(Errno::NOSYS | Errno::PERM) => {
                    return Ok(rustix::fs::openat(&self.root, path, flags, mode)?);
                }
                other => return Ok(other?),
            }
        }
    }
}

impl Disk for FileDisk {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let flags = match mode {
            OpenMode::Read => OFlags::RDONLY,
            OpenMode::Write => OFlags::RDWR,
            OpenMode::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
        };
        Ok(Arc::new(RealFile {
            file: File::from(self.open_at(path, flags)?),
        }))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let fd = match self.open_at(dir, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(fd) => fd,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(fd)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy();
            if name != "." && name != ".." {
                names.push(name.into_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_dir(&self, dir: &str) -> io::Result<()> {
        let mut end = 0;
        loop {
            end = dir[end..].find('/').map_or(dir.len(), |at| end + at);
            if end > 0 {
                match rustix::fs::mkdirat(&self.root, &dir[..end], DIR_MODE) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if end == dir.len() {
                return Ok(());
            }
            end += 1;
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(retry_on_intr(|| {
            rustix::fs::renameat(&self.root, from, &self.root, to)
        })?)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.root, path, AtFlags::empty())?)
    }

    fn remove_dir(&self, dir: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.root, dir, AtFlags::REMOVEDIR)?)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let fd = self.open_at(dir, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(rustix::fs::fsync(fd)?)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstatvfs(&self.root)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn check_directory(&self) -> io::Result<()> {
        let replaced = |error: Errno| match error {
            Errno::NOENT | Errno::NOTDIR => io::Error::new(io::ErrorKind::NotFound, REPLACED),
            other => other.into(),
        };
        let opened = file_id(&retry_on_intr(|| rustix::fs::fstat(&self.root))?);
        let named = retry_on_intr(|| rustix::fs::stat(&self.absolute)).map_err(replaced)?;
        if file_id(&named) != opened {
            return Err(replaced(Errno::NOENT));
        }
        if let Some(lock) = self.lock.get() {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let found = retry_on_intr(|| rustix::fs::statat(&self.root, LOCK_FILE, flags));
            if file_id(&found.map_err(replaced)?) != *lock {
                return Err(replaced(Errno::NOENT));
            }
        }
        Ok(())
    }

    fn volatile(&self) -> Option<&'static str> {
        super::volatile::kind_of(&self.root)
    }

    fn space(&self) -> Option<super::DiskSpace> {
        super::volatile::space_of(&self.root)
    }
}

#[derive(Debug)]
struct RealFile {
    file: File,
}

impl DiskFile for RealFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    #[cfg(target_os = "linux")]
    fn try_read_exact_at(&self, buffer: &mut [u8], offset: u64) -> bool {
        use rustix::io::{ReadWriteFlags, preadv2};
        let mut parts = [IoSliceMut::new(buffer)];
        let mut rest: &mut [IoSliceMut<'_>] = &mut parts;
        let mut offset = offset;
        while !rest.is_empty() {
            match preadv2(&self.file, rest, offset, ReadWriteFlags::NOWAIT) {
                Ok(read) if read > 0 => {
                    offset += read as u64;
                    IoSliceMut::advance_slices(&mut rest, read);
                }
                Err(Errno::INTR) => {}
                // Not in the page cache, not supported, or an error. The blocking read reports an
                // error again.
                Ok(_) | Err(_) => return false,
            }
        }
        true
    }

    fn write_all_at(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut rest: &mut [IoSlice<'_>] = parts;
        let mut offset = offset;
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let now = &rest[..rest.len().min(SLICES_PER_WRITE)];
            match rustix::io::pwritev(&self.file, now, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut rest, written);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        loop {
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, len) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return self.fill_with_zeros(len),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl RealFile {
    /// For file systems that cannot reserve space: writing zeros reserves it.
    fn fill_with_zeros(&self, len: u64) -> io::Result<()> {
        let zeros = vec![0_u8; ZERO_STEP_BYTES];
        let mut at = self.len()?;
        while at < len {
            let step =
                usize::try_from(len - at).map_or(ZERO_STEP_BYTES, |n| n.min(ZERO_STEP_BYTES));
            self.file.write_all_at(&zeros[..step], at)?;
            at += step as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn disk() -> (tempfile::TempDir, FileDisk) {
        let directory = tempfile::tempdir().unwrap();
        let disk = FileDisk::open(directory.path()).unwrap();
        (directory, disk)
    }

    #[test]
    fn more_slices_than_one_write_accepts_are_all_written() {
        let (_directory, disk) = disk();
        let file = disk.open("f", OpenMode::CreateNew).unwrap();
        let bytes: Vec<u8> = (0..10_000_u32)
            .map(|at| (at % 251).to_le_bytes()[0])
            .collect();
        let mut parts: Vec<IoSlice<'_>> = Vec::new();
        for chunk in bytes.chunks(3) {
            parts.push(IoSlice::new(chunk));
            parts.push(IoSlice::new(&[]));
        }
        assert!(parts.len() > 4 * SLICES_PER_WRITE);
        file.write_all_at(&mut parts, 7).unwrap();
        let mut found = vec![1; 10_007];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!((&found[..7], &found[7..]), (&[0; 7][..], &bytes[..]));
        let error = file.read_exact_at(&mut found, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn reserved_bytes_read_as_zeros_and_count_in_the_length() {
        let (_directory, disk) = disk();
        let file = disk.open("f", OpenMode::CreateNew).unwrap();
        file.write_all_at(&mut [IoSlice::new(b"abc")], 0).unwrap();
        file.allocate(5000).unwrap();
        assert_eq!(file.len().unwrap(), 5000);
        let mut found = vec![1; 5000];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found.starts_with(b"abc") && found[3..].iter().all(|byte| *byte == 0));
        // The fallback for a file system that cannot reserve space.
        let file = disk.open("g", OpenMode::CreateNew).unwrap();
        std::fs::write(disk.path().join("h"), b"abc").unwrap();
        drop(file);
        let real = RealFile {
            file: File::options()
                .write(true)
                .read(true)
                .open(disk.path().join("h"))
                .unwrap(),
        };
        real.fill_with_zeros(3 << 20).unwrap();
        assert_eq!(real.len().unwrap(), 3 << 20);
    }

    #[test]
    fn the_parent_of_every_new_directory_is_synced() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let parents = parents_of_missing(&root.join("a/b"));
        assert_eq!(parents, [root.join("a"), root.to_owned()]);
        FileDisk::open(&root.join("a/b")).unwrap();
        assert!(parents_of_missing(&root.join("a/b")).is_empty());
        let relative = parents_of_missing(Path::new("no such directory"));
        assert_eq!(relative, [PathBuf::from(".")]);
    }

    #[test]
    fn symbolic_links_are_not_followed() {
        let (directory, disk) = disk();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), b"x").unwrap();
        std::os::unix::fs::symlink(outside.path(), directory.path().join("dir")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("secret"), directory.path().join("file"))
            .unwrap();
        assert!(disk.open("file", OpenMode::Read).is_err());
        assert!(disk.open("dir/secret", OpenMode::Read).is_err());
        assert!(disk.open("../secret", OpenMode::Read).is_err());
    }

    #[test]
    fn directories_are_created_with_their_parents_and_lists_are_sorted() {
        let (_directory, disk) = disk();
        assert!(disk.list("a/b").unwrap().is_empty());
        disk.create_dir("a/b/c").unwrap();
        disk.create_dir("a/b/c").unwrap();
        for name in ["z", "m", "b"] {
            disk.open(&format!("a/b/{name}"), OpenMode::CreateNew)
                .unwrap();
        }
        disk.rename("a/b/z", "a/b/a").unwrap();
        disk.remove("a/b/m").unwrap();
        disk.sync_dir("a/b").unwrap();
        assert_eq!(disk.list("a/b").unwrap(), ["a", "b", "c"]);
        disk.remove_dir("a/b/c").unwrap();
        assert!(disk.free_bytes().unwrap() > 0);
        let again = disk.open("a/b/a", OpenMode::CreateNew).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    }
}
