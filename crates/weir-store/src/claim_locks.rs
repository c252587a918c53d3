//! Serializes the claims of each group.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::permit::{Exclusive, ExclusivePermit};

/// One lock for each group that is being claimed from. A claim may wait long for its verdict;
/// claims of other groups do not wait for it.
#[derive(Debug, Default)]
pub(crate) struct ClaimLocks(Mutex<BTreeMap<GroupKey, Arc<Exclusive>>>);

/// Topic and group.
type GroupKey = (String, String);

/// The lock of a group, held during a claim.
#[derive(Debug)]
pub(crate) struct ClaimGuard<'a> {
    locks: &'a ClaimLocks,
    key: GroupKey,
    permit: Option<ExclusivePermit>,
}

impl ClaimLocks {
    /// Blocks until no other caller claims from the group.
    pub(crate) fn lock(&self, topic: &str, group: &str) -> ClaimGuard<'_> {
        let key = (topic.to_owned(), group.to_owned());
        let own = Arc::clone(self.0.lock().entry(key.clone()).or_default());
        ClaimGuard {
            locks: self,
            key,
            permit: Some(own.acquire()),
        }
    }
}

impl Drop for ClaimGuard<'_> {
    fn drop(&mut self) {
        self.permit = None;
        let mut locks = self.locks.0.lock();
        // The count is above 1 while another caller waits, because that caller has a clone.
        if locks
            .get(&self.key)
            .is_some_and(|own| Arc::strong_count(own) == 1)
        {
            locks.remove(&self.key);
        }
    }
}
