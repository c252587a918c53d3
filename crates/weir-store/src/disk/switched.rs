//! A disk on which the install of a snapshot was begun, as it will be at the end of it.
//!
//! Invariant: no call of this module changes the disk below it.

use std::io;
use std::sync::Arc;

use super::{Disk, DiskFile, DiskSpace, OpenMode};

/// What an install replaces.
const REPLACED: [&str; 2] = ["topics", "snapshots"];

/// A [`Disk`] with staged files in their places, to be read only.
#[derive(Debug)]
pub(crate) struct SwitchedDisk {
    base: Arc<dyn Disk>,
    staged: &'static str,
    /// Whether files of the old state may still be in their places. Otherwise all that are
    /// there were staged before.
    old_remain: bool,
}

impl SwitchedDisk {
    pub(crate) fn new(base: Arc<dyn Disk>, staged: &'static str, old_remain: bool) -> Self {
        Self {
            base,
            staged,
            old_remain,
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
    /// A file is opened for reading in every mode.
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        if mode == OpenMode::CreateNew {
            return Err(refused());
        }
        if let Some(staged) = self.staged_path(path) {
            match self.base.open(&staged, OpenMode::Read) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && !self.old_remain => {}
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
        if !self.old_remain {
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
