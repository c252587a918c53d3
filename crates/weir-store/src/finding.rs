//! What a check of a store finds, and how bad it is.

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A leftover of a crash, or records after the last snapshot: the next open removes or
    /// completes it.
    Note,
    /// Damage in a file that can be derived again from the log.
    Derived,
    /// Damage in the only copy of something.
    Damage,
}

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// File, relative to the store directory.
    pub file: String,
    /// Byte in it.
    pub position: u64,
    /// What is wrong.
    pub what: String,
}
