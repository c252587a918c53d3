//! Strings and scalars of JSON, for the engine; the scanner has the rest.

use std::cmp::Ordering;

use weir_scan::{Level, Path, Plan, Shape, Text};

use crate::kind::{Kind, Strings};

/// Returns the bytes between the quotes of a literal; none if a forged token has a literal without
/// them.
pub(crate) fn inside(literal: &[u8]) -> &[u8] {
    let len = literal.len();
    literal.get(1..len.saturating_sub(1)).unwrap_or_default()
}

/// Compares two number literals by value.
pub(crate) fn compare_numbers(a: &[u8], b: &[u8]) -> Ordering {
    weir_scan::compare_numbers(a, b)
}

/// Compares two string literals.
pub(crate) fn compare_strings(a: &[u8], b: &[u8], strings: Strings) -> Ordering {
    let (a, b) = (Text::new(a), Text::new(b));
    match strings {
        Strings::Scalar => a.cmp(&b),
        Strings::Utf16 => a.compare_utf16(b),
    }
}

/// Returns the kind of a text that is one JSON scalar; `None` for any other text.
pub(crate) fn scalar(text: &[u8]) -> Option<Kind> {
    let plan = Plan::new(Shape::Single, Level::Strict, &[Path::default()]).ok()?;
    let items = weir_scan::scan(text, &plan).ok()?;
    let tag = items.value(0, 0).tag;
    (tag != Kind::Undefined && tag < Kind::Array).then_some(tag)
}

/// Encodes a code point as UTF-8. Half of a surrogate pair is encoded by its own value.
pub(crate) fn encode(unit: u32, out: &mut [u8; 4]) -> &mut [u8] {
    let low = |shift: u32| 0x80 | byte(unit >> shift & 0x3f);
    let (bytes, len) = match unit {
        0..0x80 => ([byte(unit), 0, 0, 0], 1),
        0x80..0x800 => ([0xc0 | byte(unit >> 6), low(0), 0, 0], 2),
        0x800..0x1_0000 => ([0xe0 | byte(unit >> 12), low(6), low(0), 0], 3),
        _ => ([0xf0 | byte(unit >> 18 & 7), low(12), low(6), low(0)], 4),
    };
    *out = bytes;
    &mut out[..len]
}

fn byte(bits: u32) -> u8 {
    bits.to_le_bytes()[0]
}

/// Appends a character of a JSON string with the fewest escapes.
pub(crate) fn escape(unit: u32, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let hex = |shift: u32| {
        HEX.get((unit >> shift & 0xf) as usize)
            .copied()
            .unwrap_or(b'0')
    };
    match unit {
        0x22 | 0x5c => out.extend_from_slice(&[b'\\', byte(unit)]),
        0x08 => out.extend_from_slice(b"\\b"),
        0x09 => out.extend_from_slice(b"\\t"),
        0x0a => out.extend_from_slice(b"\\n"),
        0x0c => out.extend_from_slice(b"\\f"),
        0x0d => out.extend_from_slice(b"\\r"),
        0..0x20 | 0xd800..0xe000 => {
            out.extend_from_slice(b"\\u");
            out.extend([hex(12), hex(8), hex(4), hex(0)]);
        }
        _ => out.extend_from_slice(encode(unit, &mut [0; 4])),
    }
}

/// Returns the text of a JSON string literal. Half of a surrogate pair becomes U+FFFD.
#[must_use]
pub fn text(literal: &[u8]) -> String {
    let units = Text::new(literal).chars();
    units
        .map(|unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect()
}

/// Returns the kind of a literal that the engine wrote, by its first byte.
pub(crate) fn kind_of(literal: &[u8]) -> Kind {
    match literal.first() {
        None => Kind::Undefined,
        Some(b'n') => Kind::Null,
        Some(b'f') => Kind::False,
        Some(b't') => Kind::True,
        Some(b'"') => Kind::String,
        Some(b'[') => Kind::Array,
        Some(b'{') => Kind::Object,
        Some(_) => Kind::Number,
    }
}

/// Appends a scalar in canonical form: equal scalars give equal bytes.
pub(crate) fn canonical(kind: Kind, literal: &[u8], out: &mut Vec<u8>) {
    match kind {
        Kind::Undefined => {}
        Kind::Null => out.extend_from_slice(b"null"),
        Kind::False => out.extend_from_slice(b"false"),
        Kind::True => out.extend_from_slice(b"true"),
        Kind::Number => crate::decimal::write_literal(literal, out),
        Kind::String => {
            out.push(b'"');
            for unit in Text::new(literal).chars() {
                escape(unit, out);
            }
            out.push(b'"');
        }
        Kind::Array | Kind::Object => out.extend_from_slice(literal),
    }
}

/// As `canonical`, for bytes of a property.
pub(crate) fn canonical_raw(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for character in String::from_utf8_lossy(bytes).chars() {
        escape(u32::from(character), out);
    }
    out.push(b'"');
}
