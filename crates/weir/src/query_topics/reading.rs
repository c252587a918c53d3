//! Reads one topic of a query as framed pages.
//!
//! The name of a page, or of a record of a log, is the offset before it.
//!
//! Invariants:
//! - The engine receives the block of the reader as a page, not a copy. Only the latest values are
//!   copied together.
//! - No record of a log after the upper bound is read.

use std::time::Instant;

use bytes::Bytes;
use weir_core::{ConsequenceOffset, ErrorCode, IntentionOffset};
use weir_query::{Frames, Meta, QueryError, item_of, span_in};
use weir_store::{Page, ReadFrom};

use super::faults::FaultKey;
use super::fetched::{Fetched, Items, Shared};
use super::latest::Latest;
use super::options::TopicView;
use crate::backend::TopicReader;
use crate::error::WeirError;
use crate::remote::listener::Next;
use crate::topic::Topic;

/// A topic that a query reads.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) name: String,
    records: Records,
    /// The number of items that the engine has received.
    pub(super) enqueued: u64,
    /// The error of the next record.
    pub(super) fault: Option<QueryError>,
    /// The position of that record in the order of the query. `None` if records are stored in
    /// another order, or if the record does not exist.
    pub(super) fault_key: Option<FaultKey>,
    /// Whether that position was searched for.
    pub(super) fault_seen: bool,
    /// Records of earlier intentions are not items.
    bound: IntentionOffset,
}

#[derive(Debug)]
enum Records {
    Log(TopicReader),
    Latest(Box<Latest>),
}

impl Reading {
    /// Begins to read. A log is read from `from` on, without the records of intentions before
    /// `bound`. `resumed`: the first read may start at another position.
    pub(super) fn new(
        topic: &Topic,
        shared: &Shared,
        (from, bound): (ReadFrom, Option<IntentionOffset>),
        resumed: bool,
    ) -> Result<Self, WeirError> {
        let records = match shared.view {
            TopicView::Log => {
                let mut reader = topic.listener(from)?;
                if shared.reset_earliest {
                    reader = reader.or_earliest();
                }
                reader.prepare(shared.pushdown.clone())?;
                Records::Log(reader)
            }
            TopicView::Latest => {
                let name = topic.name().as_str();
                Records::Latest(Latest::new(topic.backend(), name, shared, !resumed)?.into())
            }
        };
        Ok(Self {
            name: topic.name().as_str().to_owned(),
            records,
            enqueued: 0,
            fault: None,
            fault_key: None,
            fault_seen: false,
            bound: bound.unwrap_or_default(),
        })
    }

    /// The name of the first page of a log that is read from `from` on; `None` at its start. In a
    /// token, it keeps the position that `from` had when the query began.
    pub(super) fn first(&self, from: ReadFrom) -> Option<Bytes> {
        match (&self.records, from) {
            (Records::Latest(_), _) | (_, ReadFrom::Start) => None,
            (Records::Log(reader), _) => {
                let before = reader.position().0.saturating_sub(1);
                Some(Bytes::from(before.to_string()))
            }
        }
    }

    /// The reader of a log.
    pub(super) fn reader(&mut self) -> Option<&mut TopicReader> {
        match &mut self.records {
            Records::Log(reader) => Some(reader),
            Records::Latest(_) => None,
        }
    }

    /// Returns the items after the position with this name.
    pub(super) fn next_page(
        &mut self,
        from: Option<&[u8]>,
        shared: &Shared,
        deadline: Option<Instant>,
    ) -> Result<Fetched, WeirError> {
        let reader = match &mut self.records {
            Records::Latest(latest) => {
                return latest.next_page(&self.name, from.unwrap_or_default(), shared, deadline);
            }
            Records::Log(reader) => reader,
        };
        let after = std::str::from_utf8(from.unwrap_or(b"0")).ok();
        let after = after.and_then(|at| at.parse::<u64>().ok());
        let after = after.ok_or_else(|| {
            let what = "the position in a topic is not a number";
            QueryError::about(ErrorCode::TokenCorrupt, what)
        })?;
        if after > 0 && reader.position().0 <= after {
            reader.seek(ConsequenceOffset(after));
        }
        let page = match reader.next_by(deadline)? {
            Next::Page(page) => Some(page),
            Next::End => None,
            Next::Late => return Ok(Fetched::Nothing),
        };
        if page.is_none()
            && let Some(fault) = reader.fault()
        {
            let (code, record) = (fault.code, fault.record);
            let error = QueryError::of_record(code, &self.name, record, fault.byte);
            return Ok(Fetched::Fault(error));
        }
        match page {
            Some(page) => Ok(frames(&page, shared, self.bound)?),
            None if shared.cut.is_some() => Ok(Fetched::End),
            None => Ok(Fetched::Nothing),
        }
    }

    /// The number of values that were not JSON and that a server skipped.
    pub(super) fn skipped(&self) -> u64 {
        match &self.records {
            Records::Log(reader) => reader.skipped(),
            Records::Latest(latest) => latest.skipped(),
        }
    }

    /// The newest intention of the latest values that were read.
    pub(super) fn newest(&self) -> IntentionOffset {
        match &self.records {
            Records::Log(_) => IntentionOffset::ZERO,
            Records::Latest(latest) => latest.newest,
        }
    }

    /// Waits for a record that was not read yet.
    pub(super) fn wait(&mut self, deadline: Option<Instant>) -> bool {
        self.reader().is_none_or(|reader| reader.wait(deadline))
    }
}

/// The stored block of a page, framed.
fn frames(page: &Page, shared: &Shared, bound: IntentionOffset) -> Result<Fetched, WeirError> {
    let bytes = page.bytes();
    let mut frames = Frames::default();
    let mut ended = false;
    for record in page {
        let record = record?;
        if shared.cut.is_some_and(|cut| record.intention > cut) {
            ended = true;
            break;
        }
        if record.intention < bound || !shared.wants(record.kind) {
            continue;
        }
        let (value, key) = (
            span_in(&bytes, item_of(&record)),
            span_in(&bytes, record.key),
        );
        let start = Meta::Number(record.offset.0.saturating_sub(1));
        let properties = &shared.properties;
        properties.push(&record, value, key, start, &mut frames);
    }
    Ok(Fetched::Page(Items {
        bytes,
        frames,
        next: (!ended).then(|| Bytes::from(page.last().0.to_string())),
        records: Vec::new(),
    }))
}
