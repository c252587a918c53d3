//! A log writer that does not block its callers: a thread writes the lines.
//!
//! A pipe without a reader blocks each thread that writes to it, and reactor threads log too.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Maximum bytes of lines that wait for the thread, and that it writes at a time.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// Lines that this process dropped.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Returns how many log lines this process dropped since its start.
pub fn dropped_lines() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Queues lines for a thread that writes them. Clones share the queue and the thread.
///
/// A line is dropped and counted if 1 MiB of lines is waiting. After the waiting lines, the thread
/// writes a line with the number of dropped lines.
#[derive(Clone, Debug, Default)]
pub struct BufferedLines(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<u8>,
    /// Lines dropped since the thread last took the waiting lines.
    dropped: u64,
    is_writing: bool,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.dropped == 0
    }
}

impl Shared {
    /// Writes the waiting lines, until the process ends.
    fn write_to(&self, mut out: impl Write, gap: fn(u64) -> String) {
        let mut lines = Vec::new();
        loop {
            let mut queue = self.queue.lock();
            self.changed
                .wait_while(&mut queue, |queue| queue.is_empty());
            std::mem::swap(&mut queue.waiting, &mut lines);
            let dropped = std::mem::take(&mut queue.dropped);
            queue.is_writing = true;
            drop(queue);
            if dropped > 0 {
                lines.extend_from_slice(gap(dropped).as_bytes());
            }
            // A failed write to the log must not end the process.
            drop(out.write_all(&lines).and_then(|()| out.flush()));
            lines.clear();
            self.queue.lock().is_writing = false;
            self.changed.notify_all();
        }
    }
}

impl BufferedLines {
    /// Starts the thread, which writes to `out` until the process ends. `gap` formats the line for
    /// a number of dropped lines.
    ///
    /// # Errors
    /// Fails if the system cannot start a thread.
    pub fn start(
        out: impl Write + Send + 'static,
        gap: fn(u64) -> String,
    ) -> std::io::Result<Self> {
        let lines = Self::default();
        let shared = Arc::clone(&lines.0);
        std::thread::Builder::new()
            .name("weir-log".to_owned())
            .spawn(move || shared.write_to(out, gap))?;
        Ok(lines)
    }

    /// Queues a line, which must end with a line feed, or drops it if too many bytes are waiting.
    pub fn push(&self, line: &[u8]) {
        let mut queue = self.0.queue.lock();
        if queue.waiting.len() + line.len() > WAITING_BYTES_MAX {
            queue.dropped += 1;
            DROPPED.fetch_add(1, Ordering::Relaxed);
        } else {
            queue.waiting.extend_from_slice(line);
        }
        drop(queue);
        self.0.changed.notify_all();
    }

    /// Blocks up to `timeout` until all lines are written. Returns whether they are.
    pub fn flush(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut queue = self.0.queue.lock();
        while queue.is_writing || !queue.is_empty() {
            if self.0.changed.wait_until(&mut queue, deadline).timed_out() {
                return false;
            }
        }
        true
    }
}
