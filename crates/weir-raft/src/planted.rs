//! Faults that are planted in a node, to prove that a simulation finds them (docs/decisions/0079).

use std::cell::{Cell, RefCell};

use bytes::Bytes;
use openraft::error::ClientWriteError;
use openraft::raft::ClientWriteResult;
use weir_store::replica::{EntryId, Waiters};

use crate::types::Types;

/// A fault that a simulation must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Votes are kept only in memory.
    VoteNotSaved,
    /// Appends are reported as synced before their sync.
    SyncReportedEarly,
    /// A proposal whose entry was truncated is answered with the result of the next applied entry.
    TruncationKeepsWaiters,
    /// A snapshot does not carry the membership.
    SnapshotWithoutMembership,
    /// Nodes do not compare what they have seen of each other's directories.
    ReportsIgnored,
}

thread_local! {
    static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
    static KEPT: RefCell<Vec<Waiters>> = const { RefCell::new(Vec::new()) };
}

/// From now on, the nodes of this thread have this fault.
pub fn plant(fault: Fault) {
    FAULT.set(Some(fault));
}

pub(crate) fn is_planted(fault: Fault) -> bool {
    FAULT.get() == Some(fault)
}

/// The waiters that receive the result.
pub(crate) fn filter_waiters(
    waiters: Waiters,
    result: &ClientWriteResult<Types>,
) -> Option<Waiters> {
    if !is_planted(Fault::TruncationKeepsWaiters) {
        return Some(waiters);
    }
    match result {
        Ok(response) => {
            for kept in KEPT.take() {
                kept.answer(&response.data);
            }
            Some(waiters)
        }
        Err(ClientWriteError::LogEntryDiscarded(_)) => {
            KEPT.with_borrow_mut(|kept| kept.push(waiters));
            None
        }
        Err(_) => Some(waiters),
    }
}

/// The membership in a snapshot that a node sends, installs, or opens with.
pub(crate) fn membership(found: Option<(EntryId, Bytes)>) -> Option<(EntryId, Bytes)> {
    found.filter(|_| !is_planted(Fault::SnapshotWithoutMembership))
}
