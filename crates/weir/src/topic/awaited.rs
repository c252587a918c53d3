//! Asynchronous reads of a topic.
//!
//! Invariant: the result is that of the blocking call.

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
    /// Converts a page into its value.
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

    /// Asynchronous [`get`](Self::get).
    pub fn get_async(&self, key: impl AsRef<[u8]>) -> Reply<Option<Value>> {
        let (backend, name) = (self.backend.clone(), self.name.clone());
        let key: Box<[u8]> = key.as_ref().into();
        Self::page(async move { backend.get_async(name.as_str(), key).await })
    }

    /// Asynchronous [`at`](Self::at).
    pub fn at_async(&self, offset: ConsequenceOffset) -> Reply<Option<Value>> {
        let (backend, name) = (self.backend.clone(), self.name.clone());
        Self::page(async move { backend.record_async(name.as_str(), offset).await })
    }

    /// Asynchronous [`value`](Self::value).
    pub fn value_async(&self, entry: &KeyEntry) -> Reply<Option<Value>> {
        let (backend, name, entry) = (self.backend.clone(), self.name.clone(), entry.clone());
        Self::page(async move { backend.value_async(name.as_str(), entry).await })
    }

    /// Asynchronous [`scan`](Self::scan).
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

    /// Asynchronous [`try_info`](Self::try_info).
    pub fn info_async(&self) -> Reply<Option<TopicInfo>> {
        let (backend, name) = (self.backend.clone(), self.name.clone());
        Reply::new(async move { Ok(backend.topic_async(name.as_str()).await?) })
    }

    /// Asynchronous [`listener`](Self::listener). Await the records with [`TopicReader::next`].
    pub fn listener_async(&self, from: ReadFrom) -> Reply<TopicReader> {
        let reader = self.backend.listen(self.name.as_str());
        Reply::new(async move { reader.starting_async(from).await })
    }

    /// Asynchronous [`latest`](Self::latest). Await the records with [`Latest::next_async`].
    pub fn latest_async(&self, patience: Duration) -> Reply<Latest> {
        let topic = self.clone();
        Reply::new(async move { Latest::new(&topic.backend, topic.name.as_str(), patience).await })
    }
}
