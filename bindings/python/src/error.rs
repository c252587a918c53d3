//! Errors of other crates as exceptions of the package.
//!
//! The classes are in Python (`weir/_errors.py`). Numbers, names and advice come from the table
//! that all languages share. Invariant: every error has its code.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use weir::query::QueryError;
use weir::{ErrorCode, NameError, StoreError, WeirError};

/// An error for Python, in a form that can be created without the interpreter.
pub(crate) struct Failure {
    code: ErrorCode,
    text: String,
    position: Option<Box<QueryPosition>>,
    expected: Option<u64>,
}

/// The position of an error in a query.
#[derive(Default)]
struct QueryPosition {
    source: Option<u32>,
    name: Option<String>,
    page: Option<u64>,
    item: Option<u64>,
    offset: Option<u64>,
    field: Option<&'static str>,
}

/// The result of most calls of this crate.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// An error with a text of this crate.
    pub(crate) fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
            position: None,
            expected: None,
        }
    }

    /// The object was closed.
    pub(crate) fn closed() -> Self {
        Self::new(ErrorCode::Closed, "the store is closed")
    }

    /// The error for a number of a session that was not accepted.
    pub(crate) fn nonce(code: ErrorCode, expected: u64) -> Self {
        let text = format!("the nonce is refused; the session expects {expected}");
        let mut failure = Self::new(code, text);
        failure.expected = Some(expected);
        failure
    }

    /// The error for a value that an option does not accept.
    pub(crate) fn option(what: &str, value: &str) -> Self {
        Self::new(ErrorCode::BadOption, format!("{what} cannot be {value:?}"))
    }

    /// The error for a value that is none of the words that an option accepts.
    pub(crate) fn word(what: &str, value: &str, words: &[&str]) -> Self {
        let words = words.join(", ");
        let text = format!("{what} cannot be {value:?}; it accepts {words}");
        Self::new(ErrorCode::BadOption, text)
    }
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

impl From<NameError> for Failure {
    fn from(error: NameError) -> Self {
        Self::new(ErrorCode::BadName, error.to_string())
    }
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        let position = error.location();
        let name = String::from_utf8_lossy(&position.name).into_owned();
        Self {
            code: error.code(),
            text: error.to_string(),
            position: Some(Box::new(QueryPosition {
                source: position.source.map(|source| source.0),
                name: (!name.is_empty()).then_some(name),
                page: position.page,
                item: position.item,
                offset: position.offset,
                field: position.field,
            })),
            expected: None,
        }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| raise(py, failure).unwrap_or_else(|error| error))
    }
}

/// Calls the Python function that creates exceptions.
fn raise(py: Python<'_>, failure: Failure) -> PyResult<PyErr> {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = MAKE.get_or_try_init(py, || {
        let module = py.import("weir._errors")?;
        PyResult::Ok(module.getattr("make")?.unbind())
    })?;
    let code = failure.code;
    let class = match code.class() {
        weir::ErrorClass::Invalid => "invalid",
        weir::ErrorClass::Error => "error",
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
    let position = failure.position.unwrap_or_default();
    let error = make.bind(py).call1((
        (
            code.name(),
            code.number(),
            class,
            retry,
            failure.text,
            code.advice(),
        ),
        (
            position.source,
            position.name,
            position.page,
            position.item,
            position.offset,
            position.field,
        ),
        failure.expected,
    ))?;
    Ok(PyErr::from_value(error))
}
