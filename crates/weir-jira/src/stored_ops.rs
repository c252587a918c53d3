//! The operations of an outbox in memory. `overlay` refreshes them from the topic.

use std::collections::BTreeMap;

use crate::op::Op;

/// The operations of an outbox in memory: a refresh reads only the new records of the topic.
#[derive(Debug, Default)]
pub(crate) struct StoredOps {
    /// Offset of the last record that was read; 0: none.
    pub(crate) offset: u64,
    /// Operations by number, with their temporary keys.
    pub(crate) by_number: BTreeMap<u64, Op>,
}
