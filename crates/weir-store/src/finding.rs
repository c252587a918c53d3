//! The findings of a check of a store, and their severity.

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A leftover of a crash, or records after the last snapshot: the next open removes or
    /// completes it.
    Note,
    /// Damage in a file that can be derived again from the log.
    Derived,
    /// Damage in data that has no other copy.
    Damage,
}

/// Data that differs from what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Severity.
    pub severity: Severity,
    /// File, relative to the store directory.
    pub file: String,
    /// Byte offset in the file.
    pub position: u64,
    /// What is wrong.
    pub what: String,
}
