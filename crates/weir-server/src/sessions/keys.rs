//! The shares of principals of the table of idempotency keys.
//!
//! The store refuses a new key while its table is full and the oldest key is younger than
//! [`ONCE_MS_MIN`]. So that no principal can fill the table, a principal may store another key only
//! while it has fewer than [`FREE_FACTOR`] times as many keys as the table has free entries. One
//! principal alone leaves an eighth of the table free. Each further principal gets most of the rest,
//! and all shares become equal while old keys expire.
//!
//! Keys are counted since the start of the server.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use parking_lot::Mutex;
use weir_core::limits::{ONCE_IDS_MAX, ONCE_MS_MIN};

/// A principal has at most this many times as many keys as the table has free entries.
const FREE_FACTOR: usize = 7;
/// Minutes after which a key no longer counts: the store may evict it.
const COUNTED_MINUTES: u64 = ONCE_MS_MIN / 60_000;
/// Error text for a principal that has its maximum number of keys.
pub(crate) const KEYS_FULL: &str =
    "the principal has its maximum number of idempotency keys of the last 15 minutes";

/// The counts of all principals.
#[derive(Debug)]
pub(crate) struct IdempotencyKeys {
    /// Maximum number of keys of the store.
    max: usize,
    started: Instant,
    counts: Mutex<AllCounts>,
}

#[derive(Debug, Default)]
struct AllCounts {
    total: KeyCounts,
    principals: HashMap<String, KeyCounts>,
}

/// The keys of one principal, or of all.
#[derive(Debug, Default)]
struct KeyCounts {
    /// Keys whose first request has no verdict yet.
    in_flight: usize,
    /// Numbers of keys that were stored in one minute, oldest first.
    stored: VecDeque<(u64, usize)>,
}

impl KeyCounts {
    /// Returns the number of keys that the store may not evict in this minute.
    fn count(&mut self, minute: u64) -> usize {
        let is_old = |(stored, _): &(u64, usize)| stored + COUNTED_MINUTES < minute;
        while self.stored.front().is_some_and(is_old) {
            self.stored.pop_front();
        }
        let stored = self.stored.iter().map(|(_, count)| count);
        self.in_flight + stored.sum::<usize>()
    }

    fn end(&mut self, minute: u64, is_stored: bool) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if !is_stored {
            return;
        }
        match self.stored.back_mut() {
            Some((newest, count)) if *newest >= minute => *count += 1,
            _ => self.stored.push_back((minute, 1)),
        }
    }
}

impl Default for IdempotencyKeys {
    fn default() -> Self {
        Self::new(ONCE_IDS_MAX)
    }
}

impl IdempotencyKeys {
    /// Shares a table of `max` keys.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            started: Instant::now(),
            counts: Mutex::default(),
        }
    }

    /// Counts a new key of a principal. The error is the number of keys that the principal may have
    /// at present.
    pub(crate) fn start(&self, principal: &str) -> Result<(), usize> {
        self.start_at(principal, self.minute())
    }

    /// Ends the first request of a key. `is_stored`: the store has the key, so it remains counted.
    pub(crate) fn end(&self, principal: &str, is_stored: bool) {
        self.end_at(principal, is_stored, self.minute());
    }

    fn minute(&self) -> u64 {
        self.started.elapsed().as_secs() / 60
    }

    fn start_at(&self, principal: &str, minute: u64) -> Result<(), usize> {
        let counts = &mut *self.counts.lock();
        let principals = &mut counts.principals;
        if !principals.contains_key(principal) {
            principals.retain(|_, one| one.count(minute) > 0);
        }
        let own = principals.entry(principal.to_owned()).or_default();
        let free = self.max.saturating_sub(counts.total.count(minute));
        let own_max = free.saturating_mul(FREE_FACTOR);
        if own.count(minute) >= own_max {
            return Err(own_max);
        }
        own.in_flight += 1;
        counts.total.in_flight += 1;
        Ok(())
    }

    fn end_at(&self, principal: &str, is_stored: bool, minute: u64) {
        let counts = &mut *self.counts.lock();
        counts.total.end(minute, is_stored);
        if let Some(own) = counts.principals.get_mut(principal) {
            own.end(minute, is_stored);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{COUNTED_MINUTES, IdempotencyKeys};

    const MAX: usize = 262_144;

    /// Stores keys of a principal until it is refused. Returns their number.
    fn fill(keys: &IdempotencyKeys, principal: &str, minute: u64) -> usize {
        let mut count = 0;
        while keys.start_at(principal, minute).is_ok() {
            keys.end_at(principal, true, minute);
            count += 1;
        }
        count
    }

    #[test]
    fn a_principal_leaves_a_part_of_the_table_to_each_other_one() {
        let keys = IdempotencyKeys::default();
        assert_eq!(fill(&keys, "a", 0), MAX / 8 * 7);
        assert_eq!(keys.start_at("a", 0), Err(MAX / 8 * 7));
        assert_eq!(fill(&keys, "b", 0), MAX / 64 * 7);
        assert_eq!(fill(&keys, "c", 0), MAX / 512 * 7);
        // When the keys of `a` expire, it gets no more than its share of that time.
        let later = COUNTED_MINUTES + 1;
        assert_eq!(fill(&keys, "b", COUNTED_MINUTES), 0);
        let again = fill(&keys, "b", later);
        assert_eq!(again, MAX / 8 * 7);
        assert!(fill(&keys, "a", later) > 0);
    }

    #[test]
    fn only_stored_keys_remain_counted() {
        let keys = IdempotencyKeys::new(8);
        for _ in 0..100 {
            assert_eq!(keys.start_at("a", 0), Ok(()));
            keys.end_at("a", false, 0);
        }
        for _ in 0..7 {
            assert_eq!(keys.start_at("a", 0), Ok(()));
        }
        assert_eq!(keys.start_at("a", 0), Err(7), "keys in flight are counted");
        assert_eq!(keys.start_at("b", 0), Ok(()));
        for _ in 0..7 {
            keys.end_at("a", true, 0);
        }
        assert_eq!(keys.start_at("a", COUNTED_MINUTES), Err(0));
        assert_eq!(keys.start_at("a", COUNTED_MINUTES + 1), Ok(()));
    }
}
