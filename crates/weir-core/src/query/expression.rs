//! The text of a filter, read.
//!
//! ```text
//! any      = all *("||" all)
//! all      = one *("&&" one)
//! one      = "!" one / "(" any ")" / test
//! test     = operand [("==" / "!=" / "<" / "<=" / ">" / ">=") operand]
//! operand  = path / literal / function "(" operand *("," operand) ")"
//! ```
//!
//! That is the logical expression of RFC 9535 with singular paths. What must
//! never happen here: recursion deeper than [`NESTING_MAX`].

use weir_scan::Path;

use super::error::QueryError;
use super::filter::{Comparison, Expression, Operand};
use super::json;
use super::key::Kind;
use super::plan::{Plan, path_error};
use crate::error_code::ErrorCode;

/// Most brackets and negations around a part.
const NESTING_MAX: u32 = 64;
const FIELD: &str = "where";

/// Reads a whole text.
pub(crate) fn parse(
    text: &str,
    params: &[(String, String)],
    plan: &mut Plan,
) -> Result<Expression, QueryError> {
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
        params,
        plan,
    };
    let expression = parser.any()?;
    parser.blanks();
    if parser.at < text.len() {
        return Err(parser.expected("`&&`, `||`, a comparison or the end"));
    }
    Ok(expression)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
    params: &'a [(String, String)],
    plan: &'a mut Plan,
}

/// What a test may be made of.
enum Part {
    Operand(Operand),
    /// A function whose result is true or false.
    Logical(Expression),
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn eat(&mut self, token: &str) -> bool {
        self.blanks();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn error(&self, code: ErrorCode, what: &'static str) -> QueryError {
        QueryError::text(code, FIELD, self.at, what)
    }

    fn expected(&self, what: &'static str) -> QueryError {
        let mut error = QueryError::new(ErrorCode::Syntax).at(self.at);
        error.place.field = Some(FIELD);
        error.expected(what)
    }

    fn any(&mut self) -> Result<Expression, QueryError> {
        let mut parts = vec![self.all()?];
        while self.eat("||") {
            parts.push(self.all()?);
        }
        Ok(match (parts.len(), parts.pop()) {
            (1, Some(only)) => only,
            (_, last) => {
                parts.extend(last);
                Expression::Any(parts)
            }
        })
    }

    fn all(&mut self) -> Result<Expression, QueryError> {
        let mut parts = vec![self.one()?];
        while self.eat("&&") {
            parts.push(self.one()?);
        }
        Ok(match (parts.len(), parts.pop()) {
            (1, Some(only)) => only,
            (_, last) => {
                parts.extend(last);
                Expression::All(parts)
            }
        })
    }

    fn one(&mut self) -> Result<Expression, QueryError> {
        self.depth += 1;
        if self.depth > NESTING_MAX {
            return Err(self.error(ErrorCode::TooComplex, "nested too deeply"));
        }
        self.blanks();
        let one = if self.eat("!") {
            self.blanks();
            let bare = self.peek() != Some(b'(');
            let negated = match self.peek() {
                Some(b'!') => return Err(self.expected("an operand or `(`")),
                _ => self.one()?,
            };
            if bare && matches!(negated, Expression::Compare(..)) {
                return Err(self.expected("brackets around the comparison behind `!`"));
            }
            Expression::Not(Box::new(negated))
        } else if self.eat("(") {
            let inner = self.any()?;
            if !self.eat(")") {
                return Err(self.expected("`)`"));
            }
            inner
        } else {
            self.test()?
        };
        self.depth -= 1;
        Ok(one)
    }

    fn test(&mut self) -> Result<Expression, QueryError> {
        let start = self.at;
        let first = match self.part()? {
            Part::Logical(expression) => return Ok(expression),
            Part::Operand(operand) => operand,
        };
        let comparisons = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        for (token, comparison) in comparisons {
            if self.eat(token) {
                self.blanks();
                return match self.part()? {
                    Part::Operand(second) => Ok(Expression::Compare(first, comparison, second)),
                    Part::Logical(_) => {
                        Err(self.error(ErrorCode::Syntax, "what is true or false is not compared"))
                    }
                };
            }
        }
        match first {
            Operand::Path(_) | Operand::Meta(_) => Ok(Expression::Exists(first)),
            _ => {
                self.at = start;
                Err(self.error(ErrorCode::Syntax, "a value alone is neither true nor false"))
            }
        }
    }

    fn part(&mut self) -> Result<Part, QueryError> {
        self.blanks();
        let operand = match self.peek() {
            Some(b'$' | b'@') => self.path()?,
            Some(b'\'' | b'"') => Operand::Constant(Kind::String, self.string()?.into()),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b'a'..=b'z') => return self.word(),
            _ => return Err(self.expected("a path, a literal or a function")),
        };
        Ok(Part::Operand(operand))
    }

    fn path(&mut self) -> Result<Operand, QueryError> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'.') => {
                    self.at += 1;
                    while let Some(
                        b'.' | b'*' | b'_' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | 0x80..,
                    ) = self.peek()
                    {
                        self.at += 1;
                    }
                }
                Some(b'[') => self.brackets()?,
                _ => break,
            }
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        let path = Path::parse(text).map_err(|error| path_error(FIELD, start, &error))?;
        Ok(Operand::Path(self.plan.path(path)))
    }

    /// Goes over `[...]`; what is inside, the path will say.
    fn brackets(&mut self) -> Result<(), QueryError> {
        let mut depth = 0;
        while let Some(byte) = self.peek() {
            match byte {
                b'\'' | b'"' => {
                    self.string()?;
                    continue;
                }
                b'[' => depth += 1,
                b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
        Err(self.expected("`]`"))
    }

    /// A quoted text, as a JSON string.
    fn string(&mut self) -> Result<Vec<u8>, QueryError> {
        let start = self.at;
        let quote = self.peek().unwrap_or(b'"');
        self.at += 1;
        let mut out = vec![b'"'];
        loop {
            let Some(byte) = self.peek() else {
                self.at = start;
                return Err(self.error(ErrorCode::Syntax, "a quote that does not end"));
            };
            self.at += 1;
            match byte {
                b'\\' => {
                    let Some(next) = self.peek() else {
                        continue;
                    };
                    self.at += 1;
                    if next != b'\'' {
                        out.push(b'\\');
                    }
                    out.push(next);
                }
                _ if byte == quote => break,
                b'"' => out.extend_from_slice(b"\\\""),
                _ => out.push(byte),
            }
        }
        out.push(b'"');
        if json::scalar(&out) != Some(Kind::String) {
            self.at = start;
            return Err(self.error(ErrorCode::Syntax, "a text with an escape that is none"));
        }
        Ok(out)
    }

    fn number(&mut self) -> Result<Operand, QueryError> {
        let start = self.at;
        while let Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        if json::scalar(text.as_bytes()) != Some(Kind::Number) {
            self.at = start;
            return Err(self.expected("a number"));
        }
        Ok(Operand::Constant(Kind::Number, text.as_bytes().into()))
    }

    /// A literal in letters, or a function.
    fn word(&mut self) -> Result<Part, QueryError> {
        let start = self.at;
        while let Some(b'a'..=b'z' | b'0'..=b'9' | b'_') = self.peek() {
            self.at += 1;
        }
        let word = self.text.get(start..self.at).unwrap_or_default();
        let constant = |kind, word: &str| {
            Ok(Part::Operand(Operand::Constant(
                kind,
                word.as_bytes().into(),
            )))
        };
        match word {
            "null" => return constant(Kind::Null, word),
            "true" => return constant(Kind::True, word),
            "false" => return constant(Kind::False, word),
            _ => {}
        }
        if self.peek() != Some(b'(') {
            self.at = start;
            return Err(self.expected("a path, a literal or a function"));
        }
        self.at += 1;
        let part = match word {
            "param" => Part::Operand(self.param()?),
            "meta" => {
                let name = self.name()?;
                Part::Operand(Operand::Meta(self.plan.meta(&name)))
            }
            "type" => Part::Operand(Operand::Type(Box::new(self.operand()?))),
            "length" => Part::Operand(Operand::Length(Box::new(self.operand()?))),
            "undefined" => {
                let operand = self.operand()?;
                Part::Logical(Expression::Not(Box::new(Expression::Exists(operand))))
            }
            "starts" => {
                let first = self.operand()?;
                if !self.eat(",") {
                    return Err(self.expected("`,`"));
                }
                Part::Logical(Expression::Starts(first, self.operand()?))
            }
            _ => {
                self.at = start;
                return Err(self.error(ErrorCode::Syntax, "unknown function"));
            }
        };
        if !self.eat(")") {
            return Err(self.expected("`)`"));
        }
        Ok(part)
    }

    fn operand(&mut self) -> Result<Operand, QueryError> {
        match self.part()? {
            Part::Operand(operand) => Ok(operand),
            Part::Logical(_) => {
                Err(self.error(ErrorCode::Syntax, "what is true or false is no value"))
            }
        }
    }

    /// A name in brackets, quoted or not.
    fn name(&mut self) -> Result<String, QueryError> {
        self.blanks();
        if let Some(b'\'' | b'"') = self.peek() {
            let literal = self.string()?;
            let mut name = Vec::new();
            weir_scan::Text::new(&literal).decode_into(&mut name);
            return Ok(String::from_utf8_lossy(&name).into_owned());
        }
        let start = self.at;
        while let Some(b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_') = self.peek() {
            self.at += 1;
        }
        if start == self.at {
            return Err(self.expected("a name"));
        }
        Ok(self.text.get(start..self.at).unwrap_or_default().to_owned())
    }

    fn param(&mut self) -> Result<Operand, QueryError> {
        let start = self.at;
        let name = self.name()?;
        let Some((_, value)) = self.params.iter().find(|(known, _)| *known == name) else {
            self.at = start;
            return Err(self.error(ErrorCode::NoParam, "").given("parameter", &name));
        };
        let Some(kind) = json::scalar(value.as_bytes()) else {
            let error = QueryError::new(ErrorCode::BadOption);
            return Err(error.given("no JSON scalar is the parameter", &name));
        };
        Ok(Operand::Constant(kind, value.trim().as_bytes().into()))
    }
}
