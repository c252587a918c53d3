//! State that all connections of a server share.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use tokio::sync::watch;
use weir_core::Intention;
use weir_protocol::Consistency;
use weir_store::{Proposal, Store, StoreError};

use crate::cluster::ClusterNode;
use crate::config::ServerConfig;
use crate::connections::ConnectionTable;
use crate::descriptors::Descriptors;
use crate::limits::admission::{Admission, Permit};
use crate::limits::budget::BudgetExhausted;
use crate::limits::memory::MemoryLimits;
use crate::limits::readers::Readers;
use crate::metrics::Metrics;
use crate::phase::Phase;
use crate::security::{Denied, Principal, Right, Security};
use crate::sessions::Sessions;
use crate::sessions::keys::IdempotencyKeys;
use crate::wake_batches::WakeBatches;

/// State that all ports and connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The store.
    pub(crate) store: Arc<Store>,
    /// The node of a cluster to which the store belongs, if any.
    pub(crate) cluster: Option<Arc<ClusterNode>>,
    /// The configuration.
    pub(crate) config: ServerConfig,
    /// The counters.
    pub(crate) metrics: Arc<Metrics>,
    /// Batched wake-ups between the store and the reactor.
    pub(crate) wake_batches: Arc<WakeBatches>,
    /// Admission of writes, required before each `Store::propose`.
    pub(crate) admission: Admission,
    /// Threads that read and render records for responses.
    pub(crate) readers: Readers,
    /// The connections of all ports.
    pub(crate) connections: Arc<ConnectionTable>,
    /// How many descriptors connections may use.
    pub(crate) descriptors: Descriptors,
    /// Authentication, rights, rates and TLS.
    pub(crate) security: Arc<Security>,
    /// The sessions of principals.
    pub(crate) sessions: Arc<Sessions>,
    /// The idempotency keys of principals.
    pub(crate) idempotency_keys: IdempotencyKeys,
    /// Liveness counter, which increases while the reactor runs and the store applies its work.
    pub(crate) heartbeats: AtomicU64,
    /// When the server started.
    pub(crate) started: Instant,
    /// Progress of the shutdown; each change wakes its subscribers.
    pub(crate) phase: watch::Sender<Phase>,
}

impl Shared {
    /// `routes` are the labels of the counters of HTTP requests.
    pub(crate) fn new(
        config: ServerConfig,
        store: Arc<Store>,
        security: impl Into<Arc<Security>>,
        descriptors: Descriptors,
        routes: Vec<&'static str>,
    ) -> io::Result<Self> {
        let metrics = Arc::new(Metrics::new(routes));
        let limits = MemoryLimits::detect(&config);
        let config = limits.bound(config);
        let descriptors = descriptors.at_most(limits.connections);
        let connections = ConnectionTable::new(&config, descriptors, Arc::clone(&metrics));
        Ok(Self {
            sessions: Arc::new(Sessions::new(config.sessions_per_principal_max)),
            idempotency_keys: IdempotencyKeys::default(),
            readers: Readers::new(limits.readers)?,
            admission: Admission::new(limits),
            store,
            cluster: None,
            config,
            metrics,
            wake_batches: Arc::default(),
            connections: Arc::new(connections),
            descriptors,
            security: security.into(),
            heartbeats: AtomicU64::new(0),
            started: Instant::now(),
            phase: watch::Sender::new(Phase::Open),
        })
    }

    /// As `new`, for a node of a cluster.
    #[must_use]
    pub(crate) fn with_cluster(mut self, cluster: Option<Arc<ClusterNode>>) -> Self {
        self.cluster = cluster;
        self
    }

    /// Waits until a read with this consistency may begin. A single server does not wait.
    pub(crate) async fn wait_for_consistency(
        &self,
        consistency: Consistency,
    ) -> Result<(), StoreError> {
        match &self.cluster {
            // Boxed, so that connections without a cluster do not carry this state.
            Some(node) if consistency != Consistency::Local => {
                Box::pin(node.wait_for_consistency(consistency)).await
            }
            _ => Ok(()),
        }
    }

    /// Fails if this server is a node that was removed from its cluster. Every request is checked
    /// here, except writes of the native port, which the log refuses, and requests for the status.
    pub(crate) fn check_is_member(&self) -> Result<(), StoreError> {
        let node = self.cluster.as_ref();
        node.map_or(Ok(()), |node| node.check_is_member())
    }

    /// Admits intentions of this many bytes to their lane of the queue. Fails if the limit is
    /// reached.
    pub(crate) fn admit(
        &self,
        intentions: &[Intention<'_>],
        bytes: usize,
    ) -> Result<Permit, BudgetExhausted> {
        let is_costly = self.store.is_costly(intentions);
        let permit = if is_costly {
            self.admission.admit_costly(bytes)
        } else {
            self.admission.admit(bytes)
        };
        permit.ok_or_else(|| self.admission.exhausted(is_costly))
    }

    /// Proposes intentions. The commit thread is woken at the end of this turn of the reactor.
    pub(crate) fn propose(&self, intentions: &[Intention<'_>]) -> Result<Proposal, StoreError> {
        let proposal = self.store.propose_deferred(intentions)?;
        self.wake_batches.write_queued();
        Ok(proposal)
    }

    /// Checks that the principal has the right on the topic. Every request of every port is checked
    /// here.
    pub(crate) fn authorize(
        &self,
        principal: &Principal,
        right: Right,
        topic: &str,
    ) -> Result<(), Denied> {
        self.security.authorize(principal, right, topic)
    }

    /// As [`authorize`](Self::authorize), for a request for the status or the metrics.
    pub(crate) fn authorize_status(&self, principal: &Principal) -> Result<(), Denied> {
        self.security.authorize_status(principal)
    }

    /// Whether clients should send requests to this server. `/readyz`, `weir_ready` and the
    /// watchdog report this value.
    pub(crate) fn is_ready(&self) -> bool {
        let is_ready = self.cluster.as_ref().is_none_or(|node| node.is_ready());
        self.phase() == Phase::Open && !self.store.is_poisoned() && is_ready
    }

    /// The current phase of the shutdown.
    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }
}
