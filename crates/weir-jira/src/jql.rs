//! The subset of JQL that the simulator and the offline search share: parser and evaluator.
//!
//! Grammar: jira.md, section 9.2. The simulator and the offline search share one evaluator over
//! issue JSON, so a query returns equal rows in both.

mod evaluate;
mod parse;

pub use evaluate::{Context, OrderKey, matches, order_of, plain_text, sort};
pub(crate) use evaluate::{id_of, searched_text, texts, wanted_text};
pub use parse::parse;

use thiserror::Error;

/// Limit on the keys in ORDER BY.
pub const ORDER_KEYS_MAX: usize = 7;

/// Why a query cannot be parsed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("Error in the JQL query: {what} (line 1, character {at})")]
pub struct JqlError {
    /// Description of the fault.
    pub what: String,
    /// Position of the faulty character, from 1.
    pub at: usize,
}

/// A query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// The condition; `None` when there is none.
    pub condition: Option<Condition>,
    /// Fields of ORDER BY, each with `true` for descending.
    pub order: Vec<(String, bool)>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// All conditions are true.
    And(Vec<Self>),
    /// At least one condition is true.
    Or(Vec<Self>),
    /// A field is compared with values: one, or several for IN.
    Compare {
        /// Name of the field, in lower case.
        field: String,
        /// The operator.
        operator: Operator,
        /// The values.
        values: Vec<Operand>,
    },
    /// A field is empty, or is not empty.
    Empty {
        /// Name of the field, in lower case.
        field: String,
        /// Whether IS NOT EMPTY was written.
        negated: bool,
    },
}

/// The operator of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `=` and IN.
    Equal,
    /// `!=` and NOT IN.
    NotEqual,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterEqual,
    /// `<`.
    Less,
    /// `<=`.
    LessEqual,
    /// `~`.
    Contains,
    /// `!~`.
    ContainsNot,
}

impl Operator {
    /// The operator that NOT makes of this one.
    fn negated(self) -> Self {
        match self {
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
            Self::Greater => Self::LessEqual,
            Self::GreaterEqual => Self::Less,
            Self::Less => Self::GreaterEqual,
            Self::LessEqual => Self::Greater,
            Self::Contains => Self::ContainsNot,
            Self::ContainsNot => Self::Contains,
        }
    }
}

/// A value of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A quoted text, a name or a number.
    Text(String),
    /// A function with its argument.
    Function(String, Option<String>),
    /// EMPTY or NULL.
    Empty,
}
