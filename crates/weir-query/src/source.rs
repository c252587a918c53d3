//! Sources: what the engine knows of each supply of items.

use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;
use weir_scan::{Path, Span, Tag};

use crate::key::{Kind, Literal, OwnedKey, Reduced, Strings};
use crate::load::LastKept;
use crate::rows::Loaded;
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
    /// Its bytes: owned, or lent by whoever dropping them tells.
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

/// Where a source stands among equal items: by its ordinal, the parts of a source
/// right after it, each followed by its own parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seat {
    pub(crate) ordinal: u64,
    /// Of a part: which it is of the whole, of that part, and so on, from 1.
    pub(crate) part: Vec<u32>,
}

impl Seat {
    /// Of a source that was added.
    pub(crate) const fn whole(ordinal: u64) -> Self {
        Self {
            ordinal,
            part: Vec::new(),
        }
    }

    /// Of a part of this one.
    pub(crate) fn below(&self, number: u32) -> Self {
        let mut seat = self.clone();
        seat.part.push(number);
        seat
    }

    /// Whether this is the other one, or of a part of it.
    pub(crate) fn is_in(&self, other: &Self) -> bool {
        self.ordinal == other.ordinal && self.part.starts_with(&other.part)
    }
}

/// A value that all items of a source share.
#[derive(Clone, Debug)]
pub(crate) struct Constant {
    pub(crate) kind: Kind,
    pub(crate) literal: Box<[u8]>,
    pub(crate) reduced: Reduced,
}

impl Constant {
    /// Of a JSON scalar; nothing if it is none.
    pub(crate) fn parse(text: &str, strings: Strings) -> Option<Self> {
        let kind = crate::json::scalar(text.as_bytes())?;
        let literal = text.trim().as_bytes();
        Some(Self {
            kind,
            literal: literal.into(),
            reduced: Reduced::of(kind, Literal::Json(literal), strings),
        })
    }
}

/// The pages of a source in memory, the one in use without another step.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    front: Option<Loaded>,
    behind: VecDeque<Loaded>,
}

impl Pages {
    #[inline]
    pub(crate) fn front(&self) -> Option<&Loaded> {
        self.front.as_ref()
    }

    #[inline]
    pub(crate) fn front_mut(&mut self) -> Option<&mut Loaded> {
        self.front.as_mut()
    }

    pub(crate) fn push_back(&mut self, page: Loaded) {
        if self.front.is_none() {
            self.front = Some(page);
        } else {
            self.behind.push_back(page);
        }
    }

    pub(crate) fn pop_front(&mut self) -> Option<Loaded> {
        std::mem::replace(&mut self.front, self.behind.pop_front())
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.front.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.front.is_some()) + self.behind.len()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// What is left to do at the place where an earlier run stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clip {
    /// Nothing: the source begins where it should.
    No,
    /// Items up to the boundary are left out.
    Boundary,
}

/// A source.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "most are options as given")]
pub(crate) struct Source {
    pub(crate) name: Box<[u8]>,
    pub(crate) seat: Seat,
    /// Place among all sources, by their seats.
    pub(crate) rank: u32,
    pub(crate) scan: weir_scan::Plan,
    pub(crate) framed: bool,
    pub(crate) sorted: bool,
    pub(crate) trust_order: bool,
    pub(crate) stable: bool,
    pub(crate) partial: bool,
    /// Index among the values of an item, if the source has a tie.
    pub(crate) tie: Option<usize>,
    pub(crate) tie_path: Option<Path>,
    /// For each property of the plan.
    pub(crate) constants: Vec<Option<Constant>>,
    pub(crate) pages: Pages,
    pub(crate) ended: bool,
    /// What names its first page.
    pub(crate) first: Option<Bytes>,
    /// What names the page that comes next.
    pub(crate) asked: Option<Bytes>,
    /// Pages that still come, where that is known: others were put in its place,
    /// or it was finished with pages in memory.
    pub(crate) left: Option<u64>,
    /// Raw items of the next page that were handed out in an earlier run.
    pub(crate) skip: u32,
    /// Of these, items at the boundary of that run.
    pub(crate) equal: u64,
    pub(crate) clip: Clip,
    /// Keys below which nothing comes.
    pub(crate) watermark: Option<Vec<OwnedKey>>,
    /// Keys of the last item that came, kept or not.
    pub(crate) last_raw: Option<Vec<OwnedKey>>,
    pub(crate) last_kept: Option<LastKept>,
    /// Pages and items that came so far.
    pub(crate) pages_in: u64,
    pub(crate) items_in: u64,
    /// Splits in a row without a page.
    pub(crate) splits: u32,
}

impl Source {
    /// Whether nothing can come any more.
    pub(crate) fn is_over(&self) -> bool {
        self.ended && self.pages.is_empty()
    }

    /// Whether it has to be asked before it can say anything.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.ended && self.pages.is_empty()
    }
}

/// The kind of a scanned value.
pub(crate) const fn kind(tag: Tag) -> Kind {
    match tag {
        Tag::Undefined => Kind::Undefined,
        Tag::Null => Kind::Null,
        Tag::False => Kind::False,
        Tag::True => Kind::True,
        Tag::Number => Kind::Number,
        Tag::String => Kind::String,
        Tag::Array => Kind::Array,
        Tag::Object => Kind::Object,
    }
}
