//! Whether the disk of a node has space for what the node has to append.
//!
//! openraft takes a failed append for the end of a node. A full disk is therefore kept
//! from it: the append waits for space, and the core waits for the append. Meanwhile
//! this node sends no heartbeats, its port refuses entries and votes, and the others
//! elect a leader that has space. Reads of what was applied go on.
//!
//! Invariant: no entry, vote, join or proposal is sent to the core while the disk is full.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What a peer reads that sends entries to a full node, or asks for its vote.
pub(crate) const FULL: &str =
    "the disk of this node is full: it takes no entries and does not vote until there is space";
/// Pause before the next try to append.
pub(crate) const ROOM_PAUSE: Duration = Duration::from_millis(100);

/// Shared by the log, the port and the proposals of a node.
#[derive(Debug, Default)]
pub(crate) struct Room {
    is_full: AtomicBool,
    is_closing: AtomicBool,
    /// The leader that was heard of since the disk is full; 0: none.
    leader: AtomicU64,
}

impl Room {
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// An append has found no space. Returns whether to try again.
    pub(crate) fn filled(&self) -> bool {
        if self.is_closing.load(Ordering::Relaxed) {
            return false;
        }
        if !self.is_full() {
            self.leader.store(0, Ordering::Relaxed);
            self.is_full.store(true, Ordering::Relaxed);
            tracing::error!(
                "the disk is full: this node neither leads nor votes until there is space"
            );
        }
        true
    }

    /// An append has succeeded.
    pub(crate) fn freed(&self) {
        if self.is_full() {
            self.is_full.store(false, Ordering::Relaxed);
            tracing::info!("the disk has space: this node takes entries again");
        }
    }

    /// Ends the wait for space: the node is closed.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    /// A leader has sent something to a node whose core does not hear it.
    pub(crate) fn heard(&self, leader: u64) {
        self.leader.store(leader, Ordering::Relaxed);
    }

    /// The leader that was heard of since the disk is full.
    pub(crate) fn leader(&self) -> Option<u64> {
        Some(self.leader.load(Ordering::Relaxed)).filter(|leader| *leader > 0)
    }
}
