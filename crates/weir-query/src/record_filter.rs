//! The filter of a query, for callers that check one record at a time.
//!
//! Invariant: the result is that of a query over the record.

use std::borrow::Cow;

use weir_core::record::Record;
use weir_core::{ErrorCode, RecordKind};
use weir_scan::{Bindings, OutOfSteps};

use crate::error::QueryError;
use crate::filter::Filter;
use crate::json;
use crate::records::{RECORD_PROPERTIES, item_of};

/// A compiled `where` for records.
///
/// As in a query with `on_bad_item` `Undefined`, all paths are undefined in a value that is
/// not JSON, and in a record without a value.
#[derive(Clone, Debug)]
pub struct RecordFilter(Filter);

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
        Ok(Self(filter))
    }

    /// Returns whether a record of a topic passes the filter.
    ///
    /// # Errors
    /// `TOO_COMPLEX` with the offset of the record.
    pub fn matches(&self, topic: &str, record: &Record<'_>) -> Result<bool, QueryError> {
        let bound = Bound {
            filter: &self.0,
            topic,
            record,
        };
        let matched = self.0.matches_item(item_of(record), &bound);
        matched.map_err(|OutOfSteps| {
            QueryError::of_record(ErrorCode::TooComplex, topic, record.offset.0, None)
        })
    }

    /// Returns notes, as [`Plan::notes`](crate::Plan::notes) does.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.0.notes()
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
