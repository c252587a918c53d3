//! Splits lists in the text of a query into pieces with their positions.

use crate::error::QueryError;
use weir_core::error_code::ErrorCode;

/// A piece of a field, without white space around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    pub(crate) text: &'a str,
    /// Position in the field, in bytes.
    pub(crate) offset: usize,
}

impl<'a> Piece<'a> {
    /// Creates a trimmed piece from the text at an offset.
    pub(crate) fn new(text: &'a str, offset: usize) -> Self {
        let start = text.trim_start();
        Self {
            text: start.trim_end(),
            offset: offset + text.len() - start.len(),
        }
    }

    /// Returns the piece. If it has white space outside of brackets and quotes, also
    /// returns the part before the last such space, and the word after it.
    pub(crate) fn last_word(self) -> (Self, Option<(Self, &'a str)>) {
        let mut depth = Depth::default();
        let mut last = None;
        for (at, byte) in self.text.bytes().enumerate() {
            if depth.is_outside_after(byte) && byte.is_ascii_whitespace() {
                last = Some(at);
            }
        }
        let split = last.and_then(|at| self.text.split_at_checked(at));
        let split = split.map(|(before, word)| (Self::new(before, self.offset), word.trim()));
        (self, split)
    }

    /// Removes `as NAME` from the end, and returns the name.
    pub(crate) fn name(self, field: &'static str) -> Result<(Self, Option<&'a str>), QueryError> {
        let (_, Some((before, name))) = self.last_word() else {
            return Ok((self, None));
        };
        let (_, Some((what, "as"))) = before.last_word() else {
            let at = self.offset + self.text.len() - name.len();
            return Err(QueryError::text(
                ErrorCode::Syntax,
                field,
                at,
                "expected `as NAME`",
            ));
        };
        Ok((what, Some(unquoted(name))))
    }
}

/// The name without the quotes around it.
pub(crate) fn unquoted(name: &str) -> &str {
    let inside = |quote: char| {
        let inside = name.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inside.contains([quote, '\\'])).then_some(inside)
    };
    inside('"').or_else(|| inside('\'')).unwrap_or(name)
}

/// Nesting of brackets and quotes at a byte.
#[derive(Clone, Copy, Default)]
struct Depth {
    brackets: u32,
    quote: Option<u8>,
    escaped: bool,
}

impl Depth {
    /// Processes a byte. Returns whether it is outside of brackets and quotes.
    fn is_outside_after(&mut self, byte: u8) -> bool {
        if let Some(quote) = self.quote {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                _ if byte == quote => self.quote = None,
                _ => {}
            }
            return false;
        }
        match byte {
            b'\'' | b'"' => self.quote = Some(byte),
            b'[' | b'(' => self.brackets += 1,
            b']' | b')' => self.brackets = self.brackets.saturating_sub(1),
            _ => return self.brackets == 0,
        }
        false
    }
}

/// Returns the pieces between commas; an empty text has none.
pub(crate) fn list<'a>(field: &'static str, text: &'a str) -> Result<Vec<Piece<'a>>, QueryError> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut pieces = Vec::new();
    let (mut start, mut depth) = (0, Depth::default());
    let mut push = |from: usize, to: usize| {
        let piece = Piece::new(&text[from..to], from);
        if piece.text.is_empty() {
            let what = "nothing is before or after a comma";
            return Err(QueryError::text(ErrorCode::Syntax, field, from, what));
        }
        pieces.push(piece);
        Ok(())
    };
    for (at, byte) in text.bytes().enumerate() {
        if depth.is_outside_after(byte) && byte == b',' {
            push(start, at)?;
            start = at + 1;
        }
    }
    push(start, text.len())?;
    Ok(pieces)
}

/// Converts a text to a JSON string.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    out.push(b'"');
    for character in text.chars() {
        crate::json::escape(u32::from(character), &mut out);
    }
    out.push(b'"');
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use super::{Piece, list};

    #[test]
    fn commas_in_names_do_not_split() {
        let text = "$['a,b'] desc, $.c,$[\"d\\\",\"]";
        let pieces = list("order", text).unwrap();
        let texts: Vec<&str> = pieces.iter().map(|piece| piece.text).collect();
        assert_eq!(texts, ["$['a,b'] desc", "$.c", "$[\"d\\\",\"]"]);
        for piece in &pieces {
            assert!(text[piece.offset..].starts_with(piece.text));
        }
        assert!(list("order", "a,,b").is_err());
        assert!(list("order", ",").is_err());
        assert!(list("order", " ").unwrap().is_empty());
    }

    #[test]
    fn the_last_word_is_outside_of_brackets() {
        let word = |text| Piece::new(text, 0).last_word().1.map(|(_, word)| word);
        assert_eq!(word("$.a desc"), Some("desc"));
        assert_eq!(word("$['a b']"), None);
        assert_eq!(word("$.a"), None);
        let named = Piece::new("sum($.a) as total", 3).name("select").unwrap();
        assert_eq!(
            (named.0.text, named.0.offset, named.1),
            ("sum($.a)", 3, Some("total"))
        );
        assert!(Piece::new("sum($.a) total", 0).name("select").is_err());
        for (given, name) in [
            ("$.a as 'b c'", "b c"),
            (r#"$.a as "b c""#, "b c"),
            (r#"$.a as "b"#, r#""b"#),
            (r#"$.a as "b\"c""#, r#""b\"c""#),
        ] {
            assert_eq!(Piece::new(given, 0).name("select").unwrap().1, Some(name));
        }
    }
}
