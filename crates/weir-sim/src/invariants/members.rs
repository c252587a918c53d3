//! After the faults, every node knows the members, and all members vote.

use weir_raft::Status;

use crate::cluster::RunningNode;
use crate::report::Violation;

pub(crate) fn check(states: &[Status], ids: &[u64]) -> Result<(), Violation> {
    for status in states {
        let voters = status.members.iter().filter(|(_, (_, votes))| *votes);
        let voters: Vec<u64> = voters.map(|(id, _)| *id).collect();
        if voters != ids {
            return Err(Violation::new(
                "a node knows the members",
                format!("node {}: {voters:?} of {ids:?}", status.node),
            ));
        }
    }
    Ok(())
}

/// Checks that a node whose disk was lost has neither voted nor appended an entry.
pub(crate) fn check_excluded(nodes: &[RunningNode]) -> Result<(), Violation> {
    for running in nodes {
        let status = running.node.status();
        if (status.term, status.last) != (0, None) {
            return Err(Violation::new(
                "a node with another disk takes no part",
                format!("node {}: {status:?}", running.id),
            ));
        }
    }
    Ok(())
}
