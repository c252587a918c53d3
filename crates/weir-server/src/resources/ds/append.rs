//! POST: appends to a stream, and closes it.
//!
//! A request is checked against the current state of the store. The write then has the condition
//! that this state is unchanged. If the condition fails, the request is checked again.

use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use serde_json::value::RawValue;
use weir_core::limits::TXN_OPS_MAX;
use weir_core::{Commit, Detail, Effect, ErrorCode, Expect, Intention, Operation, TxnOp};
use weir_store::{Current, StoreError};

use super::leader::wait_until_current;
use super::open::open;
use super::producer::{Producer, Sequence, State};
use super::view::View;
use crate::http::head::{FieldName, Head};
use crate::http::json;
use crate::http::offload;
use crate::http::problem::{self, Kind, Problem};
use crate::http::reply::Reply;
use crate::resources::bounded::Bounded;
use crate::resources::context::{Call, Edge};
use crate::resources::meta::{INSERTED_LEVELS_MAX, MetaWriter};
use crate::resources::problems;
use crate::resources::propose::{outcomes, propose_unchecked};
use crate::resources::streams::config::{closes, content_type, single};
use crate::resources::streams::position;
use crate::resources::streams::terms::{
    ATTEMPTS_MAX, CLOSED, GONE, KEYS_RESERVED, ORDER, ORDER_BYTES_MAX, essence, is_json,
};

/// Keys that a write of a stream may set in addition to its data.
const KEYS: usize = 4;
/// Maximum number of messages of one write.
const MESSAGES_MAX: usize = TXN_OPS_MAX - KEYS;

/// The parameters of a POST.
struct AppendRequest {
    content_type: Option<String>,
    closes: bool,
    producer: Option<Producer>,
    order: Option<Vec<u8>>,
}

impl AppendRequest {
    fn read(head: &Head) -> Result<Self, Problem> {
        let order = single(head, FieldName::StreamSeq)?;
        if order.is_some_and(str::is_empty) {
            return Err(Problem::bad("Stream-Seq is empty"));
        }
        if order.is_some_and(|order| order.len() > ORDER_BYTES_MAX) {
            return Err(Problem::bad(format!(
                "Stream-Seq is longer than {ORDER_BYTES_MAX} bytes"
            )));
        }
        Ok(Self {
            content_type: content_type(head)?,
            closes: closes(head)?,
            producer: Producer::read(head)?,
            order: order.map(|order| order.as_bytes().to_vec()),
        })
    }
}

/// A record on which a decision is based: its value and its offset.
struct ReadRecord<T> {
    value: Option<T>,
    offset: Option<u64>,
}

impl<T> ReadRecord<T> {
    const NOTHING: Self = Self {
        value: None,
        offset: None,
    };

    /// Returns the condition that the record is unchanged.
    fn expect<'a>(&self, key: &'a [u8]) -> Expect<'a> {
        match self.offset {
            Some(offset) => Expect::KeyOffset(Some(key), offset),
            None => Expect::KeyAbsent(Some(key)),
        }
    }
}

/// Reads the record of a key. A record that retention has removed has no value.
async fn read_record<T>(
    edge: &Arc<Edge>,
    topic: &str,
    key: &[u8],
    read: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<ReadRecord<T>, Problem> {
    let store = &edge.shared.store;
    let page = match store.try_get(topic, key) {
        Poll::Ready(Current::Record(page)) => Some(page),
        Poll::Ready(Current::NoKey | Current::NoTopic) => None,
        Poll::Pending => {
            let store = Arc::clone(store);
            let (topic, key) = (topic.to_owned(), key.to_owned());
            let found = offload::run(move || match store.get(&topic, &key) {
                Err(StoreError::RecordsGone { .. }) => {
                    Ok(Err(store.key_offset(&topic, &key).map(|offset| offset.0)))
                }
                page => page.map(Ok).map_err(|error| problems::of_store(&error)),
            });
            match found.await? {
                Ok(page) => page,
                Err(offset) => {
                    return Ok(ReadRecord {
                        value: None,
                        offset,
                    });
                }
            }
        }
    };
    let record = page.as_ref().and_then(|page| page.iter().next());
    let record = record
        .transpose()
        .map_err(|error| problems::of_store(&error))?;
    Ok(ReadRecord {
        value: record.and_then(|record| read(record.value)),
        offset: record.map(|record| record.offset.0),
    })
}

/// Returns the values in a JSON body: the elements of an array, or the single value.
fn values(body: &[u8]) -> Result<Vec<&RawValue>, Problem> {
    let malformed = |error: serde_json::Error| {
        let (line, column) = (error.line(), error.column());
        Problem::bad(format!(
            "the body is not JSON: line {line}, column {column}"
        ))
    };
    let values = if body.trim_ascii_start().starts_with(b"[") {
        let values: Bounded<&RawValue, MESSAGES_MAX> =
            serde_json::from_slice(body).map_err(malformed)?;
        if values.more {
            return Err(Problem::too_large("the number of messages", MESSAGES_MAX));
        }
        values.items
    } else {
        vec![serde_json::from_slice(body).map_err(malformed)?]
    };
    let is_deep = |value: &&RawValue| json::is_deeper(value.get().as_bytes(), INSERTED_LEVELS_MAX);
    if values.iter().any(is_deep) {
        let text = format!("a message has more than {INSERTED_LEVELS_MAX} levels of nesting");
        return Err(Problem::bad(text));
    }
    Ok(values)
}

/// Splits bytes into pieces of at most `max` bytes, which is at least 1. A character of UTF-8 is not
/// split, because a reader of server-sent events decodes each piece alone.
fn split_between_characters(mut bytes: &[u8], max: usize) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while bytes.len() > max {
        let starts = |at: &usize| bytes.get(*at).is_some_and(|byte| byte & 0xc0 != 0x80);
        // A character has at most four bytes.
        let first = max.saturating_sub(3).max(1);
        let end = (first..=max).rev().find(starts).unwrap_or(max);
        let (piece, rest) = bytes.split_at(end);
        pieces.push(piece);
        bytes = rest;
    }
    if !bytes.is_empty() {
        pieces.push(bytes);
    }
    pieces
}

/// Converts data to operations of a transaction. JSON gets one record for each value. Bytes get as
/// few records as the store allows, because their boundaries have no meaning.
pub(super) fn operations<'a>(
    json: bool,
    body: &'a [u8],
    meta: &'a [u8],
    value_max: usize,
) -> Result<Vec<TxnOp<'a>>, Problem> {
    let put = |value: &'a [u8]| TxnOp::Put {
        key: b"",
        value,
        meta,
    };
    if !json {
        let pieces = split_between_characters(body, value_max.max(1));
        return Ok(pieces.into_iter().map(put).collect());
    }
    let values = offload::inline_by_size(body.len(), || values(body))?;
    let bytes = values.iter().map(|value| value.get().as_bytes());
    Ok(bytes.map(put).collect())
}

/// The metadata of the payloads of a stream.
pub(super) fn meta(json: bool, content_type: &str) -> Result<Vec<u8>, Problem> {
    let mut meta = MetaWriter::default();
    if json {
        meta.json();
    }
    if !json || essence(content_type) != "application/json" {
        meta.field("content-type", content_type)?;
    }
    meta.build()
}

/// Runs a POST.
pub(super) async fn post(edge: &Arc<Edge>, call: &Call, body: &Bytes) -> Result<Reply, Problem> {
    let request = AppendRequest::read(&call.head)?;
    if body.is_empty() && !request.closes {
        return Err(Problem::bad(
            "the body is empty; to close the stream, set `Stream-Closed: true`",
        ));
    }
    if !body.is_empty() && request.content_type.is_none() {
        return Err(Problem::bad("an append needs a Content-Type"));
    }
    let topic = call.matched.topic.as_str();
    // Requests of one producer may arrive on several connections at the same time.
    let ds = &edge.ds;
    let _producer = match &request.producer {
        Some(producer) => {
            let name = (topic, producer.id.as_bytes());
            let limit = edge.shared.config.store_timeout;
            Some(ds.producers.acquire(limit, name).await?)
        }
        None => None,
    };
    let _order = match &request.order {
        Some(_) => {
            let limit = edge.shared.config.store_timeout;
            Some(ds.orders.acquire(limit, (topic, b"")).await?)
        }
        None => None,
    };
    wait_until_current(edge).await?;
    for _ in 0..ATTEMPTS_MAX {
        let view = open(edge, topic).await?;
        if let Some(reply) = attempt(edge, call, &request, &view, body).await? {
            ds.record_use(&view);
            return Ok(reply);
        }
    }
    Err(Problem::new(
        Kind::Busy,
        "the stream changed with each attempt",
    ))
}

/// Checks against the current state of the store whether a write is allowed. Returns the response
/// if no write is needed. `is_closed` was read after `producer`.
fn decide(
    request: &AppendRequest,
    view: &View,
    is_closed: bool,
    body: &[u8],
    producer: &ReadRecord<State>,
    order: &ReadRecord<Vec<u8>>,
) -> Result<Option<Reply>, Problem> {
    let sequence = request
        .producer
        .as_ref()
        .map(|writer| (writer, writer.sequence_after(producer.value)));
    match sequence {
        Some((_, Sequence::Repeated(last))) => {
            // The repeated write may have no end, even if this request has one.
            return Ok(Some(answer(is_closed, 204, view.tail, Some(last))));
        }
        Some((writer, sequence @ Sequence::Stale(_))) => return Err(writer.refuse(sequence, view)),
        _ => {}
    }
    if view.closed.is_some() {
        let closes_only = request.closes && body.is_empty() && request.producer.is_none();
        if closes_only {
            return Ok(Some(answer(true, 204, view.tail, None)));
        }
        return Err(view.refuse(Kind::StreamClosed, ""));
    }
    let differs =
        |content_type: &String| essence(content_type) != essence(&view.config.content_type);
    // An empty topic that another API created has no content type yet.
    let has_type = !body.is_empty() && !view.untyped;
    if has_type && request.content_type.as_ref().is_some_and(differs) {
        return Err(view
            .refuse(Kind::StreamType, "")
            .text("content_type", view.config.content_type.clone()));
    }
    if let Some((writer, sequence)) = sequence
        && sequence != Sequence::New
    {
        return Err(writer.refuse(sequence, view));
    }
    if let (Some(next), Some(last)) = (&request.order, &order.value)
        && next <= last
    {
        return Err(view.refuse(
            Kind::StreamOrder,
            "Stream-Seq does not sort after that of the last write",
        ));
    }
    Ok(None)
}

/// Tries once to write; `None` if the stream changed meanwhile.
async fn attempt(
    edge: &Arc<Edge>,
    call: &Call,
    request: &AppendRequest,
    view: &View,
    body: &[u8],
) -> Result<Option<Reply>, Problem> {
    let topic = view.topic.as_str();
    let key = request.producer.as_ref().map(Producer::key);
    let producer = match &key {
        Some(key) => {
            read_record(edge, topic, key, |value| serde_json::from_slice(value).ok()).await?
        }
        None => ReadRecord::NOTHING,
    };
    let order = match &request.order {
        Some(_) => read_record(edge, topic, ORDER, |value| Some(value.to_vec())).await?,
        None => ReadRecord::NOTHING,
    };
    let is_closed = edge.shared.store.key_offset(topic, CLOSED).is_some();
    if let Some(reply) = decide(request, view, is_closed, body, &producer, &order)? {
        return Ok(Some(reply));
    }
    if request.producer.is_some() && producer.offset.is_none() {
        check_key_limit(edge, topic)?;
    }
    let content_type = match &request.content_type {
        Some(content_type) if view.untyped => content_type,
        _ => &view.config.content_type,
    };
    let json = is_json(content_type);
    let meta = meta(json, content_type)?;
    let value_max = edge.shared.store.limits().value_bytes_max;
    let mut ops = if body.is_empty() {
        Vec::new()
    } else {
        operations(json, body, &meta, value_max)?
    };
    if ops.is_empty() && !body.is_empty() {
        return Err(Problem::bad("the array to append is empty"));
    }
    let mut expect = vec![
        Expect::Incarnation(view.incarnation),
        Expect::KeyAbsent(Some(CLOSED)),
        Expect::KeyAbsent(Some(GONE)),
    ];
    let state = request.producer.as_ref().map(|producer| producer.write);
    // Serializing a pair of numbers cannot fail.
    let state_text = state.map(|state| serde_json::to_vec(&state).unwrap_or_default());
    let put = |key, value| TxnOp::Put {
        key,
        value,
        meta: b"",
    };
    if let (Some(key), Some(text)) = (&key, &state_text) {
        expect.push(producer.expect(key));
        ops.push(put(key, text));
    }
    if let Some(next) = &request.order {
        expect.push(order.expect(ORDER));
        ops.push(put(ORDER, next));
    }
    if request.closes {
        ops.push(put(CLOSED, b""));
    }
    let commit = write(edge, call, topic, &ops, &expect).await?;
    let Some(commit) = commit else {
        return Ok(None);
    };
    let last = commit.first.0 + u64::from(commit.records).max(1) - 1;
    let tail = if commit.records == 0 {
        view.tail
    } else {
        view.position(last)
    };
    let status = if state.is_some() && !body.is_empty() {
        200
    } else {
        204
    };
    let reply = answer(request.closes, status, tail, state);
    Ok(Some(reply.number("weir-intention", commit.intention.0)))
}

/// Checks whether a stream may have another producer. The topic option limits the number of keys;
/// this check reserves some keys for other uses.
fn check_key_limit(edge: &Edge, topic: &str) -> Result<(), Problem> {
    let info = edge.shared.store.topic(topic);
    let limit = info.and_then(|info| {
        let max = info.options.keys_max?.saturating_sub(KEYS_RESERVED);
        (info.keys >= max).then_some(max)
    });
    match limit {
        None => Ok(()),
        Some(max) => Err(Problem::new(
            Kind::Quota,
            "the stream has its maximum number of producers",
        )
        .code(ErrorCode::Quota)
        .number("limit", max)),
    }
}

/// Writes the operations; `None` if a condition does not hold.
async fn write(
    edge: &Arc<Edge>,
    call: &Call,
    topic: &str,
    ops: &[TxnOp<'_>],
    expect: &[Expect<'_>],
) -> Result<Option<Commit>, Problem> {
    let queued = {
        let (operation, meta) = match ops {
            [TxnOp::Put { key, value, meta }] => (Operation::Put { key, value }, *meta),
            ops => (Operation::Txn { ops }, &b""[..]),
        };
        let intention = Intention {
            expect,
            meta,
            principal: call.principal.name.as_bytes(),
            ..Intention::new(topic, operation)
        };
        propose_unchecked(edge, Some(call), std::slice::from_ref(&intention))?
    };
    let outcomes = outcomes(edge, queued).await?;
    let outcome = outcomes.iter().next();
    let outcome =
        outcome.ok_or_else(|| Problem::new(Kind::Internal, "the store returned no outcome"))?;
    let Some(commit) = outcome.commit() else {
        return Err(Problem::new(Kind::Internal, "the store refused the write"));
    };
    match commit.reason {
        _ if commit.effect == Effect::Valid => Ok(Some(commit.clone())),
        Some(ErrorCode::Conflict | ErrorCode::NoTopic | ErrorCode::TopicAbsent) => Ok(None),
        _ => Err(problem_of(commit)),
    }
}

/// Converts a verdict that is not VALID. The client does not see the transaction, so the problem is
/// that of the failed operation.
pub(super) fn problem_of(commit: &Commit) -> Problem {
    let Detail::Operation { reason, .. } = commit.detail else {
        return problems::of_commit(commit);
    };
    let mut problem = Problem::new(problem::kind_of(reason), reason.sentence()).code(reason);
    problem.intention = Some(commit.intention.0);
    problem
}

/// The response to a write that was executed or was not needed.
fn answer(is_closed: bool, status: u16, tail: u64, state: Option<State>) -> Reply {
    let mut reply = Reply::new(status);
    reply.add("stream-next-offset", position::token(tail));
    if is_closed {
        reply.add("stream-closed", "true");
    }
    if let Some(state) = state {
        reply = reply
            .number("producer-epoch", state.epoch)
            .number("producer-seq", state.seq);
    }
    reply.add("cache-control", "no-store");
    reply
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::{MESSAGES_MAX, split_between_characters, values};
    use crate::http::problem::Kind;

    #[test]
    fn text_is_split_between_characters() {
        let text = "aé€\u{1f600}".repeat(10);
        for max in 4..20 {
            let pieces = split_between_characters(text.as_bytes(), max);
            assert_eq!(pieces.concat(), text.as_bytes());
            for piece in pieces {
                assert!(piece.len() <= max && std::str::from_utf8(piece).is_ok());
            }
        }
        let lengths = |bytes: &[u8], max| {
            let pieces = split_between_characters(bytes, max);
            pieces.iter().map(|piece| piece.len()).collect::<Vec<_>>()
        };
        assert_eq!(lengths(&[0x80; 10], 4), [4, 4, 2], "not UTF-8");
        assert_eq!(lengths(b"abcd", 1), [1, 1, 1, 1]);
        assert_eq!(lengths(b"abcd", 4), [4]);
        assert!(lengths(b"", 4).is_empty());
    }

    #[test]
    fn an_array_is_split_into_its_values() {
        let texts = |body: &str| {
            let values = values(body.as_bytes()).ok()?;
            Some(
                values
                    .iter()
                    .map(|value| value.get().to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(
            texts(" [1, [2,3] ,{\"a\" : 1e400}]\n").unwrap(),
            ["1", "[2,3]", "{\"a\" : 1e400}"]
        );
        assert_eq!(texts("[]").unwrap().len(), 0);
        assert_eq!(texts(" \"[\" ").unwrap(), ["\"[\""]);
        for wrong in ["", "[1,]", "[1] 2", "{", "[\"\u{1}\"]", "01"] {
            assert_eq!(texts(wrong), None, "{wrong}");
        }
        assert!(values(b"\"\xff\"").is_err());
        let deep = |levels| {
            values(format!("[{}{}]", "[".repeat(levels), "]".repeat(levels)).as_bytes()).is_err()
        };
        assert!(deep(101) && !deep(100));
    }

    #[test]
    fn an_array_with_too_many_values_is_refused_while_it_is_parsed() {
        let array = |count: usize| format!("[1{}]", ",1".repeat(count - 1));
        let largest = array(MESSAGES_MAX);
        assert_eq!(values(largest.as_bytes()).unwrap().len(), MESSAGES_MAX);
        let problem = values(array(MESSAGES_MAX + 1).as_bytes()).unwrap_err();
        assert_eq!(problem.kind, Kind::TooLarge);
    }
}
