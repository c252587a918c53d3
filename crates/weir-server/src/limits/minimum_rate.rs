//! The rate at which a client must send or receive while it holds part of a memory budget.
//!
//! Invariant: only time spent waiting for the client counts. Code that waits for something else
//! pauses the count.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::ServerConfig;

/// Minimum bytes per second of a connection that holds part of a contended budget.
const LARGE_RATE_MIN: usize = 64 << 10;

/// Deadline of a client that holds part of a budget: it moves with the bytes that were transferred.
#[derive(Debug, Default)]
pub(crate) struct MinimumRate {
    /// Start of the period in which memory is held and the client causes the delay.
    since: Option<Instant>,
    bytes: u64,
}

impl MinimumRate {
    /// Records that this many bytes were transferred.
    pub(crate) fn transferred(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Returns the deadline for more bytes; `None` while no memory is held.
    pub(crate) fn deadline(&mut self, held: bool, config: &ServerConfig) -> Option<Instant> {
        let rate = config.body_rate_min.0.max(LARGE_RATE_MIN);
        if !held {
            *self = Self::default();
            return None;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        let earned = self.bytes.saturating_mul(1000) / (rate as u64);
        Some(since + config.body_rate_after + Duration::from_millis(earned))
    }
}

/// The deadlines of a body that a client sends.
#[derive(Debug, Default)]
pub(crate) struct BodyRate {
    started: Option<Instant>,
    bytes: u64,
    is_required: bool,
    held: MinimumRate,
}

impl BodyRate {
    /// Sets whether the bytes of the body occupy memory that other requests wait for.
    pub(crate) fn set_required(&mut self, required: bool) {
        self.is_required = required;
    }

    /// Records that this many bytes of the body arrived.
    pub(crate) fn arrived(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.held.transferred(bytes);
    }

    /// Returns the deadline for more bytes of the body.
    pub(crate) fn deadline(&mut self, config: &ServerConfig) -> Instant {
        let now = Instant::now();
        let started = *self.started.get_or_insert(now);
        let mut deadline = now + config.body_timeout;
        // The time at which the average rate falls below the minimum.
        if let Some(ms) = (self.bytes * 1000).checked_div(config.body_rate_min.0 as u64) {
            let allowed = Duration::from_millis(ms).max(config.body_rate_after);
            deadline = deadline.min(started + allowed);
        }
        let held = self.held.deadline(self.is_required, config);
        held.map_or(deadline, |held| held.min(deadline))
    }
}
