//! Scans of keys in order, over a sorted view of the key index of a topic. The first scan creates
//! the view. Later scans sort only the new keys. The views of destroyed topics are dropped when
//! views of other topics are created.

use parking_lot::Mutex;
use std::sync::Arc;

use weir_core::limits::KEY_BYTES_MAX;
use weir_core::{Compaction, ConsequenceOffset, IntentionOffset, TopicId};

use crate::disk::{DiskSpace, check_directory};
use crate::error::StoreError;
use crate::key_order::KeyOrder;
use crate::reader::Page;
use crate::store::Store;

/// Maximum number of keys that one call returns.
pub const SCAN_KEYS_MAX: usize = 10_000;
/// More bytes than so many keys can have.
const SCAN_BYTES_MAX: usize = SCAN_KEYS_MAX * (KEY_BYTES_MAX + 1);

/// A key and the offset of the record with its current value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    /// The key.
    pub key: Box<[u8]>,
    /// The offset of the record.
    pub offset: ConsequenceOffset,
}

/// Returns the smallest key that is greater than `key`.
#[must_use]
pub fn key_after(key: &[u8]) -> Vec<u8> {
    [key, b"\0"].concat()
}

/// The present state of a topic, without its sizes. The cost of a request does not depend on the
/// size of the topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicState {
    /// Intention offset of its CREATE; `None` if the topic is destroyed.
    pub incarnation: Option<IntentionOffset>,
    /// Offset of the record of its CREATE; `None` if the topic is destroyed. Earlier records belong
    /// to earlier topics with the same name.
    pub created: Option<ConsequenceOffset>,
    /// Offset of its newest record.
    pub last: ConsequenceOffset,
    /// The records that compaction may remove.
    pub compaction: Compaction,
}

impl Store {
    /// Returns the present state of a topic; `None` if the topic was never created.
    #[must_use]
    pub fn topic_state(&self, topic: &str) -> Option<TopicState> {
        let machine = self.engine.machine.read();
        let view = machine.topic(topic)?;
        Some(TopicState {
            incarnation: view.incarnation,
            created: view.created,
            last: view.last,
            compaction: view
                .options
                .map(|options| options.compaction)
                .unwrap_or_default(),
        })
    }

    /// Returns the error of the first failed write or sync, after which the store rejects writes.
    #[must_use]
    pub fn poison_cause(&self) -> Option<Arc<StoreError>> {
        self.engine.poison.get().map(Arc::clone)
    }

    /// Returns the error of the last checkpoint; `None` if it succeeded. The log is not purged
    /// until a checkpoint succeeds.
    #[must_use]
    pub fn checkpoint_failure(&self) -> Option<String> {
        self.engine.checkpoint_failure.lock().clone()
    }

    /// Returns a text for the operator: why the store rejects writes, or why the last checkpoint
    /// failed. `None` without such a failure.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        match self.poison_cause() {
            Some(cause) => Some(format!("the store accepts no more writes: {cause}")),
            None => self
                .checkpoint_failure()
                .map(|text| format!("the last checkpoint failed: {text}")),
        }
    }

    /// Returns the kind of the file system if synced data may not survive a power cut: a file
    /// system in memory or on the network. Otherwise `None`.
    #[must_use]
    pub fn volatile(&self) -> Option<&'static str> {
        self.disk.volatile()
    }

    /// Returns the file system of the store and its space; `None` for a simulated one.
    #[must_use]
    pub fn space(&self) -> Option<DiskSpace> {
        self.disk.space()
    }

    /// Returns the time of the store, in milliseconds since 1970-01-01 UTC. This time stamps the
    /// next intention. Leases and `due_ms` of claims use it too.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.engine.now_ms()
    }

    /// Checks that the directory is still the one that was opened. Each new segment, and at levels
    /// that sync each batch, includes this check. So only stores without writes need a call.
    ///
    /// # Errors
    /// `Poisoned` if the directory was removed or replaced: the next open would not find later
    /// writes.
    pub fn check_directory(&self) -> Result<(), StoreError> {
        let checked = check_directory(&*self.disk);
        checked.map_err(|error| self.engine.poison(error))?;
        self.engine.writable()
    }

    /// Whether a write or sync has failed, so that the store rejects writes.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.engine.is_poisoned()
    }

    /// Returns the keys that start with `prefix` and are greater than `after`, in ascending byte
    /// order. Returns at most `limit` keys, and at most [`SCAN_KEYS_MAX`]. The first scan of a
    /// topic sorts all its keys; later scans sort the new keys.
    pub fn scan(
        &self,
        topic: &str,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<KeyEntry>, StoreError> {
        let from = after.map(key_after).unwrap_or_default();
        self.scan_from(topic, prefix, &from, limit)
    }

    /// As `scan`, but starts at the first key that is not below `from`.
    ///
    /// # Errors
    /// As for [`scan`](Self::scan).
    pub fn scan_from(
        &self,
        topic: &str,
        prefix: &[u8],
        from: &[u8],
        limit: usize,
    ) -> Result<Vec<KeyEntry>, StoreError> {
        let (keys, _) = self.scan_page(topic, prefix, from, limit, SCAN_BYTES_MAX)?;
        Ok(keys)
    }

    /// As `scan_from`, but the list ends with the key that reaches `bytes_max` bytes of keys. Also
    /// returns whether there are more keys.
    ///
    /// # Errors
    /// As for [`scan`](Self::scan).
    pub fn scan_page(
        &self,
        topic: &str,
        prefix: &[u8],
        from: &[u8],
        limit: usize,
        bytes_max: usize,
    ) -> Result<(Vec<KeyEntry>, bool), StoreError> {
        let id = self.engine.machine.read().topic(topic).map(|view| view.id);
        let id = id.ok_or_else(|| StoreError::TopicUnknown {
            name: topic.to_owned(),
        })?;
        let order = self.order(id);
        let mut order = order.lock();
        let machine = loop {
            self.update_order(id, &mut order);
            let machine = self.engine.machine.read();
            let view = machine.topic_by_id(id);
            let now = view.and_then(|v| Some((v.incarnation?.0, v.keys?.generation())));
            // The slots may have been renumbered while the machine was not locked.
            let is_current = |now| {
                now == (order.incarnation, order.generation)
                    && self.engine.has_installed(order.installs)
            };
            if now.is_none_or(is_current) {
                break machine;
            }
        };
        let Some(keys) = machine.topic_by_id(id).and_then(|view| view.keys) else {
            return Ok((Vec::new(), false));
        };
        let start = order
            .keys
            .partition_point(|(key, _)| **key < *prefix || **key < *from);
        let limit = limit.min(SCAN_KEYS_MAX);
        let (mut found, mut bytes) = (Vec::new(), 0);
        for (key, slot) in order.keys.iter().skip(start) {
            if !key.starts_with(prefix) {
                break;
            }
            let Some((_, Some(offset))) = keys.slot(*slot) else {
                continue;
            };
            if found.len() >= limit || bytes >= bytes_max {
                return Ok((found, true));
            }
            bytes += key.len();
            found.push(KeyEntry {
                key: key.clone(),
                offset,
            });
        }
        Ok((found, false))
    }

    /// Returns the offset of the record with the current value of a key, without reading the
    /// record. `None` if the key or the topic does not exist.
    #[must_use]
    pub fn key_offset(&self, topic: &str, key: &[u8]) -> Option<ConsequenceOffset> {
        let machine = self.engine.machine.read();
        machine.topic(topic)?.keys?.get(key)
    }

    /// Returns the page whose first record has the value of a scanned key. `None` if the record no
    /// longer exists: after a change or removal of the key, compaction or retention may remove it.
    pub fn value(&self, topic: &str, entry: &KeyEntry) -> Result<Option<Page>, StoreError> {
        let id = self.engine.machine.read().topic(topic).map(|view| view.id);
        let id = id.ok_or_else(|| StoreError::TopicUnknown {
            name: topic.to_owned(),
        })?;
        match self.record(id, entry.offset) {
            Err(StoreError::RecordsGone { .. }) => Ok(None),
            found => found,
        }
    }

    /// As [`get`](Self::get), but returns `None` if retention has removed the record.
    ///
    /// # Errors
    /// As for [`get`](Self::get), without `RecordsGone`.
    pub fn retained_value(&self, topic: &str, key: &[u8]) -> Result<Option<Page>, StoreError> {
        match self.get(topic, key) {
            Err(StoreError::RecordsGone { .. }) => Ok(None),
            found => found,
        }
    }

    fn order(&self, id: TopicId) -> Arc<Mutex<KeyOrder>> {
        let exists = |id| {
            let machine = self.engine.machine.read();
            let view = machine.topic_by_id(id);
            view.is_some_and(|view| view.incarnation.is_some())
        };
        self.orders.lock().view(id, exists)
    }

    /// Copies the new keys while the machine is locked, and sorts them after the lock is released.
    fn update_order(&self, id: TopicId, order: &mut KeyOrder) {
        let mut new_keys = Vec::new();
        {
            let machine = self.engine.machine.read();
            let Some(view) = machine.topic_by_id(id) else {
                return;
            };
            let (Some(keys), Some(incarnation)) = (view.keys, view.incarnation) else {
                return;
            };
            let installs = self.engine.counters.installs.get();
            let known = (order.installs, order.incarnation, order.generation);
            if known != (installs, incarnation.0, keys.generation()) {
                *order = KeyOrder {
                    installs,
                    incarnation: incarnation.0,
                    generation: keys.generation(),
                    ..KeyOrder::default()
                };
            }
            for slot in order.slots..keys.slots() {
                if let Some((key, _)) = keys.slot(slot) {
                    new_keys.push((Box::from(key), slot));
                }
            }
            order.slots = keys.slots();
        }
        if new_keys.is_empty() {
            return;
        }
        new_keys.sort_unstable();
        let old = std::mem::take(&mut order.keys);
        order.keys.reserve(old.len() + new_keys.len());
        let mut old = old.into_iter().peekable();
        for key in new_keys {
            while let Some(before) = old.next_if(|before| before.0 < key.0) {
                order.keys.push(before);
            }
            order.keys.push(key);
        }
        order.keys.extend(old);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use weir_core::{Intention, Operation, TopicOptions};

    use super::*;
    use crate::options::{Durability, OpenOptions};

    fn open(directory: &std::path::Path) -> Store {
        let options = OpenOptions {
            durability: Durability::Memory,
            ..OpenOptions::default()
        };
        Store::open(directory, &options).unwrap()
    }

    #[test]
    fn a_page_of_keys_ends_after_its_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        let (options, value) = (&TopicOptions::default(), &b"v"[..]);
        let puts = ["aaa", "bbb", "ccc", "ddd"].map(|key| Operation::Put {
            key: key.as_bytes(),
            value,
        });
        let delete = Operation::Delete { key: b"ddd" };
        let all = [Operation::Create { options }].into_iter().chain(puts);
        let all: Vec<_> = (all.chain([delete]))
            .map(|operation| Intention::new("t", operation))
            .collect();
        store.propose(&all).unwrap().wait().unwrap();
        let page = |after: Option<&str>, limit, bytes_max| {
            let from = after.map(|after| key_after(after.as_bytes()));
            let from = from.unwrap_or_default();
            let page = store.scan_page("t", b"", &from, limit, bytes_max);
            let (keys, more) = page.unwrap();
            let keys = keys.iter().map(|entry| entry.key.to_vec());
            (String::from_utf8(keys.flatten().collect()).unwrap(), more)
        };
        assert_eq!(page(None, 10, 3), ("aaa".to_owned(), true));
        assert_eq!(page(None, 10, 4), ("aaabbb".to_owned(), true));
        assert_eq!(page(Some("aaa"), 10, 4), ("bbbccc".to_owned(), false));
        assert_eq!(page(Some("aaa"), 1, 100), ("bbb".to_owned(), true));
        assert_eq!(page(Some("ccc"), 10, 4), (String::new(), false));
        assert_eq!(page(None, 0, 100), (String::new(), true));
    }

    #[test]
    fn views_of_destroyed_topics_are_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        let options = &TopicOptions::default();
        let (key, value) = (&b"k"[..], &b"v"[..]);
        let create = |topic: &str| {
            let call = [Operation::Create { options }, Operation::Put { key, value }]
                .map(|operation| Intention::new(topic, operation));
            store.propose(&call).unwrap().wait().unwrap();
        };
        let scan = |topic: &str| store.scan(topic, b"", None, 10).unwrap().len();
        let views = || store.orders.lock().views.len();
        let remaining: Vec<String> = (0..20).map(|n| format!("remaining-{n}")).collect();
        for topic in &remaining {
            create(topic);
            assert_eq!(scan(topic), 1);
        }
        assert_eq!(views(), 20);
        for number in 0..200 {
            let topic = format!("destroyed-{number}");
            create(&topic);
            assert_eq!(scan(&topic), 1);
            let destroy = Intention::new(&topic, Operation::Destroy);
            store.propose(&[destroy]).unwrap().wait().unwrap();
            assert!(views() <= 40, "{}", views());
        }
        assert!(remaining.iter().all(|topic| scan(topic) == 1));
    }
}
