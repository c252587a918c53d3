//! Checks a whole value by RFC 8259, without recursion.
//!
//! Invariant: memory is one bit for each level, for at most `DEPTH_LIMIT` levels.

use crate::error::ScanErrorKind;
use crate::kernel::Kernel;
use crate::kernel::scalar::Fault;
use crate::plan::DEPTH_LIMIT;
use crate::token::{self, blanks, literal, number, unexpected};

const WORDS: usize = DEPTH_LIMIT as usize / 64;

/// The kinds of the open brackets, the innermost last.
struct Levels {
    curly: [u64; WORDS],
    count: u32,
    max: u32,
}

impl Levels {
    fn push(&mut self, curly: bool, at: usize) -> Result<(), Fault> {
        if self.count >= self.max {
            return Err((ScanErrorKind::TooDeep, at));
        }
        if let Some(word) = self.curly.get_mut(self.count as usize / 64) {
            let bit = 1 << (self.count % 64);
            *word = if curly { *word | bit } else { *word & !bit };
        }
        self.count += 1;
        Ok(())
    }

    /// Whether the innermost bracket is an object; `None` outside of all brackets.
    fn top(&self) -> Option<bool> {
        let last = self.count.checked_sub(1)?;
        let word = self.curly.get(last as usize / 64)?;
        Some(word >> (last % 64) & 1 == 1)
    }
}

/// Result of a walk over a value.
pub(crate) struct WalkResult {
    /// Offset of the first byte after the value.
    pub(crate) end: usize,
    /// Whether the value may contain bytes that are not ASCII.
    pub(crate) high: bool,
}

/// Checks the value that begins at `at`, in which at most `max` levels may be open.
pub(crate) fn value(
    kernel: &Kernel,
    bytes: &[u8],
    at: usize,
    max: u32,
) -> Result<WalkResult, Fault> {
    let mut levels = Levels {
        curly: [0; WORDS],
        count: 0,
        max: max.min(DEPTH_LIMIT),
    };
    let (mut at, mut high) = (at, false);
    loop {
        // A value begins here.
        match bytes.get(at) {
            Some(&open @ (b'{' | b'[')) => {
                levels.push(open == b'{', at)?;
                at = blanks(bytes, at + 1);
                if bytes.get(at) == Some(&(open + 2)) {
                    // An empty container: the codes of `}` and `]` are two above those of their
                    // opening brackets.
                    levels.count -= 1;
                    at += 1;
                } else {
                    if open == b'{' {
                        at = name(kernel, bytes, at, &mut high)?;
                    }
                    continue;
                }
            }
            Some(b'"') => at = string(kernel, bytes, at, &mut high)?,
            Some(b'-' | b'0'..=b'9') => at = number(bytes, at)?,
            Some(b't') => at = literal(bytes, at, b"true")?,
            Some(b'f') => at = literal(bytes, at, b"false")?,
            Some(b'n') => at = literal(bytes, at, b"null")?,
            _ => return Err(unexpected(bytes, at)),
        }
        // A value has ended here.
        loop {
            let Some(object) = levels.top() else {
                return Ok(WalkResult { end: at, high });
            };
            at = blanks(bytes, at);
            match (bytes.get(at), object) {
                (Some(b','), _) => {
                    at = blanks(bytes, at + 1);
                    if object {
                        at = name(kernel, bytes, at, &mut high)?;
                    }
                    break;
                }
                (Some(b'}'), true) | (Some(b']'), false) => {
                    levels.count -= 1;
                    at += 1;
                }
                (Some(b'}' | b']'), _) => return Err((ScanErrorKind::Unbalanced, at)),
                _ => return Err(unexpected(bytes, at)),
            }
        }
    }
}

/// Reads a member name and its colon; returns the position of the value.
fn name(kernel: &Kernel, bytes: &[u8], at: usize, high: &mut bool) -> Result<usize, Fault> {
    if bytes.get(at) != Some(&b'"') {
        return Err(unexpected(bytes, at));
    }
    let at = blanks(bytes, string(kernel, bytes, at, high)?);
    if bytes.get(at) != Some(&b':') {
        return Err(unexpected(bytes, at));
    }
    Ok(blanks(bytes, at + 1))
}

fn string(kernel: &Kernel, bytes: &[u8], at: usize, high: &mut bool) -> Result<usize, Fault> {
    let passed = match token::short_string(bytes, at + 1) {
        Some(passed) => passed,
        None => token::long_string(kernel, bytes, at)?,
    };
    *high |= passed.high;
    Ok(passed.close + 1)
}
