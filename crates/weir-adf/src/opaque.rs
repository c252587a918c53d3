//! Parts of a document that a text refers to by number.

use serde_json::Value;
use std::collections::HashMap;

/// A part of a document that has no markup. `{{{adf(3)}}}` represents it in the text;
/// `{{{adf(3,TEXT)}}}` represents a mark over TEXT.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Opaque {
    /// Number of the part in the text, from 1.
    pub number: usize,
    /// The valid position of the reference.
    pub kind: OpaqueKind,
    /// The node or mark, as it is in the document.
    pub value: Value,
}

/// The valid position of a reference to a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpaqueKind {
    /// On a separate line.
    Block,
    /// Within a text.
    Inline,
    /// Around a text.
    Mark,
}

/// Nodes and marks that the text refers to by number; the first has number 1.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Vec<Opaque>,
    /// Numbers of marks.
    marks: HashMap<Value, usize>,
    /// Numbers of the entries of earlier documents.
    earlier: HashMap<Value, usize>,
}

impl Table {
    /// A table with these entries, for a further document. Its parts share the entries of equal
    /// parts.
    pub(crate) fn for_next_document(&self) -> Self {
        let number = |entry: &Opaque| (entry.value.clone(), entry.number);
        Self {
            entries: self.entries.clone(),
            marks: self.marks.clone(),
            earlier: self.entries.iter().map(number).collect(),
        }
    }

    /// Adds an entry and returns its number. Equal marks share one entry.
    pub(crate) fn add(&mut self, kind: OpaqueKind, value: &Value) -> usize {
        let earlier = self.earlier.get(value).and_then(|number| self.get(*number));
        if let Some(entry) = earlier.filter(|entry| entry.kind == kind) {
            return entry.number;
        }
        let number = self.entries.len() + 1;
        if kind == OpaqueKind::Mark {
            if let Some(number) = self.marks.get(value) {
                return *number;
            }
            self.marks.insert(value.clone(), number);
        }
        let value = value.clone();
        self.entries.push(Opaque {
            number,
            kind,
            value,
        });
        number
    }

    /// The entry with this number.
    pub(crate) fn get(&self, number: usize) -> Option<&Opaque> {
        self.entries.get(number.checked_sub(1)?)
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Drops all entries after the first `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        for dropped in self.entries.drain(len.min(self.entries.len())..) {
            if dropped.kind == OpaqueKind::Mark {
                self.marks.remove(&dropped.value);
            }
        }
    }

    /// All entries, by number.
    pub(crate) fn into_entries(self) -> Vec<Opaque> {
        self.entries
    }
}
