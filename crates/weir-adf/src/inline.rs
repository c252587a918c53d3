//! Markup within a text: reading it, and writing it so that it is read as it was.
//!
//! The markup is that of org, with its rule for boundaries: emphasis begins after white space or
//! `-('"{` and ends before white space or `-.,;:!?'")}\[`. A zero width space is such a boundary
//! and no part of the text; two of them are one that is. A newline stands for a hard break.

mod read;
mod write;

pub(crate) use read::read;
pub(crate) use write::{push_guard, write};

/// Separates markup from the text around it, as the manual of org advises.
pub(crate) const GUARD: char = '\u{200b}';

/// Marks the base document's stored parts: `{{{adf(3)}}}` or `{{{adf(3,text)}}}`.
pub(crate) const REFERENCE_OPEN: &str = "{{{adf(";
pub(crate) const REFERENCE_CLOSE: &str = ")}}}";

/// Schemes of links that stand for nodes.
pub(crate) const USER: &str = "jira-user:";
pub(crate) const STATUS: &str = "jira-status:";
pub(crate) const ATTACHMENT: &str = "jira-att:";

pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || c == GUARD
}

/// Whether emphasis may begin after `c`.
pub(crate) fn may_precede(c: char) -> bool {
    is_space(c) || "-('\"{".contains(c)
}

/// Whether emphasis may end before `c`.
pub(crate) fn may_follow(c: char) -> bool {
    is_space(c) || "-.,;:!?'\")}\\[".contains(c)
}

/// Whether `c` may stand in the short name of an emoji.
pub(crate) fn in_short_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_+-".contains(c)
}

/// Whether `target` begins with a scheme of a URL.
pub(crate) fn has_scheme(target: &str) -> bool {
    let Some((scheme, _)) = target.split_once(':') else {
        return false;
    };
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c))
}
