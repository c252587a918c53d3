//! What comes into the engine: pages with the records in them, and names of sources.

use std::fmt;

use bytes::Bytes;
use weir_scan::Span;

use weir_core::record::RecordKind;

/// A source within its query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u32);

impl SourceId {
    /// No source: results that the engine made.
    pub const NONE: Self = Self(u32::MAX);

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where the records of a framed page lie, and their properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    /// The value of each record. An empty span is a record without one: all
    /// paths are undefined.
    pub spans: Vec<Span>,
    /// For each record the properties that the query asks for
    /// ([`Plan::meta_names`](crate::Plan::meta_names)), in that order.
    pub meta: Vec<Meta>,
    /// For each record what names a page that begins with it: a number in
    /// decimal digits, or bytes. Empty where only pages have names; with them,
    /// resume tokens do not depend on how records came in pages.
    pub starts: Vec<Meta>,
    /// Bytes of properties that do not lie in the page.
    pub texts: Vec<u8>,
}

/// A property of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Meta {
    /// It has none.
    #[default]
    Nothing,
    /// A number.
    Number(u64),
    /// Bytes of the page, ordered as they are.
    Bytes(Span),
    /// Bytes of [`Frames::texts`], ordered as they are.
    Text(Span),
    /// What happened to its topic, ordered by the bytes of its name.
    Kind(RecordKind),
}

/// A page as it comes in.
#[derive(Clone, Debug)]
pub struct PageIn {
    /// Its bytes: owned, or lent by a caller who is told when they are dropped.
    pub bytes: Bytes,
    /// For sources of the shape `Framed`.
    pub frames: Option<Frames>,
}

impl From<Bytes> for PageIn {
    fn from(bytes: Bytes) -> Self {
        Self {
            bytes,
            frames: None,
        }
    }
}

/// A page that the engine would like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// Of which source.
    pub source: SourceId,
    /// What names the page; nothing for a first one that needs no name.
    pub continuation: Option<Bytes>,
    /// Whether the next result needs it; else it is a page ahead.
    pub required: bool,
    /// Suggested size in bytes.
    pub bytes: u64,
}
