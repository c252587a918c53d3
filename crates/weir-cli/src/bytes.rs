//! Keys and values as text: JSON, base64, hexadecimal and table cells.
//!
//! Keys and values are bytes. In JSON, a key is in the field `key` if it is UTF-8, else in `key64`
//! (base64). A value is in the field `value`, byte for byte, if it is one JSON value without line
//! breaks or outer blanks. Other UTF-8 is in `text`, and all other bytes are in `value64` (base64).
//! Invariant: different byte strings have different JSON.

use std::borrow::Cow;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde_json::value::RawValue;

pub(crate) use weir_server::base64::decode as from_base64;

/// Maximum number of bytes that JSON needs for one byte of a text: that of `\u0000`.
pub(crate) const ESCAPED_BYTES_MAX: usize = 6;

/// Standard base64 with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

/// Decodes hexadecimal text of either case. `None` if the text is invalid.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()
}

/// Bytes for a table cell: on one line, without control characters or characters that reorder text.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\r' => out.push_str("\\r"),
                c if c.is_control() || is_reordering(c) => {
                    let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
                }
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// A JSON string.
pub(crate) fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Whether a character changes the order in which a terminal shows others.
fn is_reordering(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes the control characters that valid JSON may contain in strings: DEL, U+0080 to U+009F,
/// which some terminals execute, and those that reorder text.
pub(crate) fn escape_controls_in_json(json: String) -> String {
    let is_control = |c: char| ('\u{7f}'..='\u{9f}').contains(&c) || is_reordering(c);
    if !json.contains(is_control) {
        return json;
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_control(c) {
            // Writing into a string does not fail.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// `"NAME":"..."` for UTF-8, else `"NAME64":"..."`.
pub(crate) fn json_bytes(name: &str, bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok("") => format!("\"{name}\":null"),
        Ok(text) => format!("\"{name}\":{}", json_string(text)),
        Err(_) => format!("\"{name}64\":\"{}\"", base64(bytes)),
    }
}

/// `"value":...`, `"text":"..."` or `"value64":"..."`.
pub(crate) fn json_value(bytes: &[u8]) -> String {
    match (json_text(bytes), std::str::from_utf8(bytes)) {
        (Some(json), _) => format!("\"value\":{json}"),
        (None, Ok(text)) => format!("\"text\":{}", json_string(text)),
        (None, Err(_)) => format!("\"value64\":\"{}\"", base64(bytes)),
    }
}

/// The bytes as JSON text, if a line of JSON can contain them unchanged.
fn json_text(bytes: &[u8]) -> Option<&str> {
    if bytes.contains(&b'\n') || bytes.contains(&b'\r') {
        return None;
    }
    let json: &RawValue = serde_json::from_slice(bytes).ok()?;
    (json.get().len() == bytes.len()).then(|| json.get())
}

/// Decodes the text or base64 form of a field that [`json_bytes`] or [`json_value`] printed.
pub(crate) fn decode_json_field<'a>(
    text: Option<&'a str>,
    base: Option<&str>,
) -> Option<Cow<'a, [u8]>> {
    match (text, base) {
        (Some(text), None) => Some(Cow::Borrowed(text.as_bytes())),
        (None, Some(base)) => from_base64(base).map(Cow::Owned),
        (None, None) => Some(Cow::Borrowed(&[])),
        (Some(_), Some(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_matches_the_published_vectors_and_round_trips() {
        let vectors = [
            "", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy",
        ];
        for (n, vector) in vectors.iter().enumerate() {
            let plain = &b"foobar"[..n];
            assert_eq!(base64(plain), *vector);
            assert_eq!(from_base64(vector).as_deref(), Some(plain));
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(from_base64(&base64(&all)), Some(all.clone()));
        assert_eq!(from_hex(&hex(&all)), Some(all));
        for bad in ["A", "Zh==", "Zm9*", "Zm9vY"] {
            assert_eq!(from_base64(bad), None, "{bad}");
        }
        assert_eq!(from_hex("abc"), None);
        assert_eq!(from_hex("zz"), None);
    }

    #[test]
    fn a_value_is_embedded_only_if_its_bytes_are_unchanged() {
        let check = |bytes: &[u8], expect: &str| assert_eq!(json_value(bytes), expect);
        check(br#"{"a": 1.50}"#, r#""value":{"a": 1.50}"#);
        check(b" 1", r#""text":" 1""#);
        check(b"[1,\n2]", r#""text":"[1,\n2]""#);
        check(b"plain", r#""text":"plain""#);
        check(b"", r#""text":"""#);
        check(b"\xff", r#""value64":"/w==""#);
    }

    #[test]
    fn json_for_a_terminal_has_no_control_characters() {
        let escaped = |json: &str| escape_controls_in_json(json.to_owned());
        let json = "{\"k\":\"a\u{7f}\u{80}\u{9b}2J\u{9f}\u{a0}é\"}";
        let expected = "{\"k\":\"a\\u007f\\u0080\\u009b2J\\u009f\u{a0}é\"}";
        assert_eq!(escaped(json), expected);
        assert_eq!(escaped("\"\u{202e}\u{2066}\""), "\"\\u202e\\u2066\"");
        assert_eq!(escaped("[1,\t2]"), "[1,\t2]");
    }

    #[test]
    fn cells_have_no_control_characters() {
        assert_eq!(printable(b"a\tb\n\x1b[1m\xffz"), "a\\tb\\n\\u{1b}[1m\\xffz");
        assert_eq!(
            printable("a\u{202e}b\u{2069}".as_bytes()),
            "a\\u{202e}b\\u{2069}"
        );
    }
}
