//! What the next open would pay for the intentions since the newest snapshot.

use std::time::Duration;

/// Fuel of replayed calls after which a snapshot is due: some 2.5 s of a fast
/// machine.
const FUEL_MAX: u64 = 10_000_000_000;
/// Time of applies and compilations after which a snapshot is due.
const TIME_MAX: Duration = Duration::from_secs(3);
/// As `TIME_MAX`, for a store that is closed: fuel of some 0.25 s. A cheap history is
/// replayed, which takes no longer than a snapshot.
const CLOSE_FUEL_MAX: u64 = 1_000_000_000;
/// Time of applies and compilations after which a close writes a snapshot.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);

/// Counted from the newest snapshot on; see the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplayCost {
    /// Fuel that programs used.
    pub(crate) fuel: u64,
    /// Time that applying took, replays included, and that the modules which were proposed take
    /// to compile.
    pub(crate) time: Duration,
}

impl ReplayCost {
    /// More was applied.
    pub(crate) fn add(&mut self, fuel: u64, time: Duration) {
        self.fuel = self.fuel.saturating_add(fuel);
        self.time += time;
    }

    /// Whether a snapshot is due.
    pub(super) fn is_due(&self) -> bool {
        self.fuel > FUEL_MAX || self.time > TIME_MAX
    }

    /// Whether a close writes a snapshot.
    pub(super) fn is_due_at_close(&self) -> bool {
        self.fuel > CLOSE_FUEL_MAX || self.time > CLOSE_TIME_MAX
    }
}
