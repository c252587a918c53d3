//! A node: a store, its consensus and its port.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use openraft::async_runtime::WatchReceiver;
use openraft::error::ClientWriteError;
use openraft::raft::ClientWriteResult;
use openraft::{Raft, ServerState};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use weir_core::ErrorCode;
use weir_store::replica::{
    EntryId, IntentionLog, LatencyClass, NodeOptions, ProposedBatch, Replica, Waiters,
};
use weir_store::{LogIndex, OpenOptions, Store, StoreError};

use crate::client::Peers;
use crate::convert::{encode_members, entry_id};
use crate::machine::StateMachine;
use crate::peer::{self, Identity};
use crate::settings;
use crate::storage::LogStore;
use crate::types::{Batch, Member, Membership, OnResult, Types};

/// Which node of which cluster a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Number of the node; never given to another one.
    pub node: u64,
    /// Id of the cluster.
    pub cluster: [u8; 16],
}

/// Why a node does not do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The store could not be opened or closed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system refused a thread or an address.
    #[error("cannot start the node: {0}")]
    Io(#[from] std::io::Error),
    /// The consensus refused, or has ended.
    #[error("the consensus refused: {0}")]
    Consensus(String),
}

impl NodeError {
    fn consensus(error: &impl std::fmt::Display) -> Self {
        Self::Consensus(error.to_string())
    }
}

/// What a node does at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It decides the order.
    Leader,
    /// It follows a leader and votes.
    Follower,
    /// It asks for votes.
    Candidate,
    /// It follows a leader and does not vote.
    Learner,
    /// Its consensus has ended; the process has to be started again.
    Ended,
}

/// Where a node stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its number.
    pub node: u64,
    /// What it does.
    pub role: Role,
    /// The leader that it knows.
    pub leader: Option<u64>,
    /// Its term.
    pub term: u64,
    /// The newest entry of its log.
    pub last: Option<EntryId>,
    /// The newest entry that it knows to be committed.
    pub committed: Option<EntryId>,
    /// The newest entry that it has applied.
    pub applied: Option<EntryId>,
    /// The members, and whether each one votes.
    pub members: BTreeMap<u64, (Member, bool)>,
    /// On a leader: the newest entry that each member is known to have.
    pub matching: BTreeMap<u64, Option<EntryId>>,
}

/// Hands batches of the store to openraft.
struct Proposals(mpsc::UnboundedSender<ProposedBatch>);

impl IntentionLog for Proposals {
    fn propose(&self, batch: ProposedBatch) {
        // After the end, dropping the batch answers those who wait.
        drop(self.0.send(batch));
    }

    fn latency_class(&self) -> LatencyClass {
        LatencyClass::Network
    }

    fn purge_floor(&self) -> LogIndex {
        // Until nodes ship snapshots, each one needs its whole log.
        LogIndex::ZERO
    }
}

/// An open node of a cluster. [`close`](Self::close) it; dropping it is what a
/// crash of the process is, but for the store, which closes.
pub struct Node {
    store: Arc<Store>,
    replica: Replica,
    raft: Raft<Types, StateMachine>,
    address: SocketAddr,
    tasks: [JoinHandle<()>; 2],
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("node", &self.replica.node())
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Node {
    /// Opens the node in `directory`, or makes it, and serves its peers on
    /// `listener`. It belongs to no cluster before it was initialized or added to
    /// one.
    pub async fn open(
        directory: &Path,
        options: &OpenOptions,
        config: NodeConfig,
        listener: TcpListener,
    ) -> Result<Self, NodeError> {
        let NodeConfig { node, cluster } = config;
        let settings = settings::config(cluster);
        let settings = settings.map_err(|error| NodeError::consensus(&error))?;
        let (sender, batches) = mpsc::unbounded_channel();
        let (directory, options) = (directory.to_owned(), options.clone());
        let opened = tokio::task::spawn_blocking(move || {
            let node = NodeOptions {
                node,
                cluster,
                holes: false,
            };
            Store::open_node(&directory, &options, &node, Arc::new(Proposals(sender)))
        });
        let opened = opened.await.map_err(std::io::Error::other)?;
        let (store, replica) = opened?;
        let raft = Raft::new(
            node,
            Arc::new(settings),
            Peers { cluster, node },
            LogStore::new(replica.clone()),
            StateMachine::new(replica.clone())?,
        );
        let raft = raft.await.map_err(|error| NodeError::consensus(&error))?;
        let address = listener.local_addr()?;
        let identity = Identity { cluster, node };
        let tasks = [
            tokio::spawn(propose(batches, raft.clone())),
            tokio::spawn(peer::serve(listener, identity, raft.clone())),
        ];
        Ok(Self {
            store: Arc::new(store),
            replica,
            raft,
            address,
            tasks,
        })
    }

    /// Makes a store of its own in `directory` the first node of a cluster, whose
    /// id is that of the store.
    pub fn convert(
        directory: &Path,
        options: &OpenOptions,
        node: u64,
        member: &Member,
    ) -> Result<NodeConfig, NodeError> {
        let options = OpenOptions {
            create: false,
            ..options.clone()
        };
        let store = Store::open(directory, &options)?;
        let cluster = store.identity().store_id;
        let nodes = BTreeMap::from([(node, member.clone())]);
        let members = Membership::new(vec![[node].into()], nodes);
        let members = members.map_err(|error| NodeError::consensus(&error))?;
        store.into_node(node, &encode_members(&members))?;
        Ok(NodeConfig { node, cluster })
    }

    /// The store. Writes succeed on the leader; reads are those of this node.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Where its peer port listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Forms a cluster of these members, this node among them. Each of them has to
    /// run already, and none may belong to a cluster.
    pub async fn initialize(&self, members: BTreeMap<u64, Member>) -> Result<(), NodeError> {
        let done = self.raft.initialize(members).await;
        done.map_err(|error| NodeError::consensus(&error))
    }

    /// Adds a member that gets the log and does not vote. Returns after it has
    /// caught up.
    pub async fn add_learner(&self, node: u64, member: Member) -> Result<(), NodeError> {
        let added = self.raft.add_learner(node, member, true).await;
        added
            .map(drop)
            .map_err(|error| NodeError::consensus(&error))
    }

    /// Makes these nodes, which are members already, the voters; the others leave.
    pub async fn change_voters(
        &self,
        voters: impl IntoIterator<Item = u64>,
    ) -> Result<(), NodeError> {
        let voters: std::collections::BTreeSet<u64> = voters.into_iter().collect();
        let changed = self.raft.change_membership(voters, false).await;
        changed
            .map(drop)
            .map_err(|error| NodeError::consensus(&error))
    }

    /// Has another voter lead.
    pub async fn transfer(&self, to: u64) -> Result<(), NodeError> {
        let asked = self.raft.trigger().transfer_leader(to).await;
        asked.map_err(|error| NodeError::consensus(&error))
    }

    /// Where the node stands.
    #[must_use]
    pub fn status(&self) -> Status {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let members = metrics.membership_config.membership();
        let voters: Vec<u64> = members.voter_ids().collect();
        let id = |id: Option<&_>| id.map(entry_id);
        Status {
            node: metrics.id,
            role: match metrics.state {
                _ if metrics.running_state.is_err() => Role::Ended,
                ServerState::Leader => Role::Leader,
                ServerState::Follower => Role::Follower,
                ServerState::Candidate => Role::Candidate,
                ServerState::Learner => Role::Learner,
                ServerState::Shutdown => Role::Ended,
            },
            leader: metrics.current_leader,
            term: metrics.current_term,
            last: self.replica.log_state().last,
            committed: id(metrics.cluster_committed.as_ref()),
            applied: self.replica.applied().last,
            members: members
                .nodes()
                .map(|(node, member)| (*node, (member.clone(), voters.contains(node))))
                .collect(),
            matching: metrics
                .replication
                .iter()
                .flatten()
                .map(|(node, matching)| (*node, id(matching.as_ref())))
                .collect(),
        }
    }

    /// Waits until the status is as wanted, and returns it. Fails when the consensus
    /// has ended before.
    pub async fn until(&self, wanted: impl Fn(&Status) -> bool) -> Result<Status, NodeError> {
        let mut metrics = self.raft.metrics();
        loop {
            let status = self.status();
            if wanted(&status) {
                return Ok(status);
            }
            let changed = metrics.changed().await;
            changed.map_err(|error| NodeError::consensus(&error))?;
        }
    }

    /// Ends the consensus, then closes the store.
    pub async fn close(self) -> Result<(), NodeError> {
        for task in &self.tasks {
            task.abort();
        }
        // A core that has ended already needs no end.
        drop(self.raft.shutdown().await);
        let store = Arc::clone(&self.store);
        let closed = tokio::task::spawn_blocking(move || store.shut_down());
        closed.await.map_err(std::io::Error::other)??;
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn propose(
    mut batches: mpsc::UnboundedReceiver<ProposedBatch>,
    raft: Raft<Types, StateMachine>,
) {
    while let Some(batch) = batches.recv().await {
        let ProposedBatch {
            count,
            payload,
            waiters,
        } = batch;
        let settled = OnResult(Box::new(move |result| settle(waiters, result)));
        let proposed = raft
            .client_write_ff(Batch { count, payload }, Some(settled))
            .await;
        if let Err(error) = proposed {
            tracing::error!(%error, "the consensus of this node has ended");
        }
    }
}

/// Answers those who wait for a batch.
fn settle(waiters: Waiters, result: ClientWriteResult<Types>) {
    match result {
        Ok(response) => waiters.answer(&response.data),
        Err(ClientWriteError::ForwardToLeader(forward)) => match forward.leader_id {
            Some(node) => {
                let member = forward.leader_node.unwrap_or_default();
                let text = format!(
                    "node {node} leads; its clients connect to {}",
                    member.client
                );
                waiters.refuse(ErrorCode::Redirect, &text);
            }
            None => waiters.refuse(ErrorCode::NoLeader, "no leader is known at present"),
        },
        // It was appended, and taken back here: others may have it (INDETERMINATE).
        Err(_) => drop(waiters),
    }
}
