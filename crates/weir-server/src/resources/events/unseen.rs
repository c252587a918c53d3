//! `Prefer: conflicts=N`: the records that a writer had not seen when its condition failed.
//!
//! These records start after the offset that the writer expected and end with the offset that was
//! found. So the writer can retry without another read.
//!
//! Invariants:
//! - A record is returned only if the writer has the right to read it.
//! - The records are reserved from the budget of responses until they are sent, and omitted if
//!   there is no memory.
//! - A request scans at most [`SCAN_BYTES_MAX`], and the rest of a block.

use std::sync::Arc;

use weir_core::{Commit, ConsequenceOffset, Detail, ErrorCode};
use weir_store::Store;

use crate::http::problem::{Member, Problem};
use crate::limits::budget::{MemoryBudget, Reservation};
use crate::limits::readers::Readers;
use crate::limits::{PAGE_BYTES, PAGE_RECORDS_MAX};
use crate::resources::condition::{Condition, Conditions};
use crate::resources::context::{Call, Edge};
use crate::resources::events::read::SCAN_BYTES_MAX;
use crate::resources::problems;
use crate::resources::records::{Form, Writer};

/// The records to read: those after the expected offset, up to the offset that was found.
#[derive(Debug)]
pub(crate) struct UnseenRecords {
    store: Arc<Store>,
    readers: Readers,
    budget: MemoryBudget,
    topic: String,
    /// Only records of this key, if set.
    key: Option<Vec<u8>>,
    after: u64,
    upto: u64,
    limit: u64,
}

impl UnseenRecords {
    /// Returns the records to read. `None` if the request has no `conflicts=N`, if the verdict is
    /// not a conflict, or if the writer may not read.
    pub(crate) fn of(
        edge: &Edge,
        call: &Call,
        conditions: &Conditions,
        key: &[u8],
        commit: &Commit,
        limit: u64,
    ) -> Option<Self> {
        let Detail::Actual(actual) = commit.detail else {
            return None;
        };
        if limit == 0 || commit.reason != Some(ErrorCode::Conflict) {
            return None;
        }
        let (after, is_key) = match *conditions.all.first().or(conditions.tags.first())? {
            Condition::KeyOffset(n) => (n, true),
            Condition::KeyAbsent => (0, true),
            Condition::TopicOffset(n) | Condition::TopicAbsentOr(n) => (n, false),
            Condition::TopicEmpty => (0, false),
            Condition::KeyPresent | Condition::Incarnation(_) => return None,
        };
        let topic = &call.matched.topic;
        let may_read = edge.shared.security.can_read(&call.principal, topic);
        let mut budget = edge.shared.admission.answers.clone();
        budget.set_share(call.principal.share_key());
        may_read.then(|| Self {
            store: Arc::clone(&edge.shared.store),
            readers: edge.shared.readers.clone(),
            budget,
            topic: topic.clone(),
            key: is_key.then(|| key.to_vec()),
            after,
            // A key without a value has no offset, so the upper bound is open.
            upto: if actual == 0 { u64::MAX } else { actual },
            limit,
        })
    }

    /// Adds the records to the problem. Omits them if they cannot be read, or there is no memory.
    pub(crate) async fn add_to(self, problem: Problem) -> Problem {
        let mut reservation = Reservation::new(&self.budget);
        // Memory for a block, its rendering, and the problem with a copy of it.
        if reservation.cover(3 * PAGE_BYTES).await.is_err() {
            return problem;
        }
        let readers = self.readers.clone();
        let Ok(permit) = readers.permit().await else {
            return problem;
        };
        let read = readers.run(move || {
            let read = self.read();
            drop(permit);
            read
        });
        let Ok(Ok((records, more))) = read.await else {
            return problem;
        };
        let bytes = 2 * records.len();
        if !reservation.try_cover(bytes) {
            return problem;
        }
        reservation.shrink(bytes);
        let mut problem = problem.raw("conflicts", records);
        if more {
            problem = problem.raw("conflicts_more", b"true".to_vec());
        }
        problem
            .members
            .push(Member::Reserved(Arc::new(reservation)));
        problem
    }

    /// Returns the records as an array, and whether there are more.
    fn read(&self) -> Result<(Vec<u8>, bool), Problem> {
        let after = ConsequenceOffset(self.after);
        let reader = self.store.read(&self.topic, after);
        let mut reader = reader
            .map_err(|error| problems::of_store(&error))?
            .or_earliest();
        let mut writer = Writer::new(Form::Json);
        let (mut scanned, mut scanned_bytes, mut more) = (0, 0, false);
        'pages: loop {
            // A block larger than a page would exceed the reservation, so the client must read it
            // separately.
            if reader.next_page_bytes() > PAGE_BYTES {
                more = true;
                break;
            }
            let page = reader.next_page();
            let Some(page) = page.map_err(|error| problems::of_store(&error))? else {
                break;
            };
            for record in &page {
                let record = record.map_err(|error| problems::of_store(&error))?;
                if record.offset.0 > self.upto {
                    break 'pages;
                }
                let matches = self.key.as_ref().is_none_or(|key| key == record.key);
                let is_full = writer.count >= self.limit || writer.out.len() >= PAGE_BYTES;
                if scanned >= PAGE_RECORDS_MAX || (matches && is_full) {
                    more = true;
                    break 'pages;
                }
                scanned += 1;
                if matches {
                    writer.record(&self.topic, &record);
                }
            }
            scanned_bytes += page.wire_bytes();
            let end = self.upto.min(reader.last().0);
            if scanned_bytes >= SCAN_BYTES_MAX && page.last().0 < end {
                more = true;
                break;
            }
        }
        let mut records = writer.end();
        records.truncate(records.trim_ascii_end().len());
        Ok((records, more))
    }
}
