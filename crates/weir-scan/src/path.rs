//! Singular paths: the queries of RFC 9535 that consist of names and indexes only.
//!
//! Invariant: a printed path parses as an equal path.

use crate::cursor::Cursor;
use crate::error::{ExpressionLimit, PathError, PathErrorKind};
use std::fmt;
use std::str::FromStr;

/// Limit on the bytes in the text of a path or expression.
pub const EXPRESSION_BYTES_MAX: usize = 64 << 10;

/// Limit on the steps in a path.
pub const PATH_STEPS_MAX: usize = 64;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The member of an object with this name, compared after unescaping.
    Name(Box<str>),
    /// The element of an array: from the front, counted from 0; if negative, from the back, -1
    /// being the last. A negative index costs an additional walk over the array.
    Index(i64),
}

/// A singular query of RFC 9535: yields one value or nothing. The empty path `$` is the item
/// itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Path {
    steps: Vec<Step>,
}

impl Path {
    /// Parses `$`, `$.a.b`, `$['a'][0]`, `@.a`: `@` and `$` both refer to the item.
    ///
    /// # Errors
    /// The first byte that violates the grammar of a singular query; `NotSingular` at a selector
    /// that may yield several nodes; `TooComplex` above [`PATH_STEPS_MAX`] or
    /// [`EXPRESSION_BYTES_MAX`].
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let mut cursor = Cursor::new(text);
        if text.len() > EXPRESSION_BYTES_MAX {
            return Err(cursor.error(PathErrorKind::TooComplex(ExpressionLimit::Bytes)));
        }
        if !(cursor.eat("$") || cursor.eat("@")) {
            return Err(cursor.syntax("`$` or `@`"));
        }
        let mut path = Self::default();
        loop {
            let before = cursor.at;
            cursor.blanks();
            if cursor.peek().is_none() {
                // White space at the end is not part of the grammar.
                cursor.at = before;
                return match cursor.peek() {
                    None => Ok(path),
                    Some(_) => Err(cursor.syntax("the end of the path")),
                };
            }
            if path.steps.len() == PATH_STEPS_MAX {
                return Err(cursor.error(PathErrorKind::TooComplex(ExpressionLimit::Steps)));
            }
            path.steps.push(step(&mut cursor)?);
        }
    }

    /// Creates a path of these steps.
    ///
    /// # Errors
    /// `TooComplex` above [`PATH_STEPS_MAX`].
    pub fn new(steps: Vec<Step>) -> Result<Self, PathError> {
        if steps.len() > PATH_STEPS_MAX {
            return Err(PathError {
                kind: PathErrorKind::TooComplex(ExpressionLimit::Steps),
                offset: 0,
            });
        }
        Ok(Self { steps })
    }

    /// The steps, from the item inward.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}

fn step(cursor: &mut Cursor<'_>) -> Result<Step, PathError> {
    let start = cursor.at;
    if cursor.eat("..") {
        cursor.at = start;
        return Err(cursor.error(PathErrorKind::NotSingular));
    }
    if cursor.eat(".") {
        if cursor.peek() == Some(b'*') {
            return Err(cursor.error(PathErrorKind::NotSingular));
        }
        return Ok(Step::Name(cursor.shorthand()?.into()));
    }
    cursor.expect("[", "`.`, `[` or the end of the path")?;
    cursor.blanks();
    let step = match cursor.peek() {
        Some(b'\'' | b'"') => Step::Name(cursor.string()?.into()),
        Some(b'-' | b'0'..=b'9') => Step::Index(cursor.integer()?),
        Some(b'*' | b'?' | b':') => return Err(cursor.error(PathErrorKind::NotSingular)),
        _ => return Err(cursor.syntax("a quoted name or an index")),
    };
    cursor.blanks();
    if let Some(b',' | b':') = cursor.peek() {
        return Err(cursor.error(PathErrorKind::NotSingular));
    }
    cursor.expect("]", "`]`")?;
    Ok(step)
}

impl FromStr for Path {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        Self::parse(text)
    }
}

/// The normalized path of RFC 9535 (2.7).
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("$")?;
        for step in &self.steps {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Name(name) => {
                    f.write_str("['")?;
                    for c in name.chars() {
                        match c {
                            '\'' | '\\' => write!(f, "\\{c}")?,
                            '\u{8}' => f.write_str("\\b")?,
                            '\u{c}' => f.write_str("\\f")?,
                            '\n' => f.write_str("\\n")?,
                            '\r' => f.write_str("\\r")?,
                            '\t' => f.write_str("\\t")?,
                            c if c < ' ' => write!(f, "\\u{:04x}", u32::from(c))?,
                            c => write!(f, "{c}")?,
                        }
                    }
                    f.write_str("']")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::{PATH_STEPS_MAX, Path};
    use crate::error::{ExpressionLimit, PathErrorKind};

    fn check(text: &str, expected: &str) {
        let path = Path::parse(text).unwrap();
        assert_eq!(path.to_string(), expected);
        assert_eq!(Path::parse(expected).unwrap(), path);
    }

    #[test]
    fn printed_paths_parse_as_equal_paths() {
        check("$", "$");
        check("@.a", "$['a']");
        check("$.a.b_1[0]['c d'] [-1]", "$['a']['b_1'][0]['c d'][-1]");
        check("$[\"it's\"]", "$['it\\'s']");
        check("$['\\u006frder']", "$['order']");
        check("$['\\ud83d\\ude00\\n\\u0001']", "$['😀\\n\\u0001']");
        check("$.é", "$['é']");
        check("$ .a [ 0 ]", "$['a'][0]");
    }

    fn refuse(text: &str, offset: usize) -> PathErrorKind {
        let error = Path::parse(text).unwrap_err();
        assert_eq!(error.offset, offset, "{text}");
        error.kind
    }

    #[test]
    fn an_error_has_the_offset_of_the_first_wrong_byte() {
        for (text, offset) in [
            ("", 0),
            ("a", 0),
            ("$ ", 1),
            ("$.", 2),
            ("$.1a", 2),
            ("$. a", 2),
            ("$a", 1),
            ("$[", 2),
            ("$[0", 3),
            ("$[01]", 3),
            ("$[-0]", 3),
            ("$[9007199254740992]", 2),
            ("$['a", 4),
            ("$['\\q']", 4),
            ("$['\\ud800']", 9),
            ("$['\\udc00']", 5),
            ("$['\u{1}']", 3),
        ] {
            let kind = refuse(text, offset);
            assert!(matches!(kind, PathErrorKind::Syntax(_)), "{text}: {kind:?}");
        }
        for (text, offset) in [
            ("$..a", 1),
            ("$.*", 2),
            ("$[*]", 2),
            ("$[0,1]", 3),
            ("$[0:1]", 3),
            ("$[:1]", 2),
            ("$[?@.a]", 2),
        ] {
            assert_eq!(refuse(text, offset), PathErrorKind::NotSingular, "{text}");
        }
        let long = format!("${}", ".a".repeat(PATH_STEPS_MAX + 1));
        let steps = PathErrorKind::TooComplex(ExpressionLimit::Steps);
        assert_eq!(refuse(&long, 129), steps);
    }
}
