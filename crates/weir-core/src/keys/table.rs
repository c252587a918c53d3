//! A hash table from half a hash to a slot number: open addressing in one array, without removal.
//!
//! An entry is the half hash in the upper 32 bits and the number plus 1 in the lower 32; 0 is a
//! free entry. The index of a half hash grows with its mixed bits, so that growth copies the array
//! from front to back.
//!
//! Invariant: at most three quarters of the entries are used, so every search ends.

use super::pages::Pages;

/// Number of entries of the first array.
const ENTRIES_MIN: usize = 8;

/// The hash table. The caller compares the keys, because different keys may have equal half hashes.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// Its length is a power of two, or 0.
    entries: Pages<u64>,
    used: usize,
}

impl Table {
    /// Makes clones cheap.
    pub(super) fn freeze(&mut self) {
        self.entries.freeze();
    }

    /// The slot number with this half hash for which `same` returns true.
    #[inline]
    pub(super) fn find(&self, half: u32, same: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.start_index(half);
        loop {
            let entry = *self.entries.get(at)?;
            if entry == 0 {
                return None;
            }
            let (found, number) = parts(entry);
            if found == half && same(number) {
                return Some(number);
            }
            at = self.next_index(at);
        }
    }

    /// Adds a key that `find` did not find.
    #[inline]
    pub(super) fn insert(&mut self, half: u32, number: u32) {
        if self.used * 4 >= self.entries.len() * 3 {
            self.grow();
        }
        self.used += 1;
        self.put(half, u64::from(half) << 32 | (u64::from(number) + 1));
    }

    #[inline]
    fn put(&mut self, half: u32, entry: u64) {
        let mut at = self.start_index(half);
        // `get` copies no page, unlike `get_mut`.
        while self.entries.get(at).is_some_and(|used| *used != 0) {
            at = self.next_index(at);
        }
        if let Some(unused) = self.entries.get_mut(at) {
            *unused = entry;
        }
    }

    fn grow(&mut self) {
        let size = (self.entries.len() * 2).max(ENTRIES_MIN);
        let old = std::mem::replace(&mut self.entries, Pages::filled(0, size));
        for entry in old.iter().filter(|entry| **entry != 0) {
            self.put(parts(*entry).0, *entry);
        }
    }

    /// Index at which a search begins: the top bits after multiplication by 2^64 divided by the
    /// golden ratio.
    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "below the number of entries"
    )]
    fn start_index(&self, half: u32) -> usize {
        let spread = u64::from(half).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bits = self.entries.len().trailing_zeros();
        (spread >> 1 >> (63 - bits.min(63))) as usize
    }

    #[inline]
    fn next_index(&self, at: usize) -> usize {
        (at + 1) & (self.entries.len() - 1)
    }
}

#[inline]
#[allow(
    clippy::cast_possible_truncation,
    reason = "the two halves of an entry"
)]
fn parts(entry: u64) -> (u32, u32) {
    ((entry >> 32) as u32, (entry as u32).wrapping_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_after_growth_and_with_equal_half_hashes() {
        let mut table = Table::default();
        assert_eq!(table.find(1, |_| true), None);
        // 16 keys share each half hash.
        let half = |n: u32| (n / 16).wrapping_mul(0x0101_0101);
        for n in 0..20_000 {
            table.insert(half(n), n);
            assert_eq!(table.find(half(n), |m| m == n), Some(n));
        }
        for n in 0..20_000 {
            assert_eq!(table.find(half(n), |m| m == n), Some(n));
        }
        assert_eq!(table.find(half(0), |_| false), None);
        assert_eq!(table.find(77, |_| true), None);
    }
}
