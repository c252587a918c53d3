//! Order of values: keys that are reduced to 16 bytes, and what decides when
//! those do not.
//!
//! ```text
//! byte   0     type: undefined 0, null 1, false 2, true 3, number 4, string 5, array 6, object 7
//!        1-14  exact: the value; else its first 10 bytes, then zeros
//!        15    exact: 1 + length of a string, or 1; else 0
//! ```
//!
//! A number is 2 bytes of sign and power of ten and two digits a byte, all
//! turned round below zero; a string is its UTF-8. So the first 11 bytes order
//! any two values that differ in them, and all 16 order two exact ones. What
//! must never happen here: an order that differs from that of the values
//! themselves, or a float.

use std::cmp::Ordering;

use weir_scan::Text;

use super::decimal::Number;
use super::json;

/// What a value is, in the ascending order of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// The path found nothing.
    Undefined = 0,
    /// `null`.
    Null = 1,
    /// `false`.
    False = 2,
    /// `true`.
    True = 3,
    /// A number.
    Number = 4,
    /// A string.
    String = 5,
    /// An array.
    Array = 6,
    /// An object.
    Object = 7,
}

/// How strings are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strings {
    /// By Unicode scalar values, which is the byte order of UTF-8.
    #[default]
    Scalar,
    /// By UTF-16 code units, as some services sort.
    Utf16,
}

/// The bytes of a value, as they lie somewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Literal<'a> {
    /// JSON.
    Json(&'a [u8]),
    /// The bytes of a property, not JSON.
    Raw(&'a [u8]),
}

/// A reduced key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reduced(u128);

/// The bytes that order any two keys: type and ten more.
const PREFIX: u128 = !0 << 40;
/// Bytes of a value in an exact key.
const EXACT: usize = 14;
/// Bytes of a value in one that is not.
const INEXACT: usize = 10;
/// A power of ten of 0 in the two bytes of a number.
const BIAS: i64 = 0x4000;

impl Reduced {
    /// Below all keys of items.
    pub(crate) const LEAST: Self = Self(0);

    pub(crate) fn of(kind: Kind, literal: Literal<'_>, strings: Strings) -> Self {
        match (kind, literal) {
            (Kind::Number, Literal::Json(literal)) => number(&Number::parse(literal)),
            (Kind::String, Literal::Json(literal)) => {
                let inside = json::inside(literal);
                if strings == Strings::Scalar && !inside.iter().take(EXACT + 1).any(|b| *b == b'\\')
                {
                    let exact = inside.len() <= EXACT;
                    return string(inside, exact);
                }
                escaped(literal, strings)
            }
            (_, Literal::Raw(bytes)) => string(bytes, bytes.len() <= EXACT),
            (kind, Literal::Json(_)) => Self::tagged(kind, [0; EXACT], 1),
        }
    }

    /// Of a number of the engine.
    pub(crate) fn integer(value: u64) -> Self {
        let mut digits = [0u8; 20];
        let (mut at, mut left) = (digits.len(), value);
        while left > 0 {
            at -= 1;
            if let Some(digit) = digits.get_mut(at) {
                *digit = b'0' + u8::try_from(left % 10).unwrap_or(0);
            }
            left /= 10;
        }
        number(&Number::parse(digits.get(at..).unwrap_or_default()))
    }

    fn tagged(kind: Kind, content: [u8; EXACT], last: u8) -> Self {
        let mut bytes = [0; 16];
        let [tag, rest @ .., end] = &mut bytes;
        *tag = kind as u8;
        rest.copy_from_slice(&content);
        *end = last;
        Self(u128::from_be_bytes(bytes))
    }

    fn inexact(kind: Kind, mut content: [u8; EXACT]) -> Self {
        if let Some(behind) = content.get_mut(INEXACT..) {
            behind.fill(0);
        }
        Self::tagged(kind, content, 0)
    }

    /// As it is written down.
    pub(crate) const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// What `to_bytes` wrote.
    pub(crate) const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// What it is of.
    pub(crate) const fn kind(self) -> Kind {
        match self.0 >> 120 {
            0 => Kind::Undefined,
            1 => Kind::Null,
            2 => Kind::False,
            3 => Kind::True,
            4 => Kind::Number,
            5 => Kind::String,
            6 => Kind::Array,
            _ => Kind::Object,
        }
    }

    /// Whether it is the whole value.
    pub(crate) const fn is_exact(self) -> bool {
        self.0 & 0xff != 0
    }

    /// The part that may be compared without a look at the value; turned round
    /// for a descending key.
    #[inline]
    pub(crate) const fn prefix(self, descending: bool) -> u128 {
        let turned = if descending { !self.0 } else { self.0 };
        turned & PREFIX
    }
}

fn number(number: &Number<'_>) -> Reduced {
    let mut content = [0u8; EXACT];
    let power = number.exponent.saturating_add(BIAS);
    let clamped = !(2..=0x7ffd).contains(&power);
    let power = match power {
        _ if number.is_zero() => 0,
        ..2 => 1,
        0x7ffe.. => 0x7ffe,
        power => power,
    };
    let power = 0x8000 | u16::try_from(power).unwrap_or(0);
    let mut exact = !clamped || number.is_zero();
    let (head, tail) = content.split_at_mut(2);
    head.copy_from_slice(&power.to_be_bytes());
    if exact {
        let mut digits = number.digits();
        for byte in tail.iter_mut() {
            let high = digits.next().unwrap_or(0);
            *byte = high << 4 | digits.next().unwrap_or(0);
        }
        exact = digits.next().is_none();
    }
    if number.negative {
        content = content.map(|byte| !byte);
    }
    if exact {
        Reduced::tagged(Kind::Number, content, 1)
    } else {
        Reduced::inexact(Kind::Number, content)
    }
}

fn string(bytes: &[u8], exact: bool) -> Reduced {
    let mut content = [0; EXACT];
    let some = bytes.get(..bytes.len().min(EXACT)).unwrap_or_default();
    if let Some(to) = content.get_mut(..some.len()) {
        to.copy_from_slice(some);
    }
    if exact {
        let length = u8::try_from(bytes.len()).unwrap_or(0);
        Reduced::tagged(Kind::String, content, 1 + length)
    } else {
        Reduced::inexact(Kind::String, content)
    }
}

/// Of a string with escapes, or one that is not ordered by its bytes.
fn escaped(literal: &[u8], strings: Strings) -> Reduced {
    let mut bytes = [0u8; EXACT + 4];
    let mut length = 0;
    let mut exact = true;
    for unit in Text::new(literal).chars() {
        let mut encoded = [0; 4];
        let encoded = json::encode(unit, &mut encoded);
        if strings == Strings::Utf16 {
            // All units of pairs are one here, and then the units say.
            if (0xd800..0xe000).contains(&unit) || unit >= 0x1_0000 {
                if let Some(to) = bytes.get_mut(length) {
                    *to = 0xee;
                }
                length += 1;
                exact = false;
                break;
            }
            if let Some(lead @ (0xee | 0xef)) = encoded.first_mut() {
                *lead += 5;
            }
        }
        if let Some(to) = bytes.get_mut(length..length + encoded.len()) {
            to.copy_from_slice(encoded);
        }
        length += encoded.len();
        if length > EXACT {
            exact = false;
            break;
        }
    }
    string(bytes.get(..length).unwrap_or_default(), exact)
}

/// A key with the bytes it was made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    pub(crate) reduced: Reduced,
    pub(crate) literal: Literal<'a>,
}

impl Key<'_> {
    /// Order of two values of one column.
    #[inline]
    pub(crate) fn compare(&self, other: &Self, strings: Strings) -> Ordering {
        let (a, b) = (self.reduced, other.reduced);
        let prefix = a.prefix(false).cmp(&b.prefix(false));
        if prefix != Ordering::Equal {
            return prefix;
        }
        if a.is_exact() && b.is_exact() {
            return a.0.cmp(&b.0);
        }
        match (a.kind(), self.literal, other.literal) {
            (Kind::Number, Literal::Json(a), Literal::Json(b)) => json::compare_numbers(a, b),
            (Kind::String, Literal::Json(a), Literal::Json(b)) => {
                json::compare_strings(a, b, strings)
            }
            (_, Literal::Raw(a), Literal::Raw(b)) => a.cmp(b),
            _ => a.0.cmp(&b.0),
        }
    }
}

/// A key with its own memory, for what outlives its page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnedKey {
    pub(crate) reduced: Reduced,
    pub(crate) literal: Box<[u8]>,
    /// Whether the bytes are those of a property.
    pub(crate) raw: bool,
}

impl OwnedKey {
    pub(crate) fn of(key: &Key<'_>) -> Self {
        let (raw, literal) = match key.literal {
            Literal::Json(literal) => (false, literal),
            Literal::Raw(literal) => (true, literal),
        };
        let needed = raw || matches!(key.reduced.kind(), Kind::Number | Kind::String);
        Self {
            reduced: key.reduced,
            literal: if needed {
                literal.into()
            } else {
                Box::default()
            },
            raw,
        }
    }

    pub(crate) fn key(&self) -> Key<'_> {
        Key {
            reduced: self.reduced,
            literal: if self.raw {
                Literal::Raw(&self.literal)
            } else {
                Literal::Json(&self.literal)
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Key, Kind, Literal, Reduced, Strings};
    use std::cmp::Ordering;

    fn compare(a: &str, b: &str, strings: Strings) -> Ordering {
        let kind = |text: &str| match text.as_bytes().first() {
            None => Kind::Undefined,
            Some(b'n') => Kind::Null,
            Some(b'f') => Kind::False,
            Some(b't') => Kind::True,
            Some(b'"') => Kind::String,
            Some(b'[') => Kind::Array,
            Some(b'{') => Kind::Object,
            Some(_) => Kind::Number,
        };
        let of = |text: &str| Reduced::of(kind(text), Literal::Json(text.as_bytes()), strings);
        let (x, y) = (of(a), of(b));
        let x = Key {
            reduced: x,
            literal: Literal::Json(a.as_bytes()),
        };
        let y = Key {
            reduced: y,
            literal: Literal::Json(b.as_bytes()),
        };
        let order = x.compare(&y, strings);
        assert_eq!(order, y.compare(&x, strings).reverse(), "{a} {b}");
        order
    }

    #[test]
    fn an_ascending_list_ascends() {
        let list = [
            "",
            "null",
            "false",
            "true",
            "-1e99999999999",
            "-1e20001",
            "-1e20000",
            "-9e400",
            "-123456789012345678901234567890.5",
            "-123456789012345678901234567890",
            "-10",
            "-9.5",
            "-1",
            "-0.1",
            "-1e-20000",
            "0",
            "1e-30000",
            "1e-400",
            "0.1",
            "0.100000000000000000000000000001",
            "0.10000000000000001",
            "1",
            "1.5",
            "9007199254740992",
            "9007199254740993",
            "1e20",
            "100000000000000000001",
            "1e400",
            "9e20000",
            "1e20001",
            "\"\"",
            r#""\u0000""#,
            "\"a\"",
            r#""a\u0000""#,
            "\"abcdefghijklmn\"",
            "\"abcdefghijklmno\"",
            "\"abcdefghijklmnp\"",
            "\"b\"",
            r#""\u00e9""#,
            r#""\ud800""#,
            r#""\uffff""#,
            r#""\ud83d\ude00""#,
            "[]",
            "{}",
        ];
        for (at, a) in list.iter().enumerate() {
            for (place, b) in list.iter().enumerate() {
                assert_eq!(compare(a, b, Strings::Scalar), at.cmp(&place), "{a} {b}");
            }
        }
    }

    #[test]
    fn equal_values_are_equal_however_written() {
        let pairs = [
            ("1", "1.0"),
            ("1", "1e0"),
            ("-0", "0"),
            ("0e7", "-0.00"),
            ("120", "1.2E+2"),
            ("\"a\"", r#""\u0061""#),
            ("\"é\"", r#""\u00e9""#),
            ("\"😀\"", r#""\ud83d\ude00""#),
            ("\"abcdefghijklmnopq\"", r#""abcdefghijklmnop\u0071""#),
            ("1e20001", "10e20000"),
            (
                "1234567890123456789012345678901",
                "1234567890123456789012345678901.000",
            ),
        ];
        for (a, b) in pairs {
            for strings in [Strings::Scalar, Strings::Utf16] {
                assert_eq!(compare(a, b, strings), Ordering::Equal, "{a} {b}");
            }
        }
    }

    #[test]
    fn code_units_put_pairs_before_the_last_characters() {
        let list = [
            "\"a\"",
            "\"\u{d7ff}\"",
            r#""\ud7ff\u0001""#,
            r#""\ud800""#,
            r#""\ud83c\udfff""#,
            "\"😀\"",
            r#""\udfff""#,
            "\"\u{e000}\"",
            "\"\u{ffff}\"",
        ];
        for (at, a) in list.iter().enumerate() {
            for (place, b) in list.iter().enumerate() {
                assert_eq!(compare(a, b, Strings::Utf16), at.cmp(&place), "{a} {b}");
            }
        }
    }
}
