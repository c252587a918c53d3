//! A view of a disk with an unfinished snapshot install, as the disk will be after the install.
//!
//! Invariant: no call of this module changes the disk below it.

use std::io;
use std::sync::Arc;

use super::{Disk, DiskFile, DiskSpace, OpenMode};

/// Directories that an install replaces.
const REPLACED: [&str; 2] = ["topics", "snapshots"];

/// A read-only [`Disk`] that shows staged files at their final paths.
#[derive(Debug)]
pub(crate) struct SwitchedDisk {
    base: Arc<dyn Disk>,
    staged: &'static str,
    /// Whether files of the old state may still exist at their paths. If not, all files at these
    /// paths were staged.
    old_files_remain: bool,
}

impl SwitchedDisk {
    pub(crate) fn new(base: Arc<dyn Disk>, staged: &'static str, old_files_remain: bool) -> Self {
        Self {
            base,
            staged,
            old_files_remain,
        }
    }

    fn staged_path(&self, path: &str) -> Option<String> {
        let first = path.split('/').next()?;
        let is_replaced = REPLACED.contains(&first);
        is_replaced.then(|| format!("{}/{path}", self.staged))
    }
}

fn refused() -> io::Error {
    io::ErrorKind::ReadOnlyFilesystem.into()
}

impl Disk for SwitchedDisk {
    /// Opens a file for reading in every mode.
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        if mode == OpenMode::CreateNew {
            return Err(refused());
        }
        if let Some(staged) = self.staged_path(path) {
            match self.base.open(&staged, OpenMode::Read) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && !self.old_files_remain => {
                }
                opened => return opened,
            }
        }
        self.base.open(path, OpenMode::Read)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let Some(staged) = self.staged_path(dir) else {
            return self.base.list(dir);
        };
        let mut names = self.base.list(&staged)?;
        if !self.old_files_remain {
            names.extend(self.base.list(dir)?);
            names.sort_unstable();
            names.dedup();
        }
        Ok(names)
    }

    fn create_dir(&self, _: &str) -> io::Result<()> {
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
}
