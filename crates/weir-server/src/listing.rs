//! Lists of topics, a page at a time, without those that the caller may not
//! see.

use weir_store::TopicInfo;

use crate::security::Principal;
use crate::shared::Shared;

/// Names that are looked at together, so that the lock of the machine is free
/// in between.
const LOOK: usize = 1000;

/// Topics by name after `after` that begin so and that the principal may
/// read, at most `limit`. Waits for locks of the store: not for a reactor.
pub(crate) fn topics(
    shared: &Shared,
    principal: &Principal,
    after: &str,
    prefix: &str,
    limit: usize,
    dead_too: bool,
) -> Vec<TopicInfo> {
    let mut found = Vec::new();
    let mut after = after.to_owned();
    loop {
        let some = shared.store.topics_after(&after, prefix, LOOK, dead_too);
        let all = some.len() < LOOK;
        if let Some(last) = some.last() {
            last.name.clone_into(&mut after);
        }
        let readable = |info: &TopicInfo| shared.security.visible(principal, &info.name);
        found.extend(some.into_iter().filter(readable).take(limit - found.len()));
        if all || found.len() >= limit {
            return found;
        }
    }
}
