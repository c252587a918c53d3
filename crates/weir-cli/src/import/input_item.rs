//! The position of an item in the input, and why the item or the rest of the input cannot be read.

use std::io;

/// The position of an item in the input, and the problem that was found with it.
#[derive(Debug)]
pub(super) struct InputItem {
    /// Line, from 1.
    pub(super) line: u64,
    /// Column of its first byte, from 1.
    pub(super) column: u64,
    /// Why the item is unusable; `None` if it is usable.
    pub(super) problem: Option<String>,
}

/// Why reading failed.
#[derive(Debug)]
pub(super) enum Problem {
    /// An I/O error.
    Io(io::Error),
    /// An error in the document.
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
