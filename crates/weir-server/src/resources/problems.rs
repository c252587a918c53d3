//! Converts verdicts and errors of the store to problems.

use weir_core::intention::IntentionError;
use weir_core::{Commit, Detail, ErrorCode};
use weir_store::StoreError;

use crate::cluster::ClientAddresses;
use crate::http::problem::{Kind, Problem, kind_of};

/// Converts a verdict that is not VALID.
pub(crate) fn of_commit(commit: &Commit) -> Problem {
    let code = commit.reason.unwrap_or(ErrorCode::Internal);
    let mut problem = Problem::new(kind_of(code), code.sentence()).code(code);
    problem.intention = Some(commit.intention.0);
    match &commit.detail {
        Detail::None => problem,
        Detail::Actual(offset) => problem.number("actual", *offset),
        Detail::Limit(limit) => problem.number("limit", *limit),
        Detail::Operation { index, reason } => problem
            .number("index", u64::from(*index))
            .text("reason", reason.name())
            .number("reason_code", reason.number().into()),
        Detail::Rejected { code, text } => {
            if !text.is_empty() {
                text.as_ref().clone_into(&mut problem.detail);
            }
            problem.number("program_code", u64::from(*code))
        }
        Detail::Trapped(kind) => problem.text("trap", kind.name()),
        Detail::Text(text) => {
            text.as_ref().clone_into(&mut problem.detail);
            problem
        }
    }
}

/// Converts the refusal of an intention that is not in the log.
pub(crate) fn of_intention(error: &IntentionError) -> Problem {
    match error {
        IntentionError::TooLarge { what, max, .. } | IntentionError::TooMany { what, max, .. } => {
            Problem::too_large(what, *max)
        }
        IntentionError::Option(name) => Problem::new(Kind::InvalidOption, error.to_string())
            .code(ErrorCode::BadOption)
            .text("option", *name),
        IntentionError::Name(_) => {
            Problem::new(Kind::BadRequest, error.to_string()).code(ErrorCode::BadName)
        }
        _ => Problem::bad(error.to_string()),
    }
}

/// Converts an error of the store.
pub(crate) fn of_store(error: &StoreError) -> Problem {
    let (code, detail) = match error {
        StoreError::Refused { error, .. } => return of_intention(error),
        StoreError::LimitExceeded { what, limit, .. } => {
            let limit = usize::try_from(*limit).unwrap_or(usize::MAX);
            return Problem::too_large(what, limit);
        }
        StoreError::TopicUnknown { .. } => (ErrorCode::TopicUnknown, ""),
        StoreError::GroupUnknown { .. } => (ErrorCode::GroupUnknown, ""),
        StoreError::RecordsGone { first, last } => {
            return Problem::new(Kind::Gone, ErrorCode::Gone.sentence())
                .code(ErrorCode::Gone)
                .number("first", *first)
                .number("last", *last);
        }
        StoreError::Closed => (ErrorCode::Draining, ""),
        StoreError::Poisoned { .. }
        | StoreError::TopicsUnwritable { .. }
        | StoreError::InDoubt { .. }
        | StoreError::PartlyLogged { .. } => {
            let code = error.code();
            return Problem::new(kind_of(code), error.to_string()).code(code);
        }
        StoreError::Elsewhere { node, client } => return redirect(*node, client),
        StoreError::Remote { code, text } => {
            return Problem::new(kind_of(*code), text.clone()).code(*code);
        }
        StoreError::DiskFull { .. } => (ErrorCode::DiskFull, ""),
        StoreError::ProgramsOff | StoreError::ProgramUnable { .. } => {
            (ErrorCode::EngineMissing, "")
        }
        StoreError::Damage { .. } => (ErrorCode::Damaged, ""),
        _ => (ErrorCode::Io, ""),
    };
    let detail = if detail.is_empty() {
        code.sentence()
    } else {
        detail
    };
    Problem::new(kind_of(code), detail).code(code)
}

/// Redirects the client to the leader. The edge appends path and query.
fn redirect(node: u64, client: &str) -> Problem {
    let code = ErrorCode::Redirect;
    let Some(http) = ClientAddresses::read(client).http else {
        let text = "another node is the leader, and it has no HTTP port";
        return Problem::new(Kind::Unsupported, text).code(ErrorCode::Unsupported);
    };
    let problem = Problem::new(Kind::Redirect, code.sentence()).code(code);
    problem.number("leader", node).field("location", http)
}
