//! A cache of open segment files. Its size is bounded, because a store may have more topics than a
//! process may have descriptors.
//!
//! A [`FileCache`] is the disk of a store. If no descriptor is left to open a file of the store,
//! the cache closes some of its files and retries. So the log and snapshots have priority over
//! cached files.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

use crate::disk::{Disk, DiskFile, DiskSpace, OpenMode};
use crate::error::lacks_descriptors;

/// Maximum number of cached files.
const OPEN_FILES_MAX: usize = 128;
/// Lower bound of the limit of cached files.
const OPEN_FILES_MIN: usize = 8;
/// The cache may use this fraction (1/4) of the descriptor limit of the process.
const LIMIT_PART: u64 = 4;
/// Time without a shortage of descriptors after which the limit of cached files doubles.
const GROW_AFTER: Duration = Duration::from_mins(1);

/// Opens segment files on demand, and evicts the least recently used one at the limit.
#[derive(Debug)]
pub(crate) struct FileCache {
    disk: Arc<dyn Disk>,
    open: Mutex<OpenFiles>,
    pins: Mutex<Pins>,
    /// Locked while a snapshot of another node replaces all files.
    installing: Mutex<()>,
}

/// Files that are sent to another node. Their removal is deferred.
#[derive(Debug, Default)]
struct Pins {
    next: u64,
    pinned: HashMap<u64, HashSet<String>>,
    deferred: HashSet<String>,
}

impl Pins {
    fn contains(&self, path: &str) -> bool {
        self.pinned.values().any(|paths| paths.contains(path))
    }
}

/// Defers the removal of files until it is dropped.
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
struct OpenFiles {
    files: HashMap<Box<str>, (Arc<dyn DiskFile>, u64)>,
    clock: u64,
    /// Number of replacements of all files. A file that was opened before the last replacement is
    /// not cached.
    generation: u64,
    /// The present limit of cached files.
    files_max: usize,
    /// The limit of cached files without a shortage of descriptors.
    ceiling: usize,
    /// The time of the last shortage, or of the last doubling of `files_max` after it.
    shortage: Option<Instant>,
}

impl OpenFiles {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Evicts the least recently used files until at most `count` are left.
    fn evict_to(&mut self, count: usize) {
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
            .shortage
            .is_some_and(|since| since.elapsed() >= GROW_AFTER)
        {
            self.files_max = self.files_max.saturating_mul(2).min(self.ceiling);
            let grows = self.files_max < self.ceiling;
            self.shortage = grows.then(Instant::now);
        }
    }
}

/// Returns the limit of cached files for a descriptor limit of the process; `None` is unlimited.
fn ceiling(descriptors: Option<u64>) -> usize {
    let part = descriptors.map_or(u64::MAX, |limit| limit / LIMIT_PART);
    let part = usize::try_from(part).unwrap_or(OPEN_FILES_MAX);
    part.clamp(OPEN_FILES_MIN, OPEN_FILES_MAX)
}

impl FileCache {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        let ceiling = ceiling(getrlimit(Resource::Nofile).current);
        let open = OpenFiles {
            files: HashMap::new(),
            clock: 0,
            generation: 0,
            files_max: ceiling,
            ceiling,
            shortage: None,
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
        let (kept, free) = deferred.into_iter().partition(|path| pins.contains(path));
        pins.deferred = kept;
        for path in free {
            // On an error, the next open removes the file.
            if let Err(error) = self.disk.remove(&path) {
                tracing::warn!(%error, path, "cannot remove a file that was sent to another node");
            }
        }
    }

    /// Evicts every file and drops every pin, because the files will be replaced. Failed reads wait
    /// in [`wait_installed`](Self::wait_installed) until the guard is dropped.
    pub(crate) fn begin_install(&self) -> MutexGuard<'_, ()> {
        let guard = self.installing.lock();
        *self.pins.lock() = Pins::default();
        self.evict_all();
        guard
    }

    /// Evicts every file. Files that are being opened at this time are not cached.
    pub(crate) fn evict_all(&self) {
        let mut open = self.open.lock();
        open.generation += 1;
        open.files.clear();
    }

    /// Blocks until a running install has ended.
    pub(crate) fn wait_installed(&self) {
        drop(self.installing.lock());
    }

    /// Returns the disk of the store, which is this cache.
    pub(crate) fn disk(&self) -> &dyn Disk {
        self
    }

    /// Evicts at least half of the files, and lowers the limit. Returns `false` if no file is
    /// cached.
    fn evict_half(&self) -> bool {
        let mut open = self.open.lock();
        if open.files.is_empty() {
            return false;
        }
        let half = open.files.len() / 2;
        open.evict_to(half);
        open.files_max = half.max(OPEN_FILES_MIN);
        open.shortage = Some(Instant::now());
        true
    }

    /// Retries `act` while it fails for lack of descriptors and files can be evicted.
    fn with_eviction<T>(&self, act: impl Fn() -> io::Result<T>) -> io::Result<T> {
        loop {
            match act() {
                Err(error) if lacks_descriptors(&error) && self.evict_half() => {}
                result => return result,
            }
        }
    }

    /// Returns the file, open for reading and writing.
    pub(crate) fn get(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(file) = self.get_open(path) {
            return Ok(file);
        }
        let generation = self.open.lock().generation;
        let file = self.open(path, OpenMode::Write)?;
        self.put_at_generation(path, Arc::clone(&file), Some(generation));
        Ok(file)
    }

    /// Returns the file if it is cached.
    pub(crate) fn get_open(&self, path: &str) -> Option<Arc<dyn DiskFile>> {
        let mut open = self.open.lock();
        let now = open.tick();
        let (file, used) = open.files.get_mut(path)?;
        *used = now;
        Some(Arc::clone(file))
    }

    /// Caches a file that was just created.
    pub(crate) fn put(&self, path: &str, file: Arc<dyn DiskFile>) {
        self.put_at_generation(path, file, None);
    }

    fn put_at_generation(&self, path: &str, file: Arc<dyn DiskFile>, generation: Option<u64>) {
        let mut open = self.open.lock();
        if generation.is_some_and(|generation| generation != open.generation) {
            return;
        }
        open.grow();
        let count = open.files_max - 1;
        open.evict_to(count);
        let now = open.tick();
        open.files.insert(path.into(), (file, now));
    }

    /// Evicts a file, before its removal.
    pub(crate) fn evict(&self, path: &str) {
        self.open.lock().files.remove(path);
    }
}

impl Disk for FileCache {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.with_eviction(|| self.disk.open(path, mode))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.with_eviction(|| self.disk.list(dir))
    }

    fn create_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.create_dir(dir)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut pins = self.pins.lock();
        if pins.contains(path) {
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
        self.with_eviction(|| self.disk.sync_dir(dir))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }

    fn check_directory(&self) -> io::Result<()> {
        self.disk.check_directory()
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
    fn a_cache_uses_a_part_of_the_descriptors() {
        assert_eq!(ceiling(None), OPEN_FILES_MAX);
        assert_eq!(ceiling(Some(1024)), OPEN_FILES_MAX);
        assert_eq!(ceiling(Some(96)), 24);
        assert_eq!(ceiling(Some(12)), OPEN_FILES_MIN);
    }
}
