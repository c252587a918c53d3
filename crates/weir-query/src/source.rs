//! Sources: what the engine knows of each supply of items.

use std::cmp::Ordering;
use std::collections::VecDeque;

use bytes::Bytes;
use weir_scan::Path;

use crate::constant::Constant;
use crate::key::{Key, Literal, OwnedKey, Reduced};
use crate::order::{Boundary, Precedence, compare, row, same_tie};
use crate::plan::Plan;
use crate::rows::Loaded;

/// Keys and tie of the last item that was kept, and how many in a row had them.
pub(crate) type LastKept = (Vec<OwnedKey>, Option<OwnedKey>, u64);

/// The pages of a source in memory, the one in use without another step.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    front: Option<Loaded>,
    waiting: VecDeque<Loaded>,
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
            self.waiting.push_back(page);
        }
    }

    pub(crate) fn pop_front(&mut self) -> Option<Loaded> {
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
    pub(crate) precedence: Precedence,
    /// Place among all sources, by their precedences.
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

impl Loaded {
    /// What orders a row among equal ones, if the source has that.
    pub(crate) fn tie(&self, plan: &Plan, source: &Source, row: usize) -> Option<OwnedKey> {
        let value = self.value(row, source.tie?);
        let literal = Literal::Json(self.bytes(value.span));
        Some(OwnedKey::of(&Key {
            reduced: Reduced::of(value.tag, literal, plan.strings),
            literal,
        }))
    }

    /// How many rows up to this one have its keys and its tie.
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

    /// Whether a row has the keys of a boundary, and its tie.
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
