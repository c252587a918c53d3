//! The interface to a log provider, which decides the order of batches (docs/decisions/0064).
//!
//! Invariant: each waiter of a batch gets exactly one result.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_core::{ErrorCode, Outcomes};

use crate::engine::Engine;
use crate::error::StoreError;
use crate::log_index::EntryId;
use crate::proposal::complete_waiters;
use crate::queue::Pending;

/// The kind of operation that a provider waits for before it reports an entry as committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyClass {
    /// A sync of a local disk: tens of microseconds to milliseconds.
    Disk,
    /// Other nodes of a network: a millisecond or a few.
    Network,
    /// A request to an object store: tens to hundreds of milliseconds.
    Object,
}

impl LatencyClass {
    /// Maximum number of proposed batches without a result. Further intentions wait in the queue,
    /// where they form larger batches.
    pub(crate) const fn in_flight_max(self) -> usize {
        match self {
            Self::Disk => 2,
            Self::Network => 16,
            Self::Object => 64,
        }
    }
}

/// A log provider: decides the order of batches.
pub trait IntentionLog: Send + Sync {
    /// Proposes a batch. The writer thread calls this function, so it must not block. The provider
    /// completes `batch.waiters` after the entry was applied, or after it rejected the batch.
    fn propose(&self, batch: ProposedBatch);

    /// Returns the kind of operation that a proposal waits for.
    fn latency_class(&self) -> LatencyClass;

    /// Reports that this node no longer needs the entries up to `id`: two snapshots at or after
    /// `id` exist and were read back. The provider calls
    /// [`Replica::purge_through`](crate::replica::Replica::purge_through) when it does not
    /// need these entries either. The writer thread calls this function, so it must not block.
    fn purgeable(&self, id: EntryId);
}

/// A batch that is proposed to a provider.
#[derive(Debug)]
pub struct ProposedBatch {
    /// Number of items in the batch.
    pub count: u32,
    /// The payload of its log entry.
    pub payload: Bytes,
    /// The callers that wait for its outcomes.
    pub waiters: Waiters,
}

/// The callers that wait for the outcomes of one batch. Dropping this value fails their calls with
/// INDETERMINATE: whether the batch was committed is unknown.
pub struct Waiters(Option<Box<InFlightBatch>>);

struct InFlightBatch {
    engine: Arc<Engine>,
    pending: Pending,
    time_ms: u64,
}

impl std::fmt::Debug for Waiters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiters").finish_non_exhaustive()
    }
}

impl Waiters {
    pub(crate) fn new(engine: Arc<Engine>, pending: Pending, time_ms: u64) -> Self {
        engine.queue.admitted(pending.slow.is_some());
        Self(Some(Box::new(InFlightBatch {
            engine,
            pending,
            time_ms,
        })))
    }

    /// Returns the outcomes of the applied batch to the callers.
    pub fn answer(mut self, outcomes: &Outcomes) {
        if let Some(batch) = self.0.take() {
            let InFlightBatch {
                engine,
                mut pending,
                time_ms,
            } = *batch;
            let is_costly = engine
                .queue
                .report_fuel(&engine.machine, &pending, time_ms, outcomes);
            complete_waiters(outcomes, &mut pending.waiters);
            let is_slow = pending.slow.is_some();
            engine.queue.recycle(pending);
            // Providers answer a batch after its apply, and before the next apply.
            let apply_time = if is_costly {
                Duration::from_nanos(engine.counters.apply_ns.get())
            } else {
                Duration::ZERO
            };
            engine.queue.completed(is_slow.then_some(apply_time));
        }
    }

    /// Fails the calls. The batch must not be appended on any node, now or later: the callers may
    /// retry safely even without a session.
    pub fn refuse(mut self, code: ErrorCode, text: &str) {
        self.fail(|| StoreError::Remote {
            code,
            text: text.to_owned(),
        });
    }

    /// As [`refuse`](Self::refuse), because node `node` leads. `client` has the addresses of that
    /// node for clients, separated by spaces.
    pub fn redirect(mut self, node: u64, client: &str) {
        self.fail(|| StoreError::Elsewhere {
            node,
            client: client.to_owned(),
        });
    }

    fn fail(&mut self, error: impl Fn() -> StoreError) {
        if let Some(batch) = self.0.take() {
            let InFlightBatch {
                engine,
                mut pending,
                ..
            } = *batch;
            for (_, slot) in pending.waiters.drain(..) {
                slot.complete(Err(error()));
            }
            let is_slow = pending.slow.is_some();
            engine.queue.recycle(pending);
            engine.queue.completed(is_slow.then_some(Duration::ZERO));
        }
    }
}

impl Drop for Waiters {
    fn drop(&mut self) {
        let text = "the batch was proposed, and this node does not know its outcome; send it again \
                    with the same client id and nonce";
        self.fail(|| StoreError::Remote {
            code: ErrorCode::Indeterminate,
            text: text.to_owned(),
        });
    }
}
