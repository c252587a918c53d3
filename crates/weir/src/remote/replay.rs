//! Reads the current values of the keys of a topic at a server: each key once.
//!
//! The server sends the value that a key has when it is sent.
//!
//! Invariants:
//! - A client that continues at [`Replay::position`] misses no record and sees none twice, however
//!   often the connection broke.
//! - A call ends within the patience after the last new key, whatever else the server sends.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use weir_core::ErrorCode;
use weir_protocol::{After, Listen, ListenQuery, Message};
use weir_store::{Page, StoreError, key_after};

use super::link::{PendingRequest, Received, packet_of};
use super::pause::BackOff;
use super::{Remote, error_of, refused, unexpected};

/// Bytes of pages that may be in transit.
const CREDIT_BYTES: u64 = 1 << 20;
/// Records that may be in transit.
const CREDIT_RECORDS: u64 = 1 << 16;

/// The values of all keys, in byte order of keys.
#[derive(Debug)]
pub(crate) struct Replay {
    remote: Arc<Remote>,
    topic: Box<str>,
    /// The request in progress.
    request: Option<PendingRequest>,
    /// First offset after the replay.
    position: u64,
    /// The last key that was received.
    last_key: Option<Box<[u8]>>,
    /// Bytes and records received since the last credit was sent.
    used: (u64, u64),
}

impl Drop for Replay {
    fn drop(&mut self) {
        if let Some(request) = &self.request {
            self.remote.link.add(request.tag, &Message::Unlisten);
        }
    }
}

impl Replay {
    /// Starts a replay. Waits for the server.
    pub(crate) async fn new(remote: Arc<Remote>, topic: &str) -> Result<Self, StoreError> {
        let mut replay = Self {
            remote,
            topic: topic.into(),
            request: None,
            position: 0,
            last_key: None,
            used: (0, 0),
        };
        let until = replay.until();
        replay.position = replay.start(until).await?;
        Ok(replay)
    }

    /// First offset after the replay.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    fn until(&self) -> Option<Instant> {
        self.remote.until()
    }

    /// Sends the request, again if necessary, and waits until `end` for the response. The server
    /// omits the keys that were received before, if it can. Returns the offset at which new records
    /// begin.
    async fn start(&mut self, end: Option<Instant>) -> Result<u64, StoreError> {
        let link = &self.remote.link;
        let mut backoff = BackOff::default();
        loop {
            let can_begin = link.can_begin_at_a_key();
            let last_key = self.last_key.as_deref().filter(|_| can_begin);
            let from = last_key.map(key_after);
            let message = Message::Listen(Listen {
                topic: &self.topic,
                after: After::Latest,
                follow: false,
                bytes: CREDIT_BYTES,
                records: CREDIT_RECORDS,
                key: None,
                prefix: None,
                kinds: 0,
                reset_earliest: false,
                query: ListenQuery {
                    from: from.as_deref(),
                    ..ListenQuery::default()
                },
            });
            self.used = (0, 0);
            let consistency = self.remote.options.consistency;
            let request = self.request.insert(link.begin(&message, consistency)?);
            match link.receive(request.tag, end).await? {
                Received::Packet(bytes) => {
                    let packet = packet_of(&bytes)?;
                    if let Message::Listening { position, .. } = packet.message {
                        return Ok(position);
                    }
                    match backoff.of(&packet, end) {
                        Some(pause) => link.sleep(pause).await?,
                        None => return Err(error_of(&bytes)),
                    }
                }
                Received::Lost => {}
                Received::Nothing => return Err(self.remote.link.deadline_error()),
            }
        }
    }

    /// Returns the value of the next key; `None` after the last one.
    ///
    /// # Errors
    /// `Deadline` if the server sends no new key within the patience.
    pub(crate) async fn next(&mut self) -> Result<Option<Page>, StoreError> {
        let mut until = self.until();
        loop {
            let tag = self.request.as_ref().map_or(0, |request| request.tag);
            let bytes = match self.remote.link.receive(tag, until).await? {
                Received::Packet(bytes) => Bytes::from(bytes),
                Received::Nothing => return Err(self.remote.link.deadline_error()),
                Received::Lost => {
                    // Records written since the replay began are at `position` or later; the
                    // caller reads them after the replay.
                    self.start(until).await?;
                    continue;
                }
            };
            match packet_of(&bytes)?.message {
                Message::Records {
                    replay: true, page, ..
                } => {
                    self.credit(page.len() as u64);
                    let page = Page::read_from(&bytes.slice_ref(page), 0)?;
                    let first = page.iter().next().transpose()?;
                    let first = first.ok_or_else(unexpected)?;
                    let last_key = self.last_key.as_deref();
                    if last_key.is_none_or(|last_key| last_key < first.key) {
                        self.last_key = Some(first.key.into());
                        if first.offset.0 < self.position {
                            return Ok(Some(page));
                        }
                        // The key has changed since the replay began.
                        until = self.until();
                    }
                }
                Message::Records { .. } | Message::End { .. } => return Ok(None),
                Message::Refusal(refusal) if refusal.code() == Some(ErrorCode::Draining) => {
                    self.start(until).await?;
                }
                Message::Refusal(refusal) => return Err(refused(&refusal)),
                _ => {}
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Err(self.remote.link.deadline_error());
            }
        }
    }

    /// Sends more credit when half of it is used.
    fn credit(&mut self, bytes: u64) {
        self.used.0 += bytes;
        self.used.1 += 1;
        let (bytes, records) = self.used;
        if bytes >= CREDIT_BYTES / 2 || records >= CREDIT_RECORDS / 2 {
            let more = Message::Credit { bytes, records };
            self.used = (0, 0);
            let tag = self.request.as_ref().map_or(0, |request| request.tag);
            self.remote.link.add(tag, &more);
        }
    }
}
