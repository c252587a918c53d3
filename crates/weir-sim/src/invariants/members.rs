//! After the faults, every node knows the members, and that all of them vote.

use weir_raft::Status;

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
