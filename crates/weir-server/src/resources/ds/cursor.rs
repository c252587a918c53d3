//! Cursors of long-poll reads.

use std::hash::{BuildHasher as _, RandomState};

use crate::resources::streams::terms::{CURSOR_BEGIN, CURSOR_JITTER, CURSOR_SECONDS};
use crate::security::now_ms;

/// Returns the cursor that makes each cached URL distinct. It increases with time, and beyond the
/// cursor of the client.
pub(super) fn cursor(client_cursor: Option<u64>) -> u64 {
    let now = (now_ms() / 1000).saturating_sub(CURSOR_BEGIN) / CURSOR_SECONDS;
    match client_cursor {
        Some(cursor) if cursor >= now => {
            let jitter = RandomState::new().hash_one(cursor) % CURSOR_JITTER;
            cursor.saturating_add(1 + jitter)
        }
        _ => now,
    }
}
