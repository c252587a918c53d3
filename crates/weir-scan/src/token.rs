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
