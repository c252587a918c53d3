//! Parses the text of an expression by the grammar and the type rules of RFC 9535.
//!
//! ```text
//! any     = all *("||" all)
//! all     = one *("&&" one)
//! one     = "!" one' / "(" any ")" / operand [comparison operand] / query / function
//! operand = literal / query / function
//! ```
//!
//! An operand is parsed first; the text after it decides its role. Before a comparison it must
//! yield one value. Otherwise it must be a test.
//!
//! Invariants: an error names the first byte that violates the grammar; recursion stops at
//! `NESTING_MAX`; no query is evaluated.

use super::ast::{Comparison, Inner, Logical, Operand, Pattern, Root, Segment, Selector};
use super::regex::Regex;
use super::{Paths, PatternText};
use crate::cursor::Cursor;
use crate::error::{ExpressionLimit, PathError, PathErrorKind};
use crate::path::{EXPRESSION_BYTES_MAX, PATH_STEPS_MAX, Path, Step};
use crate::path_set::{PATHS_MAX, PathSet};

/// Limit on nested brackets, negations, functions and filters.
const NESTING_MAX: u32 = 64;

/// Limit on nested walks over all descendants of a value: `..`, and queries from the item inside of
/// filter selectors. Each walk multiplies the work by the depth or the size of the item.
const WALKS_MAX: u32 = 4;

/// Limit on selectors in one pair of brackets.
const SELECTORS_MAX: usize = 1024;

/// Work of compilation after which literal patterns are compiled for each evaluation. Compiled
/// patterns can be a thousand times larger than their text, and live as long as the expression.
const PATTERN_WORK_MAX: usize = 1 << 17;

/// Limit on parts of one `&&` or `||`.
const PARTS_MAX: usize = 4096;

// `ExpressionLimit::sentence` repeats these values.
const _: () =
    assert!(NESTING_MAX == 64 && WALKS_MAX == 4 && SELECTORS_MAX == 1024 && PARTS_MAX == 4096);
const _: () = assert!(EXPRESSION_BYTES_MAX == 65_536 && PATH_STEPS_MAX == 64 && PATHS_MAX == 64);

/// Parses a whole query. Also returns the number of its walks.
pub(super) fn query(text: &str) -> Result<(Vec<Segment>, Paths, u32), PathError> {
    let mut parser = Parser::new(text)?;
    parser.cursor.expect("$", "`$`")?;
    let segments = parser.segments()?;
    parser.end()?;
    Ok((segments, parser.paths()?, parser.all_walks))
}

/// Names of the parameters and of the properties of an expression.
type Names = Vec<Box<str>>;

/// A whole logical expression.
pub(super) struct Parsed {
    pub(super) expression: Logical,
    pub(super) paths: Paths,
    /// Names of the parameters.
    pub(super) params: Names,
    /// Names of the properties.
    pub(super) metas: Names,
    /// Number of walks in the expression.
    pub(super) walks: u32,
    pub(super) patterns: Vec<PatternText>,
}

/// Parses a whole logical expression.
pub(super) fn filter(text: &str) -> Result<Parsed, PathError> {
    let mut parser = Parser::new(text)?;
    parser.cursor.blanks();
    let expression = parser.any()?;
    parser.cursor.blanks();
    parser.end()?;
    let paths = parser.paths()?;
    Ok(Parsed {
        expression,
        paths,
        params: parser.params,
        metas: parser.metas,
        walks: parser.all_walks,
        patterns: parser.patterns,
    })
}

struct Parser<'a> {
    cursor: Cursor<'a>,
    /// Depth of the recursion.
    depth: u32,
    /// Number of filter selectors around this position.
    filters: u32,
    /// Number of walks around this position.
    walks: u32,
    /// Number of all walks.
    all_walks: u32,
    list: Vec<Path>,
    params: Names,
    metas: Names,
    patterns: Vec<PatternText>,
    /// Work of the patterns that were compiled.
    pattern_work: usize,
}

/// A parsed operand whose role is not known yet.
enum Part {
    Value(Operand),
    Query(Inner),
    Test(Logical),
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Self, PathError> {
        let cursor = Cursor::new(text);
        if text.len() > EXPRESSION_BYTES_MAX {
            return Err(cursor.error(PathErrorKind::TooComplex(ExpressionLimit::Bytes)));
        }
        Ok(Self {
            cursor,
            depth: 0,
            filters: 0,
            walks: 0,
            all_walks: 0,
            list: Vec::new(),
            params: Vec::new(),
            metas: Vec::new(),
            patterns: Vec::new(),
            pattern_work: 0,
        })
    }

    fn paths(&mut self) -> Result<Paths, PathError> {
        let list = std::mem::take(&mut self.list);
        let set = PathSet::new(&list);
        let set = set.map_err(|_| {
            self.cursor
                .error(PathErrorKind::TooComplex(ExpressionLimit::Paths))
        })?;
        Ok(Paths { list, set })
    }

    fn end(&self) -> Result<(), PathError> {
        match self.cursor.peek() {
            None => Ok(()),
            Some(_) => Err(self.cursor.syntax("the end")),
        }
    }

    /// Calls `parse` one level deeper.
    fn nested<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, PathError>,
    ) -> Result<T, PathError> {
        if self.depth == NESTING_MAX {
            return Err(self
                .cursor
                .error(PathErrorKind::TooComplex(ExpressionLimit::Nesting)));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Parses the segments after `$` or `@`.
    fn segments(&mut self) -> Result<Vec<Segment>, PathError> {
        let walks = self.walks;
        let mut segments = Vec::new();
        loop {
            // White space belongs to the next segment, or to no segment.
            let before = self.cursor.at;
            self.cursor.blanks();
            if !matches!(self.cursor.peek(), Some(b'.' | b'[')) {
                self.cursor.at = before;
                self.walks = walks;
                return Ok(segments);
            }
            if segments.len() == PATH_STEPS_MAX {
                return Err(self
                    .cursor
                    .error(PathErrorKind::TooComplex(ExpressionLimit::Steps)));
            }
            segments.push(self.segment()?);
        }
    }

    /// Counts one more walk around the following text.
    fn walk(&mut self) -> Result<(), PathError> {
        if self.walks >= WALKS_MAX {
            return Err(self
                .cursor
                .error(PathErrorKind::TooComplex(ExpressionLimit::Walks)));
        }
        self.walks += 1;
        self.all_walks += 1;
        Ok(())
    }

    fn segment(&mut self) -> Result<Segment, PathError> {
        let descendant = self.cursor.eat("..");
        if descendant {
            self.walk()?;
        }
        let dot = descendant || self.cursor.eat(".");
        let selectors = if dot && self.cursor.eat("*") {
            vec![Selector::Wildcard]
        } else if self.cursor.peek() == Some(b'[') && (descendant || !dot) {
            self.cursor.at += 1;
            self.brackets()?
        } else {
            vec![Selector::Name(self.cursor.shorthand()?.into())]
        };
        Ok(Segment {
            descendant,
            selectors,
        })
    }

    /// Parses selectors up to and including the closing `]`.
    fn brackets(&mut self) -> Result<Vec<Selector>, PathError> {
        let mut selectors = Vec::new();
        loop {
            self.cursor.blanks();
            if selectors.len() == SELECTORS_MAX {
                return Err(self
                    .cursor
                    .error(PathErrorKind::TooComplex(ExpressionLimit::Selectors)));
            }
            selectors.push(self.selector()?);
            self.cursor.blanks();
            if self.cursor.eat("]") {
                return Ok(selectors);
            }
            self.cursor.expect(",", "`,` or `]`")?;
        }
    }

    fn selector(&mut self) -> Result<Selector, PathError> {
        match self.cursor.peek() {
            Some(b'\'' | b'"') => Ok(Selector::Name(self.cursor.string()?.into())),
            Some(b'*') => {
                self.cursor.at += 1;
                Ok(Selector::Wildcard)
            }
            Some(b'?') => {
                self.cursor.at += 1;
                self.cursor.blanks();
                self.filters += 1;
                let expression = self.nested(Self::any)?;
                self.filters -= 1;
                Ok(Selector::Filter(expression))
            }
            Some(b'-' | b'0'..=b'9' | b':') => self.index_or_slice(),
            _ => Err(self.cursor.syntax("a selector")),
        }
    }

    fn index_or_slice(&mut self) -> Result<Selector, PathError> {
        let start = self.optional_integer()?;
        let after = self.cursor.at;
        self.cursor.blanks();
        if !self.cursor.eat(":") {
            self.cursor.at = after;
            let index = start.ok_or_else(|| self.cursor.syntax("an index"))?;
            return Ok(Selector::Index(index));
        }
        self.cursor.blanks();
        let end = self.optional_integer()?;
        let after = self.cursor.at;
        self.cursor.blanks();
        let mut step = 1;
        if self.cursor.eat(":") {
            self.cursor.blanks();
            step = self.optional_integer()?.unwrap_or(1);
        } else {
            self.cursor.at = after;
        }
        Ok(Selector::Slice { start, end, step })
    }

    fn optional_integer(&mut self) -> Result<Option<i64>, PathError> {
        match self.cursor.peek() {
            Some(b'-' | b'0'..=b'9') => self.cursor.integer().map(Some),
            _ => Ok(None),
        }
    }

    fn any(&mut self) -> Result<Logical, PathError> {
        self.joined("||", Logical::Any, |parser| {
            parser.joined("&&", Logical::All, Self::one)
        })
    }

    fn joined(
        &mut self,
        sign: &'static str,
        join: fn(Vec<Logical>) -> Logical,
        part: impl Fn(&mut Self) -> Result<Logical, PathError>,
    ) -> Result<Logical, PathError> {
        let first = part(self)?;
        let mut parts = vec![first];
        loop {
            let before = self.cursor.at;
            self.cursor.blanks();
            if !self.cursor.eat(sign) {
                self.cursor.at = before;
                break;
            }
            if parts.len() == PARTS_MAX {
                return Err(self
                    .cursor
                    .error(PathErrorKind::TooComplex(ExpressionLimit::Parts)));
            }
            self.cursor.blanks();
            parts.push(part(self)?);
        }
        if parts.len() > 1 {
            return Ok(join(parts));
        }
        parts.pop().ok_or_else(|| self.cursor.syntax("a test"))
    }

    fn one(&mut self) -> Result<Logical, PathError> {
        if self.cursor.eat("!") {
            self.cursor.blanks();
            // A negation must be followed by brackets or a test, not by another negation.
            if self.cursor.peek() == Some(b'!') {
                return Err(self.cursor.syntax("a test or `(`"));
            }
            let start = self.cursor.at;
            let part = self.nested(Self::one)?;
            if matches!(part, Logical::Compare(..)) && !self.cursor.text[start..].starts_with('(') {
                return Err(PathError {
                    kind: PathErrorKind::Syntax("brackets around a comparison after `!`"),
                    offset: start,
                });
            }
            return Ok(Logical::Not(Box::new(part)));
        }
        if self.cursor.eat("(") {
            self.cursor.blanks();
            let inner = self.nested(Self::any)?;
            self.cursor.blanks();
            self.cursor.expect(")", "`)`")?;
            return Ok(inner);
        }
        let start = self.cursor.at;
        let left = self.part()?;
        let before = self.cursor.at;
        self.cursor.blanks();
        let Some(comparison) = self.comparison() else {
            if self.cursor.peek() == Some(b'=') {
                return Err(self.cursor.syntax("`==`, not `=`"));
            }
            self.cursor.at = before;
            return match left {
                Part::Test(test) => Ok(test),
                Part::Query(inner) => Ok(Logical::Exists(inner)),
                Part::Value(Operand::Literal(_) | Operand::Text(_)) => {
                    Err(self.cursor.syntax("a comparison after a literal"))
                }
                Part::Value(_) => Err(wrong_type(start)),
            };
        };
        self.cursor.blanks();
        let left = value(left, start)?;
        let start = self.cursor.at;
        let right = self.part()?;
        Ok(Logical::Compare(comparison, left, value(right, start)?))
    }

    fn comparison(&mut self) -> Option<Comparison> {
        let signs = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let found = signs.iter().find(|(sign, _)| self.cursor.eat(sign));
        found.map(|(_, comparison)| *comparison)
    }

    /// Parses a literal, a query or a function.
    fn part(&mut self) -> Result<Part, PathError> {
        match self.cursor.peek() {
            Some(b'$' | b'@') => self.inner().map(Part::Query),
            Some(b'\'' | b'"') => {
                let text = self.cursor.string()?;
                Ok(Part::Value(Operand::Text(text.into())))
            }
            Some(b'-' | b'0'..=b'9') => {
                let literal = self.number()?;
                Ok(Part::Value(Operand::Literal(literal)))
            }
            Some(b'a'..=b'z') => self.word(),
            _ => Err(self.cursor.syntax("a path, a literal or a function")),
        }
    }

    fn number(&mut self) -> Result<Box<[u8]>, PathError> {
        let rest = self.cursor.rest().as_bytes();
        match crate::token::number(rest, 0) {
            Ok(end) => {
                self.cursor.at += end;
                Ok(rest.get(..end).unwrap_or(&[]).into())
            }
            Err((_, at)) => {
                self.cursor.at += at;
                Err(self.cursor.syntax("a digit"))
            }
        }
    }

    /// Parses a query that begins with `$` or `@`.
    fn inner(&mut self) -> Result<Inner, PathError> {
        let root = if self.cursor.eat("@") && self.filters > 0 {
            Root::Current
        } else {
            self.cursor.eat("$");
            Root::Item
        };
        let start = self.cursor.at;
        let walks = self.walks;
        let again = root == Root::Item && self.filters > 0;
        self.walks += u32::from(again);
        let segments = self.nested(Self::segments)?;
        self.walks = walks;
        let path = singular(&segments);
        if again && path.is_none() && walks >= WALKS_MAX {
            return Err(PathError {
                kind: PathErrorKind::TooComplex(ExpressionLimit::Walks),
                offset: start,
            });
        }
        self.all_walks += u32::from(again && path.is_none());
        let slot = match (&path, root) {
            (Some(path), Root::Item) => Some(self.slot(path, start)?),
            _ => None,
        };
        Ok(Inner {
            root,
            segments,
            path,
            slot,
        })
    }

    fn slot(&mut self, path: &Path, at: usize) -> Result<usize, PathError> {
        if let Some(known) = self.list.iter().position(|known| known == path) {
            return Ok(known);
        }
        if self.list.len() == PATHS_MAX {
            return Err(PathError {
                kind: PathErrorKind::TooComplex(ExpressionLimit::Paths),
                offset: at,
            });
        }
        self.list.push(path.clone());
        Ok(self.list.len() - 1)
    }

    /// Parses a literal, or a function by its name.
    fn word(&mut self) -> Result<Part, PathError> {
        let start = self.cursor.at;
        let length = self.cursor.rest().bytes();
        let length = length
            .take_while(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'))
            .count();
        let name = self.cursor.rest().get(..length).unwrap_or("");
        self.cursor.at += length;
        if self.cursor.eat("(") {
            return self.nested(|parser| parser.function(name, start));
        }
        if ["true", "false", "null"].contains(&name) {
            return Ok(Part::Value(Operand::Literal(name.as_bytes().into())));
        }
        let is_property = name == "meta" && self.cursor.peek() == Some(b'.');
        self.cursor.at = start;
        if is_property {
            return Err(self.cursor.syntax("`meta('NAME')` for a property"));
        }
        Err(self.cursor.syntax("a path, a literal or a function"))
    }

    /// Parses the arguments of a function and the closing bracket. Returns the call.
    fn function(&mut self, name: &str, start: usize) -> Result<Part, PathError> {
        let count = match name {
            "length" | "count" | "value" | "param" | "meta" | "type" | "undefined" => 1,
            "match" | "search" | "starts" => 2,
            _ => {
                return Err(PathError {
                    kind: PathErrorKind::UnknownFunction,
                    offset: start,
                });
            }
        };
        let mut parts = Vec::with_capacity(count);
        loop {
            self.cursor.blanks();
            let at = self.cursor.at;
            parts.push((self.part()?, at));
            self.cursor.blanks();
            if parts.len() == count {
                break;
            }
            self.cursor.expect(",", "`,` and another argument")?;
        }
        self.cursor.expect(")", "`)`")?;
        let mut parts = parts.into_iter();
        let mut next = || {
            parts
                .next()
                .unwrap_or((Part::Value(Operand::Literal([].into())), start))
        };
        let (first, first_at) = next();
        Ok(match name {
            "count" => Part::Value(Operand::Count(nodes(first, first_at)?)),
            "value" => Part::Value(Operand::Value(nodes(first, first_at)?)),
            "param" => {
                let name = literal(first, first_at)?;
                if !self.params.contains(&name) {
                    self.params.push(name.clone());
                }
                Part::Value(Operand::Param(name))
            }
            "meta" => {
                let name = literal(first, first_at)?;
                if !self.metas.contains(&name) {
                    self.metas.push(name.clone());
                }
                Part::Value(Operand::Meta(name))
            }
            "length" => Part::Value(Operand::Length(Box::new(value(first, first_at)?))),
            "type" => Part::Value(Operand::Type(Box::new(value(first, first_at)?))),
            "undefined" => Part::Test(Logical::Undefined(value(first, first_at)?)),
            _ => {
                let (second, second_at) = next();
                let text = value(first, first_at)?;
                let second = value(second, second_at)?;
                if name == "starts" {
                    return Ok(Part::Test(Logical::Starts(text, second)));
                }
                let pattern = match second {
                    Operand::Text(pattern) => {
                        self.patterns
                            .push(PatternText::Fixed(pattern.as_ref().into()));
                        self.literal_pattern(pattern)
                    }
                    other => {
                        if let Operand::Param(name) = &other {
                            self.patterns.push(PatternText::Param(name.as_ref().into()));
                        }
                        Pattern::Computed(other)
                    }
                };
                Part::Test(Logical::Regex {
                    text,
                    pattern,
                    whole: name == "match",
                })
            }
        })
    }

    /// Compiles a pattern, unless the compiled patterns are too large already.
    fn literal_pattern(&mut self, pattern: Box<str>) -> Pattern {
        if self.pattern_work < PATTERN_WORK_MAX {
            Pattern::Fixed(Regex::parse_counted(&pattern, &mut self.pattern_work))
        } else {
            Pattern::Computed(Operand::Text(pattern))
        }
    }
}

fn wrong_type(offset: usize) -> PathError {
    PathError {
        kind: PathErrorKind::WrongType,
        offset,
    }
}

/// Checks that the part yields one value or nothing.
fn value(part: Part, at: usize) -> Result<Operand, PathError> {
    match part {
        Part::Value(operand) => Ok(operand),
        Part::Query(inner) if inner.path.is_some() => Ok(Operand::Singular(inner)),
        Part::Query(_) => Err(PathError {
            kind: PathErrorKind::NotSingular,
            offset: at,
        }),
        Part::Test(_) => Err(wrong_type(at)),
    }
}

/// Checks that the part is a query, which yields any number of nodes.
fn nodes(part: Part, at: usize) -> Result<Inner, PathError> {
    match part {
        Part::Query(inner) => Ok(inner),
        _ => Err(wrong_type(at)),
    }
}

/// Checks that the part is a literal name.
fn literal(part: Part, at: usize) -> Result<Box<str>, PathError> {
    match part {
        Part::Value(Operand::Text(name)) => Ok(name),
        _ => Err(wrong_type(at)),
    }
}

fn singular(segments: &[Segment]) -> Option<Path> {
    let step = |segment: &Segment| match segment.selectors.as_slice() {
        [Selector::Name(name)] if !segment.descendant => Some(Step::Name(name.clone())),
        [Selector::Index(index)] if !segment.descendant => Some(Step::Index(*index)),
        _ => None,
    };
    let steps: Option<Vec<Step>> = segments.iter().map(step).collect();
    Path::new(steps?).ok()
}

#[cfg(test)]
mod tests {
    use super::{Logical, Pattern, filter};

    #[test]
    fn the_size_of_compiled_patterns_is_limited() {
        // 801 steps.
        let text = vec!["match(@.a, '(a?){400}')"; 100].join("||");
        let Ok(Logical::Any(parts)) = filter(&text).map(|parsed| parsed.expression) else {
            return assert_eq!(text, "an expression");
        };
        let is_compiled = |part: &&Logical| {
            let Logical::Regex { pattern, .. } = part else {
                return false;
            };
            matches!(pattern, Pattern::Fixed(Some(_)))
        };
        assert_eq!(parts.len(), 100);
        let compiled = parts.iter().filter(is_compiled).count();
        assert!((1..=21).contains(&compiled), "{compiled}");
    }
}
