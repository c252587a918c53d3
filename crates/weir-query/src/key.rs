//! Order of values: keys reduced to 16 bytes, and the comparison of values whose reduced
//! keys are equal.
//!
//! ```text
//! byte   0     type: undefined 0, null 1, false 2, true 3, number 4, string 5, array 6, object 7
//!        1-14  exact: the value; else its first 10 bytes, then zeros
//!        15    exact: 1 + length of a string, or 1; else 0
//! ```
//!
//! A number is 2 bytes of sign and power of ten, then two digits in each byte; below zero,
//! all bytes are inverted. A string is its UTF-8. The first 11 bytes order any two values
//! that differ in them, and all 16 bytes order two exact values.
//!
//! Invariants:
//! - The order is that of the values themselves.
//! - No float is used.

use std::cmp::Ordering;
use weir_core::exact::{part, to_u8, to_u16, to_u32};

use weir_scan::Text;

use crate::decimal::Number;
use crate::json;
use crate::kind::{Kind, Strings};

/// The bytes of a value, in a page or elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Literal<'a> {
    /// A JSON literal.
    Json(&'a [u8]),
    /// The bytes of a property, not JSON.
    Raw(&'a [u8]),
}

/// A reduced key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReducedKey(u128);

/// Mask of the bytes that order any two keys: the type and ten more bytes.
pub(crate) const PREFIX: u128 = !0 << 40;
/// Number of bytes of a value in an exact key.
const EXACT: usize = 14;
/// Number of bytes of a value in an inexact key.
const INEXACT: usize = 10;
/// The exponent 0 in the two exponent bytes of a number.
const BIAS: i64 = 0x4000;
/// First byte of half of a surrogate pair, if strings are ordered by code units.
const PAIR: u8 = 0xee;

impl ReducedKey {
    /// A key below those of all items.
    pub(crate) const MIN: Self = Self(0);

    pub(crate) fn of(kind: Kind, literal: Literal<'_>, strings: Strings) -> Self {
        match (kind, literal) {
            (Kind::Number, Literal::Json(literal)) => {
                Self::plain(literal).unwrap_or_else(|| number(&Number::parse(literal)))
            }
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

    /// Reduces an integer in plain notation; `None` for any other literal.
    #[inline]
    pub(crate) fn plain(literal: &[u8]) -> Option<Self> {
        digits(literal).map(|(negative, digits)| whole(digits, negative))
    }

    /// Reduces a number of the engine.
    #[inline]
    pub(crate) fn integer(value: u64) -> Self {
        const PART: u64 = 100_000_000;
        let part = |value: u64| u128::from(decimal(to_u32(value, "a part is below 10^8")));
        let (low, rest) = (value % PART, value / PART);
        let mut digits = part(low);
        if rest > 0 {
            digits |= part(rest % PART) << 32 | part(rest / PART) << 64;
        }
        whole(digits, false)
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
        if let Some(after) = content.get_mut(INEXACT..) {
            after.fill(0);
        }
        Self::tagged(kind, content, 0)
    }

    /// Returns the stored form.
    pub(crate) const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Converts the stored form back.
    pub(crate) const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// Returns the type of the value.
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

    /// Returns whether the key contains the whole value.
    pub(crate) const fn is_exact(self) -> bool {
        self.0 & 0xff != 0
    }

    /// As `is_exact`, for a result of [`in_direction`](Self::in_direction).
    pub(crate) const fn is_exact_in_direction(key: u128, descending: bool) -> bool {
        let key = if descending { !key } else { key };
        key & 0xff != 0
    }

    /// Returns the part that may be compared without the value; inverted for a descending
    /// key.
    #[inline]
    pub(crate) const fn prefix(self, descending: bool) -> u128 {
        self.in_direction(descending) & PREFIX
    }

    /// Returns the whole key; inverted for a descending key. If the prefixes of two keys
    /// differ, the lower key comes first.
    #[inline]
    pub(crate) const fn in_direction(self, descending: bool) -> u128 {
        if descending { !self.0 } else { self.0 }
    }
}

/// Converts a number below 10^8 to four-bit digits, in parallel: first groups of four
/// digits, then of two, then of one.
const fn decimal(value: u32) -> u32 {
    let (high, low) = (value / 10_000, value % 10_000);
    let fours = (high as u64) << 32 | low as u64;
    let hundreds = ((fours * 10_486) >> 20) & 0x7f_0000_007f;
    let twos = fours + hundreds * (0x1_0000 - 100);
    let tens = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    let ones = twos + tens * (16 - 10);
    let bytes = (ones | ones >> 8) & 0xffff_0000_ffff;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the upper half is not needed"
    )]
    let low = (bytes | bytes >> 16) as u32;
    low
}

/// Returns the sign and the four-bit digits of an integer in plain notation, the most
/// frequent form; `None` for any other literal.
#[inline]
fn digits(literal: &[u8]) -> Option<(bool, u128)> {
    let (negative, rest) = match literal.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, literal),
    };
    if rest.len() > 2 * (EXACT - 2) {
        return None;
    }
    let mut digits = 0u128;
    if rest.len() <= 16 {
        let mut few = 0u64;
        for byte in rest {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            few = few << 4 | u64::from(digit);
        }
        digits |= u128::from(few);
    } else {
        for byte in rest {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            digits = digits << 4 | u128::from(digit);
        }
    }
    Some((negative, digits))
}

/// Reduces an integer by its four-bit digits, at most 24; the result is that of [`number`].
#[inline]
fn whole(digits: u128, negative: bool) -> ReducedKey {
    /// Bits of digits.
    const CONTENT: u32 = 96;
    const INVERTED_BITS: u128 = ((1 << (CONTENT + 16)) - 1) << 8;
    const _: () = assert!(CONTENT as usize == 8 * (EXACT - 2));
    let count = (u128::BITS - digits.leading_zeros()).div_ceil(4);
    let tag = (Kind::Number as u128) << 120 | 1;
    if count == 0 {
        return ReducedKey(tag | (0x8000 << (8 + CONTENT)));
    }
    let power = 0x8000 | (u128::from(BIAS.unsigned_abs()) + u128::from(count));
    let content = power << CONTENT | digits << (CONTENT - 4 * count);
    let flip = if negative { INVERTED_BITS } else { 0 };
    ReducedKey((tag | content << 8) ^ flip)
}

fn number(number: &Number<'_>) -> ReducedKey {
    let mut content = [0u8; EXACT];
    let power = number.exponent.saturating_add(BIAS);
    let clamped = !(2..=0x7ffd).contains(&power);
    let power = match power {
        _ if number.is_zero() => 0,
        ..2 => 1,
        0x7ffe.. => 0x7ffe,
        power => power,
    };
    let power = 0x8000 | to_u16(power, "it is clamped to 15 bits");
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
        ReducedKey::tagged(Kind::Number, content, 1)
    } else {
        ReducedKey::inexact(Kind::Number, content)
    }
}

fn string(bytes: &[u8], exact: bool) -> ReducedKey {
    let mut content = [0; EXACT];
    let some = &bytes[..bytes.len().min(EXACT)];
    if let Some(to) = content.get_mut(..some.len()) {
        to.copy_from_slice(some);
    }
    if exact {
        let length = to_u8(bytes.len(), "an exact string is short");
        ReducedKey::tagged(Kind::String, content, 1 + length)
    } else {
        ReducedKey::inexact(Kind::String, content)
    }
}

/// Reduces a string with escapes, or one that is not ordered by its bytes.
fn escaped(literal: &[u8], strings: Strings) -> ReducedKey {
    let mut bytes = [0u8; EXACT + 4];
    let mut length = 0;
    let mut exact = true;
    for unit in Text::new(literal).chars() {
        let mut encoded = [0; 4];
        let encoded = json::encode(unit, &mut encoded);
        if strings == Strings::Utf16 {
            // All code units of surrogate pairs are equal at this position; the units
            // themselves decide later.
            if (0xd800..0xe000).contains(&unit) || unit >= 0x1_0000 {
                if let Some(to) = bytes.get_mut(length) {
                    *to = PAIR;
                }
                length += 1;
                exact = false;
                break;
            }
            raise(encoded);
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
    string(
        part(&bytes, ..length, "at most one character is after the limit"),
        exact,
    )
}

/// A reduced key as two words, so that its alignment is 8 bytes instead of 16.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PackedKey(u64, u64);

impl PackedKey {
    #[inline]
    pub(crate) const fn reduced(self) -> ReducedKey {
        ReducedKey((self.0 as u128) << 64 | self.1 as u128)
    }
}

impl From<ReducedKey> for PackedKey {
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the lower half")]
    fn from(key: ReducedKey) -> Self {
        Self((key.0 >> 64) as u64, key.0 as u64)
    }
}

/// A key with the bytes of its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    pub(crate) reduced: ReducedKey,
    pub(crate) literal: Literal<'a>,
}

impl Key<'_> {
    /// Compares two values of one column.
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
        let kind = a.kind();
        match (kind, self.literal, other.literal) {
            (Kind::Number | Kind::String, ..) if a.is_exact() => {
                compare_exact(a, kind, other.literal, strings)
            }
            (Kind::Number | Kind::String, ..) if b.is_exact() => {
                compare_exact(b, kind, self.literal, strings).reverse()
            }
            (Kind::Number, Literal::Json(a), Literal::Json(b)) => json::compare_numbers(a, b),
            (Kind::String, Literal::Json(a), Literal::Json(b)) => {
                json::compare_strings(a, b, strings)
            }
            (Kind::String, Literal::Raw(a), Literal::Raw(b)) => a.cmp(b),
            (Kind::String, Literal::Raw(a), Literal::Json(b)) => {
                a.iter().copied().cmp(sortable(b, strings))
            }
            (Kind::String, Literal::Json(a), Literal::Raw(b)) => {
                sortable(a, strings).cmp(b.iter().copied())
            }
            _ => a.0.cmp(&b.0),
        }
    }
}

/// Compares an exact number or string with an inexact one that has the same prefix. Rows do
/// not store the literals of exact keys, so this function derives the value from the key.
fn compare_exact(exact: ReducedKey, kind: Kind, other: Literal<'_>, strings: Strings) -> Ordering {
    let [_, content @ .., end] = exact.to_bytes();
    match (kind, other) {
        (Kind::Number, Literal::Json(other)) => json::compare_numbers(&to_literal(content), other),
        (_, other) => {
            let length = usize::from(end).saturating_sub(1);
            let content = content.get(..length).unwrap_or(&content).iter().copied();
            match other {
                Literal::Json(other) => content.cmp(sortable(other, strings)),
                Literal::Raw(other) => content.cmp(other.iter().copied()),
            }
        }
    }
}

/// Returns a literal of the number in an exact key.
fn to_literal(content: [u8; EXACT]) -> Vec<u8> {
    let negative = content.first().is_some_and(|byte| *byte < 0x80);
    let content = content.map(|byte| if negative { !byte } else { byte });
    let [high, low, digits @ ..] = content;
    let power = i64::from(u16::from_be_bytes([high, low]) & 0x7fff) - BIAS;
    let mut out = Vec::with_capacity(2 * EXACT + 10);
    out.extend_from_slice(if negative { b"-0." } else { b"0." });
    out.extend(
        digits
            .iter()
            .flat_map(|two| [b'0' + (two >> 4), b'0' + (two & 0xf)]),
    );
    out.push(b'e');
    out.extend_from_slice(power.to_string().as_bytes());
    out
}

/// Returns bytes of a string that are ordered like strings; a reduced key begins with them.
fn sortable(literal: &[u8], strings: Strings) -> impl Iterator<Item = u8> {
    Text::new(literal).chars().flat_map(move |unit| {
        let mut bytes = [0; 6];
        let length = match strings {
            Strings::Utf16 if unit >= 0x1_0000 => {
                let over = unit - 0x1_0000;
                let (first, second) = bytes.split_at_mut(3);
                surrogate(0xd800 + (over >> 10), first);
                surrogate(0xdc00 + (over & 0x3ff), second);
                6
            }
            Strings::Utf16 if (0xd800..0xe000).contains(&unit) => {
                surrogate(unit, &mut bytes);
                3
            }
            _ => {
                let mut encoded = [0; 4];
                let encoded = json::encode(unit, &mut encoded);
                if strings == Strings::Utf16 {
                    raise(encoded);
                }
                for (to, byte) in bytes.iter_mut().zip(encoded.iter()) {
                    *to = *byte;
                }
                encoded.len()
            }
        };
        bytes.into_iter().take(length)
    })
}

/// Encodes half of a surrogate pair: after all smaller characters, and before those that
/// [`raise`] moves up.
fn surrogate(unit: u32, to: &mut [u8]) {
    let [.., high, low] = unit.to_be_bytes();
    for (to, byte) in to.iter_mut().zip([PAIR, high, low]) {
        *to = byte;
    }
}

/// Moves characters from U+E000 on up, to leave room for pairs below them.
fn raise(encoded: &mut [u8]) {
    if let Some(lead @ (0xee | 0xef)) = encoded.first_mut() {
        *lead += 5;
    }
}

/// A key that owns its bytes, because it outlives its page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnedKey {
    pub(crate) reduced: ReducedKey,
    pub(crate) literal: Box<[u8]>,
    /// Whether the bytes are those of a property, not JSON.
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
    use super::{Key, Kind, Literal, Number, ReducedKey, Strings};
    use crate::json::kind_of;
    use std::cmp::Ordering;

    fn compare<'a>(a: &'a str, b: &'a str, strings: Strings) -> Ordering {
        let kind = |text: &str| kind_of(text.as_bytes());
        let of =
            |text: &'a str| ReducedKey::of(kind(text), Literal::Json(text.as_bytes()), strings);
        // As in a row: an exact key has no literal.
        let key = |text: &'a str| {
            let reduced: ReducedKey = of(text);
            let literal: &[u8] = if reduced.is_exact() {
                &[]
            } else {
                text.as_bytes()
            };
            let literal = Literal::Json(literal);
            Key { reduced, literal }
        };
        let (x, y) = (key(a), key(b));
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
            "\"abcdefghijz\"",
            "\"b\"",
            r#""\u00e9""#,
            r#""\ud800""#,
            r#""\uffff""#,
            r#""\ud83d\ude00""#,
            "[]",
            "{}",
        ];
        for (at, a) in list.iter().enumerate() {
            for (other, b) in list.iter().enumerate() {
                assert_eq!(compare(a, b, Strings::Scalar), at.cmp(&other), "{a} {b}");
            }
        }
    }

    #[test]
    fn plain_integers_are_reduced_as_any_number_is() {
        let mut literals: Vec<String> = ["0", "-0", "7", "-7"].map(str::to_owned).into();
        let mut digits = String::new();
        for at in 0..30u32 {
            digits.push(char::from(b'0' + u8::try_from(at * 7 % 10).unwrap_or(0)));
            literals.push(format!("1{digits}"));
            literals.push(format!("-9{digits}"));
            literals.push(format!("1{}", "0".repeat(at as usize)));
            literals.push(format!("-{}", "9".repeat(at as usize + 1)));
        }
        for literal in literals {
            let bytes = literal.as_bytes();
            let quick = ReducedKey::of(Kind::Number, Literal::Json(bytes), Strings::Scalar);
            assert_eq!(quick, super::number(&Number::parse(bytes)), "{literal}");
        }
        let mut value = 1u64;
        for step in 0..20_000u64 {
            let text = value.to_string();
            let slow = super::number(&Number::parse(text.as_bytes()));
            assert_eq!(ReducedKey::integer(value), slow, "{value}");
            value = value.wrapping_mul(6_364_136_223_846_793_005) >> (step % 61);
        }
        for value in [0, 9, 10, 99_999_999, 100_000_000, u64::MAX] {
            let text = value.to_string();
            let slow = super::number(&Number::parse(text.as_bytes()));
            assert_eq!(ReducedKey::integer(value), slow, "{value}");
        }
    }

    #[test]
    fn equal_values_are_equal_in_every_notation() {
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
            for (other, b) in list.iter().enumerate() {
                assert_eq!(compare(a, b, Strings::Utf16), at.cmp(&other), "{a} {b}");
            }
        }
    }
}
