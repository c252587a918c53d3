//! Tracks whether the disk of a node has space for the next append.
//!
//! openraft ends a node after a failed append. Therefore a full disk is hidden from openraft: the
//! append waits for space, and the core waits for the append. Meanwhile this node sends no
//! heartbeats, and its port rejects entries and votes, so the others elect a leader that has space.
//! Reads of applied entries continue.
//!
//! Invariant: no entry, vote, join or proposal is sent to the core while the disk is full.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The error for a peer that sends entries to a full node, or requests its vote.
pub(crate) const FULL: &str =
    "the disk of this node is full or cannot be written: it accepts no entries and does not vote";
/// Pause before an append is retried.
pub(crate) const SPACE_PAUSE: Duration = Duration::from_millis(100);

/// Shared by the log, the port and the proposals of a node.
#[derive(Debug, Default)]
pub(crate) struct DiskSpace {
    is_full: AtomicBool,
    is_closing: AtomicBool,
    /// The leader that has sent a request since the disk became full; 0: none.
    leader: AtomicU64,
}

impl DiskSpace {
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Records that an append has found no space. Returns whether to retry.
    pub(crate) fn record_full(&self) -> bool {
        if self.is_closing.load(Ordering::Relaxed) {
            return false;
        }
        if !self.is_full() {
            self.leader.store(0, Ordering::Relaxed);
            self.is_full.store(true, Ordering::Relaxed);
            tracing::error!(
                "the disk is full or cannot be written: this node neither leads nor votes until it can write"
            );
        }
        true
    }

    /// Records that an append has succeeded.
    pub(crate) fn record_space(&self) {
        if self.is_full() {
            self.is_full.store(false, Ordering::Relaxed);
            tracing::info!("the disk has space: this node accepts entries again");
        }
    }

    /// Ends the wait for space, because the node is closed.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    /// Records that a leader has sent a request while the core cannot process it.
    pub(crate) fn record_leader_request(&self, leader: u64) {
        self.leader.store(leader, Ordering::Relaxed);
    }

    /// The leader that has sent a request since the disk became full.
    pub(crate) fn leader(&self) -> Option<u64> {
        Some(self.leader.load(Ordering::Relaxed)).filter(|leader| *leader > 0)
    }
}
