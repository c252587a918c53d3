//! The index of a log entry, which errors also name.

use std::fmt;

/// The index of an entry: 1, 2, 3, … without gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogIndex(pub u64);

impl LogIndex {
    /// The index before the first entry.
    pub const ZERO: Self = Self(0);

    /// The index after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for LogIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifies one entry permanently: two entries with equal ids are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId {
    /// Term of the leader that appended the entry.
    pub term: u64,
    /// Index of the entry in the log.
    pub index: LogIndex,
}
