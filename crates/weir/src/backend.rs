//! Selects the local store or a server.
//!
//! This module and its submodules contain every difference between the two. The other modules of
//! the crate call methods of [`Backend`] and of the values that these methods return.
//!
//! Invariants:
//! - `cargo xtask tidy` rejects the name of a local or remote variant outside of this module.
//! - A step of a group is sent only once if a second execution could have another effect.

mod awaited;
mod groups;
mod reader;
mod replay;
mod session;
mod values;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_core::{ConsequenceOffset, ErrorCode, Intention, IntentionOffset, Outcomes, ProgramHost};
use weir_protocol::{Consistency, Message};
use weir_store::{
    CompactReport, Durability, History, KeyEntry, OpenOptions, Page, ProgramInfo, Proposal, Stats,
    Store, StoreError, TopicInfo,
};

pub use self::reader::TopicReader;
pub(crate) use self::replay::Replay;
pub(crate) use self::session::Route;
pub(crate) use self::values::Values;
use crate::blocking_pool;
use crate::error::remote_error;
use crate::remote::files::RemoteDisk;
use crate::remote::listener::Listener;
use crate::remote::{ConnectOptions, Remote};
use crate::reply::block_on;
use crate::status::Status;

fn no_cluster() -> StoreError {
    remote_error(
        ErrorCode::Unsupported,
        "the store is open in this process, so it is not a cluster",
    )
}

/// Where the store is. Only this enum distinguishes local from remote.
#[derive(Clone, Debug)]
pub(crate) enum Backend {
    /// Open in this process.
    Local(Arc<Store>),
    /// Open at a server.
    Remote(Arc<Remote>),
}

/// The progress of a store: every record up to `settled` can be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreProgress {
    pub(crate) settled: IntentionOffset,
    /// The intention that created the newest topic.
    pub(crate) created: IntentionOffset,
}

impl Backend {
    pub(crate) fn open(directory: &Path, options: &OpenOptions) -> Result<Self, StoreError> {
        Store::open(directory, options).map(|store| Self::of(Arc::new(store)))
    }

    /// Returns the backend of a store that is open in this process.
    pub(crate) fn of(store: Arc<Store>) -> Self {
        Self::Local(store)
    }

    pub(crate) fn connect(url: &str, options: &ConnectOptions) -> Result<Self, StoreError> {
        let remote = Remote::connect(url, options)?;
        Ok(Self::Remote(Arc::new(remote)))
    }

    pub(crate) async fn connect_async(
        url: String,
        options: ConnectOptions,
    ) -> Result<Self, StoreError> {
        // Reads files if the options name a certificate or an authority.
        let remote = blocking_pool::run(move || Remote::begin(&url, &options)).await??;
        remote.link.ready().await?;
        Ok(Self::Remote(Arc::new(remote)))
    }

    /// Returns a backend whose reads from a server fail after `patience`.
    pub(crate) fn within(&self, patience: Duration) -> Self {
        match self {
            Self::Local(store) => Self::Local(Arc::clone(store)),
            Self::Remote(remote) => Self::Remote(Arc::new(remote.within(patience))),
        }
    }

    /// Returns a backend whose reads from a server have this consistency.
    pub(crate) fn with_consistency(&self, consistency: Consistency) -> Self {
        match self {
            Self::Local(store) => Self::Local(Arc::clone(store)),
            Self::Remote(remote) => Self::Remote(Arc::new(remote.with_consistency(consistency))),
        }
    }

    /// The local store; `None` if the store is at a server.
    pub(crate) fn local(&self) -> Option<&Arc<Store>> {
        match self {
            Self::Local(store) => Some(store),
            Self::Remote(_) => None,
        }
    }

    /// Whether the store is open in this process.
    pub(crate) fn is_local(&self) -> bool {
        self.local().is_some()
    }

    pub(crate) fn store_id(&self) -> Result<[u8; 16], StoreError> {
        match self {
            Self::Local(store) => Ok(store.identity().store_id),
            Self::Remote(remote) => remote.store_id(),
        }
    }

    pub(crate) fn durability(&self) -> Result<Durability, StoreError> {
        match self {
            Self::Local(store) => Ok(store.durability()),
            Self::Remote(remote) => remote.durability(),
        }
    }

    pub(crate) fn program(&self, topic: &str) -> Result<Option<ProgramInfo>, StoreError> {
        match self {
            Self::Local(store) => Ok(store.program(topic)),
            Self::Remote(remote) => block_on(remote.program(topic)),
        }
    }

    pub(crate) fn programs(&self) -> Result<Vec<(String, ProgramInfo)>, StoreError> {
        let remote = match self {
            Self::Local(store) => return Ok(store.programs()),
            Self::Remote(remote) => remote,
        };
        let mut found = Vec::new();
        for info in block_on(remote.topics(false))? {
            found.extend(block_on(remote.program(&info.name))?.map(|program| (info.name, program)));
        }
        Ok(found)
    }

    pub(crate) fn stats(&self) -> Result<Stats, StoreError> {
        match self {
            Self::Local(store) => Ok(store.stats()),
            Self::Remote(remote) => Ok(block_on(remote.status())?.stats),
        }
    }

    pub(crate) fn status(&self) -> Result<Status, StoreError> {
        match self {
            Self::Local(store) => Ok(Status::of_store(store)),
            Self::Remote(remote) => block_on(remote.status()),
        }
    }

    pub(crate) fn compact(&self) -> Result<CompactReport, StoreError> {
        match self {
            Self::Local(store) => store.compact(),
            Self::Remote(remote) => block_on(remote.compact()),
        }
    }

    pub(crate) fn add_node(&self, peer: &str) -> Result<u64, StoreError> {
        match self {
            Self::Local(_) => Err(no_cluster()),
            Self::Remote(remote) => block_on(remote.add_node(peer)),
        }
    }

    pub(crate) fn history(
        &self,
        host: Option<Arc<dyn ProgramHost>>,
    ) -> Result<History, StoreError> {
        match self {
            Self::Local(store) => store.history(host),
            Self::Remote(remote) => {
                let disk = RemoteDisk::new(Arc::clone(remote))?;
                History::on(Arc::new(disk), host)
            }
        }
    }

    pub(crate) fn change_cluster(&self, change: &Message<'_>) -> Result<(), StoreError> {
        match self {
            Self::Local(_) => Err(no_cluster()),
            Self::Remote(remote) => block_on(remote.change_cluster(change)),
        }
    }

    pub(crate) fn failure(&self) -> Result<Option<String>, StoreError> {
        match self {
            Self::Local(store) => Ok(store.failure()),
            Self::Remote(remote) => remote.failure(),
        }
    }

    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        match self {
            Self::Local(store) => store.sync().map(drop),
            Self::Remote(remote) => block_on(remote.sync()),
        }
    }

    /// Closes the store, or the connection to the server.
    pub(crate) fn close(&self) -> Result<(), StoreError> {
        match self {
            Self::Local(store) => store.shut_down(),
            Self::Remote(remote) => {
                remote.close();
                Ok(())
            }
        }
    }

    /// Proposes intentions outside of a session, by `propose`.
    ///
    /// # Errors
    /// `Remote` with `BadRequest` for an intention with a nonce at a server, which numbers
    /// the intentions of a connection.
    pub(crate) fn propose_without_session(
        &self,
        intentions: &[Intention<'_>],
        propose: fn(&Self, &[Intention<'_>]) -> Result<Proposal, StoreError>,
    ) -> Result<Proposal, StoreError> {
        let numbered = |intention: &Intention<'_>| intention.nonce > 0;
        if !self.is_local() && intentions.iter().any(numbered) {
            return Err(remote_error(
                ErrorCode::BadRequest,
                "intentions with a nonce go through Weir::session at a server",
            ));
        }
        propose(self, intentions)
    }

    pub(crate) fn propose(&self, intentions: &[Intention<'_>]) -> Result<Proposal, StoreError> {
        match self {
            Self::Local(store) => store.propose(intentions),
            Self::Remote(remote) => remote
                .link
                .propose(intentions)
                .map(|(proposal, _)| proposal),
        }
    }

    /// Proposes intentions for a caller that waits for their outcomes at once.
    pub(crate) fn propose_inline(
        &self,
        intentions: &[Intention<'_>],
    ) -> Result<Proposal, StoreError> {
        match self {
            Self::Local(store) => store.propose_inline(intentions),
            Self::Remote(_) => self.propose(intentions),
        }
    }

    /// Proposes intentions and waits for their outcomes. The wait for a server can be cancelled
    /// ([`interruptible`](crate::interruptible)).
    pub(crate) fn write(&self, intentions: &[Intention<'_>]) -> Result<Outcomes, StoreError> {
        let proposal = self.propose_inline(intentions)?;
        match self {
            Self::Local(_) => proposal.wait(),
            Self::Remote(_) => block_on(proposal),
        }
    }

    pub(crate) fn get(&self, topic: &str, key: &[u8]) -> Result<Option<Page>, StoreError> {
        match self {
            Self::Local(store) => store.get(topic, key),
            Self::Remote(remote) => block_on(remote.get(topic, key)),
        }
    }

    /// Returns the page that starts with the record at this offset; `None` if there is no such
    /// record.
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

    /// The newest intention. Every acknowledged intention is at or before it.
    pub(crate) fn applied(&self) -> Result<IntentionOffset, StoreError> {
        match self {
            Self::Local(store) => Ok(store.applied()),
            Self::Remote(remote) => block_on(remote.applied()).map(|progress| progress.applied),
        }
    }

    /// Whether the store gets no entries from other nodes: it is open in this process, or at a
    /// server that is not a node of a cluster. `false` if the server does not report that.
    pub(crate) fn is_standalone(&self) -> bool {
        match self {
            Self::Local(_) => true,
            Self::Remote(remote) => {
                let status = block_on(remote.status()).ok();
                let server = status.and_then(|status| status.server);
                server.is_some_and(|server| server.cluster.is_none())
            }
        }
    }

    /// Waits until all records up to an intention can be read.
    ///
    /// # Errors
    /// `Remote` with `Lagging` if they cannot be read by the deadline.
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
        Err(remote_error(
            ErrorCode::Lagging,
            format!("the store has not reached intention {}", intention.0),
        ))
    }

    /// Whether the server can run parts of a query, over logs (`is_log`) or over the latest values.
    /// Always `false` for a local store.
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

    /// The intention that created the newest topic. Only queries that follow use it.
    pub(crate) fn newest_topic(&self) -> Result<IntentionOffset, StoreError> {
        match self {
            Self::Local(store) => Ok(store.newest_topic()),
            Self::Remote(remote) => block_on(remote.applied()).map(|progress| progress.created),
        }
    }

    /// The progress of the store. `None` if a server has not sent its progress yet. A server sends
    /// it while a listener of a query that follows is open.
    pub(crate) fn progress(&self) -> Result<Option<StoreProgress>, StoreError> {
        match self {
            Self::Local(store) => Ok(Some(StoreProgress {
                settled: store.applied(),
                created: store.newest_topic(),
            })),
            Self::Remote(remote) => {
                let progress = remote.progress()?;
                Ok(progress.map(|(settled, created)| StoreProgress { settled, created }))
            }
        }
    }

    /// Waits until `until` at most. A local store waits for an intention after `mark`. A connection
    /// waits for a packet after the first `seen` ones. `listening`: the server sends packets
    /// without further requests.
    pub(crate) fn wait_news(
        &self,
        mark: IntentionOffset,
        seen: u64,
        listening: bool,
        until: Option<Instant>,
    ) {
        match self {
            Self::Local(store) => {
                // The next read shows whether a new intention exists.
                let _ = store.wait_applied(mark.plus(1), until);
            }
            Self::Remote(remote) => remote.wait_news(seen, listening, until),
        }
    }

    /// The number of packets that the server has sent so far.
    pub(crate) fn deliveries(&self) -> u64 {
        match self {
            Self::Local(_) => 0,
            Self::Remote(remote) => remote.link.deliveries(),
        }
    }

    /// Lists the live topics; with `include_destroyed`, also the destroyed ones.
    pub(crate) fn topics(&self, include_destroyed: bool) -> Result<Vec<TopicInfo>, StoreError> {
        match self {
            Self::Local(store) => Ok(store.topics(include_destroyed)),
            Self::Remote(remote) => block_on(remote.topics(include_destroyed)),
        }
    }

    /// Returns a reader of a topic that has been created at least once.
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

    /// Returns a reader of a topic that may not exist yet.
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
