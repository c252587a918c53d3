//! Searches for the ends of items: line feeds, names and the end mark.
//!
//! Short items are scanned eight bytes at a time in plain registers, because the start-up cost of a
//! wide search exceeds the cost of most protocol lines. Long values use `memchr`. No function
//! here allocates, and each is linear in the bytes that it scans.

#![allow(
    clippy::inline_always,
    reason = "the hot loop is measured; see examples/bench.rs"
)]

use crate::class;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;
const WORD: usize = 8;
/// How many bytes [`near_lf`] scans before it leaves the line to the exact path.
const QUICK_SCAN_BYTES: usize = 160;

pub(crate) const LF: u8 = b'\n';
pub(crate) const TAB: u8 = b'\t';
pub(crate) const BAR: u8 = b'|';

/// The bytes at `at..at + 8`, the first one lowest, if the slice has them all.
#[inline(always)]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

const fn splat(byte: u8) -> u64 {
    ONES * byte as u64
}

/// Index of the lowest byte whose high bit is set in `mask`, which is not 0.
#[inline(always)]
fn lowest(mask: u64) -> usize {
    (mask.trailing_zeros() >> 3) as usize
}

/// Position of the first LF, if it is near the start. `None` does not exclude an LF further away.
#[inline(always)]
pub(crate) fn near_lf(bytes: &[u8]) -> Option<usize> {
    near(bytes, LF)
}

#[inline(always)]
fn near(bytes: &[u8], wanted: u8) -> Option<usize> {
    let mut at = 0;
    while let Some(word) = word(bytes, at) {
        let zero_where_found = word ^ splat(wanted);
        // Exact for the lowest hit: a borrow affects only bytes above it.
        let hits = zero_where_found.wrapping_sub(ONES) & !zero_where_found & HIGHS;
        if hits != 0 {
            return Some(at + lowest(hits));
        }
        at += WORD;
        if at >= QUICK_SCAN_BYTES {
            return None;
        }
    }
    let tail = bytes.get(at..)?;
    tail.iter()
        .position(|&byte| byte == wanted)
        .map(|found| at + found)
}

/// Position of the `|` of the first end mark, if it is near the start of `bytes`. `bytes` must
/// start at the start of a line. Searches for bars, because text has fewer bars than line feeds.
#[inline(always)]
pub(crate) fn near_end(bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let bar = from + near(bytes.get(from..)?, BAR)?;
        let line_start = bar == 0 || bytes.get(bar.wrapping_sub(1)) == Some(&LF);
        if line_start && *bytes.get(bar + 1)? == LF {
            return Some(bar);
        }
        from = bar + 1;
    }
}

/// Reads a number of at most nine digits and at most `max`, with `end` after it. Returns the number
/// and the count of its digits and `end`. `None` means that the exact path must decide.
#[inline(always)]
pub(crate) fn near_number(bytes: &[u8], end: u8, max: u64) -> Option<(u64, usize)> {
    let mut number = 0u64;
    for (place, &byte) in bytes.iter().take(10).enumerate() {
        if byte == end {
            return (place != 0 && number <= max).then_some((number, place + 1));
        }
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + u64::from(digit);
    }
    None
}

/// `from` plus the number of keyword bytes that start there.
#[inline(always)]
pub(crate) fn keyword_len(bytes: &[u8], from: usize) -> usize {
    let Some(rest) = bytes.get(from..) else {
        return from;
    };
    let mut at = from;
    let (chunks, tail) = rest.as_chunks::<WORD>();
    for chunk in chunks {
        for (place, &byte) in chunk.iter().enumerate() {
            if !class::is_keyword_byte(byte) {
                return at + place;
            }
        }
        at += WORD;
    }
    at + tail
        .iter()
        .take_while(|&&byte| class::is_keyword_byte(byte))
        .count()
}

/// The part of LF `|` LF that ends directly before a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// No part of it.
    None,
    /// LF: the position is the start of a line.
    Line,
    /// LF `|`.
    Bar,
}

/// Searches `bytes` for the LF that completes a delimiter, where `mark` precedes `bytes`. `Ok` has
/// its position. `Err` has the mark at the end if there is no such LF.
#[inline]
pub(crate) fn end_mark(bytes: &[u8], mark: Mark) -> Result<usize, Mark> {
    let Some(&last) = bytes.last() else {
        return Err(mark);
    };
    if mark == Mark::Bar && bytes.first() == Some(&LF) {
        return Ok(0);
    }
    for bar in memchr::memchr_iter(BAR, bytes) {
        let line_start = match bar.checked_sub(1) {
            Some(before) => bytes.get(before) == Some(&LF),
            None => mark == Mark::Line,
        };
        if line_start {
            match bytes.get(bar + 1) {
                Some(&LF) => return Ok(bar + 1),
                Some(_) => {}
                None => return Err(Mark::Bar),
            }
        }
    }
    Err(if last == LF { Mark::Line } else { Mark::None })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;

    #[test]
    fn lengths_and_line_feeds_are_found_at_every_offset() {
        for len in 0..40 {
            for tail in 0..12 {
                let mut bytes = alloc::vec![b'k'; len];
                bytes.push(LF);
                bytes.extend(core::iter::repeat_n(b'z', tail));
                assert_eq!(near_lf(&bytes), Some(len));
                assert_eq!(keyword_len(&bytes, 0), len);
                assert_eq!(near_lf(&bytes[..len]), None);
                assert_eq!(keyword_len(&bytes[..len], 0), len);
            }
        }
        assert_eq!(
            near_lf(&[0x0b, 0x0a, 0x0b, 0x0b, 0x0b, 0x0b, 0x0b, 0x0b]),
            Some(1)
        );
    }

    #[test]
    fn end_mark_is_found_in_two_parts_at_every_split() {
        let text = b"a\n|b\n||\n\n|\n";
        assert_eq!(end_mark(text, Mark::None), Ok(text.len() - 1));
        for cut in 0..text.len() {
            let mark = end_mark(&text[..cut], Mark::None).unwrap_err();
            assert_eq!(
                end_mark(&text[cut..], mark),
                Ok(text.len() - 1 - cut),
                "cut {cut}"
            );
        }
        assert_eq!(end_mark(b"|\n", Mark::Line), Ok(1));
        assert_eq!(end_mark(b"|\n", Mark::None), Err(Mark::Line));
    }
}
