//! Records how far the topic segments were read back from disk and checked.

use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_core::TopicId;

/// Maximum bytes of blocks that a purge reads back while it holds the permit for maintenance. If
/// there are more, a separate thread reads them back before the purge.
pub(crate) const AT_ONCE_BYTES_MAX: u64 = 8 << 20;
/// Maximum bytes that the read-back thread reads in a second.
const BYTES_PER_S: u64 = 64 << 20;

/// The position up to which each topic segment was read back since the store was opened. These
/// positions stay valid: segments are append-only, and segment numbers are never reused.
#[derive(Debug, Default)]
pub(crate) struct ReadBack {
    pub(crate) positions: Mutex<BTreeMap<(TopicId, u32), u64>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl ReadBack {
    /// Runs `work` on a new thread. A no-op if the thread already runs, or after `stop`.
    pub(crate) fn begin(&self, work: impl FnOnce() + Send + 'static) {
        let mut thread = self.thread.lock();
        let is_running = thread.as_ref().is_some_and(|thread| !thread.is_finished());
        if is_running || *self.stopped.lock() {
            return;
        }
        let name = "weir-read-back".to_owned();
        // If the thread cannot start, the log is not purged. The next checkpoint retries.
        *thread = std::thread::Builder::new().name(name).spawn(work).ok();
    }

    /// Limits the rate after `bytes` were read since `start`: blocks while the rate is above
    /// [`BYTES_PER_S`]. Returns `false` if the thread must end.
    pub(crate) fn pause(&self, start: Instant, bytes: u64) -> bool {
        let millis = bytes / (BYTES_PER_S / 1_000);
        let due = start.checked_add(Duration::from_millis(millis));
        let mut stopped = self.stopped.lock();
        loop {
            let left = due.map_or(Duration::MAX, |due| {
                due.saturating_duration_since(Instant::now())
            });
            if *stopped || left.is_zero() {
                return !*stopped;
            }
            self.changed.wait_for(&mut stopped, left);
        }
    }

    /// Stops the thread, and blocks until it ends. [`begin`](Self::begin) is a no-op afterwards.
    pub(crate) fn stop(&self) {
        *self.stopped.lock() = true;
        self.changed.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            drop(thread.join());
        }
    }
}
