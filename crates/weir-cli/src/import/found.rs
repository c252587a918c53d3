//! An item of the input: where it stands, and why it or the rest cannot be read.

use std::io;

/// Where an item stands, and what is wrong with it already.
#[derive(Debug)]
pub(super) struct Found {
    /// Line, from 1.
    pub(super) line: u64,
    /// Column of its first byte, from 1.
    pub(super) column: u64,
    /// Why it cannot be used.
    pub(super) problem: Option<String>,
}

/// Why reading cannot go on.
#[derive(Debug)]
pub(super) enum Problem {
    /// The system.
    Io(io::Error),
    /// The document.
    Wrong {
        /// Line, from 1.
        line: u64,
        /// Column, from 1.
        column: u64,
        /// What is wrong.
        why: String,
    },
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
