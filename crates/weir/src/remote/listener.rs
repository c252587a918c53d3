//! Reads the records of a topic from a server, page by page.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use weir_core::{ConsequenceOffset, IntentionOffset};
use weir_protocol::{After, Listen, ListenQuery, Message, Packet};
use weir_store::{Page, StoreError, key_after};

use super::link::{Link, PendingRequest, Received, packet_of};
use super::pause::BackOff;
use super::pushdown::{Fault, PushdownRequest};
use super::{Remote, error_of, refused};

/// Bytes of pages that may be in transit.
const CREDIT_BYTES: u64 = 1 << 20;
/// Records that may be in transit.
const CREDIT_RECORDS: u64 = 1 << 20;

/// Number of connections in a row that end with a refusal, before the request is answered, until the
/// request fails with that refusal. The refusal names no request, and any other request ends at most
/// two connections.
const ENDED_CONNECTIONS_MAX: u32 = 3;

/// Reads the records of one topic; see [`crate::TopicReader`].
#[derive(Debug)]
pub(crate) struct Listener {
    remote: Arc<Remote>,
    topic: Box<str>,
    /// Offset at which the next page starts.
    next: u64,
    /// For a listener to latest values: the key at which it continues.
    key: Option<Vec<u8>>,
    /// The request in progress.
    listening: Option<Listening>,
    /// A page that a wait has received.
    found: Option<Page>,
    /// Whether to continue at the first remaining record if the next ones were removed.
    earliest: bool,
    /// The request of a query.
    pushdown: PushdownRequest,
    /// The number of values that were not JSON and that the server skipped.
    skipped: u64,
    /// Skipped values before the next page. They are added to `skipped` when that page arrives.
    unreported_skips: u64,
    /// The error at which a query stopped.
    fault: Option<Fault>,
    /// The pause after the server refused the request for now.
    retry_pause: Option<RetryPause>,
    /// The newest refusal for now.
    refusal: Option<StoreError>,
    /// When the first call began to wait for the response that is due.
    response_due_since: Option<Instant>,
    /// Connections that ended with a refusal since the newest packet for the request.
    ended_connections: u32,
}

/// The result of a read.
pub(crate) enum Next {
    Page(Page),
    /// There are no more records, or none yet for a listener that follows.
    End,
    /// Nothing arrived before the deadline of the call.
    Late,
}

/// The pause before a refused request is sent again.
#[derive(Clone, Copy, Debug)]
struct RetryPause {
    /// When the first refusal arrived; reset when the request is accepted.
    since: Instant,
    /// When to send the request again; `None`: it was sent.
    until: Option<Instant>,
    follow: bool,
    backoff: BackOff,
}

#[derive(Debug)]
struct Listening {
    request: PendingRequest,
    /// Whether the listener waits for new records at the end of the topic.
    follow: bool,
    /// Bytes and records received since the last credit was sent.
    bytes: u64,
    records: u64,
}

/// Ends a listener at the server, also if the task that waits for it is cancelled.
struct EndOnDrop<'a> {
    link: &'a Link,
    tag: u64,
}

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.link.add(self.tag, &Message::Unlisten);
    }
}

impl Clone for Listener {
    /// Continues at the same position with a separate request.
    fn clone(&self) -> Self {
        Self {
            remote: Arc::clone(&self.remote),
            topic: self.topic.clone(),
            next: self.next,
            key: self.key.clone(),
            listening: None,
            found: self.found.clone(),
            earliest: self.earliest,
            pushdown: self.pushdown.clone(),
            skipped: self.skipped,
            unreported_skips: 0,
            fault: self.fault,
            retry_pause: None,
            refusal: None,
            response_due_since: None,
            ended_connections: 0,
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
            key: None,
            listening: None,
            found: None,
            earliest: false,
            pushdown: PushdownRequest::default(),
            skipped: 0,
            unreported_skips: 0,
            fault: None,
            retry_pause: None,
            refusal: None,
            response_due_since: None,
            ended_connections: 0,
        }
    }

    /// If the next records were removed, the listener continues at the earliest remaining record.
    pub(crate) fn or_earliest(mut self) -> Self {
        self.earliest = true;
        self
    }

    /// Reads the current value of each key instead of the records, from a key on (empty: the first
    /// one), one page per value. Ends after the last key.
    pub(crate) fn latest(mut self, pushdown: PushdownRequest, from: &[u8]) -> Self {
        self.key = Some(from.into());
        self.pushdown = pushdown;
        self
    }

    /// The key at which the latest values continue.
    pub(crate) fn key(&self) -> &[u8] {
        self.key.as_deref().unwrap_or_default()
    }

    /// Continues at another key.
    pub(crate) fn seek_key(&mut self, from: &[u8]) {
        self.stop();
        self.key = Some(from.into());
    }

    /// Sends the request of a query in advance.
    pub(crate) fn prepare(&mut self, pushdown: PushdownRequest) -> Result<(), StoreError> {
        self.pushdown = pushdown;
        self.start(self.pushdown.marks)
    }

    /// The number of values that were not JSON and that the server skipped.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The record at which a query stopped.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// The intention up to which everything was read, if nothing is left to read.
    pub(crate) fn mark(&self) -> Option<IntentionOffset> {
        let listening = self.listening.as_ref().filter(|_| self.found.is_none())?;
        self.remote
            .link
            .mark(listening.request.tag)
            .map(IntentionOffset)
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

    /// Requests the offset of a position from the server, and moves there.
    pub(crate) async fn seek_to(&mut self, after: After) -> Result<(), StoreError> {
        self.stop();
        self.found = None;
        let until = self.until();
        let mut backoff = BackOff::default();
        while !self.try_seek(after, until, &mut backoff).await? {}
        Ok(())
    }

    async fn try_seek(
        &mut self,
        after: After,
        until: Option<Instant>,
        backoff: &mut BackOff,
    ) -> Result<bool, StoreError> {
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
        let request = link.begin(&message, self.remote.options.consistency)?;
        let tag = request.tag;
        let ending = EndOnDrop { link, tag };
        let received = link.receive(tag, until).await;
        drop(ending);
        match received? {
            Received::Packet(bytes) => {
                let packet = packet_of(&bytes)?;
                if let Message::Listening { position, .. } = packet.message {
                    // Offsets begin at 1, also if a server reports 0.
                    self.next = position.max(1);
                    return Ok(true);
                }
                match backoff.of(&packet, until) {
                    Some(pause) => link.sleep(pause).await.map(|()| false),
                    None => Err(error_of(&bytes)),
                }
            }
            Received::Lost => Ok(false),
            Received::Nothing => Err(self.remote.link.deadline_error()),
        }
    }

    pub(crate) async fn last(&self) -> Result<ConsequenceOffset, StoreError> {
        let info = self.remote.topic(&self.topic).await?;
        Ok(info.map_or(ConsequenceOffset::ZERO, |info| info.last))
    }

    fn until(&self) -> Option<Instant> {
        self.remote.until()
    }

    fn stop(&mut self) {
        self.retry_pause = None;
        if let Some(listening) = self.listening.take() {
            let link = &self.remote.link;
            link.add(listening.request.tag, &Message::Unlisten);
        }
    }

    /// Waits until the request may be sent again. Returns `false` if that is after `until`.
    async fn wait_for_retry(&mut self, until: Option<Instant>) -> Result<bool, StoreError> {
        let Some(retry_pause) = self.retry_pause else {
            return Ok(true);
        };
        let Some(time) = retry_pause.until else {
            return Ok(true);
        };
        let to = until.map_or(time, |until| until.min(time));
        let left = to.saturating_duration_since(Instant::now());
        self.remote.link.sleep(left).await?;
        if to < time {
            return Ok(false);
        }
        self.start(retry_pause.follow)?;
        let until = None;
        self.retry_pause = Some(RetryPause {
            until,
            ..retry_pause
        });
        Ok(true)
    }

    /// The error of a listener that received no records in time. A refusal is more precise.
    fn deadline_error(&mut self) -> StoreError {
        let refusal = self.refusal.take().filter(|_| self.retry_pause.is_some());
        refusal.unwrap_or_else(|| self.remote.link.deadline_error())
    }

    /// Notes a refusal for now. Returns `false` if the refusal is final.
    fn refused_for_now(&mut self, answer: &Packet<'_>, follow: bool) -> bool {
        let retry_pause = self.retry_pause.get_or_insert_with(|| RetryPause {
            since: Instant::now(),
            until: None,
            follow,
            backoff: BackOff::of_request(self.pushdown.until.is_some()),
        });
        let end = retry_pause.since.checked_add(self.remote.patience);
        let pause = retry_pause.backoff.of(answer, end);
        retry_pause.until = pause.and_then(|pause| Instant::now().checked_add(pause));
        if retry_pause.until.is_none() {
            self.retry_pause = None;
        }
        self.retry_pause.is_some()
    }

    /// Ends the request, because its connection is lost. Fails if that happened
    /// [`ENDED_CONNECTIONS_MAX`] times in a row with a refusal that may be of this request.
    fn lost(&mut self, tag: u64) -> Result<(), StoreError> {
        let refusal = self.remote.link.refusal_of(tag);
        self.listening = None;
        self.unreported_skips = 0;
        let Some(refusal) = refusal else {
            self.ended_connections = 0;
            return Ok(());
        };
        self.ended_connections += 1;
        if self.ended_connections < ENDED_CONNECTIONS_MAX {
            return Ok(());
        }
        self.ended_connections = 0;
        Err(refusal.to_store_error())
    }

    fn start(&mut self, follow: bool) -> Result<(), StoreError> {
        self.stop();
        let message = Message::Listen(Listen {
            topic: &self.topic,
            after: match &self.key {
                Some(_) => After::Latest,
                None => After::Offset(self.next - 1),
            },
            follow,
            bytes: CREDIT_BYTES,
            records: CREDIT_RECORDS,
            key: None,
            prefix: None,
            kinds: self.pushdown.kinds(),
            reset_earliest: self.earliest,
            query: self.pushdown.query(follow, self.key()),
        });
        let consistency = self.remote.options.consistency;
        let request = self.remote.link.begin(&message, consistency)?;
        self.listening = Some(Listening {
            request,
            follow,
            bytes: 0,
            records: 0,
        });
        Ok(())
    }

    /// Returns the next records; `None` if there is none yet. Waits for the server, never for a new
    /// record.
    pub(crate) async fn next_page(&mut self) -> Result<Option<Page>, StoreError> {
        match self.next_by(None).await? {
            Next::Page(page) => Ok(Some(page)),
            Next::End | Next::Late => Ok(None),
        }
    }

    /// Returns the next records. Waits until `deadline` at most.
    ///
    /// # Errors
    /// `Deadline` if the server does not respond within the patience, which counts across calls.
    pub(crate) async fn next_by(&mut self, deadline: Option<Instant>) -> Result<Next, StoreError> {
        if let Some(page) = self.found.take() {
            return Ok(Next::Page(page));
        }
        if self.fault.is_some() {
            return Ok(Next::End);
        }
        if self.listening.is_none() && self.retry_pause.is_none() {
            self.start(self.pushdown.marks)?;
        }
        let follows = self
            .retry_pause
            .is_some_and(|retry_pause| retry_pause.follow)
            || self
                .listening
                .as_ref()
                .is_some_and(|listening| listening.follow);
        let now = Instant::now();
        // A server sends existing records to a listener that follows without further requests.
        let end = if follows {
            Some(now)
        } else {
            self.response_due_since
                .get_or_insert(now)
                .checked_add(self.remote.patience)
        };
        let until = match (deadline, end) {
            (Some(deadline), Some(end)) => Some(deadline.min(end)),
            (deadline, end) => deadline.or(end),
        };
        let fetched = self.fetch(until).await;
        let over = end.is_some_and(|end| end <= Instant::now());
        if !matches!(fetched, Ok(Fetched::Nothing)) || over {
            self.response_due_since = None;
        }
        match fetched? {
            Fetched::Page(page) => Ok(Next::Page(page)),
            Fetched::End => Ok(Next::End),
            Fetched::Nothing if follows => Ok(Next::End),
            Fetched::Nothing if over => Err(self.deadline_error()),
            Fetched::Nothing => Ok(Next::Late),
        }
    }

    /// Returns a page only if one has already arrived.
    pub(crate) async fn next_ready(&mut self) -> Result<Next, StoreError> {
        if self.fault.is_some() || self.listening.is_none() {
            return Ok(Next::Late);
        }
        Ok(match self.fetch(Some(Instant::now())).await? {
            Fetched::Page(page) => Next::Page(page),
            Fetched::End => Next::End,
            Fetched::Nothing => Next::Late,
        })
    }

    /// Returns the next records. Waits for one without a limit.
    pub(crate) async fn next_or_wait(&mut self) -> Result<Option<Page>, StoreError> {
        self.wait(None).await?;
        Ok(self.found.take())
    }

    /// Waits for a record that was not read yet. Returns whether there is one.
    pub(crate) async fn wait(&mut self, deadline: Option<Instant>) -> Result<bool, StoreError> {
        if self.found.is_some() || self.fault.is_some() {
            return Ok(true);
        }
        loop {
            if self.listening.is_none() && self.retry_pause.is_none() {
                self.start(true)?;
            }
            match self.fetch(deadline).await? {
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

    /// Returns the next page of the request. Sends the request again, after the last record that
    /// was read, if the connection broke. Waits for a packet until `until` at most, and then reads
    /// packets that have arrived for the patience at most.
    async fn fetch(&mut self, until: Option<Instant>) -> Result<Fetched, StoreError> {
        // A server must not extend the call by packets without records.
        let end = until.map(|until| until.max(Instant::now()));
        let end = end.and_then(|end| end.checked_add(self.remote.patience));
        loop {
            if end.is_some_and(|end| end < Instant::now()) {
                return Ok(Fetched::Nothing);
            }
            if !self.wait_for_retry(until).await? {
                return Ok(Fetched::Nothing);
            }
            let Some(listening) = &self.listening else {
                return Ok(Fetched::End);
            };
            let (tag, follow) = (listening.request.tag, listening.follow);
            let bytes = match self.remote.link.receive(tag, until).await? {
                Received::Packet(bytes) => Bytes::from(bytes),
                Received::Nothing => return Ok(Fetched::Nothing),
                Received::Lost => {
                    self.lost(tag)?;
                    self.start(follow)?;
                    continue;
                }
            };
            self.ended_connections = 0;
            let packet = packet_of(&bytes)?;
            match packet.message {
                Message::Records { replay, page, .. } if self.key.is_some() => {
                    let read = Page::read_from(&bytes.slice_ref(page), 0)?;
                    self.credit(page.len() as u64, 1);
                    // An older server continues with new records.
                    if !replay {
                        self.stop();
                        return Ok(Fetched::End);
                    }
                    let first = read.iter().next().transpose()?;
                    let Some(first) = first.filter(|first| first.key >= self.key()) else {
                        continue;
                    };
                    self.key = Some(key_after(first.key));
                    if let Some(limit) = &mut self.pushdown.limit {
                        *limit = limit.saturating_sub(1);
                    }
                    return Ok(Fetched::Page(read));
                }
                Message::Records { from, page, .. } => {
                    let from = from.max(self.next);
                    let read = Page::read_from(&bytes.slice_ref(page), from)?;
                    self.credit(page.len() as u64, read.len() as u64);
                    if read.last().0 < self.next {
                        continue;
                    }
                    self.next = read.last().0.saturating_add(1);
                    self.report_skips();
                    if let Some(limit) = &mut self.pushdown.limit {
                        *limit = limit.saturating_sub(read.iter().count() as u64);
                    }
                    return Ok(Fetched::Page(read));
                }
                Message::Progress { position } => {
                    self.next = self.next.max(position);
                    self.report_skips();
                }
                Message::End { position } => {
                    self.next = self.next.max(position);
                    self.report_skips();
                    self.listening = None;
                    return Ok(Fetched::End);
                }
                // The server has accepted the request: earlier refusals do not count.
                Message::Listening { .. } => self.retry_pause = None,
                // Skipped latest values are before the page that was received last. Other skipped
                // values are before the next page.
                Message::Skipped { count } => {
                    let skips = &mut self.unreported_skips;
                    *skips = skips.saturating_add(count);
                    if self.key.is_some() {
                        self.report_skips();
                    }
                }
                Message::Refusal(refusal) => {
                    let code = refusal.code();
                    if self.pushdown.query_part.is_some()
                        && let (Some(code), Some(record)) = (code, refusal.record)
                    {
                        let byte = refusal.byte;
                        self.fault = Some(Fault { code, record, byte });
                    }
                    self.listening = None;
                    if self.refused_for_now(&packet, follow) {
                        self.refusal = Some(refused(&refusal));
                        // The next request returns the values again.
                        self.unreported_skips = 0;
                        continue;
                    }
                    if self.fault.is_some() {
                        self.report_skips();
                        return Ok(Fetched::End);
                    }
                    return Err(refused(&refusal));
                }
                _ => {}
            }
        }
    }

    /// Adds the skipped values before the position of the listener.
    fn report_skips(&mut self) {
        let skips = std::mem::take(&mut self.unreported_skips);
        self.skipped = self.skipped.saturating_add(skips);
    }

    /// Sends more credit when half of it is used.
    fn credit(&mut self, bytes: u64, records: u64) {
        let Some(listening) = &mut self.listening else {
            return;
        };
        listening.bytes += bytes;
        listening.records += records;
        if listening.bytes >= CREDIT_BYTES / 2 || listening.records >= CREDIT_RECORDS / 2 {
            let more = Message::Credit {
                bytes: listening.bytes,
                records: listening.records,
            };
            listening.bytes = 0;
            listening.records = 0;
            self.remote.link.add(listening.request.tag, &more);
        }
    }
}

enum Fetched {
    Page(Page),
    /// The listener has read all records.
    End,
    /// Nothing arrived in time.
    Nothing,
}
