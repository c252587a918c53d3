//! Exact comparison of numbers by their literals, of any length, without floats.
//!
//! A literal is interpreted as `0.d1d2d3… × 10^magnitude` with d1 not zero. Two numbers of one
//! sign compare by magnitude, then digit by digit. An exponent may have any number of digits, so
//! magnitudes are compared without being computed.
//!
//! Invariant: a comparison takes time linear in the literals, and allocates no memory.

use std::cmp::Ordering;

/// A number literal of RFC 8259, split into its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number<'a> {
    negative: bool,
    /// Digits before the point.
    whole: &'a [u8],
    /// Digits after the point.
    fraction: &'a [u8],
    exponent_negative: bool,
    /// Digits of the exponent without leading zeros.
    exponent: &'a [u8],
    /// Number of zeros before the first digit that is not zero, in `whole` and `fraction` together.
    leading: usize,
}

impl<'a> Number<'a> {
    /// Splits a literal into its parts. `None` if it is not a number by RFC 8259.
    pub fn parse(literal: &'a [u8]) -> Option<Self> {
        if crate::token::number(literal, 0).ok()? != literal.len() {
            return None;
        }
        let negative = literal.first() == Some(&b'-');
        let rest = literal.get(usize::from(negative)..)?;
        let mark = rest.iter().position(|b| matches!(b, b'e' | b'E'));
        let (mantissa, exponent) = match mark {
            Some(mark) => (rest.get(..mark)?, rest.get(mark + 1..)?),
            None => (rest, &[][..]),
        };
        let point = mantissa.iter().position(|b| *b == b'.');
        let (whole, fraction) = match point {
            Some(point) => (mantissa.get(..point)?, mantissa.get(point + 1..)?),
            None => (mantissa, &[][..]),
        };
        let exponent_negative = exponent.first() == Some(&b'-');
        let signed = matches!(exponent.first(), Some(b'-' | b'+'));
        let exponent = exponent.get(usize::from(signed)..)?;
        let zeros = exponent.iter().take_while(|b| **b == b'0').count();
        let digits = whole.iter().chain(fraction);
        Some(Self {
            negative,
            whole,
            fraction,
            exponent_negative,
            exponent: exponent.get(zeros..)?,
            leading: digits.take_while(|b| **b == b'0').count(),
        })
    }

    /// Whether the number is 0, with any sign and exponent.
    pub fn is_zero(&self) -> bool {
        self.leading == self.whole.len() + self.fraction.len()
    }

    /// Whether the number is below 0; -0 is not.
    pub fn is_negative(&self) -> bool {
        self.negative && !self.is_zero()
    }

    /// The decimal digits, 0 to 9, from the first that is not 0; zeros may be at the end. Empty for
    /// 0.
    pub fn digits(&self) -> impl Iterator<Item = u8> + use<'a> {
        let digits = self.whole.iter().chain(self.fraction);
        digits.skip(self.leading).map(|b| b.wrapping_sub(b'0'))
    }

    /// The power of ten for which the value is `0.digits × 10^magnitude`. `None` if the value is 0
    /// or the power exceeds 64 bits.
    pub fn magnitude(&self) -> Option<i64> {
        let text = std::str::from_utf8(self.exponent).ok()?;
        let exponent: i64 = match text {
            "" => 0,
            digits => digits.parse().ok()?,
        };
        let exponent = if self.exponent_negative {
            -exponent
        } else {
            exponent
        };
        (!self.is_zero()).then(|| exponent.checked_add(self.shift()))?
    }

    /// Appends the power for which the value is `d.ddd… × 10^power` with the first digit not 0,
    /// in decimal, of any size. The value must not be 0.
    pub fn write_power(&self, out: &mut Vec<u8>) {
        let before = out.len();
        self.write_exponent_and(self.shift().saturating_sub(1), out);
        if out.len() == before {
            out.push(b'0');
        }
    }

    /// Appends the magnitude in decimal, of any size. Equal magnitudes give equal bytes.
    pub(crate) fn write_magnitude(&self, out: &mut Vec<u8>) {
        self.write_exponent_and(self.shift(), out);
    }

    /// Appends the sum of the exponent and the shift; appends nothing if it is 0.
    fn write_exponent_and(&self, shift: i64, out: &mut Vec<u8>) {
        // The digits of the exponent, least significant first; then the shift is added with its
        // sign.
        let same_sign = self.exponent_negative == (shift < 0);
        let mut shift = shift.unsigned_abs();
        let mut digits: Vec<i8> = Vec::with_capacity(self.exponent.len() + 20);
        let mut places = self.exponent.iter().rev();
        let mut carry = 0_i8;
        loop {
            let (place, rest) = (places.next(), shift != 0 || carry != 0);
            if place.is_none() && !rest {
                break;
            }
            let mine = i8::try_from(place.map_or(0, |b| b.wrapping_sub(b'0'))).unwrap_or(0);
            let its = i8::try_from(shift % 10).unwrap_or(0);
            shift /= 10;
            let sum = mine + if same_sign { its } else { -its } + carry;
            carry = sum.div_euclid(10);
            digits.push(sum.rem_euclid(10));
            if carry < 0 && place.is_none() && shift == 0 {
                break;
            }
        }
        // A borrow at the end means that the shift was larger, so the sum has its sign. Takes the
        // ten's complement.
        let mut negative = self.exponent_negative;
        if carry < 0 {
            negative = !negative;
            let mut borrow = 0;
            for digit in &mut digits {
                let value = -*digit - borrow;
                *digit = value.rem_euclid(10);
                borrow = i8::from(value < 0);
            }
        }
        while digits.last() == Some(&0) {
            digits.pop();
        }
        if negative && !digits.is_empty() {
            out.push(b'-');
        }
        out.extend(digits.iter().rev().map(|d| b'0' + d.unsigned_abs()));
    }

    /// The amount that the position of the point adds to the exponent.
    fn shift(&self) -> i64 {
        let whole = i64::try_from(self.whole.len()).unwrap_or(i64::MAX);
        whole - i64::try_from(self.leading).unwrap_or(i64::MAX)
    }

    fn compare_magnitude(&self, other: &Number<'_>) -> Ordering {
        // The sum of the shifts is far below this bound. Once the difference of the exponents, read
        // from the front, exceeds it, later digits cannot change the order.
        const DECIDED: i128 = 1 << 100;
        let length = self.exponent.len().max(other.exponent.len());
        let digit = |number: &Number<'_>, place: usize| {
            let index = (place + number.exponent.len()).checked_sub(length);
            let digit = index.and_then(|index| number.exponent.get(index));
            let digit = digit.map_or(0, |b| i128::from(b.wrapping_sub(b'0')));
            if number.exponent_negative {
                -digit
            } else {
                digit
            }
        };
        let mut difference: i128 = 0;
        for place in 0..length {
            difference = difference * 10 + digit(self, place) - digit(other, place);
            if difference.abs() > DECIDED {
                return difference.cmp(&0);
            }
        }
        (difference + i128::from(self.shift()) - i128::from(other.shift())).cmp(&0)
    }

    /// Orders by mathematical value.
    pub fn compare(&self, other: &Number<'_>) -> Ordering {
        let sign = |number: &Number<'_>| match (number.is_zero(), number.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        };
        let (mine, its) = (sign(self), sign(other));
        if mine != its || mine == 0 {
            return mine.cmp(&its);
        }
        let order = self.compare_magnitude(other).then_with(|| {
            let (mut a, mut b) = (self.digits(), other.digits());
            loop {
                match (a.next(), b.next()) {
                    (None, None) => return Ordering::Equal,
                    (a, b) => match a.unwrap_or(0).cmp(&b.unwrap_or(0)) {
                        Ordering::Equal => {}
                        order => return order,
                    },
                }
            }
        });
        if mine < 0 { order.reverse() } else { order }
    }
}

/// Compares two number literals exactly by mathematical value. A text that is not a number counts
/// as 0.
pub fn compare_numbers(a: &[u8], b: &[u8]) -> Ordering {
    // Most numbers are short integers: the longer number is larger; for equal lengths the bytes
    // decide.
    let plain = |n: &[u8]| !n.is_empty() && n.iter().all(u8::is_ascii_digit);
    if a.len() < 20 && b.len() < 20 && plain(a) && plain(b) {
        return a.len().cmp(&b.len()).then_with(|| a.cmp(b));
    }
    let number = |literal| Number::parse(literal).or_else(|| Number::parse(b"0"));
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a.compare(&b),
        _ => Ordering::Equal,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::{Number, compare_numbers};
    use std::cmp::Ordering;

    /// The rows ascend; values in one row are equal.
    const ROWS: &[&[&str]] = &[
        &["-1e99999999999999999999999999999999999999999999999"],
        &["-10", "-1e1", "-10.00", "-100e-1"],
        &["-9.5"],
        &["-1e-400"],
        &["0", "-0", "0.0", "0e5", "-0.000e-99999999999999999999999"],
        &["1e-99999999999999999999999999999999999999999999"],
        &[
            "1e-9999999999999999999999999999999999999999999",
            "0.1e-9999999999999999999999999999999999999999998",
        ],
        &["1e-401"],
        &["0.1", "1e-1", "0.10", "10e-2"],
        &["0.10000000000000001"],
        &["1", "1.0", "1e0", "0.1e1", "10E-1", "1e+0", "1e-0"],
        &["2"],
        &["9"],
        &["10"],
        &["9007199254740992", "9007199254740992.0"],
        &["9007199254740993"],
        &["99999999999999999999", "999999999999999999990e-1"],
        &["1e400"],
        &["1e99999999999999999999999999999999999999999999998"],
        &[
            "1e99999999999999999999999999999999999999999999999",
            "10e99999999999999999999999999999999999999999999998",
            "0.01e100000000000000000000000000000000000000000000001",
        ],
        &["1.1e99999999999999999999999999999999999999999999999"],
    ];

    #[test]
    fn numbers_compare_by_value() {
        for (i, row) in ROWS.iter().enumerate() {
            // Miri compares each row with itself and one in seven of the others.
            let step = if cfg!(miri) { 7 } else { 1 };
            for (j, other) in ROWS.iter().enumerate().skip(i % step).step_by(step) {
                for a in *row {
                    for b in *other {
                        let order = compare_numbers(a.as_bytes(), b.as_bytes());
                        assert_eq!(order, i.cmp(&j), "{a} {b}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_number_has_digits_and_a_magnitude() {
        let check = |literal: &str, digits: &[u8], magnitude: Option<i64>| {
            let number = Number::parse(literal.as_bytes()).unwrap();
            assert_eq!(number.digits().collect::<Vec<_>>(), digits, "{literal}");
            assert_eq!(number.magnitude(), magnitude, "{literal}");
        };
        check("-120.5", &[1, 2, 0, 5], Some(3));
        check("0.0012e1", &[1, 2], Some(-1));
        check("0.0", &[], None);
        check("1e99999999999999999999", &[1], None);
        let power = |literal: &str| {
            let mut out = Vec::new();
            Number::parse(literal.as_bytes())
                .unwrap()
                .write_power(&mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(power("10e-1"), "0");
        assert_eq!(power("-120.5"), "2");
        assert_eq!(power("0.001e100000000000000000000"), "99999999999999999997");
        assert_eq!(
            power("1000e-100000000000000000000"),
            "-99999999999999999997"
        );
        assert_eq!(power("0.0001e1"), "-3");
        assert!(Number::parse(b"01").is_none() && Number::parse(b"1.").is_none());
        assert!(Number::parse(b"").is_none() && Number::parse(b"-").is_none());
        assert_eq!(compare_numbers(b"x", b"1"), Ordering::Less);
    }
}
