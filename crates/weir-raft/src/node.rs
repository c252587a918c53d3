//! A node: a store, its consensus and its peer port.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use openraft::error::{ClientWriteError, LinearizableReadError, RaftError};
use openraft::metrics::WaitError;
use openraft::raft::ClientWriteResult;
use openraft::storage::RaftLogStorage;
use openraft::{Instant as _, Raft, RaftMetrics, ReadPolicy, ServerState};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use weir_core::ErrorCode;
use weir_store::replica::{
    EntryId, IntentionLog, LatencyClass, NodeOptions, ProposedBatch, Replica, Waiters,
    new_incarnation,
};
use weir_store::{OpenOptions, Store, StoreError};

use crate::agreement::{self, Diverged};
use crate::client::{Peer, Peers};
use crate::clocks::VotersClock;
use crate::convert::{NODES_MAX, decode_members, encode_members, entry_id};
use crate::disk_space::{DiskSpace, FULL};
use crate::error::NodeError;
use crate::exchange;
use crate::join::{JoinRequest, fingerprint, join_by};
use crate::machine::StateMachine;
use crate::members::{ChangeError, Members};
use crate::peer::{self, BODIES_BYTES_MAX, Contact, Port};
use crate::repair::Repairs;
use crate::reports::Reports;
use crate::secure::PeerTls;
use crate::settings::{self, LEADER_SILENCE_MAX};
use crate::storage::LogStore;
use crate::transport::{Acceptor, Tcp, Transport};
use crate::types::{Batch, Member, Membership, OnResult, Types};

/// The cluster and the number of the node in a directory. A number is never assigned to another
/// node.
pub use weir_store::replica::NodeIdentity as NodeConfig;

/// Time limit for the answer to a proposal. After it, callers get an unknown outcome. A leader that
/// has lost its majority accepts proposals until it notices the loss.
const PROPOSAL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a node tries to report its addresses before it logs that it cannot.
const MOVE_TIMEOUT: Duration = Duration::from_mins(10);
/// Time for a leader to reach a node that was opened.
const REACH_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit for a change that an operator requests.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for the confirmation of the leader in one round of a linearizable read. While a read
/// waits for the apply, it checks as often whether there was an election.
const ROUND_TIMEOUT: Duration = Duration::from_millis(500);
/// Pause before the next round after a failed round.
const CONFIRM_PAUSE: Duration = Duration::from_millis(20);
/// Time limit for openraft to register a snapshot that is on the disk.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which a wait for a status checks values that change without a message of the
/// consensus.
const STATUS_EVERY: Duration = Duration::from_millis(100);
/// Pause before a learner repeats its request to vote.
const PROMOTE_PAUSE: Duration = Duration::from_millis(100);

/// The current role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The node decides the order of the entries.
    Leader,
    /// The node follows a leader and votes.
    Follower,
    /// The node requests votes, or it leads and no majority has acknowledged it for a second.
    Candidate,
    /// The node follows a leader and does not vote.
    Learner,
    /// The disk of the node is full: the node neither leads nor votes until there is space.
    Full,
    /// The node was removed from the cluster: it receives no entries, so its state becomes stale.
    Removed,
    /// The consensus of the node has ended; the process must be restarted.
    Ended,
}

/// The status of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Number of the node.
    pub node: u64,
    /// Role of the node.
    pub role: Role,
    /// The leader, if the node knows one.
    pub leader: Option<u64>,
    /// Term of the node.
    pub term: u64,
    /// The newest entry that was purged from the log of the node.
    pub purged: Option<EntryId>,
    /// The newest entry of the log of the node.
    pub last: Option<EntryId>,
    /// The newest entry that the node knows to be committed.
    pub committed: Option<EntryId>,
    /// The newest entry that the node has applied.
    pub applied: Option<EntryId>,
    /// The members, and whether each member votes.
    pub members: BTreeMap<u64, (Member, bool)>,
    /// Whether a change of the voters is half committed: each write then needs a majority of the
    /// voters before and of the voters after the change. The leader of the change finishes it.
    pub joint: bool,
    /// On a leader: the newest entry that each member is known to have.
    pub matching: BTreeMap<u64, Option<EntryId>>,
    /// Time since the last contact with a leader; on a leader, with a majority. `None` before the
    /// first contact.
    pub contact: Option<Duration>,
    /// Whether the state of this node was found to differ from that of a leader, and was not
    /// replaced since.
    pub diverged: bool,
    /// How often the state of a leader has replaced the state of this node since the open.
    pub repairs: u64,
    /// Milliseconds by which the wall clock of this node is ahead of the clocks of a majority of the
    /// voters. The time of the store does not follow it.
    pub clock_ahead_ms: u64,
}

/// Sends batches of the store to openraft, and the positions up to which the log may be purged.
struct Proposals {
    batches: mpsc::UnboundedSender<ProposedBatch>,
    purges: mpsc::UnboundedSender<EntryId>,
}

/// The batches and purge positions of a store, in order.
pub(crate) struct Received {
    batches: mpsc::UnboundedReceiver<ProposedBatch>,
    purgeable: mpsc::UnboundedReceiver<EntryId>,
}

/// Creates the channels from a store to its node.
pub(crate) fn proposals() -> (Arc<dyn IntentionLog>, Received) {
    let (sender, batches) = mpsc::unbounded_channel();
    let (purges, purgeable) = mpsc::unbounded_channel();
    let proposals = Proposals {
        batches: sender,
        purges,
    };
    (Arc::new(proposals), Received { batches, purgeable })
}

impl IntentionLog for Proposals {
    fn propose(&self, batch: ProposedBatch) {
        // After the end, dropping the batch answers its waiting callers.
        drop(self.batches.send(batch));
    }

    fn latency_class(&self) -> LatencyClass {
        LatencyClass::Network
    }

    fn purgeable(&self, id: EntryId) {
        // A node that lacks these entries gets a snapshot.
        if self.purges.send(id).is_err() {
            tracing::debug!("the log of a closed node was not purged");
        }
    }
}

/// An open node of a cluster. Call [`close`](Self::close) to close it. Dropping it is equivalent to
/// a crash of the process, except that the store closes.
pub struct Node {
    store: Arc<Store>,
    pub(crate) replica: Replica,
    pub(crate) raft: Raft<Types, StateMachine>,
    address: SocketAddr,
    pub(crate) port: Arc<Port>,
    pub(crate) peers: Peers,
    reads: Reads,
    tasks: [JoinHandle<()>; 6],
    diverged: Diverged,
    #[cfg(test)]
    pub(crate) repairs: Arc<Repairs>,
}

/// The parts of a node besides its store.
pub(crate) struct Parts {
    /// The clock of the store.
    pub(crate) clock: Arc<VotersClock>,
    pub(crate) machine: StateMachine,
    pub(crate) transport: Arc<dyn Transport>,
    /// TLS for accepted connections of peers; the transport has its own for opened connections.
    pub(crate) tls: Option<PeerTls>,
    pub(crate) acceptor: Box<dyn Acceptor>,
    pub(crate) disk_space: Arc<DiskSpace>,
    /// The fingerprint of the engine of programs.
    pub(crate) engine: String,
    /// Whether a power cut may remove entries that the node has acknowledged.
    pub(crate) may_lose_entries: bool,
}

/// Linearizable reads that wait for a round.
#[derive(Default)]
struct Reads {
    /// Number of reads that were requested so far.
    requested: AtomicU64,
    round: tokio::sync::Mutex<ReadRound>,
}

#[derive(Default)]
struct ReadRound {
    /// Number of reads that a round has confirmed.
    confirmed: u64,
    /// The entry that the newest of these reads need.
    needed: NeededEntry,
    /// A connection to a leader, with the number of that leader.
    peer: Option<(u64, Peer)>,
}

/// The entry that a node must have applied before it returns a read.
#[derive(Clone, Copy, Default)]
struct NeededEntry {
    /// The index of openraft; `None` if the node had applied the entry when the round ended.
    raft_index: Option<u64>,
    /// The term of the leader that has named the entry.
    term: u64,
}

fn no_leader(why: &str) -> StoreError {
    StoreError::Remote {
        code: ErrorCode::NoLeader,
        text: format!("no leader is known at present: {why}"),
    }
}

fn change_refused(declined: ChangeError) -> NodeError {
    match declined {
        ChangeError::Rejected(why) | ChangeError::Retry(why) => NodeError::Refused(why),
        ChangeError::NotLeader(_) => NodeError::Store(no_leader("the leader has just changed")),
    }
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
    /// Opens the node in `directory`, creating it if it does not exist, and serves its peers on
    /// `listener`. A new node belongs to no cluster until it is initialized or added to one.
    pub async fn open(
        directory: &Path,
        options: &OpenOptions,
        config: NodeConfig,
        listener: TcpListener,
    ) -> Result<Self, NodeError> {
        Self::open_with_tls(directory, options, config, listener, None).await
    }

    /// As [`open`](Self::open), with TLS between the nodes.
    pub async fn open_with_tls(
        directory: &Path,
        options: &OpenOptions,
        config: NodeConfig,
        listener: TcpListener,
        tls: Option<PeerTls>,
    ) -> Result<Self, NodeError> {
        let NodeConfig {
            node,
            cluster,
            incarnation,
        } = config;
        let (proposals, received) = proposals();
        let engine = fingerprint(options);
        let clock = Arc::new(VotersClock::new(node, Arc::clone(&options.clock)));
        let options = OpenOptions {
            clock: Arc::clone(&clock) as _,
            ..options.clone()
        };
        let directory = directory.to_owned();
        let opened = tokio::task::spawn_blocking(move || {
            let node = NodeOptions {
                node,
                cluster,
                incarnation,
                allow_gaps: false,
            };
            Store::open_node(&directory, &options, &node, proposals)
        });
        let opened = opened.await.map_err(std::io::Error::other)?;
        let (store, replica) = opened?;
        let disk_space: Arc<DiskSpace> = Arc::default();
        let log = LogStore::with_disk_space(replica.clone(), Arc::clone(&disk_space));
        let parts = Parts {
            clock,
            machine: StateMachine::new(replica.clone())?,
            transport: match &tls {
                Some(tls) => Arc::new(tls.clone()),
                None => Arc::new(Tcp),
            },
            tls,
            acceptor: Box::new(listener),
            disk_space,
            engine,
            may_lose_entries: !replica.is_synced(),
        };
        Self::start(store, replica, received, config, log, parts).await
    }

    /// Starts the consensus of an open store.
    pub(crate) async fn start(
        store: Store,
        replica: Replica,
        received: Received,
        identity: NodeConfig,
        log: impl RaftLogStorage<Types>,
        parts: Parts,
    ) -> Result<Self, NodeError> {
        let identity = NodeConfig {
            incarnation: replica.incarnation(),
            ..identity
        };
        let NodeConfig {
            node,
            cluster,
            incarnation,
        } = identity;
        let Parts {
            clock,
            machine,
            transport,
            tls,
            acceptor,
            disk_space,
            engine,
            may_lose_entries,
        } = parts;
        let settings = settings::config(cluster, may_lose_entries);
        let settings = settings.map_err(|error| NodeError::consensus(&error))?;
        let reports = Arc::new(Reports::new(replica.clone()));
        let peers = Peers {
            cluster,
            node,
            incarnation,
            is_synced: replica.is_synced(),
            transport,
            clock: Arc::clone(&clock),
            reports: Some(Arc::clone(&reports)),
        };
        let exchanged = exchange::exchange_before_start(&reports, &peers).await;
        exchanged.map_err(NodeError::OlderCopy)?;
        let store = Arc::new(store);
        let repairs = Arc::new(Repairs::new(machine.gate(), Arc::clone(&store)));
        let raft = Raft::new(node, Arc::new(settings), peers.clone(), log, machine);
        let raft = raft.await.map_err(|error| NodeError::consensus(&error))?;
        clock.follow(raft.server_metrics());
        let address = acceptor.address()?;
        let port = Arc::new(Port {
            identity,
            raft: raft.clone(),
            members: Members::new(identity, raft.clone(), engine, replica.is_synced()),
            contact: Contact::new(),
            disk_space,
            reports: Arc::clone(&reports),
            repairs: Arc::clone(&repairs),
            peers: peers.clone(),
            clock,
            replica: replica.clone(),
            tls,
            bodies: Semaphore::new(BODIES_BYTES_MAX),
            warned: Mutex::default(),
        });
        let diverged = Diverged::default();
        let tasks = [
            tokio::spawn(propose(received.batches, Arc::clone(&port))),
            tokio::spawn(peer::serve(acceptor, Arc::clone(&port))),
            tokio::spawn({
                let port = Arc::clone(&port);
                async move { port.members.finish_changes().await }
            }),
            tokio::spawn(purge(received.purgeable, raft.clone())),
            tokio::spawn(agreement::watch(
                {
                    let replica = replica.clone();
                    move || replica.digest_sample()
                },
                raft.clone(),
                peers.clone(),
                diverged.clone(),
                Arc::clone(&repairs),
                agreement::RETRY_PAUSE,
            )),
            tokio::spawn(exchange::watch(reports, raft.clone(), peers.clone())),
        ];
        Ok(Self {
            store,
            replica,
            raft,
            address,
            port,
            peers,
            reads: Reads::default(),
            tasks,
            diverged,
            #[cfg(test)]
            repairs,
        })
    }

    /// Makes a standalone store in `directory` the first node of a cluster. The id of the cluster
    /// is that of the store.
    ///
    /// # Errors
    /// `OtherVoters` if the store has the state of a cluster with other voters, unless `force`.
    pub fn convert(
        directory: &Path,
        options: &OpenOptions,
        node: u64,
        member: &Member,
        force: bool,
    ) -> Result<NodeConfig, NodeError> {
        let options = OpenOptions {
            create: false,
            ..options.clone()
        };
        let store = Store::open(directory, &options)?;
        if let Some(body) = store.membership()?.filter(|_| !force) {
            let members = decode_members(&body)?;
            let others: Vec<_> = members.voter_ids().filter(|voter| *voter != node).collect();
            if !others.is_empty() {
                let voters = members.voter_ids().map(|voter| voter.to_string());
                let voters = voters.collect::<Vec<_>>().join(", ");
                return Err(NodeError::OtherVoters { voters });
            }
        }
        let cluster = store.identity().store_id;
        let incarnation = new_incarnation();
        let member = Member {
            incarnation,
            ..member.clone()
        };
        let nodes = BTreeMap::from([(node, member)]);
        let members = Membership::new(vec![[node].into()], nodes);
        let members = members.map_err(|error| NodeError::consensus(&error))?;
        store.into_node(node, incarnation, &encode_members(&members))?;
        Ok(NodeConfig {
            node,
            cluster,
            incarnation,
        })
    }

    /// Makes an empty directory the node that a cluster has accepted, without opening it.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn create(
        directory: &Path,
        options: &OpenOptions,
        config: NodeConfig,
    ) -> Result<(), NodeError> {
        let NodeConfig {
            node,
            cluster,
            incarnation,
        } = config;
        let node = NodeOptions {
            node,
            cluster,
            incarnation,
            allow_gaps: false,
        };
        let (proposals, _) = proposals();
        let (store, _) = Store::open_node(directory, options, &node, proposals)?;
        Ok(store.close()?)
    }

    /// The store. Writes succeed only on the leader; reads return the state of this node.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The address of the peer port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Forms a cluster of these members, which include this node. Each member must be running, and
    /// none may belong to a cluster. Returns after a majority has committed the members.
    ///
    /// # Errors
    /// If a call fails, the cluster may still be formed. Repeat the call until it succeeds, or until
    /// a node has applied an entry.
    pub async fn initialize(&self, mut members: BTreeMap<u64, Member>) -> Result<(), NodeError> {
        if members.len() > NODES_MAX {
            let text = format!("a cluster has at most {NODES_MAX} nodes");
            return Err(NodeError::Refused(text));
        }
        for (node, member) in &mut members {
            self.fetch_incarnation(*node, member).await?;
        }
        let done = self.raft.initialize(members).await;
        done.map_err(|error| NodeError::consensus(&error))?;
        // openraft returns before the entry with the members is synced.
        let wait = self.raft.wait(Some(CHANGE_TIMEOUT));
        let applied = wait.applied_index_at_least(Some(0), "the members are committed");
        applied
            .await
            .map(drop)
            .map_err(|error| NodeError::consensus(&error))
    }

    /// Asks a future member for the incarnation of its disk.
    async fn fetch_incarnation(&self, node: u64, member: &mut Member) -> Result<(), NodeError> {
        let identity = self.port.identity;
        if node == identity.node {
            member.incarnation = identity.incarnation;
        } else if member.incarnation == 0 {
            let asked = self.peers.client(node, member).incarnation().await;
            let unreachable = |error| NodeError::Unreachable(format!("{}: {error}", member.peer));
            member.incarnation = asked.map_err(unreachable)?;
        }
        Ok(())
    }

    /// Adds a member that receives the log and does not vote. Returns after the member has caught
    /// up.
    pub async fn add_learner(&self, node: u64, mut member: Member) -> Result<(), NodeError> {
        self.fetch_incarnation(node, &mut member).await?;
        let added = self.raft.add_learner(node, member, true).await;
        added
            .map(drop)
            .map_err(|error| NodeError::consensus(&error))
    }

    /// Makes these members the voters and removes all other members.
    ///
    /// # Errors
    /// As for [`remove`](Self::remove).
    pub async fn change_voters(
        &self,
        voters: impl IntoIterator<Item = u64>,
    ) -> Result<(), NodeError> {
        self.linearize_on_leader(CHANGE_TIMEOUT).await?;
        let changed = self.port.members.set_voters(voters.into_iter().collect());
        changed.await.map_err(change_refused)
    }

    /// Reserves a number for a node that will listen for its peers at `peer`. Returns the number
    /// after its commit.
    ///
    /// As for [`remove`](Self::remove); `Refused` for an invalid address, or the address of a
    /// member.
    pub async fn reserve(&self, peer: &str) -> Result<u64, NodeError> {
        self.linearize_on_leader(CHANGE_TIMEOUT).await?;
        let added = self.port.members.reserve(peer).await;
        added.map_err(change_refused)
    }

    /// Waits until the members or their addresses differ from `known`; returns the members.
    ///
    /// # Errors
    /// Fails if the consensus has ended.
    pub async fn members_other_than(
        &self,
        known: &BTreeMap<u64, Member>,
    ) -> Result<BTreeMap<u64, Member>, NodeError> {
        // These metrics change only with the members, the term and the leader.
        let mut metrics = self.raft.server_metrics();
        loop {
            let members = metrics
                .borrow_watched()
                .membership_config
                .membership()
                .clone();
            if !members.nodes().eq(known) {
                let members = members.nodes();
                return Ok(members
                    .map(|(node, member)| (*node, member.clone()))
                    .collect());
            }
            let changed = metrics.changed().await;
            changed.map_err(|error| NodeError::consensus(&error))?;
        }
    }

    /// Transfers the leadership to another voter.
    pub async fn transfer(&self, to: u64) -> Result<(), NodeError> {
        let asked = self.raft.trigger().transfer_leader(to).await;
        asked.map_err(|error| NodeError::consensus(&error))
    }

    /// The status of the node.
    #[must_use]
    pub fn status(&self) -> Status {
        let log = self.replica.log_state();
        let metrics = self.raft.metrics().borrow_watched().clone();
        let members = metrics.membership_config.membership();
        let voters: Vec<u64> = members.voter_ids().collect();
        let id = |id: Option<&_>| id.map(entry_id);
        Status {
            node: metrics.id,
            role: match self.role(&metrics) {
                Role::Leader if !is_acknowledged(&metrics) => Role::Candidate,
                role => role,
            },
            leader: leader_of(&metrics, &self.port),
            term: metrics.current_term,
            purged: log.purged,
            last: log.last,
            committed: id(metrics.cluster_committed.as_ref()),
            applied: self.replica.applied().last,
            diverged: self.diverged.is_diverged(),
            repairs: self.diverged.repairs(),
            clock_ahead_ms: self.port.clock.ahead_ms(),
            contact: match metrics.state {
                ServerState::Leader => metrics.last_quorum_acked.map(|acked| acked.elapsed()),
                _ => self.port.contact.age(),
            },
            joint: members.get_joint_config().len() > 1,
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

    /// The role of the node. A leader that no majority acknowledges is a leader here.
    fn role(&self, metrics: &RaftMetrics<Types>) -> Role {
        match metrics.state {
            _ if metrics.running_state.is_err() => Role::Ended,
            _ if self.is_removed() => Role::Removed,
            _ if self.port.disk_space.is_full() => Role::Full,
            ServerState::Leader => Role::Leader,
            ServerState::Follower => Role::Follower,
            ServerState::Candidate => Role::Candidate,
            ServerState::Learner => Role::Learner,
            ServerState::Shutdown => Role::Ended,
        }
    }

    /// Whether a member has refused this node because it was removed from the cluster.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.port.reports.is_removed()
    }

    /// Waits until [`is_removed`](Self::is_removed) is true. Only one task may wait.
    pub async fn removed(&self) {
        self.port.reports.removed().await;
    }

    /// The leader that this node knows: its number and its member.
    #[must_use]
    pub fn leader(&self) -> Option<(u64, Member)> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let leader = leader_of(&metrics, &self.port)?;
        let members = metrics.membership_config.membership();
        Some((leader, members.get_node(&leader)?.clone()))
    }

    /// Whether this node acts as leader. Another node may already lead a later term.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        let metrics = self.raft.metrics().borrow_watched().clone();
        self.role(&metrics) == Role::Leader
    }

    /// Waits until this node has applied everything that any node acknowledged before the call. A
    /// read after it is linearizable. A majority confirms the leader in a round that begins after
    /// the call; waiting calls share a round.
    ///
    /// # Errors
    /// `Remote` with `NoLeader` if no leader is confirmed, or not everything is applied, within
    /// `patience`, or at once if this node was removed.
    pub async fn linearize(&self, patience: Duration) -> Result<(), StoreError> {
        if self.is_removed() {
            return Err(no_leader("this node was removed from its cluster"));
        }
        let rounds = async {
            loop {
                let needed = self.confirm_leader().await;
                let Err(error) = self.until_applied(needed).await else {
                    return;
                };
                tracing::debug!(%error, "a read begins again");
                tokio::time::sleep(CONFIRM_PAUSE).await;
            }
        };
        let confirmed = tokio::time::timeout(patience, rounds).await;
        let late = "no majority has confirmed a leader in time, or this node lags too far";
        confirmed.map_err(|_| no_leader(late))
    }

    /// Waits until a round that begins after the call has confirmed a leader. The next round does
    /// not wait for the apply of the entry that this one returns.
    async fn confirm_leader(&self) -> NeededEntry {
        let number = self.reads.requested.fetch_add(1, Ordering::SeqCst) + 1;
        let mut round = self.reads.round.lock().await;
        loop {
            if round.confirmed >= number {
                return round.needed;
            }
            // All these reads were requested before the round begins.
            let requested = self.reads.requested.load(Ordering::SeqCst);
            match self.confirm(&mut round).await {
                Ok(needed) => {
                    round.confirmed = requested;
                    round.needed = needed;
                }
                Err(error) => {
                    tracing::debug!(%error, "no leader was confirmed");
                    tokio::time::sleep(CONFIRM_PAUSE).await;
                }
            }
        }
    }

    /// Runs one round: asks the leader for the entry that reads need.
    async fn confirm(&self, round: &mut ReadRound) -> Result<NeededEntry, NodeError> {
        let term = self.raft.metrics().borrow_watched().current_term;
        let (leader, member) = self
            .leader()
            .ok_or_else(|| NodeError::Unreachable("no leader is known at present".to_owned()))?;
        if leader == self.port.identity.node {
            let confirmed = self.raft.get_read_log_id(ReadPolicy::ReadIndex);
            // Without a majority, the call does not return by itself.
            let confirmed = tokio::time::timeout(ROUND_TIMEOUT, confirmed).await;
            let confirmed = confirmed.map_err(|error| NodeError::consensus(&error))?;
            let (id, applied) = confirmed.map_err(|error| NodeError::consensus(&error))?;
            let is_applied = applied.is_some_and(|applied| applied.index >= id.index());
            let raft_index = (!is_applied).then(|| id.index());
            return Ok(NeededEntry { raft_index, term });
        }
        let known = round.peer.take().filter(|(known, _)| *known == leader);
        let mut peer = match known {
            Some((_, peer)) => peer,
            None => self.peers.client(leader, &member),
        };
        let asked = tokio::time::timeout(ROUND_TIMEOUT, peer.read_index()).await;
        let index = asked.map_err(|error| NodeError::consensus(&error))??;
        round.peer = Some((leader, peer));
        let raft_index = index.0.checked_sub(1);
        Ok(NeededEntry { raft_index, term })
    }

    /// Waits until this node has applied the entry that a leader of this term has named. The caller
    /// limits the time: another round would wait for a later entry. Fails after an election, which
    /// may have removed the entry.
    async fn until_applied(&self, needed: NeededEntry) -> Result<(), NodeError> {
        let Some(raft_index) = needed.raft_index else {
            return Ok(());
        };
        loop {
            let wait = self.raft.wait(Some(ROUND_TIMEOUT));
            let applied = wait.applied_index_at_least(Some(raft_index), "a read waits");
            let Err(error) = applied.await else {
                return Ok(());
            };
            let now = self.raft.metrics().borrow_watched().current_term;
            if now != needed.term || error == WaitError::ShuttingDown {
                return Err(NodeError::consensus(&error));
            }
        }
    }

    /// Checks that this node leads, and a majority has followed it within its lease. This node has
    /// then applied everything that it has acknowledged.
    ///
    /// # Errors
    /// `Elsewhere` if another node leads; `Remote` with `NoLeader` if no leader is known.
    pub async fn lease(&self, patience: Duration) -> Result<(), StoreError> {
        let confirmed = self.raft.ensure_linearizable(ReadPolicy::LeaseRead);
        match tokio::time::timeout(patience, confirmed).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward)))) => {
                match (forward.leader_id, forward.leader_node) {
                    (Some(node), Some(member)) if !self.port.contact.is_lost() => {
                        Err(StoreError::Elsewhere {
                            node,
                            client: member.client,
                        })
                    }
                    _ => Err(no_leader("an election is under way")),
                }
            }
            Ok(Err(error)) => Err(no_leader(&error.to_string())),
            Err(_) => Err(no_leader("a majority did not answer in time")),
        }
    }

    /// As [`linearize`](Self::linearize), for requests that only the leader answers.
    ///
    /// # Errors
    /// `Elsewhere` if another node leads, also after the wait; `Remote` with `NoLeader` as for
    /// [`linearize`](Self::linearize).
    pub async fn linearize_on_leader(&self, patience: Duration) -> Result<(), StoreError> {
        self.check_none_other_leads()?;
        self.linearize(patience).await?;
        // Another node may have been elected during the wait, and have confirmed the read.
        self.check_none_other_leads()?;
        if self.is_leader() {
            return Ok(());
        }
        Err(no_leader("an election is under way"))
    }

    /// Fails with `Elsewhere` if another node is known to lead.
    fn check_none_other_leads(&self) -> Result<(), StoreError> {
        match self.leader() {
            Some((node, member)) if node != self.port.identity.node => {
                let client = member.client;
                Err(StoreError::Elsewhere { node, client })
            }
            _ => Ok(()),
        }
    }

    /// Waits until this node votes, and repeats the request to the leader meanwhile. Returns at
    /// once if this node is not a member of a cluster.
    pub async fn become_voter(&self) -> Result<(), NodeError> {
        loop {
            let status = self.until(|status| !status.members.is_empty()).await?;
            match status.members.get(&status.node) {
                // Until a joint membership is committed, another leader may undo it.
                Some((_, true)) if !status.joint => return Ok(()),
                None => {
                    let text = format!("node {} was removed from the cluster", status.node);
                    return Err(NodeError::Refused(text));
                }
                Some(_) => {}
            }
            if status.role == Role::Ended {
                let text = "the consensus of this node has ended";
                return Err(NodeError::Consensus(text.to_owned()));
            }
            if let Some((leader, member)) = self.leader()
                && leader != status.node
            {
                let mut peer = self.peers.client(leader, &member);
                if let Err(error) = peer.promote().await {
                    tracing::debug!(%error, "the leader does not accept this node as a voter yet");
                }
            }
            tokio::time::sleep(PROMOTE_PAUSE).await;
        }
    }

    /// Runs after the open of a node. Reports the addresses of the node to the leader if they
    /// differ from those in the log, or if no leader reaches the node: then the cluster may have
    /// other addresses of it than the log. Asks the members, and the nodes at `join`, for the
    /// leader. Requests to vote if the node does not vote.
    pub async fn announce(&self, member: &Member, join: &[String]) {
        let member = Member {
            incarnation: self.port.identity.incarnation,
            ..member.clone()
        };
        let is_reached = |status: &Status| {
            let has_leader = status.contact.is_some() || status.role == Role::Leader;
            has_leader && self.has_moved(&member) == Some(false)
        };
        let is_decided =
            |status: &Status| is_reached(status) || self.has_moved(&member) == Some(true);
        let decided = tokio::time::timeout(REACH_TIMEOUT, self.until(is_decided));
        let is_known = match decided.await {
            Ok(Ok(status)) => is_reached(&status),
            Ok(Err(_)) => return,
            Err(_) => false,
        };
        if !is_known && !self.is_removed() {
            tokio::select! {
                biased;
                _ = self.until(is_reached) => {}
                () = self.report_addresses(&member, join) => {}
            }
        }
        // A node that catches up knows only members from before its join for some time.
        let is_member = |status: &Status| status.members.contains_key(&status.node);
        if self.until(is_member).await.is_err() {
            return;
        }
        if let Err(error) = self.become_voter().await {
            tracing::warn!(%error, "this node does not vote");
        }
    }

    /// Whether the addresses of this node differ from those in the newest committed membership:
    /// another leader may undo a later one. `None` if that membership does not name this node.
    pub(crate) fn has_moved(&self, member: &Member) -> Option<bool> {
        let members = self.port.reports.members()?;
        let known = members.get_node(&self.port.identity.node)?;
        let removed = known.removed.clone();
        let member = member.clone();
        Some(*known != Member { removed, ..member })
    }

    /// Reports the addresses of this node to the leader. Repeats this until a leader replies.
    async fn report_addresses(&self, member: &Member, join: &[String]) {
        let request = JoinRequest {
            known: Some(self.port.identity),
            node: None,
            member: member.clone(),
            engine: self.port.members.engine().to_owned(),
            is_synced: self.port.replica.is_synced(),
        };
        loop {
            // This node may lead. Then the others name its earlier address.
            let mut peers = vec![self.address.to_string(), member.peer.clone()];
            let members = self.status().members.into_values();
            peers.extend(members.map(|(member, _)| member.peer));
            peers.extend_from_slice(join);
            let tls = self.port.tls.as_ref();
            let Err(error) = join_by(&peers, &request, MOVE_TIMEOUT, tls).await else {
                return;
            };
            // Members that the node does not know may have removed it.
            self.port.reports.record_refusal(&error.to_string());
            tracing::warn!(%error, "the cluster may not know the addresses of this node");
            if !matches!(error, NodeError::Unreachable(_)) {
                return;
            }
        }
    }

    /// Removes a node from the cluster. The removal is committed when the call returns.
    ///
    /// # Errors
    /// `Elsewhere` if another node leads; `Refused` if the node is not a member or is the only
    /// voter, or during another change.
    pub async fn remove(&self, node: u64) -> Result<(), NodeError> {
        self.linearize_on_leader(CHANGE_TIMEOUT).await?;
        let removed = self.port.members.remove(node).await;
        removed.map_err(change_refused)
    }

    /// Transfers the leadership to another voter, which leads when the call returns.
    ///
    /// # Errors
    /// `Elsewhere` if another node leads; `Refused` if the target does not vote; `NotReady` if it
    /// does not answer or lags, or did not become leader in time.
    pub async fn transfer_leadership(&self, to: u64) -> Result<(), NodeError> {
        if self.leader().is_some_and(|(leader, _)| leader == to) {
            return Ok(());
        }
        self.linearize_on_leader(CHANGE_TIMEOUT).await?;
        let votes = self
            .status()
            .members
            .get(&to)
            .is_some_and(|(_, votes)| *votes);
        if !votes {
            return Err(NodeError::Refused(format!("node {to} does not vote")));
        }
        self.port
            .members
            .until_can_lead(to)
            .await
            .map_err(|declined| match declined {
                ChangeError::Retry(why) => NodeError::NotReady(why),
                declined => change_refused(declined),
            })?;
        self.transfer(to).await?;
        let leads = self.until(|status| status.leader == Some(to));
        let in_time = tokio::time::timeout(CHANGE_TIMEOUT, leads).await;
        let late = |_| {
            let text = "did not become leader in time; another node may lead now";
            NodeError::NotReady(format!("node {to} {text}"))
        };
        in_time.map_err(late)?.map(drop)
    }

    /// Waits until the status satisfies `wanted`, and returns it. Fails if the consensus ends
    /// before.
    pub async fn until(&self, wanted: impl Fn(&Status) -> bool) -> Result<Status, NodeError> {
        let mut metrics = self.raft.metrics();
        loop {
            let status = self.status();
            if wanted(&status) {
                return Ok(status);
            }
            let changed = tokio::time::timeout(STATUS_EVERY, metrics.changed()).await;
            if let Ok(changed) = changed {
                changed.map_err(|error| NodeError::consensus(&error))?;
            }
        }
    }

    pub(crate) fn abort_tasks(&self) {
        self.port.disk_space.close();
        for task in &self.tasks {
            task.abort();
        }
    }

    #[cfg(feature = "sim")]
    pub(crate) fn replica(&self) -> &Replica {
        &self.replica
    }

    #[cfg(feature = "sim")]
    pub(crate) fn consensus(&self) -> &Raft<Types, StateMachine> {
        &self.raft
    }

    /// Ends the consensus, then closes the store.
    pub async fn close(self) -> Result<(), NodeError> {
        self.shut_down().await
    }

    /// As [`close`](Self::close), for a shared node. The node cannot be used after it.
    pub async fn shut_down(&self) -> Result<(), NodeError> {
        self.abort_tasks();
        // Shutdown fails if the core has already ended.
        drop(self.raft.shutdown().await);
        self.port.reports.save().await;
        let store = Arc::clone(&self.store);
        let closed = tokio::task::spawn_blocking(move || store.shut_down());
        closed.await.map_err(std::io::Error::other)??;
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.abort_tasks();
    }
}

/// The known leader. A core that waits for space reports itself or an earlier leader. A core does
/// not forget a leader that is silent, or itself if no majority answers. A removed node has none.
fn leader_of(metrics: &RaftMetrics<Types>, port: &Port) -> Option<u64> {
    if port.reports.is_removed() {
        return None;
    }
    if port.disk_space.is_full() {
        let before = metrics.current_leader.filter(|node| *node != metrics.id);
        return port.disk_space.leader().or(before);
    }
    let leads = |node: &u64| {
        if *node == metrics.id {
            is_acknowledged(metrics)
        } else {
            !port.contact.is_lost()
        }
    };
    metrics.current_leader.filter(leads)
}

/// Whether a majority has acknowledged this leader recently. A new leader was just elected by one. A
/// single voter is a majority.
fn is_acknowledged(metrics: &RaftMetrics<Types>) -> bool {
    let members = metrics.membership_config.membership();
    let acked = metrics.last_quorum_acked;
    members.voter_ids().count() < 2
        || acked.is_none_or(|acked| acked.elapsed() <= LEADER_SILENCE_MAX)
}

/// Rejects a proposal on a full disk; the core does not see the proposal.
fn refuse_full(waiters: Waiters, port: &Port) {
    let metrics = port.raft.metrics().borrow_watched().clone();
    let members = metrics.membership_config.membership();
    let leader = leader_of(&metrics, port);
    match leader.and_then(|node| Some((node, members.get_node(&node)?))) {
        Some((node, member)) => waiters.redirect(node, &member.client),
        None if members.voter_ids().count() > 1 => waiters.refuse(ErrorCode::NoLeader, FULL),
        None => waiters.refuse(ErrorCode::DiskFull, FULL),
    }
}

/// Purges log entries that the store no longer needs. openraft purges only entries in a snapshot
/// that it knows, so the newest snapshot is registered first.
async fn purge(mut purgeable: mpsc::UnboundedReceiver<EntryId>, raft: Raft<Types, StateMachine>) {
    while let Some(mut id) = purgeable.recv().await {
        while let Ok(newer) = purgeable.try_recv() {
            id = newer;
        }
        let raft_index = id.index.0.saturating_sub(1);
        let is_known = |metrics: &RaftMetrics<Types>| {
            let newest = metrics.snapshot.as_ref();
            newest.is_some_and(|newest| newest.index >= raft_index)
        };
        // A request for a known snapshot writes another snapshot of the same entries. While an
        // unreachable peer holds up the purge, this would repeat without end.
        let is_registered = is_known(&raft.metrics().borrow_watched());
        if !is_registered && raft.trigger().snapshot().await.is_err() {
            return;
        }
        let wait = raft.wait(Some(SNAPSHOT_TIMEOUT));
        match wait.metrics(is_known, "a snapshot").await {
            Ok(_) => drop(raft.trigger().purge_log(raft_index).await),
            Err(error) => tracing::warn!(%error, "the log was not purged"),
        }
    }
}

/// The waiters of a proposal, until the answer or the timeout removes them.
type Slot = Arc<Mutex<Option<Waiters>>>;

fn take(slot: &Slot) -> Option<Waiters> {
    slot.lock().take()
}

async fn propose(mut batches: mpsc::UnboundedReceiver<ProposedBatch>, port: Arc<Port>) {
    let mut waiting: VecDeque<(Instant, Slot)> = VecDeque::new();
    loop {
        let due = waiting.front().map(|(until, _)| *until);
        let late = async {
            match due {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let batch = tokio::select! {
            biased;
            () = late => {
                if let Some((_, slot)) = waiting.pop_front() {
                    // Dropping the waiters reports an unknown outcome.
                    drop(take(&slot));
                }
                continue;
            }
            batch = batches.recv() => batch,
        };
        let Some(batch) = batch else { return };
        let ProposedBatch {
            count,
            payload,
            waiters,
        } = batch;
        if port.disk_space.is_full() {
            refuse_full(waiters, &port);
            continue;
        }
        let slot: Slot = Arc::new(Mutex::new(Some(waiters)));
        while let Some((_, first)) = waiting.front()
            && Arc::strong_count(first) == 1
        {
            waiting.pop_front();
        }
        waiting.push_back((Instant::now() + PROPOSAL_TIMEOUT, Arc::clone(&slot)));
        let on_result = {
            let port = Arc::clone(&port);
            OnResult(Box::new(move |result| {
                if let Some(waiters) = take(&slot) {
                    resolve(waiters, result, &port.contact);
                }
            }))
        };
        let proposed = port
            .raft
            .client_write_ff(Batch { count, payload }, Some(on_result))
            .await;
        if let Err(error) = proposed {
            tracing::error!(%error, "the consensus of this node has ended");
        }
    }
}

/// Answers the waiting callers of a batch.
fn resolve(waiters: Waiters, result: ClientWriteResult<Types>, contact: &Contact) {
    #[cfg(feature = "sim")]
    let Some(waiters) = crate::planted::filter_waiters(waiters, &result) else {
        return;
    };
    match result {
        Ok(response) => waiters.answer(&response.data),
        Err(ClientWriteError::ForwardToLeader(forward)) => match forward.leader_id {
            Some(node) if !contact.is_lost() => {
                let member = forward.leader_node.unwrap_or_default();
                waiters.redirect(node, &member.client);
            }
            _ => waiters.refuse(ErrorCode::NoLeader, "no leader is known at present"),
        },
        // The entry was appended, and truncated here: other nodes may have it (INDETERMINATE).
        Err(_) => drop(waiters),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use weir_core::TopicOptions;
    use weir_core::intention::{Intention, Operation};
    use weir_store::Proposal;

    use super::*;

    /// Proposes an intention, and waits until it is committed.
    async fn commit(node: &Node, topic: &str) -> (Proposal, EntryId) {
        let before = node.status().last;
        let options = &TopicOptions::default();
        let create = Intention::new(topic, Operation::Create { options });
        let proposal = node.store().propose(&[create]).unwrap();
        let is_committed =
            |status: &Status| status.last > before && status.committed == status.last;
        let status = node.until(is_committed).await.unwrap();
        (proposal, status.last.unwrap())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_read_that_waits_for_a_slow_apply_does_not_wait_for_later_entries() {
        let directory = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = NodeConfig {
            node: 1,
            cluster: [3; 16],
            incarnation: 0,
        };
        let node = Node::open(directory.path(), &OpenOptions::default(), config, listener).await;
        let node = node.unwrap();
        let member = Member {
            peer: node.address().to_string(),
            ..Member::default()
        };
        let members = BTreeMap::from([(1, member)]);
        node.initialize(members).await.unwrap();
        let leads = |status: &Status| {
            let all = [status.committed, status.applied];
            status.role == Role::Leader && all.iter().all(|id| id.is_some() && *id == status.last)
        };
        node.until(leads).await.unwrap();
        let closed = node.repairs.gate.close();
        let (_first, needed) = commit(&node, "first").await;
        let mut reading = Box::pin(node.linearize(Duration::from_mins(1)));
        let begun = tokio::time::timeout(Duration::ZERO, &mut reading).await;
        assert!(begun.is_err(), "the entry is not applied");
        let (_second, later) = commit(&node, "second").await;
        let waiting = tokio::time::timeout(2 * ROUND_TIMEOUT, &mut reading).await;
        assert!(waiting.is_err(), "the entry is not applied");
        // The round of the next read does not wait for the first read.
        let mut next = Box::pin(node.linearize(Duration::from_mins(1)));
        let begun = tokio::time::timeout(Duration::ZERO, &mut next).await;
        assert!(begun.is_err(), "the entry is not applied");
        let (_third, _) = commit(&node, "third").await;
        for (reading, needed) in [(&mut reading, needed), (&mut next, later)] {
            assert!(node.repairs.gate.raise(needed.index));
            reading.await.unwrap();
        }
        drop((reading, next, closed));
        node.close().await.unwrap();
    }
}
