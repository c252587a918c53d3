//! The listeners of a connection: their positions and their credit.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::sync::Semaphore;
use weir_core::{ConsequenceOffset, ErrorCode, Record};
use weir_protocol::{
    After, Encoder, LISTENERS_BYTES_MAX, LISTENERS_MAX, Listen, ListenQuery, Message,
    PROGRESS_RECORDS, Packet, PushdownQuery,
};
use weir_store::{Changed, Page, PageBuilder, Store, StoreError, TopicReader, key_after};

use super::buffer::Outgoing;
use super::fetch::{Fetch, Fetched, KeyLookup};
use super::marks::ProgressMarks;
use super::pushdown::{Ending, Filter, FilterResult, LatestKeys, Pushdown};
use super::refuse::{self, Refused};
use crate::limits::BLOCK_BYTES_FREE;
use crate::limits::admission::LISTENERS_USED_UP;
use crate::limits::budget::{BudgetExhausted, Reservation, ShareKey};
use crate::shared::Shared;

/// Pages that a filter scans in one turn of a listener.
const TURN_PAGES: usize = 16;
/// Pages that all listeners of a connection scan before this connection and others run again.
const SEND_PAGES: usize = 64;
/// Cost of sending looked-up keys, counted in pages.
const REPLAY_PAGES: usize = 16;

/// Bytes of memory for each byte of a query: a parsed query is larger than its text.
const QUERY_MEMORY: usize = 16;

/// The latest values that a `latest` listener gets before new records.
#[derive(Debug)]
struct Replay {
    prefix: Box<[u8]>,
    /// Keys below this one were sent.
    from: Vec<u8>,
    /// Records after this offset arrive as new records.
    upto: u64,
    /// Keys that a query accepted and that are not sent yet.
    ready: Option<LatestKeys>,
}

#[derive(Debug)]
struct Listener {
    /// A number that is unique among all listeners of the connection, including ended ones.
    number: u64,
    tag: Box<[u8]>,
    topic: Box<str>,
    texts: Texts,
    reader: TopicReader,
    /// Credit in bytes; negative by at most one page.
    bytes: i64,
    records: i64,
    follow: bool,
    filter: Option<Filter>,
    /// The query part of the listener; `None` while a fetch owns it.
    pushdown: Option<Box<Pushdown>>,
    has_query: bool,
    /// Records that were found and not sent yet.
    found: Option<Box<FilterResult>>,
    replay: Option<Replay>,
    /// Records that were omitted since the last page or mark.
    skipped: u64,
    /// The wait for new records at the end of the topic.
    changed: Option<Changed>,
    /// Whether the listener wants marks.
    marks: bool,
}

/// The texts of a request that its listener keeps, in bytes.
#[derive(Clone, Copy, Debug)]
struct Texts {
    /// The topic and the keys.
    names: usize,
    /// The parts of the query.
    query: usize,
}

impl Texts {
    fn bytes(self) -> usize {
        self.names + self.query
    }

    /// Bytes of memory that the listener needs for them.
    fn memory(self) -> usize {
        self.names + self.query * QUERY_MEMORY
    }
}

/// Result of a listener's turn.
enum Turn {
    /// The listener waits for an event.
    Waits,
    /// There may be more to send.
    More,
    /// A page of this many bytes had no memory; it is fetched again.
    NeedsMemory(usize),
    /// The listener has ended.
    Ends,
}

/// Maximum number of bytes of a packet around its page.
pub(super) const PACKET_HEAD_BYTES: usize = 1 << 10;

/// All listeners of a connection.
#[derive(Debug)]
pub(super) struct Listeners {
    list: Vec<Listener>,
    /// Index of the listener that sends next.
    next: usize,
    page: Vec<u8>,
    /// There is more to scan; the turn ended only to let other connections run.
    must_yield: bool,
    /// Bytes of the page that had no memory.
    needed_bytes: usize,
    /// Number of the newest listener.
    newest: u64,
    fetch: Fetch,
    marks: ProgressMarks,
    /// Covers the texts of all listeners.
    reservation: Reservation,
}

impl Listeners {
    pub(super) fn new(filters: Arc<Semaphore>, shared: &Shared) -> Self {
        Self {
            list: Vec::new(),
            next: 0,
            page: Vec::new(),
            must_yield: false,
            needed_bytes: 0,
            newest: 0,
            fetch: Fetch::new(
                filters,
                shared.readers.clone(),
                shared.admission.answers.clone(),
            ),
            marks: ProgressMarks::default(),
            reservation: Reservation::new(&shared.admission.listeners),
        }
    }

    /// Limits the memory of pages to the share of a principal.
    pub(super) fn set_share(&mut self, share: Option<ShareKey>) {
        self.fetch.set_share(share);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Removes the listeners of topics for which `is_removed` is true; returns their tags.
    pub(super) fn remove_topics(&mut self, is_removed: impl Fn(&str) -> bool) -> Vec<Box<[u8]>> {
        let ended = self
            .list
            .extract_if(.., |listener| is_removed(&listener.topic));
        let fetch = &mut self.fetch;
        let tags = ended
            .map(|listener| {
                fetch.cancel(listener.number);
                listener.tag
            })
            .collect();
        self.release();
        tags
    }

    pub(super) fn has(&self, tag: &[u8]) -> bool {
        self.list.iter().any(|listener| *listener.tag == *tag)
    }

    /// Bytes of memory for the texts of all listeners.
    fn memory(&self) -> usize {
        self.list
            .iter()
            .map(|listener| listener.texts.memory())
            .sum()
    }

    /// Releases the memory of listeners that have ended.
    fn release(&mut self) {
        let bytes = self.memory();
        self.reservation.shrink(bytes);
    }

    /// Checks the limits of the connection for one more listener. Returns its texts.
    fn check_limits(&self, listen: &Listen<'_>) -> Result<Texts, Refused> {
        let too_large = |text: &str, limit: usize| {
            let mut refused = Refused::new(ErrorCode::TooLarge, text);
            refused.message.limit = Some(limit as u64);
            Err(refused)
        };
        if self.list.len() >= LISTENERS_MAX {
            return too_large("too many listeners", LISTENERS_MAX);
        }
        let texts = texts(listen);
        let others = self.list.iter().map(|listener| listener.texts.bytes());
        if others.sum::<usize>() + texts.bytes() > LISTENERS_BYTES_MAX {
            let text = "the keys and queries of all listeners are too long";
            return too_large(text, LISTENERS_BYTES_MAX);
        }
        Ok(texts)
    }

    /// Adds a listener. Returns the response, which has its position. `start` is the position for
    /// a start time.
    pub(super) fn add(
        &mut self,
        store: &Store,
        tag: &[u8],
        listen: &Listen<'_>,
        start: Option<ConsequenceOffset>,
    ) -> Result<Message<'static>, Refused> {
        let texts = self.check_limits(listen)?;
        if !self.reservation.try_cover(self.memory() + texts.memory()) {
            return Err(Refused::exhausted(BudgetExhausted {
                text: LISTENERS_USED_UP,
                limit: self.fetch.budget().max(),
            }));
        }
        let added = self.add_reserved(store, tag, listen, texts, start);
        // The listener may have been refused.
        self.release();
        added
    }

    fn add_reserved(
        &mut self,
        store: &Store,
        tag: &[u8],
        listen: &Listen<'_>,
        texts: Texts,
        start: Option<ConsequenceOffset>,
    ) -> Result<Message<'static>, Refused> {
        check_latest(listen)?;
        let info = store.topic(listen.topic);
        let (first, last) = info.as_ref().map_or((0, 0), |i| (i.first.0, i.last.0));
        let mut after = listen.after;
        if let After::Offset(offset) = after {
            // Compaction leaves gaps that are readable; records that retention removed are not.
            let last_removed = store.removed(listen.topic).0;
            let removed = offset != 0 && offset < last_removed;
            if removed && listen.reset_earliest {
                after = After::Offset(0);
            } else if removed {
                let mut refused = Refused::plain(ErrorCode::Gone);
                refused.message.first = Some(first.max(last_removed.saturating_add(1)));
                refused.message.last = Some(last);
                return Err(refused);
            }
        }
        let mut reader = store.listen(listen.topic, ConsequenceOffset::ZERO);
        if listen.reset_earliest {
            reader = reader.or_earliest();
        }
        let mut replay = None;
        match after {
            After::Offset(offset) => reader.seek(ConsequenceOffset(offset)),
            After::Tail => reader.seek(reader.last()),
            After::Last(n) => reader.seek_last(n),
            After::Time(_) => reader.seek(start.unwrap_or_default()),
            After::Latest => {
                reader.seek(ConsequenceOffset(last));
                // Without `follow`, no new records arrive later, so no key may be omitted.
                let upto = if listen.follow { last } else { u64::MAX };
                replay = (last != 0).then(|| Replay {
                    prefix: listen.prefix.unwrap_or_default().into(),
                    from: listen.query.from.unwrap_or_default().into(),
                    upto,
                    ready: None,
                });
            }
        }
        let filtered = listen.key.is_some() || listen.prefix.is_some() || listen.kinds != 0;
        let filter = filtered.then(|| Filter {
            key: listen.key.map(Into::into),
            prefix: listen.prefix.map(Into::into),
            kinds: listen.kinds,
        });
        let (pushdown, filter) = match Pushdown::new(listen, filter)? {
            Ok(pushdown) => (Some(pushdown), None),
            Err(filter) => (None, filter),
        };
        let position = reader.position().0;
        self.newest += 1;
        self.list.push(Listener {
            number: self.newest,
            tag: tag.into(),
            topic: listen.topic.into(),
            texts,
            reader,
            bytes: clamp(listen.bytes),
            records: clamp(listen.records),
            follow: listen.follow,
            filter,
            has_query: pushdown.is_some(),
            pushdown,
            found: None,
            replay,
            skipped: 0,
            changed: None,
            marks: listen.query.marks,
        });
        self.marks.add_listener(listen.query.marks);
        Ok(Message::Listening {
            position,
            first,
            last,
        })
    }

    /// Adds to the credit of a listener, if it exists.
    pub(super) fn credit(&mut self, tag: &[u8], bytes: u64, records: u64) {
        if let Some(listener) = self.list.iter_mut().find(|listener| *listener.tag == *tag) {
            listener.bytes = listener.bytes.saturating_add(clamp(bytes));
            listener.records = listener.records.saturating_add(clamp(records));
        }
    }

    /// Removes a listener; returns its position.
    pub(super) fn remove(&mut self, tag: &[u8]) -> Option<u64> {
        let at = self.list.iter().position(|l| *l.tag == *tag)?;
        let listener = self.list.remove(at);
        self.fetch.cancel(listener.number);
        self.release();
        Some(listener.reader.position().0)
    }

    /// Ends all listeners: with END, or with a refusal.
    pub(super) fn end(
        &mut self,
        refused: Option<&Refused>,
        encoder: &mut Encoder,
        out: &mut Outgoing,
    ) {
        self.must_yield = false;
        self.needed_bytes = 0;
        self.fetch.reset();
        for listener in self.list.drain(..) {
            if let Some(refused) = refused {
                refused.encode(&listener.tag, encoder, &mut out.bytes);
                continue;
            }
            let position = listener.reader.position().0;
            let message = Message::End { position };
            encoder.encode(&Packet::tagged(&listener.tag, message), &mut out.bytes);
        }
        self.release();
    }

    /// Sends pages of the listeners in turn, until the send buffer is full. Returns whether there
    /// was any progress.
    pub(super) fn send(
        &mut self,
        store: &Arc<Store>,
        encoder: &mut Encoder,
        out: &mut Outgoing,
    ) -> bool {
        let mut progress = false;
        let mut waiting = 0;
        let mut left = SEND_PAGES;
        self.must_yield = false;
        let mark = self.marks.read_positions(store);
        if !out.reserve(self.needed_bytes) {
            self.fetch.drop_page();
            return false;
        }
        self.needed_bytes = 0;
        while waiting < self.list.len() && !out.is_high() && self.needed_bytes == 0 {
            if left == 0 {
                self.must_yield = true;
                break;
            }
            if self.next >= self.list.len() {
                self.next = 0;
            }
            let Some(listener) = self.list.get_mut(self.next) else {
                break;
            };
            let mut context = TurnContext {
                store,
                fetch: &mut self.fetch,
                scratch: &mut self.page,
                left: &mut left,
                encoder,
                out,
            };
            match listener.turn(&mut context) {
                Turn::NeedsMemory(bytes) => self.needed_bytes = bytes,
                Turn::Waits => {
                    waiting += 1;
                    self.next += 1;
                }
                Turn::More => {
                    progress = true;
                    waiting = 0;
                    self.next += 1;
                }
                Turn::Ends => {
                    progress = true;
                    let listener = self.list.remove(self.next);
                    self.fetch.cancel(listener.number);
                    self.release();
                }
            }
        }
        // A client that reads slowly gets fewer marks.
        if let Some(mark) = mark
            && !out.is_high()
            && self.marks.is_due(&mark, progress)
        {
            let marked = self.list.iter().filter(|listener| listener.marks);
            let lagging: Vec<&[u8]> = marked
                .clone()
                .filter(|listener| listener.reader.position() <= listener.reader.last())
                .map(|listener| &*listener.tag)
                .collect();
            let is_wanted = marked.count() > 0;
            progress |= self.marks.send(&mark, is_wanted, &lagging, encoder, out);
        }
        progress
    }

    /// Time of the next check for a mark, if any listener wants marks.
    pub(super) fn marks_due(&self) -> Option<Instant> {
        self.marks.next_check()
    }

    /// Whether a page waits for memory.
    pub(super) fn needs_memory(&self) -> bool {
        self.needed_bytes > 0
    }

    /// Drops a fetched page that cannot be sent now.
    pub(super) fn drop_fetched(&mut self) {
        self.fetch.drop_page();
    }

    /// Whether [`send`](Self::send) stopped only to let other connections run.
    pub(super) fn must_yield(&self) -> bool {
        self.must_yield
    }

    /// Whether a waiting listener has new records; otherwise wakes the task when one has.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut ready = self.fetch.poll(context).is_ready();
        for listener in &mut self.list {
            if let Some(changed) = &mut listener.changed
                && let Poll::Ready(more) = Pin::new(changed).poll(context)
            {
                listener.changed = None;
                // The store is closed: no more records will arrive.
                listener.follow &= more;
                ready = true;
            }
        }
        if ready {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

fn texts(listen: &Listen<'_>) -> Texts {
    let query = &listen.query;
    let keys = [listen.key, listen.prefix, query.from];
    let query_texts = query.pushdown.iter().flat_map(|query| {
        let PushdownQuery {
            filter,
            params,
            order,
            group,
            select,
            ..
        } = *query;
        [filter, params, order, group, select]
    });
    let keys = keys.into_iter().flatten().map(<[u8]>::len);
    Texts {
        names: listen.topic.len() + keys.sum::<usize>(),
        query: query_texts.map(<[u8]>::len).sum(),
    }
}

/// Refuses a query that `latest` does not support, or that only `latest` supports.
fn check_latest(listen: &Listen<'_>) -> Result<(), Refused> {
    let query = &listen.query;
    let text = match listen.after {
        After::Latest if *query == ListenQuery::default() => return Ok(()),
        After::Latest if listen.follow => "a query of the latest values cannot follow the topic",
        After::Latest if query.until.is_some() || query.marks => {
            "a listener of the latest values supports neither until nor marks"
        }
        After::Latest => return Ok(()),
        _ if query.from.is_some() => "only a listener of the latest values supports a start key",
        _ => return Ok(()),
    };
    Err(Refused::new(ErrorCode::BadOption, text))
}

fn clamp(credit: u64) -> i64 {
    i64::try_from(credit).unwrap_or(i64::MAX)
}

/// The next result of a reader.
enum Next {
    Page(Page),
    /// No record at present.
    End,
    /// A page for which this many bytes must be reserved first.
    NeedsMemory(usize),
}

/// The resources of a listener in its turn.
struct TurnContext<'a> {
    store: &'a Arc<Store>,
    fetch: &'a mut Fetch,
    /// Buffer for the page that is encoded.
    scratch: &'a mut Vec<u8>,
    /// Pages that may be scanned before other connections run.
    left: &'a mut usize,
    encoder: &'a mut Encoder,
    out: &'a mut Outgoing,
}

impl TurnContext<'_> {
    fn send(&mut self, tag: &[u8], message: Message<'_>) {
        let packet = Packet::tagged(tag, message);
        self.encoder.encode(&packet, &mut self.out.bytes);
    }
}

impl Listener {
    fn turn(&mut self, context: &mut TurnContext<'_>) -> Turn {
        if self.changed.is_some() || self.bytes <= 0 || self.records <= 0 {
            return Turn::Waits;
        }
        let turn = if self.replay.is_some() {
            self.replay(context)
        } else if self.has_query {
            self.send_filtered(context)
        } else {
            self.read(context)
        };
        turn.unwrap_or_else(|error| {
            let refused = refuse::of_store(&error);
            refused.encode(&self.tag, context.encoder, &mut context.out.bytes);
            Turn::Ends
        })
    }

    /// Returns the next page; `Pending` while it is fetched.
    fn next_page(&mut self, context: &mut TurnContext<'_>) -> Poll<Result<Next, StoreError>> {
        let next = |page: Option<Page>| page.map_or(Next::End, Next::Page);
        if let Some(fetched) = context.fetch.take_page(self.number) {
            return Poll::Ready(fetched.map(|fetched| match fetched {
                Fetched::NeedsMemory(bytes) => Next::NeedsMemory(bytes),
                Fetched::Page {
                    reader,
                    page,
                    reservation,
                } => {
                    self.reader = reader;
                    let bytes = page.as_ref().map_or(0, Page::wire_bytes);
                    context.out.set_reserved(bytes, reservation);
                    next(page)
                }
            }));
        }
        if let Poll::Ready(page) = self.reader.try_next_page() {
            return Poll::Ready(Ok(next(page)));
        }
        let reserved = context.out.reserved_bytes();
        context.fetch.page(self.number, &self.reader, reserved);
        Poll::Pending
    }

    fn read(&mut self, context: &mut TurnContext<'_>) -> Result<Turn, StoreError> {
        for _ in 0..TURN_PAGES {
            *context.left = context.left.saturating_sub(1);
            let before = ConsequenceOffset(self.reader.position().0.saturating_sub(1));
            let Poll::Ready(next) = self.next_page(context) else {
                return Ok(Turn::Waits);
            };
            let page = match next? {
                Next::Page(page) => Some(page),
                Next::End => None,
                Next::NeedsMemory(bytes) => return Ok(Turn::NeedsMemory(bytes)),
            };
            let Some(page) = page else {
                self.mark(self.skipped > 0, context);
                if self.follow {
                    self.changed = Some(self.reader.changed());
                    return Ok(Turn::Waits);
                }
                let position = self.reader.position().0;
                context.send(&self.tag, Message::End { position });
                return Ok(Turn::Ends);
            };
            let Some(filter) = &self.filter else {
                return Ok(self.send_page_or_seek_back(page, before, context));
            };
            let mut chosen = PageBuilder::default();
            for record in &page {
                let record = record?;
                if filter.matches(&record) {
                    chosen.push(&record);
                } else {
                    self.skipped += 1;
                }
            }
            if let Some(page) = chosen.take() {
                return Ok(self.send_page_or_seek_back(page, before, context));
            }
            self.mark(self.skipped >= PROGRESS_RECORDS, context);
        }
        Ok(Turn::More)
    }

    /// Sends records that match a query.
    fn send_filtered(&mut self, context: &mut TurnContext<'_>) -> Result<Turn, StoreError> {
        let ready = self.found.take().map(Ok);
        let Some(found) = ready.or_else(|| context.fetch.take_filtered(self.number)) else {
            let reserved = context.out.reserved_bytes();
            let fetch = &mut *context.fetch;
            fetch.filter(self.number, &self.reader, &mut self.pushdown, reserved);
            return Ok(Turn::Waits);
        };
        let mut found = found?;
        if let Ending::NeedsMemory(bytes) = found.ending {
            self.pushdown = Some(found.pushdown);
            // Large enough to count as a long page; a short page would need no reservation.
            return Ok(Turn::NeedsMemory(bytes + BLOCK_BYTES_FREE));
        }
        if let Some(page) = &found.page
            && found.reservation.is_held()
        {
            let bytes = page.wire_bytes();
            let rest = Reservation::new(&context.fetch.budget());
            let reservation = std::mem::replace(&mut found.reservation, rest);
            context.out.set_reserved(bytes, reservation);
        }
        // Sent before the page, so that a client with its records also has this count.
        let bad = std::mem::take(&mut found.bad);
        if bad > 0 {
            context.send(&self.tag, Message::Skipped { count: bad });
        }
        if let Some(page) = found.page.take()
            && let Err((bytes, page)) = self.send_page(page, false, context)
        {
            found.page = Some(page);
            self.found = Some(found);
            return Ok(Turn::NeedsMemory(bytes));
        }
        // Releases the memory that was reserved for filtering, and not for a long page.
        context.out.unreserve();
        self.reader = found.reader;
        self.pushdown = Some(found.pushdown);
        self.skipped += found.skipped;
        let position = self.reader.position().0;
        match found.ending {
            Ending::More | Ending::NeedsMemory(_) => {
                self.mark(self.skipped >= PROGRESS_RECORDS, context);
            }
            Ending::End => {
                self.mark(self.skipped > 0, context);
                if self.follow {
                    self.changed = Some(self.reader.changed());
                    return Ok(Turn::Waits);
                }
                context.send(&self.tag, Message::End { position });
                return Ok(Turn::Ends);
            }
            Ending::Complete => {
                context.send(&self.tag, Message::End { position });
                return Ok(Turn::Ends);
            }
            Ending::Fault(refused) => {
                refused.encode(&self.tag, context.encoder, &mut context.out.bytes);
                return Ok(Turn::Ends);
            }
        }
        Ok(Turn::More)
    }

    /// Sends a progress mark, if one is due.
    fn mark(&mut self, due: bool, context: &mut TurnContext<'_>) {
        if due {
            self.skipped = 0;
            let position = self.reader.position().0;
            context.send(&self.tag, Message::Progress { position });
        }
    }

    /// Sends a page, or seeks back to its start if there is no memory.
    fn send_page_or_seek_back(
        &mut self,
        page: Page,
        before: ConsequenceOffset,
        context: &mut TurnContext<'_>,
    ) -> Turn {
        match self.send_page(page, false, context) {
            Ok(()) => Turn::More,
            Err((bytes, _)) => {
                self.reader.seek(before);
                Turn::NeedsMemory(bytes)
            }
        }
    }

    /// Sends a page, or returns how many bytes it needs.
    fn send_page(
        &mut self,
        page: Page,
        replay: bool,
        context: &mut TurnContext<'_>,
    ) -> Result<(), (usize, Page)> {
        let (bytes, records) = (page.wire_bytes(), page.len());
        if !context.out.admit(bytes) {
            return Err((bytes, page));
        }
        let from = page.from();
        let mut scratch = std::mem::take(context.scratch);
        scratch.clear();
        if context.out.is_long(bytes) {
            // Exact, because a vector would double its size.
            scratch.reserve_exact(bytes);
        }
        page.write_to(&mut scratch);
        // Free the page before its bytes are copied again.
        drop(page);
        if context.out.is_long(bytes) {
            context.out.bytes.reserve_exact(bytes + PACKET_HEAD_BYTES);
        }
        let message = Message::Records {
            from,
            replay,
            page: &scratch,
        };
        context.send(&self.tag, message);
        self.skipped = 0;
        self.bytes -= clamp(scratch.len() as u64);
        self.records -= clamp(records as u64);
        // The buffer of one long record is not retained for the next page.
        scratch.clear();
        scratch.shrink_to(64 << 10);
        *context.scratch = scratch;
        Ok(())
    }

    /// Sends the next keys of a `latest` listener. Each one has a separate page, because offsets do
    /// not ascend with keys.
    fn replay(&mut self, context: &mut TurnContext<'_>) -> Result<Turn, StoreError> {
        let Some(replay) = &mut self.replay else {
            return Ok(Turn::More);
        };
        let ready = replay.ready.take().map(Ok);
        let Some(keys) = ready.or_else(|| context.fetch.take_keys(self.number)) else {
            let lookup = KeyLookup {
                budget: context.fetch.budget(),
                reserved: context.out.reserved_bytes(),
                store: Arc::clone(context.store),
                topic: self.topic.clone(),
                prefix: replay.prefix.clone(),
                from: replay.from.clone(),
                upto: replay.upto,
            };
            context.fetch.keys(self.number, lookup, &mut self.pushdown);
            return Ok(Turn::Waits);
        };
        *context.left = context.left.saturating_sub(REPLAY_PAGES);
        let mut keys = keys?;
        if keys.needed_bytes > 0 {
            self.pushdown = keys.pushdown;
            return Ok(Turn::NeedsMemory(keys.needed_bytes));
        }
        if let Some((bytes, reservation)) = keys.reservation.take() {
            context.out.set_reserved(bytes, reservation);
        }
        while let Some((key, page)) = keys.found.pop_front() {
            // Without credit, or if the send buffer is full, continues later after the previous
            // key. Keys that a query accepted are counted, so they are sent.
            let is_full = self.bytes <= 0 || self.records <= 0 || context.out.is_high();
            if is_full && !self.has_query {
                return Ok(Turn::More);
            }
            let matches = |record: &Record<'_>| {
                let filter = self.filter.as_ref();
                filter.is_none_or(|filter| filter.matches(record))
            };
            let first = match &page {
                Some(page) => page.iter().next().transpose()?,
                None => None,
            };
            let is_match = first.is_some_and(|record| matches(&record));
            match page.filter(|_| is_match) {
                Some(sent) => {
                    if let Err((bytes, page)) = self.send_page(sent, true, context) {
                        keys.found.push_front((key, Some(page)));
                        let replay = self.replay.as_mut().filter(|_| self.has_query);
                        if let Some(replay) = replay {
                            replay.ready = Some(keys);
                        }
                        return Ok(Turn::NeedsMemory(bytes));
                    }
                }
                None => self.skipped += u64::from(self.has_query),
            }
            if let Some(replay) = &mut self.replay {
                replay.from = key_after(&key);
            }
        }
        if keys.bad > 0 {
            context.send(&self.tag, Message::Skipped { count: keys.bad });
        }
        if let Some(refused) = keys.fault {
            refused.encode(&self.tag, context.encoder, &mut context.out.bytes);
            return Ok(Turn::Ends);
        }
        self.pushdown = keys.pushdown;
        if !keys.ends {
            // A client that waits for a rare match should see progress.
            self.mark(self.has_query && self.skipped >= PROGRESS_RECORDS, context);
        } else if self.has_query {
            let position = self.reader.position().0;
            context.send(&self.tag, Message::End { position });
            return Ok(Turn::Ends);
        } else {
            self.replay = None;
        }
        Ok(Turn::More)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use std::sync::Arc;

    use weir_protocol::{After, Encoder, Listen, ListenQuery};

    use super::{Listeners, Outgoing};
    use crate::config::ServerConfig;
    use crate::native::late;

    #[test]
    fn no_mark_is_added_to_a_full_send_buffer() {
        const FULL_BYTES: usize = 1 << 20;
        let folder = tempfile::tempdir().unwrap();
        late::run(async {
            let port = late::port(folder.path(), ServerConfig::default());
            let store = &port.shared.store;
            let mut listeners = Listeners::new(Arc::clone(&port.filters), &port.shared);
            let listen = Listen {
                topic: "t",
                after: After::Tail,
                follow: true,
                bytes: 1,
                records: 1,
                key: None,
                prefix: None,
                kinds: 0,
                reset_earliest: false,
                query: ListenQuery {
                    marks: true,
                    ..ListenQuery::default()
                },
            };
            listeners.add(store, b"l", &listen, None).unwrap();
            let mut encoder = Encoder::default();
            let mut out = Outgoing::new(port.shared.admission.answers.clone());
            out.bytes = vec![0; FULL_BYTES];
            assert!(out.is_high());
            listeners.send(store, &mut encoder, &mut out);
            assert_eq!(out.bytes.len(), FULL_BYTES);
            out.sent(FULL_BYTES);
            assert!(listeners.send(store, &mut encoder, &mut out));
            assert!(!out.is_empty());
        });
    }
}
