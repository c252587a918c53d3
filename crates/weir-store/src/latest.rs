//! Reads the current value of each key once, then new records.

use std::collections::VecDeque;

use weir_core::ConsequenceOffset;

use crate::error::StoreError;
use crate::reader::{Page, TopicReader};
use crate::scan::{KeyEntry, key_after};
use crate::store::Store;

/// Number of keys that are looked up together.
const KEYS: usize = 1000;

/// The values of keys, in byte order of keys, each key once. Uses memory for one list of keys and
/// one page.
///
/// [`Store::latest`] returns the value that each key had when the read started. A key that changes
/// meanwhile is omitted; its new value is among the new records. [`Store::current`] returns the
/// value that each key has when it is read. A key that has a value during the whole read is not
/// omitted, unless retention has removed its record.
#[derive(Debug)]
pub struct Latest {
    topic: String,
    /// Offset of the newest record when the read started.
    until: ConsequenceOffset,
    /// Keys below this key were looked up.
    from: Vec<u8>,
    found: VecDeque<KeyEntry>,
    ended: bool,
    /// Whether keys that changed during the read are included.
    current: bool,
}

impl Store {
    /// Starts to read the current values. The topic may be created later.
    #[must_use]
    pub fn latest(&self, topic: &str) -> Latest {
        let files = self.engine.files_by_name(topic);
        Latest {
            topic: topic.to_owned(),
            until: files.map_or(ConsequenceOffset::ZERO, |files| files.last()),
            from: Vec::new(),
            found: VecDeque::new(),
            ended: false,
            current: false,
        }
    }

    /// Starts to read the value that each key has when it is read, from key `from` (empty: the
    /// first key). For callers that do not follow the new records.
    #[must_use]
    pub fn current(&self, topic: &str, from: &[u8]) -> Latest {
        Latest {
            current: true,
            from: from.to_vec(),
            ..self.latest(topic)
        }
    }
}

impl Latest {
    /// Returns a page that starts with the record of the next key; `None` after the last key.
    pub fn next(&mut self, store: &Store) -> Result<Option<Page>, StoreError> {
        if self.until == ConsequenceOffset::ZERO {
            return Ok(None);
        }
        loop {
            let Some(entry) = self.found.pop_front() else {
                if self.ended {
                    return Ok(None);
                }
                let keys = store.scan_from(&self.topic, b"", &self.from, KEYS)?;
                self.ended = keys.len() < KEYS;
                if let Some(last) = keys.last() {
                    self.from = key_after(&last.key);
                }
                self.found = keys.into();
                continue;
            };
            if entry.offset > self.until && !self.current {
                continue;
            }
            // The list of keys may be older than the value.
            let page = if self.current {
                store.retained_value(&self.topic, &entry.key)?
            } else {
                store.value(&self.topic, &entry)?
            };
            if page.is_some() {
                return Ok(page);
            }
        }
    }

    /// Follows the topic with the records after the start of the read.
    #[must_use]
    pub fn live(&self, store: &Store) -> TopicReader {
        store.listen(&self.topic, self.until).or_earliest()
    }

    /// Offset of the newest record when the read started.
    #[must_use]
    pub fn until(&self) -> ConsequenceOffset {
        self.until
    }
}
