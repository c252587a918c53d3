//! Records of topics as framed items: the spans of their values, and the properties that a
//! query reads.
//!
//! Invariant: no value is read.

use weir_scan::Span;

use crate::error::QueryError;
use crate::input::{Frames, Meta};
use crate::plan::Plan;
use weir_core::ClientId;
use weir_core::error_code::ErrorCode;
use weir_core::exact::to_u32;
use weir_core::record::{Record, RecordKind};

/// Names of the properties of records, as in `meta.NAME`. `intention_offset` is another
/// name for `intention`.
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
    /// Equal for all records of a source: the name of the source.
    Topic,
    Offset,
    Intention,
    Time,
    Key,
    Type,
    /// In hexadecimal digits, as in HTTP; undefined without a session.
    Client,
}

/// The properties that a query reads, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties(Vec<Property>);

impl Properties {
    /// Returns the properties of a compiled query.
    ///
    /// # Errors
    /// `BAD_OPTION` with the first property that records do not have.
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
                    return Err(error.with_value("records have no property", name));
                }
            })
        });
        known.collect::<Result<_, _>>().map(Self)
    }

    /// Adds a record with the spans of its value and its key. `start` is the continuation
    /// of a page that would begin with the record.
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

    /// Removes all records from index `records` on.
    pub fn truncate(&self, frames: &mut Frames, records: usize) {
        frames.spans.truncate(records);
        frames.starts.truncate(records);
        frames.meta.truncate(records * self.0.len());
    }
}

/// Appends the text of a client id, unless the record before has an equal id: then returns
/// the span of its text.
fn append_client(client: ClientId, texts: &mut Vec<u8>) -> Span {
    let text = client.to_string();
    if !texts.ends_with(text.as_bytes()) {
        texts.extend_from_slice(text.as_bytes());
    }
    Span {
        offset: to_u32(texts.len() - text.len(), "ids are shorter than their page"),
        len: to_u32(text.len(), "an id is short"),
    }
}

/// Returns the item of a record: its value if the record is a PUT, else no bytes.
#[must_use]
pub fn item_of<'a>(record: &Record<'a>) -> &'a [u8] {
    match record.kind {
        RecordKind::Put => record.value,
        _ => &[],
    }
}

/// Returns the span of a part of a page.
///
/// # Panics
/// If the part is outside of the page.
#[must_use]
pub fn span_in(page: &[u8], part: &[u8]) -> Span {
    if part.is_empty() {
        return Span::default();
    }
    let offset = part.as_ptr().addr().wrapping_sub(page.as_ptr().addr());
    let end = offset.checked_add(part.len());
    assert!(
        end.is_some_and(|end| end <= page.len()),
        "a span is inside its page (I8)"
    );
    Span {
        offset: to_u32(offset, "a page is shorter than 4 GiB"),
        len: to_u32(part.len(), "a page is shorter than 4 GiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Span, span_in};

    #[test]
    fn a_span_has_the_position_of_its_part() {
        let page = b"0123456789";
        let at = |offset, len| Span { offset, len };
        assert_eq!(span_in(page, &page[..]), at(0, 10));
        assert_eq!(span_in(page, &page[3..5]), at(3, 2));
        assert_eq!(span_in(page, &page[10..]), at(0, 0));
    }

    // I8.
    #[test]
    #[should_panic = "a span is inside its page"]
    fn a_part_of_other_memory_has_no_span() {
        let page = b"0123456789";
        assert_eq!(span_in(&page[..9], &page[8..]), Span::default());
    }
}
