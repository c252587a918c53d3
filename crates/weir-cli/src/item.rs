//! Writes as JSON objects: the lines of `put --format jsonl`, of `txn`, and of the output of
//! `export`.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use weir::{ErrorCode, Expect, Intention, Operation, TxnOp};

use crate::bytes;
use crate::report::Failure;

/// A write as an object. Fields that `export` and `tail` print but a write does not use are
/// ignored. All other unknown fields are errors.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Item<'a> {
    #[serde(borrow, default)]
    key: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    key64: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "raw")]
    value: Option<&'a RawValue>,
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    value64: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    meta: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    meta64: Option<Cow<'a, str>>,
    #[serde(default)]
    delete: bool,
    #[serde(borrow, default)]
    kind: Option<Cow<'a, str>>,
    #[serde(default)]
    expect: Expectations,
    #[serde(borrow, default, rename = "topic")]
    _topic: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "offset")]
    _offset: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "time")]
    _time: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "intention")]
    _intention: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "term")]
    _term: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "client")]
    _client: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "nonce")]
    _nonce: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "txn")]
    _txn: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "last")]
    _last: Option<&'a RawValue>,
}

/// `null` is a value too, so it must not become a missing value.
fn raw<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// Conditions as an object.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectations {
    #[serde(default)]
    offset: Option<u64>,
    #[serde(default)]
    absent: bool,
    #[serde(default)]
    present: bool,
    #[serde(default)]
    topic_offset: Option<u64>,
    #[serde(default)]
    topic_empty: bool,
}

/// The operation of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Put,
    Delete,
    /// Conditions only.
    Nothing,
}

/// An error in a text, with its position.
#[derive(Debug)]
pub(crate) struct ParseError {
    /// Line of the text, from 1.
    line: u64,
    /// Column in that line, from 1.
    column: u64,
    /// What is wrong.
    pub(crate) why: String,
}

impl ParseError {
    /// Converts an error of the JSON parser.
    pub(crate) fn json(error: &serde_json::Error) -> Self {
        let text = error.to_string();
        Self {
            line: error.line() as u64,
            column: error.column() as u64,
            why: text.split(" at line ").next().unwrap_or(&text).to_owned(),
        }
    }

    /// Line and column in the input, for a text that begins at `line` and `column` of the input.
    pub(crate) fn position_in_input(&self, line: u64, column: u64) -> (u64, u64) {
        match self.line {
            0 | 1 => (line, column + self.column.saturating_sub(1)),
            below => (line + below - 1, self.column),
        }
    }
}

impl From<String> for ParseError {
    fn from(why: String) -> Self {
        let (line, column) = (1, 1);
        Self { line, column, why }
    }
}

/// Many writes, with their bytes in one buffer.
#[derive(Debug, Default)]
pub(crate) struct Items {
    bytes: Vec<u8>,
    parts: Vec<Part>,
    expect: Vec<Expected>,
}

#[derive(Debug)]
struct Part {
    kind: Kind,
    /// Ends of key, value and metadata in the buffer. Each part starts at the end of the previous
    /// one.
    start: usize,
    key: usize,
    value: usize,
    meta: usize,
    /// Index of its first condition.
    expect: usize,
}

#[derive(Clone, Copy, Debug)]
enum Expected {
    Offset(u64),
    Absent,
    Present,
    TopicOffset(u64),
    TopicEmpty,
}

impl<'a> Item<'a> {
    /// Parses an object.
    pub(crate) fn parse(text: &'a [u8]) -> Result<Self, ParseError> {
        serde_json::from_slice(text).map_err(|error| ParseError::json(&error))
    }

    fn kind(&self) -> Result<Kind, String> {
        let values = [
            self.value.is_some(),
            self.text.is_some(),
            self.value64.is_some(),
        ];
        let values = values.into_iter().filter(|is_set| *is_set).count();
        let delete = match self.kind.as_deref() {
            None => self.delete,
            Some("PUT") => false,
            Some("DELETE") => true,
            Some(kind) => return Err(format!("{kind} is not a kind of write")),
        };
        match (delete, values) {
            // `tail` and `export` print a DELETE with an empty text.
            (true, 0) => Ok(Kind::Delete),
            (true, _) if self.text.as_deref() == Some("") => Ok(Kind::Delete),
            (true, _) => Err("a delete has no value".to_owned()),
            (false, 1) => Ok(Kind::Put),
            (false, 0) if self.kind.is_none() => Ok(Kind::Nothing),
            (false, 0) => Err("there is no value".to_owned()),
            (false, _) => Err("give one of value, text and value64".to_owned()),
        }
    }

    fn value(&self) -> Option<Cow<'_, [u8]>> {
        match self.value {
            Some(raw) => Some(Cow::Borrowed(raw.get().as_bytes())),
            None => bytes::decode_json_field(self.text.as_deref(), self.value64.as_deref()),
        }
    }
}

impl Items {
    /// Number of writes.
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether there are no writes.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Bytes of keys, values and metadata.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Removes all writes, and retains the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.parts.clear();
        self.expect.clear();
    }

    /// Adds a put.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], meta: &[u8]) {
        self.push(Kind::Put, key, value, meta);
    }

    /// Adds the write of a line. The error is the reason why it is invalid.
    pub(crate) fn item(&mut self, item: &Item<'_>) -> Result<(), String> {
        let kind = item.kind()?;
        let bad = |name: &str| format!("{name}64 is not base64, or is given together with {name}");
        let key = bytes::decode_json_field(item.key.as_deref(), item.key64.as_deref());
        let key = key.ok_or_else(|| bad("key"))?;
        if key.is_empty() && (item.key.is_some() || item.key64.is_some()) {
            return Err("the key is empty; omit it for a record without key".to_owned());
        }
        let meta = bytes::decode_json_field(item.meta.as_deref(), item.meta64.as_deref());
        let meta = meta.ok_or_else(|| bad("meta"))?;
        let value = item.value().ok_or_else(|| bad("value"))?;
        if kind == Kind::Delete && key.is_empty() {
            return Err("a delete needs a key".to_owned());
        }
        self.push(kind, &key, &value, &meta);
        let expect = &item.expect;
        self.expect.extend(expect.offset.map(Expected::Offset));
        self.expect
            .extend(expect.absent.then_some(Expected::Absent));
        self.expect
            .extend(expect.present.then_some(Expected::Present));
        self.expect
            .extend(expect.topic_offset.map(Expected::TopicOffset));
        self.expect
            .extend(expect.topic_empty.then_some(Expected::TopicEmpty));
        Ok(())
    }

    fn push(&mut self, kind: Kind, key: &[u8], value: &[u8], meta: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let key = self.bytes.len();
        self.bytes.extend_from_slice(value);
        let value = self.bytes.len();
        self.bytes.extend_from_slice(meta);
        self.parts.push(Part {
            kind,
            start,
            key,
            value,
            meta: self.bytes.len(),
            expect: self.expect.len(),
        });
    }

    fn slices(&self, part: &Part) -> (&[u8], &[u8], &[u8]) {
        let slice = |from, to| self.bytes.get(from..to).unwrap_or_default();
        (
            slice(part.start, part.key),
            slice(part.key, part.value),
            slice(part.value, part.meta),
        )
    }

    /// The conditions of all writes as one list. `own`: a condition without a key refers to the key
    /// of its intention; otherwise each condition names the key of its write.
    pub(crate) fn conditions(&self, own: bool) -> Vec<Expect<'_>> {
        let mut all = Vec::with_capacity(self.expect.len());
        for (at, part) in self.parts.iter().enumerate() {
            let (key, ..) = self.slices(part);
            let key = (!own).then_some(key);
            all.extend(self.expected(at).iter().map(|expected| match *expected {
                Expected::Offset(n) => Expect::KeyOffset(key, n),
                Expected::Absent => Expect::KeyAbsent(key),
                Expected::Present => Expect::KeyPresent(key),
                Expected::TopicOffset(n) => Expect::TopicOffset(n),
                Expected::TopicEmpty => Expect::TopicEmpty,
            }));
        }
        all
    }

    fn expected(&self, at: usize) -> &[Expected] {
        let from = self.parts.get(at).map_or(0, |part| part.expect);
        let to = self
            .parts
            .get(at + 1)
            .map_or(self.expect.len(), |part| part.expect);
        self.expect.get(from..to).unwrap_or_default()
    }

    /// The writes as intentions. `conditions` is the result of [`conditions`](Self::conditions)
    /// with `own`.
    pub(crate) fn intentions<'a>(
        &'a self,
        topic: &'a str,
        conditions: &'a [Expect<'a>],
    ) -> Vec<Intention<'a>> {
        let intention = |(at, part): (usize, &'a Part)| {
            let (key, value, meta) = self.slices(part);
            let operation = match part.kind {
                Kind::Delete => Operation::Delete { key },
                Kind::Put | Kind::Nothing => Operation::Put { key, value },
            };
            let from = part.expect;
            let own = conditions.get(from..from + self.expected(at).len());
            let mut intention = Intention::new(topic, operation);
            intention.expect = own.unwrap_or_default();
            intention.meta = meta;
            intention
        };
        self.parts.iter().enumerate().map(intention).collect()
    }

    /// The writes as steps of a transaction.
    pub(crate) fn steps(&self) -> Vec<TxnOp<'_>> {
        let step = |part: &Part| {
            let (key, value, meta) = self.slices(part);
            match part.kind {
                Kind::Put => Some(TxnOp::Put { key, value, meta }),
                Kind::Delete => Some(TxnOp::Delete { key, meta }),
                Kind::Nothing => None,
            }
        };
        self.parts.iter().filter_map(step).collect()
    }

    /// Whether there are conditions.
    pub(crate) fn has_conditions(&self) -> bool {
        !self.expect.is_empty()
    }

    /// Bytes of key, value and metadata of the newest write.
    pub(crate) fn last_sizes(&self) -> [usize; 3] {
        self.parts.last().map_or([0; 3], |part| {
            let (key, value, meta) = self.slices(part);
            [key.len(), value.len(), meta.len()]
        })
    }

    /// Whether the newest line writes nothing. It may have conditions.
    pub(crate) fn last_is_nothing(&self) -> bool {
        self.parts
            .last()
            .is_some_and(|part| part.kind == Kind::Nothing)
    }
}

/// The failure for an unusable line or item of the input, which has the name `input`.
pub(crate) fn bad_line(input: &str, line: u64, column: u64, why: &str) -> Failure {
    let what = format!("line {line} column {column} of {input} cannot be used");
    Failure::new(ErrorCode::BadLine, what).because(why)
}

/// The failure for a line of the input that is not a valid object. `then` describes the result of
/// the other lines.
pub(crate) fn bad_text(line: u64, error: &ParseError, then: &str) -> Failure {
    let (line, column) = error.position_in_input(line, 1);
    bad_line("the input", line, column, &error.why).advise(format!("correct it there; {then}"))
}
