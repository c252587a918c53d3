//! An ordered map that is cheap to clone: a snapshot takes the state of a
//! program while writers wait, so taking it must not depend on its size.
//!
//! A tree whose nodes are shared between clones. A change copies the nodes from
//! the root to its place, and only those that a clone still holds; afterwards,
//! and without clones, it is made in place. What must never happen here: an
//! answer that depends on the shape, which is not equal on every machine.

use std::sync::Arc;

/// Most entries of a node.
const WIDE: usize = 32;
/// A node with fewer is joined with one beside it, if both fit into one.
const NARROW: usize = WIDE / 4;

type Entry = (Vec<u8>, Vec<u8>);
/// The smallest key that was ever below the child, and the child. The first
/// bound of a node is not looked at.
type Child = (Vec<u8>, Arc<Node>);

#[derive(Clone, Debug)]
enum Node {
    Leaf(Vec<Entry>),
    Inner(Vec<Child>),
}

impl Default for Node {
    fn default() -> Self {
        Self::Leaf(Vec::new())
    }
}

/// The child in which a key is, or would be.
fn child_of(children: &[Child], key: &[u8]) -> usize {
    let rest = children.get(1..).unwrap_or(&[]);
    rest.partition_point(|(bound, _)| bound.as_slice() <= key)
}

fn entry_of(entries: &[Entry], key: &[u8]) -> Result<usize, usize> {
    entries.binary_search_by(|(k, _)| k.as_slice().cmp(key))
}

impl Node {
    fn len(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(children) => children.len(),
        }
    }

    /// Inserts or changes; gives the upper half back when the node got too wide.
    fn put(&mut self, key: &[u8], value: Vec<u8>) -> (Option<Vec<u8>>, Option<Child>) {
        match self {
            Self::Leaf(entries) => match entry_of(entries, key) {
                Ok(at) => (
                    entries
                        .get_mut(at)
                        .map(|e| std::mem::replace(&mut e.1, value)),
                    None,
                ),
                Err(at) => {
                    entries.insert(at, (key.to_vec(), value));
                    if entries.len() <= WIDE {
                        return (None, None);
                    }
                    let upper = entries.split_off(cut(at, entries.len()));
                    let bound = upper.first().map(|e| e.0.clone()).unwrap_or_default();
                    (None, Some((bound, Arc::new(Self::Leaf(upper)))))
                }
            },
            Self::Inner(children) => {
                let at = child_of(children, key);
                let Some((_, child)) = children.get_mut(at) else {
                    return (None, None);
                };
                let (old, split) = Arc::make_mut(child).put(key, value);
                let Some(split) = split else {
                    return (old, None);
                };
                children.insert(at + 1, split);
                if children.len() <= WIDE {
                    return (old, None);
                }
                let upper = children.split_off(cut(at + 1, children.len()));
                let bound = upper.first().map(|c| c.0.clone()).unwrap_or_default();
                (old, Some((bound, Arc::new(Self::Inner(upper)))))
            }
        }
    }

    fn remove(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Leaf(entries) => {
                let at = entry_of(entries, key).ok()?;
                Some(entries.remove(at).1)
            }
            Self::Inner(children) => {
                let at = child_of(children, key);
                let (_, child) = children.get_mut(at)?;
                let removed = Arc::make_mut(child).remove(key)?;
                if child.len() < NARROW {
                    join(children, at);
                }
                Some(removed)
            }
        }
    }
}

/// Where a node is cut in two. Behind the last entry, so that keys that come in
/// order leave full nodes behind; in the middle otherwise.
fn cut(at: usize, len: usize) -> usize {
    if at + 1 == len { len - 1 } else { len / 2 }
}

/// Puts a narrow child into one beside it, or away when it is empty.
fn join(children: &mut Vec<Child>, at: usize) {
    if children.get(at).is_some_and(|child| child.1.len() == 0) {
        children.remove(at);
        return;
    }
    let fits = |left: usize| {
        let (a, b) = (children.get(left)?, children.get(left + 1)?);
        (a.1.len() + b.1.len() <= WIDE).then_some(left)
    };
    let Some(left) = fits(at).or_else(|| fits(at.checked_sub(1)?)) else {
        return;
    };
    let (bound, right) = children.remove(left + 1);
    let right = Arc::try_unwrap(right).unwrap_or_else(|shared| (*shared).clone());
    let Some((_, left)) = children.get_mut(left) else {
        return;
    };
    match (Arc::make_mut(left), right) {
        (Node::Leaf(entries), Node::Leaf(more)) => entries.extend(more),
        (Node::Inner(children), Node::Inner(mut more)) => {
            // The first bound was not looked at; inside it is.
            if let Some(first) = more.first_mut() {
                first.0 = bound;
            }
            children.extend(more);
        }
        _ => unreachable!("nodes beside each other have one height"),
    }
}

/// A map of byte strings. Clone: O(1). Get, put and remove: O(log n), and after
/// a clone the copy of at most one node a level, while the clone lives.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    root: Arc<Node>,
    len: usize,
}

impl Tree {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let mut node = self.root.as_ref();
        loop {
            match node {
                Node::Leaf(entries) => {
                    let at = entry_of(entries, key).ok()?;
                    return entries.get(at).map(|entry| entry.1.as_slice());
                }
                Node::Inner(children) => node = &children.get(child_of(children, key))?.1,
            }
        }
    }

    /// The smallest key greater than the given one.
    pub(super) fn next(&self, key: &[u8]) -> Option<&[u8]> {
        let mut node = self.root.as_ref();
        // The nearest subtree to the right of the way down.
        let mut right: Option<&Node> = None;
        loop {
            match node {
                Node::Leaf(entries) => {
                    let at = entries.partition_point(|(k, _)| k.as_slice() <= key);
                    return match entries.get(at) {
                        Some((next, _)) => Some(next),
                        None => first(right?),
                    };
                }
                Node::Inner(children) => {
                    let at = child_of(children, key);
                    right = children.get(at + 1).map(|c| c.1.as_ref()).or(right);
                    node = &children.get(at)?.1;
                }
            }
        }
    }

    /// The value of a key, to be changed in place. For a key that is not there the
    /// way is copied like for a change, so that it costs most before a `put`.
    pub(super) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Vec<u8>> {
        let mut node = Arc::make_mut(&mut self.root);
        loop {
            match node {
                Node::Leaf(entries) => {
                    let at = entry_of(entries, key).ok()?;
                    return entries.get_mut(at).map(|entry| &mut entry.1);
                }
                Node::Inner(children) => {
                    let at = child_of(children, key);
                    node = Arc::make_mut(&mut children.get_mut(at)?.1);
                }
            }
        }
    }

    /// Sets a value; returns the one before.
    pub(super) fn put(&mut self, key: &[u8], value: Vec<u8>) -> Option<Vec<u8>> {
        let (old, split) = Arc::make_mut(&mut self.root).put(key, value);
        if let Some(upper) = split {
            let lower = (Vec::new(), std::mem::take(&mut self.root));
            self.root = Arc::new(Node::Inner(vec![lower, upper]));
        }
        self.len += usize::from(old.is_none());
        old
    }

    /// Takes a key away; returns its value.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        // Nothing is copied for a key that is not there.
        self.get(key)?;
        let removed = Arc::make_mut(&mut self.root).remove(key)?;
        self.len -= 1;
        while let Node::Inner(children) = self.root.as_ref()
            && let [(_, only)] = children.as_slice()
        {
            self.root = Arc::clone(only);
        }
        if self.len == 0 {
            self.root = Arc::default();
        }
        Some(removed)
    }

    /// All entries, by key.
    pub(super) fn iter(&self) -> Iter<'_> {
        let mut iter = Iter {
            entries: [].iter(),
            ways: Vec::new(),
        };
        iter.down(&self.root);
        iter
    }
}

/// The smallest key below a node.
fn first(mut node: &Node) -> Option<&[u8]> {
    loop {
        match node {
            Node::Leaf(entries) => return entries.first().map(|entry| entry.0.as_slice()),
            Node::Inner(children) => node = &children.first()?.1,
        }
    }
}

/// Entries in order.
pub(super) struct Iter<'a> {
    entries: std::slice::Iter<'a, Entry>,
    ways: Vec<std::slice::Iter<'a, Child>>,
}

impl<'a> Iter<'a> {
    /// To the first leaf below a node.
    fn down(&mut self, mut node: &'a Node) {
        loop {
            match node {
                Node::Leaf(entries) => {
                    self.entries = entries.iter();
                    return;
                }
                Node::Inner(children) => {
                    let mut way = children.iter();
                    let Some((_, child)) = way.next() else {
                        return;
                    };
                    self.ways.push(way);
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
            if let Some((key, value)) = self.entries.next() {
                return Some((key, value));
            }
            match self.ways.last_mut()?.next() {
                Some((_, child)) => self.down(child),
                None => {
                    self.ways.pop();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::ops::Bound;

    fn nodes<'a>(node: &'a Arc<Node>, all: &mut Vec<&'a Arc<Node>>) {
        all.push(node);
        if let Node::Inner(children) = node.as_ref() {
            for (_, child) in children {
                nodes(child, all);
            }
        }
    }

    fn same(tree: &Tree, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
        assert_eq!(tree.len(), model.len());
        let of_model = model.iter().map(|(k, v)| (k.as_slice(), v.as_slice()));
        assert!(tree.iter().eq(of_model));
    }

    #[test]
    fn it_is_a_map_and_a_clone_stays_as_it_was() {
        let (mut tree, mut model) = (Tree::default(), BTreeMap::<Vec<u8>, Vec<u8>>::new());
        let mut clones = Vec::new();
        let mut seed = 5_u64;
        for n in 0..60_000_u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Keys of 0 to 3 bytes, so that some are prefixes of others.
            let random = (seed >> 33).to_be_bytes();
            let key = &random[8 - (seed >> 62) as usize..];
            // It grows, shrinks to next to nothing, and grows again.
            let removes = n / 15_000 % 2 == 1;
            if (seed >> 20) & 7 < if removes { 7 } else { 1 } {
                // One that is there, if there is one behind.
                let mut behind = model.range::<[u8], _>((Bound::Included(key), Bound::Unbounded));
                let key = behind.next().map_or(key.to_vec(), |e| e.0.clone());
                assert_eq!(tree.remove(&key), model.remove(&key));
            } else {
                let value = n.to_be_bytes().to_vec();
                assert_eq!(
                    tree.put(key, value.clone()),
                    model.insert(key.to_vec(), value)
                );
            }
            assert_eq!(tree.get(key), model.get(key).map(Vec::as_slice));
            let mut behind = model.range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded));
            assert_eq!(tree.next(key), behind.next().map(|e| e.0.as_slice()));
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
            match node {
                Node::Leaf(_) => 1,
                Node::Inner(children) => children.iter().map(|child| leaves(&child.1)).sum(),
            }
        }
        let mut tree = Tree::default();
        for n in 0..10_000_u32 {
            tree.put(&n.to_be_bytes(), Vec::new());
        }
        assert!(leaves(&tree.root) <= 10_000 / WIDE + 1);
        for n in 0..10_000_u32 {
            if n % 100 != 0 {
                tree.remove(&n.to_be_bytes());
            }
        }
        // What is left of narrow nodes is joined.
        assert!(leaves(&tree.root) <= 100 / NARROW * 4);
    }

    #[test]
    fn a_change_copies_only_the_way_to_it() {
        let mut tree = Tree::default();
        for n in 0..10_000_u32 {
            tree.put(&n.to_be_bytes(), Vec::new());
        }
        let before = tree.clone();
        tree.put(&77_u32.to_be_bytes(), vec![1]);
        let (mut old, mut new) = (Vec::new(), Vec::new());
        nodes(&before.root, &mut old);
        nodes(&tree.root, &mut new);
        let shared = new.iter().filter(|a| old.iter().any(|b| Arc::ptr_eq(a, b)));
        assert_eq!(new.len() - shared.count(), 3);
    }
}
