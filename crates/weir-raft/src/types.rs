//! The types that openraft is instantiated with.

use std::fmt;

use bytes::Bytes;
use openraft::RaftTypeConfig;
use openraft::alias::LogIdOf;
use openraft::impls::leader_id_std::LeaderId;
use openraft::impls::{BoxedErrorSource, InlineBatch};
use openraft::raft::responder::Responder;
use openraft::vote::RaftLeaderId;
use weir_core::Outcomes;

/// A member of the cluster, as the membership describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Peer address of the member, as `host:port`.
    pub peer: String,
    /// Address for clients; empty if unknown.
    pub client: String,
    /// Incarnation of the disk of the node: a random number, chosen when the directory is created.
    /// A process with another incarnation is not this member. 0: not known yet.
    pub incarnation: u64,
    /// Numbers of removed nodes that this member stores, ascending. The numbers in all members
    /// together are never assigned again.
    pub removed: Vec<u64>,
}

/// A batch of intentions, the application data of openraft.
#[derive(Clone, PartialEq, Eq)]
pub struct Batch {
    /// Number of items in the batch.
    pub count: u32,
    /// The payload of the log entry.
    pub payload: Bytes,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, payload } = self;
        write!(f, "{count} items, {} bytes", payload.len())
    }
}

/// Called with the result of a proposal.
pub struct OnResult<T>(pub(crate) Box<dyn FnOnce(T) + Send>);

impl<T: Send + 'static> Responder<Types, T> for OnResult<T> {
    fn on_commit(&mut self, _: LogIdOf<Types>) {}

    fn on_complete(self, result: T) {
        (self.0)(result);
    }
}

/// Batches of a store, ordered by leaders that only their term identifies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Types;

impl RaftTypeConfig for Types {
    type D = Batch;
    type R = Outcomes;
    type NodeId = u64;
    type Node = Member;
    type Term = u64;
    type LeaderId = LeaderId<u64, u64>;
    type Vote = openraft::Vote<Self::LeaderId>;
    type Payload = openraft::EntryPayload<Batch, u64, Member>;
    type Entry = openraft::Entry<<Self::LeaderId as RaftLeaderId>::Committed, Self::Payload>;
    #[cfg(feature = "sim")]
    type AsyncRuntime = crate::runtime::Runtime;
    #[cfg(not(feature = "sim"))]
    type AsyncRuntime = openraft::TokioRuntime;
    type Responder<T: openraft::OptionalSend + 'static> = OnResult<T>;
    type Batch<T: openraft::OptionalSend + 'static> = InlineBatch<T>;
    type ErrorSource = BoxedErrorSource;
}

pub(crate) type LogId = LogIdOf<Types>;
pub(crate) type Entry = openraft::alias::EntryOf<Types>;
pub(crate) type Vote = openraft::alias::VoteOf<Types>;
pub(crate) type Membership = openraft::Membership<u64, Member>;
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<Types>;
