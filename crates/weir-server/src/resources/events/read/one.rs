//! One record: the record of an offset, and the current record of a key.
//!
//! Invariants:
//! - The payload has exactly the written bytes.
//! - No browser runs the payload as a page of this server.

use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use weir_core::{ConsequenceOffset, ErrorCode, Record, RecordKind};
use weir_store::{Current, Page, Store, TopicReader};

use super::position::{at_least, first, is_not_modified, no_topic, store_error};
use crate::http::head::{FieldName, Head, Method};
use crate::http::origin::SANDBOX;
use crate::http::problem::{Kind, Problem};
use crate::http::reply::{Body, Reply};
use crate::http::{accept, date, offload};
use crate::limits::budget::Reservation;
use crate::limits::{INLINE_WORK_BYTES, WAIT_SECONDS_MAX};
use crate::resources::cloudevents;
use crate::resources::context::{Call, Edge};
use crate::resources::meta::{Meta, Shape, shape};
use crate::resources::reading::{self, Attempt, reserve_block, reserve_value};
use crate::resources::records::key_field;
use crate::resources::route::Resource;

/// Returns one record by its offset, if that needs no wait.
pub(crate) fn event_if_ready(edge: &Arc<Edge>, call: &Call) -> Option<Result<Reply, Problem>> {
    let offset = call.matched.offset;
    let before = ConsequenceOffset(offset - 1);
    let reader = edge.shared.store.try_read(&call.matched.topic, before);
    let mut reader = match reader {
        Poll::Ready(Ok(reader)) => reader,
        Poll::Ready(Err(error)) => return Some(Err(store_error(&error))),
        Poll::Pending => return None,
    };
    match reader.try_next_page() {
        Poll::Ready(page) if is_small(edge, page.as_ref()) => {
            Some(record_reply(call, page.as_ref(), offset, &reader))
        }
        Poll::Ready(_) | Poll::Pending => None,
    }
}

/// Whether a page may be sent without a reservation.
fn is_small(edge: &Edge, page: Option<&Page>) -> bool {
    let small = edge.shared.admission.answers.small_bytes();
    page.is_none_or(|page| page.wire_bytes() <= small)
}

/// Reserves memory for a response with the first record of a page. Returns the missing bytes, if
/// any.
fn reserve_response(
    page: Option<&Page>,
    reservation: &mut Reservation,
) -> Result<Option<usize>, Problem> {
    let record = page.map(first).transpose()?.flatten();
    // An envelope needs more memory, which is reserved when it is built.
    let bytes = record.map_or(0, |record| record.value.len());
    Ok((!reservation.try_cover(bytes)).then_some(bytes))
}

/// As [`reserve_block`], for the block of one record that will be rendered.
pub(super) fn reserve_block_of(
    store: &Store,
    topic: &str,
    offset: ConsequenceOffset,
    held: usize,
    reservation: &mut Reservation,
) -> Option<usize> {
    let before = ConsequenceOffset(offset.0.saturating_sub(1));
    let reader = store.read(topic, before).ok()?;
    reserve_block(&reader, held, reservation)
}

/// As [`reserve_value`], for the block of one record.
fn reserve_value_of(
    store: &Store,
    topic: &str,
    offset: ConsequenceOffset,
    reservation: &mut Reservation,
) -> Option<usize> {
    let before = ConsequenceOffset(offset.0.saturating_sub(1));
    let reader = store.read(topic, before).ok()?;
    reserve_value(&reader, reservation)
}

/// Returns the record at an offset, read on a thread that may block.
pub(crate) async fn event(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    let offset = call.matched.offset;
    let (store, topic) = (Arc::clone(&edge.shared.store), call.matched.topic.clone());
    let reservation =
        Reservation::for_principal(&edge.shared.admission.answers, call.principal.share_key());
    let read = reading::read(&edge.shared, reservation, move |reservation| {
        let reader = store.read(&topic, ConsequenceOffset(offset - 1));
        let mut reader = reader.map_err(|error| store_error(&error))?;
        if let Some(bytes) = reserve_value(&reader, reservation) {
            return Ok(Attempt::NeedsMemory(bytes));
        }
        let page = reader.next_page().map_err(|error| store_error(&error))?;
        Ok(match reserve_response(page.as_ref(), reservation)? {
            Some(bytes) => Attempt::NeedsMemory(bytes),
            None => Attempt::Done((reader, page)),
        })
    });
    let ((reader, page), reservation) = read.await?;
    let reply = copy_page(page.as_ref(), || {
        record_reply(call, page.as_ref(), offset, &reader)
    })?;
    Ok(reply.reserved(reservation))
}

/// Runs work that copies a page. For a large page, another thread serves the reactor meanwhile.
fn copy_page<T>(page: Option<&Page>, work: impl FnOnce() -> T) -> T {
    if page.is_some_and(|page| page.wire_bytes() > INLINE_WORK_BYTES) {
        offload::inline(work)
    } else {
        work()
    }
}

/// Returns the response if the page starts with the record of this offset.
fn record_reply(
    call: &Call,
    page: Option<&Page>,
    offset: u64,
    reader: &TopicReader,
) -> Result<Reply, Problem> {
    let record = page.map(first).transpose()?.flatten();
    match page.zip(record) {
        Some((page, record)) if record.offset.0 == offset => payload(call, page, &record),
        _ => Err(
            Problem::new(Kind::NoRecord, ErrorCode::RecordAbsent.sentence())
                .code(ErrorCode::RecordAbsent)
                .number("first", reader.first().0)
                .number("last", reader.last().0),
        ),
    }
}

/// Returns the current value of a key.
pub(crate) async fn key(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    at_least(edge, call).await?;
    if let Some(result) = key_now(edge, call) {
        return result;
    }
    let store = Arc::clone(&edge.shared.store);
    let (topic, key) = (call.matched.topic.clone(), call.matched.key.clone());
    let reservation =
        Reservation::for_principal(&edge.shared.admission.answers, call.principal.share_key());
    let read = reading::read(&edge.shared, reservation, move |reservation| {
        if let Some(offset) = store.key_offset(&topic, &key)
            && let Some(bytes) = reserve_value_of(&store, &topic, offset, reservation)
        {
            return Ok(Attempt::NeedsMemory(bytes));
        }
        let page = store.get(&topic, &key);
        let page = page.map_err(|error| store_error(&error))?;
        if let Some(bytes) = reserve_response(page.as_ref(), reservation)? {
            return Ok(Attempt::NeedsMemory(bytes));
        }
        Ok(Attempt::Done(match page {
            Some(page) => Current::Record(page),
            None if store
                .topic_state(&topic)
                .is_some_and(|topic| topic.incarnation.is_some()) =>
            {
                Current::NoKey
            }
            None => Current::NoTopic,
        }))
    });
    let (current, reservation) = read.await?;
    let page = match &current {
        Current::Record(page) => Some(page),
        _ => None,
    };
    let reply = copy_page(page, || current_value(call, &current))?;
    Ok(reply.reserved(reservation))
}

/// Returns the current value of a key, if that needs no wait.
pub(crate) fn key_if_ready(edge: &Arc<Edge>, call: &Call) -> Option<Result<Reply, Problem>> {
    match call.query.bytes("at-least") {
        None => key_now(edge, call),
        Some(_) => None,
    }
}

/// Returns the current value of a key, if it is in memory. The caller must check the conditions.
pub(super) fn key_now(edge: &Edge, call: &Call) -> Option<Result<Reply, Problem>> {
    if let Err(problem) = call.query.number("wait", 0, WAIT_SECONDS_MAX) {
        return Some(Err(problem));
    }
    let store = &edge.shared.store;
    match store.try_get(&call.matched.topic, &call.matched.key) {
        Poll::Ready(Current::Record(page)) if !is_small(edge, Some(&page)) => None,
        Poll::Ready(current) => Some(current_value(call, &current)),
        Poll::Pending => None,
    }
}

fn current_value(call: &Call, current: &Current) -> Result<Reply, Problem> {
    let no_key =
        || Problem::new(Kind::NoKey, ErrorCode::KeyAbsent.sentence()).code(ErrorCode::KeyAbsent);
    match current {
        Current::Record(page) => payload(call, page, &first(page)?.ok_or_else(no_key)?),
        Current::NoKey => Err(no_key()),
        Current::NoTopic => Err(no_topic()),
    }
}

/// Returns the value of a record. Copies the value unless it is most of the page, so that a
/// waiting response holds no memory of other records.
fn value_of(page: &Page, value: &[u8]) -> Bytes {
    let bytes = page.bytes();
    if value.len() > bytes.len() / 2 {
        bytes.slice_ref(value)
    } else {
        Bytes::copy_from_slice(value)
    }
}

/// The response with the payload of a record as its body.
fn payload(call: &Call, page: &Page, record: &Record<'_>) -> Result<Reply, Problem> {
    let head = &call.head;
    let offset = record.offset.0;
    let letter = if record.key.is_empty() { 'o' } else { 'k' };
    let is_cloud_event = call.matched.resource == Resource::Event
        && accept::names(head, "application/cloudevents+json");
    // A cache must not return the payload for the event, or the event for the payload.
    let suffix = if is_cloud_event { "-ce" } else { "" };
    let tag = format!("\"{letter}{offset}{suffix}\"");
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
    let is_immutable = call.matched.resource == Resource::Event;
    reply.add(
        "cache-control",
        if is_immutable {
            "private, max-age=31536000, immutable"
        } else {
            "no-cache"
        },
    );
    reply.add("accept-ranges", "bytes");
    reply.add("vary", "accept, accept-encoding");
    if call.query.word("as", &[("cloudevent", ())])?.is_some() {
        cloudevents::add_fields(&call.matched.topic, record, &mut reply);
    }
    if is_not_modified(head, &tag) {
        reply.status = 304;
        return Ok(reply);
    }
    if is_cloud_event {
        let mut out = Vec::with_capacity(record.value.len() / 3 * 4 + 1024);
        cloudevents::write(&call.matched.topic, record, &mut out);
        return Ok(reply.with("application/cloudevents+json", out));
    }
    let meta = Meta::of(record.meta, record.value);
    let media_type =
        meta.media_type()
            .unwrap_or_else(|| match (record.kind, shape(&meta, record.value)) {
                (RecordKind::Put, Shape::Json) => "application/json",
                (RecordKind::Put, Shape::Text) => "text/plain; charset=utf-8",
                _ => "application/octet-stream",
            });
    reply.add("x-content-type-options", "nosniff");
    reply.add("content-security-policy", SANDBOX);
    let value = value_of(page, record.value);
    ranged(head, &tag, &value, reply.with(media_type, Vec::new()))
}

/// Sets the body to the payload, or to the requested range.
fn ranged(head: &Head, tag: &str, value: &Bytes, mut reply: Reply) -> Result<Reply, Problem> {
    // A range is defined for GET only (RFC 9110, 14.2).
    let applies =
        head.method == Method::Get && head.text(FieldName::IfRange).is_none_or(|text| text == tag);
    let range = head
        .text(FieldName::Range)
        .filter(|_| applies)
        .and_then(|text| range_of(text, value.len()));
    match range {
        None => reply.body = Body::Bytes(value.clone()),
        Some(Some((from, to))) => {
            reply.status = 206;
            reply.add(
                "content-range",
                format_args!("bytes {from}-{}/{}", to - 1, value.len()),
            );
            let part = value.get(from..to).unwrap_or_default();
            reply.body = Body::Bytes(Bytes::copy_from_slice(part));
        }
        Some(None) => {
            let problem = Problem::new(Kind::Range, "").number("length", value.len() as u64);
            return Err(problem.field("content-range", format!("bytes */{}", value.len())));
        }
    }
    Ok(reply)
}

#[allow(clippy::option_option, reason = "no range and an empty range differ")]
/// Parses a single range. The outer `None` is a range that is not supported, which is ignored. The
/// inner `None` is a range outside of the payload.
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

#[cfg(test)]
mod tests {
    use super::range_of;

    #[test]
    fn ranges_are_limited_to_the_payload() {
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
