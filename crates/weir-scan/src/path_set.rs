//! Several paths joined into a tree, so that one walk over an item finds all of them.
//!
//! Invariant: node 0 is the item; a child has a higher number than its parent; the tree is at most
//! `PATH_STEPS_MAX` deep, which bounds the recursion of a walk.

use crate::error::PlanError;
use crate::path::{Path, Step};

/// Most paths in one set. Members of one object that are wanted are kept in 64 bits.
pub const PATHS_MAX: usize = 64;

/// Paths, compiled for [`find`](crate::find) and [`Plan`](crate::Plan).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSet {
    pub(crate) nodes: Vec<Node>,
    count: usize,
}

/// A place that at least one path passes or ends at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    /// Paths that end here.
    pub(crate) outputs: Vec<u8>,
    /// Wanted members: at most 64.
    pub(crate) names: Vec<Name>,
    /// Wanted elements counted from the front, and the node of each.
    pub(crate) front: Vec<(u64, usize)>,
    /// Wanted elements counted from the back, 1 being the last.
    pub(crate) back: Vec<(u64, usize)>,
}

/// A wanted member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// Its name, decoded.
    pub(crate) text: Box<str>,
    /// `"name"` as most pages write it; `None` if it cannot be written without an escape.
    pub(crate) quoted: Option<Box<[u8]>>,
    pub(crate) node: usize,
}

impl PathSet {
    /// Joins the paths. Values come out in this order; a path may occur twice.
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

    /// No path at all.
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
                    node.names.push(Name {
                        quoted: quoted(name),
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

fn quoted(name: &str) -> Option<Box<[u8]>> {
    let plain = !name.bytes().any(|b| b < 0x20 || b == b'"' || b == b'\\');
    plain.then(|| format!("\"{name}\"").into_bytes().into())
}
