//! Pages of the list of topics, without topics that the caller may not see.

use weir_store::TopicInfo;

use crate::security::Principal;
use crate::shared::Shared;

/// Names that are read under one lock of the machine. The lock is released between two batches.
const NAMES_PER_LOCK: usize = 1000;

/// Returns at most `limit` topics by name, after `after`, that start with `prefix` and are visible
/// to the principal. Waits for locks of the store, so it must not run on a reactor thread.
pub(crate) fn topics(
    shared: &Shared,
    principal: &Principal,
    after: &str,
    prefix: &str,
    limit: usize,
    include_destroyed: bool,
) -> Vec<TopicInfo> {
    let mut found = Vec::new();
    let mut after = after.to_owned();
    loop {
        let batch = shared
            .store
            .topics_after(&after, prefix, NAMES_PER_LOCK, include_destroyed);
        let is_last = batch.len() < NAMES_PER_LOCK;
        if let Some(last) = batch.last() {
            last.name.clone_into(&mut after);
        }
        let readable = |info: &TopicInfo| shared.security.can_read(principal, &info.name);
        found.extend(batch.into_iter().filter(readable).take(limit - found.len()));
        if is_last || found.len() >= limit {
            return found;
        }
    }
}
