//! The results of a query: spans, and the buffers that contain them.

use weir_scan::Value;

use crate::buffer::Buffer;
use crate::input::SourceId;

/// One result: a span of a buffer. 24 bytes in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Index of the buffer in [`ResultPage::buffers`].
    pub buffer: u32,
    /// First byte in the buffer.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
    /// Source of the item; [`SourceId::NONE`] for a constructed one.
    pub source: SourceId,
    /// Index among all items of its page, from 0.
    pub index: u32,
    /// Whether the engine constructed it (a group or an aggregate).
    pub constructed: bool,
}

/// Results in order. Immutable; keeps its buffers alive, also after the query is dropped.
/// May be read and dropped on any thread.
#[derive(Clone, Debug, Default)]
pub struct ResultPage {
    pub(crate) items: Vec<Item>,
    /// The values of a projection, `width` for each item.
    pub(crate) values: Vec<Value>,
    pub(crate) width: usize,
    pub(crate) buffers: Vec<Buffer>,
    /// For each buffer, the index of its page within its source, from 0.
    pub(crate) pages: Vec<u64>,
    pub(crate) bytes: u64,
    pub(crate) skipped: u64,
}

impl ResultPage {
    /// Returns the results, in order; at least one.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Returns the buffers of the items.
    #[must_use]
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// Returns the bytes of an item of this page; empty for an item of another page.
    #[must_use]
    pub fn bytes(&self, item: &Item) -> &[u8] {
        let buffer = self.buffers.get(item.buffer as usize);
        buffer.map_or(&[], |buffer| buffer.span(item.offset, item.len))
    }

    /// Returns the values of a projection for the item at index `item`: one for each of
    /// [`Plan::columns`](crate::Plan::columns), undefined if the item lacks it. Their spans
    /// count from the start of the buffer of the item. Empty for other queries.
    #[must_use]
    pub fn values(&self, item: usize) -> &[Value] {
        let start = item.saturating_mul(self.width);
        let values = self.values.get(start..start.saturating_add(self.width));
        values.unwrap_or_default()
    }

    /// Returns the bytes of a value of a projection in an item of this page; empty for an
    /// undefined value.
    #[must_use]
    pub fn value(&self, item: &Item, value: Value) -> &[u8] {
        let buffer = self.buffers.get(item.buffer as usize);
        buffer.map_or(&[], |buffer| buffer.span(value.span.offset, value.span.len))
    }

    /// Returns the index of the page of an item within its source, from 0; 0 for a constructed
    /// result and for an item of another page.
    #[must_use]
    pub fn page_of(&self, item: &Item) -> u64 {
        self.pages.get(item.buffer as usize).copied().unwrap_or(0)
    }

    /// Returns the bytes of all items, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.items.iter().map(|item| self.bytes(item))
    }

    /// Returns the number of bad items omitted so far in the whole query.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Replaces the number of omitted bad items, for a caller that omits some before the
    /// engine reads them.
    #[must_use]
    pub fn with_skipped(mut self, skipped: u64) -> Self {
        self.skipped = skipped;
        self
    }
}
