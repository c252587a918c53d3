//! Verdicts as rows, and what they mean for the exit code.

use std::borrow::Cow;

use weir::{Commit, Detail, Effect, ErrorCode};

use crate::output::{Cell, Field, field, wide};
use crate::report::Failure;

/// Exit code of a verdict that is not VALID.
pub(crate) const NOT_VALID: u8 = 3;

/// Fields of a verdict.
pub(crate) const FIELDS: &[Field] = &[
    field("effect", "text", "VALID, INVALID or ERROR"),
    field("topic", "text", "name of the topic"),
    field(
        "offset",
        "number",
        "offset of the first record, null when there is none",
    ),
    wide("records", "number", "number of records"),
    field(
        "intention",
        "number",
        "position in the order of all intentions",
    ),
    field("reason", "text", "why not, null when VALID"),
    field("detail", "text", "more about the reason"),
    wide(
        "nonce",
        "number",
        "number of the intention in its session, 0 without one",
    ),
    wide(
        "replayed",
        "bool",
        "whether this answers an earlier sending again",
    ),
    wide(
        "fuel",
        "number",
        "fuel that the topic's program used, 0 without one and in an answer that is given again",
    ),
];

/// The row of a verdict.
pub(crate) fn row<'a>(topic: &'a str, commit: &Commit, replayed: bool) -> [Cell<'a>; 10] {
    let offset = (commit.records > 0).then_some(commit.first.0);
    let detail = detail(&commit.detail);
    [
        Cell::Text(Cow::Borrowed(commit.effect.name())),
        Cell::Text(Cow::Borrowed(topic)),
        offset.map_or(Cell::Nothing, Cell::Count),
        Cell::Count(u64::from(commit.records)),
        Cell::Count(commit.intention.0),
        commit.reason.map_or(Cell::Nothing, |reason| {
            Cell::Text(Cow::Borrowed(reason.name()))
        }),
        detail.map_or(Cell::Nothing, |text| Cell::Text(Cow::Owned(text))),
        Cell::Count(commit.nonce),
        Cell::Flag(replayed),
        Cell::Count(commit.fuel),
    ]
}

/// What a verdict says beyond its reason, for people.
pub(crate) fn detail(detail: &Detail) -> Option<String> {
    match detail {
        Detail::None => None,
        Detail::Actual(offset) => Some(format!("actual offset {offset}")),
        Detail::Limit(limit) => Some(format!("limit {limit}")),
        Detail::Operation { index, reason } => {
            Some(format!("operation {index}: {}", reason.name()))
        }
        Detail::Rejected { code, text } if text.is_empty() => Some(format!("code {code}")),
        Detail::Rejected { code, text } => Some(format!("code {code}: {text}")),
        Detail::Trapped(kind) => Some(kind.name().to_owned()),
        Detail::Text(text) => Some(text.to_string()),
    }
}

/// What to say about a verdict that is not VALID.
pub(crate) fn failure(topic: &str, commit: &Commit) -> Option<Failure> {
    if commit.effect == Effect::Valid {
        return None;
    }
    let code = commit.reason.unwrap_or(ErrorCode::Internal);
    let what = format!("{} {} in {topic}", commit.effect.name(), code.name());
    let failure = Failure::new(code, what);
    Some(match detail(&commit.detail) {
        Some(detail) => failure.because(format!("{} ({detail})", code.sentence())),
        None => failure,
    })
}
