//! What a query hands out: spans, and the buffers they lie in.

use weir_scan::Value;

use crate::buffer::Buffer;
use crate::input::SourceId;

/// One result: a span of a buffer. 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Index of the buffer in [`ResultPage::buffers`].
    pub buffer: u32,
    /// First byte in the buffer.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
    /// Where the item came from; [`SourceId::NONE`] for a constructed one.
    pub source: SourceId,
    /// Its number among all items of its page, from 0.
    pub index: u32,
    /// Whether the engine made it (a group or an aggregate).
    pub constructed: bool,
}

/// Results in order. Immutable; keeps its buffers alive, also after the query
/// is gone, and may be read and dropped on any thread.
#[derive(Clone, Debug, Default)]
pub struct ResultPage {
    pub(crate) items: Vec<Item>,
    /// Of a projection, `width` values for each item.
    pub(crate) values: Vec<Value>,
    pub(crate) width: usize,
    pub(crate) buffers: Vec<Buffer>,
    /// Of each buffer, the number of its page within its source, from 0.
    pub(crate) pages: Vec<u64>,
    pub(crate) bytes: u64,
    pub(crate) skipped: u64,
}

impl ResultPage {
    /// The results, in order. At least one.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// What the items lie in.
    #[must_use]
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// The bytes of an item of this page; nothing for an item of another.
    #[must_use]
    pub fn bytes(&self, item: &Item) -> &[u8] {
        let buffer = self.buffers.get(item.buffer as usize);
        buffer.map_or(&[], |buffer| buffer.span(item.offset, item.len))
    }

    /// The values of a projection in the item of this number: one for each of
    /// [`Plan::columns`](crate::Plan::columns), undefined where the item has none. Their spans count from
    /// the start of the buffer of the item. Nothing for other queries.
    #[must_use]
    pub fn values(&self, item: usize) -> &[Value] {
        let start = item.saturating_mul(self.width);
        let values = self.values.get(start..start.saturating_add(self.width));
        values.unwrap_or_default()
    }

    /// The bytes of a value of a projection in an item of this page; empty where it is undefined.
    #[must_use]
    pub fn value(&self, item: &Item, value: Value) -> &[u8] {
        let buffer = self.buffers.get(item.buffer as usize);
        buffer.map_or(&[], |buffer| buffer.span(value.span.offset, value.span.len))
    }

    /// The number of the page an item came in, within its source, from 0.
    #[must_use]
    pub fn page_of(&self, item: &Item) -> u64 {
        self.pages.get(item.buffer as usize).copied().unwrap_or(0)
    }

    /// The bytes of all items, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.items.iter().map(|item| self.bytes(item))
    }

    /// Bad items that were left out so far, in the whole query.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The page with another number of bad items, for who leaves out some before
    /// the engine sees them.
    #[must_use]
    pub fn with_skipped(mut self, skipped: u64) -> Self {
        self.skipped = skipped;
        self
    }
}
