//! What holds now in a topic of a server: each key once.
//!
//! Invariant: whoever goes on at [`Replay::position`] misses nothing, however
//! often the connection broke meanwhile.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use weir_core::ErrorCode;
use weir_core::protocol::{After, Listen, ListenQuery, Message};
use weir_store::{Page, StoreError};

use super::link::{Received, packet_of};
use super::{Remote, late, other, refused, unexpected};

/// Bytes of pages that may be on their way.
const CREDIT_BYTES: u64 = 1 << 20;
/// Records that may be on their way.
const CREDIT_RECORDS: u64 = 1 << 16;

/// The values of all keys, in byte order of keys.
#[derive(Debug)]
pub(crate) struct Replay {
    remote: Arc<Remote>,
    topic: Box<str>,
    tag: u64,
    /// First offset that is not part of it.
    position: u64,
    /// The last key that was handed out.
    behind: Option<Box<[u8]>>,
    /// Bytes and records received since the credit was last filled up.
    used: (u64, u64),
}

impl Drop for Replay {
    fn drop(&mut self) {
        let link = &self.remote.link;
        link.add(self.tag, &Message::Unlisten);
        link.forget(self.tag);
    }
}

impl Replay {
    /// Asks for it.
    pub(crate) fn new(remote: Arc<Remote>, topic: &str) -> Result<Self, StoreError> {
        let mut replay = Self {
            remote,
            topic: topic.into(),
            tag: 0,
            position: 0,
            behind: None,
            used: (0, 0),
        };
        replay.position = replay.start()?;
        Ok(replay)
    }

    /// First offset that is not part of it.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    fn until(&self) -> Option<Instant> {
        Instant::now().checked_add(self.remote.options.patience)
    }

    /// Asks, again if need be, and returns where new records begin.
    fn start(&mut self) -> Result<u64, StoreError> {
        let link = &self.remote.link;
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
            self.tag = link.begin(&message, self.until())?;
            match link.receive(self.tag, self.until())? {
                Received::Packet(bytes) => match packet_of(&bytes)?.message {
                    Message::Listening { position, .. } => return Ok(position),
                    Message::Refusal(refusal) if refusal.code() == Some(ErrorCode::Draining) => {}
                    _ => return Err(other(&bytes)),
                },
                Received::Lost => {}
                Received::Nothing => return Err(late()),
            }
            link.forget(self.tag);
        }
    }

    /// The value of the next key; `None` behind the last one.
    pub(crate) fn next(&mut self) -> Result<Option<Page>, StoreError> {
        loop {
            let until = self.until();
            let bytes = match self.remote.link.receive(self.tag, until)? {
                Received::Packet(bytes) => Bytes::from(bytes),
                Received::Nothing => return Err(late()),
                Received::Lost => {
                    self.remote.link.forget(self.tag);
                    // Newer values may come now; what happened in between is
                    // still behind the first position.
                    self.start()?;
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
                    let key = first.ok_or_else(unexpected)?.key;
                    if self.behind.as_deref().is_none_or(|behind| behind < key) {
                        self.behind = Some(key.into());
                        return Ok(Some(page));
                    }
                }
                Message::Records { .. } | Message::End { .. } => return Ok(None),
                Message::Refusal(refusal) if refusal.code() == Some(ErrorCode::Draining) => {
                    self.remote.link.forget(self.tag);
                    self.start()?;
                }
                Message::Refusal(refusal) => return Err(refused(&refusal)),
                _ => {}
            }
        }
    }

    /// Fills the credit up when half of it is used.
    fn credit(&mut self, bytes: u64) {
        self.used.0 += bytes;
        self.used.1 += 1;
        let (bytes, records) = self.used;
        if bytes >= CREDIT_BYTES / 2 || records >= CREDIT_RECORDS / 2 {
            let more = Message::Credit { bytes, records };
            self.used = (0, 0);
            self.remote.link.add(self.tag, &more);
        }
    }
}
