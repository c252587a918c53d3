//! A position in the text of a path or expression, with the lexical rules of RFC 9535.
//!
//! Invariant: an error names the first byte that violates the grammar.

use crate::error::{PathError, PathErrorKind};

/// Largest index of RFC 9535 (2.1): the I-JSON range.
const INDEX_MAX: u64 = (1 << 53) - 1;

/// A position in a text.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    pub(crate) text: &'a str,
    pub(crate) at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The byte at this position; `None` at the end.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The remaining text.
    pub(crate) fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    /// Consumes `token` if the remaining text begins with it. Returns whether it did.
    pub(crate) fn eat(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    /// Consumes `token`, or fails.
    pub(crate) fn expect(&mut self, token: &str, name: &'static str) -> Result<(), PathError> {
        if self.eat(token) {
            Ok(())
        } else {
            Err(self.syntax(name))
        }
    }

    /// A syntax error at this position.
    pub(crate) fn syntax(&self, expected: &'static str) -> PathError {
        self.error(PathErrorKind::Syntax(expected))
    }

    /// An error of the given kind at this position.
    pub(crate) fn error(&self, kind: PathErrorKind) -> PathError {
        PathError {
            kind,
            offset: self.at,
        }
    }

    /// Skips blanks: space, tab, line feed, carriage return.
    pub(crate) fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// A member name in shorthand form.
    pub(crate) fn shorthand(&mut self) -> Result<String, PathError> {
        let mut end = 0;
        for (index, c) in self.rest().char_indices() {
            let first = c.is_ascii_alphabetic() || c == '_' || !c.is_ascii();
            if !(first || (index > 0 && c.is_ascii_digit())) {
                break;
            }
            end = index + c.len_utf8();
        }
        let name = self.rest().get(..end).unwrap_or("");
        if name.is_empty() {
            return Err(self.syntax("a member name"));
        }
        self.at += end;
        Ok(name.to_owned())
    }

    /// An integer: no leading zeros, no `-0`, within ±(2^53 - 1).
    pub(crate) fn integer(&mut self) -> Result<i64, PathError> {
        let start = self.at;
        let negative = self.eat("-");
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        let text = self.rest().get(..digits).unwrap_or("");
        if text.is_empty() {
            return Err(self.syntax("an integer"));
        }
        if text.starts_with('0') && (digits > 1 || negative) {
            self.at += usize::from(!negative);
            return Err(self.syntax("an integer without leading zero"));
        }
        let value = text.parse::<u64>().ok().filter(|value| *value <= INDEX_MAX);
        let Some(value) = value.and_then(|value| i64::try_from(value).ok()) else {
            self.at = start;
            return Err(self.syntax("an integer within 2^53"));
        };
        self.at += digits;
        Ok(if negative { -value } else { value })
    }

    /// A string literal in single or double quotes, decoded.
    pub(crate) fn string(&mut self) -> Result<String, PathError> {
        let Some(quote @ (b'\'' | b'"')) = self.peek() else {
            return Err(self.syntax("a string"));
        };
        self.at += 1;
        let mut out = String::new();
        loop {
            let Some(c) = self.rest().chars().next() else {
                return Err(self.syntax("a closing quote"));
            };
            match c {
                '\\' => {
                    self.at += 1;
                    out.push(self.escape(quote)?);
                    continue;
                }
                c if c == char::from(quote) => {
                    self.at += 1;
                    return Ok(out);
                }
                c if c < ' ' => return Err(self.syntax("no control character in a string")),
                c => out.push(c),
            }
            self.at += c.len_utf8();
        }
    }

    /// Reads an escape after its backslash.
    fn escape(&mut self, quote: u8) -> Result<char, PathError> {
        let c = match self.peek() {
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(c @ (b'/' | b'\\')) => char::from(c),
            Some(c) if c == quote => char::from(c),
            Some(b'u') => {
                self.at += 1;
                return self.unicode_escape();
            }
            _ => return Err(self.syntax("an escape")),
        };
        self.at += 1;
        Ok(c)
    }

    fn unicode_escape(&mut self) -> Result<char, PathError> {
        let start = self.at;
        let high = self.hex4()?;
        let code = match high {
            0xd800..=0xdbff => {
                if !self.eat("\\u") {
                    return Err(self.syntax("the second half of a surrogate pair"));
                }
                let low_at = self.at;
                let low = self.hex4()?;
                if !(0xdc00..=0xdfff).contains(&low) {
                    self.at = low_at;
                    return Err(self.syntax("the second half of a surrogate pair"));
                }
                0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00)
            }
            other => other,
        };
        char::from_u32(code).ok_or_else(|| {
            self.at = start;
            self.syntax("the first half of a surrogate pair")
        })
    }

    fn hex4(&mut self) -> Result<u32, PathError> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|b| char::from(b).to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.syntax("four hexadecimal digits"))?;
            self.at += 1;
        }
        Ok(code)
    }
}
