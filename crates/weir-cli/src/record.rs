//! Records as rows.

use std::borrow::Cow;

use weir::program::script;
use weir::{Record, RecordKind, TopicOptions};

use crate::bytes::{hex, json_string};
use crate::output::{Cell, Field, Format, Shape, Style, field, wide};

/// Fields of a record.
pub(crate) const FIELDS: &[Field] = &[
    field("topic", "text", "name of the topic"),
    field(
        "offset",
        "number",
        "position of the record in the topic, from 1",
    ),
    field("time", "time", "when the record was written, RFC 3339 UTC"),
    field(
        "kind",
        "text",
        "PUT, DELETE, CREATE, ALTER, REPLACE or DESTROY",
    ),
    field(
        "key",
        "bytes",
        "the key; named `key64`, in base64, if it is not UTF-8; null: none",
    ),
    field(
        "value",
        "bytes",
        "the value as JSON; named `text` or `value64` (base64) if it is not JSON; \
         the options of an ALTER; program and arguments of a CREATE or REPLACE",
    ),
    wide(
        "intention",
        "number",
        "position of its intention in the order of the store",
    ),
    wide(
        "term",
        "number",
        "term of the leader that appended the record; 1 outside of a cluster",
    ),
    wide(
        "client",
        "text",
        "client id of the session, null: no session",
    ),
    wide(
        "nonce",
        "number",
        "number of the write in its session; 0 without a session",
    ),
    wide(
        "meta",
        "bytes",
        "metadata; named `meta64`, in base64, if it is not UTF-8; null: none",
    ),
    wide("txn", "bool", "whether the record is part of a transaction"),
    wide(
        "last",
        "bool",
        "whether the record is the last one of its intention",
    ),
];

/// The style of a table for people: time, key and value, and the topic if there are several.
/// Returns `true` if this style applies; all other styles have all columns.
pub(crate) fn short(style: &Style, several: bool) -> (Style, bool) {
    if style.columns.is_some() || style.format(Shape::Stream) != Format::Table {
        return (style.clone(), false);
    }
    let columns = ["topic", "time", "key", "value"]
        .iter()
        .skip(usize::from(!several));
    let style = Style {
        columns: Some(columns.map(|name| (*name).to_owned()).collect()),
        ..style.clone()
    };
    (style, true)
}

/// The row of a record for a table without a column for the kind. If the
/// record is not a PUT, the name of its kind precedes the value.
pub(crate) fn short_row<'a>(topic: &'a str, record: &Record<'a>) -> [Cell<'a>; 13] {
    let mut row = row(topic, record);
    if record.kind != RecordKind::Put
        && let Some(cell) = row.iter_mut().find(|cell| matches!(cell, Cell::Value(_)))
    {
        let value = value(record);
        let text = format!("{} {}", record.kind.name(), String::from_utf8_lossy(&value));
        *cell = Cell::Text(Cow::Owned(text.trim_end().to_owned()));
    }
    row
}

/// The row of a record.
pub(crate) fn row<'a>(topic: &'a str, record: &Record<'a>) -> [Cell<'a>; 13] {
    let client = (!record.client.is_none()).then(|| record.client.to_string());
    [
        Cell::Text(Cow::Borrowed(topic)),
        Cell::Count(record.offset.0),
        Cell::Time(record.time_ms),
        Cell::Text(Cow::Borrowed(record.kind.name())),
        Cell::Bytes(Cow::Borrowed(record.key)),
        Cell::Value(value(record)),
        Cell::Count(record.intention.0),
        Cell::Count(record.term),
        client.map_or(Cell::Nothing, |client| Cell::Text(Cow::Owned(client))),
        Cell::Count(record.nonce),
        Cell::Bytes(Cow::Borrowed(record.meta)),
        Cell::Flag(record.flags.txn()),
        Cell::Flag(record.flags.last()),
    ]
}

fn value<'a>(record: &Record<'a>) -> Cow<'a, [u8]> {
    match (record.kind, TopicOptions::decode(record.value)) {
        (RecordKind::Alter, Some(options)) => {
            Cow::Owned(crate::topic_options::json(&options).into_bytes())
        }
        (RecordKind::Create | RecordKind::Replace, _) => match record.value.split_at_checked(32) {
            Some((code, args)) => Cow::Owned(program(code, args).into_bytes()),
            None => Cow::Borrowed(record.value),
        },
        _ => Cow::Borrowed(record.value),
    }
}

/// Describes the program that a topic was created with, or that replaced another one.
fn program(code: &[u8], args: &[u8]) -> String {
    let code = hex(code);
    let args = json_string(&script::show(args));
    format!("{{\"sha256\":\"{code}\",\"args\":{args}}}")
}
