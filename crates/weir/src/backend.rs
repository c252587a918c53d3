//! Where the store is: in this process, or behind a server.

use std::sync::Arc;
use std::time::Instant;

use weir_core::{ConsequenceOffset, ErrorCode, Intention, IntentionOffset};
use weir_store::{KeyEntry, Page, Proposal, Store, StoreError, TopicInfo};

use crate::reader::TopicReader;
use crate::remote::Remote;
use crate::remote::listener::Listener;
use crate::reply::block_on;

/// The one place where local and remote are told apart.
#[derive(Clone, Debug)]
pub(crate) enum Backend {
    Local(Arc<Store>),
    Remote(Arc<Remote>),
}

impl Backend {
    pub(crate) fn propose(&self, intentions: &[Intention<'_>]) -> Result<Proposal, StoreError> {
        match self {
            Self::Local(store) => store.propose(intentions),
            Self::Remote(remote) => remote
                .link
                .propose(intentions)
                .map(|(proposal, _)| proposal),
        }
    }

    pub(crate) fn get(&self, topic: &str, key: &[u8]) -> Result<Option<Page>, StoreError> {
        match self {
            Self::Local(store) => store.get(topic, key),
            Self::Remote(remote) => block_on(remote.get(topic, key)),
        }
    }

    /// The page whose first record is the one at this offset, if it is there.
    pub(crate) fn record(
        &self,
        topic: &str,
        offset: ConsequenceOffset,
    ) -> Result<Option<Page>, StoreError> {
        let Some(before) = offset.0.checked_sub(1) else {
            return Ok(None);
        };
        let store = match self {
            Self::Local(store) => store,
            Self::Remote(remote) => return block_on(remote.record(topic, offset)),
        };
        let mut reader = store.read(topic, ConsequenceOffset(before))?;
        let Some(page) = reader.next_page()? else {
            return Ok(None);
        };
        let first = page.iter().next().transpose()?;
        Ok(first.is_some_and(|r| r.offset == offset).then_some(page))
    }

    pub(crate) fn scan(
        &self,
        topic: &str,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<KeyEntry>, StoreError> {
        match self {
            Self::Local(store) => store.scan(topic, prefix, after, limit),
            Self::Remote(remote) => block_on(remote.scan(topic, prefix, after, limit)),
        }
    }

    pub(crate) fn value(&self, topic: &str, entry: &KeyEntry) -> Result<Option<Page>, StoreError> {
        match self {
            Self::Local(store) => store.value(topic, entry),
            Self::Remote(remote) => block_on(remote.record(topic, entry.offset)),
        }
    }

    pub(crate) fn topic(&self, topic: &str) -> Result<Option<TopicInfo>, StoreError> {
        match self {
            Self::Local(store) => Ok(store.topic(topic)),
            Self::Remote(remote) => block_on(remote.topic(topic)),
        }
    }

    /// Newest intention; everything that was answered is at or before it.
    pub(crate) fn applied(&self) -> Result<IntentionOffset, StoreError> {
        match self {
            Self::Local(store) => Ok(store.applied()),
            Self::Remote(remote) => block_on(remote.applied()).map(|told| told.applied),
        }
    }

    /// Waits until all records up to an intention are there.
    ///
    /// # Errors
    /// `Remote` with `Lagging` when they are not in time.
    pub(crate) fn reach(
        &self,
        intention: IntentionOffset,
        until: Option<Instant>,
    ) -> Result<(), StoreError> {
        let reached = match self {
            Self::Local(store) => store.wait_applied(intention, until),
            Self::Remote(remote) => remote.reach(intention, until)?,
        };
        if reached {
            return Ok(());
        }
        Err(StoreError::Remote {
            code: ErrorCode::Lagging,
            text: format!("the store has not got to intention {}", intention.0),
        })
    }

    /// Whether a server does parts of queries, over logs or over the latest values;
    /// never for a store of this process.
    pub(crate) fn queries(&self, is_log: bool) -> Result<bool, StoreError> {
        let Self::Remote(remote) = self else {
            return Ok(false);
        };
        let facts = remote.link.facts()?;
        Ok(if is_log {
            facts.queries
        } else {
            facts.latest_queries
        })
    }

    /// Intention that made the newest topic; only for queries that follow.
    pub(crate) fn newest_topic(&self) -> Result<IntentionOffset, StoreError> {
        match self {
            Self::Local(store) => Ok(store.newest_topic()),
            Self::Remote(remote) => block_on(remote.applied()).map(|told| told.created),
        }
    }

    /// Packets that came so far, of a server.
    pub(crate) fn deliveries(&self) -> u64 {
        match self {
            Self::Local(_) => 0,
            Self::Remote(remote) => remote.link.deliveries(),
        }
    }

    /// Topics that live, or all that ever did.
    pub(crate) fn topics(&self, dead_too: bool) -> Result<Vec<TopicInfo>, StoreError> {
        match self {
            Self::Local(store) => Ok(store.topics(dead_too)),
            Self::Remote(remote) => block_on(remote.topics(dead_too)),
        }
    }

    /// A reader of a topic that was created once.
    pub(crate) fn read(&self, topic: &str) -> Result<TopicReader, StoreError> {
        if let Self::Local(store) = self {
            return store
                .read(topic, ConsequenceOffset::ZERO)
                .map(TopicReader::local);
        }
        match self.topic(topic)? {
            Some(_) => Ok(self.listen(topic)),
            None => Err(StoreError::TopicUnknown {
                name: topic.to_owned(),
            }),
        }
    }

    /// A reader of a topic that may not be there yet.
    pub(crate) fn listen(&self, topic: &str) -> TopicReader {
        let start = ConsequenceOffset::ZERO;
        match self {
            Self::Local(store) => TopicReader::local(store.listen(topic, start)),
            Self::Remote(remote) => {
                TopicReader::remote(Listener::new(Arc::clone(remote), topic, start))
            }
        }
    }
}
