//! One topic of a query: its records as framed pages.
//!
//! The name of a page or a record of a log is the offset before it.
//!
//! Invariants:
//! - The engine gets the block of the reader as a page, not a copy; only the
//!   latest values are collected.
//! - No record of a log after the upper bound is read.

use std::time::Instant;

use bytes::Bytes;
use weir_core::{ConsequenceOffset, IntentionOffset};
use weir_query::{Frames, Meta, QueryError, item_of, span_in};
use weir_store::{Page, ReadFrom};

use super::faults::FaultKey;
use super::fetched::{Came, Fetched, Shared};
use super::latest::Latest;
use super::options::TopicView;
use crate::backend::TopicReader;
use crate::error::WeirError;
use crate::remote::listener::Next;
use crate::topic::Topic;

/// A topic that is read.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) name: String,
    records: Records,
    /// Items that the engine was given.
    pub(super) given: u64,
    /// What is wrong with the record that comes next.
    pub(super) fault: Option<QueryError>,
    /// Where that record stands in the order of the query, if records lie in
    /// that and it is there.
    pub(super) fault_key: Option<FaultKey>,
    /// Whether that was looked for.
    pub(super) fault_seen: bool,
    /// Records of earlier intentions are no items.
    bound: IntentionOffset,
}

#[derive(Debug)]
enum Records {
    Log(TopicReader),
    Latest(Box<Latest>),
}

impl Reading {
    /// `resumed`: it may be asked for another place than the first.
    pub(super) fn new(
        topic: &Topic,
        shared: &Shared,
        bound: Option<IntentionOffset>,
        resumed: bool,
    ) -> Result<Self, WeirError> {
        let records = match shared.view {
            TopicView::Log => {
                let mut reader = topic.listener(ReadFrom::Start)?;
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
            given: 0,
            fault: None,
            fault_key: None,
            fault_seen: false,
            bound: bound.unwrap_or_default(),
        })
    }

    /// The reader of a log.
    pub(super) fn reader(&mut self) -> Option<&mut TopicReader> {
        match &mut self.records {
            Records::Log(reader) => Some(reader),
            Records::Latest(_) => None,
        }
    }

    /// What comes after what this names.
    pub(super) fn give(
        &mut self,
        from: Option<&[u8]>,
        shared: &Shared,
        deadline: Option<Instant>,
    ) -> Result<Fetched, WeirError> {
        let reader = match &mut self.records {
            Records::Latest(latest) => {
                return latest.give(&self.name, from.unwrap_or_default(), shared, deadline);
            }
            Records::Log(reader) => reader,
        };
        let after = std::str::from_utf8(from.unwrap_or(b"0"));
        let after: u64 = after.ok().and_then(|at| at.parse().ok()).unwrap_or(0);
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

    /// Values that were not JSON and were left out by a server.
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

/// A page as it lies there.
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
    Ok(Fetched::Page(Came {
        bytes,
        frames,
        next: (!ended).then(|| Bytes::from(page.last().0.to_string())),
        records: Vec::new(),
    }))
}
