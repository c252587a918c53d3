//! Refusals with `NO_LEADER`.
//!
//! A node that was removed from its cluster, or cannot reach the others, refuses writes for ever.
//! A client must not stay at such a node while it knows other addresses.

use std::time::{Duration, Instant};

use super::State;

/// Time with refusals after which the client connects to the next address. An election takes about
/// a second.
const MOVE_AFTER: Duration = Duration::from_secs(1);
/// Time with refusals after which the client reports that it waits.
const REPORT_AFTER: Duration = Duration::from_secs(2);
/// A refusal after a pause of this length begins another wait. A server answers a linear read after
/// 2 s if it has no leader.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A series of refusals, at one address after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaderWait {
    since: Instant,
    newest: Instant,
    /// When the first refusal at the current address arrived.
    here_since: Instant,
    is_reported: bool,
}

impl LeaderWait {
    /// Whether a refusal of a request that was sent at `at` belongs to this series.
    fn lasts_at(&self, at: Instant) -> bool {
        at.saturating_duration_since(self.newest) < PAUSE_MAX
    }
}

/// What to do after a refusal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeaderWaitStep {
    /// Connect to the next address.
    pub(super) moves: bool,
    /// Call `on_wait`. At most once in a series.
    pub(super) reports: bool,
}

impl State {
    /// Records a refusal with `NO_LEADER` on an open connection.
    pub(super) fn leader_missing(&mut self) -> LeaderWaitStep {
        self.leader_missing_since(Instant::now())
    }

    /// Records that a node refused the HELLO of the current attempt with `NO_LEADER`. The node may
    /// have waited for a leader first, so the wait began with the attempt.
    pub(super) fn leader_missing_at_connect(&mut self) -> LeaderWaitStep {
        self.leader_missing_since(self.attempt_since)
    }

    fn leader_missing_since(&mut self, since: Instant) -> LeaderWaitStep {
        let now = Instant::now();
        let known = self.leader_wait.take();
        let mut wait = known
            .filter(|wait| wait.lasts_at(since))
            .unwrap_or(LeaderWait {
                since,
                newest: now,
                here_since: now,
                is_reported: false,
            });
        wait.newest = now;
        let step = LeaderWaitStep {
            moves: now - wait.here_since >= MOVE_AFTER,
            reports: !wait.is_reported && now - wait.since >= REPORT_AFTER,
        };
        if step.moves {
            wait.here_since = now;
        }
        wait.is_reported |= step.reports;
        self.leader_wait = Some(wait);
        step
    }

    /// Records that an address did not respond, which does not end the wait for a leader.
    pub(super) fn continue_leader_wait(&mut self) {
        let attempt_since = self.attempt_since;
        if let Some(wait) = &mut self.leader_wait
            && wait.lasts_at(attempt_since)
        {
            wait.newest = Instant::now();
        }
    }

    /// Records that a leader has executed a write.
    pub(super) fn leader_found(&mut self) {
        self.leader_wait = None;
    }
}
