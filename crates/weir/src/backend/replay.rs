//! Reads the current values of the keys of a topic, and then the records after them.

use std::fmt;
use std::sync::Arc;

use weir_core::ConsequenceOffset;
use weir_store::{Page, Store, StoreError};

use super::{Backend, TopicReader};
use crate::blocking_pool::{self, Submitted};
use crate::remote;
use crate::reply::block_on;

impl Backend {
    /// Begins a replay of the current values. Also returns a reader of the records after them.
    pub(crate) async fn replay(&self, topic: &str) -> Result<(Replay, TopicReader), StoreError> {
        match self {
            Self::Local(store) => {
                let latest = store.latest(topic);
                let live = TopicReader::local(latest.live(store));
                let replay = Replay::Local(Arc::clone(store), LocalReplay::Idle(latest));
                Ok((replay, live))
            }
            Self::Remote(remote) => {
                let replay = remote::replay::Replay::new(Arc::clone(remote), topic).await?;
                let mut live = self.listen(topic);
                live.seek(ConsequenceOffset(replay.position().saturating_sub(1)));
                Ok((Replay::Remote(replay), live))
            }
        }
    }
}

/// Reads the current value of each key, in byte order of keys.
#[derive(Debug)]
pub(crate) enum Replay {
    Local(Arc<Store>, LocalReplay),
    Remote(remote::replay::Replay),
}

/// The state of a replay from a local store. If the future of a read is dropped, the next call
/// waits for that read.
pub(crate) enum LocalReplay {
    Idle(weir_store::Latest),
    Reading(Submitted<(weir_store::Latest, Result<Option<Page>, StoreError>)>),
    Panicked,
}

impl fmt::Debug for LocalReplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalReplay")
    }
}

/// Names the thread in the error that follows a panic.
const READS: &str = "a thread that reads";

impl LocalReplay {
    async fn next(&mut self, store: &Arc<Store>) -> Result<Option<Page>, StoreError> {
        if let Self::Idle(_) = self
            && let Self::Idle(latest) = std::mem::replace(self, Self::Panicked)
        {
            let store = Arc::clone(store);
            let work = move |mut latest: weir_store::Latest| {
                let page = latest.next(&store);
                (latest, page)
            };
            match blocking_pool::submit(latest, work) {
                Ok(submitted) => *self = Self::Reading(submitted),
                Err((latest, error)) => {
                    *self = Self::Idle(latest);
                    return Err(error);
                }
            }
        }
        let Self::Reading(submitted) = self else {
            return Err(StoreError::Panicked { thread: READS });
        };
        let Some((latest, page)) = submitted.await else {
            *self = Self::Panicked;
            return Err(StoreError::Panicked { thread: READS });
        };
        *self = Self::Idle(latest);
        page
    }
}

impl Replay {
    pub(crate) fn next(&mut self) -> Result<Option<Page>, StoreError> {
        match self {
            Self::Local(store, LocalReplay::Idle(latest)) => latest.next(store),
            Self::Local(store, latest) => block_on(latest.next(store)),
            Self::Remote(replay) => block_on(replay.next()),
        }
    }

    pub(crate) async fn next_async(&mut self) -> Result<Option<Page>, StoreError> {
        match self {
            Self::Local(store, latest) => latest.next(store).await,
            Self::Remote(replay) => replay.next().await,
        }
    }
}
