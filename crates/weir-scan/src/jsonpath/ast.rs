//! A parsed expression.
//!
//! Invariant: the expression is well-typed by RFC 9535 (2.4.3), so the evaluation handles no type
//! errors.

use super::regex::Regex;
use crate::path::Path;

/// One step of a query.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// `..`: applies to the node and all its descendants.
    pub(super) descendant: bool,
    pub(super) selectors: Vec<Selector>,
}

#[derive(Clone, Debug)]
pub(super) enum Selector {
    Name(Box<str>),
    Wildcard,
    Index(i64),
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        step: i64,
    },
    Filter(Logical),
}

/// The start of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// `$`, and `@` outside of filter selectors.
    Item,
    /// `@`
    Current,
}

/// A query inside of an expression.
#[derive(Clone, Debug)]
pub(super) struct Inner {
    pub(super) root: Root,
    pub(super) segments: Vec<Segment>,
    /// The query as a singular path, if it is singular.
    pub(super) path: Option<Path>,
    /// For a singular path from the item: its index in the list of paths.
    pub(super) slot: Option<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum Logical {
    Any(Vec<Self>),
    All(Vec<Self>),
    Not(Box<Self>),
    Compare(Comparison, Operand, Operand),
    Exists(Inner),
    /// Whether the whole string, or a part of it, matches the pattern.
    Regex {
        text: Operand,
        pattern: Pattern,
        whole: bool,
    },
    Starts(Operand, Operand),
    Undefined(Operand),
}

/// The second argument of `match` and `search`.
#[derive(Clone, Debug)]
pub(super) enum Pattern {
    /// A literal; `None` if it is not a regular expression, so nothing matches.
    Fixed(Option<Regex>),
    /// A value from the data or a binding, or a literal after many others, compiled for each
    /// evaluation.
    Computed(Operand),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// An operand that yields one value or nothing.
#[derive(Clone, Debug)]
pub(super) enum Operand {
    /// A literal that is not a string, as JSON.
    Literal(Box<[u8]>),
    /// A string, decoded.
    Text(Box<str>),
    Singular(Inner),
    Length(Box<Self>),
    Count(Inner),
    Value(Inner),
    Param(Box<str>),
    Meta(Box<str>),
    Type(Box<Self>),
}

impl Logical {
    /// Whether the evaluation needs more than the values of singular paths from the item.
    pub(super) fn walks(&self) -> bool {
        match self {
            Self::Any(parts) | Self::All(parts) => parts.iter().any(Self::walks),
            Self::Not(part) => part.walks(),
            Self::Compare(_, a, b) | Self::Starts(a, b) => a.walks() || b.walks(),
            Self::Exists(inner) => inner.slot.is_none(),
            Self::Regex { text, pattern, .. } => {
                text.walks() || matches!(pattern, Pattern::Computed(pattern) if pattern.walks())
            }
            Self::Undefined(operand) => operand.walks(),
        }
    }
}

impl Operand {
    fn walks(&self) -> bool {
        match self {
            Self::Singular(inner) => inner.slot.is_none(),
            Self::Length(of) | Self::Type(of) => of.walks(),
            Self::Count(_) | Self::Value(_) => true,
            Self::Literal(_) | Self::Text(_) | Self::Param(_) | Self::Meta(_) => false,
        }
    }
}
