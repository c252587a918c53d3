//! A directory of a disk as a separate disk. A snapshot of another node is staged in such a
//! directory.

use std::io;
use std::sync::Arc;

use super::{Disk, DiskFile, OpenMode};

/// The directory `dir` of another disk.
#[derive(Debug)]
pub(crate) struct PrefixDisk {
    disk: Arc<dyn Disk>,
    dir: &'static str,
}

impl PrefixDisk {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &'static str) -> Self {
        Self { disk, dir }
    }

    fn path(&self, path: &str) -> String {
        if path.is_empty() {
            self.dir.to_owned()
        } else {
            format!("{}/{path}", self.dir)
        }
    }
}

impl Disk for PrefixDisk {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(&self.path(path), mode)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.disk.list(&self.path(dir))
    }

    fn create_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.create_dir(&self.path(dir))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(&self.path(from), &self.path(to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(&self.path(path))
    }

    fn remove_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.remove_dir(&self.path(dir))
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.sync_dir(&self.path(dir))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }
}
