//! Errors; each has the position of the fault in the input.

use thiserror::Error;

/// Why a value is not a document. The fault is that of the caller, or of the server that sent the
/// value; a retry does not help.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AdfError {
    /// The bytes are not JSON, or exceed the nesting limit of the JSON parser.
    #[error("the document is not JSON: line {line}, column {column}")]
    Json {
        /// Line of the fault, from 1.
        line: usize,
        /// Column of the fault in bytes, from 1.
        column: usize,
    },
    /// A part of the document has the wrong shape.
    #[error("the document is broken at `{pointer}`: expected {expected}")]
    Shape {
        /// JSON pointer (RFC 6901) to the part; empty for the document itself.
        pointer: String,
        /// The expected shape.
        expected: &'static str,
    },
    /// Nodes nest deeper than [`DEPTH_MAX`](crate::DEPTH_MAX).
    #[error("the document nests deeper than {limit} nodes at `{pointer}`")]
    TooDeep {
        /// JSON pointer to the first node that is too deep.
        pointer: String,
        /// The limit, in nodes.
        limit: usize,
    },
    /// The document has more than [`NODES_MAX`](crate::NODES_MAX) nodes.
    #[error("the document has more than {limit} nodes")]
    TooManyNodes {
        /// The limit, in nodes.
        limit: usize,
    },
    /// The document has more than [`DOCUMENT_BYTES_MAX`](crate::DOCUMENT_BYTES_MAX) bytes of JSON
    /// or of text.
    #[error("the document has {bytes} bytes, more than {limit}")]
    TooLarge {
        /// Size of the document.
        bytes: usize,
        /// The limit, in bytes.
        limit: usize,
    },
}

/// Why an org text is not a document: the line and the kind of the fault.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {kind}")]
pub struct OrgError {
    /// Line of the fault, from 1.
    pub line: usize,
    /// The fault.
    pub kind: OrgErrorKind,
}

/// The kind of a fault in an org text. The user who edited the text must correct it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OrgErrorKind {
    /// A `#+begin_NAME` without its `#+end_NAME`.
    #[error("`#+begin_{name}` has no `#+end_{name}`; add it")]
    UnclosedBlock {
        /// Name of the block, in lower case.
        name: String,
    },
    /// A block whose name has no corresponding node.
    #[error(
        "`#+begin_{name}` is no block of Jira; use src, example, quote, expand, media or a panel"
    )]
    UnknownBlock {
        /// Name of the block, in lower case.
        name: String,
    },
    /// A reference to a stored node that is not in the base document.
    #[error("`{{{{{{adf({number})}}}}}}` refers to no part of the document; remove it")]
    UnknownReference {
        /// Number of the reference.
        number: usize,
    },
    /// A reference to a stored block within a line of text.
    #[error(
        "`{{{{{{adf({number})}}}}}}` is a block; put it on a line of its own between empty lines"
    )]
    BlockInText {
        /// Number of the reference.
        number: usize,
    },
    /// A headline at or above the level of the section, or inside of a block or list.
    #[error("a headline is not possible here; the first level has {stars} stars")]
    Headline {
        /// Stars of the first level of headings.
        stars: usize,
    },
    /// A heading below level 6.
    #[error("headings have at most 6 levels")]
    HeadingTooDeep,
    /// A task with anything other than one text and subtasks.
    #[error("a task can contain one text and tasks; move other content out of it")]
    TaskContent,
    /// A media block with anything other than links to attachments.
    #[error("a block of media can contain only links of the form [[jira-att:ID][NAME]]")]
    MediaContent,
    /// Markup nests deeper than [`ORG_DEPTH_MAX`](crate::ORG_DEPTH_MAX), or the nodes of the
    /// document would nest deeper than [`DEPTH_MAX`](crate::DEPTH_MAX).
    #[error("the text nests deeper than {limit} levels")]
    TooDeep {
        /// The limit, in levels.
        limit: usize,
    },
    /// The text has more than [`ORG_BYTES_MAX`](crate::ORG_BYTES_MAX) bytes.
    #[error("the text has {bytes} bytes, more than {limit}")]
    TooLarge {
        /// Size of the text.
        bytes: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The base document of the text is invalid.
    #[error("the base document is invalid: {0}")]
    Base(#[from] AdfError),
}

impl OrgErrorKind {
    /// The error at `line`.
    pub(crate) fn at(self, line: usize) -> OrgError {
        OrgError { line, kind: self }
    }
}
