//! An ordered map that is cheap to clone. A snapshot clones the state of a program while writers
//! wait, so the cost of a clone must not depend on the size of the state.
//!
//! Clones share the nodes of the tree. A change copies the nodes on the path from the root, but
//! only those that a clone still shares; other nodes change in place. In a large tree, an operation
//! costs one cache miss for each level and one for the entry.
//!
//! Invariant: no result depends on the shape of the tree, which differs between machines.

use super::node::{Body, Child, Entry, Node, child_of, entry_of, first};
use crate::exact::to_u8;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The path to the entry that was found last: the index in each node is one byte, and the lowest
/// byte is that of the root. A program often gets a value and then puts it, so the second search
/// compares one key. The path is a hint: a search verifies the key that it finds there.
#[derive(Debug, Default)]
struct PathHint(AtomicU64);

impl Clone for PathHint {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Relaxed)))
    }
}

impl PathHint {
    fn get(&self) -> [u8; 8] {
        self.0.load(Relaxed).to_le_bytes()
    }

    fn set(&self, places: [u8; 8]) {
        self.0.store(u64::from_le_bytes(places), Relaxed);
    }
}

/// A map of byte strings. Clone: O(1). Get, put and remove: O(log n). While a clone lives, a change
/// also copies at most one node for each level.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    root: Arc<Node>,
    len: usize,
    last: PathHint,
}

impl Tree {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The entry of a key, if the search that ran last found it.
    #[inline]
    fn find_at_hint(&self, key: &[u8]) -> Option<&Entry> {
        let mut node = self.root.as_ref();
        for at in self.last.get() {
            match &node.body {
                Body::Leaf(entries) => {
                    let entry = entries.get(usize::from(at));
                    return entry.filter(|entry| entry.key() == key);
                }
                Body::Inner(children) => node = &children.get(usize::from(at))?.1,
            }
        }
        None
    }

    fn find(&self, key: &[u8]) -> Option<&Entry> {
        if let Some(entry) = self.find_at_hint(key) {
            return Some(entry);
        }
        let mut node = self.root.as_ref();
        let mut path = [0; 8];
        let mut places = path.iter_mut();
        loop {
            let at = match &node.body {
                Body::Leaf(entries) => entry_of(&node.key_prefixes, entries, key).ok()?,
                Body::Inner(children) => child_of(&node.key_prefixes, children, key),
            };
            if let Some(place) = places.next() {
                *place = to_u8(at, "a node has fewer than 256 children");
            }
            match &node.body {
                Body::Leaf(entries) => {
                    self.last.set(path);
                    return entries.get(at);
                }
                Body::Inner(children) => node = &children.get(at)?.1,
            }
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.find(key).map(Entry::value)
    }

    /// The smallest key greater than the given one.
    pub(super) fn next(&self, key: &[u8]) -> Option<&[u8]> {
        let mut node = self.root.as_ref();
        // The nearest subtree to the right of the path.
        let mut right: Option<&Node> = None;
        loop {
            match &node.body {
                Body::Leaf(entries) => {
                    let at = match entry_of(&node.key_prefixes, entries, key) {
                        Ok(at) => at + 1,
                        Err(at) => at,
                    };
                    return match entries.get(at) {
                        Some(next) => Some(next.key()),
                        None => first(right?),
                    };
                }
                Body::Inner(children) => {
                    let at = child_of(&node.key_prefixes, children, key);
                    right = children.get(at + 1).map(|c| c.1.as_ref()).or(right);
                    node = &children.get(at)?.1;
                }
            }
        }
    }

    /// The entry of a key, for a change of its value in place.
    pub(super) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Entry> {
        // An absent key causes no copy. `find` also stores the path.
        self.find(key)?;
        let mut path = self.last.get().into_iter().map(usize::from);
        let mut node = Arc::make_mut(&mut self.root);
        loop {
            let at = path.next();
            match &mut node.body {
                Body::Leaf(entries) => {
                    let at = at.or_else(|| entry_of(&node.key_prefixes, entries, key).ok())?;
                    return entries.get_mut(at);
                }
                Body::Inner(children) => {
                    let at = at.unwrap_or_else(|| child_of(&node.key_prefixes, children, key));
                    node = Arc::make_mut(&mut children.get_mut(at)?.1);
                }
            }
        }
    }

    /// Inserts an entry whose key is absent.
    pub(super) fn insert(&mut self, new: Entry) {
        if let Some(upper) = Arc::make_mut(&mut self.root).insert(new, true) {
            let lower = (Box::default(), std::mem::take(&mut self.root));
            self.root = Arc::new(Body::Inner(vec![lower, upper]).into());
        }
        self.len += 1;
    }

    /// Removes a key and returns its entry.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        // An absent key causes no copy.
        self.find(key)?;
        let removed = Arc::make_mut(&mut self.root).remove(key)?;
        self.len -= 1;
        while let Body::Inner(children) = &self.root.body
            && let [(_, only)] = children.as_slice()
        {
            self.root = Arc::clone(only);
        }
        if self.len == 0 {
            self.root = Arc::default();
        }
        Some(removed)
    }

    /// All entries, in ascending order of keys.
    pub(super) fn iter(&self) -> Iter<'_> {
        let mut iter = Iter {
            entries: [].iter(),
            levels: Vec::new(),
        };
        iter.down(&self.root);
        iter
    }
}

/// Entries in order.
pub(super) struct Iter<'a> {
    entries: std::slice::Iter<'a, Entry>,
    levels: Vec<std::slice::Iter<'a, Child>>,
}

impl<'a> Iter<'a> {
    /// Descends to the first leaf below a node.
    fn down(&mut self, mut node: &'a Node) {
        loop {
            match &node.body {
                Body::Leaf(entries) => {
                    self.entries = entries.iter();
                    return;
                }
                Body::Inner(children) => {
                    let mut path = children.iter();
                    let Some((_, child)) = path.next() else {
                        return;
                    };
                    self.levels.push(path);
                    node = child;
                }
            }
        }
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Some((entry.key(), entry.value()));
            }
            match self.levels.last_mut()?.next() {
                Some((_, child)) => self.down(child),
                None => {
                    self.levels.pop();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::{ENTRIES_MAX, ENTRIES_MIN};
    use super::*;
    use std::collections::BTreeMap;
    use std::ops::Bound;

    fn nodes<'a>(node: &'a Arc<Node>, all: &mut Vec<&'a Arc<Node>>) {
        all.push(node);
        if let Body::Inner(children) = &node.body {
            for (_, child) in children {
                nodes(child, all);
            }
        }
    }

    fn put(tree: &mut Tree, key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        if let Some(entry) = tree.get_mut(key) {
            let old = entry.value().to_vec();
            entry.set([value, &[]]);
            return Some(old);
        }
        tree.insert(Entry::new(key, [value, &[]]));
        None
    }

    fn remove(tree: &mut Tree, key: &[u8]) -> Option<Vec<u8>> {
        tree.remove(key).map(|entry| entry.value().to_vec())
    }

    fn same(tree: &Tree, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
        assert_eq!(tree.len(), model.len());
        let of_model = model.iter().map(|(k, v)| (k.as_slice(), v.as_slice()));
        assert!(tree.iter().eq(of_model));
    }

    #[test]
    fn a_tree_behaves_like_a_map_and_its_clones_do_not_change() {
        let (mut tree, mut model) = (Tree::default(), BTreeMap::<Vec<u8>, Vec<u8>>::new());
        let mut clones = Vec::new();
        let mut seed = 5_u64;
        for n in 0..60_000_u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Keys of 0 to 3 bytes, so that some are prefixes of others.
            let random = (seed >> 33).to_be_bytes();
            let key = &random[8 - (seed >> 62) as usize..];
            // The map grows, shrinks to almost empty, and grows again.
            let removes = n / 15_000 % 2 == 1;
            if (seed >> 20) & 7 < if removes { 7 } else { 1 } {
                // Removes the next key that is present, if there is one.
                let mut after = model.range::<[u8], _>((Bound::Included(key), Bound::Unbounded));
                let key = after.next().map_or(key.to_vec(), |e| e.0.clone());
                assert_eq!(remove(&mut tree, &key), model.remove(&key));
            } else {
                let value = n.to_be_bytes().to_vec();
                assert_eq!(
                    put(&mut tree, key, &value),
                    model.insert(key.to_vec(), value)
                );
            }
            assert_eq!(tree.get(key), model.get(key).map(Vec::as_slice));
            let mut after = model.range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded));
            assert_eq!(tree.next(key), after.next().map(|e| e.0.as_slice()));
            if n % 4_999 == 0 {
                clones.push((tree.clone(), model.clone()));
            }
        }
        same(&tree, &model);
        for (tree, model) in &clones {
            same(tree, model);
        }
        for key in model.keys() {
            assert!(tree.remove(key).is_some());
        }
        assert_eq!((tree.len(), tree.iter().next()), (0, None));
    }

    #[test]
    fn keys_in_order_leave_full_nodes() {
        fn leaves(node: &Node) -> usize {
            match &node.body {
                Body::Leaf(_) => 1,
                Body::Inner(children) => children.iter().map(|child| leaves(&child.1)).sum(),
            }
        }
        let mut tree = Tree::default();
        for n in 0..10_000_u32 {
            put(&mut tree, &n.to_be_bytes(), b"");
        }
        assert!(leaves(&tree.root) <= 10_000 / ENTRIES_MAX + 1);
        // With descending keys all nodes are at least half full, also those next to a full node.
        let mut other = tree.clone();
        let last = &(3 * ENTRIES_MAX - 1).to_be_bytes()[size_of::<usize>() - 4..];
        for n in (0..10_000_u32).rev() {
            put(&mut other, &[last, &n.to_be_bytes()].concat(), b"");
        }
        assert!(leaves(&other.root) <= 10_000 / ENTRIES_MAX + 10_000 / (ENTRIES_MAX / 2) + 2);
        for n in 0..10_000_u32 {
            if n % 100 != 0 {
                tree.remove(&n.to_be_bytes());
            }
        }
        // The remaining narrow nodes are merged.
        assert!(leaves(&tree.root) <= 100 / ENTRIES_MIN * 4);
    }

    #[test]
    fn a_change_copies_only_the_path_to_it() {
        let mut tree = Tree::default();
        for n in 0..10_000_u32 {
            put(&mut tree, &n.to_be_bytes(), b"");
        }
        let before = tree.clone();
        put(&mut tree, &77_u32.to_be_bytes(), b"1");
        let (mut old, mut new) = (Vec::new(), Vec::new());
        nodes(&before.root, &mut old);
        nodes(&tree.root, &mut new);
        let shared = new.iter().filter(|a| old.iter().any(|b| Arc::ptr_eq(a, b)));
        assert_eq!(new.len() - shared.count(), 3);
    }
}
