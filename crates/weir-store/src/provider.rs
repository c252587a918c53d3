//! The seam to a log provider, which decides the order of batches (docs/decisions/0064).
//!
//! Invariant: each waiter of a batch is answered exactly once.

use std::sync::Arc;

use bytes::Bytes;
use weir_core::{ErrorCode, Outcomes};

use crate::conclude::conclude;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::log_index::EntryId;
use crate::queue::Pending;

/// What a provider waits for before it reports an entry as committed.
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
    /// Batches that may be proposed and not answered; further ones gather in the
    /// queue, so that they become larger.
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
    /// Proposes a batch. Called on the writer thread, so it must not block. The
    /// provider answers `batch.waiters` after the entry was applied, or refuses
    /// it.
    fn propose(&self, batch: ProposedBatch);

    /// What a proposal waits for.
    fn latency_class(&self) -> LatencyClass;

    /// This node needs the entries up to `id` no more: two snapshots from there on are in
    /// place, and were read back. The provider lets them go by
    /// [`Replica::purge_through`](crate::replica::Replica::purge_through) when it does not
    /// need them either. Called on the writer thread, so it must not block.
    fn purgeable(&self, id: EntryId);
}

/// A batch on its way to a provider.
#[derive(Debug)]
pub struct ProposedBatch {
    /// Items in it.
    pub count: u32,
    /// The payload of its log entry.
    pub payload: Bytes,
    /// Who waits for its outcomes.
    pub waiters: Waiters,
}

/// Those who wait for the outcomes of one batch. Dropping it answers that nobody
/// knows what became of the batch (INDETERMINATE).
pub struct Waiters(Option<Box<Waiting>>);

struct Waiting {
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
        engine.queue.admitted();
        Self(Some(Box::new(Waiting {
            engine,
            pending,
            time_ms,
        })))
    }

    /// Answers with the outcomes of the applied batch.
    pub fn answer(mut self, outcomes: &Outcomes) {
        if let Some(waiting) = self.0.take() {
            let Waiting {
                engine,
                mut pending,
                time_ms,
            } = *waiting;
            conclude(&engine, &mut pending, time_ms, outcomes);
            engine.queue.recycle(pending);
            engine.queue.concluded();
        }
    }

    /// Answers that the batch was not appended anywhere and never will be:
    /// sending it again is safe even without a session.
    pub fn refuse(mut self, code: ErrorCode, text: &str) {
        self.fail(|| StoreError::Remote {
            code,
            text: text.to_owned(),
        });
    }

    /// As [`refuse`](Self::refuse), because another node leads. `client` holds the
    /// addresses of that node for clients, separated by spaces.
    pub fn redirect(mut self, node: u64, client: &str) {
        self.fail(|| StoreError::Elsewhere {
            node,
            client: client.to_owned(),
        });
    }

    fn fail(&mut self, error: impl Fn() -> StoreError) {
        if let Some(waiting) = self.0.take() {
            let Waiting {
                engine,
                mut pending,
                ..
            } = *waiting;
            for (_, slot) in pending.waiters.drain(..) {
                slot.complete(Err(error()));
            }
            engine.queue.recycle(pending);
            engine.queue.concluded();
        }
    }
}

impl Drop for Waiters {
    fn drop(&mut self) {
        let text = "the batch was proposed, and this node does not know what became of it; send \
                    it again with the same client id and nonce";
        self.fail(|| StoreError::Remote {
            code: ErrorCode::Indeterminate,
            text: text.to_owned(),
        });
    }
}
