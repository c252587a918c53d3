//! Limits the entries that a node applies while its state is being replaced.

use std::sync::Arc;

use tokio::sync::watch;
use weir_store::LogIndex;

/// The value of an open gate: no limit.
const OPEN: u64 = u64::MAX;

/// The last entry that a node may apply. A node whose gate is closed waits for another state.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<watch::Sender<u64>>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(OPEN)))
    }
}

impl Gate {
    /// Waits until the entry at `index` may be applied. Returns the last entry that may be applied.
    pub(crate) async fn pass(&self, index: LogIndex) -> LogIndex {
        let mut limit = self.0.subscribe();
        let passed = limit.wait_for(|limit| index.0 <= *limit).await;
        // The sender lives as long as the gate, so the wait cannot fail.
        LogIndex(passed.map_or(OPEN, |limit| *limit))
    }

    /// Receives each change of the last entry that may be applied.
    #[cfg(test)]
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }

    /// Stops the apply of further entries until the guard is dropped.
    pub(crate) fn close(&self) -> Closed {
        self.0.send_replace(0);
        Closed(self.clone())
    }

    /// Permits the apply up to an entry, if the gate is closed. Returns whether the gate is closed.
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

/// A closed gate, which opens on drop.
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
    async fn a_late_state_does_not_limit_an_open_gate() {
        let gate = Gate::default();
        let closed = gate.close();
        assert!(gate.raise(LogIndex(7)));
        assert_eq!(gate.pass(LogIndex(7)).await, LogIndex(7));
        drop(closed);
        assert!(!gate.raise(LogIndex(7)));
        assert_eq!(gate.pass(LogIndex(8)).await, LogIndex(OPEN));
    }
}
