//! Writes JSON member by member, so that a payload is inserted unchanged, and checks that a payload
//! is JSON.

use std::fmt::Write as _;

use serde::{Deserialize, Deserializer};

/// Appends a number in decimal.
pub(crate) fn number(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        if let Some(digit) = digits.get_mut(at) {
            *digit = b'0' + (value % 10) as u8;
        }
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(at..).unwrap_or_default());
}

/// Appends a text in quotes, with escapes.
pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut clean = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let escaped: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0..0x20 => b"",
            _ => continue,
        };
        out.extend_from_slice(bytes.get(clean..at).unwrap_or_default());
        clean = at + 1;
        if escaped.is_empty() {
            let mut code = String::new();
            let _ = write!(code, "\\u{byte:04x}");
            out.extend_from_slice(code.as_bytes());
        } else {
            out.extend_from_slice(escaped);
        }
    }
    out.extend_from_slice(bytes.get(clean..).unwrap_or_default());
    out.push(b'"');
}

/// A non-negative integer in any notation: `7`, `7.0` and `7e0` are one number in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Number(pub(crate) u64);

/// Largest accepted number with a point or an exponent. Up to this value, the parsed number is
/// precise enough that the nearest integer is the intended one.
const EXACT_MAX: f64 = 1_125_899_906_842_624.0;

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = serde_json::Number::deserialize(from)?;
        let whole = |value: &f64| {
            let off = (value - value.round()).abs();
            (0.0..=EXACT_MAX).contains(value) && off <= value * f64::EPSILON
        };
        let exact = number.as_f64().filter(whole);
        let found = number
            .as_u64()
            .or_else(|| format!("{:.0}", exact?).parse().ok());
        let wrong = || serde::de::Error::custom("a whole number from 0");
        found.map(Self).ok_or_else(wrong)
    }
}

/// Deserializes a member that may be absent, but not null.
pub(crate) fn some<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// An object that is being written.
#[derive(Debug)]
pub(crate) struct Object<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

impl<'a> Object<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    fn name(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.empty) {
            self.out.push(b',');
        }
        text(self.out, name);
        self.out.push(b':');
        self.out
    }

    pub(crate) fn number(&mut self, name: &str, value: u64) -> &mut Self {
        number(self.name(name), value);
        self
    }

    pub(crate) fn text(&mut self, name: &str, value: &str) -> &mut Self {
        text(self.name(name), value);
        self
    }

    pub(crate) fn flag(&mut self, name: &str, value: bool) -> &mut Self {
        let word: &[u8] = if value { b"true" } else { b"false" };
        self.name(name).extend_from_slice(word);
        self
    }

    /// Writes bytes as base64.
    pub(crate) fn base64(&mut self, name: &str, value: &[u8]) -> &mut Self {
        let out = self.name(name);
        out.push(b'"');
        super::base64::encode(value, out);
        out.push(b'"');
        self
    }

    /// Writes JSON unchanged.
    pub(crate) fn raw(&mut self, name: &str, value: &[u8]) -> &mut Self {
        self.name(name).extend_from_slice(value);
        self
    }

    /// Writes the name of a member, and returns the buffer for its value.
    pub(crate) fn member(&mut self, name: &str) -> &mut Vec<u8> {
        self.name(name)
    }

    /// Returns the buffer that contains everything.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        self.out
    }

    pub(crate) fn end(self) {
        self.out.push(b'}');
    }
}

/// Returns the index of the first byte that is not JSON; `None` if the whole input is JSON. Builds
/// no tree.
pub(crate) fn check(bytes: &[u8]) -> Option<usize> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => return Some(error.valid_up_to()),
    };
    let error = serde_json::from_str::<&serde_json::value::RawValue>(text).err()?;
    if error.is_eof() {
        return Some(bytes.len());
    }
    let before: usize = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum();
    Some((before + error.column().saturating_sub(1)).min(bytes.len()))
}

/// Whether a JSON value has more than `levels_max` levels of nesting.
pub(crate) fn is_deeper(value: &[u8], levels_max: usize) -> bool {
    // Most values have few brackets, and counting is faster than finding strings.
    let brackets = value.iter().filter(|byte| matches!(byte, b'[' | b'{'));
    if brackets.count() <= levels_max {
        return false;
    }
    let mut levels = 0_usize;
    let mut is_in_string = false;
    let mut bytes = value.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_in_string = !is_in_string,
            // Skips the next byte, which may be a quote.
            b'\\' => {
                bytes.next();
            }
            b'[' | b'{' if !is_in_string => {
                levels += 1;
                if levels > levels_max {
                    return true;
                }
            }
            b']' | b'}' if !is_in_string => levels = levels.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_written() {
        let mut out = Vec::new();
        let mut object = Object::new(&mut out);
        object
            .number("a", 0)
            .number("b", u64::MAX)
            .text("c", "\"\\\n\u{1}é")
            .flag("d", true);
        object.base64("e", b"\xff\x00").raw("f", b"[1, 2]");
        object.end();
        let expected = "{\"a\":0,\"b\":18446744073709551615,\"c\":\"\\\"\\\\\\n\\u0001é\",\"d\":true,\"e\":\"/wA=\",\"f\":[1, 2]}";
        assert_eq!(std::str::from_utf8(&out), Ok(expected));
        assert_eq!(check(&out), None);
    }

    #[test]
    fn whole_numbers_are_read() {
        let read = |text: &str| serde_json::from_str::<Number>(text).ok().map(|n| n.0);
        assert_eq!(read("18446744073709551615"), Some(u64::MAX));
        assert_eq!(
            (read("7"), read("7.0"), read("7e2")),
            (Some(7), Some(7), Some(700))
        );
        assert_eq!(read("1125899906842623.0"), Some((1 << 50) - 1));
        for wrong in [
            "-1",
            "7.5",
            "2251799813685247.0",
            "1000000.5",
            "1e300",
            "18446744073709551616",
            "\"7\"",
            "null",
            "true",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_offset_of_an_error_is_returned() {
        for (text, at) in [
            ("{}", None),
            (" 1e5\n", None),
            ("{\"a\":}", Some(5)),
            ("", Some(0)),
            ("[1,\n 2,,]", Some(7)),
            ("01", Some(1)),
            ("1 2", Some(2)),
        ] {
            assert_eq!(check(text.as_bytes()), at, "{text:?}");
        }
        assert_eq!(check(b"\"\xff\""), Some(1));
        let deep = "[".repeat(100_000);
        assert!(
            check(deep.as_bytes()).is_some(),
            "deep nesting must not overflow the stack"
        );
    }

    #[test]
    fn levels_are_counted_outside_of_strings() {
        let nested = format!("{}1{}", "[{\"a\":".repeat(3), "}]".repeat(3));
        assert!(is_deeper(nested.as_bytes(), 5) && !is_deeper(nested.as_bytes(), 6));
        for flat in [
            r#"["[[[","\"[[","\\","[["]"#,
            "[[],[],[],{}]",
            r#"{"[[[":{}}"#,
        ] {
            assert_eq!(check(flat.as_bytes()), None, "{flat}");
            assert!(!is_deeper(flat.as_bytes(), 2), "{flat}");
        }
        assert!(!is_deeper(b"", 0) && !is_deeper(b"1", 0) && is_deeper(b"[]", 0));
    }
}
