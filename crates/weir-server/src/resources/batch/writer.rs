//! Writes a batch to the store, one log entry at a time.
//!
//! Invariants:
//! - An entry is proposed only after the verdict of the previous entry.
//! - No item after a refused item is written.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_core::limits::CALL_ITEMS_MAX;
use weir_core::{ErrorCode, Expect, Intention, Operation};

use super::item::Item;
use super::summary::Summary;
use crate::http::problem::{Kind, Problem};
use crate::limits::ENTRY_BYTES_MAX;
use crate::phase::Phase;
use crate::queued_write::QueuedWrite;
use crate::resources::condition::Condition;
use crate::resources::context::{Call, Edge, over_rate};
use crate::resources::propose::{RefusedProposal, outcomes, propose_many};
use crate::resources::session::Session;

/// Age of items after which they no longer wait for more items, if they use memory of a budget.
const AGE_MAX: Duration = Duration::from_secs(1);

/// A batch that is being written.
pub(super) struct Writer<'a> {
    pub(super) edge: &'a Arc<Edge>,
    pub(super) call: &'a Call,
    pub(super) session: Session,
    pub(super) items: Vec<Item>,
    /// Bytes of the items in the log.
    pub(super) bytes: usize,
    /// Bytes of the items in memory.
    pub(super) memory: usize,
    /// When the first item was collected.
    pub(super) since: Option<Instant>,
    pub(super) summary: Summary,
}

impl<'a> Writer<'a> {
    pub(super) fn new(edge: &'a Arc<Edge>, call: &'a Call, session: Session) -> Self {
        Self {
            edge,
            call,
            session,
            items: Vec::new(),
            bytes: 0,
            memory: 0,
            since: None,
            summary: Summary::default(),
        }
    }

    /// Whether the first collected item has waited for a long time.
    pub(super) fn is_old(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= AGE_MAX)
    }

    pub(super) async fn push(&mut self, item: Item) -> Result<(), Problem> {
        let size = item.key.len() + item.value.len() + item.meta.len() + 16;
        if !self.items.is_empty()
            && (self.items.len() >= CALL_ITEMS_MAX || self.bytes + size > ENTRY_BYTES_MAX)
        {
            self.flush().await?;
        }
        self.bytes += size;
        self.memory += item.memory();
        self.since.get_or_insert_with(Instant::now);
        self.items.push(item);
        Ok(())
    }

    /// Writes the collected items as one log entry.
    pub(super) async fn flush(&mut self) -> Result<(), Problem> {
        if self.items.is_empty() {
            return Ok(());
        }
        let mut items = std::mem::take(&mut self.items);
        (self.bytes, self.memory, self.since) = (0, 0, None);
        self.wait_for_rate(items.len() as u64).await?;
        let (refused, mut queued) = match self.propose(&items) {
            Ok(proposed) => (None, proposed),
            Err(refused) => {
                let (index, problem) = *refused;
                let Some((index, item)) = index.and_then(|index| Some((index, items.get(index)?)))
                else {
                    return Err(problem);
                };
                let problem = item.position.add_to(problem);
                if index == 0 {
                    return Err(problem);
                }
                // The items before the refused one are written.
                items.truncate(index);
                let proposed = self.propose(&items).map_err(|refused| refused.1)?;
                (Some(problem), proposed)
            }
        };
        self.session.hold_in(&mut queued);
        let outcomes = outcomes(self.edge, queued).await?;
        if self.session.nonce != 0 {
            self.session.nonce += items.len() as u64;
        }
        self.summary.add(&outcomes);
        refused.map_or(Ok(()), Err)
    }

    /// Waits until the rate limit admits the items, at most `store_timeout`. Ends when the server
    /// drains, because the items occupy memory meanwhile. The first item of a batch was counted with
    /// the request.
    async fn wait_for_rate(&self, items: u64) -> Result<(), Problem> {
        let shared = &self.edge.shared;
        let mut phase = shared.phase.subscribe();
        let deadline = Instant::now() + shared.config.store_timeout;
        while let Err(pause) = shared.security.admit(&self.call.principal, items, 0) {
            if Instant::now() + pause > deadline {
                return Err(over_rate(pause));
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = phase.wait_for(|phase| *phase >= Phase::Draining) => {
                    return Err(Problem::new(Kind::Draining, "").code(ErrorCode::Draining));
                }
            }
        }
        Ok(())
    }

    fn propose(&self, items: &[Item]) -> Result<QueuedWrite, RefusedProposal> {
        let expects: Vec<Vec<Expect<'_>>> = items
            .iter()
            .map(|item| item.expect.iter().copied().map(Condition::expect).collect())
            .collect();
        let mut nonce = self.session.nonce;
        let mut intentions = Vec::with_capacity(items.len());
        for (item, expect) in items.iter().zip(&expects) {
            let operation = if item.delete {
                Operation::Delete { key: &item.key }
            } else {
                Operation::Put {
                    key: &item.key,
                    value: &item.value,
                }
            };
            intentions.push(Intention {
                client: self.session.client,
                nonce,
                expect,
                meta: &item.meta,
                principal: self.call.principal.name.as_bytes(),
                ..Intention::new(&self.call.matched.topic, operation)
            });
            nonce += u64::from(nonce != 0);
        }
        propose_many(self.edge, self.call, &intentions)
    }
}
