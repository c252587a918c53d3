//! Order of items by the keys of a query, and the boundary of a run in this order.

use std::cmp::Ordering;

use crate::key::{Key, Literal, OwnedKey, ReducedKey};
use crate::plan::Plan;

/// Compares two rows of keys by the order of the query.
pub(crate) fn compare<'a>(
    plan: &Plan,
    a: impl Fn(usize) -> Key<'a>,
    b: impl Fn(usize) -> Key<'a>,
) -> Ordering {
    for (at, key) in plan.keys.iter().enumerate() {
        let order = a(at).compare(&b(at), plan.strings);
        if order != Ordering::Equal {
            return if key.descending {
                order.reverse()
            } else {
                order
            };
        }
    }
    Ordering::Equal
}

/// Returns whether two ties are equal, or at least one is absent.
pub(crate) fn same_tie(plan: &Plan, a: Option<&OwnedKey>, b: Option<&OwnedKey>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.key().compare(&b.key(), plan.strings) == Ordering::Equal,
        _ => true,
    }
}

/// Returns a row of stored keys.
pub(crate) fn row<'a>(keys: &'a [OwnedKey]) -> impl Fn(usize) -> Key<'a> {
    move |at| {
        keys.get(at).map_or(
            Key {
                reduced: ReducedKey::MIN,
                literal: Literal::Json(&[]),
            },
            OwnedKey::key,
        )
    }
}

/// Order of sources among equal items: by ordinal; the parts of a source follow it
/// directly, each followed by its own parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Precedence {
    pub(crate) ordinal: u64,
    /// For a part of a source, its numbers from 1: within the whole source, within that
    /// part, and so on.
    pub(crate) part: Vec<u32>,
}

impl Precedence {
    /// Precedence of a source that was added.
    pub(crate) const fn whole(ordinal: u64) -> Self {
        Self {
            ordinal,
            part: Vec::new(),
        }
    }

    /// Precedence of part `number` of this source.
    pub(crate) fn below(&self, number: u32) -> Self {
        let mut precedence = self.clone();
        precedence.part.push(number);
        precedence
    }

    /// Returns whether this source is `other`, or a part of it.
    pub(crate) fn is_in(&self, other: &Self) -> bool {
        self.ordinal == other.ordinal && self.part.starts_with(&other.part)
    }
}

/// A position up to which an earlier run has returned items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Boundary {
    pub(crate) keys: Vec<OwnedKey>,
    /// Precedence of the source of the last item.
    pub(crate) precedence: Precedence,
    pub(crate) tie: Option<OwnedKey>,
    /// Number of returned items with exactly these keys and this tie.
    pub(crate) equal: u64,
    /// Whether `equal` counts only items of the page with which the parts of the source
    /// begin. The boundaries of enclosing sources do not apply to these parts.
    pub(crate) own_page_only: bool,
}

impl Boundary {
    /// Returns the boundary for a source among items with its keys.
    pub(crate) fn innermost<'a>(all: &'a [Self], precedence: &Precedence) -> Option<&'a Self> {
        let around = all
            .iter()
            .filter(|boundary| precedence.is_in(&boundary.precedence));
        around.max_by_key(|boundary| boundary.precedence.part.len())
    }

    /// Returns whether both are at one position in the order.
    pub(crate) fn is_at(&self, other: &Self, plan: &Plan) -> bool {
        self.precedence == other.precedence && self.has_keys_of(other, plan)
    }

    /// Returns whether both have equal keys and ties.
    pub(crate) fn has_keys_of(&self, other: &Self, plan: &Plan) -> bool {
        compare(plan, row(&self.keys), row(&other.keys)) == Ordering::Equal
            && same_tie(plan, self.tie.as_ref(), other.tie.as_ref())
    }

    /// Returns whether this boundary still restricts sources that `other` does not
    /// restrict. Then `other` has equal keys and is of a part of this source, or of an
    /// earlier source.
    pub(crate) fn still_restricts(&self, other: &Self, plan: &Plan) -> bool {
        self.precedence != other.precedence
            && (other.precedence.is_in(&self.precedence) || other.precedence < self.precedence)
            && compare(plan, row(&self.keys), row(&other.keys)) == Ordering::Equal
    }
}
