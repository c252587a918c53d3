//! The current item of each source of a merge, in a tournament tree: the least item wins.
//!
//! A full binary tree in an array. Leaf `n` is the head of source `n`. Every inner node is
//! a copy of the lesser of its two children, including the key, so that a comparison
//! follows no pointer. After a change of a source, only the path from its leaf to the top
//! is compared again, with one comparison for each level. The address of the sibling is
//! known in advance, and the winner is selected without a branch.
//!
//! Invariant: each node is the least of its leaves, by the results of `less` when they were
//! set. A caller that changes what `less` returns for a head sets that head again.

use std::hint::select_unpredictable;

use crate::key::PREFIX;

/// The head of one source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Prefix of the first order key, inverted for a descending order; 0 sorts before all
    /// keys. It decides between entries with different prefixes.
    key: u128,
    /// The source, and a bit that is set if this is a lower bound and no item.
    tail: u64,
}

const _: () = assert!(size_of::<Entry>() == 32);

impl Entry {
    /// The entry of a source without a head.
    const NONE: Self = Self {
        key: u128::MAX,
        tail: u64::MAX,
    };

    /// Creates the entry of a source. `bound`: the key is a lower bound of further items,
    /// and no item.
    #[inline]
    pub(crate) fn new(key: u128, source: u32, bound: bool) -> Self {
        Self {
            key,
            tail: u64::from(source) << 1 | u64::from(bound),
        }
    }

    #[inline]
    pub(crate) const fn key(&self) -> u128 {
        self.key
    }

    /// Index of the source.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the index has 32 bits")]
    pub(crate) const fn source(&self) -> u32 {
        (self.tail >> 1) as u32
    }

    /// Returns whether this is a lower bound of the source and no item.
    #[inline]
    pub(crate) const fn is_bound(&self) -> bool {
        self.tail & 1 == 1
    }

    const fn is_none(&self) -> bool {
        self.tail == u64::MAX
    }

    fn some(self) -> Option<Self> {
        (!self.is_none()).then_some(self)
    }

    /// Returns whether `other` comes first when the prefixes are equal. Not inlined:
    /// results known in advance would let the compiler turn the selection in `least` into a
    /// branch.
    #[inline(never)]
    fn loses_tie(&self, other: &Self, less: &impl Fn(&Self, &Self) -> bool) -> bool {
        // A source without a head sorts last.
        !other.is_none() && (self.is_none() || less(other, self))
    }

    /// Returns the lesser of two entries.
    #[inline]
    fn least(self, other: Self, less: &impl Fn(&Self, &Self) -> bool) -> Self {
        let mut second = other.key < self.key;
        if (self.key ^ other.key) & PREFIX == 0 {
            second = self.loses_tie(&other, less);
        }
        Self {
            key: select_unpredictable(second, other.key, self.key),
            tail: select_unpredictable(second, other.tail, self.tail),
        }
    }
}

/// The tournament tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tournament {
    /// Node 1 is the top; the children of node `n` are `2n` and `2n + 1`.
    nodes: Vec<Entry>,
    /// Index of the first leaf: a power of two, or 0.
    leaves: usize,
}

impl Tournament {
    /// Returns the least head.
    #[inline]
    pub(crate) fn top(&self) -> Option<Entry> {
        self.nodes.get(1).copied().and_then(Entry::some)
    }

    /// Returns all heads, in the order of sources.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        let leaves = self.nodes.iter().skip(self.leaves);
        leaves.filter(|entry| !entry.is_none()).copied()
    }

    /// Sets the head of a source. `less` decides between entries with equal prefixes. O(log
    /// sources).
    #[inline]
    pub(crate) fn set(
        &mut self,
        source: u32,
        head: Option<Entry>,
        less: impl Fn(&Entry, &Entry) -> bool,
    ) {
        let leaf = source as usize;
        if leaf >= self.leaves {
            self.grow(leaf + 1, &less);
        }
        let mut winner = head.unwrap_or(Entry::NONE);
        let mut at = self.leaves + leaf;
        while let Some(node) = self.nodes.get_mut(at) {
            *node = winner;
            let Some(other) = self.nodes.get(at ^ 1).filter(|_| at > 1) else {
                break;
            };
            winner = winner.least(*other, &less);
            at /= 2;
        }
    }

    /// Returns the least head of all other sources.
    pub(crate) fn challenger(
        &self,
        source: u32,
        less: impl Fn(&Entry, &Entry) -> bool,
    ) -> Option<Entry> {
        let mut best = Entry::NONE;
        let mut at = self.leaves + source as usize;
        while at > 1 {
            best = best.least(*self.nodes.get(at ^ 1)?, &less);
            at /= 2;
        }
        best.some()
    }

    #[cold]
    fn grow(&mut self, count: usize, less: &impl Fn(&Entry, &Entry) -> bool) {
        let leaves = count.next_power_of_two();
        let mut nodes = vec![Entry::NONE; 2 * leaves];
        let old = self.nodes.iter().skip(self.leaves);
        for (node, head) in nodes.iter_mut().skip(leaves).zip(old) {
            *node = *head;
        }
        for at in (1..leaves).rev() {
            if let (Some(one), Some(other)) = (nodes.get(2 * at), nodes.get(2 * at + 1)) {
                let winner = one.least(*other, less);
                if let Some(node) = nodes.get_mut(at) {
                    *node = winner;
                }
            }
        }
        *self = Self { nodes, leaves };
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail by panicking")]
mod tests {
    use super::{Entry, Tournament};

    /// Equal heads are ordered by source.
    fn less(a: &Entry, b: &Entry) -> bool {
        a.source() < b.source()
    }

    fn entry(key: u64, source: u32) -> Entry {
        Entry::new(u128::from(key) << 64, source, false)
    }

    #[test]
    fn the_least_head_is_on_top_after_every_change() {
        let mut heads: Vec<Option<u64>> = Vec::new();
        let mut tree = Tournament::default();
        let mut state = 1u64;
        let mut below = |end: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005) + 1;
            (state >> 33) % end
        };
        for step in 0..20_000u64 {
            // Sources are added over time; few of them exist at first.
            let count = 1 + step / 200;
            let source = below(count);
            let head = (below(4) > 0).then(|| below(30));
            let at = usize::try_from(source).unwrap();
            heads.resize(heads.len().max(at + 1), None);
            heads[at] = head;
            let source = u32::try_from(source).unwrap();
            tree.set(source, head.map(|key| entry(key, source)), less);

            let mut order: Vec<(u64, u32)> = Vec::new();
            for (source, head) in (0u32..).zip(&heads) {
                order.extend(head.map(|key| (key, source)));
            }
            assert_eq!(tree.iter().count(), order.len());
            order.sort_unstable();
            let shown = |entry: Entry| {
                let key = u64::try_from(entry.key() >> 64).unwrap();
                (key, entry.source())
            };
            assert_eq!(tree.top().map(shown), order.first().copied());
            if let Some((_, first)) = order.first() {
                let second = tree.challenger(*first, less).map(shown);
                assert_eq!(second, order.get(1).copied());
            }
        }
    }

    #[test]
    fn the_greatest_key_is_before_a_missing_head() {
        let mut tree = Tournament::default();
        tree.set(5, Some(Entry::new(u128::MAX, 5, false)), less);
        assert_eq!(tree.top().map(|top| top.source()), Some(5));
        tree.set(5, None, less);
        assert!(tree.top().is_none());
    }
}
