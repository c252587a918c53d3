//! Single tokens of RFC 8259: white space, numbers, literals, escapes.
//!
//! Invariant: an offset that is returned is at most the length of the slice.

use crate::error::ScanErrorKind;
use crate::kernel::scalar::Fault;

/// The first byte from `at` on that is not white space, or the length.
#[inline]
pub(crate) fn blanks(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(at) {
        at += 1;
    }
    at
}

/// The error for a byte that does not belong where it is; or the end, where something is missing.
pub(crate) fn unexpected(bytes: &[u8], at: usize) -> Fault {
    if at < bytes.len() {
        (ScanErrorKind::NotJson, at)
    } else {
        (ScanErrorKind::Unbalanced, bytes.len())
    }
}

/// The closing quote of a short string of ordinary ASCII whose first byte is at `at`; `None` if the
/// string is long or holds anything else, and a kernel must look at it.
#[inline]
pub(crate) fn short_string(bytes: &[u8], at: usize) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = ONES * 0x80;
    let mut at = at;
    for _ in 0..SHORT_WORDS {
        let word = u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
        // The top bit of each byte that is a quote, a backslash, a control character or not ASCII.
        // A borrow may mark the byte after a marked one: only the first mark is looked at.
        let is = |byte: u64| {
            let other = word ^ (ONES * byte);
            other.wrapping_sub(ONES) & !other
        };
        let control = word.wrapping_sub(ONES * 0x20) & !word;
        let marks = (is(0x22) | is(0x5c) | control | word) & TOPS;
        if marks != 0 {
            let place = at + marks.trailing_zeros() as usize / 8;
            return (bytes.get(place) == Some(&b'"')).then_some(place);
        }
        at += 8;
    }
    None
}

/// How many times eight bytes a short string is looked at.
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

/// Checks the escapes of the string between its quotes, `bytes[start..end]`.
pub(crate) fn escapes(bytes: &[u8], start: usize, end: usize) -> Result<(), Fault> {
    let mut at = start;
    while at < end {
        if bytes.get(at) != Some(&b'\\') {
            at += 1;
            continue;
        }
        at += 2;
        match bytes.get(at - 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {}
            Some(b'u') => {
                for _ in 0..4 {
                    if !bytes.get(at).is_some_and(u8::is_ascii_hexdigit) {
                        return Err((ScanErrorKind::NotJson, at));
                    }
                    at += 1;
                }
            }
            _ => return Err((ScanErrorKind::NotJson, at - 1)),
        }
    }
    Ok(())
}
