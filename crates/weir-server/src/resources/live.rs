//! The common part of all server-sent event streams of a topic: wake-ups, maximum age, and the
//! right of the principal to read.
//!
//! Invariant: each stream is counted in the metrics once, from its start to its end.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use super::context::{Call, Edge};
use super::hub::Follow;
use crate::phase::Phase;
use crate::security::Principal;

/// A stream of events of one topic.
pub(super) struct EventStream {
    pub(super) edge: Arc<Edge>,
    pub(super) topic: String,
    pub(super) follow: Arc<Follow>,
    principal: Arc<Principal>,
    /// State of the identities when they were last checked.
    epoch: u64,
    changes: watch::Receiver<u64>,
    phase: watch::Receiver<Phase>,
    closes_at: Instant,
}

/// Why a wait ended.
pub(super) enum WaitEnd {
    /// There may be records, or the server is draining.
    Changed,
    /// No event arrived for the heartbeat interval, or the stream has reached its maximum age.
    Idle,
    /// The store is closed.
    Closed,
}

impl EventStream {
    pub(super) fn new(edge: &Arc<Edge>, call: &Call, topic: &str) -> Self {
        let (follow, changes) = edge.hub.follow(topic);
        let age = edge.shared.config.tail_max_age;
        let spread = RandomState::new().build_hasher().finish() % 20;
        // Between 90 % and 110 %, so that clients do not all reconnect together.
        let age = age / 100 * u32::try_from(90 + spread).unwrap_or(100);
        edge.shared.metrics.tails.add(1);
        Self {
            edge: Arc::clone(edge),
            topic: topic.to_owned(),
            follow,
            principal: Arc::clone(&call.principal),
            epoch: edge.shared.security.epoch(),
            changes,
            phase: edge.shared.phase.subscribe(),
            closes_at: Instant::now() + age,
        }
    }

    /// The principal that reads.
    pub(super) fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Marks the current changes as seen. Call it before a read: a change during the read then ends
    /// the next wait.
    pub(super) fn mark_seen(&mut self) {
        self.changes.borrow_and_update();
    }

    /// Whether the server is draining, or is a node that was removed from its cluster. Clients must
    /// use another server.
    pub(super) fn is_draining(&self) -> bool {
        let is_removed = self.edge.shared.check_is_member().is_err();
        is_removed || *self.phase.borrow() >= Phase::Draining
    }

    /// Whether the stream has reached its maximum age.
    pub(super) fn is_old(&self) -> bool {
        Instant::now() >= self.closes_at
    }

    /// Whether the principal may still read the topic.
    pub(super) fn may_read(&mut self) -> bool {
        let security = &self.edge.shared.security;
        let epoch = security.epoch();
        if epoch != self.epoch {
            self.epoch = epoch;
            return security.can_read(&self.principal, &self.topic);
        }
        security.is_valid(&self.principal)
    }

    /// Waits for a change of the topic, at most for the heartbeat interval.
    pub(super) async fn wait(&mut self) -> WaitEnd {
        let heartbeat = Instant::now() + self.edge.shared.config.heartbeat;
        let draining = async {
            drop(self.phase.wait_for(|phase| *phase >= Phase::Draining).await);
        };
        tokio::select! {
            changed = self.changes.changed() => match changed {
                Ok(()) => WaitEnd::Changed,
                Err(_) => WaitEnd::Closed,
            },
            () = draining => WaitEnd::Changed,
            () = tokio::time::sleep_until(heartbeat.min(self.closes_at)) => WaitEnd::Idle,
        }
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.edge.shared.metrics.tails.sub(1);
    }
}
