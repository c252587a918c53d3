//! Parses the text of a query.

use super::evaluate::{is_date, is_moment};
use super::{Condition, JqlError, ORDER_KEYS_MAX, Operand, Operator, Query};
use crate::time;

/// Limit on the nesting of a query.
const DEPTH_MAX: usize = 64;

/// Fields that the evaluator knows.
const FIELDS: &[&str] = &[
    "project",
    "key",
    "issue",
    "issuekey",
    "id",
    "issuetype",
    "type",
    "status",
    "statuscategory",
    "assignee",
    "reporter",
    "creator",
    "priority",
    "resolution",
    "labels",
    "parent",
    "component",
    "fixversion",
    "summary",
    "description",
    "comment",
    "text",
    "created",
    "updated",
    "due",
    "duedate",
    "resolved",
    "resolutiondate",
];

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Quoted(String),
    Sign(&'static str),
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    at: usize,
    end: usize,
    depth: usize,
}

/// Parses a query. The empty text is a query without condition.
///
/// # Errors
/// The position of the first character outside of the subset.
pub fn parse(text: &str) -> Result<Query, JqlError> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        end: text.chars().count() + 1,
        depth: 0,
    };
    let mut query = Query::default();
    if parser.peek().is_some() && !parser.word_is("order") {
        query.condition = Some(parser.or()?);
    }
    if parser.take_word("order") {
        if !parser.take_word("by") {
            return Err(parser.wrong("BY must follow ORDER"));
        }
        query.order = parser.order()?;
    }
    match parser.peek() {
        None => Ok(query),
        Some(_) => Err(parser.wrong("AND, OR or ORDER BY was expected")),
    }
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, JqlError> {
    let letters: Vec<char> = text.chars().collect();
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(&letter) = letters.get(at) {
        let start = at + 1;
        if letter.is_whitespace() {
            at += 1;
        } else if letter == '"' || letter == '\'' {
            let mut value = String::new();
            at += 1;
            loop {
                match letters.get(at) {
                    None => {
                        let what = "the quoted text has no end".to_owned();
                        return Err(JqlError { what, at: start });
                    }
                    Some('\\') if at + 1 < letters.len() => {
                        value.extend(letters.get(at + 1));
                        at += 2;
                    }
                    Some(c) if *c == letter => break,
                    Some(c) => {
                        value.push(*c);
                        at += 1;
                    }
                }
            }
            at += 1;
            found.push((start, Token::Quoted(value)));
        } else if let Some(sign) = sign(&letters, at) {
            at += sign.len();
            found.push((start, Token::Sign(sign)));
        } else {
            let begin = at;
            while letters.get(at).is_some_and(|c| {
                !c.is_whitespace() && !matches!(c, '"' | '\'') && sign(&letters, at).is_none()
            }) {
                at += 1;
            }
            let word = letters.get(begin..at).unwrap_or_default().iter().collect();
            found.push((start, Token::Word(word)));
        }
    }
    Ok(found)
}

/// The condition that NOT makes of this one. As in Jira, `NOT field = value` is `field != value`,
/// which is false for an empty field.
fn negated(condition: Condition) -> Condition {
    let all = |parts: Vec<Condition>| parts.into_iter().map(negated).collect();
    match condition {
        Condition::And(parts) => Condition::Or(all(parts)),
        Condition::Or(parts) => Condition::And(all(parts)),
        Condition::Compare {
            field,
            operator,
            values,
        } => Condition::Compare {
            field,
            operator: operator.negated(),
            values,
        },
        Condition::Empty { field, negated } => Condition::Empty {
            field,
            negated: !negated,
        },
    }
}

/// Why the evaluator cannot compare a field with a value. Such a comparison would select no issue,
/// without a message.
fn undecidable(field: &str, operator: Operator, value: &Operand) -> Option<String> {
    let orders = matches!(
        operator,
        Operator::Greater | Operator::GreaterEqual | Operator::Less | Operator::LessEqual
    );
    let contains = matches!(operator, Operator::Contains | Operator::ContainsNot);
    let dates = is_date(field);
    let people = matches!(field, "assignee" | "reporter" | "creator") || field.starts_with("cf[");
    let accepts = |name: &str| {
        if dates {
            name != "currentuser"
        } else {
            name == "currentuser" && people && !contains && !orders
        }
    };
    match value {
        _ if dates && contains => Some(format!(
            "field '{field}' does not have the operators ~ and !~"
        )),
        Operand::Function(_, Some(span)) if time::parse_span(span).is_none() => {
            Some(format!("'{span}' is not a duration such as -1w2d3h4m"))
        }
        Operand::Function(name, _) if !accepts(name) => {
            Some(format!("field '{field}' cannot be compared with it"))
        }
        Operand::Text(text) if dates && !is_moment(text) => {
            Some(format!("'{text}' is not a date in this subset"))
        }
        Operand::Text(text) if contains && has_text_operator(text) => Some(format!(
            "'{text}' has an operator of text searches that this subset does not have"
        )),
        Operand::Text(text) if orders && !dates && !is_bound(field, text) => Some(format!(
            "field '{field}' has no order with '{text}' in this subset"
        )),
        _ => None,
    }
}

/// Whether a text of `~` has an operator of Jira's text searches that the evaluator would read as
/// a part of a word: the quotes of a phrase, AND, OR, NOT, `+`, `-`, `?`, `~` (similar words), `^`
/// (weight of a word), or `*` before the end of a word.
fn has_text_operator(text: &str) -> bool {
    let mut words = text.split(|c: char| c.is_whitespace() || matches!(c, '(' | ')'));
    let mut parts = text.split(|c: char| !c.is_alphanumeric() && c != '*');
    text.contains(['"', '?', '~', '^'])
        || words.any(|word| {
            matches!(word, "AND" | "OR" | "NOT" | "&&" | "||") || word.starts_with(['+', '-', '!'])
        })
        || parts.any(|part| part.strip_suffix('*').unwrap_or(part).contains('*'))
}

/// Whether the values of a field are ordered, and a text is one of them.
fn is_bound(field: &str, text: &str) -> bool {
    match field {
        "id" => text.parse::<i64>().is_ok(),
        "key" | "issue" | "issuekey" => text
            .rsplit_once('-')
            .is_some_and(|(_, number)| number.parse::<i64>().is_ok()),
        _ => field.starts_with("cf[") && text.parse::<f64>().is_ok(),
    }
}

fn sign(letters: &[char], at: usize) -> Option<&'static str> {
    let pair: String = letters.iter().skip(at).take(2).collect();
    let known = [
        "!=", "!~", ">=", "<=", "=", "~", ">", "<", "(", ")", ",", "!",
    ];
    known.into_iter().find(|sign| pair.starts_with(sign))
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(_, token)| token)
    }

    fn wrong(&self, what: &str) -> JqlError {
        let at = self.tokens.get(self.at).map_or(self.end, |(at, _)| *at);
        let what = what.to_owned();
        JqlError { what, at }
    }

    fn word_is(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Token::Word(found)) if found.eq_ignore_ascii_case(word))
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = self.word_is(word);
        self.at += usize::from(found);
        found
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Sign(found)) if *found == sign);
        self.at += usize::from(found);
        found
    }

    fn or(&mut self) -> Result<Condition, JqlError> {
        let mut parts = vec![self.and()?];
        while self.take_word("or") {
            parts.push(self.and()?);
        }
        Ok(if parts.len() == 1 {
            parts.remove(0)
        } else {
            Condition::Or(parts)
        })
    }

    fn and(&mut self) -> Result<Condition, JqlError> {
        let mut parts = vec![self.not()?];
        while self.take_word("and") {
            parts.push(self.not()?);
        }
        Ok(if parts.len() == 1 {
            parts.remove(0)
        } else {
            Condition::And(parts)
        })
    }

    fn not(&mut self) -> Result<Condition, JqlError> {
        if self.depth >= DEPTH_MAX {
            return Err(self.wrong("the query is nested too deeply"));
        }
        self.depth += 1;
        let found = if self.take_word("not") || self.take_sign("!") {
            negated(self.not()?)
        } else if self.take_sign("(") {
            let inner = self.or()?;
            if !self.take_sign(")") {
                return Err(self.wrong("a closing parenthesis was expected"));
            }
            inner
        } else {
            self.clause()?
        };
        self.depth -= 1;
        Ok(found)
    }

    fn field(&mut self) -> Result<String, JqlError> {
        let field = match self.peek() {
            Some(Token::Word(word) | Token::Quoted(word)) => word.to_lowercase(),
            _ => return Err(self.wrong("the name of a field was expected")),
        };
        let custom = field
            .strip_prefix("cf[")
            .and_then(|rest| rest.strip_suffix(']'));
        let custom = custom.is_some_and(|id| id.parse::<u64>().is_ok());
        if !custom && !FIELDS.contains(&field.as_str()) {
            return Err(self.wrong(&format!("field '{field}' does not exist in this subset")));
        }
        self.at += 1;
        Ok(field)
    }

    fn clause(&mut self) -> Result<Condition, JqlError> {
        let field = self.field()?;
        if self.take_word("is") {
            let negated = self.take_word("not");
            if self.take_word("empty") || self.take_word("null") {
                return Ok(Condition::Empty { field, negated });
            }
            return Err(self.wrong("EMPTY or NULL was expected"));
        }
        let negated = self.take_word("not");
        if self.take_word("in") {
            if !self.take_sign("(") {
                return Err(self.wrong("a list in parentheses was expected"));
            }
            let operator = if negated {
                Operator::NotEqual
            } else {
                Operator::Equal
            };
            let mut values = vec![self.operand(&field, operator)?];
            while self.take_sign(",") {
                values.push(self.operand(&field, operator)?);
            }
            if !self.take_sign(")") {
                return Err(self.wrong("a closing parenthesis was expected"));
            }
            return Ok(Condition::Compare {
                field,
                operator,
                values,
            });
        }
        let operator = match self.peek() {
            Some(Token::Sign("=")) if !negated => Operator::Equal,
            Some(Token::Sign("!=")) if !negated => Operator::NotEqual,
            Some(Token::Sign(">")) if !negated => Operator::Greater,
            Some(Token::Sign(">=")) if !negated => Operator::GreaterEqual,
            Some(Token::Sign("<")) if !negated => Operator::Less,
            Some(Token::Sign("<=")) if !negated => Operator::LessEqual,
            Some(Token::Sign("~")) if !negated => Operator::Contains,
            Some(Token::Sign("!~")) if !negated => Operator::ContainsNot,
            _ => return Err(self.wrong("an operator was expected")),
        };
        self.at += 1;
        let values = vec![self.operand(&field, operator)?];
        Ok(Condition::Compare {
            field,
            operator,
            values,
        })
    }

    fn operand(&mut self, field: &str, operator: Operator) -> Result<Operand, JqlError> {
        let start = self.at;
        let value = self.value(field, operator)?;
        if let Some(what) = undecidable(field, operator, &value) {
            self.at = start;
            return Err(self.wrong(&what));
        }
        Ok(value)
    }

    fn value(&mut self, field: &str, operator: Operator) -> Result<Operand, JqlError> {
        let (quoted, text) = match self.peek() {
            Some(Token::Word(word)) => (false, word.clone()),
            Some(Token::Quoted(text)) => (true, text.clone()),
            _ => return Err(self.wrong("a value was expected")),
        };
        self.at += 1;
        let compares = matches!(operator, Operator::Equal | Operator::NotEqual);
        let is_empty = text.eq_ignore_ascii_case("empty") || text.eq_ignore_ascii_case("null");
        let is_unresolved = field == "resolution" && text.eq_ignore_ascii_case("unresolved");
        if compares && (is_unresolved || (is_empty && !quoted)) {
            return Ok(Operand::Empty);
        }
        if quoted || !self.take_sign("(") {
            return Ok(Operand::Text(text));
        }
        let argument = match self.peek() {
            Some(Token::Word(word) | Token::Quoted(word)) => Some(word.clone()),
            _ => None,
        };
        self.at += usize::from(argument.is_some());
        let name = text.to_lowercase();
        let known = [
            "currentuser",
            "now",
            "startofday",
            "endofday",
            "startofweek",
            "startofmonth",
        ];
        if !known.contains(&name.as_str()) {
            self.at = self.at.saturating_sub(1);
            return Err(self.wrong(&format!("function '{text}' does not exist in this subset")));
        }
        if !self.take_sign(")") {
            return Err(self.wrong("a closing parenthesis was expected"));
        }
        Ok(Operand::Function(name, argument))
    }

    fn order(&mut self) -> Result<Vec<(String, bool)>, JqlError> {
        let mut keys = Vec::new();
        loop {
            let field = self.field()?;
            let descending = self.take_word("desc");
            if !descending {
                self.take_word("asc");
            }
            keys.push((field, descending));
            if keys.len() > ORDER_KEYS_MAX {
                return Err(self.wrong("ORDER BY has more than 7 fields"));
            }
            if !self.take_sign(",") {
                return Ok(keys);
            }
        }
    }
}
