//! The subset of JQL that the simulator and the offline search share: parser and evaluator.
//!
//! Grammar: jira.md, section 9.2. One evaluator works on issue JSON, so that a query gives the same
//! rows offline as at the simulator.

mod evaluate;
mod parse;

pub use evaluate::{Context, OrderKey, matches, order_of, plain_text, sort};
pub use parse::parse;

use thiserror::Error;

/// Most keys in ORDER BY.
pub const ORDER_KEYS_MAX: usize = 7;

/// Why a query cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("Error in the JQL query: {what} (line 1, character {at})")]
pub struct JqlError {
    /// What is wrong.
    pub what: String,
    /// Character at which it is, from 1.
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
    /// All hold.
    And(Vec<Self>),
    /// One holds.
    Or(Vec<Self>),
    /// It does not hold.
    Not(Box<Self>),
    /// A field is compared with values: one, or several for IN.
    Compare {
        /// Name of the field, in lower case.
        field: String,
        /// How.
        operator: Operator,
        /// With what.
        values: Vec<Operand>,
    },
    /// A field is empty, or not.
    Empty {
        /// Name of the field, in lower case.
        field: String,
        /// Whether IS NOT EMPTY was written.
        negated: bool,
    },
}

/// How a field is compared.
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

/// A value of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A quoted text, a name or a number.
    Text(String),
    /// A function with its argument.
    Function(String, Option<String>),
}
