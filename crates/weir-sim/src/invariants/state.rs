//! State machine safety: two nodes that have applied the same entry hold the same state.

use std::collections::BTreeMap;

use weir_core::Digest;
use weir_raft::Status;
use weir_store::Store;

use crate::report::Violation;

/// The digest of the state after each index, for each index that was seen as the newest applied
/// one.
#[derive(Default)]
pub(crate) struct SameState {
    digests: BTreeMap<u64, (u64, Digest)>,
    /// For each node, the run that was compared last, and its applied index then.
    compared: BTreeMap<u64, (u64, u64)>,
}

impl SameState {
    pub(crate) fn check(
        &mut self,
        status: &Status,
        run: u64,
        store: &Store,
    ) -> Result<(), Violation> {
        let Some(applied) = status.applied else {
            return Ok(());
        };
        let now = (run, applied.index.0);
        if self.compared.insert(status.node, now) == Some(now) {
            return Ok(());
        }
        let digest = store.digest();
        let (node, first) = *self
            .digests
            .entry(applied.index.0)
            .or_insert((status.node, digest));
        if first == digest {
            return Ok(());
        }
        Err(Violation::new(
            "state machine safety",
            format!(
                "index {}: nodes {node} and {}",
                applied.index.0, status.node
            ),
        ))
    }
}
