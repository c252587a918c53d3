//! How far the segments of topics were read back from the disk and checked.

use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_core::TopicId;

/// Bytes of blocks that a purge reads back while it holds the permit for maintenance. More are read
/// before, by a thread of their own.
pub(crate) const AT_ONCE_BYTES_MAX: u64 = 8 << 20;
/// Bytes that this thread reads in a second.
const BYTES_PER_S: u64 = 64 << 20;

/// How far each topic segment was read back since the store was opened. A
/// segment is only appended to, and its number is never used again.
#[derive(Debug, Default)]
pub(crate) struct ReadBack {
    pub(crate) marks: Mutex<BTreeMap<(TopicId, u32), u64>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl ReadBack {
    /// Runs `work` on a thread of its own, unless one runs or the store ends.
    pub(crate) fn begin(&self, work: impl FnOnce() + Send + 'static) {
        let mut thread = self.thread.lock();
        let runs = thread.as_ref().is_some_and(|thread| !thread.is_finished());
        if runs || *self.stopped.lock() {
            return;
        }
        let name = "weir-read-back".to_owned();
        // Without a thread the log stays; the next checkpoint tries again.
        *thread = std::thread::Builder::new().name(name).spawn(work).ok();
    }

    /// So many bytes were read since `start`: waits until that was not too fast. Returns whether to
    /// go on.
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

    /// Ends the thread, for good.
    pub(crate) fn stop(&self) {
        *self.stopped.lock() = true;
        self.changed.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            drop(thread.join());
        }
    }
}
