//! The key index of one topic: the record with the current value of each key.
//!
//! The number of a slot never changes within a generation. A reader can therefore keep its own
//! sorted view and request only the new slots. A deleted key keeps its slot until a rebuild.
//! Nothing depends on the order of the hash table, which is searched but never iterated.
//!
//! The cost of an operation is its cache misses: one for a new key (in the table), three for a
//! known key (in the table, the slot and the key).
//!
//! A snapshot shares nearly all of the index (`freeze`), because writers wait while the snapshot is
//! taken.

mod pages;
mod table;

use bytes::Bytes;

use crate::digest::hash;
use crate::exact::part;
use crate::ids::ConsequenceOffset;
use pages::Pages;
use table::Table;

/// Bytes of one chunk of key storage.
const CHUNK_BYTES: usize = 1 << 20;
/// Number of dead slots that never cause a rebuild.
const DEAD_SLOTS_MIN: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Chunk (24 bits), byte in chunk (24 bits), length (16 bits).
    location: u64,
    /// Offset of the record with the value; 0: no value.
    offset: u64,
}

/// Keys of a topic with the offset of their last PUT record. Lookup, insert and remove take
/// expected O(1) in the number of keys. Growth is linear and amortised.
#[derive(Clone, Debug)]
pub struct KeyIndex {
    seed: u64,
    table: Table,
    slots: Pages<Slot>,
    keys: Keys,
    live: usize,
    generation: u64,
}

impl KeyIndex {
    /// An empty index. `seed` protects against keys chosen to collide, and changes no result.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            table: Table::default(),
            slots: Pages::default(),
            keys: Keys::default(),
            live: 0,
            generation: 0,
        }
    }

    /// Makes the next clone cheap: O(1) for each thousand keys, with at most one MiB copied. Later,
    /// each side copies only the pages that it changes.
    pub fn freeze(&mut self) {
        self.table.freeze();
        self.slots.freeze();
    }

    /// Number of keys with a value.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether no key has a value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Number of the generation. It changes when slot numbers become invalid.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Number of slots assigned in this generation.
    #[must_use]
    pub fn slots(&self) -> u32 {
        count(self.slots.len())
    }

    /// Key of a slot, and the offset of its record if it has a value.
    #[must_use]
    pub fn slot(&self, number: u32) -> Option<(&[u8], Option<ConsequenceOffset>)> {
        let slot = self.slots.get(number as usize)?;
        let offset = (slot.offset != 0).then_some(ConsequenceOffset(slot.offset));
        Some((self.keys.get(slot.location), offset))
    }

    /// Offset of the record with the key's current value.
    #[inline]
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<ConsequenceOffset> {
        let number = self
            .table
            .find(half(self.seed, key), |n| self.has_key(n, key))?;
        let offset = self.slots.get(number as usize)?.offset;
        (offset != 0).then_some(ConsequenceOffset(offset))
    }

    #[inline]
    fn has_key(&self, number: u32, key: &[u8]) -> bool {
        self.slots
            .get(number as usize)
            .is_some_and(|slot| self.keys.get(slot.location) == key)
    }

    /// Sets the offset of the record that holds the key's value.
    #[inline]
    pub fn set(&mut self, key: &[u8], offset: ConsequenceOffset) {
        assert!(offset.0 != 0, "offsets start at 1");
        let half = half(self.seed, key);
        if let Some(number) = self.table.find(half, |n| self.has_key(n, key)) {
            let Some(slot) = self.slots.get_mut(number as usize) else {
                unreachable!("the table has only numbers of slots")
            };
            self.live += usize::from(slot.offset == 0);
            slot.offset = offset.0;
            return;
        }
        let number = count(self.slots.len());
        let location = self.keys.store(key);
        self.slots.push(Slot {
            location,
            offset: offset.0,
        });
        self.table.insert(half, number);
        self.live += 1;
    }

    /// Removes the key. Returns whether it had a value.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let half = half(self.seed, key);
        let Some(number) = self.table.find(half, |n| self.has_key(n, key)) else {
            return false;
        };
        let had = match self.slots.get_mut(number as usize) {
            Some(slot) => std::mem::take(&mut slot.offset) != 0,
            None => false,
        };
        self.live -= usize::from(had);
        if self.slots.len() - self.live > self.live + DEAD_SLOTS_MIN {
            self.rebuild();
        }
        had
    }

    /// Removes all slots without value. Linear; amortised by the same number of removals.
    fn rebuild(&mut self) {
        let mut fresh = Self::new(self.seed);
        fresh.generation = self.generation + 1;
        for slot in self.slots.iter().filter(|slot| slot.offset != 0) {
            fresh.set(self.keys.get(slot.location), ConsequenceOffset(slot.offset));
        }
        *self = fresh;
    }

    /// Keys with a value and their offsets, in ascending byte order.
    #[must_use]
    pub fn sorted(&self) -> Vec<(&[u8], ConsequenceOffset)> {
        let live = self.slots.iter().filter(|slot| slot.offset != 0);
        let mut keys: Vec<_> = live
            .map(|slot| (self.keys.get(slot.location), ConsequenceOffset(slot.offset)))
            .collect();
        keys.sort_unstable();
        keys
    }
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "half of the hash is used")]
fn half(seed: u64, key: &[u8]) -> u32 {
    hash(seed, key) as u32
}

#[allow(clippy::cast_possible_truncation, reason = "asserted")]
fn count(n: usize) -> u32 {
    assert!(n < u32::MAX as usize, "a topic has fewer than 2^32 keys");
    n as u32
}

/// The bytes of all keys, in chunks. Keys are never removed. A clone shares all chunks except the
/// last.
#[derive(Clone, Debug, Default)]
struct Keys {
    full: Vec<Bytes>,
    last: Vec<u8>,
}

impl Keys {
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "fields of a packed word")]
    fn get(&self, location: u64) -> &[u8] {
        let (chunk, at, len) = (
            (location >> 40) as usize,
            (location >> 16 & 0xff_ffff) as usize,
            (location & 0xffff) as usize,
        );
        let chunk = self.full.get(chunk).map_or(&self.last[..], |full| full);
        part(chunk, at..at + len, "a key is inside its chunk")
    }

    fn store(&mut self, key: &[u8]) -> u64 {
        assert!(key.len() <= 0xffff, "keys are checked before they get here");
        if self.last.len() + key.len() > CHUNK_BYTES {
            assert!(
                self.full.len() + 1 < 1 << 24,
                "a topic has fewer than 16 TiB of keys"
            );
            let full = std::mem::replace(&mut self.last, Vec::with_capacity(CHUNK_BYTES));
            self.full.push(Bytes::from(full));
        }
        let at = self.last.len() as u64;
        self.last.extend_from_slice(key);
        (self.full.len() as u64) << 40 | at << 16 | key.len() as u64
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_index_agrees_with_a_sorted_map_over_a_long_random_history() {
        let mut index = KeyIndex::new(7);
        let mut model = BTreeMap::new();
        let mut state = 1_u64;
        for offset in 1..60_000_u64 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(offset);
            let number = state >> 33;
            let key = format!("key-{}", number % 9_000).into_bytes();
            if number.is_multiple_of(3) {
                assert_eq!(index.remove(&key), model.remove(&key).is_some());
            } else {
                index.set(&key, ConsequenceOffset(offset));
                model.insert(key.clone(), offset);
            }
            assert_eq!(index.get(&key).map(|o| o.0), model.get(&key).copied());
            assert_eq!(index.len(), model.len());
        }
        let sorted: Vec<_> = index
            .sorted()
            .iter()
            .map(|(k, o)| (k.to_vec(), o.0))
            .collect();
        assert_eq!(sorted, model.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_clone_and_its_original_are_independent() {
        let key = |n: u64| format!("{n:040}").into_bytes();
        let mut index = KeyIndex::new(3);
        for n in 0..100_000 {
            index.set(&key(n), ConsequenceOffset(n + 1));
        }
        index.freeze();
        let mut other = index.clone();
        for n in 0..1_000 {
            index.set(&key(n * 50), ConsequenceOffset(200_000 + n));
            index.set(&key(200_000 + n), ConsequenceOffset(300_000 + n));
            assert!(other.remove(&key(n * 50 + 1)));
            other.set(&key(200_000 + n), ConsequenceOffset(400_000 + n));
        }
        let offset = |index: &KeyIndex, n| index.get(&key(n)).map(|offset| offset.0);
        for n in 0..100_000 {
            let (set, removed) = (n % 50 == 0 && n < 50_000, n % 50 == 1 && n < 50_000);
            let mine = if set { 200_000 + n / 50 } else { n + 1 };
            assert_eq!(offset(&index, n), Some(mine));
            assert_eq!(offset(&other, n), (!removed).then_some(n + 1));
        }
        for n in 0..1_000 {
            assert_eq!(offset(&index, 200_000 + n), Some(300_000 + n));
            assert_eq!(offset(&other, 200_000 + n), Some(400_000 + n));
        }
        assert_eq!((index.len(), other.len()), (101_000, 100_000));
    }

    #[test]
    fn the_index_reuses_the_space_of_removed_keys() {
        let mut index = KeyIndex::new(0);
        for n in 0..100_000_u64 {
            index.set(&n.to_be_bytes(), ConsequenceOffset(n + 1));
            assert!(index.remove(&n.to_be_bytes()));
        }
        assert!(index.slots() < 10_000, "{} slots for no key", index.slots());
        assert!(index.generation() > 0);
        assert!(index.is_empty());
    }

    #[test]
    fn long_and_short_keys_share_the_chunks() {
        let mut index = KeyIndex::new(0);
        let keys: Vec<Vec<u8>> = (0..200_u8)
            .map(|n| vec![n; if n % 2 == 0 { 0xffff } else { 1 }])
            .collect();
        for (n, key) in keys.iter().enumerate() {
            index.set(key, ConsequenceOffset(n as u64 + 1));
        }
        for (n, key) in keys.iter().enumerate() {
            assert_eq!(index.get(key), Some(ConsequenceOffset(n as u64 + 1)));
            assert_eq!(
                index.slot(u32::try_from(n).unwrap()).unwrap().0,
                key.as_slice()
            );
        }
        assert_eq!(index.get(b"other"), None);
    }
}
