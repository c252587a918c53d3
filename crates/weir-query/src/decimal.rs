//! Numbers with the exact value of their literals, without floats.
//!
//! A JSON number is a sign, decimal digits and a power of ten. [`Number`] is a view of a
//! literal. [`Sum`] adds any number of literals exactly within ±10^400. [`Decimal`] is a
//! result; equal values have equal text.
//!
//! Invariants:
//! - Nothing is rounded, except by [`Decimal::divided`], which documents it,
//!   and nothing wraps.
//! - No result depends on the order of the terms.

use weir_core::exact::{to_i64, to_u8, to_u32, to_usize};

/// Largest exponent of a term of a sum: its magnitude is below 10^401.
const EXPONENT_MAX: i64 = 401;
/// Power of ten of the lowest digit of a sum.
const EXPONENT_MIN: i64 = -405;
/// Exponents below this magnitude fit a machine integer, even after the position of the
/// decimal point is added. That position is at most the length of the literal.
const EXACT_BELOW: u64 = 1 << 60;
/// Digits in a limb.
const LIMB_DIGITS: i64 = 9;
/// The magnitude of a limb is below this.
const LIMB: i64 = 1_000_000_000;
/// Limbs of a wide sum, from 10^-405 to 10^441: room for 2^64 of the largest terms.
const LIMBS: usize = 94;
/// Number of terms after which carries are propagated, long before a limb could overflow.
const TERMS_MAX: u32 = 1 << 30;
/// Significant digits of a quotient.
const QUOTIENT_DIGITS: usize = 17;
/// A number with at most this many digits before the point is written without `e`.
const PLAIN_BEFORE: i64 = 40;
/// A number with at most this many zeros after the point is written without `e`.
const PLAIN_AFTER: i64 = 6;

/// A parsed literal: `0.DIGITS * 10^exponent`. The first digit is not 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number<'a> {
    /// Whether the number is below zero; `false` for zero.
    pub(crate) negative: bool,
    /// Power of ten: exact below [`EXACT_BELOW`] in magnitude, saturated beyond.
    pub(crate) exponent: i64,
    /// The digits from the first to the last that is not 0, with a point between them.
    digits: &'a [u8],
}

impl<'a> Number<'a> {
    /// Parses a literal that the scanner has checked. Other bytes give an unspecified
    /// number.
    pub(crate) fn parse(literal: &'a [u8]) -> Self {
        let (sign, rest) = match literal.split_first() {
            Some((b'-', rest)) => (true, rest),
            _ => (false, literal),
        };
        let e = rest.iter().position(|byte| matches!(byte, b'e' | b'E'));
        let (mantissa, power) = rest.split_at(e.unwrap_or(rest.len()));
        let is_digit = |byte: &u8| matches!(byte, b'1'..=b'9');
        let (Some(first), Some(last)) = (
            mantissa.iter().position(is_digit),
            mantissa.iter().rposition(is_digit),
        ) else {
            return Self {
                negative: false,
                exponent: 0,
                digits: &[],
            };
        };
        let point = mantissa.iter().position(|byte| *byte == b'.');
        let point = point.unwrap_or(mantissa.len());
        let lead = if first < point {
            signed(point - first)
        } else {
            -signed(first.saturating_sub(point + 1))
        };
        Self {
            negative: sign,
            exponent: power_of(power).saturating_add(lead),
            digits: &mantissa[first..=last],
        }
    }

    /// Returns the digits, each 0 to 9.
    pub(crate) fn digits(&self) -> impl Iterator<Item = u8> + use<'a> {
        let digits = self.digits.iter();
        digits
            .filter(|byte| byte.is_ascii_digit())
            .map(|byte| byte - b'0')
    }

    /// Whether it is zero.
    pub(crate) const fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }
}

fn signed(count: usize) -> i64 {
    to_i64(count, "a length fits 63 bits")
}

/// Parses the exponent after `e`, saturated.
fn power_of(text: &[u8]) -> i64 {
    let text = text.get(1..).unwrap_or_default();
    let (negative, digits) = match text.split_first() {
        Some((b'-', digits)) => (true, digits),
        Some((b'+', digits)) => (false, digits),
        _ => (false, text),
    };
    let mut power = 0i64;
    for byte in digits {
        let digit = i64::from(byte.wrapping_sub(b'0'));
        power = power.saturating_mul(10).saturating_add(digit);
    }
    // Leave room for adding the position of the point.
    let power = power.min(i64::MAX / 4);
    if negative { -power } else { power }
}

/// An exact sum of literals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sum {
    /// Sum of the integers of up to 18 digits: room for 2^64 of them.
    small: i128,
    /// Sum of all other literals.
    wide: Option<Box<WideSum>>,
}

#[derive(Clone, Debug)]
struct WideSum {
    limbs: [i64; LIMBS],
    terms: u32,
}

impl Sum {
    /// Returns whether a literal is in the range of a sum.
    pub(crate) fn accepts(literal: &[u8]) -> bool {
        small(literal).is_some() || Self::in_range(&Number::parse(literal))
    }

    fn in_range(number: &Number<'_>) -> bool {
        let count = signed(number.digits().count());
        number.is_zero()
            || (number.exponent <= EXPONENT_MAX && number.exponent - count >= EXPONENT_MIN)
    }

    /// Adds a literal. Returns `false` and adds nothing if it is out of range.
    #[must_use]
    pub(crate) fn add(&mut self, literal: &[u8]) -> bool {
        if let Some(integer) = small(literal) {
            self.small = self.small.saturating_add(i128::from(integer));
            return true;
        }
        let number = Number::parse(literal);
        if !Self::in_range(&number) {
            return false;
        }
        if !number.is_zero() {
            self.restore(&number);
        }
        true
    }

    /// Adds an earlier value of a sum, which may exceed the range of a term.
    pub(crate) fn restore(&mut self, number: &Number<'_>) {
        let wide = self.wide.get_or_insert_with(|| {
            Box::new(WideSum {
                limbs: [0; LIMBS],
                terms: 0,
            })
        });
        wide.add(number);
    }

    /// Returns the exact value.
    pub(crate) fn value(&self) -> Decimal {
        let small = self.small.to_string();
        let small = Number::parse(small.as_bytes());
        let Some(wide) = &self.wide else {
            return Decimal::of(&small);
        };
        let mut wide = wide.clone();
        if !small.is_zero() {
            wide.add(&small);
        }
        wide.value()
    }
}

/// Parses an integer of up to 18 digits.
fn small(literal: &[u8]) -> Option<i64> {
    let (negative, digits) = match literal.split_first()? {
        (b'-', digits) => (true, digits),
        _ => (false, literal),
    };
    if digits.len() > 18 {
        return None;
    }
    let mut value = 0i64;
    for byte in digits {
        if !byte.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i64::from(byte - b'0');
    }
    Some(if negative { -value } else { value })
}

/// Appends a literal as a JSON number. Equal values give equal bytes.
pub(crate) fn write_literal(literal: &[u8], out: &mut Vec<u8>) {
    let number = Number::parse(literal);
    if number.exponent.unsigned_abs() < EXACT_BELOW {
        return Decimal::of(&number).write(out);
    }
    // The exponent may have any size, so the scanner parses it.
    let Some(whole) = weir_scan::Number::parse(literal) else {
        return;
    };
    if number.negative {
        out.push(b'-');
    }
    put_scientific(number.digits().map(|digit| digit + b'0'), out);
    whole.write_power(out);
}

/// Appends the digits, the first of them before the point, and `e`.
fn put_scientific(mut digits: impl Iterator<Item = u8>, out: &mut Vec<u8>) {
    out.extend(digits.next());
    let point = out.len();
    out.extend(digits);
    if out.len() > point {
        out.insert(point, b'.');
    }
    out.push(b'e');
}

impl WideSum {
    fn add(&mut self, number: &Number<'_>) {
        let mut power = number.exponent - 1 - EXPONENT_MIN;
        for digit in number.digits() {
            let (limb, within) = (power.div_euclid(LIMB_DIGITS), power.rem_euclid(LIMB_DIGITS));
            let within = to_u32(within, "a remainder of a positive number is not negative");
            let digit = i64::from(digit) * 10i64.pow(within);
            let limb = usize::try_from(limb).ok();
            if let Some(limb) = limb.and_then(|limb| self.limbs.get_mut(limb)) {
                *limb += if number.negative { -digit } else { digit };
            }
            power -= 1;
        }
        self.terms += 1;
        if self.terms >= TERMS_MAX {
            self.carry();
        }
    }

    /// Propagates carries, so that all limbs except the last are in 0..10^9.
    fn carry(&mut self) {
        self.terms = 0;
        let mut carry = 0;
        let last = LIMBS - 1;
        for (at, limb) in self.limbs.iter_mut().enumerate() {
            *limb += carry;
            carry = 0;
            if at != last {
                carry = limb.div_euclid(LIMB);
                *limb = limb.rem_euclid(LIMB);
            }
        }
    }

    fn value(mut self) -> Decimal {
        self.carry();
        let negative = self.limbs.last().is_some_and(|limb| *limb < 0);
        if negative {
            for limb in &mut self.limbs {
                *limb = -*limb;
            }
            self.carry();
        }
        let mut digits = Vec::with_capacity(LIMBS * 9);
        for limb in self.limbs.iter().rev() {
            let mut unit = LIMB / 10;
            while unit > 0 {
                let digit = limb / unit % 10;
                digits.push(to_u8(digit, "it is a decimal digit"));
                unit /= 10;
            }
        }
        let exponent = EXPONENT_MIN + signed(digits.len());
        Decimal::normal(negative, digits, exponent)
    }
}

/// A number of a result: `0.DIGITS * 10^exponent`, without zeros at either end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    negative: bool,
    exponent: i64,
    digits: Vec<u8>,
}

impl Decimal {
    /// Converts a literal.
    pub(crate) fn of(number: &Number<'_>) -> Self {
        Self::normal(number.negative, number.digits().collect(), number.exponent)
    }

    fn normal(negative: bool, mut digits: Vec<u8>, mut exponent: i64) -> Self {
        while digits.last() == Some(&0) {
            digits.pop();
        }
        let lead = digits.iter().take_while(|digit| **digit == 0).count();
        digits.drain(..lead);
        exponent -= signed(lead);
        if digits.is_empty() {
            exponent = 0;
        }
        Self {
            negative: negative && !digits.is_empty(),
            exponent,
            digits,
        }
    }

    /// Divides by `count`, rounded half to even at 17 significant digits. `count` must not
    /// be 0.
    pub(crate) fn divided(&self, count: u64) -> Self {
        let count = u128::from(count.max(1));
        let mut quotient: Vec<u8> = Vec::with_capacity(QUOTIENT_DIGITS + 1);
        let (mut rest, mut exponent, mut at) = (0u128, self.exponent, 0);
        while quotient.len() <= QUOTIENT_DIGITS && (at < self.digits.len() || rest != 0) {
            rest = rest * 10 + u128::from(self.digits.get(at).copied().unwrap_or(0));
            at += 1;
            let digit = to_u8(rest / count, "the rest is below ten times the count");
            rest %= count;
            if quotient.is_empty() && digit == 0 {
                exponent -= 1;
            } else {
                quotient.push(digit);
            }
        }
        let sticky = rest != 0 || self.digits.get(at..).is_some_and(|left| !left.is_empty());
        if quotient.len() > QUOTIENT_DIGITS {
            let Some(guard) = quotient.pop() else {
                unreachable!("the quotient is not empty")
            };
            let odd = quotient.last().is_some_and(|digit| digit % 2 == 1);
            if guard > 5 || (guard == 5 && (sticky || odd)) {
                let mut up = true;
                for digit in quotient.iter_mut().rev() {
                    up = *digit == 9;
                    *digit = if up { 0 } else { *digit + 1 };
                    if !up {
                        break;
                    }
                }
                if up {
                    quotient.insert(0, 1);
                    exponent += 1;
                }
            }
        }
        Self::normal(self.negative, quotient, exponent)
    }

    /// Appends the number as a JSON number. Equal values give equal bytes.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let count = signed(self.digits.len());
        let digits = |from: usize, to: usize| {
            let digits = self.digits.get(from..to.min(self.digits.len()));
            digits.unwrap_or_default().iter().map(|digit| digit + b'0')
        };
        if self.digits.is_empty() {
            out.push(b'0');
            return;
        }
        if self.negative {
            out.push(b'-');
        }
        let point = self.exponent;
        if point > 0 && point <= PLAIN_BEFORE {
            let before = to_usize(point, "it is positive here");
            out.extend(digits(0, before));
            out.extend(std::iter::repeat_n(
                b'0',
                before.saturating_sub(self.digits.len()),
            ));
            if count > point {
                out.push(b'.');
                out.extend(digits(before, usize::MAX));
            }
        } else if point <= 0 && point > -PLAIN_AFTER {
            out.extend_from_slice(b"0.");
            out.extend(std::iter::repeat_n(
                b'0',
                to_usize(-point, "it is not positive here"),
            ));
            out.extend(digits(0, usize::MAX));
        } else {
            put_scientific(digits(0, usize::MAX), out);
            out.extend_from_slice((point - 1).to_string().as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Sum;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    fn sum(terms: &[&str]) -> String {
        let mut sum = Sum::default();
        for term in terms {
            assert!(sum.add(term.as_bytes()), "{term}");
        }
        text(|out| sum.value().write(out))
    }

    #[test]
    fn sums_are_exact() {
        assert_eq!(sum(&[]), "0");
        assert_eq!(sum(&["0.1", "0.2"]), "0.3");
        assert_eq!(sum(&["1", "-1.0", "-0"]), "0");
        assert_eq!(sum(&["-5", "2.5"]), "-2.5");
        assert_eq!(sum(&["9223372036854775807", "1"]), "9223372036854775808");
        assert_eq!(
            sum(&["170141183460469231731687303715884105727", "1"]),
            "170141183460469231731687303715884105728"
        );
        assert_eq!(sum(&["1e400", "1e-400", "-1e400"]), "1e-400");
        assert_eq!(sum(&["1e20", "1"]), "100000000000000000001");
        assert_eq!(sum(&["-0.001", "0.0005"]), "-0.0005");
        let mut sum = Sum::default();
        for outside in [
            "1e401",
            "-1e999999999999999999999",
            "1e-406",
            "1e-99999999999",
        ] {
            assert!(!sum.add(outside.as_bytes()), "{outside}");
        }
        assert_eq!(text(|out| sum.value().write(out)), "0");
    }

    #[test]
    fn quotients_are_rounded_half_to_even() {
        let avg = |terms: &[&str], count: u64| {
            let mut sum = Sum::default();
            assert!(terms.iter().all(|term| sum.add(term.as_bytes())));
            text(|out| sum.value().divided(count).write(out))
        };
        assert_eq!(avg(&["1", "2"], 2), "1.5");
        assert_eq!(avg(&["1"], 3), "0.33333333333333333");
        assert_eq!(avg(&["2"], 3), "0.66666666666666667");
        assert_eq!(avg(&["-20"], 3), "-6.6666666666666667");
        assert_eq!(avg(&["10000000000000000.5"], 1), "10000000000000000");
        assert_eq!(avg(&["10000000000000001.5"], 1), "10000000000000002");
        assert_eq!(avg(&["99999999999999999.5"], 1), "100000000000000000");
        assert_eq!(avg(&["0"], 7), "0");
        assert_eq!(avg(&["1000"], 10), "100");
    }

    #[test]
    fn equal_numbers_have_equal_text() {
        let check = |literal: &str, expect: &str| {
            assert_eq!(text_of(literal), expect, "{literal}");
        };
        check("1", "1");
        check("1.0", "1");
        check("1e0", "1");
        check("-0.0e5", "0");
        check("120e-1", "12");
        check("0.00001", "0.00001");
        check("0.0000001", "1e-7");
        check("12.5e60", "1.25e61");
        check("1E3", "1000");
        check("-1.50", "-1.5");
        // Exponents that exceed a machine integer.
        check("1e2305843009213693953", "1e2305843009213693953");
        check("-1e-2305843009213693953", "-1e-2305843009213693953");
        check("10e9223372036854775807", "1e9223372036854775808");
        check("0.001e9223372036854775809", "1e9223372036854775806");
        check("1e9223372036854775806", "1e9223372036854775806");
        check("0.12e-9223372036854775808", "1.2e-9223372036854775809");
        check("0e99999999999999999999999", "0");
        check("1e00000000000000000000000000002", "100");
    }

    /// Writes a value with its point at every position and the matching exponent.
    #[test]
    fn numbers_of_any_size_have_equal_text_only_if_equal() {
        let mut power: i128 = 1;
        for step in 0..120_i128 {
            power = power * 7 + step;
            if power.abs() > 1 << 110 {
                power = step;
            }
            for power in [power, -power] {
                for (digits, text) in [
                    ("1", "1"),
                    ("25", "2.5"),
                    ("9007199254740993", "9.007199254740993"),
                ] {
                    let expect = format!("{text}e{power}");
                    let plain = (-6..=39).contains(&power);
                    for before in 0..=digits.len() {
                        let (whole, fraction) = digits.split_at(before);
                        let point = i128::try_from(before).unwrap_or(0);
                        let dot = if fraction.is_empty() { "" } else { "." };
                        let whole = if whole.is_empty() { "0" } else { whole };
                        let literal = format!("{whole}{dot}{fraction}e{}", power + 1 - point);
                        let written = text_of(&literal);
                        assert!(plain || written == expect, "{literal}: {written}, {expect}");
                        // With an additional leading zero.
                        let less = i128::from(dot.is_empty());
                        let padded =
                            format!("{whole}{dot}{fraction}0e{}", power + 1 - point - less);
                        assert_eq!(written, text_of(&padded), "{padded}");
                        let other = format!("{whole}{dot}{fraction}e{}", power + 2 - point);
                        assert_ne!(written, text_of(&other), "{literal}");
                    }
                }
            }
        }
    }

    fn text_of(literal: &str) -> String {
        text(|out| super::write_literal(literal.as_bytes(), out))
    }
}
