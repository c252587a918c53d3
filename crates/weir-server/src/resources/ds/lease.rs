//! The time of the last use of each stream that expires when it is idle.
//!
//! This state is in memory only. The start of a server, or of the leadership of a node, counts as a
//! use of every stream. So a stream may live longer than its expiry. In a cluster, only the leader
//! removes idle streams, and it does not know of reads at other nodes.

use std::sync::Arc;

use tokio::time::Instant;

use super::view::View;
use crate::resources::context::Edge;
use crate::resources::streams::config::Expiry;
use crate::resources::streams::state::{Lease, Streams};
use crate::resources::streams::terms::EXPIRING_MAX;
use crate::shared::Shared;

impl Streams {
    /// Whether a stream has expired.
    pub(super) fn is_expired(&self, view: &View, shared: &Shared) -> bool {
        let expiry = view.config.expiry;
        match expiry {
            Expiry::Never => return false,
            Expiry::Idle(_) if self.leading_term(shared).is_none() => return false,
            Expiry::Idle(_) | Expiry::At(_) => {}
        }
        let now_ms = shared.store.now_ms();
        self.with_leases(|leases| {
            let lease = leases.entry(view.topic.clone());
            let lease = lease.or_insert_with(|| Lease::new(expiry));
            lease.is_expired(expiry, now_ms)
        })
    }

    /// The term in which this server may remove streams; `None` if another node of a cluster leads.
    pub(super) fn leading_term(&self, shared: &Shared) -> Option<u64> {
        let term = match &shared.cluster {
            Some(node) => node.leading_term(),
            None => Some(0),
        };
        self.observe_term(term);
        term
    }

    /// Records the term in which this server leads. In a new term, all idle times start again:
    /// the uses of streams at the earlier leader are not known here.
    fn observe_term(&self, term: Option<u64>) {
        let mut leading = self.leading.lock();
        if *leading == term {
            return;
        }
        *leading = term;
        self.with_leases(|leases| {
            for lease in leases.values_mut() {
                lease.used = Instant::now();
            }
        });
    }

    /// Records that a stream was read or written.
    pub(super) fn record_use(&self, view: &View) {
        if matches!(view.config.expiry, Expiry::Idle(_)) {
            self.lease(&view.topic, view.config.expiry);
        }
    }

    /// Records a stream that expires. If it is already recorded, this call counts as a use.
    pub(super) fn lease(&self, topic: &str, expiry: Expiry) {
        self.with_leases(|leases| match leases.get_mut(topic) {
            Some(lease) => {
                lease.used = Instant::now();
                lease.expiry = expiry;
            }
            None => {
                leases.insert(topic.to_owned(), Lease::new(expiry));
            }
        });
    }

    /// Whether the maximum number of expiring streams is reached.
    pub(super) fn is_full(&self) -> bool {
        self.with_leases(|leases| leases.len() >= EXPIRING_MAX)
    }

    /// Removes the state of a stream.
    pub(super) fn remove(&self, topic: &str) {
        self.with_leases(|leases| leases.remove(topic));
        self.configs.lock().remove(topic);
    }

    /// Returns the streams that may have expired at `now_ms`, a time of the store.
    pub(super) fn expired_topics(&self, now_ms: u64) -> Vec<String> {
        self.with_leases(|leases| {
            let expired = leases
                .iter()
                .filter(|(_, lease)| lease.is_expired(lease.expiry, now_ms));
            expired.map(|(topic, _)| topic.clone()).collect()
        })
    }
}

/// Keeps the stream of a waiting reader in use until it is dropped.
pub(super) struct ReaderLease {
    edge: Arc<Edge>,
    topic: String,
}

impl ReaderLease {
    /// Returns `None` for a stream that does not expire when idle.
    pub(super) fn new(edge: &Arc<Edge>, view: &View) -> Option<Self> {
        if !matches!(view.config.expiry, Expiry::Idle(_)) {
            return None;
        }
        edge.ds.with_leases(|leases| {
            let lease = leases
                .entry(view.topic.clone())
                .or_insert_with(|| Lease::new(view.config.expiry));
            lease.readers += 1;
        });
        Some(Self {
            edge: Arc::clone(edge),
            topic: view.topic.clone(),
        })
    }
}

impl Drop for ReaderLease {
    fn drop(&mut self) {
        self.edge.ds.with_leases(|leases| {
            if let Some(lease) = leases.get_mut(&self.topic) {
                lease.readers = lease.readers.saturating_sub(1);
                lease.used = Instant::now();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Expiry, Instant, Lease, Streams};

    #[test]
    fn a_lease_expires_without_use() {
        let mut lease = Lease::new(Expiry::Idle(0));
        assert!(lease.is_expired(lease.expiry, 5));
        lease.readers = 1;
        assert!(!lease.is_expired(lease.expiry, 5), "a reader waits");
        assert!(!lease.is_expired(Expiry::Never, 5));
        assert!(lease.is_expired(Expiry::At(1), 5));
        assert!(!lease.is_expired(Expiry::At(u64::MAX), 5));
    }

    #[test]
    fn idle_times_start_again_when_a_node_begins_to_lead() {
        let ds = Streams::default();
        ds.lease("a", Expiry::Idle(1000));
        let later = Instant::now() + Duration::from_secs(1000);
        for (term, starts_again) in [
            (Some(0), true),
            (Some(0), false),
            (None, true),
            (Some(2), true),
            (Some(2), false),
            (Some(4), true),
        ] {
            ds.with_leases(|leases| {
                for lease in leases.values_mut() {
                    lease.used = later;
                }
            });
            ds.observe_term(term);
            let is_later = ds.with_leases(|leases| leases["a"].used == later);
            assert_eq!(is_later, !starts_again, "{term:?}");
        }
    }

    #[test]
    fn expired_topics_are_listed_until_they_are_removed() {
        let ds = Streams::default();
        ds.lease("a", Expiry::Idle(0));
        ds.lease("b", Expiry::Idle(1000));
        assert_eq!(ds.expired_topics(5), ["a"]);
        ds.lease("a", Expiry::Idle(1000));
        assert!(ds.expired_topics(5).is_empty(), "a use extends the lease");
        ds.lease("a", Expiry::Idle(0));
        ds.remove("a");
        assert!(ds.expired_topics(5).is_empty());
    }
}
