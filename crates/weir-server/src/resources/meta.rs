//! Metadata that the edge stores with a payload: its media type, CloudEvents attributes, and its
//! trace.
//!
//! The metadata of a record is text, one item per line. The line `json` flags a payload that the
//! writer found to be JSON; its type is `application/json` unless another line has the type. Readers
//! check the payload again, because other writers can set the flag too. Other lines are
//! `name: value`, where the name is that of a header field (docs/formats/meta.md). Metadata of other
//! writers is left unchanged.

use weir_core::limits::META_BYTES_MAX;

use crate::http::head::{FieldName, Head};
use crate::http::json::{self, Object};
use crate::http::problem::{Kind, Problem};

/// The line that flags a payload as JSON.
const JSON: &str = "json";

/// Parsed metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta<'a> {
    /// Whether the payload is flagged as JSON, and is JSON.
    pub(crate) json: bool,
    /// All lines with a name.
    pub(crate) fields: Vec<(&'a str, &'a str)>,
    /// Whether the metadata has another form and is opaque.
    pub(crate) foreign: bool,
}

impl<'a> Meta<'a> {
    /// Parses the metadata of a payload. Other writers of the store can flag any payload, so the
    /// flag counts only if the payload is one JSON value.
    pub(crate) fn of(bytes: &'a [u8], value: &[u8]) -> Self {
        let (mut meta, flagged) = Self::parse(bytes);
        meta.json = flagged && json::check(value).is_none();
        meta
    }

    /// As `of`, without the flag, for callers that do not use the type of the payload.
    pub(crate) fn fields(bytes: &'a [u8]) -> Self {
        Self::parse(bytes).0
    }

    /// Parses metadata, and returns whether it flags the payload as JSON.
    fn parse(bytes: &'a [u8]) -> (Self, bool) {
        let foreign = Self {
            foreign: true,
            ..Self::default()
        };
        let Ok(text) = std::str::from_utf8(bytes) else {
            return (foreign, false);
        };
        let mut flagged = false;
        let mut meta = Self::default();
        for line in text.split('\n').filter(|line| !line.is_empty()) {
            match line.split_once(": ") {
                None if line == JSON => flagged = true,
                Some((name, value)) if is_name(name) => meta.fields.push((name, value)),
                _ => return (foreign, false),
            }
        }
        (meta, flagged)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        let field = self.fields.iter().find(|(field, _)| *field == name)?;
        Some(field.1)
    }

    /// Media type of the payload, if it is known.
    pub(crate) fn media_type(&self) -> Option<&'a str> {
        self.get("content-type")
            .or(self.json.then_some("application/json"))
    }

    /// Adds the member `meta` to a record, if it has metadata to report.
    pub(crate) fn describe(&self, bytes: &[u8], object: &mut Object<'_>) {
        if self.foreign {
            match std::str::from_utf8(bytes) {
                Ok(text) => object.text("meta", text),
                Err(_) => object.base64("meta64", bytes),
            };
        } else if !self.fields.is_empty() {
            let out = object.member("meta");
            let mut inner = Object::new(out);
            for (name, value) in &self.fields {
                inner.text(name, value);
            }
            inner.end();
        }
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Builds metadata.
#[derive(Clone, Debug, Default)]
pub(crate) struct MetaWriter {
    bytes: Vec<u8>,
}

impl MetaWriter {
    fn start_line(&mut self) {
        if !self.bytes.is_empty() {
            self.bytes.push(b'\n');
        }
    }

    pub(crate) fn json(&mut self) {
        self.start_line();
        self.bytes.extend_from_slice(JSON.as_bytes());
    }

    pub(crate) fn field(&mut self, name: &str, value: &str) -> Result<(), Problem> {
        if value.chars().any(char::is_control) {
            return Err(Problem::bad(format!("{name} has a control character")));
        }
        self.start_line();
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.extend_from_slice(b": ");
        self.bytes.extend_from_slice(value.as_bytes());
        Ok(())
    }

    pub(crate) fn build(self) -> Result<Vec<u8>, Problem> {
        if self.bytes.len() > META_BYTES_MAX {
            return Err(Problem::too_large(
                "the metadata of the payload",
                META_BYTES_MAX,
            ));
        }
        Ok(self.bytes)
    }
}

/// The meaning of a media type for a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Declared {
    /// No type is declared.
    Nothing,
    /// `application/json` without other parameters.
    Json,
    /// Another JSON type.
    JsonLike,
    /// Any other type.
    Other,
}

/// Parses a media type. The default type of `curl -d` counts as no type.
pub(crate) fn declared(content_type: Option<&str>) -> Declared {
    let Some(text) = content_type.map(str::trim).filter(|text| !text.is_empty()) else {
        return Declared::Nothing;
    };
    let (essence, parameters) = text
        .split_once(';')
        .map_or((text, ""), |(essence, rest)| (essence.trim(), rest.trim()));
    let is = |name: &str| essence.eq_ignore_ascii_case(name);
    let is_json_like = essence.len() > 5
        && essence
            .get(essence.len() - 5..)
            .is_some_and(|end| end.eq_ignore_ascii_case("+json"));
    if is("application/x-www-form-urlencoded") {
        Declared::Nothing
    } else if is("application/json")
        && (parameters.is_empty() || parameters.eq_ignore_ascii_case("charset=utf-8"))
    {
        Declared::Json
    } else if is("application/json") || is_json_like {
        Declared::JsonLike
    } else {
        Declared::Other
    }
}

/// Adds metadata for the media type of a payload. Checks a payload that is declared as JSON.
pub(crate) fn payload(head: &Head, body: &[u8], meta: &mut MetaWriter) -> Result<(), Problem> {
    if head.is_repeated(FieldName::ContentType) {
        return Err(Problem::bad("more than one Content-Type"));
    }
    let text = head.text(FieldName::ContentType);
    typed(text, body, meta)
}

/// As `payload`, for a media type from another source.
pub(crate) fn typed(
    content_type: Option<&str>,
    body: &[u8],
    meta: &mut MetaWriter,
) -> Result<(), Problem> {
    let kind = declared(content_type);
    if matches!(kind, Declared::Json | Declared::JsonLike) {
        if let Some(at) = json::check(body) {
            return Err(
                Problem::new(Kind::InvalidPayload, "the payload is not JSON")
                    .number("byte", at as u64),
            );
        }
        meta.json();
    }
    match (kind, content_type) {
        (Declared::JsonLike | Declared::Other, Some(text)) => meta.field("content-type", text),
        _ => Ok(()),
    }
}

/// How a payload is represented in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Unchanged.
    Json,
    /// As a JSON string.
    Text,
    /// In base64.
    Bytes,
}

/// Maximum levels of nesting of JSON that is inserted into other JSON. Many parsers accept at most
/// 128 levels, and a response adds up to four.
pub(crate) const INSERTED_LEVELS_MAX: usize = 100;
/// Texts up to this many bytes become JSON strings without counting their escapes.
const SHORT_TEXT_BYTES: usize = 64 << 10;

/// Whether the escaped text is longer than its base64 form. A control character takes six bytes.
fn is_longer_than_base64(text: &[u8]) -> bool {
    let escaped = text.iter().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2_usize,
        0..0x20 => 6,
        _ => 1,
    });
    text.len() > SHORT_TEXT_BYTES && escaped.sum::<usize>() > text.len().div_ceil(3) * 4
}

/// Chooses the representation. A checked payload is JSON; a payload with another type is not. A
/// payload without a type is checked now, because other interfaces of the store record no type.
/// Deeply nested JSON is not inserted, because many parsers would reject the whole list. The JSON
/// of a long payload is at most a third larger than the payload.
pub(crate) fn shape(meta: &Meta<'_>, value: &[u8]) -> Shape {
    let untyped = meta.media_type().is_none();
    if meta.json || (untyped && json::check(value).is_none()) {
        if json::is_deeper(value, INSERTED_LEVELS_MAX) {
            Shape::Bytes
        } else {
            Shape::Json
        }
    } else if std::str::from_utf8(value).is_ok() && !is_longer_than_base64(value) {
        Shape::Text
    } else {
        Shape::Bytes
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    #[test]
    fn a_long_text_is_never_longer_than_its_base64() {
        let meta = Meta::of(b"", b"");
        let of = |text: &str, count: usize| shape(&meta, text.repeat(count).as_bytes());
        assert_eq!(of("\u{1}", 1000), Shape::Text);
        assert_eq!(of("\u{1}", 70_000), Shape::Bytes);
        assert_eq!(of("line\n", 20_000), Shape::Text);
        assert_eq!(of("\n", 70_000), Shape::Bytes);
        assert_eq!(of("aaa\"", 20_000), Shape::Text);
        assert_eq!(of("aa\\", 30_000), Shape::Text);
        assert_eq!(of("a\\", 40_000), Shape::Bytes);
    }

    #[test]
    fn metadata_is_parsed_as_it_was_written() {
        let mut writer = MetaWriter::default();
        writer.json();
        writer
            .field("content-type", "application/x+json; a=b")
            .unwrap();
        assert!(writer.field("ce-id", "a\nb").is_err());
        let bytes = writer.build().unwrap();
        let meta = Meta::of(&bytes, b"{}");
        assert!(meta.json && !meta.foreign);
        assert_eq!(meta.media_type(), Some("application/x+json; a=b"));
        assert!(!Meta::of(&bytes, b"{},{}").json && !Meta::fields(&bytes).json);
        assert!(Meta::fields(b"anything").foreign);
        assert!(Meta::fields(b"\xff").foreign);
        assert_eq!(Meta::fields(b""), Meta::default());
    }

    #[test]
    fn media_types_are_classified() {
        for (text, what) in [
            ("application/json", Declared::Json),
            ("Application/JSON; charset=UTF-8", Declared::Json),
            ("application/json;x=y", Declared::JsonLike),
            ("application/vnd.a+json", Declared::JsonLike),
            ("text/plain", Declared::Other),
            ("application/x-www-form-urlencoded", Declared::Nothing),
            (" ", Declared::Nothing),
        ] {
            assert_eq!(declared(Some(text)), what, "{text}");
        }
    }
}
