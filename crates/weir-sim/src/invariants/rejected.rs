//! I10: a write whose effect is not VALID leaves no record.

use std::collections::BTreeSet;

use crate::report::Violation;

/// Keys of writes whose effect was not VALID. Each key is written once.
#[derive(Default)]
pub(crate) struct Rejected(BTreeSet<Vec<u8>>);

impl Rejected {
    pub(crate) fn add(&mut self, key: &[u8]) {
        self.0.insert(key.to_vec());
    }

    /// Compares with all records of a node.
    pub(crate) fn check(&self, node: u64, records: &[(u64, Vec<u8>)]) -> Result<(), Violation> {
        let mut found = records.iter().filter(|(_, key)| self.0.contains(key));
        found.next().map_or(Ok(()), |(offset, key)| {
            Err(Violation::new(
                "I10: a write whose effect is not VALID leaves no record",
                format!("node {node}: {key:?} at {offset}"),
            ))
        })
    }
}
