//! Destinations of rendered bytes: a slice that is large enough, or a growing vector.

use alloc::vec::Vec;

/// Maximum number of digits of a 64-bit number.
const DIGITS_MAX: usize = 20;

/// A sink that accepts all bytes. Callers check the size first.
pub(crate) trait Output {
    fn put(&mut self, bytes: &[u8]);

    fn byte(&mut self, byte: u8) {
        self.put(&[byte]);
    }

    /// Writes `number` in decimal, without leading zeros.
    fn number(&mut self, number: u64) {
        let mut digits = [0u8; DIGITS_MAX];
        let mut rest = number;
        let mut count = 0;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
            count += 1;
            if rest == 0 {
                break;
            }
        }
        self.put(digits.get(DIGITS_MAX - count..).unwrap_or_default());
    }
}

/// Number of decimal digits of `number`.
pub(crate) const fn digits(number: u64) -> u64 {
    match number.checked_ilog10() {
        Some(log) => log as u64 + 1,
        None => 1,
    }
}

impl Output for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Fills a slice from the front. Drops bytes that do not fit and records that it did so.
pub(crate) struct SliceWriter<'a> {
    rest: &'a mut [u8],
    pub(crate) overflow: bool,
}

impl<'a> SliceWriter<'a> {
    pub(crate) fn new(slice: &'a mut [u8]) -> SliceWriter<'a> {
        SliceWriter {
            rest: slice,
            overflow: false,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.rest.is_empty()
    }
}

impl Output for SliceWriter<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let rest = core::mem::take(&mut self.rest);
        match rest.split_at_mut_checked(bytes.len()) {
            Some((front, after)) => {
                front.copy_from_slice(bytes);
                self.rest = after;
            }
            None => self.overflow = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_computed_number_of_digits() {
        let edges = (0..20).flat_map(|power| {
            let edge = 10u64.pow(power);
            [edge - 1, edge, edge + 1]
        });
        for number in edges.chain([u64::MAX]) {
            let mut out = Vec::new();
            out.number(number);
            assert_eq!(out, alloc::format!("{number}").into_bytes());
            assert_eq!(out.len() as u64, digits(number));
        }
    }
}
