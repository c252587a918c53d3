//! Open segment files, a bounded number of them: a store may have more topics
//! than a process may have descriptors.
//!
//! A [`FileCache`] is the disk of a store. When the system has no descriptor for
//! a file of the store, the cache closes files that it could open again, and
//! tries again: the log and snapshots come before what is only kept open.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

use crate::disk::{Disk, DiskFile, DiskSpace, OpenMode};
use crate::error::lacks_descriptors;

/// Segment files that are kept open at most.
const OPEN_FILES_MAX: usize = 128;
/// Segment files that are kept open at least, as long as there are descriptors.
const OPEN_FILES_MIN: usize = 8;
/// The part of the process's limit of descriptors that the cache may use.
const LIMIT_PART: u64 = 4;
/// Time after which a cache that gave files back doubles what it may keep.
const GROW_AFTER: Duration = Duration::from_mins(1);

/// Opens segment files when they are needed and closes the one that was used
/// longest ago when there are too many.
#[derive(Debug)]
pub(crate) struct FileCache {
    disk: Arc<dyn Disk>,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    files: HashMap<Box<str>, (Arc<dyn DiskFile>, u64)>,
    clock: u64,
    /// Files that may be kept now, and when descriptors are short no more.
    files_max: usize,
    ceiling: usize,
    short: Option<Instant>,
}

impl Open {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Closes the files that were used longest ago until `count` are left.
    fn keep(&mut self, count: usize) {
        while self.files.len() > count {
            let oldest = self.files.iter().min_by_key(|(_, (_, used))| *used);
            let Some(path) = oldest.map(|(path, _)| path.clone()) else {
                break;
            };
            self.files.remove(&path);
        }
    }

    fn grow(&mut self) {
        if self
            .short
            .is_some_and(|since| since.elapsed() >= GROW_AFTER)
        {
            self.files_max = self.files_max.saturating_mul(2).min(self.ceiling);
            let grows = self.files_max < self.ceiling;
            self.short = grows.then(Instant::now);
        }
    }
}

/// Files that a cache keeps open in a process with this limit of descriptors.
fn ceiling(descriptors: Option<u64>) -> usize {
    let part = descriptors.map_or(u64::MAX, |limit| limit / LIMIT_PART);
    let part = usize::try_from(part).unwrap_or(OPEN_FILES_MAX);
    part.clamp(OPEN_FILES_MIN, OPEN_FILES_MAX)
}

impl FileCache {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        let ceiling = ceiling(getrlimit(Resource::Nofile).current);
        let open = Open {
            files: HashMap::new(),
            clock: 0,
            files_max: ceiling,
            ceiling,
            short: None,
        };
        Self {
            disk,
            open: Mutex::new(open),
        }
    }

    /// The disk of the store, which is this cache.
    pub(crate) fn disk(&self) -> &dyn Disk {
        self
    }

    /// Closes half of the files, the last one included. False when none is open.
    fn give_back(&self) -> bool {
        let mut open = self.open.lock();
        if open.files.is_empty() {
            return false;
        }
        let half = open.files.len() / 2;
        open.keep(half);
        open.files_max = half.max(OPEN_FILES_MIN);
        open.short = Some(Instant::now());
        true
    }

    /// Repeats `act` while descriptors are short and files can be closed.
    fn frugally<T>(&self, act: impl Fn() -> io::Result<T>) -> io::Result<T> {
        loop {
            match act() {
                Err(error) if lacks_descriptors(&error) && self.give_back() => {}
                result => return result,
            }
        }
    }

    /// The file, opened for reading and writing.
    pub(crate) fn get(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(file) = self.get_open(path) {
            return Ok(file);
        }
        let file = self.open(path, OpenMode::Write)?;
        self.put(path, Arc::clone(&file));
        Ok(file)
    }

    /// The file, if it is open already.
    pub(crate) fn get_open(&self, path: &str) -> Option<Arc<dyn DiskFile>> {
        let mut open = self.open.lock();
        let now = open.tick();
        let (file, used) = open.files.get_mut(path)?;
        *used = now;
        Some(Arc::clone(file))
    }

    /// Keeps a file that was just made.
    pub(crate) fn put(&self, path: &str, file: Arc<dyn DiskFile>) {
        let mut open = self.open.lock();
        open.grow();
        let count = open.files_max - 1;
        open.keep(count);
        let now = open.tick();
        open.files.insert(path.into(), (file, now));
    }

    /// Forgets a file that is removed.
    pub(crate) fn forget(&self, path: &str) {
        self.open.lock().files.remove(path);
    }
}

impl Disk for FileCache {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.frugally(|| self.disk.open(path, mode))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.frugally(|| self.disk.list(dir))
    }

    fn create_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.create_dir(dir)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn remove_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.remove_dir(dir)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.frugally(|| self.disk.sync_dir(dir))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }

    fn check_place(&self) -> io::Result<()> {
        self.disk.check_place()
    }

    fn volatile(&self) -> Option<&'static str> {
        self.disk.volatile()
    }

    fn is_read_only(&self) -> bool {
        self.disk.is_read_only()
    }

    fn space(&self) -> Option<DiskSpace> {
        self.disk.space()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_takes_a_part_of_the_descriptors() {
        assert_eq!(ceiling(None), OPEN_FILES_MAX);
        assert_eq!(ceiling(Some(1024)), OPEN_FILES_MAX);
        assert_eq!(ceiling(Some(96)), 24);
        assert_eq!(ceiling(Some(12)), OPEN_FILES_MIN);
    }
}
