//! Cursors of reads that wait.

use std::hash::{BuildHasher as _, RandomState};

use crate::resources::streams::terms::{CURSOR_BEGIN, CURSOR_JITTER, CURSOR_SECONDS};
use crate::security::now_ms;

/// The number that keeps caches apart: it moves on with time, and beyond the
/// one that the client had.
pub(super) fn cursor(given: Option<u64>) -> u64 {
    let now = (now_ms() / 1000).saturating_sub(CURSOR_BEGIN) / CURSOR_SECONDS;
    match given {
        Some(given) if given >= now => {
            let jitter = RandomState::new().hash_one(given) % CURSOR_JITTER;
            given.saturating_add(1 + jitter)
        }
        _ => now,
    }
}
