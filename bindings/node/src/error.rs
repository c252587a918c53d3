//! Errors of other crates, encoded for JavaScript, which converts them to its error classes.

use std::fmt::Write as _;

use weir::query::QueryError;
use weir::{ErrorCode, StoreError, WeirError};

/// The prefix of the fields of an error in its message.
const PREFIX: &str = "weir:";

/// An error: its code, its text and, for queries, its position.
#[derive(Debug)]
pub(crate) struct Failure {
    code: ErrorCode,
    text: String,
    /// Further fields, as JSON members, each after a comma.
    extra_fields: String,
}

/// The result of most calls of this crate.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// An error with a text of this crate.
    pub(crate) fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
            extra_fields: String::new(),
        }
    }

    /// The error for a value that an option does not accept.
    pub(crate) fn option(what: &str, value: &str) -> Self {
        Self::new(ErrorCode::BadOption, format!("{what} cannot be {value:?}"))
    }

    /// The error for a number of a session that was not accepted.
    pub(crate) fn nonce(code: ErrorCode, expected: u64) -> Self {
        let text = format!("the nonce is refused; the session expects {expected}");
        let mut failure = Self::new(code, text);
        failure.field("expected", Some(expected));
        failure
    }

    fn field(&mut self, name: &str, value: Option<u64>) {
        if let Some(value) = value {
            // Writing to a string cannot fail. In quotes, because the number may be too large for
            // JavaScript.
            let _ = write!(self.extra_fields, ",\"{name}\":\"{value}\"");
        }
    }
}

/// A text as a JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            plain => out.push(plain),
        }
    }
    out.push('"');
    out
}

impl From<WeirError> for Failure {
    fn from(error: WeirError) -> Self {
        match error {
            WeirError::Query(error) => error.into(),
            WeirError::Nonce { code, expected, .. } => Self::nonce(code, expected),
            other => Self::new(other.code(), other.to_string()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        let mut failure = Self::new(error.code(), error.to_string());
        let location = error.location();
        failure.field("source", location.source.map(|source| u64::from(source.0)));
        failure.field("page", location.page);
        failure.field("item", location.item);
        failure.field("offset", location.offset);
        if !location.name.is_empty() {
            let name = quoted(&String::from_utf8_lossy(&location.name));
            let _ = write!(failure.extra_fields, ",\"sourceName\":{name}");
        }
        if let Some(field) = location.field {
            let _ = write!(failure.extra_fields, ",\"field\":{}", quoted(field));
        }
        failure
    }
}

impl From<Failure> for napi::Error {
    fn from(failure: Failure) -> Self {
        let code = failure.code;
        let class = match code.class() {
            weir::ErrorClass::Invalid | weir::ErrorClass::Error => "verdict",
            weir::ErrorClass::Refusal => "refusal",
            weir::ErrorClass::Store => "store",
            weir::ErrorClass::Client => "client",
            weir::ErrorClass::Query => "query",
            weir::ErrorClass::Call => "call",
            weir::ErrorClass::Internal => "internal",
        };
        let retry = match code.retry() {
            weir::ErrorRetry::Yes => "yes",
            weir::ErrorRetry::After => "after",
            weir::ErrorRetry::No => "no",
        };
        Self::from_reason(format!(
            "{PREFIX}{{\"code\":\"{}\",\"number\":{},\"class\":\"{class}\",\"retry\":\"{retry}\",\
             \"message\":{},\"advice\":{}{}}}",
            code.name(),
            code.number(),
            quoted(&failure.text),
            quoted(code.advice()),
            failure.extra_fields
        ))
    }
}
