//! Half a hash to a slot number: open addressing, one array, nothing is ever
//! taken out.
//!
//! An entry is the half above the number plus 1; 0 is free. The place of a half
//! is monotone in its bits after mixing, so that growing copies the array from
//! front to back. Invariant: at most three quarters are taken, so every search
//! ends.

use super::pages::Pages;

/// Entries of the first array.
const ENTRIES_MIN: usize = 8;

/// The table. The caller knows the keys; halves of different keys may be equal.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// A power of two of entries, or none.
    entries: Pages<u64>,
    used: usize,
}

impl Table {
    /// Makes clones cheap.
    pub(super) fn freeze(&mut self) {
        self.entries.freeze();
    }

    /// The slot of the key with this half for which `same` holds.
    #[inline]
    pub(super) fn find(&self, half: u32, same: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.place(half);
        loop {
            let entry = *self.entries.get(at)?;
            if entry == 0 {
                return None;
            }
            let (found, number) = parts(entry);
            if found == half && same(number) {
                return Some(number);
            }
            at = self.after(at);
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
        let mut at = self.place(half);
        // What is only looked at is not copied.
        while self.entries.get(at).is_some_and(|taken| *taken != 0) {
            at = self.after(at);
        }
        if let Some(free) = self.entries.get_mut(at) {
            *free = entry;
        }
    }

    fn grow(&mut self) {
        let size = (self.entries.len() * 2).max(ENTRIES_MIN);
        let old = std::mem::replace(&mut self.entries, Pages::filled(0, size));
        for entry in old.iter().filter(|entry| **entry != 0) {
            self.put(parts(*entry).0, *entry);
        }
    }

    /// Where a search begins: the top bits, spread by 2^64 over the golden
    /// ratio.
    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "below the number of entries"
    )]
    fn place(&self, half: u32) -> usize {
        let spread = u64::from(half).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bits = self.entries.len().trailing_zeros();
        (spread >> 1 >> (63 - bits.min(63))) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
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
    fn every_number_is_found_through_all_growth_and_equal_halves() {
        let mut table = Table::default();
        assert_eq!(table.find(1, |_| true), None);
        // 16 keys share each half.
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
