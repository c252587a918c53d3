//! Open segment files, a bounded number of them: a store may have more topics
//! than a process may have descriptors.
//!
//! A [`FileCache`] is the disk of a store. When the system has no descriptor for
//! a file of the store, the cache closes files that it could open again, and
//! tries again: the log and snapshots come before what is only kept open.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
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
    pins: Mutex<Pins>,
    /// Held while a snapshot of another node takes the place of all files.
    installing: Mutex<()>,
}

/// Files that are sent to another node: their removal waits.
#[derive(Debug, Default)]
struct Pins {
    next: u64,
    pinned: HashMap<u64, HashSet<String>>,
    deferred: HashSet<String>,
}

impl Pins {
    fn holds(&self, path: &str) -> bool {
        self.pinned.values().any(|paths| paths.contains(path))
    }
}

/// Keeps files until it is dropped.
#[derive(Debug)]
pub(crate) struct Pin {
    cache: Arc<FileCache>,
    id: u64,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.cache.unpin(self.id);
    }
}

#[derive(Debug)]
struct Open {
    files: HashMap<Box<str>, (Arc<dyn DiskFile>, u64)>,
    clock: u64,
    /// One more with each change of all files: one that was opened before is not kept.
    generation: u64,
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
            generation: 0,
            files_max: ceiling,
            ceiling,
            short: None,
        };
        Self {
            disk,
            open: Mutex::new(open),
            pins: Mutex::default(),
            installing: Mutex::new(()),
        }
    }

    /// Defers the removal of these files until the pin is dropped.
    pub(crate) fn pin(self: &Arc<Self>, paths: HashSet<String>) -> Pin {
        let mut pins = self.pins.lock();
        pins.next += 1;
        let id = pins.next;
        pins.pinned.insert(id, paths);
        let cache = Arc::clone(self);
        Pin { cache, id }
    }

    fn unpin(&self, id: u64) {
        let mut pins = self.pins.lock();
        pins.pinned.remove(&id);
        let deferred = std::mem::take(&mut pins.deferred);
        let (kept, free) = deferred.into_iter().partition(|path| pins.holds(path));
        pins.deferred = kept;
        for path in free {
            // What is left is removed by the next open.
            if let Err(error) = self.disk.remove(&path) {
                tracing::warn!(%error, path, "a file that was sent to another node was not removed");
            }
        }
    }

    /// Closes every file and drops every pin: the files are about to be replaced.
    /// Reads that fail wait until the guard is dropped.
    pub(crate) fn begin_install(&self) -> MutexGuard<'_, ()> {
        let guard = self.installing.lock();
        *self.pins.lock() = Pins::default();
        self.forget_all();
        guard
    }

    /// Closes every file, those that are being opened included.
    pub(crate) fn forget_all(&self) {
        let mut open = self.open.lock();
        open.generation += 1;
        open.files.clear();
    }

    /// Waits for the end of an install, if there is one.
    pub(crate) fn wait_installed(&self) {
        drop(self.installing.lock());
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
        let generation = self.open.lock().generation;
        let file = self.open(path, OpenMode::Write)?;
        self.put_of(path, Arc::clone(&file), Some(generation));
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
        self.put_of(path, file, None);
    }

    fn put_of(&self, path: &str, file: Arc<dyn DiskFile>, generation: Option<u64>) {
        let mut open = self.open.lock();
        if generation.is_some_and(|generation| generation != open.generation) {
            return;
        }
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
        let mut pins = self.pins.lock();
        if pins.holds(path) {
            pins.deferred.insert(path.to_owned());
            return Ok(());
        }
        drop(pins);
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
