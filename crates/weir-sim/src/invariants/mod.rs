//! The invariants of every history, one file for each.

pub(crate) mod acknowledged;
pub(crate) mod agreement;
pub(crate) mod claims;
pub(crate) mod committed;
pub(crate) mod delivered;
pub(crate) mod ended;
pub(crate) mod leader;
pub(crate) mod linear;
pub(crate) mod members;
pub(crate) mod order;
pub(crate) mod rejected;
pub(crate) mod state;
pub(crate) mod term;

use std::collections::BTreeMap;

use weir_raft::{Role, Status};
use weir_store::replica::EntryId;

use crate::cluster::RunningNode;
use crate::report::Violation;

/// The invariants that hold at every moment.
#[derive(Default)]
pub(crate) struct InvariantChecks {
    leader: leader::OneLeaderPerTerm,
    committed: committed::CommittedStays,
    state: state::SameState,
    term: term::TermGrows,
    /// The newest entry of each log.
    last: BTreeMap<u64, u64>,
    /// Snapshots of other nodes that were installed, counted when a log was purged beyond its end.
    pub(crate) installs: u64,
}

impl InvariantChecks {
    /// A node whose disk was replaced by an older copy may end, and has lost its term.
    pub(crate) fn check(
        &mut self,
        running: &RunningNode,
        is_off: bool,
        is_older: bool,
    ) -> Result<(), Violation> {
        let status: Status = running.node.status();
        ended::check(&status, is_off || is_older)?;
        if status.role == Role::Ended {
            // The status may show a vote that did not reach the disk before the power cut.
            return Ok(());
        }
        let index = |id: Option<EntryId>| id.map_or(0, |id| id.index.0);
        let before = self.last.insert(status.node, index(status.last));
        self.installs += u64::from(before.is_some_and(|last| last < index(status.purged)));
        order::check(&status)?;
        self.leader.check(&status)?;
        self.committed.check(&status)?;
        if !is_older {
            self.term.check(&status)?;
        }
        self.state.check(&status, running.run, running.node.store())
    }
}
