//! A linear read returns everything that was acknowledged or returned before the read began.

use std::time::Duration;

use crate::report::Violation;

pub(crate) fn check(floor: u64, last: u64, node: u64, took: Duration) -> Result<(), Violation> {
    if last >= floor {
        return Ok(());
    }
    Err(Violation::new(
        "a linear read is never stale",
        format!("node {node}: offset {last}, {floor} was shown before; it took {took:?}"),
    ))
}
