//! I2 and I6: an acknowledged write is stored at its offset, and no write is stored twice.

use std::collections::BTreeMap;

use crate::report::Violation;

/// Writes that were acknowledged.
#[derive(Default)]
pub(crate) struct Acknowledged(BTreeMap<Vec<u8>, u64>);

impl Acknowledged {
    pub(crate) fn add(&mut self, key: &[u8], offset: u64) -> Result<(), Violation> {
        match self.0.insert(key.to_vec(), offset) {
            Some(before) if before != offset => Err(Violation::new(
                "I6: a nonce is executed once",
                format!("{key:?} at {before}, then at {offset}"),
            )),
            _ => Ok(()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Compares with all records of a node.
    pub(crate) fn check(&self, node: u64, records: &[(u64, Vec<u8>)]) -> Result<(), Violation> {
        let mut found = BTreeMap::new();
        for (offset, key) in records {
            if let Some(before) = found.insert(key, *offset) {
                return Err(Violation::new(
                    "I6: a nonce is executed once",
                    format!("node {node}: {key:?} at {before} and at {offset}"),
                ));
            }
        }
        for (key, offset) in &self.0 {
            if found.get(key) != Some(offset) {
                return Err(Violation::new(
                    "I2: an acknowledged write is stored",
                    format!(
                        "node {node}: {key:?} at {offset}, found {:?}",
                        found.get(key)
                    ),
                ));
            }
        }
        Ok(())
    }
}
