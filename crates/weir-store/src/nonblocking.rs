//! Reads that do not wait: for callers that must not stop, such as the threads
//! of a server's reactor.
//!
//! Each function either has the answer at once (it is in memory, or in the page
//! cache of the system) or reports that it would have to wait. The caller then
//! uses the blocking function, on a thread that may wait. Invariants: an answer
//! equals that of the blocking function; no call waits for a device.

use std::task::Poll;

use weir_core::ConsequenceOffset;

use crate::error::StoreError;
use crate::reader::{Page, TopicReader};
use crate::store::Store;

/// What a key stands for.
#[derive(Clone, Debug)]
pub enum Current {
    /// The record with its value is the first one of the page.
    Record(Page),
    /// The topic lives and holds no value for it.
    NoKey,
    /// The topic does not live.
    NoTopic,
}

impl Store {
    /// What [`get`](Self::get) and [`standing`](Self::standing) would say, if
    /// it can be had without waiting. Everything that is unusual waits.
    pub fn get_now(&self, topic: &str, key: &[u8]) -> Poll<Current> {
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
        match TopicReader::new(files, before).next_page_now() {
            Poll::Ready(Some(page)) if starts_at(&page, offset) => {
                Poll::Ready(Current::Record(page))
            }
            // Compaction may have moved it in between.
            _ => Poll::Pending,
        }
    }

    /// What [`read`](Self::read) would say, if it can be had without waiting.
    pub fn read_now(
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
