//! Errors of the public API.

use thiserror::Error;
use weir_core::{Detail, ErrorCode, GroupMode, NameError};
use weir_store::StoreError;

/// Why a call returned no verdict.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WeirError {
    /// The name of the topic is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The topic does not exist and could not be created.
    #[error("the topic could not be created: {code}")]
    NotCreated {
        /// Reason of the verdict on its CREATE.
        code: ErrorCode,
    },
    /// The query is not valid, or a record that it read has an error.
    #[error(transparent)]
    Query(#[from] weir_query::QueryError),
    /// The group does not exist, or cannot be created.
    #[error("the group cannot be used. {}", .code.sentence())]
    Group {
        /// Reason of the verdict.
        code: ErrorCode,
    },
    /// The group cannot be created because its topic does not exist.
    #[error("there is no topic {topic}")]
    GroupTopicAbsent {
        /// The topic.
        topic: String,
    },
    /// The group has another mode than the call needs.
    #[error("group {group} is {}, not {}", .actual.name(), .needed.name())]
    GroupModeDiffers {
        /// The name of the group.
        group: String,
        /// Its mode.
        actual: GroupMode,
        /// The mode that the call needs.
        needed: GroupMode,
    },
    /// The setup of a new group has an invalid field. Nothing was written.
    #[error("the group to create has a wrong {0}")]
    GroupSetup(&'static str),
    /// The write was rejected. Only [`Verdict::ensure_valid`](crate::Verdict::ensure_valid) returns this error.
    #[error("the write was rejected: {code}{}", in_brackets(.detail))]
    Rejected {
        /// Reason of the verdict.
        code: ErrorCode,
        /// Details of the reason.
        detail: Detail,
    },
    /// A time is longer than a store accepts. Nothing was sent or written.
    #[error("a {what} of {ms} ms is too long; the limit is {max_ms} ms")]
    TooLong {
        /// The time: "lease" or "delay".
        what: &'static str,
        /// Its length in milliseconds.
        ms: u64,
        /// The limit in milliseconds.
        max_ms: u64,
    },
    /// The nonce of the session was rejected, and its intention was not executed by this call. The
    /// store would execute `expected` next.
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
    /// The number of the error in the table that all interfaces share. Constant time.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Name(_) => ErrorCode::BadName,
            Self::Store(error) => error.code(),
            Self::Query(error) => error.code(),
            Self::GroupTopicAbsent { .. } => ErrorCode::TopicAbsent,
            Self::GroupModeDiffers { .. } => ErrorCode::GroupMode,
            Self::GroupSetup(_) | Self::TooLong { .. } => ErrorCode::BadRequest,
            Self::NotCreated { code }
            | Self::Group { code }
            | Self::Rejected { code, .. }
            | Self::Nonce { code, .. } => *code,
        }
    }
}

/// The details in brackets, after a blank; empty without details.
fn in_brackets(detail: &Detail) -> String {
    match detail {
        Detail::None => String::new(),
        detail => format!(" ({detail})"),
    }
}

/// Creates the error of a remote store.
pub(crate) fn remote_error(code: ErrorCode, text: impl Into<String>) -> StoreError {
    StoreError::Remote {
        code,
        text: text.into(),
    }
}
