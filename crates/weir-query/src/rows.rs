//! Rows: the items of a page that passed the filter, with their keys.
//!
//! A row uses 24 bytes for an item. Until an item is omitted, the index of an item in its
//! page is its row number. The values of keys are stored only if they are needed again.
//!
//! Invariants:
//! - Data that is not stored for a row is never requested.
//! - A row in a merge does not change.

use bytes::Bytes;
use weir_core::exact::to_u32;
use weir_scan::{Span, Value};

use crate::buffer::Buffer;
use crate::constant::Constant;
use crate::input::Meta;
use crate::key::{Key, Literal, OwnedKey, PackedKey, ReducedKey};
use crate::kind::Kind;
use crate::plan::{Column, Plan};

/// The part of an item that a merge compares: 24 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Head {
    /// The first key; 0 without an order.
    pub(crate) key: PackedKey,
    /// Location of the item.
    pub(crate) span: Span,
}

const _: () = assert!(size_of::<Head>() == 24);

/// A page in memory, with the items that passed the filter.
#[derive(Debug)]
pub(crate) struct LoadedPage {
    pub(crate) buffer: Buffer,
    /// Index of the page within the source, from 0.
    pub(crate) number: u64,
    /// Continuation of the page.
    pub(crate) continuation: Option<Bytes>,
    /// Heads of the kept items.
    pub(crate) heads: Vec<Head>,
    /// For each kept item, its index among all items of the page. Empty while each index is
    /// the row number.
    pub(super) indexes: Vec<u32>,
    /// `width` values for each item, up to the last item whose values are needed again: the
    /// last one with an inexact key, or all.
    pub(super) values: Vec<Value>,
    pub(super) width: usize,
    /// For each item, the properties of the plan; for as many items as `values`.
    pub(super) metas: Vec<Meta>,
    /// For each item, kept or not, the continuation of a page that begins with it; or
    /// empty.
    pub(super) starts: Vec<Meta>,
    /// Bytes of properties that are not in the page.
    pub(super) texts: Vec<u8>,
    /// The reduced keys after the first key of the plan, for each item.
    pub(super) keys: Vec<ReducedKey>,
    /// Row of the first item that was not returned.
    pub(crate) next: usize,
    /// Number of items at the boundary that were omitted because an earlier run returned
    /// them.
    pub(crate) left_out: u64,
    /// Number of consecutive items with equal keys directly before the first one.
    pub(crate) run_before: u64,
    /// The result page that contains this buffer, and the index of the buffer there.
    pub(crate) result_buffer: (u64, u32),
}

/// The values of an item that a query reads.
#[derive(Clone, Copy)]
pub(super) struct ItemValues<'a> {
    /// Index among all items of the page.
    pub(super) raw: usize,
    pub(super) span: Span,
    pub(super) values: &'a [Value],
    pub(super) metas: &'a [Meta],
    pub(super) texts: &'a [u8],
}

impl LoadedPage {
    pub(crate) fn value(&self, row: usize, path: usize) -> Value {
        let value = self.values.get(row * self.width + path);
        value.copied().unwrap_or_default()
    }

    /// Returns the index of a row among all items of the page.
    #[inline]
    pub(crate) fn index(&self, row: usize) -> u32 {
        let row_number = || to_u32(row, "a page has fewer than 2^32 items");
        self.indexes.get(row).copied().unwrap_or_else(row_number)
    }

    /// Adds a row. With `whole`, also stores the values of its keys.
    pub(super) fn push(
        &mut self,
        key: ReducedKey,
        found: &ItemValues<'_>,
        metas: usize,
        whole: bool,
    ) {
        let row = self.heads.len();
        self.heads.push(Head {
            key: key.into(),
            span: found.span,
        });
        if found.raw != row || !self.indexes.is_empty() {
            self.number_all(row);
            self.indexes
                .push(to_u32(found.raw, "a page has fewer than 2^32 items"));
        }
        if whole {
            self.values.resize(row * self.width, Value::default());
            self.values.extend_from_slice(found.values);
            self.metas.resize(row * metas, Meta::Nothing);
            self.metas.extend_from_slice(found.metas);
        }
    }

    /// Stores the indexes of rows that are equal to their row numbers.
    fn number_all(&mut self, rows: usize) {
        let known = self.indexes.len();
        let row_numbers = (known..rows).map(|row| to_u32(row, "a page has fewer than 2^32 items"));
        self.indexes.extend(row_numbers);
    }

    /// Removes the last row or the row before it.
    pub(super) fn remove(&mut self, row: usize, plan: &Plan) {
        fn cut<T: Copy>(all: &mut Vec<T>, row: usize, width: usize) {
            let (from, to) = (row * width, ((row + 1) * width).min(all.len()));
            if from < to {
                all.copy_within(to.., from);
                all.truncate(all.len() - (to - from));
            }
        }
        if row + 1 < self.heads.len() {
            self.number_all(self.heads.len());
        }
        cut(&mut self.heads, row, 1);
        cut(&mut self.indexes, row, 1);
        cut(&mut self.values, row, self.width);
        cut(&mut self.keys, row, plan.keys.len().saturating_sub(1));
        cut(&mut self.metas, row, plan.metas.len());
    }

    /// Releases unused memory.
    pub(super) fn shrink(&mut self) {
        if self.heads.capacity() > self.heads.len() + self.heads.len() / 8 {
            self.heads.shrink_to_fit();
            self.keys.shrink_to_fit();
            self.values.shrink_to_fit();
            self.metas.shrink_to_fit();
        }
    }

    /// Returns the bytes in memory: those of the page, and those of its rows.
    pub(crate) fn held_bytes(&self) -> u64 {
        let rows = size_of_val(self.heads.as_slice())
            + size_of_val(self.indexes.as_slice())
            + size_of_val(self.values.as_slice())
            + size_of_val(self.metas.as_slice())
            + size_of_val(self.starts.as_slice())
            + self.texts.len()
            + size_of_val(self.keys.as_slice());
        (self.buffer.len() as u64).saturating_add(rows as u64)
    }

    /// Returns the head of a row.
    #[inline]
    pub(crate) fn head(&self, row: usize) -> Head {
        let Some(head) = self.heads.get(row) else {
            unreachable!("the row is in memory")
        };
        *head
    }

    /// Returns a reduced key of a row.
    #[inline]
    pub(super) fn reduced(&self, plan: &Plan, row: usize, at: usize) -> ReducedKey {
        match at.checked_sub(1) {
            None => self.head(row).key.reduced(),
            Some(at) => {
                let width = plan.keys.len().saturating_sub(1);
                let Some(key) = self.keys.get(row * width + at) else {
                    unreachable!("a row has all keys of the plan")
                };
                *key
            }
        }
    }

    pub(crate) fn bytes(&self, span: Span) -> &[u8] {
        span.of(&self.buffer)
    }

    /// Returns the continuation of a page that begins with a row, if there is one.
    pub(crate) fn start(&self, row: usize) -> Option<Bytes> {
        Some(match *self.starts.get(self.index(row) as usize)? {
            Meta::Nothing => return None,
            Meta::Number(number) => Bytes::from(number.to_string()),
            Meta::Bytes(span) => Bytes::copy_from_slice(self.bytes(span)),
            Meta::Text(span) => Bytes::copy_from_slice(span.of(&self.texts)),
            Meta::Kind(kind) => Bytes::from_static(kind.name().as_bytes()),
        })
    }

    /// Returns the value of a column: its kind, its bytes, and its number if the engine
    /// stores one.
    pub(crate) fn column<'a>(
        &'a self,
        constants: &'a [Option<Constant>],
        metas: usize,
        row: usize,
        column: Column,
    ) -> (Kind, Literal<'a>, Option<u64>) {
        let (values, properties) = (row * self.width, row * metas);
        let found = ItemValues {
            raw: row,
            span: Span::default(),
            values: self.values.get(values..).unwrap_or_default(),
            metas: self.metas.get(properties..).unwrap_or_default(),
            texts: &self.texts,
        };
        found.column(&self.buffer, constants, column)
    }

    /// Returns a key of a row.
    #[inline]
    pub(crate) fn key<'a>(
        &'a self,
        plan: &Plan,
        constants: &'a [Option<Constant>],
        row: usize,
        at: usize,
    ) -> Key<'a> {
        let reduced = self.reduced(plan, row, at);
        let literal = match plan.keys.get(at) {
            Some(key) if !reduced.is_exact() => {
                self.column(constants, plan.metas.len(), row, key.column).1
            }
            _ => Literal::Json(&[]),
        };
        Key { reduced, literal }
    }

    /// Returns copies of all keys of a row.
    pub(crate) fn owned(
        &self,
        plan: &Plan,
        constants: &[Option<Constant>],
        row: usize,
    ) -> Vec<OwnedKey> {
        let keys = (0..plan.keys.len()).map(|at| self.key(plan, constants, row, at));
        keys.map(|key| OwnedKey::of(&key)).collect()
    }
}

impl<'f> ItemValues<'f> {
    pub(super) fn value(&self, path: usize) -> Value {
        self.values.get(path).copied().unwrap_or_default()
    }

    /// As [`LoadedPage::column`].
    #[inline]
    pub(super) fn column<'a>(
        &self,
        page: &'a [u8],
        constants: &'a [Option<Constant>],
        column: Column,
    ) -> (Kind, Literal<'a>, Option<u64>)
    where
        'f: 'a,
    {
        match column {
            Column::Path(path) => {
                let value = self.value(path);
                (value.tag, Literal::Json(value.span.of(page)), None)
            }
            Column::Meta(meta) => {
                if let Some(Some(constant)) = constants.get(meta) {
                    return (constant.kind, Literal::Json(&constant.literal), None);
                }
                match self.metas.get(meta).copied() {
                    None | Some(Meta::Nothing) => (Kind::Undefined, Literal::Json(&[]), None),
                    Some(Meta::Number(number)) => (Kind::Number, Literal::Json(&[]), Some(number)),
                    Some(Meta::Bytes(span)) => (Kind::String, Literal::Raw(span.of(page)), None),
                    Some(Meta::Text(span)) => {
                        (Kind::String, Literal::Raw(span.of(self.texts)), None)
                    }
                    Some(Meta::Kind(kind)) => {
                        (Kind::String, Literal::Raw(kind.name().as_bytes()), None)
                    }
                }
            }
        }
    }
}
