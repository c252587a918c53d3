//! The port for the other nodes.
//!
//! Invariants: no request is served on a connection before its greeting names the right cluster and
//! the right receiver; a connection has one request at a time.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::alias::SnapshotOf;
use openraft::async_runtime::WatchReceiver;
use openraft::{Raft, ReadPolicy};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, BufReader};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use weir_store::replica::{EntryId, NodeIdentity, Replica, StagedSnapshot};

use crate::client::Peers;
use crate::clocks::VotersClock;
use crate::connections::{Connections, Slot};
use crate::convert::{self, index_of, io_error};
use crate::disk_space::{DiskSpace, FULL};
use crate::frame::{self, BODY_BYTES_MAX, Frame, HELLO_BYTES_MAX, Kind};
use crate::machine::{self, StateMachine, StateMachineSnapshot, blocking};
use crate::members::{ChangeError, Members, earlier_cluster, is_removed, other_disk, was_removed};
use crate::repair::Repairs;
use crate::reports::Reports;
use crate::secure::{self, AcceptedConnection, PLAIN, PeerCertificate, PeerTls};
use crate::settings::LEADER_SILENCE_MAX;
use crate::transport::{Acceptor, Connection};
use crate::types::{LogId, Types, Vote};
use crate::wire::{self, Agreement, Hello, Join, SnapshotHead};

/// The number of terms by which the vote of a request may exceed that of this node. Elections do not
/// reach it in centuries. If a term near the highest number were accepted, no later election could
/// end: terms only grow.
const TERMS_AHEAD_MAX: u64 = 1 << 32;
/// Time limit for the greeting of a connection.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for a connection without a request, and for the arrival of a whole request. The peer
/// reconnects.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);
/// Limit on the bytes of all request bodies in memory; two of the longest bodies fit.
pub(crate) const BODIES_BYTES_MAX: usize = 256 << 20;
/// Bodies up to this many bytes are not counted, so heartbeats and votes do not wait for long
/// bodies.
const SHORT_BYTES: usize = 64 << 10;
/// Time limit for the next part of a snapshot.
const PART_TIMEOUT: Duration = Duration::from_secs(30);
/// The error for a leader that syncs entries, if this node acknowledges them before the sync.
const WEAKER: &str = "the sender syncs entries before it acknowledges them, and this node does \
                      not: it accepts no entries from the sender and does not vote for it; start \
                      this node with --durability group";
/// Pause after an accept that failed because no descriptor was free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// State that the connections of peers share.
pub(crate) struct Port {
    pub(crate) identity: NodeIdentity,
    pub(crate) raft: Raft<Types, StateMachine>,
    pub(crate) members: Members,
    pub(crate) contact: Contact,
    pub(crate) disk_space: Arc<DiskSpace>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) repairs: Arc<Repairs>,
    pub(crate) peers: Peers,
    pub(crate) clock: Arc<VotersClock>,
    pub(crate) replica: Replica,
    pub(crate) tls: Option<PeerTls>,
    /// Bytes that are still free for the bodies of long requests.
    pub(crate) bodies: Semaphore,
    /// The newest refusal of a peer that was logged.
    pub(crate) warned: Mutex<String>,
}

impl Port {
    /// Logs why a peer is refused, unless the newest refusal had this reason too. Returns the
    /// reason.
    fn warn(&self, why: String) -> String {
        let mut warned = self.warned.lock();
        if *warned != why {
            tracing::warn!("{why}");
            warned.clone_from(&why);
        }
        why
    }
}

/// The time of the last contact with a leader.
#[derive(Debug)]
pub(crate) struct Contact {
    started: Instant,
    /// Milliseconds from the start to the last contact, plus one; 0: no contact yet.
    last_ms: AtomicU64,
}

impl Contact {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            last_ms: AtomicU64::new(0),
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn record_contact(&self) {
        self.last_ms.store(self.now_ms() + 1, Ordering::Relaxed);
    }

    /// Whether an election has had the time to begin and to end since the last contact. The leader
    /// of that contact may have ended.
    pub(crate) fn is_lost(&self) -> bool {
        self.age().unwrap_or_else(|| self.started.elapsed()) > LEADER_SILENCE_MAX
    }

    /// Time since the last contact; `None` before the first contact.
    pub(crate) fn age(&self) -> Option<Duration> {
        let last_ms = self.last_ms.load(Ordering::Relaxed).checked_sub(1)?;
        Some(Duration::from_millis(self.now_ms().saturating_sub(last_ms)))
    }
}

/// Serves peers until the task is aborted.
pub(crate) async fn serve(mut acceptor: Box<dyn Acceptor>, port: Arc<Port>) {
    let (slots, mut connections) = (Connections::default(), JoinSet::new());
    loop {
        while connections.try_join_next().is_some() {}
        let (stream, from) = match acceptor.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection of a peer was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let port = Arc::clone(&port);
        let slot = slots.register(from);
        let number = slot.number();
        let task = connections.spawn(async move {
            if let Err(error) = serve_connection(stream, &port, &slot, from).await {
                tracing::debug!(%error, "a connection of a peer has ended");
            }
        });
        slots.started(number, task);
    }
}

async fn serve_connection(
    stream: Box<dyn Connection>,
    port: &Port,
    slot: &Slot,
    from: IpAddr,
) -> io::Result<()> {
    let accepted = secure::accept(stream, port.tls.as_ref());
    let (mut stream, certificate) = match timeout(HELLO_TIMEOUT, accepted).await?? {
        AcceptedConnection::Peer(stream, certificate) => (BufReader::new(stream), certificate),
        AcceptedConnection::WithoutTls(mut stream) => {
            let hello = frame::read(&mut stream, HELLO_BYTES_MAX);
            let hello = timeout(HELLO_TIMEOUT, hello).await??;
            let number = hello.map_or(0, |hello| hello.number);
            return frame::write(&mut stream, Kind::Refused, number, PLAIN.as_bytes()).await;
        }
    };
    let hello = timeout(HELLO_TIMEOUT, frame::read(&mut stream, HELLO_BYTES_MAX)).await??;
    let Some(hello) = hello else { return Ok(()) };
    if hello.kind == Kind::Join {
        let (kind, body) = join(&hello, port, certificate.as_ref(), slot).await;
        return frame::write(&mut stream, kind, hello.number, &body).await;
    }
    let peer = match admit(&hello, port, certificate.as_ref(), from) {
        Ok(peer) => peer,
        Err(why) => {
            return frame::write(&mut stream, Kind::Refused, hello.number, why.as_bytes()).await;
        }
    };
    slot.admitted();
    let welcome = wire::encode_welcome(port.identity.incarnation);
    frame::write(&mut stream, Kind::Welcome, hello.number, &welcome).await?;
    let mut incoming = None;
    loop {
        // A snapshot in transfer uses space, and blocks the transfer of others.
        let patience = incoming.as_ref().map_or(IDLE_TIMEOUT, |_| PART_TIMEOUT);
        let next = timeout(patience, next_request(&mut stream, port)).await??;
        let Some((request, permit)) = next else {
            return Ok(());
        };
        let answered = match request.kind {
            kind if peer.is_synced && !port.replica.is_synced() && is_leader_request(kind) => {
                Ok(Err(port.warn(WEAKER.to_owned())))
            }
            Kind::Snapshot | Kind::Part | Kind::Install | Kind::Restore => {
                receive(&request, &mut incoming, port).await
            }
            _ => answer(&request, peer.from, port).await,
        };
        let (kind, body) = match answered? {
            Ok(mut body) => {
                wire::put_clock(&mut body, port.clock.own_ms());
                (Kind::Answer, body)
            }
            Err(why) => (Kind::Failed, why.into_bytes()),
        };
        let number = request.number;
        drop((request, permit));
        frame::write(&mut stream, kind, number, &body).await?;
    }
}

/// The next request, and its part of the memory for bodies.
async fn next_request<'a>(
    stream: &mut (impl AsyncRead + Unpin),
    port: &'a Port,
) -> io::Result<Option<(Frame, Option<SemaphorePermit<'a>>)>> {
    let Some(head) = frame::read_head(stream, BODY_BYTES_MAX).await? else {
        return Ok(None);
    };
    let permit = match u32::try_from(head.len) {
        Ok(len) if head.len > SHORT_BYTES => {
            let permit = port.bodies.acquire_many(len).await;
            Some(permit.map_err(io::Error::other)?)
        }
        _ => None,
    };
    Ok(Some((frame::read_body(stream, head).await?, permit)))
}

/// A snapshot that a leader is sending.
struct Incoming {
    vote: Vote,
    staged: StagedSnapshot,
}

/// Checks the term of a leader, or of a node that wants to lead.
fn check_term(vote: &Vote, port: &Port) -> Result<(), String> {
    let own = port.raft.metrics().borrow_watched().vote.leader_id().term;
    let term = vote.leader_id().term;
    let highest = own.checked_add(TERMS_AHEAD_MAX);
    if highest.is_some_and(|highest| term > highest) {
        return Err(port.warn(format!(
            "a peer sent the term {term}, but this node has the term {own}: no election reaches \
             such a term"
        )));
    }
    Ok(())
}

/// Checks that a leader may send a snapshot up to this entry. openraft asserts it, and a failed
/// assertion would end the core of the node.
fn acceptable(vote: &Vote, id: EntryId, port: &Port) -> Result<(), &'static str> {
    let metrics = port.raft.metrics();
    let metrics = metrics.borrow_watched();
    if !vote.is_committed() || *vote < metrics.vote || id.term > vote.leader_id().term {
        return Err("the sender of the snapshot does not lead");
    }
    let newest = convert::log_id(id);
    let contradicts = |committed: &LogId| newest > *committed && newest.index <= committed.index;
    if metrics.local_committed.as_ref().is_some_and(contradicts) {
        return Err("the snapshot contradicts what this node has committed");
    }
    Ok(())
}

/// Processes a frame of a snapshot. After a failure the sender starts again.
async fn receive(
    request: &Frame,
    incoming: &mut Option<Incoming>,
    port: &Port,
) -> io::Result<Result<Vec<u8>, String>> {
    let before = incoming.take();
    if let Some(why) = port.reports.older() {
        return Ok(Err(why));
    }
    if port.disk_space.is_full() {
        return Ok(Err(FULL.to_owned()));
    }
    if request.kind == Kind::Snapshot {
        drop(before);
        let SnapshotHead { vote, id, files } = wire::decode_snapshot(&request.body)?;
        if let Err(why) = check_term(&vote, port) {
            return Ok(Err(why));
        }
        if let Err(why) = acceptable(&vote, id, port) {
            return Ok(Err(why.to_owned()));
        }
        let replica = port.replica.clone();
        return Ok(
            match blocking(move || replica.stage(id, files).map_err(io_error)).await {
                Ok(staged) => {
                    *incoming = Some(Incoming { vote, staged });
                    Ok(Vec::new())
                }
                Err(error) => Err(error.to_string()),
            },
        );
    }
    let Some(Incoming { vote, mut staged }) = before else {
        return Ok(Err("no snapshot was begun on this connection".to_owned()));
    };
    port.contact.record_contact();
    if request.kind == Kind::Part {
        let body = request.body.clone();
        let written = blocking(move || {
            let (file, at, content) = wire::decode_part(&body)?;
            staged.write(file, at, content).map_err(io_error)?;
            Ok(staged)
        });
        return Ok(match written.await {
            Ok(staged) => {
                *incoming = Some(Incoming { vote, staged });
                Ok(Vec::new())
            }
            Err(error) => Err(error.to_string()),
        });
    }
    if request.kind == Kind::Restore {
        let restored = port.repairs.install(staged, &port.replica).await;
        return Ok(restored.map(|topics| wire::encode_names(&topics)));
    }
    // Another leader may have committed more meanwhile.
    if let Err(why) = acceptable(&vote, staged.id(), port) {
        return Ok(Err(why.to_owned()));
    }
    // openraft ends this node if an install fails, so every step that can fail comes first.
    let replica = port.replica.clone();
    let checked = blocking(move || {
        replica.check(&mut staged).map_err(io_error)?;
        let membership = staged.membership().map_err(io_error)?;
        let meta = machine::meta(staged.id(), membership)?;
        let snapshot = StateMachineSnapshot::staged(staged);
        Ok(SnapshotOf::<Types, _> { meta, snapshot })
    });
    let installed = match checked.await {
        Ok(snapshot) => {
            let installed = port.raft.install_full_snapshot(vote, snapshot).await;
            installed.map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    Ok(installed.map(|answer| wire::encode_snapshot_answer(&answer.vote)))
}

/// Answers a process that requests a number for its directory.
async fn join(
    frame: &Frame,
    port: &Port,
    certificate: Option<&PeerCertificate>,
    slot: &Slot,
) -> (Kind, Vec<u8>) {
    if port.disk_space.is_full() {
        return (Kind::Failed, FULL.into());
    }
    let join = match Join::decode(&frame.body) {
        Ok(join) => join,
        Err(why) => return (Kind::Refused, why.into()),
    };
    let of_node = certificate.map_or(Ok(()), |certificate| {
        certificate.check(Some(&join.member.peer))
    });
    if let Err(why) = of_node {
        return (Kind::Refused, why.into_bytes());
    }
    slot.admitted();
    match port.members.join(&join).await {
        Ok(answer) => (Kind::Answer, answer.encode()),
        Err(ChangeError::Rejected(why)) => (Kind::Refused, why.into_bytes()),
        Err(ChangeError::Retry(why) | ChangeError::NotLeader(why)) => {
            (Kind::Failed, why.into_bytes())
        }
    }
}

/// Whether a leader, or a node that wants to lead, sends requests of this kind.
const fn is_leader_request(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Append
            | Kind::Vote
            | Kind::PreVote
            | Kind::Transfer
            | Kind::Snapshot
            | Kind::Part
            | Kind::Install
            | Kind::Restore
    )
}

/// Returns the hello of a peer that is admitted. `address` is that of its connection.
fn admit(
    frame: &Frame,
    port: &Port,
    certificate: Option<&PeerCertificate>,
    address: IpAddr,
) -> Result<Hello, String> {
    let identity = port.identity;
    if frame.kind != Kind::Hello {
        return Err(
            "this is the peer port of a cluster, and the request is not that of a peer".to_owned(),
        );
    }
    let hello = Hello::decode(&frame.body)?;
    if hello.cluster != identity.cluster {
        return Err("this node belongs to another cluster".to_owned());
    }
    if hello.to != identity.node {
        return Err("another node listens at this address".to_owned());
    }
    if hello.from == identity.node {
        return Err("this node has the number of the caller".to_owned());
    }
    check_not_removed(hello.from, port)?;
    if let Some(certificate) = certificate {
        // A number that this node does not know may be of a node that joined while this one was away,
        // even of the leader. It is accepted with any certificate for nodes.
        certificate.check(port.members.address_of(hello.from).as_deref())?;
    }
    check_disks(&hello, port).inspect_err(|why| {
        port.warn(format!("a connection from {address} was refused: {why}"));
    })?;
    Ok(hello)
}

/// Refuses a node that was removed. Uses committed members only: until the commit, a node that is
/// being removed may still lead.
fn check_not_removed(node: u64, port: &Port) -> Result<(), String> {
    let members = port.reports.members();
    if members.is_some_and(|members| is_removed(node, &members)) {
        return Err(was_removed(node));
    }
    Ok(())
}

/// Checks that the peer and this node are on the disks that they expect of each other.
fn check_disks(hello: &Hello, port: &Port) -> Result<(), String> {
    let own = port.identity;
    let known = port.members.incarnation_of(hello.from);
    if known.is_some_and(|known| ![0, hello.from_incarnation].contains(&known)) {
        return Err(other_disk(hello.from));
    }
    if [0, own.incarnation].contains(&hello.to_incarnation) {
        return Ok(());
    }
    // This disk lacks votes or entries that the peer relies on, unless this node is a member, and the
    // peer is none.
    let is_member = port.members.address_of(own.node).is_some();
    match known {
        None | Some(0) if is_member => Err(earlier_cluster(hello.from, own.node)),
        _ => Err(other_disk(own.node)),
    }
}

/// Processes the report of a member, and returns the report of this node. A node that was removed
/// learns it here if it still has a connection from before.
async fn report(request: &Frame, from: u64, port: &Port) -> io::Result<Result<Vec<u8>, String>> {
    if let Err(why) = check_not_removed(from, port) {
        return Ok(Err(why));
    }
    let (report, of_this_node) = wire::decode_reports(&request.body)?;
    let known = port.members.incarnation_of(from);
    let is_member = |known| report.run == 0 || [0, report.incarnation].contains(&known);
    if known.is_some_and(is_member) {
        port.reports.record(from, &report, &of_this_node);
        // An empty report is answered without a save: the answer shows the sender whether its
        // directory is an older copy.
        if report.run != 0
            && let Err(error) = port.reports.save_new_run(from).await
        {
            return Ok(Err(port.warn(format!(
                "this node cannot save the report of node {from}: {error}"
            ))));
        }
    }
    let (own, seen) = port.reports.for_peer(from);
    Ok(Ok(wire::encode_reports(&own, &seen)))
}

/// The outer error ends the connection.
async fn answer(request: &Frame, from: u64, port: &Port) -> io::Result<Result<Vec<u8>, String>> {
    let raft = &port.raft;
    let failed = |error: &dyn std::error::Error| error.to_string();
    if request.kind == Kind::Report {
        return report(request, from, port).await;
    }
    if let Some(why) = port.reports.older() {
        return Ok(Err(why));
    }
    if port.disk_space.is_full() {
        if request.kind == Kind::Append {
            // The core does not see who leads, so this port records the leader for clients that
            // write here.
            let request = wire::decode_append(&request.body)?;
            port.disk_space
                .record_leader_request(request.vote.leader_id().voted_for);
        }
        return Ok(Err(FULL.to_owned()));
    }
    Ok(match request.kind {
        Kind::Append => {
            let request = wire::decode_append(&request.body)?;
            if let Err(why) = check_term(&request.vote, port) {
                return Ok(Err(why));
            }
            // Record the contact before the entries are on the disk, which may take long.
            if request.vote >= raft.metrics().borrow_watched().vote {
                port.contact.record_contact();
            }
            let answer = raft.append_entries(request).await;
            answer
                .map(|answer| wire::encode_append_answer(&answer))
                .map_err(|error| failed(&error))
        }
        Kind::Vote => {
            let request = wire::decode_vote(&request.body)?;
            if let Err(why) = check_term(&request.vote, port) {
                return Ok(Err(why));
            }
            let answer = raft.vote(request).await;
            answer
                .map(|answer| wire::encode_vote_answer(&answer))
                .map_err(|error| failed(&error))
        }
        Kind::PreVote => {
            let answer = raft.pre_vote(wire::decode_vote(&request.body)?).await;
            answer
                .map(|answer| wire::encode_vote_answer(&answer))
                .map_err(|error| failed(&error))
        }
        Kind::Transfer => {
            let request = wire::decode_transfer(&request.body)?;
            if let Err(why) = check_term(request.from_leader(), port) {
                return Ok(Err(why));
            }
            let answer = raft.handle_transfer_leader(request).await;
            answer
                .map(|answer| wire::encode_transfer_answer(&answer))
                .map_err(|error| failed(&error))
        }
        Kind::Promote => match port.members.promote(from).await {
            Ok(()) => Ok(Vec::new()),
            Err(ChangeError::NotLeader(peer)) => Err(format!("the leader is at {peer}")),
            Err(ChangeError::Retry(why) | ChangeError::Rejected(why)) => Err(why),
        },
        Kind::ReadIndex => match raft.get_read_log_id(ReadPolicy::ReadIndex).await {
            Ok((id, _)) => Ok(wire::encode_index(index_of(id.index()))),
            Err(error) => Err(failed(&error)),
        },
        Kind::Repair => {
            let applied = wire::decode_index(&request.body)?;
            let sent = port
                .repairs
                .send(from, applied, raft, &port.replica, &port.peers);
            sent.await.map(|topics| wire::encode_names(&topics))
        }
        Kind::Compare => {
            let (index, digest) = wire::decode_compare(&request.body)?;
            let agreement = match port.replica.digest_at(index) {
                None => Agreement::Unknown,
                Some(own) if own == digest => Agreement::Equal,
                Some(own) => {
                    let index = index.0;
                    tracing::error!(from, index, %own, %digest, "the state of a node differs");
                    Agreement::Different
                }
            };
            Ok(vec![agreement as u8])
        }
        _ => return Err(frame::invalid("a peer sent an answer as a request")),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
    use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    #[cfg(feature = "sim")]
    use weir_store::Store;
    use weir_store::replica::{DirectoryReport, EntryBody, ReplicaEntry, Vote as StoredVote};
    use weir_store::{Durability, LogIndex, OpenOptions};

    use super::*;
    use crate::client::Peer;
    use crate::node::{Node, NodeConfig, Role};
    use crate::transport::Tcp;
    use crate::types::Member;

    const CLUSTER: [u8; 16] = [5; 16];
    const FIRST: NodeConfig = NodeConfig {
        node: 1,
        cluster: CLUSTER,
        incarnation: 0,
    };

    fn clock() -> Arc<VotersClock> {
        Arc::new(VotersClock::new(2, OpenOptions::default().clock))
    }

    async fn leader(directory: &std::path::Path) -> Node {
        leader_with(directory, &OpenOptions::default()).await
    }

    async fn leader_with(directory: &std::path::Path, options: &OpenOptions) -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let node = Node::open(directory, options, FIRST, listener).await;
        lead(node.unwrap()).await
    }

    #[cfg(feature = "sim")]
    async fn leader_on(disk: weir_store::disk::SimDisk) -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let clock = Arc::new(VotersClock::new(1, OpenOptions::default().clock));
        let options = OpenOptions {
            clock: Arc::clone(&clock) as _,
            log_segment_bytes: 1 << 20,
            ..OpenOptions::default()
        };
        let identity = weir_store::replica::NodeOptions {
            node: FIRST.node,
            cluster: FIRST.cluster,
            incarnation: FIRST.incarnation,
            allow_gaps: false,
        };
        let (proposals, received) = crate::node::proposals();
        let opened = Store::open_node_disk(Arc::new(disk), &options, &identity, proposals);
        let (store, replica) = opened.unwrap();
        let log = crate::storage::LogStore::new(replica.clone());
        let parts = crate::node::Parts {
            clock,
            machine: StateMachine::new(replica.clone()).unwrap(),
            transport: Arc::new(Tcp),
            tls: None,
            acceptor: Box::new(listener),
            disk_space: Arc::default(),
            engine: String::new(),
            may_lose_entries: false,
        };
        let node = Node::start(store, replica, received, FIRST, log, parts).await;
        lead(node.unwrap()).await
    }

    async fn lead(node: Node) -> Node {
        let member = Member {
            peer: node.address().to_string(),
            ..Member::default()
        };
        node.initialize(BTreeMap::from([(1, member)]))
            .await
            .unwrap();
        let leads = |status: &crate::Status| {
            let matching = status.matching.get(&1).copied().flatten();
            let all = [status.committed, status.applied, matching];
            status.role == Role::Leader && all.iter().all(|id| id.is_some() && *id == status.last)
        };
        node.until(leads).await.unwrap();
        node
    }

    async fn client(node: &Node, cluster: [u8; 16], from: u64, to: u64) -> Peer {
        let member = Member {
            peer: node.address().to_string(),
            ..Member::default()
        };
        let mut peers = Peers {
            cluster,
            node: from,
            incarnation: 7,
            is_synced: true,
            transport: Arc::new(Tcp),
            clock: clock(),
            reports: None,
        };
        peers.new_client(to, &member).await
    }

    fn vote_request(term: u64) -> VoteRequest<Types> {
        let vote = convert::vote(StoredVote {
            term,
            voted_for: 2,
            is_committed: false,
        });
        VoteRequest::new(vote, None)
    }

    /// openraft grants every request that a network does not implement.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn pre_vote_is_answered_by_the_peer() {
        let directory = tempfile::tempdir().unwrap();
        let node = leader(directory.path()).await;
        let term = node.status().term;
        let mut peer = client(&node, CLUSTER, 2, 1).await;
        let option = RPCOption::new(Duration::from_mins(1));
        let answer = peer.pre_vote(vote_request(term + 1), option).await.unwrap();
        assert!(!answer.vote_granted, "a log that lacks everything");
        assert_eq!(node.status().term, term);
        node.close().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_term_that_no_election_reaches_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let node = leader(directory.path()).await;
        let term = node.status().term;
        // No member has this number: it may be of a node that joined while this one was away.
        let mut peer = client(&node, CLUSTER, 77, 1).await;
        for term in [term + (1 << 32) + 1, u64::MAX] {
            let mut request = vote_request(term);
            request.leadership_transfer = true;
            let option = RPCOption::new(Duration::from_mins(1));
            let refused = peer.vote(request, option.clone()).await.unwrap_err();
            assert!(refused.to_string().contains("no election"), "{refused}");
            let vote = convert::vote(StoredVote {
                term,
                voted_for: 77,
                is_committed: true,
            });
            let request = AppendEntriesRequest {
                vote,
                prev_log_id: None,
                entries: Vec::new(),
                leader_commit: None,
            };
            let refused = peer.append_entries(request, option).await.unwrap_err();
            assert!(refused.to_string().contains("no election"), "{refused}");
        }
        assert_eq!(node.status().term, term);
        node.close().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_removed_node_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let node = leader(directory.path()).await;
        let removed = node.reserve("127.0.0.1:1").await.unwrap();
        let mut connected = client(&node, CLUSTER, removed, 1).await;
        let empty = DirectoryReport::default();
        connected.report(&empty, &empty).await.unwrap();
        node.remove(removed).await.unwrap();
        let is_applied = |status: &crate::Status| status.applied == status.last;
        node.until(is_applied).await.unwrap();
        // The connection from before the removal is still open.
        let refused = connected.report(&empty, &empty).await.unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains(&was_removed(removed)), "{refused}");
        let mut peer = client(&node, CLUSTER, removed, 1).await;
        let error = peer.read_index().await.unwrap_err().to_string();
        assert!(error.contains("was removed from the cluster"), "{error}");
        node.close().await.unwrap();
    }

    #[cfg(feature = "sim")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_report_of_a_restarted_node_that_cannot_be_saved_is_refused() {
        use weir_store::disk::{SimDisk, SimFailure, SimOp};
        let disk = SimDisk::new();
        let node = leader_on(disk.clone()).await;
        let restarted = node.reserve("127.0.0.1:1").await.unwrap();
        let mut peer = client(&node, CLUSTER, restarted, 1).await;
        for nth in 1..=1_000 {
            disk.fail(SimOp::Write, nth, SimFailure::Io);
        }
        let empty = DirectoryReport::default();
        let report = DirectoryReport {
            incarnation: 7,
            generation: 1,
            run: 1,
            newest: None,
        };
        for _ in 0..2 {
            let error = peer.report(&report, &empty).await.unwrap_err().to_string();
            assert!(error.contains("cannot save the report"), "{error}");
            // This answer shows the node whether its directory is an older copy.
            peer.report(&empty, &empty).await.unwrap();
        }
        // The close cannot write either.
        drop(node.close().await);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_that_does_not_sync_rejects_requests_of_one_that_does() {
        let directory = tempfile::tempdir().unwrap();
        let options = OpenOptions {
            durability: Durability::Memory,
            ..OpenOptions::default()
        };
        let node = leader_with(directory.path(), &options).await;
        let term = node.status().term;
        let member = Member {
            peer: node.address().to_string(),
            ..Member::default()
        };
        for is_synced in [true, false] {
            let mut peers = Peers {
                cluster: CLUSTER,
                node: 2,
                incarnation: 7,
                is_synced,
                transport: Arc::new(Tcp),
                clock: clock(),
                reports: None,
            };
            let mut peer = peers.new_client(1, &member).await;
            let option = RPCOption::new(Duration::from_mins(1));
            let voted = peer.vote(vote_request(term + 1), option).await;
            match voted {
                Err(error) if is_synced => {
                    let error = error.to_string();
                    assert!(error.contains("--durability group"), "{error}");
                }
                voted => assert!(!is_synced && voted.is_ok(), "{voted:?}"),
            }
            // A leader answers read requests of a node that syncs.
            peer.read_index().await.unwrap();
        }
        assert_eq!(node.status().term, term);
        node.close().await.unwrap();
    }

    /// This state remains if a leader ends between the two entries of a change.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_unfinished_change_of_the_voters_is_finished() {
        let directory = tempfile::tempdir().unwrap();
        let node = leader(directory.path()).await;
        let nodes = node.status().members.into_iter();
        let nodes: BTreeMap<u64, Member> = nodes.map(|(id, (member, _))| (id, member)).collect();
        let joint = crate::types::Membership::new(vec![[1].into(), [1].into()], nodes).unwrap();
        let written = node
            .raft
            .append_membership(joint, openraft::EntryPayload::Blank, []);
        let joint = written.await.unwrap().log_id().index;
        let is_finished = |status: &crate::Status| {
            !status.joint
                && status
                    .applied
                    .is_some_and(|last| last.index > index_of(joint))
        };
        node.until(is_finished).await.unwrap();
        node.close().await.unwrap();
    }

    /// Another leader may undo the membership, and the node must then repeat its request.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_does_not_vote_before_a_joint_membership_is_committed() {
        let directory = tempfile::tempdir().unwrap();
        let node = leader(directory.path()).await;
        let nodes = node.status().members.into_iter();
        let mut nodes: BTreeMap<u64, Member> =
            nodes.map(|(id, (member, _))| (id, member)).collect();
        // A majority of these voters does not exist.
        let unreachable = Member {
            peer: "127.0.0.1:1".to_owned(),
            ..Member::default()
        };
        nodes.insert(2, unreachable);
        let joint = crate::types::Membership::new(vec![[1].into(), [1, 2].into()], nodes).unwrap();
        let written = node
            .raft
            .append_membership(joint, openraft::EntryPayload::Blank, []);
        let written = timeout(Duration::from_secs(1), written).await;
        assert!(written.is_err(), "no majority");
        assert!(node.status().joint);
        let votes = timeout(Duration::from_secs(1), node.become_voter()).await;
        assert!(votes.is_err(), "{votes:?}");
        node.close().await.unwrap();
    }

    /// The reply to the first request was lost.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_join_that_is_sent_again_gets_the_same_number() {
        let directory = tempfile::tempdir().unwrap();
        let node = leader(directory.path()).await;
        for wanted in [0, 40] {
            let join = Join {
                cluster: None,
                node: wanted,
                member: Member {
                    peer: format!("127.0.0.1:{}", wanted + 1),
                    incarnation: wanted + 8,
                    ..Member::default()
                },
                engine: String::new(),
                is_synced: true,
            };
            let mut answers = Vec::new();
            for _ in 0..2 {
                let mut stream = TcpStream::connect(node.address()).await.unwrap();
                frame::write(&mut stream, Kind::Join, 0, &join.encode())
                    .await
                    .unwrap();
                let answer = frame::read(&mut stream, HELLO_BYTES_MAX).await.unwrap();
                let answer = answer.unwrap();
                let text = String::from_utf8_lossy(&answer.body).into_owned();
                assert_eq!(answer.kind, Kind::Answer, "{text}");
                answers.push(answer.body);
            }
            assert_eq!(answers[0], answers[1]);
        }
        assert_eq!(node.status().members.len(), 3);
        node.close().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn long_requests_share_a_budget_that_short_ones_do_not_wait_for() {
        let directory = tempfile::tempdir().unwrap();
        let node = leader(directory.path()).await;
        let all = u32::try_from(BODIES_BYTES_MAX).unwrap();
        let all = node.port.bodies.acquire_many(all).await.unwrap();
        let mut long = client(&node, CLUSTER, 2, 1).await;
        let body = vec![0; SHORT_BYTES + 1];
        let answer = long.exchange(Kind::Compare, &body);
        tokio::pin!(answer);
        let mut short = client(&node, CLUSTER, 3, 1).await;
        tokio::select! {
            biased;
            _ = &mut answer => panic!("a long request was read"),
            index = short.read_index() => drop(index.unwrap()),
        }
        drop(all);
        // The body is not a comparison, so the connection ends.
        assert!(answer.await.is_err());
        assert_eq!(node.port.bodies.available_permits(), BODIES_BYTES_MAX);
        node.close().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_member_without_a_vote_that_lacks_many_entries_is_throttled() {
        let directories = tempfile::tempdir().unwrap();
        let node = leader(&directories.path().join("1")).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = NodeConfig {
            node: 3,
            cluster: CLUSTER,
            incarnation: 0,
        };
        let directory = directories.path().join("3");
        let other = Node::open(&directory, &OpenOptions::default(), config, listener).await;
        let other = other.unwrap();
        let member = Member {
            peer: other.address().to_string(),
            ..Member::default()
        };
        let mut peer = node.peers.client(3, &member);
        let term = node.status().term;
        let vote = convert::vote(StoredVote {
            term,
            voted_for: 1,
            is_committed: true,
        });
        let id = |index| {
            let index = LogIndex(index);
            EntryId { term, index }
        };
        // The log must also grow between two requests.
        for (index, committed, is_throttled) in [
            (1, 10, false),
            (2, 11, false),
            (3, 1_000, false),
            (4, 1_001, true),
        ] {
            let entry = convert::entry(ReplicaEntry {
                id: id(index),
                body: EntryBody::Blank,
            });
            let request = AppendEntriesRequest {
                vote,
                prev_log_id: (index > 1).then(|| convert::log_id(id(index - 1))),
                entries: vec![entry.unwrap()],
                leader_commit: Some(convert::log_id(id(committed))),
            };
            let option = RPCOption::new(Duration::from_mins(1));
            let answer = peer.append_entries(request, option).await.unwrap();
            let is_accepted = matches!(
                answer,
                AppendEntriesResponse::Success | AppendEntriesResponse::PartialSuccess(_)
            );
            assert!(is_accepted, "{answer:?}");
            assert_eq!(peer.has_paused(), is_throttled, "{index}");
        }
        assert!(node.port.clock.is_voter(1) && !node.port.clock.is_voter(3));
        other.close().await.unwrap();
        node.close().await.unwrap();
    }

    /// openraft ends the core of a node that receives such a snapshot.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_snapshot_that_contradicts_committed_entries_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let node = leader(directory.path()).await;
        let before = node.status();
        let committed = before.committed.unwrap();
        let hello = Hello {
            cluster: CLUSTER,
            from: 2,
            to: 1,
            from_incarnation: 7,
            to_incarnation: 0,
            is_synced: true,
        };
        let mut stream = TcpStream::connect(node.address()).await.unwrap();
        let hello = hello.encode();
        frame::write(&mut stream, Kind::Hello, 0, &hello)
            .await
            .unwrap();
        frame::read(&mut stream, HELLO_BYTES_MAX).await.unwrap();
        let snapshot = |vote_term, term, index| SnapshotHead {
            vote: convert::vote(StoredVote {
                term: vote_term,
                voted_for: 2,
                is_committed: true,
            }),
            id: EntryId { term, index },
            files: Vec::new(),
        };
        let (term, index) = (before.term, committed.index);
        let below = LogIndex(index.0 - 1);
        let newer = term + 1;
        for (head, why) in [
            (
                snapshot(newer, newer, index),
                "contradicts what this node has committed",
            ),
            (
                snapshot(newer, newer, below),
                "contradicts what this node has committed",
            ),
            (snapshot(newer, newer + 1, index), "does not lead"),
            (snapshot(term - 1, term - 1, index), "does not lead"),
        ] {
            let body = wire::encode_snapshot(&head);
            frame::write(&mut stream, Kind::Snapshot, 1, &body)
                .await
                .unwrap();
            let answer = frame::read(&mut stream, BODY_BYTES_MAX).await.unwrap();
            let answer = answer.unwrap();
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            assert_eq!(answer.kind, Kind::Failed, "{text}");
            assert!(text.contains(why), "{text}");
        }
        assert_eq!(node.status().term, term);
        node.close().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_snapshot_that_cannot_be_installed_does_not_end_the_node() {
        let directories = tempfile::tempdir().unwrap();
        let node = leader(&directories.path().join("1")).await;
        let options = &weir_core::TopicOptions::default();
        let (key, value) = (b"k".as_slice(), [7; 1000].as_slice());
        for operation in [
            weir_core::intention::Operation::Create { options },
            weir_core::intention::Operation::Put { key, value },
        ] {
            let intention = weir_core::intention::Intention::new("t", operation);
            let proposed = node.store().propose(&[intention]).unwrap();
            proposed.await.unwrap();
        }
        node.replica.checkpoint().unwrap();
        let shipped = node.replica.ship().unwrap().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = NodeConfig {
            node: 3,
            cluster: CLUSTER,
            incarnation: 0,
        };
        let directory = directories.path().join("3");
        let other = Node::open(&directory, &OpenOptions::default(), config, listener).await;
        let other = other.unwrap();
        let mut peer = client(&other, CLUSTER, 1, 3).await;
        let vote = convert::vote(StoredVote {
            term: node.status().term,
            voted_for: 1,
            is_committed: true,
        });
        for is_damaged in [true, false] {
            let head = SnapshotHead {
                vote,
                id: shipped.id,
                files: shipped.files.clone(),
            };
            let head = wire::encode_snapshot(&head);
            peer.exchange(Kind::Snapshot, &head).await.unwrap();
            for (number, file) in shipped.files.iter().enumerate() {
                let len = usize::try_from(file.bytes).unwrap();
                let mut content = shipped.read(number, 0, len).unwrap();
                if is_damaged && file.segment.is_some() {
                    content[len - 100] ^= 1;
                }
                let part = wire::encode_part(number, 0, &content);
                peer.exchange(Kind::Part, &part).await.unwrap();
            }
            let installed = peer.exchange(Kind::Install, &[]).await;
            assert_eq!(installed.is_err(), is_damaged, "{installed:?}");
            assert_ne!(other.status().role, Role::Ended);
        }
        assert_eq!(other.status().applied, Some(shipped.id));
        drop(shipped);
        other.close().await.unwrap();
        node.close().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn invalid_peers_get_a_reason_and_change_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let node = leader(directory.path()).await;
        let before = node.status();
        let option = || RPCOption::new(Duration::from_mins(1));
        let other = Member {
            peer: node.address().to_string(),
            incarnation: 1,
            ..Member::default()
        };
        let mut peers = Peers {
            cluster: CLUSTER,
            node: 2,
            incarnation: 7,
            is_synced: true,
            transport: Arc::new(Tcp),
            clock: clock(),
            reports: None,
        };
        let mut peer = peers.new_client(1, &other).await;
        let error = peer
            .vote(vote_request(before.term + 9), option())
            .await
            .unwrap_err();
        let why = "node 2 is of an earlier cluster with this id, in which node 1 has another disk";
        assert!(error.to_string().contains(why), "{error}");
        assert!(!error.to_string().contains("weir cluster rm"), "{error}");
        for (cluster, from, to, why) in [
            ([6; 16], 2, 1, "this node belongs to another cluster"),
            (CLUSTER, 2, 3, "another node listens at this address"),
            (CLUSTER, 1, 1, "this node has the number of the caller"),
        ] {
            let mut peer = client(&node, cluster, from, to).await;
            let error = peer
                .vote(vote_request(before.term + 9), option())
                .await
                .unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
        // Another version of the protocol.
        let hello = Hello {
            cluster: CLUSTER,
            from: 2,
            to: 1,
            from_incarnation: 7,
            to_incarnation: 0,
            is_synced: true,
        };
        let join = Join {
            cluster: None,
            node: 0,
            member: other,
            engine: String::new(),
            is_synced: true,
        };
        for (kind, mut newer) in [(Kind::Hello, hello.encode()), (Kind::Join, join.encode())] {
            newer[8] += 1;
            let mut stream = TcpStream::connect(node.address()).await.unwrap();
            frame::write(&mut stream, kind, 0, &newer).await.unwrap();
            let refused = frame::read(&mut stream, HELLO_BYTES_MAX).await.unwrap();
            let refused = refused.unwrap();
            assert_eq!(refused.kind, Kind::Refused);
            let text = std::str::from_utf8(&refused.body).unwrap();
            assert!(text.contains("another version"), "{text}");
        }
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 64], &[0xff; 64]] {
            let mut stream = TcpStream::connect(node.address()).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut received = Vec::new();
            // Closed by the node, with a reset if it did not read everything.
            drop(stream.read_to_end(&mut received).await);
            assert!(received.is_empty());
        }
        // A greeting, then bytes that are not a request.
        let mut stream = TcpStream::connect(node.address()).await.unwrap();
        frame::write(&mut stream, Kind::Hello, 0, &hello.encode())
            .await
            .unwrap();
        let welcome = frame::read(&mut stream, HELLO_BYTES_MAX).await.unwrap();
        assert_eq!(welcome.unwrap().kind, Kind::Welcome);
        frame::write(&mut stream, Kind::Append, 1, &[0xff; 9])
            .await
            .unwrap();
        assert_eq!(
            frame::read(&mut stream, BODY_BYTES_MAX).await.unwrap(),
            None
        );
        // The time since the last contact increases, so it is not compared.
        let without_contact = |status: crate::Status| crate::Status {
            contact: None,
            ..status
        };
        assert_eq!(without_contact(node.status()), without_contact(before));
        node.close().await.unwrap();
    }
}
