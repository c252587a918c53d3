//! Leader completeness and log matching: an index that was committed with one term is never
//! committed with another, and no later leader lacks it.

use std::collections::BTreeMap;

use weir_raft::{Role, Status};

use crate::report::Violation;

/// The term of each index that a node has reported as committed.
#[derive(Default)]
pub(crate) struct CommittedStays {
    terms: BTreeMap<u64, u64>,
}

impl CommittedStays {
    pub(crate) fn check(&mut self, status: &Status) -> Result<(), Violation> {
        let node = status.node;
        for id in [status.committed, status.applied].into_iter().flatten() {
            let (index, term) = (id.index.0, id.term);
            let before = *self.terms.entry(index).or_insert(term);
            if before != term {
                return Err(Violation::new(
                    "log matching: a committed entry stays",
                    format!("node {node}: index {index} of term {term}, was {before}"),
                ));
            }
        }
        if let Some((index, term)) = self.terms.last_key_value() {
            let last = status.last.map_or(0, |last| last.index.0);
            if status.role == Role::Leader && status.term > *term && last < *index {
                return Err(Violation::new(
                    "leader completeness",
                    format!(
                        "node {node} leads term {} with {last} entries, {index} of term {term} \
                         is committed",
                        status.term
                    ),
                ));
            }
        }
        Ok(())
    }
}
