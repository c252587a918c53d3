//! Writes of one event: POST to a topic, PUT and DELETE of a key.
//!
//! The payload is copied from the input buffer of the connection directly into the batch that will
//! be logged.
//!
//! Invariants:
//! - The server responds only after the store does, except to clients that request no verdict.
//! - Memory that is reserved for a write is released only after its verdict (`queued_write`).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use weir_core::{Effect, Intention, Operation, Outcome};

use crate::http::exchange::{Pending, Started};
use crate::http::head::{FieldName, Method};
use crate::http::json::Object;
use crate::http::offload;
use crate::http::prefer::Prefer;
use crate::http::problem::{Kind, Problem};
use crate::http::reply::{Boxed, Reply};
use crate::limits::{INLINE_WORK_BYTES, TAG_ATTEMPTS_MAX};
use crate::queued_write::QueuedWrite;
use crate::resources::cloudevents;
use crate::resources::condition::{Condition, Conditions, TagKind};
use crate::resources::context::{Call, Edge};
use crate::resources::events::unseen::UnseenRecords;
use crate::resources::framing::{self, key_of};
use crate::resources::meta::{MetaWriter, payload};
use crate::resources::problems;
use crate::resources::propose::{first, outcomes, propose, refused, timed_out};
use crate::resources::route::Resource;
use crate::resources::session::Session;

/// Starts a write immediately, or returns the request if it needs the handler.
pub(crate) fn start_inline(
    edge: &Arc<Edge>,
    call: Box<Call>,
    body: &[u8],
) -> Result<Started, Box<Call>> {
    let Some(kind) = WriteKind::of(&call) else {
        return Err(call);
    };
    let needs_handler = body.len() > INLINE_WORK_BYTES
        || call.head.has(FieldName::ContentEncoding)
        || (kind == WriteKind::Post
            && (framing::is_batch(&call) || cloudevents::is_structured(&call.head)));
    if needs_handler {
        return Err(call);
    }
    let write = match WriteRequest::read(edge, &call, kind, body) {
        Ok(write) => write,
        Err(problem) => return Ok(Started::Done(edge.finish(&call, Err(problem)))),
    };
    if !write.conditions.tags.is_empty() {
        return Err(call);
    }
    match write.propose(edge, &call, body, None) {
        Ok(queued) => {
            let edge = Arc::clone(edge);
            let pending = PendingWrite {
                edge,
                call,
                write,
                queued: Some(queued),
                conflict: None,
            };
            Ok(pending.start())
        }
        Err(problem) => Ok(Started::Done(edge.finish(&call, Err(problem)))),
    }
}

/// A write that is not [`start_inline`]: a large or compressed payload, a structured `CloudEvent`,
/// or a list of tags.
pub(crate) async fn post(edge: &Arc<Edge>, call: &Call, body: Bytes) -> Result<Reply, Problem> {
    if cloudevents::is_structured(&call.head) {
        return structured(edge, call, body).await;
    }
    write_one(edge, call, WriteKind::Post, body).await
}

/// As `post`, for a key.
pub(crate) async fn key(edge: &Arc<Edge>, call: &Call, body: Bytes) -> Result<Reply, Problem> {
    let kind = WriteKind::of(call).unwrap_or(WriteKind::Put);
    write_one(edge, call, kind, body).await
}

async fn write_one(
    edge: &Arc<Edge>,
    call: &Call,
    kind: WriteKind,
    body: Bytes,
) -> Result<Reply, Problem> {
    // Checking a large payload would block the reactor for too long.
    let read = || WriteRequest::read(edge, call, kind, &body);
    let write = offload::inline_by_size(body.len(), read)?;
    execute(edge, call, &write, &body).await
}

/// Proposes a write. With a list of tags, tries each tag that may match, until a condition decides.
async fn execute(
    edge: &Arc<Edge>,
    call: &Call,
    write: &WriteRequest,
    value: &[u8],
) -> Result<Reply, Problem> {
    let mut tag = first_tag(edge, call, write);
    for _ in 0..TAG_ATTEMPTS_MAX {
        let queued = write.propose(edge, call, value, tag)?;
        let outcome = first(Ok(outcomes(edge, queued).await?))?;
        let answer = write.answer(call, &outcome);
        let Err(problem) = &answer else { return answer };
        let unseen = write.unseen(edge, call, &outcome);
        let with_unseen = async |answer: Result<Reply, Problem>| match (answer, unseen) {
            (Err(problem), Some(unseen)) => Err(unseen.add_to(problem).await),
            (answer, _) => answer,
        };
        let actual = match outcome.commit().map(|commit| &commit.detail) {
            Some(weir_core::Detail::Actual(actual)) if problem.kind == Kind::Conflict => *actual,
            _ => return with_unseen(answer).await,
        };
        let matches_state = |condition: &&Condition| matches!(condition, Condition::KeyOffset(n) | Condition::TopicOffset(n) | Condition::Incarnation(n) if *n == actual);
        match write.conditions.tags.iter().find(matches_state) {
            Some(other) if Some(*other) != tag => tag = Some(*other),
            _ => return with_unseen(answer).await,
        }
    }
    Err(Problem::new(
        Kind::Busy,
        "the topic or the key changed during each attempt",
    ))
}

/// Returns the tag of a list that matches the current state, or else the first one.
fn first_tag(edge: &Edge, call: &Call, write: &WriteRequest) -> Option<Condition> {
    let store = &edge.shared.store;
    let topic = call.matched.topic.as_str();
    let current = match write.conditions.tags.first()? {
        Condition::KeyOffset(_) => store
            .key_offset(topic, &write.key)
            .map_or(0, |offset| offset.0),
        _ => store.topic(topic).map_or(0, |info| info.last.0),
    };
    let matches_state = |condition: &&Condition| matches!(condition, Condition::KeyOffset(n) | Condition::TopicOffset(n) if *n == current);
    write
        .conditions
        .tags
        .iter()
        .find(matches_state)
        .or(write.conditions.tags.first())
        .copied()
}

/// Writes a `CloudEvent` whose parts are parsed.
async fn event(
    edge: &Arc<Edge>,
    call: &Call,
    key: Vec<u8>,
    meta: Vec<u8>,
    value: &[u8],
    body: &[u8],
) -> Result<Reply, Problem> {
    let prefer = Prefer::read(&call.head);
    let write = WriteRequest {
        kind: WriteKind::Post,
        key,
        meta,
        conditions: Conditions::read(&call.head, TagKind::Events)?,
        session: Session::read(edge, call, body)?,
        minimal: prefer.minimal,
        detached: false,
        creates_key: false,
        conflicts: prefer.conflicts,
    };
    execute(edge, call, &write, value).await
}

/// Writes an event in structured mode.
async fn structured(edge: &Arc<Edge>, call: &Call, body: Bytes) -> Result<Reply, Problem> {
    cloudevents::check_format(&call.head)?;
    let text = std::str::from_utf8(&body).map_err(|_| Problem::bad("the event is not UTF-8"))?;
    let parts = offload::inline_by_size(body.len(), || cloudevents::read(text))?;
    let mut key = key_of(call)?;
    if key.is_empty() {
        key = parts.key;
    }
    event(edge, call, key, parts.meta, &parts.value, &body).await
}

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteKind {
    Post,
    Put,
    Delete,
}

impl WriteKind {
    fn of(call: &Call) -> Option<Self> {
        match (call.matched.resource, call.head.method) {
            (Resource::Events, Method::Post) => Some(Self::Post),
            (Resource::Key, Method::Put) => Some(Self::Put),
            (Resource::Key, Method::Delete) => Some(Self::Delete),
            _ => None,
        }
    }
}

/// A write without its value, ready to be proposed.
#[derive(Debug)]
struct WriteRequest {
    kind: WriteKind,
    key: Vec<u8>,
    meta: Vec<u8>,
    conditions: Conditions,
    session: Session,
    minimal: bool,
    detached: bool,
    /// Whether a PUT probably creates its key.
    creates_key: bool,
    conflicts: u64,
}

impl WriteRequest {
    fn read(edge: &Arc<Edge>, call: &Call, kind: WriteKind, body: &[u8]) -> Result<Self, Problem> {
        let tag_kind = if kind == WriteKind::Post {
            TagKind::Events
        } else {
            TagKind::Key
        };
        let conditions = Conditions::read(&call.head, tag_kind)?;
        let mut key = if kind == WriteKind::Post {
            key_of(call)?
        } else {
            call.matched.key.clone()
        };
        let mut meta = MetaWriter::default();
        if kind != WriteKind::Delete {
            let attributes = cloudevents::binary(&call.head)?;
            payload(&call.head, body, &mut meta)?;
            for (name, value) in attributes.iter().flatten() {
                if name == "partitionkey" && key.is_empty() {
                    key = value.clone().into_bytes();
                }
                meta.field(&format!("ce-{name}"), value)?;
            }
        }
        let trace = call.head.text(FieldName::Traceparent);
        if let Some(trace) = trace {
            meta.field("traceparent", trace)?;
        }
        let mut session = Session::read(edge, call, body)?;
        if trace.is_some() {
            session = session.identified_by_request(call, body);
        }
        if !conditions.tags.is_empty() && session.nonce != 0 {
            return Err(Problem::bad(
                "a write with a nonce or idempotency key accepts only one tag",
            ));
        }
        let prefer = Prefer::read(&call.head);
        let creates_key = kind == WriteKind::Put
            && (conditions.all.contains(&Condition::KeyAbsent)
                || (session.nonce == 0
                    && edge
                        .shared
                        .store
                        .key_offset(&call.matched.topic, &key)
                        .is_none()));
        Ok(Self {
            kind,
            key,
            meta: meta.build()?,
            conditions,
            session,
            minimal: prefer.minimal,
            detached: prefer.detached,
            creates_key,
            conflicts: prefer.conflicts,
        })
    }

    /// Proposes the write.
    fn propose(
        &self,
        edge: &Edge,
        call: &Call,
        value: &[u8],
        tag: Option<Condition>,
    ) -> Result<QueuedWrite, Problem> {
        let operation = match self.kind {
            WriteKind::Delete => Operation::Delete { key: &self.key },
            WriteKind::Post | WriteKind::Put => Operation::Put {
                key: &self.key,
                value,
            },
        };
        let expects = self.conditions.expects(tag);
        let intention = Intention {
            client: self.session.client,
            nonce: self.session.nonce,
            expect: &expects,
            meta: &self.meta,
            principal: call.principal.name.as_bytes(),
            fingerprint: self.session.fingerprint,
            ..Intention::new(&call.matched.topic, operation)
        };
        let mut queued = propose(edge, call, std::slice::from_ref(&intention))?;
        self.session.hold_in(&mut queued);
        Ok(queued)
    }

    /// Returns the records that the writer had not seen, if the request asks for them.
    fn unseen(&self, edge: &Edge, call: &Call, outcome: &Outcome) -> Option<UnseenRecords> {
        let (conditions, key) = (&self.conditions, &self.key);
        UnseenRecords::of(
            edge,
            call,
            conditions,
            key,
            outcome.commit()?,
            self.conflicts,
        )
    }

    /// The response to an outcome.
    fn answer(&self, call: &Call, outcome: &Outcome) -> Result<Reply, Problem> {
        let commit = match outcome {
            Outcome::Refused { code, expected } => {
                return Err(refused(*code, *expected));
            }
            Outcome::Committed(commit) | Outcome::Replayed(commit) => commit,
        };
        let is_replayed = matches!(outcome, Outcome::Replayed(_));
        if commit.effect != Effect::Valid {
            let mut problem = problems::of_commit(commit);
            if problem.kind == Kind::Conflict {
                problem = self.conditions.explain(problem);
                problem.fields.extend(current_tag(&self.conditions, commit));
            }
            if is_replayed {
                problem = problem.field("weir-replayed", "?1");
            }
            return Err(problem);
        }
        let (offset, records) = (commit.first.0, u64::from(commit.records));
        let is_short = self.minimal || self.kind != WriteKind::Post;
        let status = match self.kind {
            _ if records == 0 => 200,
            WriteKind::Put if self.creates_key => 201,
            WriteKind::Post if !self.minimal => 201,
            _ => 204,
        };
        let mut reply = Reply::new(status);
        if records != 0 {
            reply.add(
                "location",
                format_args!("/v1/topics/{}/events/{offset}", call.matched.topic),
            );
            let letter = if self.key.is_empty() { 'o' } else { 'k' };
            reply.add("etag", format_args!("\"{letter}{offset}\""));
            reply = reply.number("weir-offset", offset);
        }
        reply = reply
            .number("weir-count", records)
            .number("weir-intention", commit.intention.0);
        reply.add("weir-effect", "valid");
        if self.session.in_use.is_some() {
            // The id that readers see. It may differ from the id that the writer sent.
            reply.add("weir-client", self.session.client);
        }
        if is_replayed {
            reply.add("weir-replayed", "?1");
        }
        if self.minimal {
            reply.add("preference-applied", "return=minimal");
        }
        if is_short && status != 200 {
            return Ok(reply);
        }
        let mut body = Vec::with_capacity(96);
        let mut object = Object::new(&mut body);
        if records != 0 {
            object.number("offset", offset);
        }
        object
            .number("count", records)
            .number("intention", commit.intention.0)
            .text("effect", "valid");
        object.end();
        body.push(b'\n');
        Ok(reply.with("application/json", body))
    }
}

/// The current tag, which a conditional write would have needed.
fn current_tag(
    conditions: &Conditions,
    commit: &weir_core::Commit,
) -> Option<(&'static str, String)> {
    let weir_core::Detail::Actual(actual) = commit.detail else {
        return None;
    };
    let letter = match conditions.all.first().or(conditions.tags.first())? {
        Condition::KeyOffset(_) | Condition::KeyAbsent if actual != 0 => 'k',
        Condition::TopicOffset(_) | Condition::TopicAbsentOr(_) | Condition::TopicEmpty => 'o',
        _ => return None,
    };
    Some(("etag", format!("\"{letter}{actual}\"")))
}

/// A write that waits for the store.
struct PendingWrite {
    edge: Arc<Edge>,
    call: Box<Call>,
    write: WriteRequest,
    /// `None` after the verdict, or after the time limit.
    queued: Option<QueuedWrite>,
    /// A conflict whose unseen records are being read, and the plain conflict.
    conflict: Option<(Boxed<'static, Problem>, Problem)>,
}

impl PendingWrite {
    fn start(mut self) -> Started {
        if !self.write.detached {
            return Started::Commit(Box::new(self));
        }
        self.queued = None;
        let reply = Reply::new(202).field("preference-applied", "respond-async");
        Started::Done(self.edge.finish(&self.call, Ok(reply)))
    }
}

impl Pending for PendingWrite {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Reply> {
        if let Some((conflict, _)) = &mut self.conflict {
            let Poll::Ready(problem) = conflict.as_mut().poll(context) else {
                return Poll::Pending;
            };
            self.conflict = None;
            return Poll::Ready(self.edge.finish(&self.call, Err(problem)));
        }
        let Some(queued) = &mut self.queued else {
            return Poll::Pending;
        };
        let waker = self.edge.shared.wake_batches.waker(context.waker());
        let mut batched = Context::from_waker(&waker);
        let Poll::Ready(result) = Pin::new(queued).poll(&mut batched) else {
            return Poll::Pending;
        };
        self.queued = None;
        let mut unseen = None;
        let result = match first(result) {
            Ok(outcome) => {
                unseen = self.write.unseen(&self.edge, &self.call, &outcome);
                self.write.answer(&self.call, &outcome)
            }
            Err(problem) => Err(problem),
        };
        self.write.session.key_in_flight = None;
        let result = match (result, unseen) {
            (Err(problem), Some(unseen)) => {
                let plain = problem.clone();
                self.conflict = Some((Box::pin(unseen.add_to(problem)), plain));
                return Pending::poll(self, context);
            }
            (result, _) => result,
        };
        Poll::Ready(self.edge.finish(&self.call, result))
    }

    fn expire(&mut self) -> Reply {
        if let Some((_, conflict)) = self.conflict.take() {
            // The verdict is known; the client can read the unseen records separately.
            return self.edge.finish(&self.call, Err(conflict));
        }
        self.queued = None;
        self.edge.shared.metrics.timeout("store");
        self.edge.finish(&self.call, Err(timed_out()))
    }
}
