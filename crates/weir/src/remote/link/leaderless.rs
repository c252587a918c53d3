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

/// What to do after a refusal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeaderWaitStep {
    /// Connect to the next address.
    pub(super) moves: bool,
    /// Call `on_wait`. At most once in a series.
    pub(super) reports: bool,
}

impl State {
    /// Records a refusal with `NO_LEADER`.
    pub(super) fn leader_missing(&mut self) -> LeaderWaitStep {
        let now = Instant::now();
        let known = self.leader_wait.take();
        let mut wait = known
            .filter(|wait| now - wait.newest < PAUSE_MAX)
            .unwrap_or(LeaderWait {
                since: now,
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

    /// Records that a leader has executed a write.
    pub(super) fn leader_found(&mut self) {
        self.leader_wait = None;
    }
}
