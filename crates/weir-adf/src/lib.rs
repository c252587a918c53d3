//! Converts Atlassian Document Format (ADF) to org text and back, without loss.
//!
//! Invariants:
//!
//! - `from_org(to_org(D).text, D)` is `D`, for every document `D` that [`check`] accepts;
//! - a node that the edit does not change is returned unchanged, including unknown nodes, marks,
//!   attributes and fields;
//! - an error has the position of the fault: a JSON pointer in a document, a line in a text;
//! - depth, size and work are bounded (the constants of this crate);
//! - the crate does no I/O, reads no clock and never panics on input.
//!
//! | need | use |
//! | --- | --- |
//! | read bytes as a document | [`parse`] |
//! | check a document that is already a tree | [`check`] |
//! | show a document as org text | [`to_org`], [`Org`] |
//! | turn the edited text into a document | [`from_org`] |
//! | write or read without markup | [`from_plain`], [`to_plain`] |
//! | merge two edits of one document | [`merge`], [`Merged`] |
//! | combine the texts of several documents | [`to_org_all`], [`from_org_all`] |
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod check;
mod edit;
mod error;
mod inline;
mod lines;
mod merge;
mod node;
mod opaque;
mod options;
mod plain;
mod reconcile;
mod render;
mod sequence;
mod shown;
mod text;

pub use check::{DEPTH_MAX, DOCUMENT_BYTES_MAX, NODES_MAX, check, parse};
pub use edit::{from_org, from_org_all};
pub use error::{AdfError, OrgError, OrgErrorKind};
pub use merge::{Conflict, Merged, merge};
pub use opaque::{Opaque, OpaqueKind};
pub use options::{HEADING_OFFSET_MAX, ORG_BYTES_MAX, ORG_DEPTH_MAX, Options};
pub use plain::{from_plain, to_plain};
pub use render::{Org, to_org, to_org_all};

/// Returns a document without content, to use as the base of a new text.
#[must_use]
pub fn empty() -> serde_json::Value {
    serde_json::json!({ "type": "doc", "version": 1, "content": [] })
}
