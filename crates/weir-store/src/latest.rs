//! Reading what holds now before what comes: each key once, then new records.

use std::collections::VecDeque;

use weir_core::ConsequenceOffset;

use crate::error::StoreError;
use crate::reader::{Page, TopicReader};
use crate::scan::{KeyEntry, key_after};
use crate::store::Store;

/// Keys that are looked up together.
const KEYS: usize = 1000;

/// The values of keys, in byte order of keys, each once. Costs one list of keys
/// and one page.
///
/// Of [`Store::latest`] it is the value that each key had when the reading
/// began; a key that changes meanwhile is left out and comes with the new
/// records. Of [`Store::current`] it is the value that each key has when its
/// turn comes, and no key is left out that has one all the time.
#[derive(Debug)]
pub struct Latest {
    topic: String,
    /// Newest record when it began.
    until: ConsequenceOffset,
    /// Keys below it were looked up.
    from: Vec<u8>,
    found: VecDeque<KeyEntry>,
    ended: bool,
    /// Whether keys that changed are part of it.
    current: bool,
}

impl Store {
    /// Begins to read what holds now. The topic need not be there yet.
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

    /// Begins to read what each key has when it is read, from a key on (empty: the
    /// first one), for who reads nothing after it.
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
    /// The next key's record, the first of the page; `None` after the last.
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
            // The list may be older than the value.
            let page = if self.current {
                store.get(&self.topic, &entry.key)?
            } else {
                store.value(&self.topic, &entry)?
            };
            if page.is_some() {
                return Ok(page);
            }
        }
    }

    /// Reads on with the records that came since it began.
    #[must_use]
    pub fn live(&self, store: &Store) -> TopicReader {
        store.listen(&self.topic, self.until).or_earliest()
    }

    /// The newest record when it began.
    #[must_use]
    pub fn until(&self) -> ConsequenceOffset {
        self.until
    }
}
