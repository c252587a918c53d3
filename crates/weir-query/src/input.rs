//! Input of the engine: pages with their records, and ids of sources.

use std::fmt;

use bytes::Bytes;
use weir_scan::Span;

use weir_core::record::RecordKind;

/// Identifies a source within its query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u32);

impl SourceId {
    /// No source: results that the engine constructed.
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

/// The records of a framed page, and their properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    /// Span of the value of each record. An empty span is a record without a value: all
    /// paths are undefined.
    pub spans: Vec<Span>,
    /// For each record, the properties that the query reads
    /// ([`Plan::meta_names`](crate::Plan::meta_names)), in that order.
    pub meta: Vec<Meta>,
    /// For each record, the continuation of a page that begins with it: a number in decimal
    /// digits, or bytes. Empty if only pages have continuations. With them, resume tokens
    /// do not depend on how records were grouped into pages.
    pub starts: Vec<Meta>,
    /// Bytes of properties that are not in the page.
    pub texts: Vec<u8>,
}

/// A property of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Meta {
    /// The record does not have the property.
    #[default]
    Nothing,
    /// A number.
    Number(u64),
    /// Bytes of the page, in byte order.
    Bytes(Span),
    /// Bytes of [`Frames::texts`], in byte order.
    Text(Span),
    /// Kind of the record, ordered by the bytes of its name.
    Kind(RecordKind),
}

/// A page that a caller supplies.
#[derive(Clone, Debug)]
pub struct PageIn {
    /// Bytes of the page: owned, or borrowed from an owner that is notified when they are
    /// dropped.
    pub bytes: Bytes,
    /// The records of the page, for sources of the shape `Framed`.
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

/// A page that the engine needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// Source of the page.
    pub source: SourceId,
    /// Continuation of the page; `None` for a first page without one.
    pub continuation: Option<Bytes>,
    /// Whether the next result needs the page. Otherwise the page is read ahead.
    pub required: bool,
    /// Suggested size in bytes.
    pub bytes: u64,
}
