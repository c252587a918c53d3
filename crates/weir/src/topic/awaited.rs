//! Reads of a topic that are awaited.
//!
//! A server's answer wakes the task. A store of this process answers at once
//! what is in memory; what has to come from the disk is read by one of a few
//! threads that this crate keeps for that. What must never happen here: an answer
//! that differs from that of the call that waits.

use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use weir_core::ConsequenceOffset;
use weir_store::{Current, KeyEntry, Page, Store, StoreError, TopicInfo};

use super::{ReadFrom, Topic, start};
use crate::backend::Backend;
use crate::blocking_pool;
use crate::error::WeirError;
use crate::latest::Latest;
use crate::reader::TopicReader;
use crate::reply::Reply;
use crate::value::Value;

impl Topic {
    /// A value by its page, from a disk of this process or from a server.
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
        Self::page(async move {
            let store = match backend {
                Backend::Remote(remote) => return remote.get(name.as_str(), &key).await,
                Backend::Local(store) => store,
            };
            match store.get_now(name.as_str(), &key) {
                Poll::Ready(Current::Record(page)) => Ok(Some(page)),
                Poll::Ready(Current::NoKey) => Ok(None),
                // Everything unusual is told by the call that waits.
                _ => near(&store, move |store| store.get(name.as_str(), &key)).await,
            }
        })
    }

    /// As [`at`](Self::at), to be awaited.
    pub fn at_async(&self, offset: ConsequenceOffset) -> Reply<Option<Value>> {
        let (backend, name) = (self.backend.clone(), self.name.clone());
        Self::page(async move {
            if let Backend::Remote(remote) = &backend {
                return remote.record(name.as_str(), offset).await;
            }
            blocking_pool::run(move || backend.record(name.as_str(), offset)).await?
        })
    }

    /// As [`value`](Self::value), to be awaited.
    pub fn value_async(&self, entry: &KeyEntry) -> Reply<Option<Value>> {
        let (backend, name, entry) = (self.backend.clone(), self.name.clone(), entry.clone());
        Self::page(async move {
            if let Backend::Remote(remote) = &backend {
                return remote.record(name.as_str(), entry.offset).await;
            }
            blocking_pool::run(move || backend.value(name.as_str(), &entry)).await?
        })
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
            let (prefix, after) = (&*prefix, after.as_deref());
            match &backend {
                // From memory.
                Backend::Local(store) => Ok(store.scan(name.as_str(), prefix, after, limit)?),
                Backend::Remote(remote) => {
                    Ok(remote.scan(name.as_str(), prefix, after, limit).await?)
                }
            }
        })
    }

    /// As [`try_info`](Self::try_info), to be awaited.
    pub fn info_async(&self) -> Reply<Option<TopicInfo>> {
        let (backend, name) = (self.backend.clone(), self.name.clone());
        Reply::new(async move {
            match &backend {
                Backend::Local(store) => Ok(store.topic(name.as_str())),
                Backend::Remote(remote) => Ok(remote.topic(name.as_str()).await?),
            }
        })
    }

    /// As [`listener`](Self::listener), to be awaited; its records are awaited
    /// with [`TopicReader::next`].
    pub fn listener_async(&self, from: ReadFrom) -> Reply<TopicReader> {
        let (backend, name) = (self.backend.clone(), self.name.clone());
        Reply::new(async move {
            let reader = backend.listen(name.as_str());
            match backend {
                Backend::Remote(_) => reader.started(from).await,
                Backend::Local(_) => blocking_pool::run(move || start(reader, from)).await?,
            }
        })
    }

    /// As [`latest`](Self::latest), to be awaited; its records are awaited with
    /// [`Latest::next_async`].
    pub fn latest_async(&self, patience: Duration) -> Reply<Latest> {
        let topic = self.clone();
        Reply::new(async move { Latest::new(&topic.backend, topic.name.as_str(), patience).await })
    }
}

/// Reads where a thread may wait for the disk.
async fn near<T: Send + 'static>(
    store: &Arc<Store>,
    read: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let store = Arc::clone(store);
    blocking_pool::run(move || read(&store)).await?
}

impl TopicReader {
    /// Moves to where reading starts.
    async fn started(mut self, from: ReadFrom) -> Result<Self, WeirError> {
        match from {
            ReadFrom::Start => {}
            ReadFrom::After(offset) => self.seek(offset),
            ReadFrom::End => self.seek_far(weir_protocol::After::Last(0)).await?,
            ReadFrom::Last(n) => self.seek_far(weir_protocol::After::Last(n)).await?,
            ReadFrom::Time(ms) => self.seek_far(weir_protocol::After::Time(ms)).await?,
        }
        Ok(self)
    }
}
