//! I1 and I4: offsets have no gaps, and equal logs give equal digests.

use weir_core::ConsequenceOffset;

use crate::cluster::{RunningNode, TOPIC};
use crate::report::Violation;

/// The offset and key of each record of a node.
pub(crate) fn records(running: &RunningNode) -> Result<Vec<(u64, Vec<u8>)>, Violation> {
    let name = "I1: offsets are dense, and every record can be read";
    let failed = |error: &dyn std::fmt::Display| {
        Violation::new(name, format!("node {}: {error}", running.id))
    };
    let reader = running.node.store().read(TOPIC, ConsequenceOffset::ZERO);
    let mut reader = reader.map_err(|error| failed(&error))?;
    let (mut found, mut next) = (Vec::new(), 1);
    while let Some(page) = reader.next_page().map_err(|error| failed(&error))? {
        for record in &page {
            let record = record.map_err(|error| failed(&error))?;
            if record.offset.0 != next {
                return Err(failed(&format!("{} after {}", record.offset.0, next - 1)));
            }
            next += 1;
            if !record.key.is_empty() {
                found.push((record.offset.0, record.key.to_vec()));
            }
        }
    }
    Ok(found)
}

/// Compares nodes that have applied the same entry.
pub(crate) fn check(nodes: &[RunningNode]) -> Result<(), Violation> {
    let digests: Vec<_> = nodes.iter().map(|n| n.node.store().digest()).collect();
    let is_equal = digests.windows(2).all(|pair| pair[0] == pair[1]);
    if is_equal {
        return Ok(());
    }
    Err(Violation::new(
        "I4: equal logs give equal digests",
        format!("{digests:?}"),
    ))
}
