//! The planted fault at the start of a history, and the report or the violation at its end.

use std::fmt;

/// A fault that is planted to prove that a simulation finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Votes are kept only in memory.
    VoteNotSaved,
    /// Appends are acknowledged without a sync.
    SyncSkipped,
    /// Appends are acknowledged before their sync, which is not skipped.
    SyncReportedEarly,
    /// Any node answers a linear read from its own state.
    LocalRead,
    /// A node that believes that it leads answers linear reads without asking a majority, as if it
    /// trusted its clock. After a partition there are two such nodes.
    LeaderByClock,
    /// A write whose entry was truncated is answered with the entry that is applied next.
    TruncationKeepsWaiters,
    /// A snapshot does not carry the membership.
    SnapshotWithoutMembership,
    /// A listener resumes at the last record that it has received.
    ListenerResumesEarly,
    /// A listener resumes one record too late.
    ListenerResumesLate,
}

/// A fault of the disk of one node, once in a history, in addition to the usual faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// Everything on the disk is lost, and the node restarts under its old id.
    Lost,
    /// As `Lost`, but the new disk has the incarnation of the old one. This shows why incarnations
    /// exist.
    LostUnnoticed,
    /// The disk is replaced by an older copy of its content, as from a backup.
    OlderCopy,
    /// As `OlderCopy`, but no node compares reports.
    OlderCopyUnnoticed,
    /// One bit of a log file is flipped while the node is stopped.
    FlippedBit,
    /// As `FlippedBit`, but logs are read without a check of payload checksums.
    FlippedBitUnchecked,
}

/// An invariant that was violated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the invariant.
    pub invariant: &'static str,
    /// The observation that violates it.
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

/// The results of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Hash of all events with their times.
    pub trace: u64,
    /// Writes that were acknowledged.
    pub acknowledged: u64,
    /// Linear reads that were answered.
    pub linear_reads: u64,
    /// Pieces of connections that arrived.
    pub messages: u64,
    /// Power cuts of one node.
    pub power_cuts: u64,
    /// Partitions.
    pub partitions: u64,
    /// Partitions of five nodes that only one node connects.
    pub bridges_of_five: u64,
    /// Rolling restarts, two nodes at a time, that reached the last node.
    pub rolling_restarts: u64,
    /// Jumps of the clock of a node.
    pub clock_jumps: u64,
    /// Snapshots of other nodes that were installed.
    pub installs: u64,
    /// Snapshots that the simulation requested from nodes.
    pub checkpoints: u64,
    /// Leadership transfers that the simulation requested.
    pub transfers: u64,
    /// Records that members of a group have claimed.
    pub claimed: u64,
    /// Records that listeners have received.
    pub delivered: u64,
    /// Nodes that were added or removed.
    pub changes: u64,
    /// Nodes that were excluded at the end, because their disk was damaged or lost.
    pub excluded: u64,
}
