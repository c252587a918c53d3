//! One claim of a group at a time.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::permit::{Exclusive, ExclusivePermit};

/// Who claims next: one at a time of each group. A claim may wait long for its
/// verdict, so those of other groups never wait for it.
#[derive(Debug, Default)]
pub(crate) struct ClaimLocks(Mutex<BTreeMap<GroupKey, Arc<Exclusive>>>);

/// Topic and group.
type GroupKey = (String, String);

/// Held by a claim of a group.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a ClaimLocks,
    key: GroupKey,
    permit: Option<ExclusivePermit>,
}

impl ClaimLocks {
    /// Waits until nobody else claims from the group.
    pub(crate) fn take(&self, topic: &str, group: &str) -> Turn<'_> {
        let key = (topic.to_owned(), group.to_owned());
        let own = Arc::clone(self.0.lock().entry(key.clone()).or_default());
        Turn {
            turns: self,
            key,
            permit: Some(own.acquire()),
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.permit = None;
        let mut turns = self.turns.0.lock();
        // A waiting caller has a copy.
        if turns
            .get(&self.key)
            .is_some_and(|own| Arc::strong_count(own) == 1)
        {
            turns.remove(&self.key);
        }
    }
}
