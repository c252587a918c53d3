//! The filter of a query: a logical expression, compiled once.
//!
//! Every path in it is a column of the plan, found while the page is scanned.
//! An expression is true or false; a value of another type than a comparison
//! needs makes it false, and nothing in data makes it fail.

use std::cmp::Ordering;

use weir_scan::{Text, Value};

use super::buffer::Buffer;
use super::error::QueryError;
use super::expression;
use super::json;
use super::key::{Kind, Literal, Strings};
use super::plan::Plan;
use super::source::{Constant, Meta, kind};

/// A compiled `where`.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    expression: Expression,
}

/// Something that is true or false.
#[derive(Clone, Debug)]
pub(crate) enum Expression {
    Any(Vec<Self>),
    All(Vec<Self>),
    Not(Box<Self>),
    /// The operand is there.
    Exists(Operand),
    Compare(Operand, Comparison, Operand),
    /// The first begins with the second.
    Starts(Operand, Operand),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Something that has a value, or nothing.
#[derive(Clone, Debug)]
pub(crate) enum Operand {
    /// The value at the path of this index.
    Path(usize),
    /// The property of this index.
    Meta(usize),
    /// A JSON scalar.
    Constant(Kind, Box<[u8]>),
    /// Name of the type of another.
    Type(Box<Self>),
    /// Characters of a string.
    Length(Box<Self>),
}

/// What a filter looks at.
pub(crate) struct Row<'a> {
    pub(crate) page: &'a Buffer,
    pub(crate) values: &'a [Value],
    pub(crate) metas: &'a [Meta],
    pub(crate) constants: &'a [Option<Constant>],
}

/// The value of an operand.
#[derive(Clone, Copy)]
enum Seen<'a> {
    Value(Kind, Literal<'a>),
    Number(u64),
}

impl Filter {
    /// Reads the text of a field; what it looks at becomes part of the plan.
    pub(crate) fn compile(
        text: &str,
        params: &[(String, String)],
        plan: &mut Plan,
    ) -> Result<Self, QueryError> {
        let expression = expression::parse(text, params, plan)?;
        Ok(Self { expression })
    }

    /// Whether an item is let through.
    pub(crate) fn matches(&self, row: &Row<'_>) -> bool {
        self.expression.holds(row)
    }
}

impl Expression {
    fn holds(&self, row: &Row<'_>) -> bool {
        match self {
            Self::Any(parts) => parts.iter().any(|part| part.holds(row)),
            Self::All(parts) => parts.iter().all(|part| part.holds(row)),
            Self::Not(part) => !part.holds(row),
            Self::Exists(operand) => operand.see(row).kind() != Kind::Undefined,
            Self::Compare(a, comparison, b) => {
                let (a, b) = (a.see(row), b.see(row));
                match comparison {
                    Comparison::Equal => a.equals(&b),
                    Comparison::NotEqual => !a.equals(&b),
                    Comparison::Less => a.order(&b) == Some(Ordering::Less),
                    Comparison::LessOrEqual => a.order(&b) == Some(Ordering::Less) || a.equals(&b),
                    Comparison::Greater => a.order(&b) == Some(Ordering::Greater),
                    Comparison::GreaterOrEqual => {
                        a.order(&b) == Some(Ordering::Greater) || a.equals(&b)
                    }
                }
            }
            Self::Starts(a, b) => match (a.see(row), b.see(row)) {
                (Seen::Value(Kind::String, a), Seen::Value(Kind::String, b)) => {
                    let (Literal::Json(a), Literal::Json(b)) = (a, b) else {
                        return raw(a).starts_with(&raw(b));
                    };
                    Text::new(a).starts_with(Text::new(b))
                }
                _ => false,
            },
        }
    }
}

/// The characters of a string or the bytes of a property.
fn raw(literal: Literal<'_>) -> Vec<u8> {
    match literal {
        Literal::Raw(bytes) => bytes.to_vec(),
        Literal::Json(literal) => {
            let mut bytes = Vec::new();
            Text::new(literal).decode_into(&mut bytes);
            bytes
        }
    }
}

impl Operand {
    fn see<'a>(&'a self, row: &Row<'a>) -> Seen<'a> {
        match self {
            Self::Path(path) => {
                let value = row.values.get(*path).copied().unwrap_or_default();
                Seen::Value(kind(value.tag), Literal::Json(value.span.of(row.page)))
            }
            Self::Constant(kind, literal) => Seen::Value(*kind, Literal::Json(literal)),
            Self::Meta(meta) => {
                if let Some(Some(constant)) = row.constants.get(*meta) {
                    return Seen::Value(constant.kind, Literal::Json(&constant.literal));
                }
                match row.metas.get(*meta) {
                    Some(Meta::Number(number)) => Seen::Number(*number),
                    Some(Meta::Bytes(span)) => {
                        Seen::Value(Kind::String, Literal::Raw(span.of(row.page)))
                    }
                    Some(Meta::Nothing) | None => Seen::NOTHING,
                }
            }
            Self::Type(of) => {
                let name: &[u8] = match of.see(row).kind() {
                    Kind::Undefined => b"\"undefined\"",
                    Kind::Null => b"\"null\"",
                    Kind::False | Kind::True => b"\"boolean\"",
                    Kind::Number => b"\"number\"",
                    Kind::String => b"\"string\"",
                    Kind::Array => b"\"array\"",
                    Kind::Object => b"\"object\"",
                };
                Seen::Value(Kind::String, Literal::Json(name))
            }
            Self::Length(of) => match of.see(row) {
                Seen::Value(Kind::String, Literal::Json(literal)) => {
                    Seen::Number(Text::new(literal).chars().count() as u64)
                }
                Seen::Value(Kind::String, Literal::Raw(bytes)) => {
                    Seen::Number(String::from_utf8_lossy(bytes).chars().count() as u64)
                }
                _ => Seen::NOTHING,
            },
        }
    }
}

impl Seen<'_> {
    const NOTHING: Self = Self::Value(Kind::Undefined, Literal::Json(&[]));

    const fn kind(&self) -> Kind {
        match self {
            Self::Value(kind, _) => *kind,
            Self::Number(_) => Kind::Number,
        }
    }

    /// Order of two numbers or two strings.
    fn order(&self, other: &Self) -> Option<Ordering> {
        if self.kind() != other.kind() {
            return None;
        }
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => Some(a.cmp(b)),
            (Self::Number(a), Self::Value(_, Literal::Json(b))) => {
                Some(json::compare_numbers(a.to_string().as_bytes(), b))
            }
            (Self::Value(_, Literal::Json(a)), Self::Number(b)) => {
                Some(json::compare_numbers(a, b.to_string().as_bytes()))
            }
            (Self::Value(Kind::Number, Literal::Json(a)), Self::Value(_, Literal::Json(b))) => {
                Some(json::compare_numbers(a, b))
            }
            (Self::Value(Kind::String, Literal::Json(a)), Self::Value(_, Literal::Json(b))) => {
                Some(json::compare_strings(a, b, Strings::Scalar))
            }
            (Self::Value(Kind::String, a), Self::Value(_, b)) => Some(raw(*a).cmp(&raw(*b))),
            _ => None,
        }
    }

    fn equals(&self, other: &Self) -> bool {
        match (self.kind(), self, other) {
            (kind, ..) if kind != other.kind() => false,
            (Kind::Number | Kind::String, ..) => self.order(other) == Some(Ordering::Equal),
            (
                Kind::Array | Kind::Object,
                Self::Value(_, Literal::Json(a)),
                Self::Value(_, Literal::Json(b)),
            ) => weir_scan::equal(a, b),
            _ => true,
        }
    }
}
