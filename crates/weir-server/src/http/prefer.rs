//! Preferences of a request (RFC 7240).

use super::head::{FieldName, Head};
use crate::http::query::offset_of;
use crate::limits::CONFLICTS_MAX;

/// The preferences of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prefer {
    pub(crate) minimal: bool,
    pub(crate) detached: bool,
    pub(crate) wait: Option<u64>,
    /// Number of records that the response to a conflict should contain.
    pub(crate) conflicts: u64,
}

impl Prefer {
    pub(crate) fn read(head: &Head) -> Self {
        let mut prefer = Self::default();
        for element in head.list(FieldName::Prefer) {
            match element.split_once('=') {
                Some(("return", "minimal")) => prefer.minimal = true,
                Some(("wait", seconds)) => prefer.wait = offset_of(seconds.trim()),
                Some(("conflicts", number)) => {
                    let number = offset_of(number.trim()).unwrap_or(0);
                    prefer.conflicts = number.min(CONFLICTS_MAX);
                }
                None if element == "respond-async" => prefer.detached = true,
                // Unknown preferences are ignored.
                _ => {}
            }
        }
        prefer
    }
}
