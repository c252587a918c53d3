//! The filter of a query, for callers that check one record at a time.
//!
//! Invariant: the result is that of a query over the record.

use std::borrow::Cow;

use weir_core::record::Record;
use weir_core::{ErrorCode, RecordKind};
use weir_scan::{BadItem, Bindings, Level, OutOfSteps, Path, Plan, Shape};

use crate::error::QueryError;
use crate::filter::Filter;
use crate::json;
use crate::records::{RECORD_PROPERTIES, item_of};

/// A compiled `where` for records.
///
/// As in a query with `on_bad_item` `Undefined`, all paths are undefined in a value that is
/// not JSON, and in a record without a value.
#[derive(Clone, Debug)]
pub struct RecordFilter {
    filter: Filter,
    /// Finds the values of the filter.
    scan: Plan,
}

impl RecordFilter {
    /// Compiles an expression; `params` are values for `param(NAME)`, JSON scalars.
    ///
    /// # Errors
    /// As for [`QueryText::compile`](crate::QueryText::compile); `BAD_OPTION` for a property that
    /// records do not have.
    pub fn new(text: &str, params: &[(String, String)]) -> Result<Self, QueryError> {
        let filter = Filter::compile(text, params, |_| 0)?;
        let unknown = filter
            .meta_names()
            .find(|name| !RECORD_PROPERTIES.contains(name));
        if let Some(name) = unknown {
            let error = QueryError::new(ErrorCode::BadOption);
            return Err(error.with_value("records have no property", name));
        }
        let paths: Vec<Path> = filter.paths().cloned().collect();
        let scan = Plan::new(Shape::Framed, Level::Structural, &paths)
            .and_then(|scan| scan.with_bad_item(BadItem::Undefined));
        let scan = scan.map_err(|_| QueryError::new(ErrorCode::TooComplex))?;
        Ok(Self { filter, scan })
    }

    /// Returns whether a record of a topic passes the filter.
    ///
    /// # Errors
    /// `TOO_COMPLEX` with the offset of the record.
    pub fn matches(&self, topic: &str, record: &Record<'_>) -> Result<bool, QueryError> {
        let bound = Bound {
            filter: &self.filter,
            topic,
            record,
        };
        let item = item_of(record);
        // In a value above the limit of an item, all paths are undefined too.
        let found = weir_scan::scan(item, &self.scan).unwrap_or_default();
        let matched = self.filter.matches_item(item, &found, &bound);
        matched.map_err(|OutOfSteps| {
            QueryError::of_record(ErrorCode::TooComplex, topic, record.offset.0, None)
        })
    }

    /// Returns notes, as [`Plan::notes`](crate::Plan::notes) does.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.filter.notes()
    }
}

struct Bound<'a> {
    filter: &'a Filter,
    topic: &'a str,
    record: &'a Record<'a>,
}

impl Bindings for Bound<'_> {
    fn param(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.filter.bound_param(name).map(Cow::Borrowed)
    }

    fn meta(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let record = self.record;
        let number = |number: u64| Some(Cow::Owned(number.to_string().into_bytes()));
        let string = |bytes: &[u8]| {
            let mut text = Vec::new();
            json::canonical_raw(bytes, &mut text);
            Some(Cow::Owned(text))
        };
        match name {
            "topic" => string(self.topic.as_bytes()),
            "offset" => number(record.offset.0),
            "intention" | "intention_offset" => number(record.intention.0),
            "time_ms" => number(record.time_ms),
            "key" => string(record.key),
            "type" => string(RecordKind::name(record.kind).as_bytes()),
            "client_id" if !record.client.is_none() => string(record.client.to_string().as_bytes()),
            _ => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use bytes::Bytes;
    use weir_core::record::{Record, RecordFlags, RecordKind};
    use weir_core::{ClientId, ConsequenceOffset, IntentionOffset};
    use weir_scan::{BadItem, Shape, Span};

    use super::RecordFilter;
    use crate::{Bounds, Budgets, Frames, PageIn, Query, QueryText, SourceOptions, Step};

    /// Whether a query returns the value.
    fn queried(filter: &str, value: &'static [u8]) -> bool {
        let text = QueryText {
            filter: filter.to_owned(),
            on_bad_item: BadItem::Undefined,
            ..QueryText::default()
        };
        let mut query = Query::new(text.compile().unwrap().into(), Budgets::default());
        let source = query.add_source(SourceOptions {
            shape: Shape::Framed,
            ..SourceOptions::default()
        });
        let len = u32::try_from(value.len()).unwrap();
        let frames = Frames {
            spans: vec![Span { offset: 0, len }],
            ..Frames::default()
        };
        let page = PageIn {
            bytes: Bytes::from_static(value),
            frames: Some(frames),
        };
        query.enqueue(source.unwrap(), page, None).unwrap();
        matches!(query.next(Bounds::default()).unwrap(), Step::Ready(_))
    }

    #[test]
    fn the_result_is_that_of_a_query() {
        for value in [
            &b"{\"a\":1}"[..],
            b" {\"a\":1}\n",
            b"{\"a\":1} x",
            b"{\"a\":1,\"b\":\"\xff\"}",
            b"{\"a\":1",
            b"{\"a\":1,\"b\":[}]}",
            b"[{\"a\":1}]",
            b"x",
            b"",
        ] {
            let record = Record {
                offset: ConsequenceOffset(1),
                intention: IntentionOffset(1),
                term: 0,
                time_ms: 0,
                client: ClientId::NONE,
                nonce: 0,
                flags: RecordFlags::default(),
                kind: RecordKind::Put,
                key: b"k",
                value,
                meta: b"",
            };
            for text in ["@.a == 1", "!@.a", "@..a", "undefined(@.a) && !@..a"] {
                let filter = RecordFilter::new(text, &[]).unwrap();
                let passes = filter.matches("t", &record).unwrap();
                assert_eq!(
                    passes,
                    queried(text, value),
                    "{text} {}",
                    value.escape_ascii()
                );
            }
        }
    }
}
