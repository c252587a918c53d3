//! Bounds the entries that a node applies, while its state is replaced.

use std::sync::Arc;

use tokio::sync::watch;
use weir_store::LogIndex;

/// Open: there is no limit.
const OPEN: u64 = u64::MAX;

/// Up to which entry a node applies. A node whose gate is not open waits for another state.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<watch::Sender<u64>>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(OPEN)))
    }
}

impl Gate {
    /// Waits until an entry may be applied, and returns the last one that may.
    pub(crate) async fn pass(&self, index: LogIndex) -> LogIndex {
        let mut limit = self.0.subscribe();
        let passed = limit.wait_for(|limit| index.0 <= *limit).await;
        // The sender lives as long as the gate.
        LogIndex(passed.map_or(OPEN, |limit| *limit))
    }

    /// Lets nothing more be applied, until the guard is dropped.
    pub(crate) fn close(&self) -> Closed {
        self.0.send_replace(0);
        Closed(self.clone())
    }

    /// Lets everything up to an entry be applied, if the gate is closed. Returns whether it is.
    pub(crate) fn raise(&self, index: LogIndex) -> bool {
        self.0.send_if_modified(|limit| {
            let is_closed = *limit != OPEN;
            if is_closed {
                *limit = index.0;
            }
            is_closed
        })
    }
}

/// A gate that is not open, until this is dropped.
pub(crate) struct Closed(Gate);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.0.send_replace(OPEN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_open_gate_is_not_bounded_by_a_state_that_comes_late() {
        let gate = Gate::default();
        let closed = gate.close();
        assert!(gate.raise(LogIndex(7)));
        assert_eq!(gate.pass(LogIndex(7)).await, LogIndex(7));
        drop(closed);
        assert!(!gate.raise(LogIndex(7)));
        assert_eq!(gate.pass(LogIndex(8)).await, LogIndex(OPEN));
    }
}
