//! Asynchronous reads.
//!
//! The response of a server wakes the task. A local store returns values in memory immediately, and
//! reads values on disk on a thread of the pool.

use std::sync::Arc;
use std::task::Poll;

use weir_core::ConsequenceOffset;
use weir_store::{Current, KeyEntry, Page, StoreError, TopicInfo};

use super::Backend;
use crate::blocking_pool;

impl Backend {
    pub(crate) async fn get_async(
        &self,
        topic: &str,
        key: Box<[u8]>,
    ) -> Result<Option<Page>, StoreError> {
        let store = match self {
            Self::Remote(remote) => return remote.get(topic, &key).await,
            Self::Local(store) => store,
        };
        match store.try_get(topic, &key) {
            Poll::Ready(Current::Record(page)) => return Ok(Some(page)),
            Poll::Ready(Current::NoKey) => return Ok(None),
            // The blocking read below retries on disk and returns the errors.
            _ => {}
        }
        let (store, topic) = (Arc::clone(store), topic.to_owned());
        blocking_pool::run(move || store.get(&topic, &key)).await?
    }

    pub(crate) async fn record_async(
        &self,
        topic: &str,
        offset: ConsequenceOffset,
    ) -> Result<Option<Page>, StoreError> {
        if let Self::Remote(remote) = self {
            return remote.record(topic, offset).await;
        }
        let (backend, topic) = (self.clone(), topic.to_owned());
        blocking_pool::run(move || backend.record(&topic, offset)).await?
    }

    pub(crate) async fn value_async(
        &self,
        topic: &str,
        entry: KeyEntry,
    ) -> Result<Option<Page>, StoreError> {
        if let Self::Remote(remote) = self {
            return remote.record(topic, entry.offset).await;
        }
        let (backend, topic) = (self.clone(), topic.to_owned());
        blocking_pool::run(move || backend.value(&topic, &entry)).await?
    }

    pub(crate) async fn scan_async(
        &self,
        topic: &str,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<KeyEntry>, StoreError> {
        match self {
            // Reads from memory only.
            Self::Local(store) => store.scan(topic, prefix, after, limit),
            Self::Remote(remote) => remote.scan(topic, prefix, after, limit).await,
        }
    }

    pub(crate) async fn topic_async(&self, topic: &str) -> Result<Option<TopicInfo>, StoreError> {
        match self {
            Self::Local(store) => Ok(store.topic(topic)),
            Self::Remote(remote) => remote.topic(topic).await,
        }
    }
}
