//! Open segment files, a bounded number of them: a store may have more topics
//! than a process may have descriptors.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::lock_ext::LockExt;

/// Segment files that are kept open at most.
pub(crate) const OPEN_FILES_MAX: usize = 128;

/// Opens segment files when they are needed and closes the one that was used
/// longest ago when there are too many.
#[derive(Debug)]
pub(crate) struct FileCache {
    disk: Arc<dyn Disk>,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    files: HashMap<Box<str>, (Arc<dyn DiskFile>, u64)>,
    clock: u64,
}

impl FileCache {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        Self {
            disk,
            open: Mutex::default(),
        }
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// The file, opened for reading and writing.
    pub(crate) fn get(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut open = self.open.lock_ok();
        open.clock += 1;
        let now = open.clock;
        if let Some((file, used)) = open.files.get_mut(path) {
            *used = now;
            return Ok(Arc::clone(file));
        }
        drop(open);
        let file = self.disk.open(path, OpenMode::Write)?;
        self.put(path, Arc::clone(&file));
        Ok(file)
    }

    /// The file, if it is open already.
    pub(crate) fn get_open(&self, path: &str) -> Option<Arc<dyn DiskFile>> {
        let mut open = self.open.lock_ok();
        open.clock += 1;
        let now = open.clock;
        let (file, used) = open.files.get_mut(path)?;
        *used = now;
        Some(Arc::clone(file))
    }

    /// Keeps a file that was just made.
    pub(crate) fn put(&self, path: &str, file: Arc<dyn DiskFile>) {
        let mut open = self.open.lock_ok();
        if open.files.len() >= OPEN_FILES_MAX {
            let oldest = open.files.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(path) = oldest.map(|(path, _)| path.clone()) {
                open.files.remove(&path);
            }
        }
        open.clock += 1;
        let now = open.clock;
        open.files.insert(path.into(), (file, now));
    }

    /// Forgets a file that is removed.
    pub(crate) fn forget(&self, path: &str) {
        self.open.lock_ok().files.remove(path);
    }
}
