//! Order of items by the keys of a query, and the place in it up to which a run has come.

use std::cmp::Ordering;

use crate::key::{Key, Literal, OwnedKey, Reduced};
use crate::plan::Plan;

/// Order of two rows of keys, as the query says.
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

/// Whether two ties are equal, or there is none.
pub(crate) fn same_tie(plan: &Plan, a: Option<&OwnedKey>, b: Option<&OwnedKey>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.key().compare(&b.key(), plan.strings) == Ordering::Equal,
        _ => true,
    }
}

/// A row of kept keys.
pub(crate) fn row<'a>(keys: &'a [OwnedKey]) -> impl Fn(usize) -> Key<'a> {
    move |at| {
        keys.get(at).map_or(
            Key {
                reduced: Reduced::LEAST,
                literal: Literal::Json(&[]),
            },
            OwnedKey::key,
        )
    }
}

/// Order of the sources among equal items: by ordinal, the parts of a source
/// directly after it, each followed by its own parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Precedence {
    pub(crate) ordinal: u64,
    /// Of a part: which it is of the whole, of that part, and so on, from 1.
    pub(crate) part: Vec<u32>,
}

impl Precedence {
    /// Of a source that was added.
    pub(crate) const fn whole(ordinal: u64) -> Self {
        Self {
            ordinal,
            part: Vec::new(),
        }
    }

    /// Of a part of this one.
    pub(crate) fn below(&self, number: u32) -> Self {
        let mut precedence = self.clone();
        precedence.part.push(number);
        precedence
    }

    /// Whether this is the other one, or of a part of it.
    pub(crate) fn is_in(&self, other: &Self) -> bool {
        self.ordinal == other.ordinal && self.part.starts_with(&other.part)
    }
}

/// Up to where an earlier run has handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Boundary {
    pub(crate) keys: Vec<OwnedKey>,
    /// Of the source of the last item.
    pub(crate) precedence: Precedence,
    pub(crate) tie: Option<OwnedKey>,
    /// Items with exactly these keys (and tie) that were handed out.
    pub(crate) equal: u64,
    /// It counts those of the page that the parts of its source begin with: what is
    /// around it does not hold for them.
    pub(crate) alone: bool,
}

impl Boundary {
    /// The one that says where a source stands among items with its keys.
    pub(crate) fn innermost<'a>(all: &'a [Self], precedence: &Precedence) -> Option<&'a Self> {
        let around = all
            .iter()
            .filter(|boundary| precedence.is_in(&boundary.precedence));
        around.max_by_key(|boundary| boundary.precedence.part.len())
    }

    /// Whether both are at the same place in the order.
    pub(crate) fn is_at(&self, other: &Self, plan: &Plan) -> bool {
        self.precedence == other.precedence && self.has_keys_of(other, plan)
    }

    /// Whether the same items of a source are at both.
    pub(crate) fn has_keys_of(&self, other: &Self, plan: &Plan) -> bool {
        compare(plan, row(&self.keys), row(&other.keys)) == Ordering::Equal
            && same_tie(plan, self.tie.as_ref(), other.tie.as_ref())
    }

    /// Whether this still says something of sources that another one, at equal
    /// keys in a part of its source or before that, does not.
    pub(crate) fn is_around(&self, other: &Self, plan: &Plan) -> bool {
        self.precedence != other.precedence
            && (other.precedence.is_in(&self.precedence) || other.precedence < self.precedence)
            && compare(plan, row(&self.keys), row(&other.keys)) == Ordering::Equal
    }
}
