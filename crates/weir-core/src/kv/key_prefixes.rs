//! A summary of the keys of a node: the bytes that all keys begin with, and the next four bytes of
//! each key as a number that sorts as the keys do.
//!
//! A search reads one piece of memory for each node, instead of one for each key that it compares.
//!
//! Invariant: prefixes only limit where a key may be, and never change the result. Keys with equal
//! prefixes need not be equal.

use crate::exact::part;
use std::ops::Range;

/// Maximum number of keys of a node.
pub(super) const PREFIXES_MAX: usize = 32;
/// Maximum number of common bytes that are stored. If keys share more bytes, more of their prefixes
/// are equal.
const PREFIX_BYTES: usize = 22;

/// The prefixes of up to [`PREFIXES_MAX`] keys in ascending order.
#[derive(Clone, Debug)]
pub(super) struct KeyPrefixes {
    /// Slots without a key have the greatest value, so that no slot is smaller than a searched key.
    words: [u32; PREFIXES_MAX],
    len: u8,
    skip: u8,
    prefix: [u8; PREFIX_BYTES],
}

impl Default for KeyPrefixes {
    fn default() -> Self {
        Self {
            words: [u32::MAX; PREFIXES_MAX],
            len: 0,
            skip: 0,
            prefix: [0; PREFIX_BYTES],
        }
    }
}

/// The four bytes of a key after the first `skip`, padded with zeros.
fn prefix_of(key: &[u8], skip: usize) -> u32 {
    let rest = part(key, skip.., "the key begins with the common bytes");
    if let Some(head) = rest.first_chunk() {
        return u32::from_be_bytes(*head);
    }
    let mut head = [0; 4];
    for (to, from) in head.iter_mut().zip(rest) {
        *to = *from;
    }
    u32::from_be_bytes(head)
}

impl KeyPrefixes {
    /// The prefixes of keys in ascending order, at most [`PREFIXES_MAX`].
    pub(super) fn of<'a>(keys: impl DoubleEndedIterator<Item = &'a [u8]> + Clone) -> Self {
        let mut key_prefixes = Self::default();
        let (Some(first), Some(last)) = (keys.clone().next(), keys.clone().next_back()) else {
            return key_prefixes;
        };
        // The bytes that the first and the last key share are shared by all keys between them.
        for (to, (a, b)) in key_prefixes.prefix.iter_mut().zip(first.iter().zip(last)) {
            if a != b {
                break;
            }
            *to = *a;
            key_prefixes.skip += 1;
        }
        for (to, key) in key_prefixes.words.iter_mut().zip(keys) {
            *to = prefix_of(key, key_prefixes.skip.into());
            key_prefixes.len += 1;
        }
        key_prefixes
    }

    fn prefix(&self) -> &[u8] {
        let len = usize::from(self.skip);
        part(&self.prefix, ..len, "all common bytes are stored")
    }

    /// The range in which a key may be. All keys before the range are smaller, all keys after it
    /// are greater.
    #[inline]
    pub(super) fn range(&self, key: &[u8]) -> Range<usize> {
        let (prefix, len) = (self.prefix(), usize::from(self.len));
        if !key.starts_with(prefix) {
            // A proper prefix of the common bytes is smaller than every key.
            let at = if key < prefix { 0 } else { len };
            return at..at;
        }
        let head = prefix_of(key, prefix.len());
        let (mut below, mut up_to) = (0_u8, 0_u8);
        for other in &self.words {
            below += u8::from(*other < head);
            up_to += u8::from(*other <= head);
        }
        below.into()..usize::from(up_to).min(len)
    }

    /// Records a key that is inserted at index `at`. Returns `false` if all prefixes must be
    /// recomputed.
    pub(super) fn insert(&mut self, at: usize, key: &[u8]) -> bool {
        let len = usize::from(self.len);
        if len == 0 || len == PREFIXES_MAX || !key.starts_with(self.prefix()) {
            return false;
        }
        let head = prefix_of(key, self.skip.into());
        let Some(after) = self.words.get_mut(at..=len) else {
            return false;
        };
        after.rotate_right(1);
        if let Some(first) = after.first_mut() {
            *first = head;
        }
        self.len += 1;
        true
    }

    /// Removes the prefix of the key at index `at`.
    pub(super) fn remove(&mut self, at: usize) {
        let Some(after) = self.words.get_mut(at..self.len.into()) else {
            return;
        };
        after.rotate_left(1);
        if let Some(last) = after.last_mut() {
            *last = u32::MAX;
            self.len -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_contains_the_position_of_a_key() {
        let words: [&[u8]; 12] = [
            b"",
            b"a",
            b"a\0",
            b"account",
            b"account/0000000000000000000000000001",
            b"account/0000000000000000000000000002",
            b"account/0000000000000000000000000002\0",
            b"account/1",
            b"account/10000",
            b"account/100001",
            b"b\xff\xff\xff\xff",
            b"b\xff\xff\xff\xff\xff",
        ];
        for first in 0..words.len() {
            for end in first..=words.len() {
                let keys = &words[first..end];
                let key_prefixes = KeyPrefixes::of(keys.iter().copied());
                for key in words {
                    let range = key_prefixes.range(key);
                    let smaller = keys.iter().filter(|k| **k < key).count();
                    let not_greater = keys.iter().filter(|k| **k <= key).count();
                    assert!(range.start <= smaller, "{key:?} in {keys:?}");
                    assert!(range.end >= not_greater, "{key:?} in {keys:?}");
                }
            }
        }
    }
}
