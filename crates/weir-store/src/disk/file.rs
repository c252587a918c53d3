//! A real directory.
//!
//! All paths are opened relative to one directory descriptor, without
//! following symbolic links. Files are made with mode 0600, directories with
//! 0700. What must never happen here: a retry of a failed sync, or an error
//! turned into silence.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{Disk, DiskFile, OpenMode};

/// Slices handed to the kernel in one call; the usual `IOV_MAX`.
const SLICES_PER_WRITE: usize = 1024;
/// Bytes of zeros written at a time where the file system cannot reserve.
const ZERO_STEP_BYTES: usize = 1 << 20;
const FILE_MODE: Mode = Mode::from_bits_truncate(0o600);
const DIR_MODE: Mode = Mode::from_bits_truncate(0o700);

/// [`Disk`] on a directory of the operating system.
#[derive(Debug)]
pub struct FileDisk {
    root: OwnedFd,
    path: PathBuf,
}

impl FileDisk {
    /// Opens the directory `path`, making it (mode 0700) and its parents if
    /// they are missing.
    pub fn open(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)?;
        let root = rustix::fs::open(
            path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Self {
            root,
            path: path.to_owned(),
        })
    }

    /// The directory as given to [`open`](Self::open).
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
                // Kernels before 5.6 and some sandboxes have no openat2.
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
        Ok(rustix::fs::renameat(&self.root, from, &self.root, to)?)
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
}

#[derive(Debug)]
struct RealFile {
    file: File,
}

impl DiskFile for RealFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
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
    /// For file systems without reservation: what is written is reserved.
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
