//! The results of a scan: items, and values in them, as spans.
//!
//! Invariants:
//! - A span is inside the page (I8).
//! - An item costs 8 bytes, and 12 for each path.
//! - No bytes of the page are stored.

/// A range of bytes of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// Offset of the first byte in the page.
    pub offset: u32,
    /// Number of bytes.
    pub len: u32,
}

impl Span {
    /// The span `start..end` of a page. Both are checked against the page before a scan begins, so
    /// they fit in 32 bits. A value that would not fit becomes an empty span at the maximum.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "pages are at most u32::MAX bytes"
    )]
    pub(crate) fn new(start: usize, end: usize) -> Self {
        debug_assert!(start <= end && u32::try_from(end).is_ok());
        Self {
            offset: start as u32,
            len: end.saturating_sub(start) as u32,
        }
    }

    /// Offset of the first byte after the span.
    pub fn end(self) -> usize {
        self.offset as usize + self.len as usize
    }

    /// The bytes in `page`; empty if the span is not inside `page`.
    pub fn of(self, page: &[u8]) -> &[u8] {
        page.get(self.offset as usize..self.end()).unwrap_or(&[])
    }
}

/// Type of a value. Values of different types sort in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Tag {
    /// The path found nothing.
    #[default]
    Undefined = 0,
    /// `null`
    Null = 1,
    /// `false`
    False = 2,
    /// `true`
    True = 3,
    /// A number; see [`Number`](crate::Number).
    Number = 4,
    /// A string, its span includes the quotes; see [`Text`](crate::Text).
    String = 5,
    /// An array.
    Array = 6,
    /// An object.
    Object = 7,
}

/// A value in an item: its type and position, without surrounding white space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// Position in the page (from [`find`](crate::find): in the item); empty if undefined.
    pub span: Span,
    /// Type of the value.
    pub tag: Tag,
    /// Whether a string contains a backslash. Without a backslash, its bytes are its characters.
    pub escaped: bool,
}

/// The items of a page in order, each with the values of the paths of the plan. If the caller
/// reuses it for the next page, it allocates only to grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Items {
    pub(crate) spans: Vec<Span>,
    /// `width` values for each item.
    pub(crate) values: Vec<Value>,
    pub(crate) width: usize,
    pub(crate) skipped: usize,
}

impl Items {
    /// Number of items.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether the page had no item.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Span of item `index`; `None` if there is no such item.
    pub fn item(&self, index: usize) -> Option<Span> {
        self.spans.get(index).copied()
    }

    /// Spans of all items.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Value of path number `path` (in the order of the plan) in item `index`; undefined if there
    /// is no such item or path.
    pub fn value(&self, index: usize, path: usize) -> Value {
        self.values(index).get(path).copied().unwrap_or_default()
    }

    /// Values of all paths in item `index`, in the order of the plan; empty if there is no such
    /// item.
    pub fn values(&self, index: usize) -> &[Value] {
        let start = index.saturating_mul(self.width);
        self.values
            .get(start..start.saturating_add(self.width))
            .unwrap_or(&[])
    }

    /// Number of paths, the width of [`values`](Self::values).
    pub fn width(&self) -> usize {
        self.width
    }

    /// Number of bad items that were skipped (see [`BadItem::Skip`](crate::BadItem)).
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Releases unused memory, for items that are kept for a long time.
    pub fn shrink_to_fit(&mut self) {
        self.spans.shrink_to_fit();
        self.values.shrink_to_fit();
    }

    pub(crate) fn clear(&mut self, width: usize) {
        self.spans.clear();
        self.values.clear();
        self.width = width;
        self.skipped = 0;
    }
}

const _: () = assert!(size_of::<Span>() == 8 && size_of::<Value>() == 12);
