//! A store in another process: the same API over a connection.
//!
//! Reads, listeners, and writes without a session share the connection of their [`Remote`]. Each
//! session has a separate connection, because a connection has one identity for life.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_core::codec::Reader;
use weir_core::limits::{KEY_BYTES_MAX, TOPICS_MAX};
use weir_core::{
    ClientId, CodeHash, ConsequenceOffset, ErrorCode, IntentionOffset, StateMode, TopicId,
    TopicName, TopicOptions,
};
use weir_protocol::{Consistency, Message, RefusalMessage, TopicLines};
use weir_store::{
    CompactReport, Durability, KeyEntry, LogIndex, Page, ProgramInfo, StoreError, TopicInfo,
};

use self::address::Address;
pub use self::address::AddressError;
use self::link::{Link, packet_of};
use crate::error::remote_error;
use crate::reply::block_on;
use crate::status::Status;

mod address;
pub(crate) mod files;
mod groups;
pub(crate) mod link;
pub(crate) mod listener;
mod pause;
pub(crate) mod pushdown;
pub(crate) mod replay;
#[cfg(feature = "tls")]
mod tls;

/// How to connect to a server.
#[derive(Clone)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// Token that proves the identity of the client. White space around it, such as the end of the
    /// line in a file, is ignored. Over `weir://`, others on the network can read the token.
    pub token: Option<String>,
    /// File with the certificate authority (PEM) that servers of `weirs://` must have. Default: the
    /// authorities that the system trusts.
    pub authority: Option<PathBuf>,
    /// Files with the client certificate for servers of `weirs://`, and with its key (PEM).
    /// Default: none.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Name and version of the client program, for people.
    pub agent: String,
    /// The writes that a node of a cluster must have applied before it answers a read, or starts a
    /// listener. `None`: `Linear` for keys; `Local` for records, listeners, queries, groups and
    /// descriptions of topics. Older servers refuse `Leader` and `Linear` for all reads except
    /// those of keys.
    pub consistency: Option<Consistency>,
    /// Whether the server reports that a write is queued for its log, before the verdict
    /// ([`Pending::wait_received`](crate::Pending::wait_received)). Costs one packet per write.
    /// Default: `false`.
    pub received: bool,
    /// Time limit for the first connection of [`Weir::connect_with`](crate::Weir::connect_with). If
    /// several addresses are known, each gets a part of it, at least 300 ms. An attempt at one
    /// address takes at most 10 s. Default: 5 s.
    pub connect_timeout: Duration,
    /// Time limit for the response to a read. Also the time without a connection after which all
    /// waiting calls fail. Calls of a session wait that long for the connection of the session, too.
    /// The error has the code of the newest refusal by a server, such as `NoLeader`; `Unreachable`
    /// if no server responded. Default: 30 s.
    pub patience: Duration,
    /// Called from another thread with a reason when calls have waited for 2 s because no node of
    /// the cluster is the leader. Default: none.
    pub on_wait: Option<fn(&str)>,
}

/// Shows everything except the token.
impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectOptions")
            .field("token", &self.token.as_ref().map(|_| ".."))
            .field("authority", &self.authority)
            .field("identity", &self.identity)
            .field("agent", &self.agent)
            .field("consistency", &self.consistency)
            .field("received", &self.received)
            .field("connect_timeout", &self.connect_timeout)
            .field("patience", &self.patience)
            .field("on_wait", &self.on_wait.is_some())
            .finish()
    }
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            token: None,
            authority: None,
            identity: None,
            agent: concat!("weir/", env!("CARGO_PKG_VERSION")).to_owned(),
            consistency: None,
            received: false,
            connect_timeout: Duration::from_secs(5),
            patience: Duration::from_secs(30),
            on_wait: None,
        }
    }
}

/// Whether a process listens at a socket in the file system.
pub(crate) fn answers(socket: &std::path::Path) -> bool {
    #[cfg(unix)]
    return std::os::unix::net::UnixStream::connect(socket).is_ok();
    #[cfg(not(unix))]
    return false;
}

/// Pause between two requests for the progress of a server. A server sends its progress without a
/// request only to listeners.
const REACH_PAUSE: Duration = Duration::from_millis(5);
/// Pause between two lists of topics while a query has no topic.
const LIST_PAUSE: Duration = Duration::from_millis(100);

/// The progress of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Newest intention.
    pub(crate) applied: IntentionOffset,
    /// All records up to this intention can be read.
    pub(crate) settled: IntentionOffset,
    /// The intention that created the newest topic.
    pub(crate) created: IntentionOffset,
}

/// A store at a server.
#[derive(Debug)]
pub(crate) struct Remote {
    addresses: Vec<Address>,
    options: ConnectOptions,
    pub(crate) link: Arc<Link>,
    /// Longest wait for the response to a read.
    pub(crate) patience: Duration,
}

impl Remote {
    pub(crate) fn connect(url: &str, options: &ConnectOptions) -> Result<Self, StoreError> {
        let remote = Self::begin(url, options)?;
        remote.link.facts()?;
        Ok(remote)
    }

    /// Starts to connect. Does not wait.
    pub(crate) fn begin(url: &str, options: &ConnectOptions) -> Result<Self, StoreError> {
        let addresses = Address::list(url).map_err(|error: AddressError| {
            remote_error(ErrorCode::BadAddress, error.to_string())
        })?;
        let link = Link::new(&addresses, ClientId::NONE, options)?;
        Ok(Self {
            addresses,
            options: options.clone(),
            link: Arc::new(link),
            patience: options.patience,
        })
    }

    /// Returns a handle to this connection with another patience for reads.
    pub(crate) fn within(&self, patience: Duration) -> Self {
        Self {
            addresses: self.addresses.clone(),
            options: self.options.clone(),
            link: Arc::clone(&self.link),
            patience,
        }
    }

    /// Returns a handle to this connection with another consistency of reads.
    pub(crate) fn with_consistency(&self, consistency: Consistency) -> Self {
        let mut handle = self.within(self.patience);
        handle.options.consistency = Some(consistency);
        handle
    }

    /// The deadline of a read that begins now.
    pub(crate) fn until(&self) -> Option<Instant> {
        Instant::now().checked_add(self.patience)
    }

    async fn request(&self, message: &Message<'_>) -> Result<Vec<u8>, StoreError> {
        let consistency = self.options.consistency;
        self.link.request(message, consistency, self.until()).await
    }

    /// Opens a connection for a session. It knows the nodes that this connection knows.
    pub(crate) fn session(&self, client: ClientId) -> Result<Link, StoreError> {
        let nodes = self.link.inner.lock().nodes.clone();
        let link = Link::new(&self.addresses, client, &self.options)?;
        link.inner.lock().nodes = nodes;
        Ok(link.patient())
    }

    /// Waits for the responses to queued writes, then ends the connection.
    pub(crate) fn close(&self) {
        self.link.close(self.options.patience);
    }

    pub(crate) fn store_id(&self) -> Result<[u8; 16], StoreError> {
        Ok(self.link.facts()?.store)
    }

    pub(crate) fn failure(&self) -> Result<Option<String>, StoreError> {
        let failure = self.link.facts()?.failure;
        Ok((!failure.is_empty()).then_some(failure))
    }

    pub(crate) fn durability(&self) -> Result<Durability, StoreError> {
        let level = self.link.facts()?.level;
        let (word, number) = level.split_once(' ').unwrap_or((&level, "0"));
        match word {
            "group" => Ok(Durability::Group),
            "each" => Ok(Durability::Each),
            "memory" => Ok(Durability::Memory),
            "interval" => {
                let ms = number.parse().map_err(|_| unexpected())?;
                Ok(Durability::Interval(Duration::from_millis(ms)))
            }
            _ => Err(unexpected()),
        }
    }

    pub(crate) async fn get(&self, topic: &str, key: &[u8]) -> Result<Option<Page>, StoreError> {
        // No record has another key, and a server would end the connection.
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            return Ok(None);
        }
        self.value(&Message::Get {
            topic,
            key,
            at_least: 0,
            applied: 0,
        })
        .await
    }

    pub(crate) async fn record(
        &self,
        topic: &str,
        offset: ConsequenceOffset,
    ) -> Result<Option<Page>, StoreError> {
        let offset = offset.0;
        self.value(&Message::GetRecord { topic, offset }).await
    }

    async fn value(&self, message: &Message<'_>) -> Result<Option<Page>, StoreError> {
        let bytes = Bytes::from(self.request(message).await?);
        match packet_of(&bytes)?.message {
            Message::Value { page } => Page::read_from(&bytes.slice_ref(page), 0).map(Some),
            Message::Refusal(refusal) => match refusal.code() {
                Some(ErrorCode::KeyAbsent | ErrorCode::RecordAbsent) => Ok(None),
                _ => Err(refused(&refusal)),
            },
            _ => Err(unexpected()),
        }
    }

    pub(crate) async fn scan(
        &self,
        topic: &str,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<KeyEntry>, StoreError> {
        // A server ends the connection when it receives a longer key.
        if prefix.len() > KEY_BYTES_MAX {
            return Ok(Vec::new());
        }
        let after = after.map(|after| after.get(..KEY_BYTES_MAX).unwrap_or(after));
        let limit = limit.min(weir_store::SCAN_KEYS_MAX);
        let mut found: Vec<KeyEntry> = Vec::new();
        while found.len() < limit {
            let after = found.last().map(|entry| &*entry.key).or(after);
            let bytes = self
                .request(&Message::Scan {
                    topic,
                    prefix,
                    after,
                    limit: (limit - found.len()) as u64,
                })
                .await?;
            let (more, entries) = match packet_of(&bytes)?.message {
                Message::Keys { more, entries } => (more, entries),
                Message::Refusal(refusal) => return Err(refused(&refusal)),
                _ => return Err(unexpected()),
            };
            let before = found.len();
            let mut reader = Reader::new(entries);
            while !reader.is_empty() && found.len() < limit {
                let offset = reader.varint().map_err(|_| unexpected())?;
                let key = reader.bytes().map_err(|_| unexpected())?;
                if key.len() > KEY_BYTES_MAX {
                    return Err(unexpected());
                }
                found.push(KeyEntry {
                    key: key.into(),
                    offset: ConsequenceOffset(offset),
                });
            }
            if !more || found.len() == before {
                break;
            }
        }
        Ok(found)
    }

    pub(crate) async fn topic(&self, topic: &str) -> Result<Option<TopicInfo>, StoreError> {
        let bytes = self.request(&Message::Topic { topic }).await?;
        match packet_of(&bytes)?.message {
            Message::TopicsResponse { lines, .. } => Ok(topics_of(lines)?.pop()),
            Message::Refusal(refusal) if refusal.code() == Some(ErrorCode::TopicUnknown) => {
                Ok(None)
            }
            Message::Refusal(refusal) => Err(refused(&refusal)),
            _ => Err(unexpected()),
        }
    }

    pub(crate) async fn topics(
        &self,
        include_destroyed: bool,
    ) -> Result<Vec<TopicInfo>, StoreError> {
        let mut found: Vec<TopicInfo> = Vec::new();
        loop {
            let after = found.last().map_or("", |info| &info.name).to_owned();
            let bytes = self
                .request(&Message::Topics {
                    prefix: b"",
                    after: after.as_bytes(),
                    limit: u64::MAX,
                    dead: include_destroyed,
                })
                .await?;
            let Message::TopicsResponse { more, lines } = packet_of(&bytes)?.message else {
                return Err(error_of(&bytes));
            };
            if !append_page(&mut found, topics_of(lines)?, TOPICS_MAX, |info| &info.name)? || !more
            {
                return Ok(found);
            }
        }
    }

    pub(crate) async fn program(&self, topic: &str) -> Result<Option<ProgramInfo>, StoreError> {
        // A server ends the connection when it receives an invalid name.
        if TopicName::any(topic).is_err() {
            return Ok(None);
        }
        let bytes = self.request(&Message::Program { topic }).await?;
        let Message::ProgramResponse(program) = packet_of(&bytes)?.message else {
            return Err(error_of(&bytes));
        };
        let Some(program) = program else {
            return Ok(None);
        };
        Ok(Some(ProgramInfo {
            code: CodeHash(program.hash),
            args: program.args.to_vec(),
            mode: StateMode::from_number(program.mode).ok_or_else(unexpected)?,
            state_entries: program.entries,
            state_bytes: program.bytes,
            counts: program.counts,
        }))
    }

    pub(crate) async fn status(&self) -> Result<Status, StoreError> {
        let bytes = self.request(&Message::Status).await?;
        let Message::StatusResponse { lines } = packet_of(&bytes)?.message else {
            return Err(error_of(&bytes));
        };
        Status::read(lines).ok_or_else(unexpected)
    }

    /// Waits without a limit: the server writes a snapshot and reads it back.
    pub(crate) async fn compact(&self) -> Result<CompactReport, StoreError> {
        let bytes = self.link.request(&Message::Compact, None, None).await?;
        match packet_of(&bytes)?.message {
            Message::Compacted {
                index,
                bytes_before,
                bytes_after,
            } => Ok(CompactReport {
                index: LogIndex(index),
                log_bytes_before: bytes_before,
                log_bytes_after: bytes_after,
            }),
            _ => Err(error_of(&bytes)),
        }
    }

    /// Waits until the leader has reserved a number for a node.
    pub(crate) async fn add_node(&self, peer: &str) -> Result<u64, StoreError> {
        let bytes = self.request(&Message::ClusterAdd { peer }).await?;
        match packet_of(&bytes)?.message {
            Message::ClusterAdded { node } => Ok(node),
            _ => Err(error_of(&bytes)),
        }
    }

    /// Waits until the leader has committed a change of the cluster.
    pub(crate) async fn change_cluster(&self, change: &Message<'_>) -> Result<(), StoreError> {
        let bytes = self.request(change).await?;
        match packet_of(&bytes)?.message {
            Message::ClusterChanged => Ok(()),
            _ => Err(error_of(&bytes)),
        }
    }

    /// Requests the progress of the server.
    pub(crate) async fn applied(&self) -> Result<Progress, StoreError> {
        if !self.link.ready().await?.queries {
            // An older server reports its progress only when a connection starts.
            let link = Link::new(&self.addresses, ClientId::NONE, &self.options)?;
            let applied = IntentionOffset(link.ready().await?.applied);
            return Ok(Progress {
                applied,
                settled: applied,
                created: IntentionOffset::ZERO,
            });
        }
        let bytes = self.request(&Message::Applied).await?;
        match packet_of(&bytes)?.message {
            Message::AppliedResponse {
                applied,
                settled,
                created,
                ..
            } => Ok(Progress {
                applied: IntentionOffset(applied),
                settled: IntentionOffset(settled),
                created: IntentionOffset(created),
            }),
            _ => Err(error_of(&bytes)),
        }
    }

    /// Waits until all records up to an intention can be read. Returns `false` if they cannot by
    /// `until`.
    pub(crate) fn reach(
        &self,
        intention: IntentionOffset,
        until: Option<Instant>,
    ) -> Result<bool, StoreError> {
        loop {
            if block_on(self.applied())?.settled >= intention {
                return Ok(true);
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Ok(false);
            }
            std::thread::sleep(REACH_PAUSE);
        }
    }

    /// The intention up to which all listeners with marks have received everything, and the
    /// intention of the newest topic. Without such listeners, it is the last progress from the
    /// server.
    pub(crate) fn progress(
        &self,
    ) -> Result<Option<(IntentionOffset, IntentionOffset)>, StoreError> {
        if !self.link.facts()?.queries {
            let text = "this server is too old: it does not report its progress";
            return Err(remote_error(ErrorCode::Unsupported, text));
        }
        Ok(self.link.marks())
    }

    /// Waits for packets after the first `seen` ones.
    pub(crate) fn wait_news(&self, seen: u64, listening: bool, until: Option<Instant>) {
        if listening {
            self.link.wait_news(seen, until);
        } else if let Ok(progress) = block_on(self.applied()) {
            // Without a listener, the server sends no marks.
            self.link.set_marks(progress.settled, progress.created);
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            std::thread::sleep(left.unwrap_or(LIST_PAUSE).min(LIST_PAUSE));
        }
    }

    pub(crate) async fn sync(&self) -> Result<(), StoreError> {
        let bytes = self.request(&Message::Sync).await?;
        match packet_of(&bytes)?.message {
            Message::Synced => Ok(()),
            _ => Err(error_of(&bytes)),
        }
    }
}

/// Appends a page of a list that is sorted by name and has at most `max` items, so that no server
/// can send an endless list. Returns whether the page had an item.
fn append_page<T>(
    found: &mut Vec<T>,
    page: Vec<T>,
    max: usize,
    name: impl Fn(&T) -> &str,
) -> Result<bool, StoreError> {
    let all = found.last().into_iter().chain(&page);
    if found.len() + page.len() > max || !all.is_sorted_by(|one, next| name(one) < name(next)) {
        return Err(unexpected());
    }
    let has_item = !page.is_empty();
    found.extend(page);
    Ok(has_item)
}

fn topics_of(lines: &[u8]) -> Result<Vec<TopicInfo>, StoreError> {
    TopicLines::new(lines)
        .map(|line| {
            let line = line.ok_or_else(unexpected)?;
            let options = TopicOptions::decode(&line.options).ok_or_else(unexpected)?;
            Ok(TopicInfo {
                name: line.name.to_owned(),
                id: TopicId(line.number),
                live: line.incarnation != 0,
                incarnation: (line.incarnation != 0).then_some(IntentionOffset(line.incarnation)),
                first: ConsequenceOffset(line.first),
                last: ConsequenceOffset(line.last),
                keys: line.keys,
                bytes: line.bytes,
                options,
            })
        })
        .collect()
}

/// The error for a refusal, or for a response of an unexpected type.
pub(crate) fn error_of(bytes: &[u8]) -> StoreError {
    match packet_of(bytes).map(|packet| packet.message) {
        Ok(Message::Refusal(refusal)) => refused(&refusal),
        Ok(_) => unexpected(),
        Err(error) => error,
    }
}

pub(crate) fn refused(refusal: &RefusalMessage<'_>) -> StoreError {
    if let (Some(ErrorCode::Gone), Some(first), Some(last)) =
        (refusal.code(), refusal.first, refusal.last)
    {
        return StoreError::RecordsGone { first, last };
    }
    let text = String::from_utf8_lossy(refusal.text);
    remote_error(refusal.code().unwrap_or(ErrorCode::Protocol), text)
}

fn deadline_error() -> StoreError {
    remote_error(ErrorCode::Deadline, "the server did not answer in time")
}

fn unexpected() -> StoreError {
    remote_error(
        ErrorCode::Protocol,
        "the server sent an unexpected response",
    )
}
