//! Errors of the front door.

use thiserror::Error;
use weir_core::{ErrorCode, NameError};
use weir_store::StoreError;

/// Why a call did not give a verdict.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WeirError {
    /// The topic name is no name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The store could not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The topic is not there and could not be made.
    #[error("the topic could not be made: {code}")]
    NotCreated {
        /// Reason of the verdict on its CREATE.
        code: ErrorCode,
    },
    /// A query, or a record that it looked at.
    #[error(transparent)]
    Query(#[from] weir_query::QueryError),
    /// The group is not there, has another mode, or cannot be made.
    #[error("the group cannot be used: {code}")]
    Group {
        /// Reason of the verdict.
        code: ErrorCode,
    },
    /// The session's nonce was refused: it was not executed now. `expected` is
    /// the next nonce that would be.
    #[error("nonce {nonce} is refused ({code}); the session expects {expected}")]
    Nonce {
        /// The nonce that was sent.
        nonce: u64,
        /// `NonceGap`, `NonceReused`, `SessionExpired` or `Busy`.
        code: ErrorCode,
        /// The next nonce the store would execute.
        expected: u64,
    },
}

impl WeirError {
    /// The number of the error in the table of all surfaces. Constant time.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Name(_) => ErrorCode::BadName,
            Self::Store(error) => error.code(),
            Self::Query(error) => error.code(),
            Self::NotCreated { code } | Self::Group { code } | Self::Nonce { code, .. } => *code,
        }
    }
}

/// Builds the error of a store that is elsewhere.
pub(crate) fn remote_error(code: ErrorCode, text: impl Into<String>) -> StoreError {
    StoreError::Remote {
        code,
        text: text.into(),
    }
}
