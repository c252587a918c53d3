//! Merges two edits of one document block by block.

use crate::check::check;
use crate::error::AdfError;
use crate::node::content;
use crate::sequence::common;
use serde_json::Value;

/// The result of a merge.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Merged {
    /// The document with both edits; in conflicts, with the blocks of `mine`.
    pub document: Value,
    /// Places at which both edits changed the same blocks in different ways. Empty if there is no
    /// conflict.
    pub conflicts: Vec<Conflict>,
}

/// Blocks that both edits changed in different ways.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Conflict {
    /// Index in the content of the merged document of the first block of `mine`.
    pub at: usize,
    /// The blocks before both edits.
    pub base: Vec<Value>,
    /// The blocks after the edit `mine`.
    pub mine: Vec<Value>,
    /// The blocks after the edit `theirs`.
    pub theirs: Vec<Value>,
}

/// Merges two edits of `base` by its top-level blocks. Edits conflict only if both changed the same
/// blocks, or added different blocks at the same place. Fields of the document besides its content
/// are taken from `theirs`.
///
/// # Errors
///
/// The error of [`check`] for one of the three documents.
pub fn merge(base: &Value, mine: &Value, theirs: &Value) -> Result<Merged, AdfError> {
    for document in [base, mine, theirs] {
        check(document)?;
    }
    let (base, mine) = (content(base), content(mine));
    let mut document = theirs.clone();
    let theirs = content(theirs);
    let places = |pairs: Vec<(usize, usize)>| {
        let mut places = vec![None; base.len()];
        for (at, other) in pairs {
            places[at] = Some(other);
        }
        places
    };
    let in_mine = places(common(base, mine));
    let in_theirs = places(common(base, theirs));
    let both = (0..base.len()).filter_map(|at| Some((at, in_mine[at]?, in_theirs[at]?)));
    let end = (base.len(), mine.len(), theirs.len());
    let (mut from_base, mut from_mine, mut from_theirs) = (0, 0, 0);
    let mut blocks: Vec<Value> = Vec::new();
    let mut conflicts = Vec::new();
    for (to_base, to_mine, to_theirs) in both.chain([end]) {
        let old = &base[from_base..to_base];
        let one = &mine[from_mine..to_mine];
        let two = &theirs[from_theirs..to_theirs];
        if one == old || one == two {
            blocks.extend(two.iter().cloned());
        } else {
            if two != old {
                conflicts.push(Conflict {
                    at: blocks.len(),
                    base: old.to_vec(),
                    mine: one.to_vec(),
                    theirs: two.to_vec(),
                });
            }
            blocks.extend(one.iter().cloned());
        }
        blocks.extend(base.get(to_base).cloned());
        (from_base, from_mine, from_theirs) = (to_base + 1, to_mine + 1, to_theirs + 1);
    }
    if let Some(fields) = document.as_object_mut() {
        fields.insert("content".to_owned(), Value::Array(blocks));
    }
    Ok(Merged {
        document,
        conflicts,
    })
}
