//! Errors as Lisp conditions: a symbol that `weir.el` defines, a sentence, the code, and properties
//! for programs.

use std::path::Path;

use weir::{Detail, ErrorCode, StoreError, Verdict, WeirError};
use weir_jira::JiraError;

/// An error to signal in Lisp.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) symbol: &'static str,
    pub(crate) text: String,
    pub(crate) code: String,
    /// Further data of the condition: names of keywords, such as `:path`, with their values.
    pub(crate) properties: Vec<(&'static str, Property)>,
}

/// The value of a property of a condition.
#[derive(Debug, Clone)]
pub(crate) enum Property {
    Number(u64),
    /// A text, or the bytes of a key.
    Bytes(Vec<u8>),
}

impl From<u64> for Property {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Property {
    fn from(text: &str) -> Self {
        Self::Bytes(text.as_bytes().to_vec())
    }
}

impl From<&[u8]> for Property {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

impl Failure {
    /// An error with a text of this module.
    pub(crate) fn new(symbol: &'static str, text: impl Into<String>) -> Self {
        Self {
            symbol,
            text: text.into(),
            code: String::new(),
            properties: Vec::new(),
        }
    }

    /// Adds a property. `name` is a keyword of Lisp.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Property>) -> Self {
        self.properties.push((name, value.into()));
        self
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
            code: code.name().to_owned(),
            properties: Vec::new(),
        }
    }

    /// A write to `topic` that was not executed; `None` if it was.
    pub(crate) fn of_verdict(topic: &str, verdict: &Verdict) -> Option<Self> {
        let code = verdict.reason().filter(|_| !verdict.is_valid())?;
        let mut failure = Self::not_executed(code).with(":topic", topic);
        match verdict.detail() {
            Detail::Actual(offset) => failure = failure.with(":actual", offset),
            Detail::Rejected { text, .. } | Detail::Text(text) if !text.is_empty() => {
                failure.text = format!("{}: {text}", failure.text);
                failure = failure.with(":reason", &*text);
            }
            _ => {}
        }
        Some(failure)
    }

    fn not_executed(code: ErrorCode) -> Self {
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
        let failure = Self::coded(symbol, error.code(), error.to_string());
        match error.root() {
            StoreError::Locked { directory, pid, .. } => {
                let failure = failure.with(":path", directory.as_str());
                // 0: the process is unknown.
                if *pid == 0 {
                    return failure;
                }
                failure.with(":pid", u64::from(*pid))
            }
            StoreError::Damage { file, .. }
            | StoreError::NewerFormat { file, .. }
            | StoreError::UnknownContent { file, .. }
            | StoreError::ForeignStore { file } => failure.with(":path", file.as_str()),
            StoreError::Io {
                subject, source, ..
            } => {
                let failure = failure.with(":path", subject.as_str());
                let number = source.raw_os_error();
                match number.and_then(|number| u64::try_from(number).ok()) {
                    Some(number) => failure.with(":os-error", number),
                    None => failure,
                }
            }
            _ => failure,
        }
    }
}

impl From<WeirError> for Failure {
    fn from(error: WeirError) -> Self {
        let code = error.code();
        match error {
            WeirError::Store(error) => error.into(),
            WeirError::NotCreated { code } => Self::not_executed(code),
            WeirError::Name(_) | WeirError::Query(_) => {
                Self::coded("weir-usage", code, error.to_string())
            }
            other => Self::coded("weir-error", code, other.to_string()),
        }
    }
}

impl From<JiraError> for Failure {
    fn from(error: JiraError) -> Self {
        let symbol = match &error {
            JiraError::Store(_) | JiraError::Refused(_) | JiraError::Record(_) => "weir-storage",
            JiraError::Transport { .. } => "weir-network",
            JiraError::Unauthenticated | JiraError::Captcha => "weir-auth",
            JiraError::Status { status: 429, .. } | JiraError::Limited { .. } => "weir-throttled",
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
            JiraError::Store(error) => error.into(),
            JiraError::Refused(code) => Self::coded(symbol, code, error.to_string()),
            JiraError::Status { status, wait, .. } => {
                let failure = Self::new(symbol, error.to_string());
                let failure = failure.with(":status", u64::from(status));
                match wait {
                    Some(wait) => failure.with(":retry-after", wait.as_secs()),
                    None => failure,
                }
            }
            JiraError::Limited { wait, .. } => Self::new(symbol, error.to_string())
                .with(":status", 429_u64)
                .with(":retry-after", wait.as_secs()),
            error => Self::new(symbol, error.to_string()),
        }
    }
}
