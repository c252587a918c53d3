//! Lines of `_data_status`, each with a name and a value (docs/formats/native.md, section
//! 8).

use crate::fields::{number, put_number, put_text, text};
use crate::lines::next_line;

/// A value of a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusValue {
    /// A number; a flag is 0 or 1.
    Number(u64),
    /// A text.
    Text(String),
}

/// Appends a line. Separates it from the line before it by an LF.
pub fn write_status(out: &mut Vec<u8>, name: &str, value: &StatusValue) {
    if !out.is_empty() {
        out.push(b'\n');
    }
    out.extend_from_slice(name.as_bytes());
    out.push(b' ');
    match value {
        StatusValue::Number(n) => put_number(out, *n),
        StatusValue::Text(text) => put_text(out, text),
    }
}

/// A decoded line. The name determines whether the value is a number, and the caller knows the
/// names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusLine<'a> {
    /// Name of the value.
    pub name: &'a str,
    value: &'a [u8],
}

impl StatusLine<'_> {
    /// Returns the value as a number; `None` if it is not a number.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        number(self.value)
    }

    /// Returns the value as a text; `None` if it is malformed.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        text(self.value)
    }
}

/// Reads the lines of a status.
#[derive(Clone, Debug)]
pub struct StatusLines<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> StatusLines<'a> {
    /// Reads the lines of a message; an empty message has no lines.
    #[must_use]
    pub fn new(lines: &'a [u8]) -> Self {
        Self {
            rest: Some(lines).filter(|lines| !lines.is_empty()),
        }
    }
}

impl<'a> Iterator for StatusLines<'a> {
    /// `None` for a malformed line.
    type Item = Option<StatusLine<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = next_line(&mut self.rest)?;
        let read = split(line);
        if read.is_none() {
            self.rest = None;
        }
        Some(read)
    }
}

fn split(line: &[u8]) -> Option<StatusLine<'_>> {
    let at = line.iter().position(|&byte| byte == b' ')?;
    let (name, value) = (line.get(..at)?, line.get(at + 1..)?);
    let name = std::str::from_utf8(name)
        .ok()
        .filter(|name| !name.is_empty())?;
    Some(StatusLine { name, value })
}
