//! The clock of a simulated node.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use weir_store::clock::Clock;

/// 2026-01-01 UTC in milliseconds.
const START_MS: i64 = 1_767_225_600_000;

/// Returns the simulated time that was set last, because the threads of a store cannot read the
/// paused clock of the runtime. Clones share the time.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimClock {
    now_us: Arc<AtomicU64>,
    wall_ahead_ms: Arc<AtomicI64>,
}

impl SimClock {
    pub(crate) fn set(&self, now_us: u64) {
        self.now_us.store(now_us, Ordering::SeqCst);
    }

    /// Sets the wall clock `ahead_ms` milliseconds ahead of the simulated time. Replaces an earlier
    /// jump; the monotonic clock does not jump.
    pub(crate) fn jump(&self, ahead_ms: i64) {
        self.wall_ahead_ms.store(ahead_ms, Ordering::SeqCst);
    }
}

impl Clock for SimClock {
    fn wall_ms(&self) -> u64 {
        let passed = i64::try_from(self.now_us.load(Ordering::SeqCst) / 1_000).unwrap_or(i64::MAX);
        let wall = START_MS + passed + self.wall_ahead_ms.load(Ordering::SeqCst);
        u64::try_from(wall).unwrap_or_default()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.now_us.load(Ordering::SeqCst))
    }
}
