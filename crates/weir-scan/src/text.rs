//! Compares JSON strings in a page without decoding them into memory.
//!
//! Invariants:
//! - Any bytes are accepted. Bytes that are not a JSON string are read as far as possible, and
//!   equal bytes are equal strings.
//! - Nothing is allocated, except in a `Vec` that the caller passes.

use std::cmp::Ordering;

/// A string literal of JSON. Compared by Unicode scalar values after unescaping, which is the byte
/// order of UTF-8. Half of a surrogate pair compares by its code.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// The bytes between the quotes.
    raw: &'a [u8],
    escaped: bool,
}

impl<'a> Text<'a> {
    /// A literal with its quotes, as a span contains it.
    pub fn new(literal: &'a [u8]) -> Self {
        let raw = literal.strip_prefix(b"\"").unwrap_or(literal);
        let raw = raw.strip_suffix(b"\"").unwrap_or(raw);
        Self {
            raw,
            escaped: raw.contains(&b'\\'),
        }
    }

    /// A decoded string.
    pub fn plain(text: &'a str) -> Self {
        Self {
            raw: text.as_bytes(),
            escaped: false,
        }
    }

    /// The bytes, if they contain no escape.
    pub fn as_plain(self) -> Option<&'a [u8]> {
        (!self.escaped).then_some(self.raw)
    }

    /// The characters: Unicode scalar values, and halves of surrogate pairs.
    pub fn chars(self) -> Chars<'a> {
        Chars {
            raw: self.raw,
            escaped: self.escaped,
        }
    }

    /// Whether the string equals `text`.
    pub fn is(self, text: &str) -> bool {
        self == Text::plain(text)
    }

    /// Whether the string begins with `other`.
    pub fn starts_with(self, other: Text<'_>) -> bool {
        if let (Some(a), Some(b)) = (self.as_plain(), other.as_plain()) {
            return a.starts_with(b);
        }
        let mut mine = self.chars();
        other.chars().all(|c| mine.next() == Some(c))
    }

    /// Orders by UTF-16 code units. Differs from `cmp` only between characters above U+FFFF and
    /// characters in U+E000..U+FFFF.
    pub fn compare_utf16(self, other: Text<'_>) -> Ordering {
        let units = |c: u32| {
            let over = c.checked_sub(0x1_0000);
            let first = over.map_or(c, |over| 0xd800 + (over >> 10));
            let second = over.map(|over| 0xdc00 + (over & 0x3ff));
            std::iter::once(first).chain(second)
        };
        self.chars()
            .flat_map(units)
            .cmp(other.chars().flat_map(units))
    }

    /// Appends the decoded string to `out` as UTF-8. Half of a surrogate pair becomes the three
    /// bytes of its code, so that the bytes sort as the strings do.
    pub fn decode_into(self, out: &mut Vec<u8>) {
        if !self.escaped {
            out.extend_from_slice(self.raw);
            return;
        }
        for c in self.chars() {
            push(out, c);
        }
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self.as_plain(), other.as_plain()) {
            (Some(a), Some(b)) => a == b,
            _ => self.chars().eq(other.chars()),
        }
    }
}

impl Eq for Text<'_> {}

impl PartialOrd for Text<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.as_plain(), other.as_plain()) {
            (Some(a), Some(b)) => a.cmp(b),
            _ => self.chars().cmp(other.chars()),
        }
    }
}

/// Characters of a [`Text`].
#[derive(Clone, Debug)]
pub struct Chars<'a> {
    raw: &'a [u8],
    escaped: bool,
}

impl Iterator for Chars<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let (&first, rest) = self.raw.split_first()?;
        if first == b'\\' && self.escaped {
            return Some(self.escape(rest));
        }
        let (length, bits) = match first {
            0..0xc0 => (1, u32::from(first)),
            0xc0..0xe0 => (2, u32::from(first & 0x1f)),
            0xe0..0xf0 => (3, u32::from(first & 0x0f)),
            _ => (4, u32::from(first & 0x07)),
        };
        let Some((head, rest)) = self.raw.split_at_checked(length) else {
            self.raw = rest;
            return Some(u32::from(first));
        };
        self.raw = rest;
        let more = head.iter().skip(1);
        Some(more.fold(bits, |c, byte| c << 6 | u32::from(byte & 0x3f)))
    }
}

impl Chars<'_> {
    /// Decodes the escape before `rest`, after its backslash.
    fn escape(&mut self, rest: &[u8]) -> u32 {
        let (kind, used) = (rest.first().copied(), 2.min(1 + rest.len()));
        let simple = match kind {
            Some(b'u') => return self.unicode(),
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => 10,
            Some(b'r') => 13,
            Some(b't') => 9,
            Some(other) => u32::from(other),
            None => u32::from(b'\\'),
        };
        self.raw = self.raw.get(used..).unwrap_or(&[]);
        simple
    }

    fn unicode(&mut self) -> u32 {
        let Some(code) = hex4(self.raw) else {
            self.raw = self.raw.get(2..).unwrap_or(&[]);
            return u32::from(b'u');
        };
        let rest = self.raw.get(6..).unwrap_or(&[]);
        if (0xd800..0xdc00).contains(&code)
            && let Some(low @ 0xdc00..=0xdfff) = hex4(rest)
        {
            self.raw = rest.get(6..).unwrap_or(&[]);
            return 0x1_0000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        }
        self.raw = rest;
        code
    }
}

/// The code of `\uXXXX` at the start of `raw`.
fn hex4(raw: &[u8]) -> Option<u32> {
    let digits = raw.get(..6)?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |code, byte| {
        Some(code << 4 | char::from(*byte).to_digit(16)?)
    })
}

fn push(out: &mut Vec<u8>, c: u32) {
    let tail = |shift: u32| 0x80 | low_byte(c >> shift & 0x3f);
    match c {
        0..0x80 => out.push(low_byte(c)),
        0x80..0x800 => out.extend([0xc0 | low_byte(c >> 6), tail(0)]),
        0x800..0x1_0000 => out.extend([0xe0 | low_byte(c >> 12), tail(6), tail(0)]),
        _ => out.extend([0xf0 | low_byte(c >> 18 & 7), tail(12), tail(6), tail(0)]),
    }
}

fn low_byte(c: u32) -> u8 {
    c.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::Text;
    use std::cmp::Ordering;

    fn check(literal: &str, expected: &str) {
        let text = Text::new(literal.as_bytes());
        let mut out = Vec::new();
        text.decode_into(&mut out);
        assert_eq!(out, expected.as_bytes(), "{literal}");
        assert!(text.is(expected), "{literal}");
        assert_eq!(text.cmp(&Text::plain(expected)), Ordering::Equal);
    }

    #[test]
    fn strings_decode() {
        check(r#""""#, "");
        check(r#""plain é😀""#, "plain é😀");
        check(r#""\u006frder""#, "order");
        check(r#""\"\\\/\b\f\n\r\t""#, "\"\\/\u{8}\u{c}\n\r\t");
        check(r#""a\ud83d\ude00b""#, "a😀b");
    }

    #[test]
    fn halves_of_pairs_sort_by_their_code() {
        let low = Text::new(br#""\udfff""#);
        assert!(low > Text::plain("\u{d7ff}") && low < Text::plain("\u{e000}"));
        let mut out = Vec::new();
        low.decode_into(&mut out);
        assert_eq!(out, [0xed, 0xbf, 0xbf]);
        // Two halves in the wrong order remain two characters.
        assert_eq!(Text::new(br#""\ude00\ud83d""#).chars().count(), 2);
    }

    #[test]
    fn the_two_orders_differ_above_the_basic_plane() {
        let (private, smile) = (Text::plain("\u{e000}"), Text::plain("😀"));
        assert_eq!(private.cmp(&smile), Ordering::Less);
        assert_eq!(private.compare_utf16(smile), Ordering::Greater);
        assert_eq!(smile.compare_utf16(Text::plain("😀a")), Ordering::Less);
        let lone = Text::new(br#""\ud83d""#);
        assert_eq!(lone.compare_utf16(smile), Ordering::Less);
        assert_eq!(lone.cmp(&smile), Ordering::Less);
    }

    #[test]
    fn broken_literals_cause_no_panic() {
        for literal in [
            &b"\"\\"[..],
            b"\"\\u12",
            b"\"\\u12\"",
            b"\"\xe2\x82",
            b"",
            b"\xff\\x",
        ] {
            let text = Text::new(literal);
            assert_eq!(text.cmp(&text), Ordering::Equal);
            text.decode_into(&mut Vec::new());
        }
    }
}
