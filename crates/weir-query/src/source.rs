//! Sources: the state of each sequence of pages.

use std::cmp::Ordering;
use std::collections::VecDeque;

use bytes::Bytes;
use weir_scan::Path;

use crate::constant::Constant;
use crate::key::{Key, Literal, OwnedKey, ReducedKey};
use crate::order::{Boundary, Precedence, compare, row, same_tie};
use crate::plan::Plan;
use crate::rows::LoadedPage;

/// Keys and tie of the last kept item, and the number of consecutive items with them.
pub(crate) type LastKept = (Vec<OwnedKey>, Option<OwnedKey>, u64);

/// The pages of a source in memory. The current page is a separate field, for direct
/// access.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    front: Option<LoadedPage>,
    waiting: VecDeque<LoadedPage>,
}

impl Pages {
    #[inline]
    pub(crate) fn front(&self) -> Option<&LoadedPage> {
        self.front.as_ref()
    }

    #[inline]
    pub(crate) fn front_mut(&mut self) -> Option<&mut LoadedPage> {
        self.front.as_mut()
    }

    pub(crate) fn push_back(&mut self, page: LoadedPage) {
        if self.front.is_none() {
            self.front = Some(page);
        } else {
            self.waiting.push_back(page);
        }
    }

    pub(crate) fn pop_front(&mut self) -> Option<LoadedPage> {
        std::mem::replace(&mut self.front, self.waiting.pop_front())
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.front.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.front.is_some()) + self.waiting.len()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Filter for items that an earlier run returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clip {
    /// No filter: the source begins at the correct item.
    No,
    /// Items up to the boundary are excluded.
    Boundary,
}

/// A source.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "most are options")]
pub(crate) struct Source {
    pub(crate) name: Box<[u8]>,
    pub(crate) precedence: Precedence,
    /// Position among all sources, by precedence.
    pub(crate) rank: u32,
    pub(crate) scan: weir_scan::Plan,
    pub(crate) framed: bool,
    pub(crate) sorted: bool,
    pub(crate) trust_order: bool,
    pub(crate) stable: bool,
    pub(crate) partial: bool,
    /// Index of the tie among the values of an item, if the source has one.
    pub(crate) tie: Option<usize>,
    pub(crate) tie_path: Option<Path>,
    /// Constant of each property of the plan, if the source has one.
    pub(crate) constants: Vec<Option<Constant>>,
    pub(crate) pages: Pages,
    pub(crate) ended: bool,
    /// Continuation of the first page.
    pub(crate) first: Option<Bytes>,
    /// Continuation of the next page.
    pub(crate) continuation: Option<Bytes>,
    /// Number of pages that will still arrive. Known after the source was replaced, or was
    /// finished with pages in memory.
    pub(crate) pages_left: Option<u64>,
    /// Number of items from the next page on, before the filter, that an earlier run returned.
    pub(crate) skip: u32,
    /// How many of the items in `skip` are at the boundary of that run.
    pub(crate) equal: u64,
    pub(crate) clip: Clip,
    /// Lower bound of the keys of all further items.
    pub(crate) watermark: Option<Vec<OwnedKey>>,
    /// Keys of the last item that arrived, kept or not.
    pub(crate) last_raw: Option<Vec<OwnedKey>>,
    pub(crate) last_kept: Option<LastKept>,
    /// Number of pages that arrived so far, and below that of items.
    pub(crate) pages_in: u64,
    pub(crate) items_in: u64,
    /// Number of consecutive splits without a page between them.
    pub(crate) splits: u32,
}

impl Source {
    /// Returns whether no more items will arrive.
    pub(crate) fn is_over(&self) -> bool {
        self.ended && self.pages.is_empty()
    }

    /// Returns whether the next item is unknown until a page arrives.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.ended && self.pages.is_empty()
    }
}

impl LoadedPage {
    /// Returns the tie of a row, which orders it among equal ones, if the source has one.
    pub(crate) fn tie(&self, plan: &Plan, source: &Source, row: usize) -> Option<OwnedKey> {
        let value = self.value(row, source.tie?);
        let literal = Literal::Json(self.bytes(value.span));
        Some(OwnedKey::of(&Key {
            reduced: ReducedKey::of(value.tag, literal, plan.strings),
            literal,
        }))
    }

    /// Returns the number of consecutive rows, up to this one, with its keys and its tie.
    pub(crate) fn run(&self, plan: &Plan, source: &Source, row: usize) -> usize {
        let key = |row: usize| move |at| self.key(plan, &source.constants, row, at);
        let tie = self.tie(plan, source, row);
        let mut run = 1;
        while run <= row
            && compare(plan, key(row), key(row - run)) == Ordering::Equal
            && same_tie(
                plan,
                tie.as_ref(),
                self.tie(plan, source, row - run).as_ref(),
            )
        {
            run += 1;
        }
        run
    }

    /// Returns whether a row has the keys and the tie of a boundary.
    pub(crate) fn is_at(
        &self,
        plan: &Plan,
        source: &Source,
        at: usize,
        boundary: &Boundary,
    ) -> bool {
        let key = |key| self.key(plan, &source.constants, at, key);
        compare(plan, key, row(&boundary.keys)) == Ordering::Equal
            && same_tie(
                plan,
                boundary.tie.as_ref(),
                self.tie(plan, source, at).as_ref(),
            )
    }
}
