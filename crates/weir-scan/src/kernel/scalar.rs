//! The portable kernel, byte by byte. It also finds the kind and the position of a fault.
//!
//! Invariant: an input that `pass` accepts is an input that `pass_or_fault` accepts, and
//! conversely. Tests compare every other kernel with this kernel, and this kernel with a recursive
//! oracle.

use super::{Kernel, Open, Simd, SkippedRun, SkippedString};
use crate::error::ScanErrorKind;

pub(super) static KERNEL: Kernel = Kernel {
    simd: Simd::Scalar,
    pass,
    string,
    line,
    utf8,
};

/// The kind of a fault, and the offset of the first offending byte.
pub(crate) type Fault = (ScanErrorKind, usize);

fn pass(bytes: &[u8], at: usize, open: Open) -> Option<SkippedRun> {
    pass_or_fault(bytes, at, open).ok()
}

fn string(bytes: &[u8], at: usize) -> Option<SkippedString> {
    string_or_fault(bytes, at).ok()
}

fn line(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or(&[]);
    let found = rest.iter().position(|b| *b == b'\n');
    found.map_or(bytes.len(), |found| at + found)
}

fn utf8(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok()
}

/// Skips from `at` to after the bracket that closes all open brackets.
pub(crate) fn pass_or_fault(bytes: &[u8], at: usize, open: Open) -> Result<SkippedRun, Fault> {
    let (mut total, mut curly) = (open.total, i64::from(open.curly));
    let mut high = 0;
    let mut at = at;
    while let Some(&byte) = bytes.get(at) {
        high |= byte;
        match byte {
            b'"' => {
                let passed = string_or_fault(bytes, at + 1)?;
                high |= u8::from(passed.high) << 7;
                at = passed.close;
            }
            b'{' | b'[' => {
                if total >= open.max {
                    return Err((ScanErrorKind::TooDeep, at));
                }
                total += 1;
                curly += i64::from(byte == b'{');
            }
            b'}' | b']' => {
                total -= 1;
                curly -= i64::from(byte == b'}');
                if total == 0 {
                    if curly != 0 {
                        return Err((ScanErrorKind::Unbalanced, at));
                    }
                    return Ok(SkippedRun {
                        end: at + 1,
                        high: high >= 0x80,
                    });
                }
            }
            // JSON has no backslash outside of a string. Rejecting it avoids the question whether
            // it escapes a following quote.
            b'\\' => return Err((ScanErrorKind::NotJson, at)),
            _ => {}
        }
        at += 1;
    }
    Err((ScanErrorKind::Unbalanced, bytes.len()))
}

/// Skips from `at`, just after an opening quote, to the closing quote.
pub(crate) fn string_or_fault(bytes: &[u8], at: usize) -> Result<SkippedString, Fault> {
    let (mut high, mut escaped) = (0, false);
    let mut place = at;
    while let Some(&byte) = bytes.get(place) {
        high |= byte;
        match byte {
            b'"' => {
                return Ok(SkippedString {
                    close: place,
                    high: high >= 0x80,
                    escaped,
                });
            }
            b'\\' => {
                escaped = true;
                // The escaped byte never closes the string; a control character is still a fault.
                if let Some(&next) = bytes.get(place + 1)
                    && next >= 0x20
                {
                    high |= next;
                    place += 1;
                }
            }
            0..0x20 => return Err((ScanErrorKind::ControlCharacter, place)),
            _ => {}
        }
        place += 1;
    }
    Err((ScanErrorKind::UnterminatedString, at - 1))
}
