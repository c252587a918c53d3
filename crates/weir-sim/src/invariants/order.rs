//! I3: applied ≤ committed ≤ last.

use weir_raft::Status;

use crate::report::Violation;

pub(crate) fn check(status: &Status) -> Result<(), Violation> {
    let index = |id: Option<weir_store::replica::EntryId>| id.map_or(0, |id| id.index.0);
    let (applied, last) = (index(status.applied), index(status.last));
    if applied <= last {
        return Ok(());
    }
    Err(Violation::new(
        "I3: applied is at most last",
        format!("node {}: applied {applied}, last {last}", status.node),
    ))
}
