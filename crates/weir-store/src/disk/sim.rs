//! A disk in memory that loses power.
//!
//! It keeps for every file what is durable and what is only written, for each
//! 512-byte sector, and for every directory the changes of names that were not
//! synced. [`power_cut`](SimDisk::power_cut) makes one of the disks that could
//! be left: each unsynced sector survives or not on its own, so does each
//! change of a name (in order), so does a changed length. Everything is drawn
//! from a seed; the same seed gives the same disk.
//!
//! Faults are scripted: the n-th write, sync, read or other operation fails in
//! a chosen way. [`cut_at`](SimDisk::cut_at) turns the power off at the n-th
//! operation, so that a test which counted them once can stop at every one.
//!
//! Invariant: outcomes depend on the calls and the seed alone; there is no
//! clock.

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

/// From now on, logs that this thread reads do not compare checksums of payloads: proves
/// that a simulation finds what they are there for.
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

    /// Counts since the disk was made.
    pub fn counts(&self) -> SimCounts {
        self.state().counts
    }

    /// Lets the `nth` operation of kind `op` from now on (1 = the next) fail.
    /// Several may be scripted.
    pub fn fail(&self, op: SimOp, nth: u64, failure: SimFailure) {
        self.state().script(op, nth, failure);
    }

    /// Turns the power off at the operation number `op` of [`SimCounts::ops`]:
    /// a write or change of a name still reaches the volatile part, a sync does
    /// nothing. Every later call fails.
    pub fn cut_at(&self, op: u64) {
        self.state().cut_at = Some(op);
    }

    /// Whether [`cut_at`](Self::cut_at) has struck.
    pub fn is_off(&self) -> bool {
        self.state().off
    }

    /// One of the disks that a power cut at this moment could leave.
    #[must_use]
    pub fn power_cut(&self, seed: u64) -> Self {
        Self {
            state: Arc::new(Mutex::new(self.state().power_cut(seed))),
        }
    }

    /// What a killed process leaves: everything written is still in the page
    /// cache, nothing scripted is left.
    #[must_use]
    pub fn killed(&self) -> Self {
        Self {
            state: Arc::new(Mutex::new(self.state().killed())),
        }
    }

    /// Bytes that fit the disk.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = bytes;
    }

    /// Paths of all files, ascending.
    pub fn files(&self) -> Vec<String> {
        self.state().files()
    }

    /// Content of a file as a process sees it, `None` if it is not there.
    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        self.state().content(path)
    }

    /// Puts a file there, durable, whatever was there before.
    pub fn put(&self, path: &str, content: Vec<u8>) {
        self.state().put(path, content);
    }

    /// Takes a file away, durably.
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

    /// Cuts a file to `len` bytes, durably.
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
    fn read_exact_at_now(&self, buffer: &mut [u8], offset: u64) -> bool {
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
