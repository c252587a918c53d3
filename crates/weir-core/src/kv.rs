//! An ordered map that can revert all changes since the last commit.
//!
//! Changes apply in place, and an undo log saves the old values. A commit, the common case, needs
//! no merge. A change of an existing key needs no allocation.

mod key_prefixes;
mod node;
mod tree;

use crate::exact::part;
use crate::limits::UNDO_ENTRY_BYTES;
use node::Entry;
use tree::Tree;

#[derive(Clone, Copy, Debug)]
struct Undo {
    key: (usize, usize),
    /// The value before the change; `None` if the key was absent.
    old: Option<(usize, usize)>,
}

/// A map of byte strings with one level of undo. A clone takes O(1) and shares all nodes that
/// neither side has changed since.
#[derive(Clone, Debug, Default)]
pub struct KvMap {
    map: Tree,
    /// Bytes of all keys and values.
    bytes: u64,
    undo: Vec<Undo>,
    undo_bytes: Vec<u8>,
}

/// Bytes of the undo log whose memory is retained for the next call.
const UNDO_RETAINED_BYTES_MAX: usize = 64 << 10;
/// Entries of the undo log whose memory is retained for the next call.
const UNDO_RETAINED_ENTRIES_MAX: usize = 1024;

impl KvMap {
    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether the map has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.len() == 0
    }

    /// Bytes of all keys and values.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The value of a key. O(log n).
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.map.get(key)
    }

    /// The smallest key greater than the given one. O(log n).
    #[must_use]
    pub fn next(&self, key: &[u8]) -> Option<&[u8]> {
        self.map.next(key)
    }

    /// Bytes of the undo log, with [`UNDO_ENTRY_BYTES`] for each change. The number is equal on
    /// every machine.
    #[must_use]
    pub fn undo_log_bytes(&self) -> u64 {
        self.undo_bytes.len() as u64 + self.undo.len() as u64 * UNDO_ENTRY_BYTES
    }

    /// Bytes of memory that the undo log has allocated.
    #[cfg(test)]
    pub(crate) fn undo_capacity(&self) -> usize {
        self.undo_bytes.capacity() + self.undo.capacity() * size_of::<Undo>()
    }

    /// All entries, in ascending order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.map.iter()
    }

    /// Sets a key to the concatenation of the two parts.
    pub fn put(&mut self, key: &[u8], value: [&[u8]; 2]) {
        let undo_key = push_bytes(&mut self.undo_bytes, key);
        self.bytes += (value[0].len() + value[1].len()) as u64;
        let old = if let Some(entry) = self.map.get_mut(key) {
            let undo_bytes = push_bytes(&mut self.undo_bytes, entry.value());
            self.bytes -= entry.value().len() as u64;
            entry.set(value);
            Some(undo_bytes)
        } else {
            self.bytes += key.len() as u64;
            self.map.insert(Entry::new(key, value));
            None
        };
        self.undo.push(Undo { key: undo_key, old });
    }

    /// Removes a key. Returns whether it was present.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let Some(old) = self.map.remove(key) else {
            return false;
        };
        self.bytes -= (key.len() + old.value().len()) as u64;
        let key = push_bytes(&mut self.undo_bytes, key);
        let old = Some(push_bytes(&mut self.undo_bytes, old.value()));
        self.undo.push(Undo { key, old });
        true
    }

    /// Makes all changes since the last commit permanent.
    #[inline]
    pub fn commit(&mut self) {
        if !self.undo.is_empty() {
            self.clear_undo();
        }
    }

    /// Reverts all changes since the last commit.
    pub fn rollback(&mut self) {
        let undo_bytes = std::mem::take(&mut self.undo_bytes);
        let saved = |(start, len): (usize, usize)| {
            part(
                &undo_bytes,
                start..start + len,
                "a change wrote these bytes",
            )
        };
        while let Some(Undo { key, old }) = self.undo.pop() {
            let key = saved(key);
            match (old.map(saved), self.map.get_mut(key)) {
                (Some(old), Some(entry)) => {
                    self.bytes -= entry.value().len() as u64;
                    self.bytes += old.len() as u64;
                    entry.set([old, &[]]);
                }
                (Some(old), None) => {
                    self.bytes += (key.len() + old.len()) as u64;
                    self.map.insert(Entry::new(key, [old, &[]]));
                }
                (None, _) => {
                    if let Some(now) = self.map.remove(key) {
                        self.bytes -= (key.len() + now.value().len()) as u64;
                    }
                }
            }
        }
        self.undo_bytes = undo_bytes;
        self.clear_undo();
    }

    /// Clears the undo log and frees memory that exceeds what the next call usually needs.
    fn clear_undo(&mut self) {
        self.undo.clear();
        self.undo.shrink_to(UNDO_RETAINED_ENTRIES_MAX);
        self.undo_bytes.clear();
        self.undo_bytes.shrink_to(UNDO_RETAINED_BYTES_MAX);
    }
}

fn push_bytes(undo_bytes: &mut Vec<u8>, bytes: &[u8]) -> (usize, usize) {
    let start = undo_bytes.len();
    undo_bytes.extend_from_slice(bytes);
    (start, bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn rollback_restores_the_last_commit() {
        let mut map = KvMap::default();
        let mut seed = 9_u64;
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for round in 0..2_000_u64 {
            let mut next = model.clone();
            for _ in 0..5 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let key = (seed >> 40) % 40;
                let key = key.to_be_bytes();
                if (seed >> 33).is_multiple_of(4) {
                    assert_eq!(map.delete(&key), next.remove(&key[..]).is_some());
                } else {
                    let value = vec![1_u8; usize::try_from(seed >> 60).unwrap_or(0)];
                    map.put(&key, [&value, b"x"]);
                    next.insert(key.to_vec(), [&value[..], b"x"].concat());
                }
                assert_eq!(map.get(&key), next.get(&key[..]).map(Vec::as_slice));
            }
            if round % 3 == 0 {
                map.rollback();
            } else {
                map.commit();
                model = next;
            }
            let bytes: usize = model.iter().map(|(k, v)| k.len() + v.len()).sum();
            assert_eq!(map.bytes(), bytes as u64);
            assert!(
                map.iter()
                    .eq(model.iter().map(|(k, v)| (k.as_slice(), v.as_slice())))
            );
        }
        let first = model.keys().next().cloned();
        assert_eq!(map.next(b"").map(<[u8]>::to_vec), first);
        assert_eq!(map.next(&[0xff; 9]), None);
    }
}
