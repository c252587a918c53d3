//! A node: a store, its consensus and its port.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use openraft::error::{ClientWriteError, LinearizableReadError, RaftError};
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
use crate::convert::{NODES_MAX, encode_members, entry_id};
use crate::error::NodeError;
use crate::exchange;
use crate::join::{JoinRequest, fingerprint, join_by};
use crate::machine::StateMachine;
use crate::members::{Declined, Members};
use crate::peer::{self, BODIES_BYTES_MAX, Contact, Port};
use crate::repair::Repairs;
use crate::reports::Reports;
use crate::room::{FULL, Room};
use crate::secure::PeerTls;
use crate::settings;
use crate::storage::LogStore;
use crate::transport::{Acceptor, Tcp, Transport};
use crate::types::{Batch, Member, Membership, OnResult, Types};

/// Which node of which cluster a directory is. A number is never given to another
/// node.
pub use weir_store::replica::NodeIdentity as NodeConfig;

/// How long a proposal may be without an answer. After it, its callers learn that
/// nobody knows what becomes of it: a leader that has lost its majority takes
/// proposals until it notices.
const PROPOSAL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a node tells the others that its addresses have changed.
const MOVE_PATIENCE: Duration = Duration::from_mins(10);
/// How long a change that an operator asks for may take.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one round of a linearizable read may take.
const ROUND_TIMEOUT: Duration = Duration::from_millis(500);
/// Pause before the next round after one that failed.
const CONFIRM_PAUSE: Duration = Duration::from_millis(20);
/// How long openraft may take to learn of a snapshot that is on the disk.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause before a learner asks again to vote.
const PROMOTE_PAUSE: Duration = Duration::from_millis(100);

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
    /// Its disk is full: it neither leads nor votes until there is space.
    Full,
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
    /// The newest entry that its log has let go.
    pub purged: Option<EntryId>,
    /// The newest entry of its log.
    pub last: Option<EntryId>,
    /// The newest entry that it knows to be committed.
    pub committed: Option<EntryId>,
    /// The newest entry that it has applied.
    pub applied: Option<EntryId>,
    /// The members, and whether each one votes.
    pub members: BTreeMap<u64, (Member, bool)>,
    /// Whether a change of the voters is committed by half: both the voters before and those after
    /// it have to agree to every write. Its leader finishes it.
    pub joint: bool,
    /// On a leader: the newest entry that each member is known to have.
    pub matching: BTreeMap<u64, Option<EntryId>>,
    /// Time since a leader was heard of; on a leader, since a majority was. `None`
    /// before the first time.
    pub contact: Option<Duration>,
    /// Whether it was found to have another state than a leader, and did not get that of the
    /// leader since.
    pub diverged: bool,
    /// How often the state of a leader has taken the place of its own, since it was opened.
    pub repairs: u64,
}

/// Hands batches of the store to openraft, and what the store needs no more.
struct Proposals {
    batches: mpsc::UnboundedSender<ProposedBatch>,
    purges: mpsc::UnboundedSender<EntryId>,
}

/// What a store has handed over, in its order.
pub(crate) struct Received {
    batches: mpsc::UnboundedReceiver<ProposedBatch>,
    purgeable: mpsc::UnboundedReceiver<EntryId>,
}

/// The two ends between a store and its node.
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
        // After the end, dropping the batch answers those who wait.
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

/// An open node of a cluster. [`close`](Self::close) it; dropping it is what a
/// crash of the process is, but for the store, which closes.
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

/// What a node is made of beside its store.
pub(crate) struct Parts {
    pub(crate) machine: StateMachine,
    pub(crate) transport: Arc<dyn Transport>,
    /// TLS for connections of peers; the transport has it for its own.
    pub(crate) tls: Option<PeerTls>,
    pub(crate) acceptor: Box<dyn Acceptor>,
    pub(crate) room: Arc<Room>,
    /// The fingerprint of what runs programs.
    pub(crate) engine: String,
}

/// Linearizable reads that wait for a round.
#[derive(Default)]
struct Reads {
    /// How many were asked for so far.
    asked: AtomicU64,
    turn: tokio::sync::Mutex<Turn>,
}

#[derive(Default)]
struct Turn {
    /// How many of them a round has confirmed.
    confirmed: u64,
    /// A connection to the leader of this number.
    peer: Option<(u64, Peer)>,
}

fn no_leader(why: &str) -> StoreError {
    StoreError::Remote {
        code: ErrorCode::NoLeader,
        text: format!("no leader is known at present: {why}"),
    }
}

fn not_changed(declined: Declined) -> NodeError {
    match declined {
        Declined::Never(why) | Declined::Later(why) => NodeError::Refused(why),
        Declined::Elsewhere(_) => NodeError::Store(no_leader("the lead has just changed")),
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
    /// Opens the node in `directory`, or makes it, and serves its peers on
    /// `listener`. It belongs to no cluster before it was initialized or added to
    /// one.
    pub async fn open(
        directory: &Path,
        options: &OpenOptions,
        config: NodeConfig,
        listener: TcpListener,
    ) -> Result<Self, NodeError> {
        Self::open_by(directory, options, config, listener, None).await
    }

    /// As [`open`](Self::open), with TLS between the nodes.
    pub async fn open_by(
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
        let (directory, options) = (directory.to_owned(), options.clone());
        let opened = tokio::task::spawn_blocking(move || {
            let node = NodeOptions {
                node,
                cluster,
                incarnation,
                holes: false,
            };
            Store::open_node(&directory, &options, &node, proposals)
        });
        let opened = opened.await.map_err(std::io::Error::other)?;
        let (store, replica) = opened?;
        let room: Arc<Room> = Arc::default();
        let log = LogStore::within(replica.clone(), Arc::clone(&room));
        let parts = Parts {
            machine: StateMachine::new(replica.clone())?,
            transport: match &tls {
                Some(tls) => Arc::new(tls.clone()),
                None => Arc::new(Tcp),
            },
            tls,
            acceptor: Box::new(listener),
            room,
            engine,
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
        let settings = settings::config(cluster);
        let settings = settings.map_err(|error| NodeError::consensus(&error))?;
        let Parts {
            machine,
            transport,
            tls,
            acceptor,
            room,
            engine,
        } = parts;
        let reports = Arc::new(Reports::new(replica.clone()));
        let peers = Peers {
            cluster,
            node,
            incarnation,
            transport,
            reports: Some(Arc::clone(&reports)),
        };
        let greeted = exchange::greet(&reports, &peers).await;
        greeted.map_err(NodeError::Refused)?;
        let store = Arc::new(store);
        let repairs = Arc::new(Repairs::new(machine.gate(), Arc::clone(&store)));
        let raft = Raft::new(node, Arc::new(settings), peers.clone(), log, machine);
        let raft = raft.await.map_err(|error| NodeError::consensus(&error))?;
        let address = acceptor.address()?;
        let port = Arc::new(Port {
            identity,
            raft: raft.clone(),
            members: Members::new(identity, raft.clone(), engine),
            contact: Contact::new(),
            room: Arc::clone(&room),
            reports: Arc::clone(&reports),
            repairs: Arc::clone(&repairs),
            peers: peers.clone(),
            replica: replica.clone(),
            tls,
            bodies: Semaphore::new(BODIES_BYTES_MAX),
            has_warned: AtomicBool::new(false),
        });
        let diverged = Diverged::default();
        let tasks = [
            tokio::spawn(propose(received.batches, raft.clone(), room)),
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

    /// Makes an empty directory the node that a cluster has taken, and does not open it.
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
            holes: false,
        };
        let (proposals, _) = proposals();
        let (store, _) = Store::open_node(directory, options, &node, proposals)?;
        Ok(store.close()?)
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
    pub async fn initialize(&self, mut members: BTreeMap<u64, Member>) -> Result<(), NodeError> {
        if members.len() > NODES_MAX {
            let text = format!("a cluster has at most {NODES_MAX} nodes");
            return Err(NodeError::Refused(text));
        }
        for (node, member) in &mut members {
            self.ask_disk(*node, member).await?;
        }
        let done = self.raft.initialize(members).await;
        done.map_err(|error| NodeError::consensus(&error))
    }

    /// Asks a node that is to be a member which disk it has.
    async fn ask_disk(&self, node: u64, member: &mut Member) -> Result<(), NodeError> {
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

    /// Adds a member that gets the log and does not vote. Returns after it has
    /// caught up.
    pub async fn add_learner(&self, node: u64, mut member: Member) -> Result<(), NodeError> {
        self.ask_disk(node, &mut member).await?;
        let added = self.raft.add_learner(node, member, true).await;
        added
            .map(drop)
            .map_err(|error| NodeError::consensus(&error))
    }

    /// Makes these nodes, which are members already, the voters; the others leave.
    ///
    /// # Errors
    /// As for [`remove`](Self::remove).
    pub async fn change_voters(
        &self,
        voters: impl IntoIterator<Item = u64>,
    ) -> Result<(), NodeError> {
        self.lead(CHANGE_TIMEOUT).await?;
        let changed = self.port.members.set_voters(voters.into_iter().collect());
        changed.await.map_err(not_changed)
    }

    /// Keeps a number for a node that will listen for its peers at `peer`. Returns it after it
    /// was committed.
    ///
    /// # Errors
    /// As for [`remove`](Self::remove); `Refused` for an address that is none, or that a member
    /// has.
    pub async fn expect(&self, peer: &str) -> Result<u64, NodeError> {
        self.lead(CHANGE_TIMEOUT).await?;
        let added = self.port.members.expect(peer).await;
        added.map_err(not_changed)
    }

    /// Waits until the members are others than `known`, or have other addresses; returns them.
    ///
    /// # Errors
    /// When the consensus has ended.
    pub async fn members_other_than(
        &self,
        known: &BTreeMap<u64, Member>,
    ) -> Result<BTreeMap<u64, Member>, NodeError> {
        // Unlike all metrics, these change with the members, the term and the leader alone.
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

    /// Has another voter lead.
    pub async fn transfer(&self, to: u64) -> Result<(), NodeError> {
        let asked = self.raft.trigger().transfer_leader(to).await;
        asked.map_err(|error| NodeError::consensus(&error))
    }

    /// Where the node stands.
    #[must_use]
    pub fn status(&self) -> Status {
        let log = self.replica.log_state();
        let metrics = self.raft.metrics().borrow_watched().clone();
        let members = metrics.membership_config.membership();
        let voters: Vec<u64> = members.voter_ids().collect();
        let id = |id: Option<&_>| id.map(entry_id);
        Status {
            node: metrics.id,
            role: match metrics.state {
                _ if metrics.running_state.is_err() => Role::Ended,
                _ if self.port.room.is_full() => Role::Full,
                ServerState::Leader => Role::Leader,
                ServerState::Follower => Role::Follower,
                ServerState::Candidate => Role::Candidate,
                ServerState::Learner => Role::Learner,
                ServerState::Shutdown => Role::Ended,
            },
            leader: leader_of(&metrics, &self.port.room),
            term: metrics.current_term,
            purged: log.purged,
            last: log.last,
            committed: id(metrics.cluster_committed.as_ref()),
            applied: self.replica.applied().last,
            diverged: self.diverged.is(),
            repairs: self.diverged.repairs(),
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

    /// Where the leader is that this node knows: its number and itself.
    #[must_use]
    pub fn leader(&self) -> Option<(u64, Member)> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let leader = leader_of(&metrics, &self.port.room)?;
        let members = metrics.membership_config.membership();
        Some((leader, members.get_node(&leader)?.clone()))
    }

    /// Whether this node leads, as far as it knows.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.status().role == Role::Leader
    }

    /// Waits until this node has applied everything that was acknowledged anywhere
    /// before the call: a read after it is linearizable. A majority confirms the leader
    /// in a round that begins after the call; calls that wait share a round.
    ///
    /// # Errors
    /// `Remote` with `NoLeader` when no leader was confirmed within `patience`.
    pub async fn linearize(&self, patience: Duration) -> Result<(), StoreError> {
        let mine = self.reads.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let rounds = async {
            let mut turn = self.reads.turn.lock().await;
            loop {
                if turn.confirmed >= mine {
                    return;
                }
                // All of these were asked before the round begins.
                let upto = self.reads.asked.load(Ordering::SeqCst);
                match self.confirm(&mut turn).await {
                    Ok(()) => turn.confirmed = upto,
                    Err(error) => {
                        tracing::debug!(%error, "no leader was confirmed");
                        tokio::time::sleep(CONFIRM_PAUSE).await;
                    }
                }
            }
        };
        let confirmed = tokio::time::timeout(patience, rounds).await;
        confirmed.map_err(|_| no_leader("no majority has confirmed a leader in time"))
    }

    /// One round: the index that the leader names is applied here after it.
    async fn confirm(&self, turn: &mut Turn) -> Result<(), NodeError> {
        let (leader, member) = self
            .leader()
            .ok_or_else(|| NodeError::Unreachable("no leader is known at present".to_owned()))?;
        if leader == self.port.identity.node {
            let confirmed = self.raft.ensure_linearizable(ReadPolicy::ReadIndex);
            // Without a majority it does not return by itself.
            let confirmed = tokio::time::timeout(ROUND_TIMEOUT, confirmed).await;
            let confirmed = confirmed.map_err(|error| NodeError::consensus(&error))?;
            return confirmed
                .map(drop)
                .map_err(|error| NodeError::consensus(&error));
        }
        let known = turn.peer.take().filter(|(known, _)| *known == leader);
        let mut peer = match known {
            Some((_, peer)) => peer,
            None => self.peers.client(leader, &member),
        };
        let asked = tokio::time::timeout(ROUND_TIMEOUT, peer.read_index()).await;
        let index = asked.map_err(|error| NodeError::consensus(&error))??;
        turn.peer = Some((leader, peer));
        let raft_index = index.0.checked_sub(1);
        let wait = self.raft.wait(Some(ROUND_TIMEOUT));
        let applied = wait.applied_index_at_least(raft_index, "a read waits");
        applied
            .await
            .map(drop)
            .map_err(|error| NodeError::consensus(&error))
    }

    /// Whether this node leads, and a majority has followed it within its lease; it
    /// has then applied everything that it has acknowledged.
    ///
    /// # Errors
    /// `Elsewhere` when another node leads; `Remote` with `NoLeader` when none is known.
    pub async fn lease(&self, patience: Duration) -> Result<(), StoreError> {
        let confirmed = self.raft.ensure_linearizable(ReadPolicy::LeaseRead);
        match tokio::time::timeout(patience, confirmed).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward)))) => {
                match (forward.leader_id, forward.leader_node) {
                    (Some(node), Some(member)) => Err(StoreError::Elsewhere {
                        node,
                        client: member.client,
                    }),
                    _ => Err(no_leader("an election is under way")),
                }
            }
            Ok(Err(error)) => Err(no_leader(&error.to_string())),
            Err(_) => Err(no_leader("a majority did not answer in time")),
        }
    }

    /// As [`linearize`](Self::linearize), for what only the leader answers.
    ///
    /// # Errors
    /// `Elsewhere` when another node leads; `Remote` with `NoLeader` as there.
    pub async fn lead(&self, patience: Duration) -> Result<(), StoreError> {
        match self.leader() {
            Some((node, member)) if node != self.port.identity.node => {
                let client = member.client;
                Err(StoreError::Elsewhere { node, client })
            }
            _ => self.linearize(patience).await,
        }
    }

    /// Waits until this node votes, and asks the leader for it meanwhile. Returns at
    /// once if it is no member of a cluster.
    pub async fn become_voter(&self) -> Result<(), NodeError> {
        loop {
            let status = self.until(|status| !status.members.is_empty()).await?;
            match status.members.get(&status.node) {
                Some((_, true)) => return Ok(()),
                None => {
                    let text = format!("node {} was removed from the cluster", status.node);
                    return Err(NodeError::Refused(text));
                }
                Some((_, false)) => {}
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
                    tracing::debug!(%error, "the leader does not let this node vote yet");
                }
            }
            tokio::time::sleep(PROMOTE_PAUSE).await;
        }
    }

    /// What a node does after it was opened: if its addresses are not those that the
    /// cluster knows, it tells the leader; if it does not vote, it asks to.
    pub async fn settle(&self, member: &Member) {
        let identity = self.port.identity;
        let member = Member {
            incarnation: identity.incarnation,
            ..member.clone()
        };
        let known = self.until(|status| status.members.contains_key(&status.node));
        let Ok(known) = known.await else { return };
        let is_moved = known.members.get(&known.node).is_some_and(|(at, _)| {
            let removed = at.removed.clone();
            let member = member.clone();
            *at != Member { removed, ..member }
        });
        if is_moved {
            let peers = known
                .members
                .values()
                .map(|(member, _)| member.peer.clone());
            let request = JoinRequest {
                known: Some(identity),
                node: None,
                member,
                engine: self.port.members.engine().to_owned(),
            };
            // Its own port answers as well: this node may lead.
            let mut peers: Vec<_> = peers.collect();
            peers.push(self.address.to_string());
            if let Err(error) =
                join_by(&peers, &request, MOVE_PATIENCE, self.port.tls.as_ref()).await
            {
                tracing::warn!(%error, "the cluster does not know the new addresses of this node");
            }
        }
        if let Err(error) = self.become_voter().await {
            tracing::warn!(%error, "this node does not vote");
        }
    }

    /// Removes a node from the cluster, which is committed when this returns.
    ///
    /// # Errors
    /// `Elsewhere` when another node leads; `Refused` for one that is no member or the
    /// only voter, or while another change is under way.
    pub async fn remove(&self, node: u64) -> Result<(), NodeError> {
        self.lead(CHANGE_TIMEOUT).await?;
        let removed = self.port.members.remove(node).await;
        removed.map_err(not_changed)
    }

    /// Hands the lead over to another voter, which leads when this returns.
    ///
    /// # Errors
    /// `Elsewhere` when another node leads; `Refused` for one that does not vote, or
    /// did not take the lead in time.
    pub async fn hand_over(&self, to: u64) -> Result<(), NodeError> {
        if self.leader().is_some_and(|(leader, _)| leader == to) {
            return Ok(());
        }
        self.lead(CHANGE_TIMEOUT).await?;
        let votes = self
            .status()
            .members
            .get(&to)
            .is_some_and(|(_, votes)| *votes);
        if !votes {
            return Err(NodeError::Refused(format!("node {to} does not vote")));
        }
        self.transfer(to).await?;
        let leads = self.until(|status| status.leader == Some(to));
        let in_time = tokio::time::timeout(CHANGE_TIMEOUT, leads).await;
        let late = |_| NodeError::Refused(format!("node {to} did not take the lead in time"));
        in_time.map_err(late)?.map(drop)
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

    pub(crate) fn abort_tasks(&self) {
        self.port.room.close();
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

    /// As [`close`](Self::close), for a node that is shared. Then nothing else can be
    /// done with it.
    pub async fn shut_down(&self) -> Result<(), NodeError> {
        self.abort_tasks();
        // A core that has ended already needs no end.
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

/// The leader that is known. A core that waits for space knows itself, or one of before.
fn leader_of(metrics: &RaftMetrics<Types>, room: &Room) -> Option<u64> {
    if room.is_full() {
        let before = metrics.current_leader.filter(|node| *node != metrics.id);
        return room.leader().or(before);
    }
    metrics.current_leader
}

/// Answers a proposal on a full disk: the core does not take it.
fn refuse_full(waiters: Waiters, raft: &Raft<Types, StateMachine>, room: &Room) {
    let metrics = raft.metrics().borrow_watched().clone();
    let members = metrics.membership_config.membership();
    let leader = leader_of(&metrics, room);
    match leader.and_then(|node| Some((node, members.get_node(&node)?))) {
        Some((node, member)) => waiters.redirect(node, &member.client),
        None if members.voter_ids().count() > 1 => waiters.refuse(ErrorCode::NoLeader, FULL),
        None => waiters.refuse(ErrorCode::DiskFull, FULL),
    }
}

/// Purges the log up to what the store needs no more. openraft purges what is in a
/// snapshot that it knows, so it is shown the newest one first.
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
        // To ask for one that is known writes another one, which names the same entries again:
        // without an end for as long as a peer that does not answer holds up the purge.
        let knows = is_known(&raft.metrics().borrow_watched());
        if !knows && raft.trigger().snapshot().await.is_err() {
            return;
        }
        let wait = raft.wait(Some(SNAPSHOT_TIMEOUT));
        match wait.metrics(is_known, "a snapshot").await {
            Ok(_) => drop(raft.trigger().purge_log(raft_index).await),
            Err(error) => tracing::warn!(%error, "the log was not purged"),
        }
    }
}

/// The waiters of a proposal, until one of two takes them: the answer, or the time.
type Slot = Arc<Mutex<Option<Waiters>>>;

fn take(slot: &Slot) -> Option<Waiters> {
    slot.lock().take()
}

async fn propose(
    mut batches: mpsc::UnboundedReceiver<ProposedBatch>,
    raft: Raft<Types, StateMachine>,
    room: Arc<Room>,
) {
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
                    // Dropping them says that nobody knows.
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
        if room.is_full() {
            refuse_full(waiters, &raft, &room);
            continue;
        }
        let slot: Slot = Arc::new(Mutex::new(Some(waiters)));
        while let Some((_, first)) = waiting.front()
            && Arc::strong_count(first) == 1
        {
            waiting.pop_front();
        }
        waiting.push_back((Instant::now() + PROPOSAL_TIMEOUT, Arc::clone(&slot)));
        let settled = OnResult(Box::new(move |result| {
            if let Some(waiters) = take(&slot) {
                settle(waiters, result);
            }
        }));
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
    #[cfg(feature = "sim")]
    let Some(waiters) = crate::planted::settle(waiters, &result) else {
        return;
    };
    match result {
        Ok(response) => waiters.answer(&response.data),
        Err(ClientWriteError::ForwardToLeader(forward)) => match forward.leader_id {
            Some(node) => {
                let member = forward.leader_node.unwrap_or_default();
                waiters.redirect(node, &member.client);
            }
            None => waiters.refuse(ErrorCode::NoLeader, "no leader is known at present"),
        },
        // It was appended, and taken back here: others may have it (INDETERMINATE).
        Err(_) => drop(waiters),
    }
}
