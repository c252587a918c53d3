//! Bounds the entries that a node applies, while its state is replaced.

use std::sync::Arc;

use tokio::sync::watch;
use weir_store::LogIndex;

/// Up to which entry a node applies.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<watch::Sender<u64>>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(u64::MAX)))
    }
}

impl Gate {
    /// Waits until an entry may be applied, and returns the last one that may.
    pub(crate) async fn pass(&self, index: LogIndex) -> LogIndex {
        let mut limit = self.0.subscribe();
        let passed = limit.wait_for(|limit| index.0 <= *limit).await;
        // The sender lives as long as the gate.
        LogIndex(passed.map_or(u64::MAX, |limit| *limit))
    }

    /// Lets everything up to an entry be applied.
    pub(crate) fn set(&self, limit: u64) {
        self.0.send_replace(limit);
    }
}
