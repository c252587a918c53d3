//! LI1 to LI3: a listener receives each record once and in order, at any nodes, and every received
//! record stays in the topic.

use std::collections::BTreeMap;

use crate::report::Violation;

/// Records that listeners have received: the key at each offset.
#[derive(Default)]
pub(crate) struct Delivered(BTreeMap<u64, Vec<u8>>);

impl Delivered {
    /// Adds a record that a listener has received from `node` after the record at `last`.
    pub(crate) fn add(
        &mut self,
        node: u64,
        last: u64,
        offset: u64,
        key: &[u8],
    ) -> Result<(), Violation> {
        if offset != last + 1 {
            return Err(Violation::new(
                "LI1: a listener receives each record once and in order",
                format!("node {node}: offset {offset} after {last}"),
            ));
        }
        let known = self.0.entry(offset).or_insert_with(|| key.to_vec());
        if known.as_slice() != key {
            return Err(Violation::new(
                "LI2: all nodes deliver one record at an offset",
                format!("node {node}: {key:?} at {offset}, {known:?} was delivered before"),
            ));
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Compares with all records of a node that has applied everything. `records` omits records
    /// without a key.
    pub(crate) fn check(&self, node: u64, records: &[(u64, Vec<u8>)]) -> Result<(), Violation> {
        let found: BTreeMap<u64, &[u8]> = records
            .iter()
            .map(|(offset, key)| (*offset, key.as_slice()))
            .collect();
        for (offset, key) in &self.0 {
            let actual = found.get(offset).copied().unwrap_or_default();
            if actual != key.as_slice() {
                return Err(Violation::new(
                    "LI3: a delivered record stays in the topic",
                    format!("node {node}: {key:?} was delivered at {offset}, found {actual:?}"),
                ));
            }
        }
        Ok(())
    }
}
