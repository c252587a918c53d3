//! Reads: one record, one key, keys in order, pages of records.
//!
//! A page ends behind a number of records or of bytes, whichever comes first,
//! but never before its first record. What lies in one block is read in place
//! if nothing has to be waited for; everything else on a thread that may block.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;
use weir_core::{Compaction, ConsequenceOffset, ErrorCode, Record, RecordKind};
use weir_store::{Current, Page, SCAN_KEYS_MAX, StoreError, TopicReader};

use super::accept;
use super::cloudevents;
use super::date;
use super::head::{Head, Known};
use super::limits::{
    INLINE_WORK_BYTES, LAG_SECONDS, PAGE_BYTES, PAGE_BYTES_MAX, PAGE_RECORDS, PAGE_RECORDS_MAX,
    WAIT_SECONDS_MAX, WINDOW_BYTES, WINDOW_RECORDS_MAX,
};
use super::meta::{Meta, Shape, shape};
use super::offload;
use super::problem::{self, Kind, Problem};
use super::query::encode;
use super::records::{Fields, Form, Writer, key_field};
use super::reply::{Body, Reply};
use super::route::Resource;
use super::service::{Call, Edge};
use super::write::Prefer;
use crate::room::Making;
use crate::shared::Phase;

/// Whatever somebody has put there, it runs as no page of this server.
pub(crate) const NO_PAGE: &str = "sandbox; default-src 'none'";

/// Bytes of records that a page with a filter looks through; behind them it
/// ends, with what it found, and says where to go on.
const LOOK_BYTES_MAX: usize = 64 << 20;

pub(crate) fn no_topic() -> Problem {
    Problem::new(Kind::NoTopic, ErrorCode::TopicUnknown.sentence()).code(ErrorCode::TopicUnknown)
}

fn store_error(error: &StoreError) -> Problem {
    problem::of_store(error)
}

/// Answers at once what needs no wait; `None` for everything else.
pub(crate) fn quick(edge: &Arc<Edge>, call: &Call) -> Option<Result<Reply, Problem>> {
    if call.head.method.writes() || call.head.has(Known::AcceptEncoding) {
        return None;
    }
    match call.matched.resource {
        Resource::Event => event_now(edge, call),
        Resource::Key if call.query.bytes("at-least").is_none() => key_now(edge, call),
        Resource::Healthz | Resource::Readyz => {
            Some(super::ops::get(edge, call, call.matched.resource))
        }
        _ => None,
    }
}

/// One record by its offset, if it can be had without waiting.
fn event_now(edge: &Edge, call: &Call) -> Option<Result<Reply, Problem>> {
    let offset = call.matched.offset;
    let before = ConsequenceOffset(offset - 1);
    let reader = edge.shared.store.read_now(&call.matched.topic, before);
    let mut reader = match reader {
        Poll::Ready(Ok(reader)) => reader,
        Poll::Ready(Err(error)) => return Some(Err(store_error(&error))),
        Poll::Pending => return None,
    };
    match reader.next_page_now() {
        Poll::Ready(page) => Some(found(call, page.as_ref(), offset, &reader)),
        Poll::Pending => None,
    }
}

/// The same on a thread that may wait.
pub(crate) async fn event(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    let offset = call.matched.offset;
    let (store, topic) = (Arc::clone(&edge.shared.store), call.matched.topic.clone());
    let (reader, page) = offload::run(move || {
        let reader = store.read(&topic, ConsequenceOffset(offset - 1));
        let mut reader = reader.map_err(|error| store_error(&error))?;
        let page = reader.next_page().map_err(|error| store_error(&error))?;
        Ok((reader, page))
    })
    .await?;
    large(page.as_ref(), || {
        found(call, page.as_ref(), offset, &reader)
    })
}

/// Does what copies a page; with a large one the thread's other work goes on
/// elsewhere.
fn large<T>(page: Option<&Page>, work: impl FnOnce() -> T) -> T {
    if page.is_some_and(|page| page.wire_bytes() > INLINE_WORK_BYTES) {
        offload::inline(work)
    } else {
        work()
    }
}

/// The record at this offset, if the page begins with it.
fn found(
    call: &Call,
    page: Option<&Page>,
    offset: u64,
    reader: &TopicReader,
) -> Result<Reply, Problem> {
    match page.map(first).transpose()?.flatten() {
        Some(record) if record.offset.0 == offset => payload(call, &record),
        _ => Err(
            Problem::new(Kind::NoRecord, ErrorCode::RecordAbsent.sentence())
                .code(ErrorCode::RecordAbsent)
                .number("first", reader.first().0)
                .number("last", reader.last().0),
        ),
    }
}

/// The first record of a page.
fn first(page: &Page) -> Result<Option<Record<'_>>, Problem> {
    page.iter()
        .next()
        .transpose()
        .map_err(|error| store_error(&error))
}

/// The current value of a key.
pub(crate) async fn key(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    at_least(edge, call).await?;
    if let Some(answer) = key_now(edge, call) {
        return answer;
    }
    let store = Arc::clone(&edge.shared.store);
    let (topic, key) = (call.matched.topic.clone(), call.matched.key.clone());
    let current = offload::run(move || {
        let page = store.get(&topic, &key);
        Ok(match page.map_err(|error| store_error(&error))? {
            Some(page) => Current::Record(page),
            None if store
                .standing(&topic)
                .is_some_and(|topic| topic.incarnation.is_some()) =>
            {
                Current::NoKey
            }
            None => Current::NoTopic,
        })
    })
    .await?;
    let page = match &current {
        Current::Record(page) => Some(page),
        _ => None,
    };
    large(page, || current_value(call, &current))
}

/// The same, if it can be had without waiting.
fn key_now(edge: &Edge, call: &Call) -> Option<Result<Reply, Problem>> {
    let checked = consistency(call).and_then(|()| call.query.number("wait", 0, WAIT_SECONDS_MAX));
    if let Err(problem) = checked {
        return Some(Err(problem));
    }
    let store = &edge.shared.store;
    match store.get_now(&call.matched.topic, &call.matched.key) {
        Poll::Ready(current) => Some(current_value(call, &current)),
        Poll::Pending => None,
    }
}

fn current_value(call: &Call, current: &Current) -> Result<Reply, Problem> {
    let no_key =
        || Problem::new(Kind::NoKey, ErrorCode::KeyAbsent.sentence()).code(ErrorCode::KeyAbsent);
    match current {
        Current::Record(page) => payload(call, &first(page)?.ok_or_else(no_key)?),
        Current::NoKey => Err(no_key()),
        Current::NoTopic => Err(no_topic()),
    }
}

/// There is one node, so every read sees everything that was answered.
fn consistency(call: &Call) -> Result<(), Problem> {
    call.query
        .word("consistency", &[("local", ()), ("linear", ())])
        .map(|_| ())
}

/// Waits until the topic has the offset that the reader asks for.
async fn at_least(edge: &Arc<Edge>, call: &Call) -> Result<(), Problem> {
    consistency(call)?;
    let wait = call.query.number("wait", 0, WAIT_SECONDS_MAX)?;
    let Some(offset) = call.query.number("at-least", 0, u64::MAX)? else {
        return Ok(());
    };
    let before = ConsequenceOffset(offset.saturating_sub(1));
    let reader = edge.shared.store.listen(&call.matched.topic, before);
    if offset == 0 || reader.last().0 >= offset {
        return Ok(());
    }
    let mut phase = edge.shared.phase.subscribe();
    let there = tokio::select! {
        there = reader.changed() => there,
        () = tokio::time::sleep(Duration::from_secs(wait.unwrap_or(LAG_SECONDS))) => false,
        _ = phase.wait_for(|phase| *phase >= Phase::Draining) => false,
    };
    if there {
        return Ok(());
    }
    let problem =
        Problem::new(Kind::Lagging, ErrorCode::Lagging.sentence()).code(ErrorCode::Lagging);
    Err(problem.number("last", reader.last().0))
}

/// A record whose payload is the body.
fn payload(call: &Call, record: &Record<'_>) -> Result<Reply, Problem> {
    let head = &call.head;
    let offset = record.offset.0;
    let letter = if record.key.is_empty() { 'o' } else { 'k' };
    let tag = format!("\"{letter}{offset}\"");
    let enveloped = call.matched.resource == Resource::Event
        && accept::names(head, "application/cloudevents+json");
    let mut reply = Reply::new(200);
    reply.add("etag", &tag);
    reply = reply
        .number("weir-offset", offset)
        .number("weir-intention", record.intention.0)
        .number("weir-time", record.time_ms);
    reply.add("weir-type", record.kind.name());
    if !record.key.is_empty() {
        let (name, value) = key_field(record.key);
        reply.add(name, value);
    }
    if !record.client.is_none() {
        reply.add("weir-client", record.client);
        reply = reply.number("weir-nonce", record.nonce);
    }
    reply.add("last-modified", date::http(record.time_ms / 1000));
    let fixed = call.matched.resource == Resource::Event;
    reply.add(
        "cache-control",
        if fixed {
            "private, max-age=31536000, immutable"
        } else {
            "no-cache"
        },
    );
    reply.add("accept-ranges", "bytes");
    reply.add("vary", "accept, accept-encoding");
    if call.query.word("as", &[("cloudevent", ())])?.is_some() {
        cloudevents::decorate(&call.matched.topic, record, &mut reply);
    }
    if is_known(head, &tag) {
        reply.status = 304;
        return Ok(reply);
    }
    if enveloped {
        let mut out = Vec::with_capacity(record.value.len() + 256);
        cloudevents::write(&call.matched.topic, record, &mut out);
        return Ok(reply.with("application/cloudevents+json", out));
    }
    let meta = Meta::read(record.meta);
    let media_type =
        meta.media_type()
            .unwrap_or_else(|| match (record.kind, shape(&meta, record.value)) {
                (RecordKind::Put, Shape::Json) => "application/json",
                (RecordKind::Put, Shape::Text) => "text/plain; charset=utf-8",
                _ => "application/octet-stream",
            });
    reply.add("x-content-type-options", "nosniff");
    reply.add("content-security-policy", NO_PAGE);
    ranged(head, &tag, record.value, reply.with(media_type, Vec::new()))
}

/// Whether the client has this version already.
pub(crate) fn is_known(head: &Head, tag: &str) -> bool {
    let plain = |text: &str| -> Option<String> {
        let text = text
            .strip_prefix("W/")
            .unwrap_or(text)
            .strip_prefix('"')?
            .strip_suffix('"')?;
        let codings = ["-gzip", "-deflate", "-zstd"];
        let coding = codings.iter().find_map(|coding| text.strip_suffix(coding));
        Some(coding.unwrap_or(text).to_owned())
    };
    let ours = plain(tag);
    head.list(Known::IfNoneMatch)
        .any(|theirs| theirs == "*" || (plain(theirs) == ours && ours.is_some()))
}

/// The payload, or the part of it that was asked for.
fn ranged(head: &Head, tag: &str, value: &[u8], mut reply: Reply) -> Result<Reply, Problem> {
    let fits = head.text(Known::IfRange).is_none_or(|known| known == tag);
    let range = head
        .text(Known::Range)
        .filter(|_| fits)
        .and_then(|text| range_of(text, value.len()));
    match range {
        None => reply.body = Body::Bytes(value.to_vec().into()),
        Some(Some((from, to))) => {
            reply.status = 206;
            reply.add(
                "content-range",
                format_args!("bytes {from}-{}/{}", to - 1, value.len()),
            );
            reply.body = Body::Bytes(value.get(from..to).unwrap_or_default().to_vec().into());
        }
        Some(None) => {
            let problem = Problem::new(Kind::Range, "").number("length", value.len() as u64);
            return Err(problem.field("content-range", format!("bytes */{}", value.len())));
        }
    }
    Ok(reply)
}

#[allow(
    clippy::option_option,
    reason = "no range, and a range of nothing, differ"
)]
/// The bytes of a single range; inner `None`: it lies outside; outer `None`: it
/// is none that is understood, so it does not count.
fn range_of(text: &str, length: usize) -> Option<Option<(usize, usize)>> {
    let (from, to) = text.strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| -> Option<usize> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().unwrap_or(usize::MAX))
    };
    let (from, to) = if from.is_empty() {
        let last = number(to)?;
        if last == 0 {
            return Some(None);
        }
        (length.saturating_sub(last), length)
    } else {
        let from = number(from)?;
        let to = if to.is_empty() {
            usize::MAX
        } else {
            number(to)?
        };
        if to < from {
            return None;
        }
        (from, to.saturating_add(1).min(length))
    };
    Some((from < length).then_some((from, to)))
}

/// Which records a reader wants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    key: Option<Vec<u8>>,
    prefix: Option<Vec<u8>>,
    kind: Option<RecordKind>,
}

const KINDS: &[(&str, RecordKind)] = &[
    ("put", RecordKind::Put),
    ("delete", RecordKind::Delete),
    ("create", RecordKind::Create),
    ("destroy", RecordKind::Destroy),
    ("alter", RecordKind::Alter),
    ("replace", RecordKind::Replace),
    ("PUT", RecordKind::Put),
    ("DELETE", RecordKind::Delete),
    ("CREATE", RecordKind::Create),
    ("DESTROY", RecordKind::Destroy),
    ("ALTER", RecordKind::Alter),
    ("REPLACE", RecordKind::Replace),
];

impl Filter {
    pub(crate) fn read(call: &Call) -> Result<Self, Problem> {
        Ok(Self {
            key: call.query.bytes("key").map(<[u8]>::to_vec),
            prefix: call.query.bytes("prefix").map(<[u8]>::to_vec),
            kind: call.query.word("type", KINDS)?,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.key.is_none() && self.prefix.is_none() && self.kind.is_none()
    }

    pub(crate) fn wants(&self, record: &Record<'_>) -> bool {
        self.key.as_ref().is_none_or(|key| key == record.key)
            && self
                .prefix
                .as_ref()
                .is_none_or(|prefix| record.key.starts_with(prefix))
            && self.kind.is_none_or(|kind| kind == record.kind)
    }
}

/// Where a reader starts.
pub(crate) async fn start(
    edge: &Arc<Edge>,
    call: &Call,
    waits: bool,
) -> Result<(TopicReader, u64, bool), Problem> {
    let store = &edge.shared.store;
    let topic = &call.matched.topic;
    let after = call.query.number("after", 0, u64::MAX - 1)?;
    let mut reader = if waits {
        store.listen(topic, ConsequenceOffset(after.unwrap_or(0)))
    } else {
        store
            .read(topic, ConsequenceOffset(after.unwrap_or(0)))
            .map_err(|error| store_error(&error))?
    };
    match call.query.text("from")? {
        Some(_) if after.is_some() => {
            return Err(Problem::bad("a position is given by after or by from"));
        }
        None | Some("first") => {}
        Some("tail") => reader.seek(reader.last()),
        Some(other) => {
            let time = other
                .strip_prefix("time:")
                .and_then(super::route::offset_of);
            let time =
                time.ok_or_else(|| Problem::bad("from is first, tail or time: with milliseconds"))?;
            reader = offload::run(move || {
                let sought = reader.seek_time(time);
                sought.map_err(|error| store_error(&error))?;
                Ok(reader)
            })
            .await?;
        }
    }
    let reset = call.query.word("reset", &[("earliest", ())])?.is_some();
    let gap = gone(edge, call, &mut reader, after.unwrap_or(0), reset)?;
    let after = reader.position().0 - 1;
    Ok((reader, after, gap))
}

/// Whether the first records that the reader wants are gone. A topic that is
/// compacted has holes anywhere; they are no loss.
pub(crate) fn gone(
    edge: &Arc<Edge>,
    call: &Call,
    reader: &mut TopicReader,
    after: u64,
    reset: bool,
) -> Result<bool, Problem> {
    // Compaction leaves holes; what retention removed is gone.
    let removed = edge.shared.store.removed(&call.matched.topic).0;
    if after == 0 || after >= removed {
        return Ok(false);
    }
    let first = removed.saturating_add(1);
    if reset {
        reader.seek(ConsequenceOffset(first - 1));
        return Ok(true);
    }
    Err(Problem::new(Kind::Gone, ErrorCode::Gone.sentence())
        .code(ErrorCode::Gone)
        .number("first", first)
        .number("last", reader.last().0))
}

/// A page that is being read.
struct Collector {
    topic: String,
    reader: TopicReader,
    filter: Filter,
    writer: Writer,
    limit: u64,
    max_bytes: usize,
    /// Last record that was looked at.
    next: u64,
    /// Bytes that were looked through.
    looked: usize,
    making: Making,
}

impl Collector {
    /// Reads one block. Returns whether the page is complete.
    fn step(&mut self) -> Result<bool, Problem> {
        let page = self.reader.next_page();
        match page.map_err(|error| store_error(&error))? {
            Some(page) => self.take(&page),
            None => Ok(true),
        }
    }

    /// Takes what is wanted of a block. Returns whether the page is complete.
    fn take(&mut self, page: &Page) -> Result<bool, Problem> {
        for record in page {
            let record = record.map_err(|error| store_error(&error))?;
            if self.is_full() {
                return Ok(true);
            }
            let wanted = self.filter.wants(&record);
            if wanted && !self.writer.fit(&self.topic, &record, &mut self.making) {
                return Ok(true);
            }
            self.next = record.offset.0;
        }
        // What a compaction removed behind the last record is behind us too.
        self.next = self.next.max(page.last().0);
        self.looked += page.wire_bytes();
        Ok(self.is_full() || self.is_tired())
    }

    /// Whether it has looked long enough for what is not there.
    fn is_tired(&self) -> bool {
        self.looked >= LOOK_BYTES_MAX && self.next < self.reader.last().0
    }

    fn is_full(&self) -> bool {
        self.writer.count > 0
            && (self.writer.count >= self.limit || self.writer.out.len() >= self.max_bytes)
    }

    /// Reads the page: its first block in place if it is there, the rest
    /// elsewhere.
    async fn run(mut self) -> Result<Self, Problem> {
        match self.reader.next_page_now() {
            Poll::Ready(None) => return Ok(self),
            Poll::Ready(Some(page)) => {
                if self.take(&page)? || self.next >= self.reader.last().0 {
                    return Ok(self);
                }
            }
            Poll::Pending => {}
        }
        offload::run(move || {
            while !self.step()? {}
            Ok(self)
        })
        .await
    }
}

/// A page of records.
#[allow(
    clippy::too_many_lines,
    reason = "parameters, page, head; in this order"
)]
pub(crate) async fn page(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    at_least(edge, call).await?;
    let query = &call.query;
    let form = accept::media(&call.head, Form::OFFERS).ok_or_else(not_acceptable)?;
    let mut writer = Writer::new(form);
    if let Some(text) = query.text("fields")? {
        writer.fields = Fields::read(text)?;
    }
    writer.texts = query
        .word("numbers", &[("string", true), ("number", false)])?
        .unwrap_or(false);
    let limit = query
        .number("limit", 1, PAGE_RECORDS_MAX)?
        .unwrap_or(PAGE_RECORDS);
    let max_bytes = query
        .number("max-bytes", 1, PAGE_BYTES_MAX as u64)?
        .map_or(PAGE_BYTES, |n| usize::try_from(n).unwrap_or(PAGE_BYTES_MAX));
    for name in ["live", "last-event-id", "data"] {
        if query.bytes(name).is_some() {
            return Err(Problem::bad(format!(
                "{name} goes with `live=sse` or `Accept: text/event-stream`"
            )));
        }
    }
    let wait = query.number("wait", 0, WAIT_SECONDS_MAX)?;
    let wait = wait
        .or(Prefer::read(&call.head)
            .wait
            .map(|seconds| seconds.min(WAIT_SECONDS_MAX)))
        .unwrap_or(0);
    let filter = Filter::read(call)?;
    if query
        .word("order", &[("asc", false), ("desc", true)])?
        .unwrap_or(false)
    {
        if wait > 0 {
            return Err(Problem::bad("a page in descending order does not wait"));
        }
        return descending(edge, call, writer, filter, limit, max_bytes).await;
    }
    let (reader, after, gap) = start(edge, call, wait > 0).await?;
    let mut collector = Collector {
        topic: call.matched.topic.clone(),
        next: after,
        reader,
        filter,
        writer,
        limit,
        max_bytes,
        looked: 0,
        making: Making::new(&edge.shared.admission),
    };
    let due = Instant::now() + Duration::from_secs(wait);
    let mut phase = edge.shared.phase.subscribe();
    loop {
        collector = collector.run().await?;
        if collector.writer.count > 0 || wait == 0 || collector.is_tired() {
            break;
        }
        edge.shared.metrics.waiting_polls.add(1);
        let more = tokio::select! {
            there = collector.reader.changed() => there,
            () = tokio::time::sleep_until(due) => false,
            _ = phase.wait_for(|phase| *phase >= Phase::Draining) => false,
        };
        edge.shared.metrics.waiting_polls.sub(1);
        if !more {
            let reply = Reply::new(204)
                .number("weir-next", collector.next)
                .number("weir-last", collector.reader.last().0);
            return Ok(reply.field("cache-control", "no-store"));
        }
    }
    let (first, last) = (collector.reader.first().0, collector.reader.last().0);
    let next = collector.next;
    let up_to_date = next >= last;
    let compacted = edge
        .shared
        .store
        .standing(&call.matched.topic)
        .is_some_and(|topic| topic.compaction != Compaction::Off);
    let tag = format!("\"r{after}-{next}.{}\"", form.letter());
    let mut reply = Reply::new(200)
        .number("weir-next", next)
        .number("weir-first", first)
        .number("weir-last", last);
    reply = reply.number("weir-count", collector.writer.count);
    reply.add("etag", &tag);
    reply.add("vary", "accept, accept-encoding");
    reply.add(
        "cache-control",
        match () {
            () if wait > 0 && up_to_date => "no-store",
            () if up_to_date || compacted => "no-cache",
            () => "private, max-age=31536000, immutable",
        },
    );
    if up_to_date {
        reply.add("weir-up-to-date", "?1");
    } else {
        reply.add(
            "link",
            format_args!("<{}>; rel=\"next\"", next_page(call, next)),
        );
    }
    if gap {
        reply = reply.number("weir-gap", first);
    }
    if collector.writer.reframed {
        reply.add("weir-reframed", "?1");
    }
    if wait == 0 && is_known(&call.head, &tag) {
        reply.status = 304;
        return Ok(reply);
    }
    Ok(reply.with(form.media_type(), collector.writer.end()))
}

pub(crate) fn not_acceptable() -> Problem {
    let mut list = Vec::new();
    let mut offers: Vec<&str> = Form::OFFERS.iter().map(|(name, _)| *name).collect();
    offers.push("text/event-stream");
    list.extend_from_slice(b"[\"");
    list.extend_from_slice(offers.join("\",\"").as_bytes());
    list.extend_from_slice(b"\"]");
    Problem::new(Kind::NotAcceptable, "").raw("accept", list)
}

/// The target of the next page, its parameters in order.
fn next_page(call: &Call, next: u64) -> String {
    let mut pairs = vec![format!("after={next}")];
    for name in [
        "fields",
        "key",
        "limit",
        "max-bytes",
        "numbers",
        "prefix",
        "type",
        "wait",
    ] {
        if let Some(value) = call.query.bytes(name) {
            pairs.push(format!("{name}={}", encode(value)));
        }
    }
    pairs.sort_unstable();
    format!(
        "/v1/topics/{}/events?{}",
        call.matched.topic,
        pairs.join("&")
    )
}

/// The newest records first. There is no reader that goes back, so windows are
/// read forward and turned round.
async fn descending(
    edge: &Arc<Edge>,
    call: &Call,
    writer: Writer,
    filter: Filter,
    limit: u64,
    max_bytes: usize,
) -> Result<Reply, Problem> {
    if call.query.bytes("from").is_some() || call.query.bytes("reset").is_some() {
        return Err(Problem::bad(
            "a page in descending order starts at the end or before `after`",
        ));
    }
    let before = call.query.number("after", 1, u64::MAX - 1)?;
    let mut reader = edge
        .shared
        .store
        .read(&call.matched.topic, ConsequenceOffset::ZERO)
        .map_err(|error| store_error(&error))?;
    let topic = call.matched.topic.clone();
    let (first, last) = (reader.first().0, reader.last().0);
    let form = writer.form;
    let mut making = Making::new(&edge.shared.admission);
    let (writer, next) = offload::run(move || {
        let mut writer = writer;
        let mut end = before.unwrap_or(last + 1);
        // Small at first: nobody knows yet how large the records are.
        let mut window = 4;
        let (mut looked, mut full) = (0, false);
        while end > first && writer.count < limit && writer.out.len() < max_bytes {
            if full || looked >= LOOK_BYTES_MAX {
                break;
            }
            let begin = end.saturating_sub(window).max(first);
            reader.seek(ConsequenceOffset(begin.saturating_sub(1)));
            let mut pages = Vec::new();
            let written = writer.out.len();
            while let Some(page) = reader.next_page().map_err(|error| store_error(&error))? {
                let beyond = page.last().0 + 1 >= end;
                looked += page.wire_bytes();
                pages.push(page);
                if beyond {
                    break;
                }
            }
            'window: for page in pages.iter().rev() {
                let records: Result<Vec<Record<'_>>, StoreError> = page.iter().collect();
                for record in records.map_err(|error| store_error(&error))?.iter().rev() {
                    if record.offset.0 >= end {
                        continue;
                    }
                    full = writer.count >= limit || writer.out.len() >= max_bytes;
                    full = (full && writer.count > 0)
                        || (filter.wants(record) && !writer.fit(&topic, record, &mut making));
                    if full {
                        break 'window;
                    }
                    end = record.offset.0;
                }
            }
            if !full && writer.count < limit && writer.out.len() < max_bytes {
                end = end.min(begin);
            }
            let heavy = writer.out.len() - written > WINDOW_BYTES;
            window = if heavy {
                (window / 2).max(1)
            } else {
                (window * 2).min(WINDOW_RECORDS_MAX)
            };
        }
        Ok((writer, end))
    })
    .await?;
    let mut reply = Reply::new(200)
        .number("weir-next", next)
        .number("weir-first", first)
        .number("weir-last", last);
    reply = reply.number("weir-count", writer.count);
    reply.add("vary", "accept, accept-encoding");
    reply.add("cache-control", "no-cache");
    if writer.reframed {
        reply.add("weir-reframed", "?1");
    }
    if next > first && next > 1 {
        let target = format!("{}&order=desc", next_page(call, next));
        reply.add("link", format_args!("<{target}>; rel=\"next\""));
    }
    Ok(reply.with(form.media_type(), writer.end()))
}

/// Keys in byte order.
pub(crate) async fn keys(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    at_least(edge, call).await?;
    let query = &call.query;
    let form = accept::media(&call.head, Form::OFFERS).ok_or_else(not_acceptable)?;
    let limit = query
        .number("limit", 1, SCAN_KEYS_MAX as u64)?
        .unwrap_or(PAGE_RECORDS);
    let limit = usize::try_from(limit).unwrap_or(SCAN_KEYS_MAX);
    let values = query.flag("values")?;
    let prefix = query.bytes("prefix").unwrap_or_default().to_vec();
    let after = query.bytes("after").map(<[u8]>::to_vec);
    let (store, topic) = (Arc::clone(&edge.shared.store), call.matched.topic.clone());
    if store
        .standing(&topic)
        .is_none_or(|topic| topic.incarnation.is_none())
    {
        return Err(no_topic());
    }
    let mut making = Making::new(&edge.shared.admission);
    let (writer, next) = offload::run(move || {
        let found = store
            .scan(&topic, &prefix, after.as_deref(), limit)
            .map_err(|error| store_error(&error))?;
        let mut writer = Writer::new(form);
        let mut last = None;
        for entry in &found {
            if writer.out.len() >= PAGE_BYTES_MAX {
                break;
            }
            if !values {
                last = Some(entry.key.clone());
                writer.key(&entry.key, entry.offset.0);
                continue;
            }
            let page = store
                .value(&topic, entry)
                .map_err(|error| store_error(&error))?;
            // A key that was changed meanwhile comes with its new value another time.
            if let Some(record) = page.as_ref().map(first).transpose()?.flatten()
                && !writer.fit(&topic, &record, &mut making)
            {
                break;
            }
            last = Some(entry.key.clone());
        }
        let more = found.len() == limit || last.as_ref() != found.last().map(|entry| &entry.key);
        Ok((writer, last.filter(|_| more)))
    })
    .await?;
    let mut reply = Reply::new(200)
        .number("weir-count", writer.count)
        .field("cache-control", "no-cache");
    reply.add("vary", "accept, accept-encoding");
    if let Some(next) = next {
        let mut pairs = vec![format!("after={}", encode(&next))];
        for name in ["limit", "prefix", "values"] {
            if let Some(value) = call.query.bytes(name) {
                pairs.push(format!("{name}={}", encode(value)));
            }
        }
        pairs.sort_unstable();
        let target = format!("/v1/topics/{}/keys?{}", call.matched.topic, pairs.join("&"));
        reply.add("link", format_args!("<{target}>; rel=\"next\""));
    }
    if writer.reframed {
        reply.add("weir-reframed", "?1");
    }
    Ok(reply.with(form.media_type(), writer.end()))
}

#[cfg(test)]
mod tests {
    use super::range_of;

    #[test]
    fn ranges_are_cut_to_the_payload() {
        for (text, want) in [
            ("bytes=0-3", Some(Some((0, 4)))),
            ("bytes=5-", Some(Some((5, 10)))),
            ("bytes=-3", Some(Some((7, 10)))),
            ("bytes=-30", Some(Some((0, 10)))),
            ("bytes=8-99999999999999999999", Some(Some((8, 10)))),
            ("bytes=10-", Some(None)),
            ("bytes=-0", Some(None)),
            ("bytes=3-2", None),
            ("bytes=a-2", None),
            ("bytes=1-2,4-5", None),
            ("items=1-2", None),
        ] {
            assert_eq!(range_of(text, 10), want, "{text}");
        }
    }
}
