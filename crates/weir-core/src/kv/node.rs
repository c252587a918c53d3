//! A node of the tree of a state: entries, or children and the keys between them.
//!
//! Invariants, after each change:
//! - Keys are in ascending order.
//! - The prefixes are those of the keys. They are recomputed if a new key does not share the common
//!   beginning.
//! - A node has at most [`ENTRIES_MAX`] keys.

use super::key_prefixes::{KeyPrefixes, PREFIXES_MAX};
use crate::exact::part;
use std::sync::Arc;

/// Maximum number of entries of a node.
pub(super) const ENTRIES_MAX: usize = PREFIXES_MAX - 1;
/// A node with fewer entries is merged with a neighbour, if both fit into one node.
pub(super) const ENTRIES_MIN: usize = ENTRIES_MAX / 4;

/// Spare bytes that a small entry may retain, so that small changes of the length of a value need
/// no allocation.
const SPARE_BYTES: usize = 64;

/// Why an entry has the bytes of its key.
const KEY_FIRST: &str = "an entry begins with its key";

/// A key followed by its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    bytes: Vec<u8>,
    key_len: usize,
}

impl Entry {
    /// Creates an entry from a key of at most `KEY_BYTES_MAX` bytes and the two parts of a value.
    pub(super) fn new(key: &[u8], value: [&[u8]; 2]) -> Self {
        Self {
            key_len: key.len(),
            bytes: [key, value[0], value[1]].concat(),
        }
    }

    pub(super) fn key(&self) -> &[u8] {
        part(&self.bytes, ..self.key_len, KEY_FIRST)
    }

    pub(super) fn value(&self) -> &[u8] {
        part(&self.bytes, self.key_len.., KEY_FIRST)
    }

    /// Changes the value, in place if it fits. Frees the memory of a much larger old value, because
    /// limits count only the bytes of keys and values.
    pub(super) fn set(&mut self, value: [&[u8]; 2]) {
        self.bytes.truncate(self.key_len);
        let len = self.key_len + value[0].len() + value[1].len();
        if self.bytes.capacity() > 2 * len + SPARE_BYTES {
            self.bytes.shrink_to(len);
        }
        self.bytes.extend_from_slice(value[0]);
        self.bytes.extend_from_slice(value[1]);
    }
}

/// A lower bound of the keys of the child, and the child. The bound of the first child is not used.
pub(super) type Child = (Box<[u8]>, Arc<Node>);

#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    /// The prefixes of all entries, or of all bounds except the first.
    pub(super) key_prefixes: KeyPrefixes,
    pub(super) body: Body,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Leaf(Vec<Entry>),
    Inner(Vec<Child>),
}

impl Default for Body {
    fn default() -> Self {
        Self::Leaf(Vec::new())
    }
}

impl From<Body> for Node {
    fn from(body: Body) -> Self {
        let key_prefixes = body.key_prefixes();
        Self { key_prefixes, body }
    }
}

/// The index of the child that contains the key, or would contain it.
pub(super) fn child_of(key_prefixes: &KeyPrefixes, children: &[Child], key: &[u8]) -> usize {
    let range = key_prefixes.range(key);
    let bounds = children.get(1..).and_then(|rest| rest.get(range.clone()));
    let Some(bounds) = bounds else {
        unreachable!("the prefixes are those of all children after the first")
    };
    range.start + bounds.partition_point(|child| child.0.as_ref() <= key)
}

/// The index of a key, or `Err` with the index at which it would be inserted.
pub(super) fn entry_of(
    key_prefixes: &KeyPrefixes,
    entries: &[Entry],
    key: &[u8],
) -> Result<usize, usize> {
    let range = key_prefixes.range(key);
    let some = part(
        entries,
        range.clone(),
        "the prefixes are those of all entries",
    );
    match some.binary_search_by(|entry| entry.key().cmp(key)) {
        Ok(at) => Ok(range.start + at),
        Err(at) => Err(range.start + at),
    }
}

impl Body {
    fn len(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(children) => children.len(),
        }
    }

    fn key_prefixes(&self) -> KeyPrefixes {
        match self {
            Self::Leaf(entries) => KeyPrefixes::of(entries.iter().map(Entry::key)),
            Self::Inner(children) => KeyPrefixes::of(children.iter().skip(1).map(|c| c.0.as_ref())),
        }
    }

    /// Splits off the upper part of a node that is too wide. Returns this part with its smallest
    /// key. `is_last`: the new entry is the greatest of the tree.
    fn split(&mut self, is_last: bool) -> Option<Child> {
        let len = self.len();
        if len <= ENTRIES_MAX {
            return None;
        }
        // If keys are inserted in ascending order, this split leaves full nodes.
        let cut = if is_last { len - 1 } else { len / 2 };
        let (bound, upper) = match self {
            Self::Leaf(entries) => {
                let upper = entries.split_off(cut);
                let Some(bound) = upper.first().map(|entry| entry.key().into()) else {
                    unreachable!("the upper part of a wide node has an entry")
                };
                (bound, Self::Leaf(upper))
            }
            Self::Inner(children) => {
                let upper = children.split_off(cut);
                let Some(bound) = upper.first().map(|child| child.0.clone()) else {
                    unreachable!("the upper part of a wide node has a child")
                };
                (bound, Self::Inner(upper))
            }
        };
        Some((bound, Arc::new(upper.into())))
    }
}

impl Node {
    /// Inserts an entry whose key is absent. Returns the upper part if the node became too wide.
    /// `is_right`: no node is to the right of this one.
    pub(super) fn insert(&mut self, new: Entry, is_right: bool) -> Option<Child> {
        let at = match &mut self.body {
            Body::Leaf(entries) => {
                let (Ok(at) | Err(at)) = entry_of(&self.key_prefixes, entries, new.key());
                let has_prefix = self.key_prefixes.insert(at, new.key());
                entries.insert(at, new);
                if has_prefix && entries.len() <= ENTRIES_MAX {
                    return None;
                }
                at
            }
            Body::Inner(children) => {
                let at = child_of(&self.key_prefixes, children, new.key());
                let is_right = is_right && at + 1 == children.len();
                let (_, child) = children.get_mut(at)?;
                let split = Arc::make_mut(child).insert(new, is_right)?;
                children.insert(at + 1, split);
                at + 1
            }
        };
        let upper = self.body.split(is_right && at + 1 == self.body.len());
        self.key_prefixes = self.body.key_prefixes();
        upper
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        match &mut self.body {
            Body::Leaf(entries) => {
                let at = entry_of(&self.key_prefixes, entries, key).ok()?;
                self.key_prefixes.remove(at);
                Some(entries.remove(at))
            }
            Body::Inner(children) => {
                let at = child_of(&self.key_prefixes, children, key);
                let (_, child) = children.get_mut(at)?;
                let child = Arc::make_mut(child);
                let removed = child.remove(key)?;
                if child.body.len() < ENTRIES_MIN {
                    join(children, at);
                    self.key_prefixes = self.body.key_prefixes();
                }
                Some(removed)
            }
        }
    }
}

/// Merges a narrow child with a neighbour if both fit into one node. Removes an empty child.
fn join(children: &mut Vec<Child>, at: usize) {
    if children
        .get(at)
        .is_some_and(|child| child.1.body.len() == 0)
    {
        children.remove(at);
        return;
    }
    let fits = |left: usize| {
        let (a, b) = (children.get(left)?, children.get(left + 1)?);
        (a.1.body.len() + b.1.body.len() <= ENTRIES_MAX).then_some(left)
    };
    let Some(left) = fits(at).or_else(|| fits(at.checked_sub(1)?)) else {
        return;
    };
    let (bound, right) = children.remove(left + 1);
    let right = Arc::try_unwrap(right).unwrap_or_else(|shared| (*shared).clone());
    let Some((_, left)) = children.get_mut(left) else {
        unreachable!("only the right neighbour was removed")
    };
    let left = Arc::make_mut(left);
    match (&mut left.body, right.body) {
        (Body::Leaf(entries), Body::Leaf(more)) => entries.extend(more),
        (Body::Inner(children), Body::Inner(mut more)) => {
            // The first bound was unused in `right`, but is used after the merge.
            if let Some(first) = more.first_mut() {
                first.0 = bound;
            }
            children.extend(more);
        }
        _ => unreachable!("neighbours have equal heights"),
    }
    left.key_prefixes = left.body.key_prefixes();
}

/// The smallest key in the subtree of a node.
pub(super) fn first(mut node: &Node) -> Option<&[u8]> {
    loop {
        match &node.body {
            Body::Leaf(entries) => return entries.first().map(Entry::key),
            Body::Inner(children) => node = &children.first()?.1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_shrinks_frees_memory() {
        let mut entry = Entry::new(b"key", [b"1", b""]);
        for len in [1_000_000, 1, 100, 5_000, 4_000, 30, 0] {
            entry.set([&vec![7; len], b"x"]);
            assert_eq!(entry.key(), b"key");
            assert_eq!(entry.value().len(), len + 1);
            let (held, need) = (entry.bytes.capacity(), entry.bytes.len());
            assert!(held <= 2 * need + SPARE_BYTES, "{held} for {need}");
        }
    }
}
