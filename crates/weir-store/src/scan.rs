//! Keys in order: a sorted view of a topic's key index, made when somebody
//! scans and kept up to date by sorting only what is new.

use parking_lot::Mutex;
use std::sync::Arc;

use weir_core::{Compaction, ConsequenceOffset, IntentionOffset, TopicId};

use crate::disk::{DiskSpace, check_place};
use crate::error::StoreError;
use crate::key_order::KeyOrder;
use crate::reader::Page;
use crate::store::Store;

/// Most keys that one call returns.
pub const SCAN_KEYS_MAX: usize = 10_000;

/// A key and the offset of the record with its current value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    /// The key.
    pub key: Box<[u8]>,
    /// The record's offset.
    pub offset: ConsequenceOffset,
}

/// The least key that is greater than this one.
#[must_use]
pub fn key_after(key: &[u8]) -> Vec<u8> {
    [key, b"\0"].concat()
}

/// What a topic is at the moment, without its sizes; cheap at any size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Intention offset of its CREATE, when it lives.
    pub incarnation: Option<IntentionOffset>,
    /// Offset of the record of its CREATE, when it lives; those before it are
    /// of earlier lives.
    pub created: Option<ConsequenceOffset>,
    /// Offset of its newest record.
    pub last: ConsequenceOffset,
    /// What compaction may remove.
    pub compaction: Compaction,
}

impl Store {
    /// What a topic is now; `None` when it never was created.
    #[must_use]
    pub fn standing(&self, topic: &str) -> Option<Standing> {
        let machine = self.engine.machine.read();
        let view = machine.topic(topic)?;
        Some(Standing {
            incarnation: view.incarnation,
            created: view.created,
            last: view.last,
            compaction: view
                .options
                .map(|options| options.compaction)
                .unwrap_or_default(),
        })
    }

    /// Why nothing is written any more: the first write or sync that failed.
    #[must_use]
    pub fn poison_cause(&self) -> Option<Arc<StoreError>> {
        self.engine.poison.get().map(Arc::clone)
    }

    /// Why the last checkpoint failed; `None` when it succeeded. Until one
    /// succeeds the log is not purged.
    #[must_use]
    pub fn checkpoint_failure(&self) -> Option<String> {
        self.engine.checkpoint_failure.lock().clone()
    }

    /// What an operator should know: why nothing is written any more, or why
    /// the last checkpoint failed. `None` when all is well.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        match self.poison_cause() {
            Some(cause) => Some(format!("the store takes no more writes: {cause}")),
            None => self
                .checkpoint_failure()
                .map(|text| format!("the last checkpoint failed: {text}")),
        }
    }

    /// Kind of the file system, if what is synced on it may not survive a power
    /// cut: one in memory, or one of the network.
    #[must_use]
    pub fn volatile(&self) -> Option<&'static str> {
        self.disk.volatile()
    }

    /// The file system of the store and its space; `None` for a simulated one.
    #[must_use]
    pub fn space(&self) -> Option<DiskSpace> {
        self.disk.space()
    }

    /// The store's time: what stamps the next intention, and what leases and
    /// `due_ms` of claims are counted by. Milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.engine.now_ms()
    }

    /// Compares the directory with the one that was opened. Every batch of a
    /// level that syncs does, and every new segment; this is for stores without
    /// writes.
    ///
    /// # Errors
    /// `Poisoned` when the directory was removed or replaced: a write would not
    /// be found by the next open.
    pub fn check_directory(&self) -> Result<(), StoreError> {
        let checked = check_place(&*self.disk);
        checked.map_err(|error| self.engine.poison(error))?;
        self.engine.writable()
    }

    /// Whether a write or sync has failed, so that nothing is written any more.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.engine.is_poisoned()
    }

    /// Keys that start with `prefix` and are greater than `after`, in ascending
    /// byte order, at most `limit` (and at most [`SCAN_KEYS_MAX`]). The first
    /// scan of a topic sorts all its keys; later ones sort what is new.
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

    /// As `scan`, of keys that are not below `from`.
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
        let id = self.engine.machine.read().topic(topic).map(|view| view.id);
        let id = id.ok_or_else(|| StoreError::TopicUnknown {
            name: topic.to_owned(),
        })?;
        let order = self.order(id);
        let mut order = order.lock();
        let machine = loop {
            self.catch_up(id, &mut order);
            let machine = self.engine.machine.read();
            let view = machine.topic_by_id(id);
            let now = view.and_then(|v| Some((v.incarnation?.0, v.keys?.generation())));
            // Slots may have been numbered anew between the two locks.
            let is_known = |now| {
                now == (order.incarnation, order.generation)
                    && self.engine.has_installed(order.installs)
            };
            if now.is_none_or(is_known) {
                break machine;
            }
        };
        let Some(keys) = machine.topic_by_id(id).and_then(|view| view.keys) else {
            return Ok(Vec::new());
        };
        let start = order
            .keys
            .partition_point(|(key, _)| **key < *prefix || **key < *from);
        let mut found = Vec::new();
        for (key, slot) in order.keys.get(start..).unwrap_or(&[]) {
            if !key.starts_with(prefix) || found.len() >= limit.min(SCAN_KEYS_MAX) {
                break;
            }
            if let Some((_, Some(offset))) = keys.slot(*slot) {
                found.push(KeyEntry {
                    key: key.clone(),
                    offset,
                });
            }
        }
        Ok(found)
    }

    /// Offset of the record that holds the key's current value, without reading
    /// it; `None` for a key or topic that is not there.
    #[must_use]
    pub fn key_offset(&self, topic: &str, key: &[u8]) -> Option<ConsequenceOffset> {
        let machine = self.engine.machine.read();
        machine.topic(topic)?.keys?.get(key)
    }

    /// The page whose first record holds the value of a scanned key; `None`
    /// when the key was changed or removed since, or retention has removed the
    /// record.
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

    fn order(&self, id: TopicId) -> Arc<Mutex<KeyOrder>> {
        let mut orders = self.orders.lock();
        if orders.len() <= id.index() {
            orders.resize(id.index() + 1, None);
        }
        match orders.get_mut(id.index()) {
            Some(slot) => Arc::clone(slot.get_or_insert_default()),
            None => Arc::default(),
        }
    }

    /// Copies the keys that are new under the lock of the machine, and sorts
    /// them without it.
    fn catch_up(&self, id: TopicId, order: &mut KeyOrder) {
        let mut fresh = Vec::new();
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
                    fresh.push((Box::from(key), slot));
                }
            }
            order.slots = keys.slots();
        }
        if fresh.is_empty() {
            return;
        }
        fresh.sort_unstable();
        let old = std::mem::take(&mut order.keys);
        order.keys.reserve(old.len() + fresh.len());
        let mut old = old.into_iter().peekable();
        for key in fresh {
            while let Some(before) = old.next_if(|before| before.0 < key.0) {
                order.keys.push(before);
            }
            order.keys.push(key);
        }
        order.keys.extend(old);
    }
}
