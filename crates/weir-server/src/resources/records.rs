//! Lists of records in several formats.
//!
//! A JSON payload is inserted unchanged, except for line ends in a line format. There a raw line
//! end can only be white space, and becomes a space.

use weir_core::{Record, RecordKind};

use super::cloudevents;
use super::meta::{Meta, Shape, shape};
use crate::http::base64;
use crate::http::json::Object;
use crate::http::problem::Problem;
use crate::limits::budget::Reservation;

/// The format of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One JSON array.
    Json,
    /// One object per line.
    Lines,
    /// Objects, each after a record separator (RFC 7464).
    Sequence,
    /// An array of `CloudEvents`.
    Events,
}

impl Form {
    /// The formats by media type, the default first.
    pub(crate) const OFFERS: &'static [(&'static str, Self)] = &[
        ("application/json", Self::Json),
        ("application/x-ndjson", Self::Lines),
        ("application/jsonl", Self::Lines),
        ("application/json-seq", Self::Sequence),
        ("application/cloudevents-batch+json", Self::Events),
    ];

    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Lines => "application/x-ndjson",
            Self::Sequence => "application/json-seq",
            Self::Events => "application/cloudevents-batch+json",
        }
    }

    /// A letter in entity tags that distinguishes the formats.
    pub(crate) const fn letter(self) -> char {
        match self {
            Self::Json => 'j',
            Self::Lines => 'n',
            Self::Sequence => 's',
            Self::Events => 'c',
        }
    }
}

/// The members of a record object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fields(u16);

const NAMES: [&str; 11] = [
    "offset",
    "intention",
    "time",
    "type",
    "key",
    "value",
    "last",
    "meta",
    "client",
    "nonce",
    "term",
];
/// The first eight members.
const DEFAULT_FIELDS: u16 = 0xff;

impl Default for Fields {
    fn default() -> Self {
        Self(DEFAULT_FIELDS)
    }
}

impl Fields {
    /// Parses a list of names.
    pub(crate) fn read(text: &str) -> Result<Self, Problem> {
        let mut bits = 0;
        for name in text.split(',') {
            let at = NAMES.iter().position(|field| *field == name);
            let at = at.ok_or_else(|| {
                Problem::bad(format!("fields must be a list of: {}", NAMES.join(", ")))
            })?;
            bits |= 1 << at;
        }
        Ok(Self(bits))
    }

    fn has(self, at: u16) -> bool {
        self.0 & (1 << at) != 0
    }
}

/// Bytes at the end of a list.
const END_BYTES: usize = 2;

/// Result of adding a record to a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    Added,
    /// No memory is free for the record; the list ends before it.
    Full,
    /// The record would be the first one, and this many bytes must be reserved before.
    NeedsMemory(usize),
}

/// Bytes that a record usually needs in a list, as text or in base64.
fn rendered_bytes(record: &Record<'_>) -> usize {
    const MEMBERS_BYTES: usize = 512;
    let bytes = record.key.len() + record.value.len() + record.meta.len();
    MEMBERS_BYTES + bytes / 3 * 4
}

/// Writes a list.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) form: Form,
    pub(crate) fields: Fields,
    /// Whether numbers are written as strings.
    pub(crate) numbers_as_text: bool,
    pub(crate) out: Vec<u8>,
    pub(crate) count: u64,
    /// Whether the format changed a payload.
    pub(crate) reframed: bool,
}

impl Writer {
    pub(crate) fn new(form: Form) -> Self {
        let out = if matches!(form, Form::Json | Form::Events) {
            b"[".to_vec()
        } else {
            Vec::new()
        };
        Self {
            form,
            fields: Fields::default(),
            numbers_as_text: false,
            out,
            count: 0,
            reframed: false,
        }
    }

    /// Returns an empty writer with the same settings.
    pub(crate) fn emptied(&self) -> Self {
        Self {
            fields: self.fields,
            numbers_as_text: self.numbers_as_text,
            ..Self::new(self.form)
        }
    }

    /// Starts an element.
    fn start_element(&mut self) {
        match self.form {
            Form::Json | Form::Events if self.count > 0 => self.out.extend_from_slice(b",\n"),
            Form::Sequence => self.out.push(0x1e),
            _ => {}
        }
    }

    fn end_element(&mut self) {
        if matches!(self.form, Form::Lines | Form::Sequence) {
            self.out.push(b'\n');
        }
        self.count += 1;
    }

    /// Adds a record.
    pub(crate) fn record(&mut self, topic: &str, record: &Record<'_>) {
        self.start_element();
        if self.form == Form::Events {
            cloudevents::write(topic, record, &mut self.out);
        } else {
            let lines = self.form == Form::Lines;
            self.reframed |= object(
                record,
                self.fields,
                self.numbers_as_text,
                lines,
                &mut self.out,
            );
        }
        self.end_element();
    }

    /// Adds a record if the reservation covers it, or can be extended.
    pub(crate) fn fit(
        &mut self,
        topic: &str,
        record: &Record<'_>,
        reservation: &mut Reservation,
    ) -> Fit {
        let (size, reframed) = (self.out.len(), self.reframed);
        let no_memory = |writer: &Self, bytes| match writer.count {
            0 => Fit::NeedsMemory(bytes),
            _ => Fit::Full,
        };
        let needed = size + topic.len() + rendered_bytes(record) + END_BYTES;
        if needed > self.out.capacity() {
            // Doubles the capacity so that it grows rarely, or only as far as needed.
            let doubled = needed.max(self.out.capacity() * 2);
            let Some(capacity) = [doubled, needed]
                .into_iter()
                .find(|capacity| reservation.try_cover(*capacity))
            else {
                return no_memory(self, needed);
            };
            self.out.reserve_exact(capacity - size);
        }
        self.record(topic, record);
        // Texts with many escapes need more memory.
        if reservation.try_cover(self.out.capacity()) {
            return Fit::Added;
        }
        let bytes = self.out.capacity();
        self.out.truncate(size);
        self.count -= 1;
        self.reframed = reframed;
        no_memory(self, bytes)
    }

    /// Adds a key without its value.
    pub(crate) fn key(&mut self, key: &[u8], offset: u64) {
        self.start_element();
        let mut object = Object::new(&mut self.out);
        put_key(&mut object, key);
        object.number("offset", offset);
        object.end();
        self.end_element();
    }

    /// Returns the finished list.
    pub(crate) fn end(mut self) -> Vec<u8> {
        if matches!(self.form, Form::Json | Form::Events) {
            self.out.extend_from_slice(b"]\n");
        }
        self.out
    }
}

fn put_key(object: &mut Object<'_>, key: &[u8]) {
    match std::str::from_utf8(key) {
        Ok(text) => object.text("key", text),
        Err(_) => object.base64("key64", key),
    };
}

/// Writes a record as an object; with `line`, without raw line ends. Returns whether this changed
/// the payload.
pub(crate) fn object(
    record: &Record<'_>,
    fields: Fields,
    numbers_as_text: bool,
    line: bool,
    out: &mut Vec<u8>,
) -> bool {
    let mut object = Object::new(out);
    let reframed = members(record, fields, numbers_as_text, line, &mut object);
    object.end();
    reframed
}

/// As `object`, but into an object that also has other members.
pub(crate) fn members(
    record: &Record<'_>,
    fields: Fields,
    numbers_as_text: bool,
    line: bool,
    object: &mut Object<'_>,
) -> bool {
    let mut reframed = false;
    let number = |object: &mut Object<'_>, name: &str, value: u64| {
        if numbers_as_text {
            object.text(name, &value.to_string());
        } else {
            object.number(name, value);
        }
    };
    for (at, value) in [
        (0, record.offset.0),
        (1, record.intention.0),
        (2, record.time_ms),
    ] {
        if fields.has(at) {
            number(object, NAMES.get(usize::from(at)).unwrap_or(&""), value);
        }
    }
    if fields.has(3) {
        object.text("type", record.kind.name());
    }
    if fields.has(4) && !record.key.is_empty() {
        put_key(object, record.key);
    }
    let meta = Meta::fields(record.meta);
    if fields.has(5) {
        reframed = put_value(object, record, line);
    }
    if fields.has(6) {
        object.flag("last", record.flags.last());
    }
    if fields.has(7) {
        meta.describe(record.meta, object);
    }
    if fields.has(8) && !record.client.is_none() {
        object.text("client", &record.client.to_string());
    }
    if fields.has(9) && record.nonce != 0 {
        number(object, "nonce", record.nonce);
    }
    if fields.has(10) {
        number(object, "term", record.term);
    }
    reframed
}

fn put_value(object: &mut Object<'_>, record: &Record<'_>, line: bool) -> bool {
    if record.kind != RecordKind::Put {
        if !record.value.is_empty() {
            object.base64("value64", record.value);
        }
        return false;
    }
    let meta = Meta::of(record.meta, record.value);
    match (
        shape(&meta, record.value),
        std::str::from_utf8(record.value),
    ) {
        (Shape::Json, _) => {
            let out = object.member("value");
            let from = out.len();
            out.extend_from_slice(record.value);
            if !line {
                return false;
            }
            let mut changed = false;
            for byte in out
                .iter_mut()
                .skip(from)
                .filter(|byte| matches!(byte, b'\n' | b'\r'))
            {
                *byte = b' ';
                changed = true;
            }
            return changed;
        }
        (Shape::Text, Ok(text)) => object.text("text", text),
        _ => object.base64("value64", record.value),
    };
    false
}

/// Returns a key as a header field: unchanged, or in base64.
pub(crate) fn key_field(key: &[u8]) -> (&'static str, String) {
    let plain = |byte: &u8| (0x21..0x7f).contains(byte);
    if key.iter().all(plain)
        && let Ok(text) = std::str::from_utf8(key)
    {
        return ("weir-key", text.to_owned());
    }
    let mut out = Vec::new();
    base64::encode(key, &mut out);
    ("weir-key-b64", String::from_utf8(out).unwrap_or_default())
}
