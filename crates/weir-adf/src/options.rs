//! Options and limits of org texts.

/// Limit on the bytes of an org text.
pub const ORG_BYTES_MAX: usize = 32 << 20;

/// Limit on the levels of nested markup in an org text. Lists and blocks are limited by
/// [`DEPTH_MAX`](crate::DEPTH_MAX).
pub const ORG_DEPTH_MAX: usize = 64;

/// The largest [`Options::heading_offset`], in stars.
pub const HEADING_OFFSET_MAX: usize = 100;

/// How a document is shown as org text. Writing and reading must use equal options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Options {
    /// Stars of the headline above the text; a heading of level 1 has one more. Default 0, at most
    /// [`HEADING_OFFSET_MAX`].
    pub heading_offset: usize,
}

impl Options {
    /// Options for a text under a headline with `stars` stars, limited to [`HEADING_OFFSET_MAX`].
    #[must_use]
    pub fn under(stars: usize) -> Self {
        Self {
            heading_offset: stars.min(HEADING_OFFSET_MAX),
        }
    }
}
