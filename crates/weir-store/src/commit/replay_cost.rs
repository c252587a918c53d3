//! Estimates how much the next open would cost, which replays the intentions since the newest
//! snapshot.

use std::time::Duration;

/// Fuel of replayed calls after which a snapshot is due: about 2.5 s on a fast machine.
const FUEL_MAX: u64 = 10_000_000_000;
/// Time of applies and compilations after which a snapshot is due.
const TIME_MAX: Duration = Duration::from_secs(3);
/// Fuel after which a close writes a snapshot: about 0.25 s. Replaying a cheaper history takes no
/// longer than writing a snapshot.
const CLOSE_FUEL_MAX: u64 = 1_000_000_000;
/// Time of applies and compilations after which a close writes a snapshot.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);

/// The cost of a replay of the intentions since the newest snapshot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplayCost {
    /// Fuel that programs used.
    pub(crate) fuel: u64,
    /// Time of all applies, including replays, plus the time to compile the proposed modules.
    pub(crate) time: Duration,
}

impl ReplayCost {
    /// Adds the cost of applied entries.
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
