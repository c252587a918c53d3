//! Errors as Lisp conditions: a symbol that `weir.el` defines, a sentence, and the code.

use std::path::Path;

use weir::{ErrorCode, StoreError, WeirError};
use weir_jira::JiraError;

/// An error to signal in Lisp.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) symbol: &'static str,
    pub(crate) text: String,
    pub(crate) code: String,
}

impl Failure {
    /// An error with a text of this module.
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

    /// The operation was cancelled before its end.
    pub(crate) fn cancelled() -> Self {
        Self::new("weir-cancelled", "the operation was cancelled")
    }

    /// The user pressed C-g.
    pub(crate) fn quit() -> Self {
        Self::new("quit", "")
    }

    pub(crate) fn is_quit(&self) -> bool {
        self.symbol == "quit"
    }

    /// A failed open of the store in a directory. For damage, the text has the directory and the
    /// next step.
    pub(crate) fn open(directory: &Path, error: StoreError) -> Self {
        let is_damage = error.code() == ErrorCode::Damaged;
        let failure = Self::from(error);
        if !is_damage {
            return failure;
        }
        let directory = directory.display();
        let text = format!(
            "the store in {directory} is {}. Copy the directory first; then `weir repair NEW --at \
             {directory}` writes what can be read to the directory NEW. See docs/operating/damage.md",
            failure.text
        );
        Self { text, ..failure }
    }

    /// A failed connection attempt.
    pub(crate) fn network(error: WeirError) -> Self {
        let failure = Self::from(error);
        match failure.symbol {
            "weir-storage" | "weir-error" => Self {
                symbol: "weir-network",
                ..failure
            },
            _ => failure,
        }
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
            ErrorCode::Cancelled => "weir-cancelled",
            ErrorCode::Unreachable | ErrorCode::Indeterminate => "weir-network",
            ErrorCode::Deadline => "weir-timeout",
            ErrorCode::Unauthenticated | ErrorCode::Forbidden => "weir-auth",
            ErrorCode::TooLarge => "weir-rejected",
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
            WeirError::Query(error) => Self::coded("weir-usage", error.code(), error.to_string()),
            other => Self::new("weir-error", other.to_string()),
        }
    }
}

impl From<JiraError> for Failure {
    fn from(error: JiraError) -> Self {
        let symbol = match &error {
            JiraError::Store(_) | JiraError::Refused(_) | JiraError::Record(_) => "weir-storage",
            JiraError::Transport { .. } => "weir-network",
            JiraError::Unauthenticated | JiraError::Captcha => "weir-auth",
            JiraError::Status { status: 429, .. } => "weir-throttled",
            JiraError::Status { .. } => "weir-http",
            JiraError::Garbage { .. } | JiraError::Paging(_) => "weir-protocol",
            JiraError::Jql(_)
            | JiraError::EmptyQuery
            | JiraError::Settings(_)
            | JiraError::ReadOnly => "weir-usage",
            JiraError::TooManyGone { .. } => "weir-unconfirmed",
            JiraError::UnknownIssue(_) => "weir-not-found",
            _ => "weir-error",
        };
        match error {
            // The advice for the command line would not help here.
            JiraError::Unauthenticated => Self::new(
                symbol,
                "the site refused the token (HTTP 401): it may have expired. `M-x weir-jira-doctor' shows \
                 where it is stored: replace it, then use `M-x weir-jira-sync'. The replica stays readable",
            ),
            JiraError::TooManyGone {
                project,
                gone,
                known,
            } => Self::new(
                symbol,
                format!(
                    "the site lacks {gone} of {known} issues of {project}; they stay until `C-u M-x weir-jira-sync' \
                     is confirmed"
                ),
            ),
            error => Self::new(symbol, error.to_string()),
        }
    }
}
