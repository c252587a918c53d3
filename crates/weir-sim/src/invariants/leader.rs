//! Election safety: a term has at most one leader.

use std::collections::BTreeMap;

use weir_raft::{Role, Status};

use crate::report::Violation;

/// The leader of each term.
#[derive(Default)]
pub(crate) struct OneLeaderPerTerm(BTreeMap<u64, u64>);

impl OneLeaderPerTerm {
    pub(crate) fn check(&mut self, status: &Status) -> Result<(), Violation> {
        if status.role != Role::Leader {
            return Ok(());
        }
        let first = *self.0.entry(status.term).or_insert(status.node);
        if first == status.node {
            return Ok(());
        }
        Err(Violation::new(
            "election safety: a term has one leader",
            format!("term {}: nodes {first} and {}", status.term, status.node),
        ))
    }
}
