//! Cursors of long-poll reads.

use std::hash::{BuildHasher as _, RandomState};

use crate::resources::streams::terms::{CURSOR_BEGIN, CURSOR_JITTER, CURSOR_SECONDS};
use crate::security::now_ms;

/// Returns the cursor that makes each cached URL distinct. It increases with time, and beyond the
/// cursor of the client.
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
