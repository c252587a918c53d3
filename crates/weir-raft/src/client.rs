//! Requests to a peer over connections that this node opens.
//!
//! Each use of a peer (appends, heartbeats, votes) has its own connection, so no use waits for
//! another. A connection on which anything fails is dropped.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use openraft::OptionalSend;
use openraft::alias::{SnapshotOf, VoteOf};
use openraft::base::{BoxFuture, BoxStream};
use openraft::error::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2, stream_append_sequential};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use tokio::io::BufReader;
use tokio::time::{Instant, sleep, timeout};
use weir_core::Digest;
use weir_store::LogIndex;
use weir_store::replica::{DirectoryReport, EntryId};

use crate::announce::merge_announcements;
use crate::clocks::VotersClock;
use crate::convert::{entry_id, io_error};
use crate::frame::{self, BODY_BYTES_MAX, HELLO_BYTES_MAX, Kind, invalid};
use crate::machine::{PART_BYTES, StateMachineSnapshot, blocking};
use crate::reports::Reports;
use crate::secure;
use crate::throttle::{Throttle, is_far_behind};
use crate::transport::{Connection, Transport};
use crate::types::{Member, Types, Vote};
use crate::wire::{self, Agreement, Hello, SnapshotHead};

/// Time limit for a peer to sync the entries of a request.
const APPEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for a peer to check and install a small snapshot.
const INSTALL_TIMEOUT: Duration = Duration::from_mins(10);
/// Bytes of a larger snapshot for which a peer gets another second.
const INSTALL_BYTES_PER_SECOND: u64 = 32 << 20;
/// The shortest time limit for a connection and a short request.
const SHORT_TIMEOUT: Duration = Duration::from_millis(250);

/// Creates clients for the peers of a node.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    pub(crate) cluster: [u8; 16],
    pub(crate) node: u64,
    /// Incarnation of the disk of this node.
    pub(crate) incarnation: u64,
    /// Whether it acknowledges only entries that are synced.
    pub(crate) is_synced: bool,
    pub(crate) transport: Arc<dyn Transport>,
    /// Records the clocks in the answers of peers.
    pub(crate) clock: Arc<VotersClock>,
    /// Reports about the directories of the other nodes; `None` if this process is not a node.
    pub(crate) reports: Option<Arc<Reports>>,
}

/// A client for one peer.
#[derive(Debug)]
pub(crate) struct Peer {
    hello: Hello,
    /// The address at which the client was created. A connection uses those in the memberships.
    address: String,
    transport: Arc<dyn Transport>,
    stream: Option<Box<dyn Connection>>,
    number: u64,
    clock: Arc<VotersClock>,
    reports: Option<Arc<Reports>>,
    /// The newest entry that the peer has acknowledged on this client.
    acknowledged: Option<EntryId>,
    /// Pauses between the parts that this client sends.
    throttle: Throttle,
}

impl Peers {
    /// A client for the node `target`, which is `member`.
    pub(crate) fn client(&self, target: u64, member: &Member) -> Peer {
        Peer {
            hello: Hello {
                cluster: self.cluster,
                from: self.node,
                to: target,
                from_incarnation: self.incarnation,
                to_incarnation: member.incarnation,
                is_synced: self.is_synced,
            },
            address: member.peer.clone(),
            transport: Arc::clone(&self.transport),
            stream: None,
            number: 0,
            clock: Arc::clone(&self.clock),
            reports: self.reports.clone(),
            acknowledged: None,
            throttle: Throttle::default(),
        }
    }
}

impl RaftNetworkFactory<Types> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, member: &Member) -> Peer {
        self.client(target, member)
    }
}

impl Peer {
    /// Asks the leader which entry this node must have applied before it returns a read.
    pub(crate) async fn read_index(&mut self) -> io::Result<LogIndex> {
        let answer = self.exchange(Kind::ReadIndex, &[]).await?;
        wire::decode_index(&answer)
    }

    /// Asks the peer whether its state after an entry has this digest.
    pub(crate) async fn compare(
        &mut self,
        index: LogIndex,
        digest: Digest,
    ) -> io::Result<Agreement> {
        let body = wire::encode_compare(index, digest);
        let answer = self.in_time(Kind::Compare, &body, APPEND_TIMEOUT).await?;
        wire::decode_agreement(&answer)
    }

    /// Exchanges reports. Returns the report of the peer, and the newest report of this node that
    /// the peer has seen.
    pub(crate) async fn report(
        &mut self,
        own: &DirectoryReport,
        seen: &DirectoryReport,
    ) -> io::Result<(DirectoryReport, DirectoryReport)> {
        let body = wire::encode_reports(own, seen);
        let answer = self.exchange(Kind::Report, &body).await?;
        wire::decode_reports(&answer)
    }

    /// Records the newest entry that the peer has acknowledged, as far as it is committed.
    fn record_acknowledged(&mut self, acknowledged: Option<EntryId>, committed: Option<EntryId>) {
        self.acknowledged = acknowledged.or(self.acknowledged);
        let (Some(acknowledged), Some(committed)) = (self.acknowledged, committed) else {
            return;
        };
        let newest = if acknowledged.index <= committed.index {
            acknowledged
        } else {
            committed
        };
        if let Some(reports) = &self.reports {
            reports.record_acknowledged(self.hello.to, newest);
        }
    }

    /// Whether the peer has acknowledged an entry on its disk. If the peer lost that entry,
    /// openraft would send it again, and would count a vote that the peer has forgotten.
    fn has_acknowledged(&self, id: Option<EntryId>) -> bool {
        let reports = self.reports.as_ref();
        let is_durable = reports.is_some_and(|reports| reports.acknowledges_durable());
        let index = id.map(|id| id.index);
        is_durable && index.is_some() && index <= self.acknowledged.map(|id| id.index)
    }

    /// Pauses after a part that was sent since `begun`, if the peer does not vote, lacks many entries
    /// after `sent`, and clients write. `newest` is the newest committed entry; `None`: the newest
    /// entry of the log.
    async fn throttle(&mut self, begun: Instant, sent: LogIndex, newest: Option<LogIndex>) {
        let Some(reports) = &self.reports else { return };
        let newest = newest.unwrap_or_else(|| reports.last());
        if !is_far_behind(sent, newest) || self.clock.is_voter(self.hello.to) {
            self.throttle = Throttle::default();
            return;
        }
        let pause = self.throttle.pause(begun, Instant::now(), newest);
        if !pause.is_zero() {
            sleep(pause).await;
        }
    }

    /// Whether this client has paused since the peer lacks many entries.
    #[cfg(test)]
    pub(crate) fn has_paused(&self) -> bool {
        self.throttle.has_paused()
    }

    /// Asks the leader to make this node a voter.
    pub(crate) async fn promote(&mut self) -> io::Result<()> {
        let asked = self.exchange(Kind::Promote, &[]);
        timeout(APPEND_TIMEOUT, asked).await?.map(drop)
    }

    /// Asks the peer for the incarnation of its disk.
    pub(crate) async fn incarnation(&self) -> io::Result<u64> {
        let (_, incarnation) = timeout(APPEND_TIMEOUT, self.connect()).await??;
        Ok(incarnation)
    }

    /// Opens a connection. Also returns the incarnation of the disk of the peer.
    async fn connect(&self) -> io::Result<(Box<dyn Connection>, u64)> {
        // The address may have changed: openraft keeps the clients of a leader for its whole term.
        let known = self.clock.address_of(self.hello.to);
        let newest = known.as_deref().unwrap_or(&self.address);
        // A change that is not committed may be wrong. If its commit needs this peer, no other
        // change can correct it before.
        let committed = self.committed_address().filter(|at| at != newest);
        let Some(committed) = committed else {
            return self.connect_to(newest).await;
        };
        let at_newest = self.connect_to(newest);
        let at_committed = self.connect_to(&committed);
        tokio::pin!(at_newest, at_committed);
        tokio::select! {
            biased;
            connected = &mut at_newest => match connected {
                Ok(connected) => Ok(connected),
                Err(error) => at_committed.await.or(Err(error)),
            },
            connected = &mut at_committed => match connected {
                Ok(connected) => Ok(connected),
                Err(_) => at_newest.await,
            },
        }
    }

    /// The address of the peer in the newest committed membership.
    fn committed_address(&self) -> Option<String> {
        let members = self.reports.as_ref()?.members()?;
        let member = members.get_node(&self.hello.to)?;
        Some(member.peer.clone())
    }

    async fn connect_to(&self, address: &str) -> io::Result<(Box<dyn Connection>, u64)> {
        let stream = self.transport.connect(address).await?;
        let mut stream: Box<dyn Connection> = Box::new(BufReader::new(stream));
        frame::write(&mut stream, Kind::Hello, 0, &self.hello.encode()).await?;
        let answer = frame::read(&mut stream, HELLO_BYTES_MAX).await;
        let answer = answer.map_err(|error| secure::explain(error, address))?;
        let answer = answer.ok_or(io::ErrorKind::UnexpectedEof)?;
        match answer.kind {
            Kind::Welcome => Ok((stream, wire::decode_welcome(&answer.body)?)),
            Kind::Refused => Err(peer_error(&answer.body)),
            _ => Err(invalid(
                "a peer answered a greeting with an unexpected frame",
            )),
        }
    }

    pub(crate) async fn exchange(&mut self, kind: Kind, body: &[u8]) -> io::Result<Bytes> {
        // A connection to a process that has ended fails only when it is used.
        if let Some(stream) = self.stream.take()
            && let Ok(answer) = self.exchange_on(stream, kind, body).await
        {
            return answer;
        }
        let (stream, _) = timeout(SHORT_TIMEOUT, self.connect()).await??;
        self.exchange_on(stream, kind, body).await?
    }

    /// An inner error is the reply of the peer; the connection is still usable after it.
    async fn exchange_on(
        &mut self,
        mut stream: Box<dyn Connection>,
        kind: Kind,
        body: &[u8],
    ) -> io::Result<io::Result<Bytes>> {
        self.number += 1;
        frame::write(&mut stream, kind, self.number, body).await?;
        let answer = frame::read(&mut stream, BODY_BYTES_MAX).await?;
        let answer = answer.ok_or(io::ErrorKind::UnexpectedEof)?;
        if answer.number != self.number {
            return Err(invalid("a peer answered another request"));
        }
        let result = match answer.kind {
            Kind::Answer => {
                let (body, wall_ms) = wire::split_clock(answer.body)?;
                self.clock.add_reading(self.hello.to, wall_ms);
                Ok(body)
            }
            Kind::Failed => Err(peer_error(&answer.body)),
            _ => return Err(invalid("a peer sent a request as an answer")),
        };
        self.stream = Some(stream);
        Ok(result)
    }

    /// Asks the leader to replace the state of this node, which has applied nothing after
    /// `applied`.
    pub(crate) async fn repair(&mut self, applied: LogIndex) -> io::Result<()> {
        let body = wire::encode_index(applied);
        let answer = self.in_time(Kind::Repair, &body, INSTALL_TIMEOUT).await?;
        wire::decode_names(&answer).map(drop)
    }

    /// Replaces the state of the peer with a snapshot. Returns the topics that differed.
    pub(crate) async fn restore(
        &mut self,
        vote: Vote,
        snapshot: StateMachineSnapshot,
    ) -> io::Result<Vec<String>> {
        let bytes = self.send_files(vote, snapshot).await?;
        let time = install_time(bytes);
        let answer = self.in_time(Kind::Restore, &[], time).await?;
        wire::decode_names(&answer)
    }

    /// Sends all files of a snapshot, part by part, and requests their installation.
    async fn send_snapshot(
        &mut self,
        vote: Vote,
        snapshot: StateMachineSnapshot,
    ) -> io::Result<Vote> {
        let bytes = self.send_files(vote, snapshot).await?;
        let time = install_time(bytes);
        let answer = self.in_time(Kind::Install, &[], time).await?;
        wire::decode_snapshot_answer(&answer)
    }

    /// Sends all files of a snapshot, part by part. Returns their total bytes.
    async fn send_files(&mut self, vote: Vote, snapshot: StateMachineSnapshot) -> io::Result<u64> {
        let not_own = || io::Error::other("a received snapshot cannot be sent to another node");
        let shipped = snapshot.shipped().ok_or_else(not_own)?;
        let files = shipped.files.clone();
        let head = SnapshotHead {
            vote,
            id: shipped.id,
            files: files.clone(),
        };
        let bytes: u64 = files.iter().map(|file| file.bytes).sum();
        let index = shipped.id.index.0;
        tracing::info!(peer = self.address, index, bytes, "sending a snapshot");
        self.in_time(
            Kind::Snapshot,
            &wire::encode_snapshot(&head),
            APPEND_TIMEOUT,
        )
        .await?;
        for (number, file) in files.iter().enumerate() {
            let mut at = 0;
            while at < file.bytes {
                let begun = Instant::now();
                let source = snapshot.clone();
                let part = blocking(move || {
                    let shipped = source.shipped().ok_or_else(not_own)?;
                    shipped.read(number, at, PART_BYTES).map_err(io_error)
                });
                let part = part.await?;
                let body = wire::encode_part(number, at, &part);
                self.in_time(Kind::Part, &body, APPEND_TIMEOUT).await?;
                at += part.len() as u64;
                self.throttle(begun, LogIndex::ZERO, None).await;
            }
        }
        Ok(bytes)
    }

    async fn in_time(&mut self, kind: Kind, body: &[u8], time: Duration) -> io::Result<Bytes> {
        timeout(time, self.exchange(kind, body)).await?
    }

    async fn request(
        &mut self,
        kind: Kind,
        body: &[u8],
        time: Duration,
    ) -> Result<Bytes, RPCError<Types>> {
        if let Ok(result) = timeout(time, self.exchange(kind, body)).await {
            return result.map_err(unreachable_peer);
        }
        // A late reply would be read as the reply to the next request.
        self.stream = None;
        let error = io::Error::new(io::ErrorKind::TimedOut, "a peer did not answer");
        Err(unreachable_peer(error))
    }
}

fn peer_error(body: &[u8]) -> io::Error {
    let text: String = String::from_utf8_lossy(body).chars().take(400).collect();
    io::Error::other(format!("the peer reported: {text}"))
}

#[expect(clippy::needless_pass_by_value, reason = "made for map_err")]
fn unreachable_peer(error: io::Error) -> RPCError<Types> {
    RPCError::Unreachable(Unreachable::new(&error))
}

/// Time limit for a peer to check and install a snapshot of so many bytes. The peer reads all of
/// them. A snapshot that is not installed in time is sent again.
fn install_time(bytes: u64) -> Duration {
    INSTALL_TIMEOUT + Duration::from_secs(bytes / INSTALL_BYTES_PER_SECOND)
}

fn short(option: &RPCOption) -> Duration {
    option.soft_ttl().max(SHORT_TIMEOUT)
}

impl RaftNetworkV2<Types> for Peer {
    type SnapshotData = StateMachineSnapshot;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        let time = if request.entries.is_empty() {
            short(&option)
        } else {
            APPEND_TIMEOUT
        };
        let begun = Instant::now();
        let last = request.entries.last().map(|entry| entry_id(&entry.log_id));
        let previous = request.prev_log_id.as_ref().map(entry_id);
        let committed = request.leader_commit.as_ref().map(entry_id);
        let body = wire::encode_append(request);
        let answer = self.request(Kind::Append, &body, time).await?;
        let answer = wire::decode_append_answer(&answer).map_err(unreachable_peer)?;
        let acknowledged = match &answer {
            AppendEntriesResponse::Success => last,
            AppendEntriesResponse::PartialSuccess(id) => id.as_ref().map(entry_id),
            AppendEntriesResponse::Conflict if self.has_acknowledged(previous) => {
                let text = "the peer lacks entries that it has acknowledged";
                tracing::error!(
                    peer = self.address,
                    "{text}: its directory is an older copy"
                );
                return Err(unreachable_peer(io::Error::other(text)));
            }
            AppendEntriesResponse::Conflict | AppendEntriesResponse::HigherVote(_) => {
                return Ok(answer);
            }
        };
        self.record_acknowledged(acknowledged, committed);
        if let (Some(last), Some(committed)) = (last, committed) {
            self.throttle(begun, last.index, Some(committed.index))
                .await;
        }
        Ok(answer)
    }

    fn stream_append<S>(
        &mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<
        '_,
        Result<BoxStream<'_, Result<StreamAppendResult<Types>, RPCError<Types>>>, RPCError<Types>>,
    >
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + OptionalSend + Unpin + 'static,
    {
        stream_append_sequential(self, Box::pin(merge_announcements(input)), option)
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let body = wire::encode_vote(&request);
        let answer = self.request(Kind::Vote, &body, short(&option)).await?;
        wire::decode_vote_answer(&answer).map_err(unreachable_peer)
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let body = wire::encode_vote(&request);
        let answer = self.request(Kind::PreVote, &body, short(&option)).await?;
        wire::decode_vote_answer(&answer).map_err(unreachable_peer)
    }

    async fn full_snapshot(
        &mut self,
        vote: VoteOf<Types>,
        snapshot: SnapshotOf<Types, StateMachineSnapshot>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = self.send_snapshot(vote, snapshot.snapshot) => match sent {
                Ok(vote) => Ok(SnapshotResponse { vote }),
                Err(error) => {
                    // A late reply would be read as the reply to the next request.
                    self.stream = None;
                    tracing::warn!(%error, peer = self.address, "a snapshot was not sent");
                    Err(StreamingError::Unreachable(Unreachable::new(&error)))
                }
            },
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        let body = wire::encode_transfer(&request);
        let answer = self.request(Kind::Transfer, &body, short(&option)).await?;
        wire::decode_transfer_answer(&answer).map_err(unreachable_peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_gets_time_to_check_a_large_snapshot() {
        assert_eq!(install_time(1 << 20), INSTALL_TIMEOUT);
        // At 64 MiB/s, the check takes more than four hours.
        assert!(install_time(1 << 40) > Duration::from_hours(4));
        assert!(install_time(u64::MAX) > INSTALL_TIMEOUT);
    }
}
