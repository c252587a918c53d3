//! Records of topics as framed items: where their values lie, and the
//! properties that a query asks for.
//!
//! Invariant: no value is read.

use weir_scan::Span;

use crate::error::QueryError;
use crate::input::{Frames, Meta};
use crate::plan::Plan;
use weir_core::ClientId;
use weir_core::error_code::ErrorCode;
use weir_core::record::{Record, RecordKind};

/// Names of the properties of records, as in `meta.NAME`. `intention_offset` is
/// another name of `intention`.
pub const RECORD_PROPERTIES: &[&str] = &[
    "topic",
    "offset",
    "intention",
    "intention_offset",
    "time_ms",
    "key",
    "type",
    "client_id",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Property {
    /// Equal for all records of a source, which names it.
    Topic,
    Offset,
    Intention,
    Time,
    Key,
    Type,
    /// As HTTP shows it, in hexadecimal digits; none without a session.
    Client,
}

/// The properties that a query asks for, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties(Vec<Property>);

impl Properties {
    /// Those of a compiled query.
    ///
    /// # Errors
    /// `BAD_OPTION` with the first that records do not have.
    pub fn of(plan: &Plan) -> Result<Self, QueryError> {
        let known = plan.meta_names().map(|name| {
            Ok(match name {
                "topic" => Property::Topic,
                "offset" => Property::Offset,
                "intention" | "intention_offset" => Property::Intention,
                "time_ms" => Property::Time,
                "key" => Property::Key,
                "type" => Property::Type,
                "client_id" => Property::Client,
                _ => {
                    let error = QueryError::new(ErrorCode::BadOption);
                    return Err(error.given("records have no property", name));
                }
            })
        });
        known.collect::<Result<_, _>>().map(Self)
    }

    /// Adds a record whose value and key lie there. `start` names a page that
    /// would begin with it.
    pub fn push(&self, record: &Record<'_>, value: Span, key: Span, start: Meta, out: &mut Frames) {
        out.spans.push(value);
        out.starts.push(start);
        let texts = &mut out.texts;
        out.meta
            .extend(self.0.iter().map(|property| match property {
                Property::Topic => Meta::Nothing,
                Property::Offset => Meta::Number(record.offset.0),
                Property::Intention => Meta::Number(record.intention.0),
                Property::Time => Meta::Number(record.time_ms),
                Property::Key => Meta::Bytes(key),
                Property::Type => Meta::Kind(record.kind),
                Property::Client if record.client.is_none() => Meta::Nothing,
                Property::Client => Meta::Text(append_client(record.client, texts)),
            }));
    }

    /// Takes away all records from this one on.
    pub fn truncate(&self, frames: &mut Frames, records: usize) {
        frames.spans.truncate(records);
        frames.starts.truncate(records);
        frames.meta.truncate(records * self.0.len());
    }
}

/// The text of a client id, after others; that of the record before is used again.
fn append_client(client: ClientId, texts: &mut Vec<u8>) -> Span {
    let text = client.to_string();
    if !texts.ends_with(text.as_bytes()) {
        texts.extend_from_slice(text.as_bytes());
    }
    Span {
        offset: u32::try_from(texts.len() - text.len()).unwrap_or(u32::MAX),
        len: u32::try_from(text.len()).unwrap_or(0),
    }
}

/// What of a record is an item: its value if it is a PUT.
#[must_use]
pub fn item_of<'a>(record: &Record<'a>) -> &'a [u8] {
    match record.kind {
        RecordKind::Put => record.value,
        _ => &[],
    }
}

/// Where a part of a page lies in it. Parts that are not inside give a span
/// that is not either, and is read as nothing (I8).
#[must_use]
pub fn span_in(page: &[u8], part: &[u8]) -> Span {
    if part.is_empty() {
        return Span::default();
    }
    let offset = part.as_ptr().addr().wrapping_sub(page.as_ptr().addr());
    Span {
        offset: u32::try_from(offset).unwrap_or(u32::MAX),
        len: u32::try_from(part.len()).unwrap_or(0),
    }
}
