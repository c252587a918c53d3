//! Converts between the types of openraft and those of the store.
//!
//! openraft counts entries from 0, the log from 1. Only this file adds or subtracts this 1.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use bytes::Bytes;
use openraft::EntryPayload;
use openraft::entry::RaftEntry;
use openraft::vote::{RaftLeaderId, RaftVote};
use weir_core::codec::{Reader, Short, put_varint};
use weir_store::replica::{EntryBody, EntryId, ReplicaEntry, Vote as StoredVote};
use weir_store::{LogIndex, StoreError};

use crate::types::{Batch, Entry, LogId, Member, Membership, StoredMembership, Types, Vote};

type LeaderId = openraft::alias::LeaderIdOf<Types>;

/// Limit on nodes in a membership, learners included. A membership with more cannot be read.
pub(crate) const NODES_MAX: usize = 64;
/// Limit on numbers of removed nodes in a membership. At this limit, no directory can request a
/// number.
pub(crate) const REMOVED_MAX: u64 = 1024;

pub(crate) fn io_error(error: StoreError) -> io::Error {
    io::Error::other(error)
}

pub(crate) fn index_of(raft_index: u64) -> LogIndex {
    LogIndex(raft_index.saturating_add(1))
}

pub(crate) fn log_id(id: EntryId) -> LogId {
    let leader = LeaderId::new(id.term, 0).to_committed();
    LogId::new(leader, id.index.0.saturating_sub(1))
}

pub(crate) fn entry_id(id: &LogId) -> EntryId {
    EntryId {
        term: **id.committed_leader_id(),
        index: index_of(id.index),
    }
}

pub(crate) fn vote(vote: StoredVote) -> Vote {
    let leader = LeaderId::new(vote.term, vote.voted_for);
    Vote::from_leader_id(leader, vote.is_committed)
}

pub(crate) fn stored_vote(vote: &Vote) -> StoredVote {
    let leader = vote.leader_id();
    StoredVote {
        term: leader.term,
        voted_for: leader.voted_for,
        is_committed: vote.is_committed(),
    }
}

/// An entry in the form of the log.
pub(crate) fn stored_entry(entry: Entry) -> ReplicaEntry {
    let id = entry_id(&entry.log_id());
    let body = match entry.payload {
        EntryPayload::Blank => EntryBody::Blank,
        EntryPayload::Normal(Batch { count, payload }) => EntryBody::Batch { count, payload },
        EntryPayload::Membership(members) => EntryBody::Membership(encode_members(&members)),
    };
    ReplicaEntry { id, body }
}

/// An entry in the form of openraft.
pub(crate) fn entry(entry: ReplicaEntry) -> io::Result<Entry> {
    let payload = match entry.body {
        EntryBody::Blank => EntryPayload::Blank,
        EntryBody::Batch { count, payload } => EntryPayload::Normal(Batch { count, payload }),
        EntryBody::Membership(body) => EntryPayload::Membership(decode_members(&body)?),
    };
    Ok(Entry::new(log_id(entry.id), payload))
}

pub(crate) fn stored_membership(applied: Option<(EntryId, Bytes)>) -> io::Result<StoredMembership> {
    let Some((id, body)) = applied else {
        return Ok(StoredMembership::default());
    };
    Ok(StoredMembership::new(
        Some(log_id(id)),
        decode_members(&body)?,
    ))
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// docs/formats/cluster.md, "Membership".
pub(crate) fn encode_members(members: &Membership) -> Bytes {
    let mut out = Vec::new();
    let count = members.nodes().count();
    assert!(count <= NODES_MAX, "no node could read {count} members");
    let configurations = members.get_joint_config();
    put_varint(&mut out, configurations.len() as u64);
    for voters in configurations {
        put_varint(&mut out, voters.len() as u64);
        for voter in voters {
            put_varint(&mut out, *voter);
        }
    }
    put_varint(&mut out, count as u64);
    for (node, member) in members.nodes() {
        put_varint(&mut out, *node);
        put_text(&mut out, &member.peer);
        put_text(&mut out, &member.client);
    }
    for (_, member) in members.nodes() {
        out.extend_from_slice(&member.incarnation.to_le_bytes());
    }
    if members
        .nodes()
        .any(|(_, member)| !member.removed.is_empty())
    {
        for (_, member) in members.nodes() {
            put_varint(&mut out, member.removed.len() as u64);
            for node in &member.removed {
                put_varint(&mut out, *node);
            }
        }
    }
    Bytes::from(out)
}

pub(crate) fn decode_members(bytes: &[u8]) -> io::Result<Membership> {
    let members = read_members(bytes).map_err(|Short| {
        let what = "the members of the cluster are not as written";
        io::Error::new(io::ErrorKind::InvalidData, what)
    })?;
    let (configurations, nodes) = members;
    Membership::new(configurations, nodes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

type Members = (Vec<BTreeSet<u64>>, BTreeMap<u64, Member>);

fn read_members(bytes: &[u8]) -> Result<Members, Short> {
    let mut reader = Reader::new(bytes);
    let up_to = |count: u64, most: u64| if count > most { Err(Short) } else { Ok(count) };
    let mut configurations = Vec::new();
    for _ in 0..up_to(reader.varint()?, 2)? {
        let mut voters = BTreeSet::new();
        for _ in 0..up_to(reader.varint()?, NODES_MAX as u64)? {
            voters.insert(reader.varint()?);
        }
        configurations.push(voters);
    }
    let mut nodes = BTreeMap::new();
    for _ in 0..up_to(reader.varint()?, NODES_MAX as u64)? {
        let node = reader.varint()?;
        let (peer, client) = (read_text(&mut reader)?, read_text(&mut reader)?);
        let member = Member {
            peer,
            client,
            ..Member::default()
        };
        nodes.insert(node, member);
    }
    // Memberships that were written before incarnations existed end here.
    if !reader.is_empty() {
        for member in nodes.values_mut() {
            member.incarnation = reader.u64()?;
        }
    }
    // Memberships of a cluster that has removed no node end here.
    if !reader.is_empty() {
        for member in nodes.values_mut() {
            for _ in 0..up_to(reader.varint()?, REMOVED_MAX)? {
                member.removed.push(reader.varint()?);
            }
        }
    }
    if reader.is_empty() {
        Ok((configurations, nodes))
    } else {
        Err(Short)
    }
}

pub(crate) fn read_text(reader: &mut Reader<'_>) -> Result<String, Short> {
    let len = usize::try_from(reader.varint()?).map_err(|_| Short)?;
    let text = std::str::from_utf8(reader.take(len)?).map_err(|_| Short)?;
    Ok(text.to_owned())
}
