//! Options and limits of org texts.

/// Bytes of an org text.
pub const ORG_BYTES_MAX: usize = 32 << 20;

/// Levels of lists and blocks in an org text, and of markup in each other.
pub const ORG_DEPTH_MAX: usize = 64;

/// Largest [`Options::heading_offset`], in stars.
pub const HEADING_OFFSET_MAX: usize = 100;

/// How a document is shown as org text. Writing and reading take equal options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Options {
    /// Stars of the headline that the text lies under; a heading of level 1 has one more. 0 by
    /// default, at most [`HEADING_OFFSET_MAX`].
    pub heading_offset: usize,
}

impl Options {
    /// Options for a text under a headline with so many stars; more than [`HEADING_OFFSET_MAX`]
    /// count as that many.
    #[must_use]
    pub fn under(stars: usize) -> Self {
        Self {
            heading_offset: stars.min(HEADING_OFFSET_MAX),
        }
    }
}
