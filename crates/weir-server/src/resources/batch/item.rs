//! One item of a batch: parses its text into a write.
//!
//! Invariants:
//! - A payload is parsed only as far as a check needs.
//! - An unknown field is an error.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use weir_core::TxnOp;

use crate::http::problem::Problem;
use crate::http::{base64, json};
use crate::resources::bounded::{ConditionValue, Members};
use crate::resources::cloudevents;
use crate::resources::condition::Condition;
use crate::resources::framing::Framing;
use crate::resources::meta::{MetaWriter, typed};

/// The form of the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Each item is a value.
    Values,
    /// Each item is a write with key, metadata and conditions.
    Records,
}

/// Memory of an item beside its texts: also of the allocation of its value.
const ITEM_BYTES: usize = size_of::<Item>() + 32;

/// The problem of a request that cannot be parsed.
pub(super) fn bad(what: impl Into<String>) -> Problem {
    Problem::bad(what)
}

/// One write of a batch.
#[derive(Debug, Default)]
pub(super) struct Item {
    pub(super) delete: bool,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) meta: Vec<u8>,
    pub(super) expect: Vec<Condition>,
    /// Its position in the body.
    pub(super) position: Position,
}

impl Item {
    /// Bytes of memory of the item.
    pub(super) fn memory(&self) -> usize {
        let texts = self.key.len() + self.value.len() + self.meta.len();
        ITEM_BYTES + texts + size_of_val(self.expect.as_slice())
    }
}

/// The position of an item in the body of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// Number of the item, from 1.
    pub(super) line: u64,
    /// Index of its first byte.
    pub(super) byte: u64,
}

impl Position {
    /// Adds the position to the problem of an item.
    pub(super) fn add_to(self, problem: Problem) -> Problem {
        problem.number("line", self.line).number("byte", self.byte)
    }
}

impl Item {
    /// Converts the item to an operation of a transaction.
    pub(super) fn operation(&self) -> TxnOp<'_> {
        let (key, meta) = (&self.key, &self.meta);
        if self.delete {
            return TxnOp::Delete { key, meta };
        }
        let value = &self.value;
        TxnOp::Put { key, value, meta }
    }
}

/// An item in mode `records`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordItem<'a> {
    op: Option<Cow<'a, str>>,
    key: Option<Cow<'a, str>>,
    key64: Option<Cow<'a, str>>,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    text: Option<Cow<'a, str>>,
    value64: Option<Cow<'a, str>>,
    #[serde(borrow)]
    meta: Option<Members<'a, Cow<'a, str>>>,
    #[serde(borrow)]
    expect: Option<Members<'a, ConditionValue<'a>>>,
}

pub(super) fn read_record(source: &str) -> Result<Item, Problem> {
    let record: RecordItem<'_> = serde_json::from_str(source)
        .map_err(|error| bad(format!("the item is malformed: {error}")))?;
    let decode = |text: &str, what: &str| {
        base64::decode(text).ok_or_else(|| bad(format!("{what} is not base64")))
    };
    let mut item = Item {
        key: match (record.key, record.key64) {
            (Some(_), Some(_)) => return Err(bad("the item has both key and key64")),
            (Some(key), None) => key.as_bytes().to_vec(),
            (None, Some(coded)) => decode(&coded, "key64")?,
            (None, None) => Vec::new(),
        },
        ..Item::default()
    };
    item.delete = match record.op.as_deref() {
        None | Some("put" | "PUT") => false,
        Some("delete" | "DELETE") => true,
        Some(_) => return Err(bad("op must be put or delete")),
    };
    let mut meta = MetaWriter::default();
    match (record.value, record.text, record.value64) {
        (None, None, None) if item.delete => {}
        (Some(raw), None, None) if !item.delete => {
            item.value = raw.get().as_bytes().to_vec();
            if record
                .meta
                .as_ref()
                .is_none_or(|meta| !meta.0.contains_key("content-type"))
            {
                meta.json();
            }
        }
        (None, Some(text), None) if !item.delete => {
            item.value = text.as_bytes().to_vec();
            if record
                .meta
                .as_ref()
                .is_none_or(|meta| !meta.0.contains_key("content-type"))
            {
                meta.field("content-type", "text/plain; charset=utf-8")?;
            }
        }
        (None, None, Some(coded)) if !item.delete => {
            item.value = decode(&coded, "value64")?;
        }
        (None, None, None) => return Err(bad("the item needs value, text or value64")),
        _ => {
            return Err(bad(
                "a put needs one of value, text and value64; a delete must have none of them",
            ));
        }
    }
    for (name, value) in record.meta.iter().flat_map(|meta| &meta.0) {
        if name == "content-type" {
            typed(Some(value), &item.value, &mut meta)?;
        } else if !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        {
            meta.field(name, value)?;
        } else {
            return Err(bad(
                "a name in meta must consist of lower-case letters, digits and hyphens",
            ));
        }
    }
    item.meta = meta.build()?;
    let expect = record.expect.iter().flat_map(|expect| &expect.0);
    item.expect = read_expect(expect)?;
    Ok(item)
}

/// Parses conditions such as `{"key-offset":7,"key-absent":true}`.
pub(super) fn read_expect<'a>(
    expect: impl Iterator<Item = (&'a Cow<'a, str>, &'a ConditionValue<'a>)>,
) -> Result<Vec<Condition>, Problem> {
    let mut conditions = Vec::new();
    for (name, value) in expect {
        let name = name.replace('_', "-");
        let condition = match value {
            ConditionValue::Flag(true) => Condition::read(&name, None),
            ConditionValue::Number(number) => Condition::read(&name, Some(&number.to_string())),
            ConditionValue::Flag(false) | ConditionValue::Text(_) => None,
        };
        conditions.push(
            condition
                .ok_or_else(|| bad(format!("the condition {name:?} is unknown or malformed")))?,
        );
    }
    Ok(conditions)
}

/// Parses items one by one.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) framing: Framing,
    pub(super) mode: Mode,
    pub(super) key: Vec<u8>,
    pub(super) value_max: usize,
}

impl Reader {
    /// Parses the item at this position.
    pub(super) fn read(&self, source: &[u8], position: Position) -> Result<Item, Problem> {
        let item = self.parse(source);
        item.map(|item| Item { position, ..item })
            .map_err(|problem| position.add_to(problem))
    }

    fn parse(&self, source: &[u8]) -> Result<Item, Problem> {
        if source.len() > self.value_max.saturating_mul(2) + (64 << 10) {
            return Err(Problem::too_large("an item", self.value_max));
        }
        let text = std::str::from_utf8(source);
        if self.framing == Framing::Events {
            let event = cloudevents::read(text.map_err(|_| bad("the event is not UTF-8"))?)?;
            let key = if event.key.is_empty() {
                self.key.clone()
            } else {
                event.key
            };
            return Ok(Item {
                key,
                meta: event.meta,
                value: event.value.into_owned(),
                ..Item::default()
            });
        }
        if self.mode == Mode::Records {
            let mut item = read_record(text.map_err(|_| bad("the item is not UTF-8"))?)?;
            if item.key.is_empty() {
                item.key.clone_from(&self.key);
            }
            return Ok(item);
        }
        if let Some(at) = json::check(source) {
            return Err(bad("the item is not JSON").number("column", at as u64 + 1));
        }
        Ok(Item {
            key: self.key.clone(),
            value: source.trim_ascii().to_vec(),
            meta: b"json".to_vec(),
            ..Item::default()
        })
    }
}
