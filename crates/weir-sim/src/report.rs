//! The planted fault that a history begins with, and the report or violation it ends with.

use std::fmt;

/// A mistake that is planted to prove that a simulation finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Votes are kept in memory alone.
    VoteNotSaved,
    /// Appends are acknowledged without a sync.
    SyncSkipped,
    /// A linear read is answered from the state of any node.
    LocalRead,
    /// A node that thinks that it leads answers linear reads without asking a majority, as
    /// one does that trusts its clock: after a partition there are two.
    LeaderByClock,
    /// A write whose entry was truncated is answered with the entry that is applied next.
    TruncationKeepsWaiters,
    /// A snapshot does not carry the membership.
    SnapshotWithoutMembership,
}

/// What happens to the disk of one node, once, beside the faults of every history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// Everything on it is lost, and the node starts again under its old id.
    Lost,
    /// As `Lost`, and the new disk passes for the old one: what the incarnation of a disk
    /// is there for.
    LostUnnoticed,
    /// The disk becomes what it was some time before, as from a backup.
    OlderCopy,
    /// As `OlderCopy`, and no node compares what it has seen of the others.
    OlderCopyUnnoticed,
    /// One bit of a file of the log is flipped while the node is down.
    FlippedBit,
    /// As `FlippedBit`, and logs are read without comparing the checksums of payloads.
    FlippedBitUnchecked,
}

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which one.
    pub invariant: &'static str,
    /// What was seen.
    pub found: String,
}

impl Violation {
    pub(crate) fn new(invariant: &'static str, found: String) -> Self {
        Self { invariant, found }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.found)
    }
}

impl std::error::Error for Violation {}

/// What a history has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Hash of everything that happened, with its time.
    pub trace: u64,
    /// Writes that were acknowledged.
    pub acknowledged: u64,
    /// Linear reads that were answered.
    pub linear_reads: u64,
    /// Pieces of connections that came.
    pub messages: u64,
    /// Power cuts of one node.
    pub power_cuts: u64,
    /// Partitions.
    pub partitions: u64,
    /// Snapshots of other nodes that were installed.
    pub installs: u64,
    /// Snapshots that a node was told to write.
    pub checkpoints: u64,
    /// Leaders that were told to hand over.
    pub transfers: u64,
    /// Records that members of a group have claimed.
    pub claimed: u64,
    /// Nodes that were added or removed.
    pub changes: u64,
    /// Nodes whose disk was damaged or lost, so that they took no part in the end.
    pub out: u64,
}
