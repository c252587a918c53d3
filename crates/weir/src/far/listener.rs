//! Reading the records of a topic from a server, page by page.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use weir_core::protocol::{After, Listen, ListenQuery, Message};
use weir_core::{ConsequenceOffset, ErrorCode, IntentionOffset};
use weir_store::{Page, StoreError};

use super::asking::{Asking, Fault};
use super::link::{Received, packet_of};
use super::{Remote, late, other, refused};

/// Bytes of pages that may be on their way.
const CREDIT_BYTES: u64 = 1 << 20;
/// Records that may be on their way.
const CREDIT_RECORDS: u64 = 1 << 20;

/// Reads the records of one topic; see [`crate::TopicReader`].
#[derive(Debug)]
pub(crate) struct Listener {
    remote: Arc<Remote>,
    topic: Box<str>,
    /// Offset from which the next page starts.
    next: u64,
    /// What was asked last and is being answered.
    asked: Option<Asked>,
    /// A page that a wait has found.
    found: Option<Page>,
    /// Whether it goes on at the first record that is left.
    earliest: bool,
    /// What a query asks for.
    asking: Asking,
    /// Values that were not JSON and were left out.
    skipped: u64,
    /// Why it ended.
    fault: Option<Fault>,
}

#[derive(Debug)]
struct Asked {
    tag: u64,
    /// Whether it goes on at the end.
    follow: bool,
    /// Bytes and records received since the credit was last filled up.
    bytes: u64,
    records: u64,
}

impl Clone for Listener {
    /// Reads on from the same place, with a request of its own.
    fn clone(&self) -> Self {
        Self {
            remote: Arc::clone(&self.remote),
            topic: self.topic.clone(),
            next: self.next,
            asked: None,
            found: self.found.clone(),
            earliest: self.earliest,
            asking: self.asking.clone(),
            skipped: self.skipped,
            fault: self.fault,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Listener {
    pub(crate) fn new(remote: Arc<Remote>, topic: &str, after: ConsequenceOffset) -> Self {
        Self {
            remote,
            topic: topic.into(),
            next: after.0.saturating_add(1),
            asked: None,
            found: None,
            earliest: false,
            asking: Asking::default(),
            skipped: 0,
            fault: None,
        }
    }

    /// The same; where records were removed it goes on at the first one that
    /// is left.
    pub(crate) fn or_earliest(mut self) -> Self {
        self.earliest = true;
        self
    }

    /// Asks for what a query wants, so that it is on its way.
    pub(crate) fn prepare(&mut self, asking: Asking) -> Result<(), StoreError> {
        self.asking = asking;
        self.start(self.asking.marks, self.until())
    }

    /// Values that were not JSON and were left out.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The record at which a query stopped.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Up to where everything was read, if nothing is left to be read.
    pub(crate) fn mark(&self) -> Option<IntentionOffset> {
        let asked = self.asked.as_ref().filter(|_| self.found.is_none())?;
        self.remote.link.mark(asked.tag).map(IntentionOffset)
    }

    pub(crate) fn position(&self) -> ConsequenceOffset {
        match &self.found {
            Some(page) => ConsequenceOffset(page.from()),
            None => ConsequenceOffset(self.next),
        }
    }

    pub(crate) fn seek(&mut self, after: ConsequenceOffset) {
        self.stop();
        self.found = None;
        self.next = after.0.saturating_add(1);
    }

    /// Asks the server where it is, and goes there.
    pub(crate) fn seek_to(&mut self, after: After) -> Result<(), StoreError> {
        self.stop();
        self.found = None;
        let until = self.until();
        let message = Message::Listen(Listen {
            topic: &self.topic,
            after,
            follow: false,
            bytes: 0,
            records: 0,
            key: None,
            prefix: None,
            kinds: 0,
            reset_earliest: false,
            query: ListenQuery::default(),
        });
        let link = &self.remote.link;
        let tag = link.begin(&message, until)?;
        let received = link.receive(tag, until);
        link.add(tag, &Message::Unlisten);
        link.forget(tag);
        match received? {
            Received::Packet(bytes) => match packet_of(&bytes)?.message {
                Message::Listening { position, .. } => {
                    self.next = position;
                    Ok(())
                }
                _ => Err(other(&bytes)),
            },
            Received::Lost => self.seek_to(after),
            Received::Nothing => Err(late()),
        }
    }

    pub(crate) fn last(&self) -> Result<ConsequenceOffset, StoreError> {
        let info = self.remote.topic(&self.topic)?;
        Ok(info.map_or(ConsequenceOffset::ZERO, |info| info.last))
    }

    fn until(&self) -> Option<Instant> {
        Instant::now().checked_add(self.remote.options.patience)
    }

    fn stop(&mut self) {
        if let Some(asked) = self.asked.take() {
            let link = &self.remote.link;
            link.add(asked.tag, &Message::Unlisten);
            link.forget(asked.tag);
        }
    }

    fn start(&mut self, follow: bool, until: Option<Instant>) -> Result<(), StoreError> {
        self.stop();
        let message = Message::Listen(Listen {
            topic: &self.topic,
            after: After::Offset(self.next - 1),
            follow,
            bytes: CREDIT_BYTES,
            records: CREDIT_RECORDS,
            key: None,
            prefix: None,
            kinds: self.asking.kinds(),
            reset_earliest: self.earliest,
            query: self.asking.query(follow),
        });
        let tag = self.remote.link.begin(&message, until)?;
        self.asked = Some(Asked {
            tag,
            follow,
            bytes: 0,
            records: 0,
        });
        Ok(())
    }

    /// The next records, or `None` when there is none yet. Waits for the
    /// server, never for a record.
    pub(crate) fn next_page(&mut self) -> Result<Option<Page>, StoreError> {
        if let Some(page) = self.found.take() {
            return Ok(Some(page));
        }
        if self.fault.is_some() {
            return Ok(None);
        }
        if self.asked.is_none() {
            self.start(self.asking.marks, self.until())?;
        }
        let follows = self.asked.as_ref().is_some_and(|asked| asked.follow);
        // One that follows has sent what there is, or is about to.
        let until = if follows {
            Some(Instant::now())
        } else {
            self.until()
        };
        match self.fetch(until)? {
            Fetched::Page(page) => Ok(Some(page)),
            Fetched::End => Ok(None),
            Fetched::Nothing if follows => Ok(None),
            Fetched::Nothing => Err(late()),
        }
    }

    /// Waits for a record that was not read yet. Returns whether there is one.
    pub(crate) fn wait(&mut self, deadline: Option<Instant>) -> Result<bool, StoreError> {
        if self.found.is_some() || self.fault.is_some() {
            return Ok(true);
        }
        loop {
            if self.asked.is_none() {
                self.start(true, deadline)?;
            }
            match self.fetch(deadline)? {
                Fetched::Page(page) => {
                    self.found = Some(page);
                    return Ok(true);
                }
                Fetched::End if self.fault.is_some() => return Ok(true),
                Fetched::End => {}
                Fetched::Nothing => return Ok(false),
            }
        }
    }

    /// The next page of what was asked. Asks again behind what was read when
    /// the connection broke.
    fn fetch(&mut self, until: Option<Instant>) -> Result<Fetched, StoreError> {
        loop {
            let Some(asked) = &self.asked else {
                return Ok(Fetched::End);
            };
            let (tag, follow) = (asked.tag, asked.follow);
            let bytes = match self.remote.link.receive(tag, until)? {
                Received::Packet(bytes) => Bytes::from(bytes),
                Received::Nothing => return Ok(Fetched::Nothing),
                Received::Lost => {
                    self.asked = None;
                    self.start(follow, self.until())?;
                    continue;
                }
            };
            match packet_of(&bytes)?.message {
                Message::Records { from, page, .. } => {
                    let from = from.max(self.next);
                    let read = Page::read_from(&bytes.slice_ref(page), from)?;
                    self.credit(page.len() as u64, read.len() as u64);
                    if read.last().0 < self.next {
                        continue;
                    }
                    self.next = read.last().0.saturating_add(1);
                    if let Some(limit) = &mut self.asking.limit {
                        *limit = limit.saturating_sub(read.iter().count() as u64);
                    }
                    return Ok(Fetched::Page(read));
                }
                Message::Progress { position } => self.next = self.next.max(position),
                Message::End { position } => {
                    self.next = self.next.max(position);
                    self.remote.link.forget(tag);
                    self.asked = None;
                    return Ok(Fetched::End);
                }
                Message::Skipped { count } => self.skipped += count,
                Message::Refusal(refusal) => {
                    let code = refusal.code();
                    if let (Some(code), Some(record)) = (code, refusal.record) {
                        let byte = refusal.byte;
                        self.fault = Some(Fault { code, record, byte });
                    }
                    self.remote.link.forget(tag);
                    self.asked = None;
                    if refusal.code() == Some(ErrorCode::Draining) {
                        self.start(follow, self.until())?;
                        continue;
                    }
                    if self.fault.is_some() {
                        return Ok(Fetched::End);
                    }
                    return Err(refused(&refusal));
                }
                _ => {}
            }
        }
    }

    /// Fills the credit up when half of it is used.
    fn credit(&mut self, bytes: u64, records: u64) {
        let Some(asked) = &mut self.asked else { return };
        asked.bytes += bytes;
        asked.records += records;
        if asked.bytes >= CREDIT_BYTES / 2 || asked.records >= CREDIT_RECORDS / 2 {
            let more = Message::Credit {
                bytes: asked.bytes,
                records: asked.records,
            };
            asked.bytes = 0;
            asked.records = 0;
            self.remote.link.add(asked.tag, &more);
        }
    }
}

enum Fetched {
    Page(Page),
    /// Everything that there is was read.
    End,
    /// Nothing in time.
    Nothing,
}
