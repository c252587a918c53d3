//! A node never returns to an older term, not even after a power cut: the vote is synced.

use std::collections::BTreeMap;

use weir_raft::Status;

use crate::report::Violation;

/// The newest term that each node has reported.
#[derive(Default)]
pub(crate) struct TermGrows(BTreeMap<u64, u64>);

impl TermGrows {
    pub(crate) fn check(&mut self, status: &Status) -> Result<(), Violation> {
        // A node that has just started has not reported a term yet.
        if status.term == 0 {
            return Ok(());
        }
        let before = self.0.insert(status.node, status.term).unwrap_or_default();
        if before <= status.term {
            return Ok(());
        }
        Err(Violation::new(
            "a node never returns to an older term",
            format!("node {}: {before}, then {}", status.node, status.term),
        ))
    }
}
