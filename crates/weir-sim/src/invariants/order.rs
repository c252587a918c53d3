//! I3: purged ≤ applied ≤ last, in the log of every node. The committed index of a node is not in
//! this order: it is not saved with every entry, and a leader announces it ahead of the entries.

use weir_raft::Status;

use crate::report::Violation;

pub(crate) fn check(status: &Status) -> Result<(), Violation> {
    let index = |id: Option<weir_store::replica::EntryId>| id.map_or(0, |id| id.index.0);
    let order = [status.purged, status.applied, status.last].map(index);
    if order.is_sorted() {
        return Ok(());
    }
    let [purged, applied, last] = order;
    Err(Violation::new(
        "I3: purged <= applied <= last",
        format!(
            "node {}: purged {purged}, applied {applied}, last {last}",
            status.node
        ),
    ))
}
