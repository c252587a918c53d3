//! The portable kernel, byte by byte; and the one that says what is wrong and where.
//!
//! Invariant: `pass` and `pass_or_fault` accept the same inputs; every other kernel is tested against
//! this one, and this one against a recursive oracle in the tests.

use super::{Kernel, Open, Passed, PassedString, Simd};
use crate::error::ScanErrorKind;

pub(super) static KERNEL: Kernel = Kernel {
    simd: Simd::Scalar,
    pass,
    string,
    line,
    utf8,
};

/// What is wrong, and the offset of the first offending byte.
pub(crate) type Fault = (ScanErrorKind, usize);

fn pass(bytes: &[u8], at: usize, open: Open) -> Option<Passed> {
    pass_or_fault(bytes, at, open).ok()
}

fn string(bytes: &[u8], at: usize) -> Option<PassedString> {
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

/// Passes from `at` to after the bracket that closes the last of those that are open.
pub(crate) fn pass_or_fault(bytes: &[u8], at: usize, open: Open) -> Result<Passed, Fault> {
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
                    return Ok(Passed {
                        end: at + 1,
                        high: high >= 0x80,
                    });
                }
            }
            // Nothing of JSON has one outside of a string, and whether it would escape a quote there
            // is not a question to have two answers to.
            b'\\' => return Err((ScanErrorKind::NotJson, at)),
            _ => {}
        }
        at += 1;
    }
    Err((ScanErrorKind::Unbalanced, bytes.len()))
}

/// Passes from `at`, just after an opening quote, to the closing one.
pub(crate) fn string_or_fault(bytes: &[u8], at: usize) -> Result<PassedString, Fault> {
    let (mut high, mut escaped) = (0, false);
    let mut place = at;
    while let Some(&byte) = bytes.get(place) {
        high |= byte;
        match byte {
            b'"' => {
                return Ok(PassedString {
                    close: place,
                    high: high >= 0x80,
                    escaped,
                });
            }
            b'\\' => {
                escaped = true;
                // The next byte is not a quote, whatever it is; a control character stays one.
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
