//! Single tokens of RFC 8259: white space, numbers, literals, escapes.
//!
//! Invariant: a returned offset is at most the length of the slice.

use crate::error::ScanErrorKind;
use crate::kernel::scalar::{Fault, string_or_fault};
use crate::kernel::{Kernel, SkippedString};

/// Offset of the first byte from `at` that is not white space, or the length.
#[inline]
pub(crate) fn blanks(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(at) {
        at += 1;
    }
    at
}

/// The error for an unexpected byte, or for an unexpected end.
pub(crate) fn unexpected(bytes: &[u8], at: usize) -> Fault {
    if at < bytes.len() {
        (ScanErrorKind::NotJson, at)
    } else {
        (ScanErrorKind::Unbalanced, bytes.len())
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = ONES * 0x80;

/// Finds `byte` in `word`: the top bit of its first occurrence is set, and no top bit before it.
/// Later bits are arbitrary.
fn first(word: u64, byte: u64) -> u64 {
    let other = word ^ (ONES * byte);
    other.wrapping_sub(ONES) & !other & TOPS
}

/// Eight bytes from `at` as a number; the first byte is the lowest.
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Reads a short string whose first byte is at `at`, and checks its escapes. `None` if a kernel
/// must read it: it is long, near the end of the page, or faulty. Faster than a kernel for names
/// and titles, which are the largest part of most pages.
#[inline]
pub(crate) fn short_string(bytes: &[u8], at: usize) -> Option<SkippedString> {
    let mut at = at;
    let (mut high, mut escaped) = (0, false);
    for _ in 0..SHORT_WORDS {
        let word = word(bytes, at)?;
        let control = word.wrapping_sub(ONES * 0x20) & !word & TOPS;
        let marks = first(word, 0x22) | first(word, 0x5c) | control;
        high |= word & TOPS;
        if marks == 0 {
            at += 8;
            continue;
        }
        let place = at + marks.trailing_zeros() as usize / 8;
        match bytes.get(place) {
            Some(b'"') => {
                return Some(SkippedString {
                    close: place,
                    high: high != 0,
                    escaped,
                });
            }
            Some(b'\\') => at = escape(bytes, place).ok()?,
            _ => return None,
        }
        escaped = true;
    }
    None
}

/// Limit on the iterations for a short string, each over eight bytes or one escape.
const SHORT_WORDS: usize = 8;

fn digits(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b'0'..=b'9') = bytes.get(at) {
        at += 1;
    }
    at
}

/// End of the number that begins at `at`.
pub(crate) fn number(bytes: &[u8], at: usize) -> Result<usize, Fault> {
    let start = at + usize::from(bytes.get(at) == Some(&b'-'));
    let mut end = match bytes.get(start) {
        Some(b'0') => start + 1,
        Some(b'1'..=b'9') => digits(bytes, start + 1),
        _ => return Err(unexpected(bytes, start)),
    };
    if bytes.get(end) == Some(&b'.') {
        let part = digits(bytes, end + 1);
        if part == end + 1 {
            return Err(unexpected(bytes, part));
        }
        end = part;
    }
    if let Some(b'e' | b'E') = bytes.get(end) {
        let sign = matches!(bytes.get(end + 1), Some(b'+' | b'-'));
        let start = end + 1 + usize::from(sign);
        end = digits(bytes, start);
        if end == start {
            return Err(unexpected(bytes, end));
        }
    }
    Ok(end)
}

/// End of the literal `word` that begins at `at`.
pub(crate) fn literal(bytes: &[u8], at: usize, word: &[u8]) -> Result<usize, Fault> {
    for (index, byte) in word.iter().enumerate() {
        if bytes.get(at + index) != Some(byte) {
            return Err(unexpected(bytes, at + index));
        }
    }
    Ok(at + word.len())
}

/// End of the escape whose backslash is at `at`.
fn escape(bytes: &[u8], at: usize) -> Result<usize, Fault> {
    match bytes.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') => {
            for place in at + 2..at + 6 {
                if !bytes.get(place).is_some_and(u8::is_ascii_hexdigit) {
                    return Err((ScanErrorKind::NotJson, place));
                }
            }
            Ok(at + 6)
        }
        _ => Err((ScanErrorKind::NotJson, at + 1)),
    }
}

/// Reads a string with its opening quote at `at` that `short_string` has not read, and checks its
/// escapes.
pub(crate) fn long_string(
    kernel: &Kernel,
    bytes: &[u8],
    at: usize,
) -> Result<SkippedString, Fault> {
    let passed = match kernel.string(bytes, at + 1) {
        Some(passed) => passed,
        None => string_or_fault(bytes, at + 1).map_err(|fault| {
            // A faulty escape may be before the fault that was found.
            let before = escapes(bytes, at + 1, fault.1);
            before.err().unwrap_or(fault)
        })?,
    };
    if passed.escaped {
        escapes(bytes, at + 1, passed.close)?;
    }
    Ok(passed)
}

/// Checks the escapes of the string between its quotes, `bytes[start..end]`.
fn escapes(bytes: &[u8], start: usize, end: usize) -> Result<(), Fault> {
    let mut at = start;
    while at < end {
        if bytes.get(at) == Some(&b'\\') {
            at = escape(bytes, at)?;
        } else if word(bytes, at).is_some_and(|word| first(word, 0x5c) == 0) {
            at += 8;
        } else {
            at += 1;
        }
    }
    Ok(())
}
