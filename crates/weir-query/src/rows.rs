//! Rows: the items of a page that the filter let through, with their keys.
//!
//! A row has 24 bytes for an item. Until an item is left out, the number of an
//! item in its page is its position. The sources of keys are stored only if
//! they are needed again.
//!
//! Invariants:
//! - What is not stored for a row is never requested.
//! - A row in a merge does not change.

use bytes::Bytes;
use weir_core::exact::to_u32;
use weir_scan::{Span, Value};

use crate::buffer::Buffer;
use crate::constant::Constant;
use crate::input::Meta;
use crate::key::{Key, Literal, OwnedKey, Packed, Reduced};
use crate::kind::Kind;
use crate::plan::{Column, Plan};

/// What a merge looks at of an item: 24 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Head {
    /// The first key; nothing without an order.
    pub(crate) key: Packed,
    /// Where the item is.
    pub(crate) span: Span,
}

const _: () = assert!(size_of::<Head>() == 24);

/// A page in memory, with the items that the filter let through.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) buffer: Buffer,
    /// Its number within the source, from 0.
    pub(crate) number: u64,
    /// What named it.
    pub(crate) asked: Option<Bytes>,
    /// Kept items.
    pub(crate) heads: Vec<Head>,
    /// Of each kept item its number among all of the page; empty while that is
    /// its place.
    pub(super) indexes: Vec<u32>,
    /// `width` values an item, as far as they are looked at again: up to the
    /// last item with a key that is not exact, or all.
    pub(super) values: Vec<Value>,
    pub(super) width: usize,
    /// As many properties an item as the plan has, as far as the values.
    pub(super) metas: Vec<Meta>,
    /// Of each item, kept or not, what names a page that begins with it; or
    /// nothing at all.
    pub(super) starts: Vec<Meta>,
    /// Bytes of properties that do not lie in the page.
    pub(super) texts: Vec<u8>,
    /// The keys after the first: one fewer an item than the plan has.
    pub(super) keys: Vec<Reduced>,
    /// The first item that was not handed out.
    pub(crate) next: usize,
    /// Items at the boundary that were left out, as handed out in an earlier run.
    pub(crate) left_out: u64,
    /// How many items right before the first one had equal keys.
    pub(crate) run_before: u64,
    /// The result page that has this buffer, and its index there.
    pub(crate) mark: (u64, u32),
}

/// The values of an item that a query uses.
#[derive(Clone, Copy)]
pub(super) struct ItemValues<'a> {
    /// Its number among all of the page.
    pub(super) raw: usize,
    pub(super) span: Span,
    pub(super) values: &'a [Value],
    pub(super) metas: &'a [Meta],
    pub(super) texts: &'a [u8],
}

impl Loaded {
    pub(crate) fn value(&self, row: usize, path: usize) -> Value {
        let value = self.values.get(row * self.width + path);
        value.copied().unwrap_or_default()
    }

    /// The number of a row among all items of the page.
    #[inline]
    pub(crate) fn index(&self, row: usize) -> u32 {
        let place = || to_u32(row, "a page has fewer than 2^32 items");
        self.indexes.get(row).copied().unwrap_or_else(place)
    }

    /// Adds a row; `whole`: with what its keys were made from.
    pub(super) fn push(&mut self, key: Reduced, found: &ItemValues<'_>, metas: usize, whole: bool) {
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

    /// Writes down the numbers of rows that are their places.
    fn number_all(&mut self, rows: usize) {
        let known = self.indexes.len();
        let places = (known..rows).map(|row| to_u32(row, "a page has fewer than 2^32 items"));
        self.indexes.extend(places);
    }

    /// Removes the last row but one, or the last.
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

    /// Gives back memory that turned out not to be needed.
    pub(super) fn shrink(&mut self) {
        if self.heads.capacity() > self.heads.len() + self.heads.len() / 8 {
            self.heads.shrink_to_fit();
            self.keys.shrink_to_fit();
            self.values.shrink_to_fit();
            self.metas.shrink_to_fit();
        }
    }

    /// Bytes in memory: those of the page, and what is known of its items.
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

    /// A row of the page.
    #[inline]
    pub(crate) fn head(&self, row: usize) -> Head {
        self.heads.get(row).copied().unwrap_or_default()
    }

    /// A key of a row, reduced.
    #[inline]
    pub(super) fn reduced(&self, plan: &Plan, row: usize, at: usize) -> Reduced {
        match at.checked_sub(1) {
            None => self.head(row).key.reduced(),
            Some(at) => {
                let width = plan.keys.len().saturating_sub(1);
                let key = self.keys.get(row * width + at);
                key.copied().unwrap_or_default()
            }
        }
    }

    pub(crate) fn bytes(&self, span: Span) -> &[u8] {
        span.of(&self.buffer)
    }

    /// What names a page that begins with a row, if that has a name.
    pub(crate) fn start(&self, row: usize) -> Option<Bytes> {
        Some(match *self.starts.get(self.index(row) as usize)? {
            Meta::Nothing => return None,
            Meta::Number(number) => Bytes::from(number.to_string()),
            Meta::Bytes(span) => Bytes::copy_from_slice(self.bytes(span)),
            Meta::Text(span) => Bytes::copy_from_slice(span.of(&self.texts)),
            Meta::Kind(kind) => Bytes::from_static(kind.name().as_bytes()),
        })
    }

    /// The value of a column: its kind, bytes, and number of the engine.
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

    /// A key of a row.
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

    /// All keys of a row, to be kept.
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

    /// As [`Loaded::column`].
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
