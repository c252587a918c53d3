//! Sorts items of unsorted sources. Stores all items, or only as many as can still be
//! results.
//!
//! Items are not moved. A page is dropped when none of its items can become a result.
//! Ties are broken by source, page and position, so that the result does not depend on the
//! order of arrival.
//!
//! Key prefixes are in memory of the engine. The bytes that decide between equal prefixes
//! are in pages, and borrowed pages may change between two comparisons. Then the order of
//! such items is unspecified, but each item is still returned once. The sorts of the
//! standard library are not used, because they may panic then.

use std::cmp::Ordering;
use weir_core::exact::to_u32;

use crate::error::QueryError;
use crate::input::SourceId;
use crate::order::compare;
use crate::plan::Plan;
use crate::rows::LoadedPage;
use crate::source::Source;
use weir_core::error_code::ErrorCode;

/// An item of a sort.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    prefix: u128,
    page: u32,
    row: u32,
}

#[derive(Debug)]
struct SortPage {
    source: SourceId,
    page: LoadedPage,
    /// Number of entries with items in the page.
    entries: usize,
    /// Memory of the page in bytes, without its entries.
    bytes: u64,
}

/// A sort in progress, and its result.
#[derive(Debug, Default)]
pub(crate) struct Sorter {
    pages: Vec<Option<SortPage>>,
    /// Unused indexes of `pages`.
    free: Vec<u32>,
    /// With a limit, a heap with the last entry on top; sorted when all items have arrived.
    entries: Vec<Entry>,
    /// Number of items that can be results; `None`: all.
    items_max: Option<usize>,
    bytes_max: u64,
    bytes: u64,
    sorted: bool,
    next: usize,
}

impl Sorter {
    pub(crate) fn new(items_max: Option<usize>, bytes_max: u64) -> Self {
        Self {
            items_max,
            bytes_max,
            ..Self::default()
        }
    }

    /// Adds a page.
    pub(crate) fn add(
        &mut self,
        plan: &Plan,
        sources: &[Source],
        source: SourceId,
        page: LoadedPage,
    ) -> Result<(), QueryError> {
        let at = self.free.pop().unwrap_or_else(|| {
            self.pages.push(None);
            to_u32(self.pages.len() - 1, "fewer than 2^32 pages are in memory")
        });
        let (rows, bytes) = (page.heads.len(), page.held_bytes());
        let descending = plan.keys.first().is_some_and(|key| key.descending);
        if let Some(slot) = self.pages.get_mut(at as usize) {
            *slot = Some(SortPage {
                source,
                page,
                entries: 0,
                bytes,
            });
        }
        self.bytes += bytes;
        for row in 0..rows {
            let Some(Some(held)) = self.pages.get_mut(at as usize) else {
                break;
            };
            let entry = Entry {
                prefix: held.page.head(row).key.reduced().prefix(descending),
                page: at,
                row: to_u32(row, "a page has fewer than 2^32 rows"),
            };
            held.entries += 1;
            match self.items_max {
                Some(max) if self.entries.len() >= max => self.replace_last(plan, sources, entry),
                _ => {
                    self.entries.push(entry);
                    if self.items_max.is_some() {
                        self.sift_up(plan, sources);
                    }
                }
            }
        }
        self.release_page(at);
        let entries = (self.entries.len() * size_of::<Entry>()) as u64;
        let (max, found) = (self.bytes_max, self.bytes.saturating_add(entries));
        if found > max {
            return Err(QueryError::limit(
                ErrorCode::SortBudget,
                "bytes to hold",
                max,
                found,
            ));
        }
        Ok(())
    }

    /// Drops a page without entries.
    fn release_page(&mut self, page: u32) {
        if let Some(slot) = self.pages.get_mut(page as usize)
            && let Some(held) = slot
            && held.entries == 0
        {
            self.bytes -= held.bytes;
            *slot = None;
            self.free.push(page);
        }
    }

    /// Adds an entry to a full heap, and drops the entry that is last in the order.
    fn replace_last(&mut self, plan: &Plan, sources: &[Source], entry: Entry) {
        let last = self.entries.first().copied();
        let dropped = match last {
            Some(last) if self.order(plan, sources, &entry, &last).is_lt() => {
                if let Some(top) = self.entries.first_mut() {
                    *top = entry;
                }
                self.sift_down(plan, sources);
                last
            }
            _ => entry,
        };
        if let Some(Some(held)) = self.pages.get_mut(dropped.page as usize) {
            held.entries -= 1;
        }
        if dropped.page != entry.page {
            self.release_page(dropped.page);
        }
    }

    /// Moves the newest entry up to its position in the heap.
    fn sift_up(&mut self, plan: &Plan, sources: &[Source]) {
        let mut at = self.entries.len().saturating_sub(1);
        while at > 0 {
            let parent = (at - 1) / 2;
            let (Some(child), Some(above)) = (self.entries.get(at), self.entries.get(parent))
            else {
                return;
            };
            if self.order(plan, sources, child, above).is_le() {
                return;
            }
            self.entries.swap(at, parent);
            at = parent;
        }
    }

    /// Moves the top entry down to its position in the heap.
    fn sift_down(&mut self, plan: &Plan, sources: &[Source]) {
        let mut at = 0;
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let Some(first) = self.entries.get(left) else {
                return;
            };
            let (child, higher) = match self.entries.get(right) {
                Some(second) if self.order(plan, sources, second, first).is_gt() => (right, second),
                _ => (left, first),
            };
            let here = self.entries.get(at);
            if here.is_none_or(|here| self.order(plan, sources, higher, here).is_le()) {
                return;
            }
            self.entries.swap(at, child);
            at = child;
        }
    }

    fn order(&self, plan: &Plan, sources: &[Source], a: &Entry, b: &Entry) -> Ordering {
        a.prefix.cmp(&b.prefix).then_with(|| {
            let held = |entry: &Entry| {
                let held = self.pages.get(entry.page as usize)?.as_ref()?;
                Some((held, sources.get(held.source.index())?))
            };
            let (Some((one, from)), Some((other, to))) = (held(a), held(b)) else {
                return Ordering::Equal;
            };
            let (row, other_row) = (a.row as usize, b.row as usize);
            compare(
                plan,
                |at| one.page.key(plan, &from.constants, row, at),
                |at| other.page.key(plan, &to.constants, other_row, at),
            )
            .then_with(|| from.rank.cmp(&to.rank))
            .then_with(|| one.page.number.cmp(&other.page.number))
            .then_with(|| row.cmp(&other_row))
        })
    }

    /// Returns the next item; `None` at the end. All items must have arrived.
    pub(crate) fn next(
        &mut self,
        plan: &Plan,
        sources: &[Source],
    ) -> Option<(SourceId, &mut LoadedPage, usize)> {
        if !self.sorted {
            self.sorted = true;
            let mut entries = std::mem::take(&mut self.entries);
            entries.sort_unstable_by_key(|entry| entry.prefix);
            for equal in entries.chunk_by_mut(|a, b| a.prefix == b.prefix) {
                merge_sort(equal, |a, b| self.order(plan, sources, a, b));
            }
            self.entries = entries;
        }
        let entry = self.entries.get(self.next)?;
        self.next += 1;
        let held = self.pages.get_mut(entry.page as usize)?.as_mut()?;
        Some((held.source, &mut held.page, entry.row as usize))
    }

    /// Drops the page of the item returned last, if it has no more items.
    pub(crate) fn done(&mut self) {
        let Some(entry) = self.next.checked_sub(1).and_then(|at| self.entries.get(at)) else {
            return;
        };
        let page = entry.page;
        if let Some(Some(held)) = self.pages.get_mut(page as usize) {
            held.entries -= 1;
        }
        self.release_page(page);
    }

    /// Drops all pages and entries.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.items_max, self.bytes_max);
        self.sorted = true;
    }
}

/// Number of entries that are sorted in place, before runs are merged.
const RUN: usize = 16;

/// A sort that terminates and only moves entries, for any `order`. The result is sorted if
/// `order` is consistent.
fn merge_sort(entries: &mut [Entry], order: impl Fn(&Entry, &Entry) -> Ordering) {
    for run in entries.chunks_mut(RUN) {
        for end in 1..run.len() {
            let mut at = end;
            while let Some([one, two]) = at.checked_sub(1).and_then(|from| run.get(from..=at))
                && order(one, two).is_gt()
            {
                run.swap(at - 1, at);
                at -= 1;
            }
        }
    }
    let mut merged = Vec::with_capacity(if entries.len() > RUN {
        entries.len()
    } else {
        0
    });
    let mut width = RUN;
    while width < entries.len() {
        merged.clear();
        for pair in entries.chunks(2 * width) {
            let (mut left, mut right) = pair.split_at(width.min(pair.len()));
            while let ([one, after_one @ ..], [two, after_two @ ..]) = (left, right) {
                if order(one, two).is_gt() {
                    merged.push(*two);
                    right = after_two;
                } else {
                    merged.push(*one);
                    left = after_one;
                }
            }
            merged.extend_from_slice(left);
            merged.extend_from_slice(right);
        }
        entries.copy_from_slice(&merged);
        width *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, merge_sort};
    use std::cell::Cell;
    use std::cmp::Ordering;

    fn entries(count: u32) -> Vec<Entry> {
        let row = |at: u32| at.wrapping_mul(2_654_435_761) % 1_000;
        let entry = |at| Entry {
            prefix: 0,
            page: at,
            row: row(at),
        };
        (0..count).map(entry).collect()
    }

    #[test]
    fn a_sort_is_stable_and_correct() {
        for count in (0..70).chain([1_000, 4_097]) {
            let (mut ours, mut theirs) = (entries(count), entries(count));
            merge_sort(&mut ours, |a, b| a.row.cmp(&b.row));
            theirs.sort_by_key(|entry| entry.row);
            let pages = |entries: &[Entry]| entries.iter().map(|e| e.page).collect::<Vec<_>>();
            assert_eq!(pages(&ours), pages(&theirs), "{count}");
        }
    }

    /// Behaves like bytes that change during the sort.
    #[test]
    fn an_inconsistent_order_loses_no_entry() {
        for seed in 1..50u64 {
            let state = Cell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut some = entries(3_000);
            merge_sort(&mut some, |_, _| {
                let next = state.get().wrapping_mul(6_364_136_223_846_793_005);
                state.set(next.wrapping_add(1_442_695_040_888_963_407));
                [Ordering::Less, Ordering::Greater][usize::from(next >> 63 == 1)]
            });
            let mut pages: Vec<u32> = some.iter().map(|entry| entry.page).collect();
            pages.sort_unstable();
            assert!(pages.iter().copied().eq(0..3_000), "seed {seed}");
        }
    }
}
