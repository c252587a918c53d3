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
    news: watch::Receiver<u64>,
    phase: watch::Receiver<Phase>,
    ends: Instant,
}

/// Why a wait ended.
pub(super) enum WaitEnd {
    /// There may be records, or the server drains.
    Changed,
    /// No event arrived for the heartbeat interval, or the stream has reached its maximum age.
    Idle,
    /// The store is closed.
    Closed,
}

impl EventStream {
    pub(super) fn new(edge: &Arc<Edge>, call: &Call, topic: &str) -> Self {
        let (follow, news) = edge.hub.follow(topic);
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
            news,
            phase: edge.shared.phase.subscribe(),
            ends: Instant::now() + age,
        }
    }

    /// Marks the current news as seen. Call it before a read: news during the read then ends the
    /// next wait.
    pub(super) fn mark_seen(&mut self) {
        self.news.borrow_and_update();
    }

    /// Whether the server drains.
    pub(super) fn drains(&self) -> bool {
        *self.phase.borrow() >= Phase::Draining
    }

    /// Whether the stream has reached its maximum age.
    pub(super) fn is_old(&self) -> bool {
        Instant::now() >= self.ends
    }

    /// Whether the principal may still read the topic.
    pub(super) fn is_visible(&mut self) -> bool {
        let security = &self.edge.shared.security;
        let epoch = security.epoch();
        if epoch != self.epoch {
            self.epoch = epoch;
            return security.visible(&self.principal, &self.topic);
        }
        security.holds(&self.principal)
    }

    /// Waits for a change of the topic, at most for the heartbeat interval.
    pub(super) async fn wait(&mut self) -> WaitEnd {
        let heartbeat = Instant::now() + self.edge.shared.config.heartbeat;
        let draining = async {
            drop(self.phase.wait_for(|phase| *phase >= Phase::Draining).await);
        };
        tokio::select! {
            changed = self.news.changed() => match changed {
                Ok(()) => WaitEnd::Changed,
                Err(_) => WaitEnd::Closed,
            },
            () = draining => WaitEnd::Changed,
            () = tokio::time::sleep_until(heartbeat.min(self.ends)) => WaitEnd::Idle,
        }
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.edge.shared.metrics.tails.sub(1);
    }
}
