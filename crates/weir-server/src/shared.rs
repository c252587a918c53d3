//! What all connections of a server share.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use tokio::sync::watch;
use weir_core::Intention;
use weir_store::{Proposal, Store, StoreError};

use crate::cluster::ClusterNode;
use crate::config::ServerConfig;
use crate::connections::ConnectionTable;
use crate::descriptors::Descriptors;
use crate::limits::admission::{Admission, Permit};
use crate::limits::memory::MemoryLimits;
use crate::limits::readers::Readers;
use crate::metrics::Metrics;
use crate::phase::Phase;
use crate::security::{Denied, Principal, Right, Security};
use crate::sessions::Sessions;
use crate::wake_batches::WakeBatches;

/// Shared by all ports and connections.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The store that is served.
    pub(crate) store: Arc<Store>,
    /// The node that the store is, if it is one of a cluster.
    pub(crate) cluster: Option<Arc<ClusterNode>>,
    /// What was configured.
    pub(crate) config: ServerConfig,
    /// What is counted.
    pub(crate) metrics: Arc<Metrics>,
    /// Wakes between the store and the reactor.
    pub(crate) wake_batches: Arc<WakeBatches>,
    /// Room for writes. Ask before each `Store::propose`.
    pub(crate) admission: Admission,
    /// Threads that read and render records for an answer.
    pub(crate) readers: Readers,
    /// Connections of all ports.
    pub(crate) connections: Arc<ConnectionTable>,
    /// How many descriptors they may take.
    pub(crate) descriptors: Descriptors,
    /// Who may come in, and do what.
    pub(crate) security: Arc<Security>,
    /// Whose the sessions are.
    pub(crate) sessions: Arc<Sessions>,
    /// Moves as long as the reactor turns and the store does what it was given.
    pub(crate) beats: AtomicU64,
    /// When the server was started.
    pub(crate) started: Instant,
    /// Progress of the shutdown; each change wakes its subscribers.
    pub(crate) phase: watch::Sender<Phase>,
}

impl Shared {
    /// `routes` are the labels under which requests of HTTP are counted.
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
            beats: AtomicU64::new(0),
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

    /// Room for intentions of so many bytes, among those of their kind; none at
    /// present.
    pub(crate) fn room(&self, intentions: &[Intention<'_>], bytes: usize) -> Option<Permit> {
        if self.store.is_costly(intentions) {
            self.admission.admit_costly(bytes)
        } else {
            self.admission.admit(bytes)
        }
    }

    /// Hands intentions over, of which the store is told at the end of this
    /// turn.
    pub(crate) fn propose(&self, intentions: &[Intention<'_>]) -> Result<Proposal, StoreError> {
        let proposal = self.store.propose_quietly(intentions)?;
        self.wake_batches.handed_over();
        Ok(proposal)
    }

    /// Whether the principal may do this to the topic; the one question that
    /// each request of each port asks.
    pub(crate) fn authorize(
        &self,
        principal: &Principal,
        right: Right,
        topic: &str,
    ) -> Result<(), Denied> {
        self.security.authorize(principal, right, topic)
    }

    /// Whether requests should be sent here: the one answer of `/readyz`,
    /// `weir_ready` and the watchdog.
    pub(crate) fn is_ready(&self) -> bool {
        let has_ended = self.cluster.as_ref().is_some_and(|node| node.is_ended());
        self.phase() == Phase::Open && !self.store.is_poisoned() && !has_ended
    }

    /// How far the end has come.
    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }
}
