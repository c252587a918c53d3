//! The consensus of a node ends only when the node is stopped or its disk is off.

use weir_raft::{Role, Status};

use crate::report::Violation;

pub(crate) fn check(status: &Status, is_off: bool) -> Result<(), Violation> {
    if is_off || status.role != Role::Ended {
        return Ok(());
    }
    Err(Violation::new(
        "the consensus of a running node continues",
        format!("node {} has ended in term {}", status.node, status.term),
    ))
}
