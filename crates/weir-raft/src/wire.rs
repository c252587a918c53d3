//! Bodies of the frames between peers (docs/formats/cluster.md, "Peer protocol").

use std::io;

use bytes::Bytes;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderError, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use weir_core::Digest;
use weir_core::codec::{Reader, Short, put_varint};
use weir_store::LogIndex;
use weir_store::replica::{
    DirectoryReport, EntryBody, EntryId, ReplicaEntry, SnapshotFile, Vote as StoredVote,
};

use crate::convert::{
    entry, entry_id, log_id, put_text, read_text, stored_entry, stored_vote, vote,
};
use crate::frame::invalid;
use crate::types::{Entry, LogId, Member, Types, Vote};

/// Limit on entries in one request; a leader sends at most 64.
const ENTRIES_MAX: u64 = 4096;
/// Limit on the files of a snapshot, and on the topic names in a reply. A store has up to 2^20 topics,
/// each with at least one file.
const FILES_MAX: u64 = 1 << 22;
const MAGIC: &[u8; 8] = b"WEIRPEER";
const VERSION: u16 = 3;

/// The greeting of a connection: its sender and its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) cluster: [u8; 16],
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Incarnation of the disk of the sender.
    pub(crate) from_incarnation: u64,
    /// Incarnation that the disk of the receiver must have; 0: any.
    pub(crate) to_incarnation: u64,
    /// Whether the sender acknowledges only entries that are synced.
    pub(crate) is_synced: bool,
}

impl Hello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.cluster);
        out.extend_from_slice(&self.from.to_le_bytes());
        out.extend_from_slice(&self.to.to_le_bytes());
        out.extend_from_slice(&self.from_incarnation.to_le_bytes());
        out.extend_from_slice(&self.to_incarnation.to_le_bytes());
        put_bool(&mut out, self.is_synced);
        out.extend_from_slice(&[0; 15]);
        out
    }

    /// # Errors
    /// A sentence for the peer.
    pub(crate) fn decode(body: &[u8]) -> Result<Self, &'static str> {
        let mut reader = Reader::new(body);
        let not_a_peer =
            |_: Short| "this is the peer port of a cluster, and the request is not that of a peer";
        if reader.array::<8>().map_err(not_a_peer)? != *MAGIC {
            return Err(
                "this is the peer port of a cluster, and the request is not that of a peer",
            );
        }
        if reader.array().map(u16::from_le_bytes).map_err(not_a_peer)? != VERSION {
            return Err("the peer uses another version of the peer protocol");
        }
        let hello = Self {
            cluster: reader.array().map_err(not_a_peer)?,
            from: reader.u64().map_err(not_a_peer)?,
            to: reader.u64().map_err(not_a_peer)?,
            from_incarnation: reader.u64().map_err(not_a_peer)?,
            to_incarnation: reader.u64().map_err(not_a_peer)?,
            is_synced: read_bool(&mut reader).map_err(not_a_peer)?,
        };
        match reader.array::<15>().map_err(not_a_peer)? {
            rest if rest == [0; 15] && reader.is_empty() => Ok(hello),
            _ => Err("the hello of the peer has fields that this node does not know"),
        }
    }
}

/// A process requests a number for its directory, or reports the addresses of its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Join {
    /// Cluster of the directory; `None` for an empty one.
    pub(crate) cluster: Option<[u8; 16]>,
    /// Number that the directory has or requests; 0 for any.
    pub(crate) node: u64,
    pub(crate) member: Member,
    /// Fingerprint of the engine of programs; empty without an engine.
    pub(crate) engine: String,
    /// Whether it acknowledges only entries that are synced.
    pub(crate) is_synced: bool,
}

/// The answer to a [`Join`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JoinAnswer {
    /// The directory is this node of this cluster.
    Joined { cluster: [u8; 16], node: u64 },
    /// The leader listens for peers at this address.
    NotLeader(String),
}

const JOINED: u8 = 0;
const NOT_LEADER: u8 = 1;

impl Join {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        put_bool(&mut out, self.cluster.is_some());
        out.extend_from_slice(&self.cluster.unwrap_or_default());
        put_varint(&mut out, self.node);
        put_text(&mut out, &self.member.peer);
        put_text(&mut out, &self.member.client);
        out.extend_from_slice(&self.member.incarnation.to_le_bytes());
        put_text(&mut out, &self.engine);
        put_bool(&mut out, self.is_synced);
        out
    }

    /// # Errors
    /// A sentence for the process.
    pub(crate) fn decode(body: &[u8]) -> Result<Self, &'static str> {
        let malformed = "the request to join is not as specified";
        let mut reader = Reader::new(body);
        if reader.array::<8>().ok() != Some(*MAGIC) {
            return Err(malformed);
        }
        if reader.array().map(u16::from_le_bytes) != Ok(VERSION) {
            return Err("the process uses another version of the peer protocol");
        }
        let read = |reader: &mut Reader<'_>| {
            let has_cluster = read_bool(reader)?;
            let cluster = reader.array()?;
            let node = reader.varint()?;
            let member = Member {
                peer: read_text(reader)?,
                client: read_text(reader)?,
                incarnation: reader.u64()?,
                ..Member::default()
            };
            Ok::<_, Short>(Self {
                cluster: has_cluster.then_some(cluster),
                node,
                member,
                engine: read_text(reader)?,
                is_synced: read_bool(reader)?,
            })
        };
        match read(&mut reader) {
            Ok(join) if reader.is_empty() => Ok(join),
            _ => Err(malformed),
        }
    }
}

impl JoinAnswer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Joined { cluster, node } => {
                out.push(JOINED);
                out.extend_from_slice(cluster);
                put_varint(&mut out, *node);
            }
            Self::NotLeader(peer) => {
                out.push(NOT_LEADER);
                put_text(&mut out, peer);
            }
        }
        out
    }

    pub(crate) fn decode(body: &[u8]) -> io::Result<Self> {
        decode_whole(body, |reader| {
            Ok(match reader.u8()? {
                JOINED => Self::Joined {
                    cluster: reader.array()?,
                    node: reader.varint()?,
                },
                NOT_LEADER => Self::NotLeader(read_text(reader)?),
                _ => return Err(Short),
            })
        })
    }
}

/// The incarnation of the node that answers a greeting.
pub(crate) fn encode_welcome(incarnation: u64) -> Vec<u8> {
    incarnation.to_le_bytes().to_vec()
}

pub(crate) fn decode_welcome(body: &[u8]) -> io::Result<u64> {
    decode_whole(body, |reader| reader.array().map(u64::from_le_bytes))
}

pub(crate) fn encode_index(index: LogIndex) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, index.0);
    out
}

pub(crate) fn decode_index(body: &[u8]) -> io::Result<LogIndex> {
    decode_whole(body, read_index)
}

/// Appends the wall clock of the sender to the body of an answer.
pub(crate) fn put_clock(body: &mut Vec<u8>, wall_ms: u64) {
    body.extend_from_slice(&wall_ms.to_le_bytes());
}

/// Splits the body of an answer into the part that depends on the request, and the wall clock of
/// the sender.
pub(crate) fn split_clock(mut body: Bytes) -> io::Result<(Bytes, u64)> {
    let Some((_, clock)) = body.split_last_chunk() else {
        return Err(invalid("an answer of a peer has no clock"));
    };
    let wall_ms = u64::from_le_bytes(*clock);
    body.truncate(body.len() - size_of::<u64>());
    Ok((body, wall_ms))
}

/// Names of topics.
pub(crate) fn encode_names(names: &[String]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, names.len() as u64);
    for name in names {
        put_text(&mut out, name);
    }
    out
}

pub(crate) fn decode_names(body: &[u8]) -> io::Result<Vec<String>> {
    decode_whole(body, |reader| {
        let count = read_count(reader, FILES_MAX)?;
        let mut names = Vec::new();
        for _ in 0..count {
            names.push(read_text(reader)?);
        }
        Ok(names)
    })
}

/// The result of a comparison at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agreement {
    /// The receiver has no digest of that entry, or has not applied it.
    Unknown = 0,
    /// The receiver has the state of the sender.
    Equal = 1,
    /// The receiver has a different state.
    Different = 2,
}

pub(crate) fn encode_compare(index: LogIndex, digest: Digest) -> Vec<u8> {
    let mut out = encode_index(index);
    out.extend_from_slice(&digest.0.to_le_bytes());
    out
}

pub(crate) fn decode_compare(body: &[u8]) -> io::Result<(LogIndex, Digest)> {
    decode_whole(body, |reader| {
        let index = read_index(reader)?;
        let digest = reader.take(8)?.try_into().map_err(|_| Short)?;
        Ok((index, Digest(u64::from_le_bytes(digest))))
    })
}

pub(crate) fn decode_agreement(body: &[u8]) -> io::Result<Agreement> {
    Ok(match body {
        [0] => Agreement::Unknown,
        [1] => Agreement::Equal,
        [2] => Agreement::Different,
        _ => return Err(invalid("an answer to a comparison is not as specified")),
    })
}

/// The report of the sender, and the newest report that it has seen of the receiver.
pub(crate) fn encode_reports(own: &DirectoryReport, seen: &DirectoryReport) -> Vec<u8> {
    let mut out = Vec::new();
    for report in [own, seen] {
        for number in [report.incarnation, report.generation, report.run] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        put_id(&mut out, report.newest.map(log_id).as_ref());
    }
    out
}

pub(crate) fn decode_reports(body: &[u8]) -> io::Result<(DirectoryReport, DirectoryReport)> {
    let report = |reader: &mut Reader<'_>| {
        Ok::<_, Short>(DirectoryReport {
            incarnation: reader.u64()?,
            generation: reader.u64()?,
            run: reader.u64()?,
            newest: read_id(reader)?.map(|id| entry_id(&id)),
        })
    };
    decode_whole(body, |reader| Ok((report(reader)?, report(reader)?)))
}

fn put_vote(out: &mut Vec<u8>, vote: &Vote) {
    let vote = stored_vote(vote);
    put_varint(out, vote.term);
    put_varint(out, vote.voted_for);
    out.push(u8::from(vote.is_committed));
}

fn put_id(out: &mut Vec<u8>, id: Option<&LogId>) {
    // An index of the log is never 0.
    let id = id.map(entry_id);
    put_varint(out, id.map_or(0, |id| id.index.0));
    if let Some(id) = id {
        put_varint(out, id.term);
    }
}

fn put_bool(out: &mut Vec<u8>, value: bool) {
    out.push(u8::from(value));
}

/// Reads a number of elements, at most `count_max`.
fn read_count(reader: &mut Reader<'_>, count_max: u64) -> Result<u64, Short> {
    let count = reader.varint()?;
    if count > count_max {
        Err(Short)
    } else {
        Ok(count)
    }
}

fn read_bool(reader: &mut Reader<'_>) -> Result<bool, Short> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Short),
    }
}

fn read_vote(reader: &mut Reader<'_>) -> Result<Vote, Short> {
    Ok(vote(StoredVote {
        term: reader.varint()?,
        voted_for: reader.varint()?,
        is_committed: read_bool(reader)?,
    }))
}

/// The largest number has no successor, so it is not an index.
fn read_index(reader: &mut Reader<'_>) -> Result<LogIndex, Short> {
    match reader.varint()? {
        u64::MAX => Err(Short),
        index => Ok(LogIndex(index)),
    }
}

fn read_id(reader: &mut Reader<'_>) -> Result<Option<LogId>, Short> {
    let index = read_index(reader)?;
    if index == LogIndex::ZERO {
        return Ok(None);
    }
    let term = reader.varint()?;
    Ok(Some(log_id(EntryId { term, index })))
}

/// Reads a body; fails if bytes remain after it.
fn decode_whole<T>(
    body: &[u8],
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, Short>,
) -> io::Result<T> {
    let mut reader = Reader::new(body);
    let value = read(&mut reader);
    match value {
        Ok(value) if reader.is_empty() => Ok(value),
        _ => Err(invalid("a body of a peer is not as specified")),
    }
}

const BATCH: u8 = 1;
const BLANK: u8 = 2;
const MEMBERSHIP: u8 = 3;

pub(crate) fn encode_append(request: AppendEntriesRequest<Types>) -> Vec<u8> {
    let mut out = Vec::new();
    put_vote(&mut out, &request.vote);
    put_id(&mut out, request.prev_log_id.as_ref());
    put_id(&mut out, request.leader_commit.as_ref());
    put_varint(&mut out, request.entries.len() as u64);
    for entry in request.entries {
        let ReplicaEntry { id, body } = stored_entry(entry);
        put_varint(&mut out, id.index.0);
        put_varint(&mut out, id.term);
        let (kind, count, bytes) = match body {
            EntryBody::Batch { count, payload } => (BATCH, count, payload),
            EntryBody::Blank => (BLANK, 0, Bytes::new()),
            EntryBody::Membership(body) => (MEMBERSHIP, 0, body),
        };
        out.push(kind);
        put_varint(&mut out, u64::from(count));
        put_varint(&mut out, bytes.len() as u64);
        out.extend_from_slice(&bytes);
    }
    out
}

/// Payloads are slices of `body`.
pub(crate) fn decode_append(body: &Bytes) -> io::Result<AppendEntriesRequest<Types>> {
    let (vote, prev_log_id, leader_commit, entries) = decode_whole(body, |reader| {
        let vote = read_vote(reader)?;
        let (previous, committed) = (read_id(reader)?, read_id(reader)?);
        let count = read_count(reader, ENTRIES_MAX)?;
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push(read_entry(reader, body)?);
        }
        Ok((vote, previous, committed, entries))
    })?;
    let entries: Vec<Entry> = entries.into_iter().map(entry).collect::<io::Result<_>>()?;
    // Without a previous entry, the log begins with these entries.
    let before_all = EntryId {
        term: 0,
        index: LogIndex::ZERO,
    };
    let mut before = prev_log_id.map_or(before_all, |id| entry_id(&id));
    for entry in &entries {
        let id = entry_id(&entry.log_id);
        if id.index != before.index.next() || id.term < before.term {
            return Err(invalid("entries of a peer do not follow each other"));
        }
        before = id;
    }
    Ok(AppendEntriesRequest {
        vote,
        prev_log_id,
        entries,
        leader_commit,
    })
}

fn read_entry(reader: &mut Reader<'_>, body: &Bytes) -> Result<ReplicaEntry, Short> {
    let index = read_index(reader)?;
    let term = reader.varint()?;
    let kind = reader.u8()?;
    let count = u32::try_from(reader.varint()?).map_err(|_| Short)?;
    let len = usize::try_from(reader.varint()?).map_err(|_| Short)?;
    let at = reader.at();
    reader.take(len)?;
    let bytes = body.slice(at..at + len);
    let body = match kind {
        BATCH if count > 0 => EntryBody::Batch {
            count,
            payload: bytes,
        },
        BLANK if len == 0 && count == 0 => EntryBody::Blank,
        MEMBERSHIP if count == 0 => EntryBody::Membership(bytes),
        _ => return Err(Short),
    };
    if index == LogIndex::ZERO {
        return Err(Short);
    }
    Ok(ReplicaEntry {
        id: EntryId { term, index },
        body,
    })
}

pub(crate) fn encode_append_answer(answer: &AppendEntriesResponse<Types>) -> Vec<u8> {
    let mut out = Vec::new();
    match answer {
        AppendEntriesResponse::Success => out.push(0),
        AppendEntriesResponse::PartialSuccess(id) => {
            out.push(1);
            put_id(&mut out, id.as_ref());
        }
        AppendEntriesResponse::Conflict => out.push(2),
        AppendEntriesResponse::HigherVote(vote) => {
            out.push(3);
            put_vote(&mut out, vote);
        }
    }
    out
}

pub(crate) fn decode_append_answer(body: &[u8]) -> io::Result<AppendEntriesResponse<Types>> {
    decode_whole(body, |reader| {
        Ok(match reader.u8()? {
            0 => AppendEntriesResponse::Success,
            1 => AppendEntriesResponse::PartialSuccess(read_id(reader)?),
            2 => AppendEntriesResponse::Conflict,
            3 => AppendEntriesResponse::HigherVote(read_vote(reader)?),
            _ => return Err(Short),
        })
    })
}

/// The first frame of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotHead {
    /// Vote of the leader that sends the snapshot.
    pub(crate) vote: Vote,
    /// The newest entry in the snapshot.
    pub(crate) id: EntryId,
    pub(crate) files: Vec<SnapshotFile>,
}

pub(crate) fn encode_snapshot(head: &SnapshotHead) -> Vec<u8> {
    let mut out = Vec::new();
    put_vote(&mut out, &head.vote);
    put_id(&mut out, Some(&log_id(head.id)));
    put_varint(&mut out, head.files.len() as u64);
    for file in &head.files {
        put_bool(&mut out, file.segment.is_some());
        if let Some((topic, number)) = file.segment {
            put_varint(&mut out, topic.into());
            put_varint(&mut out, number.into());
        }
        put_varint(&mut out, file.bytes);
    }
    out
}

pub(crate) fn decode_snapshot(body: &[u8]) -> io::Result<SnapshotHead> {
    decode_whole(body, |reader| {
        let vote = read_vote(reader)?;
        let id = read_id(reader)?.ok_or(Short)?;
        let count = read_count(reader, FILES_MAX)?;
        let mut files = Vec::new();
        for _ in 0..count {
            let number = |reader: &mut Reader<'_>| {
                let number = reader.varint()?;
                u32::try_from(number).map_err(|_| Short)
            };
            let segment = if read_bool(reader)? {
                Some((number(reader)?, number(reader)?))
            } else {
                None
            };
            let bytes = reader.varint()?;
            files.push(SnapshotFile { segment, bytes });
        }
        Ok(SnapshotHead {
            vote,
            id: entry_id(&id),
            files,
        })
    })
}

/// Number of the file, offset in the file, content.
pub(crate) fn encode_part(file: usize, at: u64, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 20);
    put_varint(&mut out, file as u64);
    put_varint(&mut out, at);
    out.extend_from_slice(content);
    out
}

pub(crate) fn decode_part(body: &[u8]) -> io::Result<(usize, u64, &[u8])> {
    let mut reader = Reader::new(body);
    let mut read = || {
        let file = usize::try_from(reader.varint()?).map_err(|_| Short)?;
        Ok((file, reader.varint()?, reader.rest()))
    };
    read().map_err(|_: Short| invalid("a part of a snapshot is not as specified"))
}

pub(crate) fn encode_snapshot_answer(vote: &Vote) -> Vec<u8> {
    let mut out = Vec::new();
    put_vote(&mut out, vote);
    out
}

pub(crate) fn decode_snapshot_answer(body: &[u8]) -> io::Result<Vote> {
    decode_whole(body, read_vote)
}

pub(crate) fn encode_vote(request: &VoteRequest<Types>) -> Vec<u8> {
    let mut out = Vec::new();
    put_vote(&mut out, &request.vote);
    put_id(&mut out, request.last_log_id.as_ref());
    put_bool(&mut out, request.leadership_transfer);
    out
}

pub(crate) fn decode_vote(body: &[u8]) -> io::Result<VoteRequest<Types>> {
    decode_whole(body, |reader| {
        let mut request = VoteRequest::new(read_vote(reader)?, read_id(reader)?);
        request.leadership_transfer = read_bool(reader)?;
        Ok(request)
    })
}

pub(crate) fn encode_vote_answer(answer: &VoteResponse<Types>) -> Vec<u8> {
    let mut out = Vec::new();
    put_vote(&mut out, &answer.vote);
    put_id(&mut out, answer.last_log_id.as_ref());
    put_bool(&mut out, answer.vote_granted);
    out
}

pub(crate) fn decode_vote_answer(body: &[u8]) -> io::Result<VoteResponse<Types>> {
    decode_whole(body, |reader| {
        let (vote, last) = (read_vote(reader)?, read_id(reader)?);
        Ok(VoteResponse::new(vote, last, read_bool(reader)?))
    })
}

pub(crate) fn encode_transfer(request: &TransferLeaderRequest<Types>) -> Vec<u8> {
    let mut out = Vec::new();
    put_vote(&mut out, request.from_leader());
    put_varint(&mut out, *request.to_node_id());
    put_id(&mut out, request.last_log_id());
    out
}

pub(crate) fn decode_transfer(body: &[u8]) -> io::Result<TransferLeaderRequest<Types>> {
    decode_whole(body, |reader| {
        let (from, to) = (read_vote(reader)?, reader.varint()?);
        Ok(TransferLeaderRequest::new(from, to, read_id(reader)?))
    })
}

pub(crate) fn encode_transfer_answer(answer: &TransferLeaderResponse<Types>) -> Vec<u8> {
    let mut out = Vec::new();
    match answer {
        Ok(()) => out.push(0),
        Err(TransferLeaderError::VoteChanged { expected, actual }) => {
            out.push(1);
            put_vote(&mut out, expected);
            put_vote(&mut out, actual);
        }
        Err(TransferLeaderError::LogNotFlushed { expected, actual }) => {
            out.push(2);
            put_id(&mut out, expected.as_ref());
            put_id(&mut out, actual.as_ref());
        }
    }
    out
}

pub(crate) fn decode_transfer_answer(body: &[u8]) -> io::Result<TransferLeaderResponse<Types>> {
    decode_whole(body, |reader| {
        Ok(match reader.u8()? {
            0 => Ok(()),
            1 => Err(TransferLeaderError::VoteChanged {
                expected: read_vote(reader)?,
                actual: read_vote(reader)?,
            }),
            2 => Err(TransferLeaderError::LogNotFlushed {
                expected: read_id(reader)?,
                actual: read_id(reader)?,
            }),
            _ => return Err(Short),
        })
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::convert::{decode_members, encode_members};
    use openraft::EntryPayload;

    fn id(term: u64, index: u64) -> LogId {
        let index = LogIndex(index);
        log_id(EntryId { term, index })
    }

    fn a_vote() -> Vote {
        vote(StoredVote {
            term: 300,
            voted_for: 2,
            is_committed: true,
        })
    }

    fn append() -> AppendEntriesRequest<Types> {
        let members = [&[1, 2, 1, 2, 2][..], &[1, 1, b'a', 0, 2, 1, b'b', 1, b'c']].concat();
        let bodies = [
            EntryBody::Blank,
            EntryBody::Membership(Bytes::from(members)),
            EntryBody::Batch {
                count: 3,
                payload: Bytes::from_static(b"\x01batch"),
            },
        ];
        let entries = bodies.into_iter().zip(8..).map(|(body, index)| {
            let index = LogIndex(index);
            let id = EntryId { term: 5, index };
            entry(ReplicaEntry { id, body }).unwrap()
        });
        AppendEntriesRequest {
            vote: a_vote(),
            prev_log_id: Some(id(4, 7)),
            entries: entries.collect(),
            leader_commit: Some(id(4, 6)),
        }
    }

    fn a_snapshot() -> SnapshotHead {
        let snapshot_file = SnapshotFile {
            segment: None,
            bytes: 600,
        };
        let segment = SnapshotFile {
            segment: Some((7, 12)),
            bytes: 1 << 30,
        };
        SnapshotHead {
            vote: a_vote(),
            id: entry_id(&id(4, 7)),
            files: vec![snapshot_file, segment],
        }
    }

    #[test]
    fn every_body_is_read_as_written() {
        let body = Bytes::from(encode_append(append()));
        let back = decode_append(&body).unwrap();
        assert_eq!(format!("{back:?}"), format!("{:?}", append()));
        let EntryPayload::Membership(members) = &back.entries[1].payload else {
            panic!("{back:?}");
        };
        assert_eq!(members.get_node(&2).unwrap().client, "c");
        // Without incarnations, as in older memberships.
        assert_eq!(members.get_node(&2).unwrap().incarnation, 0);
        let mut with = [encode_members(members).as_ref()].concat();
        *with.last_mut().unwrap() = 9;
        let read = decode_members(&with).unwrap();
        assert_eq!(read.get_node(&2).unwrap().incarnation, 9 << 56);
        assert_eq!(encode_members(&read).as_ref(), with);
        // A note with member 1 of the removed nodes 3 and 300.
        with.extend([2, 3, 0xac, 2, 0]);
        let read = decode_members(&with).unwrap();
        assert_eq!(read.get_node(&1).unwrap().removed, [3, 300]);
        assert_eq!(encode_members(&read).as_ref(), with);
        assert!(decode_members(&with[..with.len() - 1]).is_err());
        for answer in [
            AppendEntriesResponse::Success,
            AppendEntriesResponse::PartialSuccess(Some(id(1, 1))),
            AppendEntriesResponse::PartialSuccess(None),
            AppendEntriesResponse::Conflict,
            AppendEntriesResponse::HigherVote(a_vote()),
        ] {
            let bytes = encode_append_answer(&answer);
            assert_eq!(decode_append_answer(&bytes).unwrap(), answer);
        }
        let mut request = VoteRequest::new(a_vote(), Some(id(2, 9)));
        request.leadership_transfer = true;
        assert_eq!(decode_vote(&encode_vote(&request)).unwrap(), request);
        let answer = VoteResponse::new(a_vote(), None, true);
        assert_eq!(
            decode_vote_answer(&encode_vote_answer(&answer)).unwrap(),
            answer
        );
        let request = TransferLeaderRequest::new(a_vote(), 3, None);
        assert_eq!(
            decode_transfer(&encode_transfer(&request)).unwrap(),
            request
        );
        for answer in [
            Ok(()),
            Err(TransferLeaderError::VoteChanged {
                expected: a_vote(),
                actual: a_vote(),
            }),
            Err(TransferLeaderError::LogNotFlushed {
                expected: None,
                actual: Some(id(1, 1)),
            }),
        ] {
            let bytes = encode_transfer_answer(&answer);
            assert_eq!(decode_transfer_answer(&bytes).unwrap(), answer);
        }
        let hello = Hello {
            cluster: [3; 16],
            from: 1,
            to: 2,
            from_incarnation: 1 << 40,
            to_incarnation: 1 << 50,
            is_synced: true,
        };
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        let join = Join {
            cluster: Some([3; 16]),
            node: 4,
            member: Member {
                peer: "p:1".to_owned(),
                client: "c".to_owned(),
                incarnation: 1 << 60,
                ..Member::default()
            },
            engine: "an engine".to_owned(),
            is_synced: true,
        };
        assert_eq!(Join::decode(&join.encode()), Ok(join));
        let head = a_snapshot();
        assert_eq!(decode_snapshot(&encode_snapshot(&head)).unwrap(), head);
        let part = encode_part(3, 1 << 40, b"content");
        assert_eq!(decode_part(&part).unwrap(), (3, 1 << 40, &b"content"[..]));
        let mut answer = encode_snapshot_answer(&a_vote());
        put_clock(&mut answer, 1 << 50);
        let (answer, wall_ms) = split_clock(Bytes::from(answer)).unwrap();
        assert_eq!(wall_ms, 1 << 50);
        assert_eq!(decode_snapshot_answer(&answer).unwrap(), a_vote());
        assert!(split_clock(Bytes::from_static(&[0; 7])).is_err());
    }

    #[test]
    fn no_bytes_of_a_peer_cause_a_panic() {
        let bodies = [
            encode_append(append()),
            encode_vote(&VoteRequest::new(a_vote(), Some(id(2, 9)))),
            encode_snapshot(&a_snapshot()),
            vec![0xff; 64],
        ];
        for body in bodies {
            for cut in 0..body.len() {
                try_all(&body[..cut]);
            }
            for bit in 0..body.len() * 8 {
                let mut bad = body.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                try_all(&bad);
            }
        }
    }

    #[test]
    fn a_snapshot_of_all_topics_can_be_sent() {
        let mut head = a_snapshot();
        let segment = SnapshotFile {
            segment: Some((1 << 20, 1 << 20)),
            bytes: 1 << 30,
        };
        head.files
            .resize(weir_core::limits::TOPICS_MAX + 1, segment);
        let body = encode_snapshot(&head);
        assert!(body.len() < crate::frame::BODY_BYTES_MAX);
        assert_eq!(decode_snapshot(&body).unwrap(), head);
    }

    /// 5 bytes of an entry become more than a hundred in memory.
    #[test]
    fn more_entries_than_a_leader_sends_are_rejected() {
        let blanks = |count| {
            let entries = (8..).take(count).map(|index| {
                let index = LogIndex(index);
                let id = EntryId { term: 5, index };
                let body = EntryBody::Blank;
                entry(ReplicaEntry { id, body }).unwrap()
            });
            let entries = entries.collect();
            let request = AppendEntriesRequest {
                entries,
                ..append()
            };
            decode_append(&Bytes::from(encode_append(request)))
        };
        assert_eq!(blanks(4096).unwrap().entries.len(), 4096);
        assert!(blanks(4097).is_err());
    }

    /// The log of a node would reject such entries, and the node would end.
    #[test]
    fn entries_that_do_not_follow_each_other_are_rejected() {
        let decode = |request| decode_append(&Bytes::from(encode_append(request)));
        assert!(decode(append()).is_ok());
        for previous in [None, Some(id(4, 6)), Some(id(4, 8)), Some(id(6, 7))] {
            let mut request = append();
            request.prev_log_id = previous;
            assert!(decode(request).is_err(), "{previous:?}");
        }
        let mut request = append();
        request.entries[2].log_id = id(4, 10);
        assert!(decode(request).is_err());
    }

    #[test]
    fn an_index_without_a_successor_is_rejected() {
        let mut request = append();
        request.prev_log_id = Some(id(4, u64::MAX));
        assert!(decode_append(&Bytes::from(encode_append(request))).is_err());
        assert!(decode_index(&encode_index(LogIndex(u64::MAX))).is_err());
        assert!(decode_compare(&encode_compare(LogIndex(u64::MAX), Digest(1))).is_err());
        let previous = LogIndex(u64::MAX - 1);
        assert_eq!(decode_index(&encode_index(previous)).unwrap(), previous);
    }

    fn try_all(body: &[u8]) {
        drop(decode_append(&Bytes::copy_from_slice(body)));
        drop(decode_append_answer(body));
        drop(decode_vote(body));
        drop(decode_vote_answer(body));
        drop(decode_transfer(body));
        drop(decode_transfer_answer(body));
        drop(decode_members(body));
        drop(decode_snapshot(body));
        drop(decode_part(body));
        drop(decode_snapshot_answer(body));
        let _ = Hello::decode(body);
        let _ = Join::decode(body);
        drop(JoinAnswer::decode(body));
        drop(decode_index(body));
        drop(decode_compare(body));
        drop(decode_agreement(body));
        drop(decode_welcome(body));
    }
}
