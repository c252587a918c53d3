//! A disk in memory that simulates power cuts and failures.
//!
//! For each file, the disk stores the durable content and the unsynced 512-byte sectors. For
//! directories, it stores the changes of names that were not synced.
//! [`power_cut`](SimDisk::power_cut) returns one of the disks that a power cut could leave. Each
//! unsynced sector, each change of a name (in order) and each changed length is independently
//! retained or lost. A seed determines every choice; equal seeds return equal disks.
//!
//! Faults are scripted: the n-th write, sync, read or other operation fails in a chosen way.
//! [`cut_at`](SimDisk::cut_at) turns the power off at the n-th operation. A test that counted the
//! operations once can thus cut the power at each of them.
//!
//! Invariant: outcomes depend only on the calls and the seed; there is no clock.

mod node;
mod state;

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use self::state::{SimCounts, SimFailure, SimOp};

use self::state::State;
use super::{Disk, DiskFile, OpenMode};

thread_local! {
    static TRUSTS_PAYLOADS: Cell<bool> = const { Cell::new(false) };
}

/// From now on, logs that this thread reads skip the comparison of payload checksums. A simulation
/// uses this to prove that it finds the errors which the checksums prevent.
pub fn trust_payloads() {
    TRUSTS_PAYLOADS.set(true);
}

pub(crate) fn trusts_payloads() -> bool {
    TRUSTS_PAYLOADS.get()
}

/// [`Disk`] in memory. Clones share the same disk.
#[derive(Clone, Debug, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl SimDisk {
    /// An empty disk without a limit of space.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts since the disk was created.
    pub fn counts(&self) -> SimCounts {
        self.state().counts
    }

    /// Makes the `nth` operation of kind `op` from now on (1 = the next) fail. Several failures may
    /// be scripted.
    pub fn fail(&self, op: SimOp, nth: u64, failure: SimFailure) {
        self.state().script(op, nth, failure);
    }

    /// Turns the power off at operation number `op` of [`SimCounts::ops`]. A write or change of a
    /// name at this operation still reaches the volatile state; a sync has no effect. Every later
    /// call fails.
    pub fn cut_at(&self, op: u64) {
        self.state().cut_at = Some(op);
    }

    /// Whether [`cut_at`](Self::cut_at) has turned the power off.
    pub fn is_off(&self) -> bool {
        self.state().off
    }

    /// Returns one of the disks that a power cut at this moment could leave.
    #[must_use]
    pub fn power_cut(&self, seed: u64) -> Self {
        Self {
            state: Arc::new(Mutex::new(self.state().power_cut(seed))),
        }
    }

    /// Returns the disk after the process was killed: all writes are still in the page cache, and
    /// scripted faults are removed.
    #[must_use]
    pub fn killed(&self) -> Self {
        Self {
            state: Arc::new(Mutex::new(self.state().killed())),
        }
    }

    /// Sets the capacity of the disk in bytes.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = bytes;
    }

    /// Paths of all files, ascending.
    pub fn files(&self) -> Vec<String> {
        self.state().files()
    }

    /// Content of a file as a process sees it; `None` if the file does not exist.
    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        self.state().content(path)
    }

    /// Creates or replaces a file, durably.
    pub fn put(&self, path: &str, content: Vec<u8>) {
        self.state().put(path, content);
    }

    /// Removes a file durably and returns its content.
    pub fn take(&self, path: &str) -> Option<Vec<u8>> {
        self.state().take(path)
    }

    /// Flips one bit of a file, durably.
    pub fn flip(&self, path: &str, byte: usize, bit: u8) {
        self.state().change(path, |content| {
            if let Some(byte) = content.get_mut(byte) {
                *byte ^= 1 << (bit % 8);
            }
        });
    }

    /// Truncates a file to `len` bytes, durably.
    pub fn shorten(&self, path: &str, len: usize) {
        self.state().change(path, |content| content.truncate(len));
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let node = self.state().open(path, mode)?;
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            node,
        }))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.state().list(dir)
    }

    fn create_dir(&self, dir: &str) -> io::Result<()> {
        self.state().create_dir(dir)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.state().rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.state().remove(path)
    }

    fn remove_dir(&self, dir: &str) -> io::Result<()> {
        self.state().remove_dir(dir)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.state().sync_dir(dir)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.state().free_bytes()
    }
}

/// An open file of a [`SimDisk`].
#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    node: u64,
}

impl DiskFile for SimFile {
    fn try_read_exact_at(&self, buffer: &mut [u8], offset: u64) -> bool {
        self.read_exact_at(buffer, offset).is_ok()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.state().read(self.node, buffer, offset)
    }

    fn write_all_at(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes = parts
            .iter()
            .map(|part| &**part)
            .collect::<Vec<&[u8]>>()
            .concat();
        self.disk.state().write(self.node, &bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.state().sync(self.node)
    }

    fn len(&self) -> io::Result<u64> {
        self.disk.state().len(self.node)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.state().set_len(self.node, len, false)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.disk.state().set_len(self.node, len, true)
    }
}
