//! Reads that never block, for callers such as the reactor threads of a server.
//!
//! A function returns its result at once if the data is in memory or in the page cache of the
//! system. Otherwise it returns `Poll::Pending`, and the caller calls the blocking function on a
//! thread that may block.
//!
//! Invariants:
//!
//! - A result equals the result of the blocking function.
//! - No call waits for a device.

use std::task::Poll;

use weir_core::ConsequenceOffset;

use crate::error::StoreError;
use crate::reader::{Page, TopicReader};
use crate::store::Store;

/// The present value of a key.
#[derive(Clone, Debug)]
pub enum Current {
    /// The first record of the page has the value of the key.
    Record(Page),
    /// The topic exists and has no value for the key.
    NoKey,
    /// The topic does not exist.
    NoTopic,
}

impl Store {
    /// Returns the result of [`get`](Self::get) and [`topic_state`](Self::topic_state), or
    /// `Poll::Pending` if this could block. Rare cases return `Poll::Pending` too, for example a
    /// concurrent compaction.
    pub fn try_get(&self, topic: &str, key: &[u8]) -> Poll<Current> {
        let found = {
            let Some(machine) = self.engine.machine.try_read() else {
                return Poll::Pending;
            };
            let Some(view) = machine.topic(topic) else {
                return Poll::Ready(Current::NoTopic);
            };
            let Some(keys) = view.keys else {
                return Poll::Ready(Current::NoTopic);
            };
            let Some(offset) = keys.get(key) else {
                return Poll::Ready(Current::NoKey);
            };
            (view.id, offset)
        };
        let (id, offset) = found;
        let Some(files) = self.engine.files(id) else {
            return Poll::Pending;
        };
        let before = ConsequenceOffset(offset.0.saturating_sub(1));
        match TopicReader::new(files, before).try_next_page() {
            Poll::Ready(Some(page)) if starts_at(&page, offset) => {
                Poll::Ready(Current::Record(page))
            }
            // A compaction may have moved the record since the lookup.
            _ => Poll::Pending,
        }
    }

    /// Returns the result of [`read`](Self::read), or `Poll::Pending` if this could block.
    pub fn try_read(
        &self,
        topic: &str,
        after: ConsequenceOffset,
    ) -> Poll<Result<TopicReader, StoreError>> {
        let Some(machine) = self.engine.machine.try_read() else {
            return Poll::Pending;
        };
        let id = machine.topic(topic).map(|view| view.id);
        drop(machine);
        let files = id.and_then(|id| self.engine.files(id));
        Poll::Ready(match files {
            Some(files) => Ok(TopicReader::new(files, after)),
            None => Err(StoreError::TopicUnknown {
                name: topic.to_owned(),
            }),
        })
    }
}

fn starts_at(page: &Page, offset: ConsequenceOffset) -> bool {
    let first = page.iter().next();
    first.is_some_and(|record| record.is_ok_and(|record| record.offset == offset))
}
