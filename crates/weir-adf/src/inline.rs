//! Markup within a text. Written markup reads back as equal nodes.
//!
//! The markup is that of org, with its rule for boundaries: emphasis begins after white space or
//! `-('"{` and ends before white space or `-.,;:!?'")}\[`. A zero width space is such a boundary
//! and not a part of the text; two in a row are one zero width space of the text. A newline is a
//! hard break.

mod read;
mod write;

pub(crate) use read::read;
pub(crate) use write::{push_guard, write};

/// Separates markup from the text around it, as the manual of org advises.
pub(crate) const GUARD: char = '\u{200b}';

/// Opens a reference to a stored part of the base document: `{{{adf(3)}}}` or `{{{adf(3,text)}}}`.
pub(crate) const REFERENCE_OPEN: &str = "{{{adf(";
pub(crate) const REFERENCE_CLOSE: &str = ")}}}";

/// Schemes of links that represent nodes.
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

/// Whether `c` is valid in the short name of an emoji.
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
