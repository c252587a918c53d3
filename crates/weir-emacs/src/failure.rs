//! Errors as Lisp conditions: a symbol that `weir.el` defines, a sentence, and the code.

use weir::{ErrorCode, StoreError, WeirError};

/// An error on its way to Lisp.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) symbol: &'static str,
    pub(crate) text: String,
    pub(crate) code: String,
}

impl Failure {
    /// With words of our own.
    pub(crate) fn new(symbol: &'static str, text: impl Into<String>) -> Self {
        Self {
            symbol,
            text: text.into(),
            code: String::new(),
        }
    }

    /// The store was closed.
    pub(crate) fn closed() -> Self {
        Self::new("weir-usage", "the store is closed")
    }

    fn coded(symbol: &'static str, code: ErrorCode, text: String) -> Self {
        Self {
            symbol,
            text,
            code: code.to_string(),
        }
    }

    /// A write that was not executed.
    pub(crate) fn verdict(code: ErrorCode) -> Self {
        let symbol = match code {
            ErrorCode::Conflict => "weir-conflict",
            ErrorCode::TopicAbsent | ErrorCode::NoTopic | ErrorCode::TopicUnknown => {
                "weir-not-found"
            }
            ErrorCode::TopicExists => "weir-exists",
            _ => "weir-rejected",
        };
        Self::coded(symbol, code, format!("the write was not executed: {code}"))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let symbol = match error.code() {
            ErrorCode::Locked => "weir-locked",
            ErrorCode::TopicAbsent | ErrorCode::NoTopic | ErrorCode::TopicUnknown => {
                "weir-not-found"
            }
            ErrorCode::Closed => "weir-usage",
            _ => "weir-storage",
        };
        Self::coded(symbol, error.code(), error.to_string())
    }
}

impl From<WeirError> for Failure {
    fn from(error: WeirError) -> Self {
        match error {
            WeirError::Store(error) => error.into(),
            WeirError::Name(_) => Self::new("weir-usage", error.to_string()),
            WeirError::NotCreated { code } => Self::verdict(code),
            other => Self::new("weir-error", other.to_string()),
        }
    }
}
