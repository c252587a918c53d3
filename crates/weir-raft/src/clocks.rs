//! The wall clock of a node, bounded by the wall clocks of the other voters.
//!
//! A leader stamps for the whole cluster: with a wall clock that is days ahead, it would expire
//! every lease, id and session. So a node follows its wall clock only up to the time that a
//! majority of the voters, including itself, has reached (docs/operating/clocks.md).
//!
//! Every answer of a peer has the wall clock of that peer. A node was elected by answers of a
//! majority, so a leader knows the clocks of a majority.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use openraft::metrics::RaftServerMetrics;
use openraft::type_config::alias::WatchReceiverOf;
use parking_lot::Mutex;
use weir_store::clock::{Clock, TIME_AHEAD_MS_MAX};

use crate::types::Types;

type ServerMetrics = WatchReceiverOf<Types, RaftServerMetrics<Types>>;

/// The wall clock that a peer reported (0: unknown), and the moment of its answer.
#[derive(Clone, Copy, Debug)]
struct Reading {
    wall_ms: u64,
    at: Duration,
}

/// The clock of the store of a node.
pub(crate) struct VotersClock {
    node: u64,
    own: Arc<dyn Clock>,
    /// The newest reading of each peer.
    readings: Mutex<BTreeMap<u64, Reading>>,
    /// The members; set when the consensus has started.
    metrics: OnceLock<ServerMetrics>,
    /// Whether the wall clock of this node was last seen ahead of a majority.
    is_ahead: AtomicBool,
}

impl fmt::Debug for VotersClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VotersClock").finish_non_exhaustive()
    }
}

impl VotersClock {
    pub(crate) fn new(node: u64, own: Arc<dyn Clock>) -> Self {
        Self {
            node,
            own,
            readings: Mutex::default(),
            metrics: OnceLock::new(),
            is_ahead: AtomicBool::new(false),
        }
    }

    /// Sets the source of the members.
    pub(crate) fn follow(&self, metrics: ServerMetrics) {
        self.metrics.get_or_init(|| metrics);
    }

    /// The wall clock of this node, which answers to peers contain.
    pub(crate) fn own_ms(&self) -> u64 {
        self.own.wall_ms()
    }

    /// Records the wall clock of a peer.
    pub(crate) fn add_reading(&self, peer: u64, wall_ms: u64) {
        let at = self.own.monotonic();
        self.readings.lock().insert(peer, Reading { wall_ms, at });
    }

    /// Milliseconds by which the wall clock of this node is ahead of a majority; 0 if the clocks of
    /// a majority are not known.
    pub(crate) fn ahead_ms(&self) -> u64 {
        let own_ms = self.own.wall_ms();
        self.bound_ms()
            .map_or(0, |bound_ms| own_ms.saturating_sub(bound_ms))
    }

    /// Whether a node votes. Before the members are known, every node may vote.
    pub(crate) fn is_voter(&self, node: u64) -> bool {
        let Some(metrics) = self.metrics.get() else {
            return true;
        };
        let metrics = metrics.borrow_watched();
        let members = metrics.membership_config.membership();
        members.voter_ids().any(|voter| voter == node)
    }

    /// The peer address of a member. `None` for other nodes, and before the members are known.
    pub(crate) fn address_of(&self, node: u64) -> Option<String> {
        let metrics = self.metrics.get()?.borrow_watched();
        let members = metrics.membership_config.membership();
        members.get_node(&node).map(|member| member.peer.clone())
    }

    /// The latest time that this node may follow. `None` if the clocks of a majority are not known.
    fn bound_ms(&self) -> Option<u64> {
        let metrics = self.metrics.get()?.borrow_watched();
        let voters = metrics.membership_config.membership().voter_ids().collect();
        drop(metrics);
        bound_ms(
            self.node,
            &voters,
            &self.readings.lock(),
            self.own.monotonic(),
        )
    }

    /// Logs once that the wall clock is ahead of a majority, and once that it is not any more.
    fn warn(&self, ahead_ms: u64) {
        let was_ahead = self.is_ahead.load(Ordering::Relaxed);
        // Two limits: a clock that stays near one limit must not fill the log.
        let limit_ms = if was_ahead {
            TIME_AHEAD_MS_MAX / 2
        } else {
            TIME_AHEAD_MS_MAX
        };
        let is_ahead = ahead_ms > limit_ms;
        if is_ahead == was_ahead || self.is_ahead.swap(is_ahead, Ordering::Relaxed) == is_ahead {
            return;
        }
        if is_ahead {
            tracing::warn!(
                ahead_ms,
                "the wall clock of this node is ahead of the clocks of a majority; the time of the \
                 store does not follow it"
            );
        } else {
            tracing::info!("the wall clock of this node agrees with the clocks of a majority");
        }
    }
}

impl Clock for VotersClock {
    fn wall_ms(&self) -> u64 {
        let own_ms = self.own.wall_ms();
        let Some(bound_ms) = self.bound_ms() else {
            return 0;
        };
        self.warn(own_ms.saturating_sub(bound_ms));
        own_ms.min(bound_ms)
    }

    fn monotonic(&self) -> Duration {
        self.own.monotonic()
    }
}

/// The latest time that enough other voters have reached: together with `node`, they are a
/// majority. `u64::MAX` if no other voter is needed, `None` if too few clocks are known.
fn bound_ms(
    node: u64,
    voters: &BTreeSet<u64>,
    readings: &BTreeMap<u64, Reading>,
    now: Duration,
) -> Option<u64> {
    if voters.is_empty() {
        return None;
    }
    let majority = voters.len() / 2 + 1;
    let needed = majority - usize::from(voters.contains(&node));
    let Some(last) = needed.checked_sub(1) else {
        return Some(u64::MAX);
    };
    let others = voters.iter().filter(|voter| **voter != node);
    let mut clocks: Vec<u64> = others
        .filter_map(|voter| readings.get(voter))
        .filter(|reading| reading.wall_ms > 0)
        .map(|reading| {
            let passed = now.saturating_sub(reading.at).as_millis();
            let passed_ms = u64::try_from(passed).unwrap_or(u64::MAX);
            reading.wall_ms.saturating_add(passed_ms)
        })
        .collect();
    clocks.sort_unstable_by_key(|clock_ms| std::cmp::Reverse(*clock_ms));
    clocks.get(last).copied()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const RIGHT_MS: u64 = 1_790_000_000_000;
    const FAST_MS: u64 = RIGHT_MS + 3 * 24 * 3_600_000;

    /// The time that node 1 follows, 5 s after it received these clocks of nodes 2, 3, …; 0 is a
    /// clock that is not known.
    fn bound(voters: impl IntoIterator<Item = u64>, received: &[u64]) -> Option<u64> {
        let readings = (2..).zip(received).map(|(node, wall_ms)| {
            let at = Duration::from_secs(10);
            let wall_ms = *wall_ms;
            (node, Reading { wall_ms, at })
        });
        let now = Duration::from_secs(15);
        bound_ms(1, &voters.into_iter().collect(), &readings.collect(), now)
    }

    #[test]
    fn a_clock_is_followed_up_to_the_time_of_a_majority() {
        let (right, fast) = (Some(RIGHT_MS + 5_000), Some(FAST_MS + 5_000));
        // A single node follows its own clock. Outside of a cluster, no voters are known.
        assert_eq!(bound([1], &[]), Some(u64::MAX));
        assert_eq!(bound([], &[FAST_MS]), None);
        // Of three, one other node.
        assert_eq!(bound([1, 2, 3], &[RIGHT_MS, RIGHT_MS]), right);
        assert_eq!(bound([1, 2, 3], &[RIGHT_MS, FAST_MS]), fast);
        assert_eq!(bound([1, 2, 3], &[0, RIGHT_MS]), right);
        assert_eq!(bound([1, 2, 3], &[0, 0]), None);
        // Of five, two other nodes; of seven, three.
        assert_eq!(bound(1..=5, &[FAST_MS, RIGHT_MS, 0, RIGHT_MS]), right);
        assert_eq!(bound(1..=5, &[FAST_MS, RIGHT_MS, 0, FAST_MS]), fast);
        assert_eq!(bound(1..=5, &[FAST_MS, 0, 0, 0]), None);
        assert_eq!(bound(1..=7, &[FAST_MS, FAST_MS, RIGHT_MS, 0, 0, 0]), right);
        assert_eq!(bound(1..=7, &[FAST_MS, FAST_MS, FAST_MS, 0, 0, 0]), fast);
        // Of two and of four.
        assert_eq!(bound([1, 2], &[RIGHT_MS]), right);
        assert_eq!(bound(1..=4, &[FAST_MS, RIGHT_MS]), right);
        // Learners do not count: neither node 4, nor node 1 itself.
        assert_eq!(bound([1, 2, 3], &[0, 0, FAST_MS]), None);
        assert_eq!(bound([2, 3, 4], &[FAST_MS, RIGHT_MS, RIGHT_MS]), right);
    }
}
