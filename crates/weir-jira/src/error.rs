//! Errors of the work with Jira.

use thiserror::Error;
use weir::WeirError;

/// A colon and the text; nothing for an empty text.
fn after_colon(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    format!(": {text}")
}

/// The names of favourite filters, as a clause.
fn favourites(names: &[String]) -> String {
    if names.is_empty() {
        return "the last pull found no favourites".to_owned();
    }
    format!("the favourites are {}", names.join(", "))
}

/// Error of a call of this crate. No text contains a token.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JiraError {
    /// The replica could not be read or written.
    #[error(transparent)]
    Store(#[from] WeirError),
    /// The store rejected a write, because of a program of the topic or a limit.
    #[error("the store refused a write to the replica: {0}")]
    Refused(weir::ErrorCode),
    /// Another process writes to the same replica.
    #[error("another process changed the replica at the same time; run the command again")]
    Busy,
    /// The site could not be reached, did not answer in time, or the connection broke. Retrying can
    /// help. A write may have been executed.
    #[error("{method} {path}: {cause}")]
    Transport {
        /// Method of the request.
        method: &'static str,
        /// Path of the request, without its query.
        path: String,
        /// What the connection reported.
        cause: String,
        /// Whether the site may have received the request.
        sent: bool,
    },
    /// The site temporarily accepts no more writes (HTTP 429). The write was not executed.
    #[error("{path}: the site limits writes (HTTP 429); wait {} s", wait.as_secs())]
    Limited {
        /// Path of the request.
        path: String,
        /// How long to wait.
        wait: std::time::Duration,
        /// Whether only this issue is limited, so that others can be written.
        issue: bool,
    },
    /// The token is wrong, expired or revoked (HTTP 401).
    #[error(
        "the site refused the token (HTTP 401): it may have expired; log in again with \
         `weir jira login`. The replica stays readable"
    )]
    Unauthenticated,
    /// The site requires a CAPTCHA; retries make it worse.
    #[error("the site asks for a CAPTCHA (HTTP 403): log in with a browser once, then retry")]
    Captcha,
    /// The site answered with an error status.
    #[error("{method} {path} failed with HTTP {status}{}", after_colon(message))]
    Status {
        /// Method of the request.
        method: &'static str,
        /// Path of the request, without its query.
        path: String,
        /// HTTP status.
        status: u16,
        /// The messages of the answer, or its first 200 characters.
        message: String,
        /// How long to wait before the next request, if the site named a time.
        wait: Option<std::time::Duration>,
    },
    /// The answer has no documented form of Jira.
    #[error("the answer to {method} {path} is not a valid answer of Jira: {cause}")]
    Garbage {
        /// Method of the request.
        method: &'static str,
        /// Path of the request, without its query.
        path: String,
        /// The fault of the answer.
        cause: String,
    },
    /// The server returns inconsistent pages.
    #[error("the pages of the site are inconsistent: {0}; run the pull again")]
    Paging(&'static str),
    /// Jira Data Center is read-only.
    #[error(
        "Weir only reads Jira Data Center: the issue cannot be changed from here. Change it at the \
         site, then pull"
    )]
    ReadOnly,
    /// A query cannot be parsed.
    #[error(transparent)]
    Jql(#[from] crate::jql::JqlError),
    /// A query without a condition is never sent.
    #[error("the query has no condition: give at least one, such as `project = KEY`")]
    EmptyQuery,
    /// The replica has no issue with this key.
    #[error("the replica has no issue {0}; a pull fetches new issues")]
    UnknownIssue(String),
    /// The account has no favourite filter with this name.
    #[error("{name:?} is not a favourite filter; {}", favourites(known))]
    UnknownFilter {
        /// The name.
        name: String,
        /// Names of the favourite filters, as of the last pull.
        known: Vec<String>,
    },
    /// A census would remove more than a fifth of a project.
    #[error(
        "the census would remove {gone} of {known} issues of project {project}; nothing was \
         removed. Pull with --confirm-removal if that is right"
    )]
    TooManyGone {
        /// Key of the project.
        project: String,
        /// Issues that the server no longer shows.
        gone: usize,
        /// Issues of the project in the replica.
        known: usize,
    },
    /// A field of an edit cannot have this value.
    #[error("{field}: {what}")]
    Field {
        /// The field as the caller named it.
        field: String,
        /// The fault, and the possible values.
        what: String,
    },
    /// A change is impossible.
    #[error("{0}")]
    Change(String),
    /// The outbox has no such operation.
    #[error("the outbox has no operation {0}")]
    UnknownOp(String),
    /// A setting of the site cannot be used.
    #[error("{0}")]
    Settings(String),
    /// A file of the settings cannot be read or written.
    #[error("cannot use {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A record of the replica has a form that this crate does not write.
    #[error("a record of the replica cannot be read: {0}")]
    Record(#[from] serde_json::Error),
}

impl JiraError {
    /// Whether a write with this error may have been executed.
    pub fn is_unknown(&self) -> bool {
        match self {
            Self::Transport { sent, .. } => *sent,
            Self::Garbage { .. } => true,
            Self::Status { status, .. } => *status >= 500,
            _ => false,
        }
    }

    /// Whether a read failed because the site answers no reads now. Reads of other objects would
    /// fail too, each after several attempts.
    pub(crate) fn is_about_all_reads(&self) -> bool {
        match self {
            Self::Transport { .. } => true,
            Self::Status { status, .. } => matches!(*status, 429 | 503),
            _ => false,
        }
    }

    /// Whether a read failed because of the object that was read. Reads of other objects can then
    /// succeed.
    pub(crate) fn is_about_one_object(&self) -> bool {
        match self {
            Self::Garbage { .. } => true,
            Self::Status { status, .. } => (400..=500).contains(status) && *status != 429,
            _ => false,
        }
    }
}

/// Result of the calls of this crate.
pub type Result<T> = std::result::Result<T, JiraError>;
