//! A node of a cluster in this process: its consensus, and the state that its clients can read.
//!
//! The consensus runs in a separate runtime, so that no request delays a heartbeat.
//!
//! Invariant: a node that does not lead answers a write with the addresses of the leader for
//! clients, never with its addresses for peers.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use weir_core::ErrorCode;
use weir_protocol::{Consistency, StatusValue};
use weir_raft::{JoinRequest, Node, NodeConfig, PeerTls, Role, Status};
use weir_store::{OpenOptions, Store, StoreError};

pub use crate::security::PeerFiles;
use crate::security::{PeerCertificates, TlsError};
pub use weir_raft::{Member, NodeError};

/// Threads of the consensus.
const THREADS: usize = 2;
/// How long the leader waits for the majority to confirm that it leads.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an empty directory looks for a leader that lets it join.
const JOIN_TIMEOUT: Duration = Duration::from_mins(1);

/// Settings with which a directory is opened as a node, or turned into one.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// Address at which the node listens for its peers.
    pub peer: SocketAddr,
    /// Addresses at which peers and clients reach the node.
    pub member: Member,
    /// Peer addresses of members of the cluster that an empty directory joins. A node that no leader
    /// reaches reports its addresses to the leader through these members too.
    pub join: Vec<String>,
    /// Number that an empty directory requests; `None` for any.
    pub node: Option<u64>,
    /// Certificate, key and authority for TLS between the nodes; `None`: no TLS.
    pub tls: Option<PeerFiles>,
}

/// Why a node cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The node could not be opened, or the cluster refuses it.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The port for peers cannot be opened, or the threads cannot be started.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The files for TLS between the nodes are not valid.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The directory is not a node, and the settings name no cluster to join.
    #[error("the directory is not a node of a cluster")]
    NoNode,
}

impl From<StoreError> for ClusterError {
    fn from(error: StoreError) -> Self {
        Self::Node(NodeError::Store(error))
    }
}

/// Addresses of a node for clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientAddresses<'a> {
    /// `weir://HOST:PORT` or `weirs://HOST:PORT`.
    pub(crate) native: Option<&'a str>,
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub(crate) http: Option<&'a str>,
}

impl<'a> ClientAddresses<'a> {
    /// Parses the client addresses of a member of a cluster (docs/formats/cluster.md).
    pub(crate) fn read(client: &'a str) -> Self {
        let first = |schemes: [&str; 2]| {
            let mut words = client.split(' ');
            words.find(|word| schemes.iter().any(|scheme| word.starts_with(scheme)))
        };
        Self {
            native: first(["weir://", "weirs://"]),
            http: first(["http://", "https://"]),
        }
    }
}

/// The metrics of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gauges {
    pub(crate) role: &'static str,
    pub(crate) term: u64,
    /// Number of the leader; 0: not known.
    pub(crate) leader: u64,
    pub(crate) members: u64,
    pub(crate) committed: u64,
    pub(crate) contact: Option<Duration>,
    /// Whether the state of this node was found to differ from the state of a leader.
    pub(crate) diverged: bool,
    /// How often this node installed the state of a leader.
    pub(crate) repairs: u64,
    /// Milliseconds by which the wall clock is ahead of a majority.
    pub(crate) clock_ahead_ms: u64,
}

/// An open node.
pub struct ClusterNode {
    node: Arc<Node>,
    /// The members; changes with each change of the membership.
    members: watch::Receiver<BTreeMap<u64, Member>>,
    /// The certificates for TLS between the nodes, if they use it.
    certificates: Option<Arc<PeerCertificates>>,
    runtime: Runtime,
}

impl fmt::Debug for ClusterNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node.fmt(f)
    }
}

fn runtime() -> Result<Runtime, ClusterError> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(THREADS).thread_name("weir-node");
    let runtime = builder.enable_all().build();
    runtime.map_err(|source| ClusterError::Io {
        what: "cannot start the threads of the node".to_owned(),
        source,
    })
}

impl ClusterNode {
    /// Whether the directory is a node of a cluster.
    pub fn is_node(directory: &Path) -> Result<bool, StoreError> {
        Ok(Store::node_identity(directory)?.is_some())
    }

    /// Turns the store in `directory` into the first node of a new cluster. Creates the store if
    /// there is none. Returns the number of the node. Fails if the store has the state of a cluster
    /// with other voters, unless `force`.
    pub fn init(
        directory: &Path,
        options: &OpenOptions,
        node: Option<u64>,
        member: &Member,
        force: bool,
    ) -> Result<u64, ClusterError> {
        if options.create {
            Store::open(directory, options)?.close()?;
        }
        let config = Node::convert(directory, options, node.unwrap_or(1), member, force)?;
        Ok(config.node)
    }

    /// Turns the empty `directory` into a node of the cluster that the settings name, without
    /// opening it. Returns the number of the node.
    pub fn join(
        directory: &Path,
        options: &OpenOptions,
        settings: &NodeSettings,
    ) -> Result<u64, ClusterError> {
        let runtime = runtime()?;
        let certificates = settings
            .tls
            .as_ref()
            .map(PeerCertificates::read)
            .transpose()?;
        let tls = certificates.as_ref().map(PeerCertificates::tls);
        let joined = runtime.block_on(join(options, settings, tls.as_ref()))?;
        Node::create(directory, options, joined)?;
        Ok(joined.node)
    }

    /// Opens the node in `directory`. An empty directory first joins the cluster that the settings
    /// name.
    pub fn open(
        directory: &Path,
        options: &OpenOptions,
        settings: &NodeSettings,
    ) -> Result<Arc<Self>, ClusterError> {
        let runtime = runtime()?;
        let identity = Store::node_identity(directory)?;
        let certificates = settings
            .tls
            .as_ref()
            .map(PeerCertificates::read)
            .transpose()?;
        let tls = certificates.as_ref().map(PeerCertificates::tls);
        let opened = runtime.block_on(start(identity, directory, options, settings, tls));
        let node = Arc::new(opened?);
        let (announcing, member) = (Arc::clone(&node), settings.member.clone());
        let join = settings.join.clone();
        // Both tasks end with the runtime.
        runtime.spawn(async move { announcing.announce(&member, &join).await });
        let (sender, members) = watch::channel(BTreeMap::new());
        runtime.spawn(observe(Arc::clone(&node), sender));
        Ok(Arc::new(Self {
            node,
            members,
            certificates,
            runtime,
        }))
    }

    /// The store of the node.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        self.node.store()
    }

    /// Number of the node.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.node.status().node
    }

    /// Address at which the node listens for its peers.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.node.address()
    }

    /// End of the validity of the certificate for peers, in milliseconds since 1970; `None` without
    /// TLS between the nodes.
    pub(crate) fn certificate_expires_ms(&self) -> Option<u64> {
        let certificates = self.certificates.as_ref();
        certificates.map(|certificates| certificates.expires_ms())
    }

    /// Whether the consensus of this node has ended. The process must then be restarted.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.node.status().role == Role::Ended
    }

    /// Whether clients should use this node: it has not ended, and was not removed from its cluster.
    pub(crate) fn is_ready(&self) -> bool {
        ![Role::Ended, Role::Removed].contains(&self.node.status().role)
    }

    /// Fails with `NoLeader` if this node was removed from its cluster. Its state becomes stale, and
    /// it never has a leader again, so its clients must use another node.
    pub(crate) fn check_is_member(&self) -> Result<(), StoreError> {
        if !self.node.is_removed() {
            return Ok(());
        }
        Err(StoreError::Remote {
            code: ErrorCode::NoLeader,
            text: "this node was removed from its cluster; use another node".to_owned(),
        })
    }

    /// Stops the consensus and closes the store.
    pub fn close(&self) -> Result<(), ClusterError> {
        Ok(self.runtime.block_on(self.node.shut_down())?)
    }

    /// Waits until this node leads, confirmed by a majority, and has applied all entries that were
    /// committed before the call.
    pub(crate) async fn lead(&self) -> Result<(), StoreError> {
        self.node.linearize_on_leader(CONFIRM_TIMEOUT).await
    }

    /// The term in which this node leads; `None` if another node leads.
    pub(crate) fn leading_term(&self) -> Option<u64> {
        let status = self.node.status();
        (status.role == Role::Leader).then_some(status.term)
    }

    /// Reserves a number for a node that will listen for its peers at `peer`. Fails with the errors
    /// of [`remove`](Self::remove).
    pub(crate) async fn add(&self, peer: &str) -> Result<u64, NodeError> {
        self.node.reserve(peer).await
    }

    /// Removes a node from the cluster. Fails with an error of the store if the client should
    /// retry, at this node or at another one. Any other error is a text for people.
    pub(crate) async fn remove(&self, node: u64) -> Result<(), NodeError> {
        self.node.remove(node).await
    }

    /// Transfers leadership to a node.
    pub(crate) async fn transfer_leadership(&self, node: u64) -> Result<(), NodeError> {
        self.node.transfer_leadership(node).await
    }

    /// Waits until this node has applied everything that a read with this consistency must see.
    pub(crate) async fn wait_for_consistency(
        &self,
        consistency: Consistency,
    ) -> Result<(), StoreError> {
        match consistency {
            Consistency::Local => Ok(()),
            Consistency::Leader => self.node.lease(CONFIRM_TIMEOUT).await,
            Consistency::Linear => self.node.linearize(CONFIRM_TIMEOUT).await,
        }
    }

    /// Returns the term, the leader, and a line for each node with its native address. These are
    /// the content of CONFIG (docs/formats/native.md).
    pub(crate) fn config(&self) -> (u64, Option<u64>, String) {
        let status = self.node.status();
        let line = |(node, (member, _)): (&u64, &(Member, bool))| {
            let native = ClientAddresses::read(&member.client).native?;
            Some(format!("{node} {native}"))
        };
        let lines: Vec<_> = status.members.iter().filter_map(line).collect();
        (status.term, status.leader, lines.join("\n"))
    }

    /// Returns a channel that reports each change of the members or their addresses, and the removal
    /// of this node.
    pub(crate) fn subscribe_members(&self) -> watch::Receiver<BTreeMap<u64, Member>> {
        self.members.clone()
    }

    /// The metrics of this node.
    pub(crate) fn gauges(&self) -> Gauges {
        let status = self.node.status();
        Gauges {
            role: role(status.role),
            term: status.term,
            leader: status.leader.unwrap_or(0),
            members: status.members.len() as u64,
            committed: status.committed.map_or(0, |id| id.index.0),
            contact: status.contact,
            diverged: status.diverged,
            repairs: status.repairs,
            clock_ahead_ms: status.clock_ahead_ms,
        }
    }

    /// Fields of the status of a node (docs/formats/native.md).
    pub(crate) fn fields(&self) -> Vec<(&'static str, StatusValue)> {
        let status = self.node.status();
        let text = |text: String| StatusValue::Text(text);
        let mut fields = vec![
            ("cluster_node", StatusValue::Number(status.node)),
            ("cluster_role", text(role(status.role).to_owned())),
            ("cluster_term", StatusValue::Number(status.term)),
        ];
        let index = |id: Option<weir_store::replica::EntryId>| id.map_or(0, |id| id.index.0);
        let last_term = status.last.map_or(0, |id| id.term);
        for (name, number) in [
            ("cluster_leader", status.leader),
            ("cluster_last", Some(index(status.last))),
            ("cluster_last_term", Some(last_term)),
            ("cluster_committed", Some(index(status.committed))),
            ("cluster_applied", Some(index(status.applied))),
            ("cluster_contact_ms", status.contact.map(milliseconds)),
        ] {
            fields.extend(number.map(|number| (name, StatusValue::Number(number))));
        }
        fields.push(("cluster_members", text(members(&status))));
        fields.push(("cluster_joint", StatusValue::Number(status.joint.into())));
        let is_synced = self.store().durability().is_synced();
        fields.push(("cluster_synced", StatusValue::Number(is_synced.into())));
        let diverged = status.diverged.into();
        fields.push(("cluster_diverged", StatusValue::Number(diverged)));
        fields.push(("cluster_repairs", StatusValue::Number(status.repairs)));
        let ahead_ms = StatusValue::Number(status.clock_ahead_ms);
        fields.push(("cluster_clock_ahead_ms", ahead_ms));
        fields.push(("cluster_digest", text(self.store().digest().to_string())));
        fields
    }
}

/// Sends the members to the channel at each change, and when this node was removed, until the
/// consensus ends. A removed node does not learn its last members.
async fn observe(node: Arc<Node>, members: watch::Sender<BTreeMap<u64, Member>>) {
    let mut current = BTreeMap::new();
    let mut removed = pin!(node.removed());
    let mut is_removed = false;
    loop {
        tokio::select! {
            () = &mut removed, if !is_removed => is_removed = true,
            changed = node.members_other_than(&current) => match changed {
                Ok(now) => current = now,
                Err(_) => return,
            },
        }
        members.send_replace(current.clone());
    }
}

/// Opens the node. A directory without a number first requests one from the cluster.
async fn start(
    identity: Option<NodeConfig>,
    directory: &Path,
    options: &OpenOptions,
    settings: &NodeSettings,
    tls: Option<PeerTls>,
) -> Result<Node, ClusterError> {
    let listener = TcpListener::bind(settings.peer).await;
    let listener = listener.map_err(|source| ClusterError::Io {
        what: format!("cannot listen for peers at {}", settings.peer),
        source,
    })?;
    let config = match identity {
        Some(config) => config,
        None if settings.join.is_empty() => return Err(ClusterError::NoNode),
        None => join(options, settings, tls.as_ref()).await?,
    };
    Ok(Node::open_with_tls(directory, options, config, listener, tls).await?)
}

/// Requests a number from the cluster for an empty directory.
async fn join(
    options: &OpenOptions,
    settings: &NodeSettings,
    tls: Option<&PeerTls>,
) -> Result<NodeConfig, ClusterError> {
    let request = JoinRequest {
        known: None,
        node: settings.node,
        member: settings.member.clone(),
        engine: weir_raft::fingerprint(options),
        is_synced: options.durability.is_synced(),
    };
    Ok(weir_raft::join_by(&settings.join, &request, JOIN_TIMEOUT, tls).await?)
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

const fn role(role: Role) -> &'static str {
    match role {
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::Candidate => "candidate",
        Role::Learner => "learner",
        Role::Full => "full",
        Role::Removed => "removed",
        Role::Ended => "ended",
    }
}

/// Formats the members, joined by `; `. Each has its number, `voter` or `learner`, its newest known
/// entry, its peer address, and its client addresses. The entry is `-` if this node does not lead.
fn members(status: &Status) -> String {
    let part = |(node, (member, votes)): (&u64, &(Member, bool))| {
        let kind = if *votes { "voter" } else { "learner" };
        let newest = match status.matching.get(node) {
            Some(id) => id.map_or(0, |id| id.index.0).to_string(),
            None => "-".to_owned(),
        };
        format!("{node} {kind} {newest} {} {}", member.peer, member.client)
    };
    let parts: Vec<_> = status.members.iter().map(part).collect();
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::ClientAddresses;

    #[test]
    fn addresses_are_distinguished_by_their_scheme() {
        let both = ClientAddresses::read("weirs://a:1 http://b:2");
        assert_eq!(
            (both.native, both.http),
            (Some("weirs://a:1"), Some("http://b:2"))
        );
        let http = ClientAddresses::read("https://b:2");
        assert_eq!((http.native, http.http), (None, Some("https://b:2")));
        assert_eq!(ClientAddresses::read(""), ClientAddresses::default());
    }
}
