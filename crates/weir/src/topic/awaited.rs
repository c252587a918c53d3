//! Reads of a topic that are awaited.
//!
//! Invariant: the result is that of the call which blocks.

use std::future::Future;
use std::time::Duration;

use weir_core::ConsequenceOffset;
use weir_store::{KeyEntry, Page, ReadFrom, StoreError, TopicInfo};

use super::Topic;
use crate::backend::TopicReader;
use crate::latest::Latest;
use crate::reply::Reply;
use crate::value::Value;

impl Topic {
    /// A value by its page.
    fn page<F: Future<Output = Result<Option<Page>, StoreError>> + Send + 'static>(
        page: F,
    ) -> Reply<Option<Value>> {
        Reply::new(async move {
            match page.await? {
                Some(page) => Ok(Value::new(page)?),
                None => Ok(None),
            }
        })
    }

    /// As [`get`](Self::get), to be awaited.
    pub fn get_async(&self, key: impl AsRef<[u8]>) -> Reply<Option<Value>> {
        let (backend, name) = (self.backend.clone(), self.name.clone());
        let key: Box<[u8]> = key.as_ref().into();
        Self::page(async move { backend.get_async(name.as_str(), key).await })
    }

    /// As [`at`](Self::at), to be awaited.
    pub fn at_async(&self, offset: ConsequenceOffset) -> Reply<Option<Value>> {
        let (backend, name) = (self.backend.clone(), self.name.clone());
        Self::page(async move { backend.record_async(name.as_str(), offset).await })
    }

    /// As [`value`](Self::value), to be awaited.
    pub fn value_async(&self, entry: &KeyEntry) -> Reply<Option<Value>> {
        let (backend, name, entry) = (self.backend.clone(), self.name.clone(), entry.clone());
        Self::page(async move { backend.value_async(name.as_str(), entry).await })
    }

    /// As [`scan`](Self::scan), to be awaited.
    pub fn scan_async(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Reply<Vec<KeyEntry>> {
        let (backend, name) = (self.backend.clone(), self.name.clone());
        let prefix: Box<[u8]> = prefix.into();
        let after: Option<Box<[u8]>> = after.map(Into::into);
        Reply::new(async move {
            let keys = backend.scan_async(name.as_str(), &prefix, after.as_deref(), limit);
            Ok(keys.await?)
        })
    }

    /// As [`try_info`](Self::try_info), to be awaited.
    pub fn info_async(&self) -> Reply<Option<TopicInfo>> {
        let (backend, name) = (self.backend.clone(), self.name.clone());
        Reply::new(async move { Ok(backend.topic_async(name.as_str()).await?) })
    }

    /// As [`listener`](Self::listener), to be awaited; its records are awaited
    /// with [`TopicReader::next`].
    pub fn listener_async(&self, from: ReadFrom) -> Reply<TopicReader> {
        let reader = self.backend.listen(self.name.as_str());
        Reply::new(async move { reader.starting_async(from).await })
    }

    /// As [`latest`](Self::latest), to be awaited; its records are awaited with
    /// [`Latest::next_async`].
    pub fn latest_async(&self, patience: Duration) -> Reply<Latest> {
        let topic = self.clone();
        Reply::new(async move { Latest::new(&topic.backend, topic.name.as_str(), patience).await })
    }
}
