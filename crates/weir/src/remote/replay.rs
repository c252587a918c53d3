//! Reads the current values of the keys of a topic at a server: each key once.
//!
//! The server sends the value that a key has when it is sent. Invariant: a client that continues at
//! [`Replay::position`] misses no record and sees none twice, however often the connection broke.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use weir_core::ErrorCode;
use weir_protocol::{After, Listen, ListenQuery, Message};
use weir_store::{Page, StoreError};

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
    /// The last key that was returned.
    after: Option<Box<[u8]>>,
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
            after: None,
            used: (0, 0),
        };
        replay.position = replay.start().await?;
        Ok(replay)
    }

    /// First offset after the replay.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    fn until(&self) -> Option<Instant> {
        self.remote.until()
    }

    /// Sends the request, again if necessary. Returns the offset at which new records begin.
    async fn start(&mut self) -> Result<u64, StoreError> {
        let link = &self.remote.link;
        let end = self.until();
        let mut backoff = BackOff::default();
        loop {
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
                query: ListenQuery::default(),
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
    pub(crate) async fn next(&mut self) -> Result<Option<Page>, StoreError> {
        loop {
            let until = self.until();
            let tag = self.request.as_ref().map_or(0, |request| request.tag);
            let bytes = match self.remote.link.receive(tag, until).await? {
                Received::Packet(bytes) => Bytes::from(bytes),
                Received::Nothing => return Err(self.remote.link.deadline_error()),
                Received::Lost => {
                    // Records written since the replay began are at `position` or later; the
                    // caller reads them after the replay.
                    self.start().await?;
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
                    let is_part = first.offset.0 < self.position;
                    let after = self.after.as_deref();
                    if is_part && after.is_none_or(|after| after < first.key) {
                        self.after = Some(first.key.into());
                        return Ok(Some(page));
                    }
                }
                Message::Records { .. } | Message::End { .. } => return Ok(None),
                Message::Refusal(refusal) if refusal.code() == Some(ErrorCode::Draining) => {
                    self.start().await?;
                }
                Message::Refusal(refusal) => return Err(refused(&refusal)),
                _ => {}
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
