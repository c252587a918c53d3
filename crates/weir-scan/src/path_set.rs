//! Several paths joined into a tree, so that one walk over an item finds all of them.
//!
//! Invariant: node 0 is the item; a child has a higher number than its parent; the depth of the
//! tree is at most `PATH_STEPS_MAX`, which bounds the recursion of a walk.

use crate::error::PlanError;
use crate::path::{Path, Step};

/// Limit on the paths in one set. The requested members of one object are tracked in 64 bits.
pub const PATHS_MAX: usize = 64;

/// The units that [`PathSet::work`] counts for one walk over a byte.
pub const PASS_WORK: u64 = 8;

/// Paths, compiled for [`find`](crate::find) and [`Plan`](crate::Plan).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSet {
    pub(crate) nodes: Vec<Node>,
    count: usize,
}

/// A node that at least one path passes or ends at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    /// Paths that end here.
    pub(crate) outputs: Vec<u8>,
    /// Requested members: at most 64.
    pub(crate) names: Vec<Name>,
    /// Indexes in `names`, ordered by the texts of the names.
    pub(crate) sorted: Vec<u8>,
    /// Requested elements counted from the front, and the node of each.
    pub(crate) front: Vec<(u64, usize)>,
    /// Requested elements counted from the back, 1 being the last.
    pub(crate) back: Vec<(u64, usize)>,
}

/// A requested member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// Name of the member, decoded.
    pub(crate) text: Box<str>,
    /// `"name"` as most pages write it; `None` if the name cannot be written without an escape.
    pub(crate) quoted: Option<QuotedName>,
    pub(crate) node: usize,
}

/// A name in quotes, and its first bytes as a number, whose comparison rejects most other names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuotedName {
    pub(crate) bytes: Box<[u8]>,
    /// The first bytes, at most eight; missing ones are zero.
    first: u64,
    /// The bits of `first` that are part of the name.
    mask: u64,
}

impl QuotedName {
    /// `None` if the name cannot be written without an escape.
    fn new(name: &str) -> Option<Self> {
        let plain = !name.bytes().any(|b| b < 0x20 || b == b'"' || b == b'\\');
        plain.then(|| {
            let bytes = format!("\"{name}\"").into_bytes();
            let (mut first, mut mask) = ([0; 8], [0; 8]);
            for ((first, mask), byte) in first.iter_mut().zip(&mut mask).zip(&bytes) {
                (*first, *mask) = (*byte, u8::MAX);
            }
            Self {
                bytes: bytes.into(),
                first: u64::from_le_bytes(first),
                mask: u64::from_le_bytes(mask),
            }
        })
    }

    /// Whether `text` starts with the name.
    pub(crate) fn starts(&self, text: &[u8]) -> bool {
        let Some(first) = text.first_chunk() else {
            return text.starts_with(&self.bytes);
        };
        u64::from_le_bytes(*first) & self.mask == self.first
            && (self.bytes.len() <= first.len() || text.starts_with(&self.bytes))
    }
}

impl PathSet {
    /// Joins the paths. Values are returned in the order of `paths`; a path may occur twice.
    ///
    /// # Errors
    /// `TooManyPaths` above [`PATHS_MAX`].
    pub fn new(paths: &[Path]) -> Result<Self, PlanError> {
        if paths.len() > PATHS_MAX {
            return Err(PlanError::TooManyPaths);
        }
        let mut set = Self {
            nodes: vec![Node::default()],
            count: paths.len(),
        };
        for (number, path) in (0_u8..).zip(paths) {
            let node = path.steps().iter().fold(0, |at, step| set.child(at, step));
            if let Some(node) = set.nodes.get_mut(node) {
                node.outputs.push(number);
            }
        }
        Ok(set)
    }

    /// A set without paths.
    pub(crate) fn none() -> Self {
        Self {
            nodes: Vec::new(),
            count: 0,
        }
    }

    /// Number of paths.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no path.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The maximum work for one byte of an item in a scan. Each walk over the byte counts
    /// [`PASS_WORK`]; each comparison with a name or an index counts 1. An array with indexes from
    /// its end is walked over twice, with its content; nested arrays of this kind multiply the
    /// walks. An element that is requested from both ends is walked over for each of them. Depends
    /// only on the paths. O(steps of all paths).
    pub fn work(&self) -> u64 {
        self.node_work(0)
    }

    /// The recursion is as deep as the longest path is long.
    fn node_work(&self, node: usize) -> u64 {
        let Some(node) = self.nodes.get(node) else {
            return PASS_WORK;
        };
        let max_work =
            |nodes: &mut dyn Iterator<Item = usize>| nodes.map(|n| self.node_work(n)).max();
        let names = PASS_WORK + node.names.len() as u64;
        let members = max_work(&mut node.names.iter().map(|name| name.node));
        let wanted = [&node.front, &node.back].map(|list| {
            let inside = max_work(&mut list.iter().map(|element| element.1));
            inside.unwrap_or(0)
        });
        let indexes = PASS_WORK + (node.front.len() + node.back.len()) as u64;
        let counted = if node.back.is_empty() { 0 } else { PASS_WORK };
        let elements = counted + indexes.max(wanted.iter().sum());
        names.max(members.unwrap_or(0)).max(elements)
    }

    fn child(&mut self, at: usize, step: &Step) -> usize {
        let new = self.nodes.len();
        let Some(node) = self.nodes.get_mut(at) else {
            return at;
        };
        let found = match step {
            Step::Name(name) => {
                let found = node.names.iter().find(|known| known.text == *name);
                let found = found.map(|known| known.node);
                if found.is_none() {
                    let of =
                        |place: &u8| node.names.get(usize::from(*place)).map(|known| &known.text);
                    let place = node.sorted.partition_point(|known| of(known) < Some(name));
                    // There are at most as many names as paths.
                    let number = u8::try_from(node.names.len()).unwrap_or(u8::MAX);
                    node.sorted.insert(place, number);
                    node.names.push(Name {
                        quoted: QuotedName::new(name),
                        text: name.clone(),
                        node: new,
                    });
                }
                found
            }
            Step::Index(index) => {
                let list = if *index < 0 {
                    &mut node.back
                } else {
                    &mut node.front
                };
                let index = index.unsigned_abs();
                let found = list.iter().find(|known| known.0 == index);
                let found = found.map(|known| known.1);
                if found.is_none() {
                    list.push((index, new));
                }
                found
            }
        };
        found.unwrap_or_else(|| {
            self.nodes.push(Node::default());
            new
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::{PASS_WORK, PathSet};
    use crate::path::Path;

    fn set(paths: &[String]) -> PathSet {
        let paths: Vec<Path> = paths
            .iter()
            .map(|path| Path::parse(path).unwrap())
            .collect();
        PathSet::new(&paths).unwrap()
    }

    fn check(paths: &str, passes: u64, compared: u64) {
        let paths: Vec<String> = paths.split_whitespace().map(str::to_owned).collect();
        assert_eq!(
            set(&paths).work(),
            passes * PASS_WORK + compared,
            "{paths:?}"
        );
    }

    #[test]
    fn work_counts_repeated_walks() {
        assert_eq!(set(&[]).work(), PASS_WORK);
        check("$", 1, 0);
        check("$.a.b.c", 1, 1);
        check("$.a.x $.a.y $.b", 1, 2);
        check("$[0] $[1] $[9]", 1, 3);
        check("$[-1]", 2, 1);
        check("$[-1].a", 2, 1);
        check("$.a[-1] $.b", 2, 1);
        check("$[-1][-1][-1]", 4, 1);
        // The only element of an array is both the first and the last.
        check("$[0][0] $[-1][0]", 3, 2);
        check("$[0][0] $[0][-1] $[-1][0] $[-1][-1]", 7, 0);
        let most = if cfg!(miri) { 4 } else { 64 };
        check(&format!("${}", "[-1]".repeat(most)), most as u64 + 1, 1);
        let names: Vec<String> = (0..most).map(|n| format!("$.x.n{n}")).collect();
        assert_eq!(set(&names).work(), PASS_WORK + most as u64);
    }
}
