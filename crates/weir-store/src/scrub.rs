//! The scrub: rereads the whole store at a low rate, to find damage while copies to restore from
//! still exist (IN9).
//!
//! The scrub reports damage in `Stats`, in `Store::damage` and as a log line. It repairs nothing.
//!
//! Invariants:
//!
//! - The scrub writes nothing to the disk.
//! - It holds no lock across a read.
//! - It exceeds the rate by at most one piece (a log entry, a block or a chunk).

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::StoreError;
use crate::finding::{Finding, Severity};
use crate::log::{LogIndex, LogReaders, batch_bytes};
use crate::maintenance_handle::MaintenanceHandle;
use crate::options::Scrub;
use crate::snapshot;
use crate::topic::block::HEADER_BYTES;
use crate::topic::files::{BlockStorage, directory};

/// Maximum number of findings that a round reports and a store remembers.
const DAMAGE_MAX: usize = 1_000;
/// Maximum time between the open and the first round.
const FIRST_AFTER: Duration = Duration::from_mins(10);

/// The report of one round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Number of bytes that were read and checked.
    pub bytes: u64,
    /// Damage and failed reads.
    pub findings: Vec<Finding>,
    /// Whether everything was read; false if the store was closed during the round, or if a file
    /// could not be opened for lack of descriptors.
    pub complete: bool,
}

/// A flag that ends a round.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Blocks until `until`, or until the round must end. Returns `false` if it must end.
    fn wait_until(&self, until: Instant) -> bool {
        let mut stopped = self.stopped.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if *stopped || left.is_zero() {
                return !*stopped;
            }
            self.changed.wait_for(&mut stopped, left);
        }
    }
}

/// The scrub thread, if it runs.
#[derive(Debug, Default)]
pub(crate) struct Scrubber {
    pub(crate) stop: Arc<Stop>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Limits the rate of the reads of a scrub.
struct RateLimiter<'a> {
    stop: &'a Stop,
    bytes_per_s: u64,
    /// The start of the interval for which the rate is computed.
    start: Instant,
    /// Bytes that were read since `start`.
    since_start: u64,
    /// All bytes of the round.
    bytes: u64,
}

/// Returns the time to read `bytes` at a rate.
fn time_for(bytes: u64, bytes_per_s: u64) -> Duration {
    let per_s = u128::from(bytes_per_s.max(1));
    let micros = u128::from(bytes) * 1_000_000 / per_s;
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

impl RateLimiter<'_> {
    /// Counts `bytes` that were read until `now`. Returns the time of the next read; `None` if this
    /// time is beyond the range of the clock.
    fn due_after(&mut self, bytes: u64, now: Instant) -> Option<Instant> {
        self.bytes += bytes;
        let piece = time_for(bytes, self.bytes_per_s);
        let due = self
            .start
            .checked_add(time_for(self.since_start, self.bytes_per_s))
            .and_then(|due| due.checked_add(piece))?;
        if due < now {
            // The disk was slower than the rate. Start a new interval, so that later reads do not
            // exceed the rate to compensate.
            (self.start, self.since_start) = (now, 0);
            return Some(now);
        }
        self.since_start += bytes;
        Some(due)
    }

    /// Counts `bytes` that were read, and blocks while the rate is too high. Returns `false` if the
    /// round must end.
    fn add(&mut self, bytes: u64) -> bool {
        let due = self.due_after(bytes, Instant::now());
        // Without a due time, wait for a day; in practice the store is closed earlier.
        self.stop
            .wait_until(due.unwrap_or(self.start + Duration::from_hours(24)))
    }
}

/// The state of one round.
struct ScrubRound<'a> {
    handle: &'a MaintenanceHandle,
    readers: &'a LogReaders,
    limiter: RateLimiter<'a>,
    findings: Vec<Finding>,
    /// Whether a file could not be opened for lack of descriptors.
    lacks_descriptors: bool,
}

impl ScrubRound<'_> {
    /// Adds the error of a read to the findings. Lack of descriptors is not damage: the round is
    /// then incomplete.
    fn add_error(&mut self, file: &str, error: &StoreError) {
        if error.lacks_descriptors() {
            if !std::mem::replace(&mut self.lacks_descriptors, true) {
                tracing::warn!(%error, file, "the scrub cannot read all files");
            }
            return;
        }
        // Maintenance may have removed the file since it was listed.
        if error.is_missing_file() {
            return;
        }
        let (file, position, what) = match error {
            StoreError::Damage {
                file,
                position,
                what,
                ..
            } => (file.as_str(), *position, (*what).to_owned()),
            other => (file, 0, other.to_string()),
        };
        if self.findings.len() >= DAMAGE_MAX {
            return;
        }
        let (file, severity) = (file.to_owned(), Severity::Damage);
        self.findings.push(Finding {
            severity,
            file,
            position,
            what,
        });
    }

    fn log(&mut self) -> bool {
        let through = LogIndex(self.handle.engine.counters.durable_index.get());
        let mut reader = self.readers.reader(self.readers.first_index());
        loop {
            match reader.next(through) {
                Ok(None) => return true,
                Ok(Some(entry)) => {
                    if !self.limiter.add(batch_bytes(entry.payload.len())) {
                        return false;
                    }
                }
                // The entry was purged meanwhile: continue at the present start of the log.
                Err(StoreError::IndexOutOfRange { .. }) => {
                    reader = self.readers.reader(self.readers.first_index());
                }
                Err(error) => {
                    self.add_error("log", &error);
                    return true;
                }
            }
        }
    }

    fn snapshots(&mut self) -> bool {
        let (disk, store_id) = (&*self.handle.disk, self.handle.engine.identity.store_id);
        let listed = match snapshot::list(disk) {
            Ok(listed) => listed,
            Err(error) => {
                self.add_error(snapshot::DIRECTORY, &error);
                return true;
            }
        };
        for index in listed {
            let mut continues = true;
            let checked = snapshot::check_watched(disk, store_id, index, &mut |bytes| {
                continues = self.limiter.add(bytes);
                continues
            });
            if !continues {
                return false;
            }
            if let Err(error) = checked {
                self.add_error(&snapshot::path(index), &error);
            }
        }
        true
    }

    fn topics(&mut self) -> bool {
        let topics = self.handle.engine.topics.read().clone();
        for files in &topics {
            let blocks = files.contents.read().blocks.clone();
            for block in blocks {
                if matches!(block.storage, BlockStorage::Memory(_)) {
                    continue;
                }
                if let Err(error) = files.check(&block) {
                    // An install replaces the files, also by files with the same paths.
                    files.wait_installed();
                    if !files.is_replaced(&block) {
                        self.add_error(&directory(files.id), &error);
                    }
                }
                if !self
                    .limiter
                    .add(HEADER_BYTES as u64 + u64::from(block.bytes))
                {
                    return false;
                }
            }
        }
        true
    }
}

/// Runs one round, which reads everything once.
pub(crate) fn round(
    handle: &MaintenanceHandle,
    readers: &LogReaders,
    stop: &Stop,
    bytes_per_s: u64,
) -> ScrubReport {
    let limiter = RateLimiter {
        stop,
        bytes_per_s,
        start: Instant::now(),
        since_start: 0,
        bytes: 0,
    };
    let mut round = ScrubRound {
        handle,
        readers,
        limiter,
        findings: Vec::new(),
        lacks_descriptors: false,
    };
    let is_at_end = round.log() && round.snapshots() && round.topics();
    let complete = is_at_end && !round.lacks_descriptors;
    let report = ScrubReport {
        bytes: round.limiter.bytes,
        findings: round.findings,
        complete,
    };
    let engine = &handle.engine;
    engine.counters.scrubbed_bytes.add(report.bytes);
    engine.counters.scrub_rounds.add(u64::from(complete));
    let mut damage = engine.damage.lock();
    for finding in &report.findings {
        let is_same =
            |other: &Finding| (&other.file, other.position) == (&finding.file, finding.position);
        if damage.len() >= DAMAGE_MAX || damage.iter().any(is_same) {
            continue;
        }
        tracing::error!(
            file = finding.file,
            position = finding.position,
            what = finding.what,
            "the scrub found damage"
        );
        engine.counters.damage.add(1);
        damage.push(finding.clone());
    }
    drop(damage);
    report
}

impl Scrubber {
    /// Starts the thread that runs rounds periodically.
    pub(crate) fn start(&self, handle: MaintenanceHandle, readers: LogReaders, scrub: Scrub) {
        let stop = Arc::clone(&self.stop);
        let work = move || {
            let mut due = Instant::now().checked_add(scrub.every.min(FIRST_AFTER));
            while let Some(at) = due {
                if !stop.wait_until(at) {
                    return;
                }
                due = Instant::now().checked_add(scrub.every);
                round(&handle, &readers, &stop, scrub.bytes_per_s);
            }
        };
        let name = "weir-scrub".to_owned();
        // If the thread cannot start, nothing is scrubbed, which the counters show.
        let thread = std::thread::Builder::new().name(name).spawn(work);
        *self.thread.lock() = thread.ok();
    }

    /// Ends the present round and the thread, and blocks until the thread has ended.
    pub(crate) fn stop(&self) {
        *self.stop.stopped.lock() = true;
        self.stop.changed.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_after_a_slow_disk_do_not_exceed_the_rate() {
        let stop = Stop::default();
        let start = Instant::now();
        let mut limiter = RateLimiter {
            stop: &stop,
            bytes_per_s: 1_000,
            start,
            since_start: 0,
            bytes: 0,
        };
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(limiter.due_after(1_000, at(10)), Some(at(1_000)));
        // The disk did not respond for a minute.
        assert_eq!(limiter.due_after(1_000, at(60_000)), Some(at(60_000)));
        assert_eq!(limiter.due_after(1_000, at(60_010)), Some(at(61_000)));
    }

    #[test]
    fn a_rate_gives_the_time_of_a_read() {
        assert_eq!(time_for(8_000_000, 8_000_000), Duration::from_secs(1));
        assert_eq!(time_for(1, u64::MAX), Duration::ZERO);
        assert_eq!(time_for(3, 2), Duration::from_millis(1_500));
        assert!(time_for(u64::MAX, 0) > Duration::from_hours(1));
    }
}
