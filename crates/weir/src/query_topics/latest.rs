//! Reads the latest values of one topic for a query: each key once, in byte order.
//!
//! Invariants:
//! - A value is current at the time of its read at the node that is read.
//! - The name of a position is the least key that can follow. A query that resumes there with its
//!   token, on any node, reads each key that stays in the topic once. After a broken connection, a
//!   query reads what the node has applied.
//! - A key never has two values.

use std::time::Instant;

use bytes::Bytes;
use weir_core::IntentionOffset;
use weir_query::{Frames, Meta, QueryError, Span, item_of};
use weir_store::key_after;

use super::fetched::{Fetched, Items, Shared};
use crate::backend::{Backend, Values};
use crate::error::WeirError;
use crate::remote::listener::Next;

/// Bytes of values that fill a page.
const GATHERED_BYTES: usize = 1 << 20;

/// Reads the latest values.
#[derive(Debug)]
pub(super) struct Latest {
    values: Values,
    /// Keys below this one were read.
    at: Vec<u8>,
    /// The newest intention of the values that were read.
    pub(super) newest: IntentionOffset,
}

impl Latest {
    /// Begins to read. `in_advance`: sends the request for the values from the first key on.
    pub(super) fn new(
        backend: &Backend,
        topic: &str,
        shared: &Shared,
        in_advance: bool,
    ) -> Result<Self, WeirError> {
        Ok(Self {
            values: backend.values(topic, shared.pushdown.clone(), in_advance)?,
            at: Vec::new(),
            newest: IntentionOffset::ZERO,
        })
    }

    /// The number of values that were not JSON and that a server skipped.
    pub(super) fn skipped(&self) -> u64 {
        self.values.skipped()
    }

    fn fault(&self, topic: &str) -> Option<QueryError> {
        let fault = self.values.fault()?;
        Some(QueryError::of_record(
            fault.code,
            topic,
            fault.record,
            fault.byte,
        ))
    }

    /// Returns the values from a key on. Copies them into one page, because each is in a separate
    /// block.
    pub(super) fn next_page(
        &mut self,
        topic: &str,
        from: &[u8],
        shared: &Shared,
        deadline: Option<Instant>,
    ) -> Result<Fetched, WeirError> {
        if *from != *self.at {
            self.at = from.to_vec();
            self.values.seek(from);
        }
        let (mut bytes, mut frames, mut records) = (Vec::new(), Frames::default(), Vec::new());
        let mut add = |part: &[u8]| {
            let offset = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let len = u32::try_from(part.len()).unwrap_or(0);
            bytes.extend_from_slice(part);
            (Span { offset, len }, bytes.len())
        };
        let mut ended = false;
        loop {
            // Returns the values that have arrived before it waits for more.
            let page = match self.values.next(records.is_empty(), deadline)? {
                Next::Page(page) => page,
                Next::End => {
                    ended = true;
                    break;
                }
                Next::Late => break,
            };
            let Some(record) = page.iter().next().transpose()? else {
                continue;
            };
            self.at = key_after(record.key);
            self.newest = self.newest.max(record.intention);
            if !shared.wants(record.kind) {
                continue;
            }
            let (key, _) = add(record.key);
            let (value, length) = add(item_of(&record));
            let start = Meta::Bytes(key);
            let properties = &shared.properties;
            properties.push(&record, value, key, start, &mut frames);
            records.push(record.offset.0);
            if length >= GATHERED_BYTES {
                break;
            }
        }
        let fault = self.fault(topic).filter(|_| ended);
        let next = (!ended || fault.is_some()).then(|| Bytes::from(self.at.clone()));
        Ok(match (records.is_empty(), fault) {
            (true, Some(fault)) => Fetched::Fault(fault),
            (true, None) if ended => Fetched::End,
            (true, None) => Fetched::Nothing,
            (false, _) => Fetched::Page(Items {
                bytes: Bytes::from(bytes),
                frames,
                next,
                records,
            }),
        })
    }
}
