//! Writes of one event: POST to a topic, PUT and DELETE of a key.
//!
//! The payload is copied from the input buffer of the connection directly into the batch that will
//! be logged. The response is sent after the verdict of the store.

mod pending;
mod plan;

use self::pending::PendingWrite;
use self::plan::{Plan, WriteKind, way};
use crate::http::exchange::Started;
use crate::http::head::FieldName;
use crate::http::prefer::Prefer;
use crate::http::problem::{Kind, Problem};
use crate::http::reply::Reply;
use crate::limits::{INLINE_WORK_BYTES, TAG_ATTEMPTS_MAX};
use crate::resources::cloudevents;
use crate::resources::condition::{About, Conditions, One};
use crate::resources::context::{Call, Edge};
use crate::resources::framing::{self, key_of};
use crate::resources::propose::{charge, first, outcomes};
use crate::resources::session::Session;
use bytes::Bytes;
use std::sync::Arc;

/// Starts a write at once, or returns the request if it needs more work.
pub(crate) fn quick(edge: &Arc<Edge>, call: Box<Call>, body: &[u8]) -> Result<Started, Box<Call>> {
    let Some(way) = way(&call) else {
        return Err(call);
    };
    let special = body.len() > INLINE_WORK_BYTES
        || call.head.has(FieldName::ContentEncoding)
        || (way == WriteKind::Post
            && (framing::is_batch(&call) || cloudevents::is_structured(&call.head)));
    if special {
        return Err(call);
    }
    let plan = match Plan::read(edge, &call, way, body) {
        Ok(plan) => plan,
        Err(problem) => return Ok(Started::Done(edge.finish(&call, Err(problem)))),
    };
    if !plan.conditions.tags.is_empty() {
        return Err(call);
    }
    match plan.propose(edge, &call, body, None) {
        Ok((proposal, permit)) => {
            let edge = Arc::clone(edge);
            let pending = PendingWrite {
                edge,
                call,
                plan,
                proposal: Some(proposal),
                permit: Some(permit),
                telling: None,
            };
            Ok(pending.start())
        }
        Err(problem) => Ok(Started::Done(edge.finish(&call, Err(problem)))),
    }
}

/// A write that is not [`quick`]: a large or compressed payload, a structured `CloudEvent`, or a
/// list of tags.
pub(crate) async fn post(edge: &Arc<Edge>, call: &Call, body: Bytes) -> Result<Reply, Problem> {
    if cloudevents::is_structured(&call.head) {
        return structured(edge, call, body).await;
    }
    single(edge, call, WriteKind::Post, body).await
}

/// As `post`, for a key.
pub(crate) async fn key(edge: &Arc<Edge>, call: &Call, body: Bytes) -> Result<Reply, Problem> {
    let way = way(call).unwrap_or(WriteKind::Put);
    single(edge, call, way, body).await
}

async fn single(
    edge: &Arc<Edge>,
    call: &Call,
    way: WriteKind,
    body: Bytes,
) -> Result<Reply, Problem> {
    // Checking a large payload would block the reactor for too long.
    let plan = if body.len() > INLINE_WORK_BYTES {
        crate::http::offload::inline(|| Plan::read(edge, call, way, &body))?
    } else {
        Plan::read(edge, call, way, &body)?
    };
    execute(edge, call, &plan, &body).await
}

/// Proposes a write. With a list of tags, tries each tag that may match, until a condition decides.
async fn execute(
    edge: &Arc<Edge>,
    call: &Call,
    plan: &Plan,
    value: &[u8],
) -> Result<Reply, Problem> {
    let mut tag = first_tag(edge, call, plan);
    for _ in 0..TAG_ATTEMPTS_MAX {
        let (proposal, permit) = plan.propose(edge, call, value, tag)?;
        let outcome = first(Ok(outcomes(edge, proposal, permit).await?))?;
        charge(edge, call, &outcome);
        let answer = plan.answer(call, &outcome);
        let Err(problem) = &answer else { return answer };
        let unseen = plan.unseen(edge, call, &outcome);
        let tell = async |answer: Result<Reply, Problem>| match (answer, unseen) {
            (Err(problem), Some(unseen)) => Err(unseen.add_to(problem).await),
            (answer, _) => answer,
        };
        let actual = match outcome.commit().map(|commit| &commit.detail) {
            Some(weir_core::Detail::Actual(actual)) if problem.kind == Kind::Conflict => *actual,
            _ => return tell(answer).await,
        };
        let fits = |one: &&One| matches!(one, One::KeyOffset(n) | One::TopicOffset(n) | One::Incarnation(n) if *n == actual);
        match plan.conditions.tags.iter().find(fits) {
            Some(other) if Some(*other) != tag => tag = Some(*other),
            _ => return tell(answer).await,
        }
    }
    Err(Problem::new(
        Kind::Busy,
        "the thing changed with each attempt",
    ))
}

/// Returns the tag of a list that matches the current state, or else the first one.
fn first_tag(edge: &Edge, call: &Call, plan: &Plan) -> Option<One> {
    let store = &edge.shared.store;
    let topic = call.matched.topic.as_str();
    let now = match plan.conditions.tags.first()? {
        One::KeyOffset(_) => store
            .key_offset(topic, &plan.key)
            .map_or(0, |offset| offset.0),
        _ => store.topic(topic).map_or(0, |info| info.last.0),
    };
    let fits = |one: &&One| matches!(one, One::KeyOffset(n) | One::TopicOffset(n) if *n == now);
    plan.conditions
        .tags
        .iter()
        .find(fits)
        .or(plan.conditions.tags.first())
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
    let plan = Plan {
        way: WriteKind::Post,
        key,
        meta,
        conditions: Conditions::read(&call.head, About::Events)?,
        session: Session::read(edge, call, body)?,
        minimal: prefer.minimal,
        detached: false,
        fresh: false,
        conflicts: prefer.conflicts,
    };
    execute(edge, call, &plan, value).await
}

/// Writes an event in structured mode.
async fn structured(edge: &Arc<Edge>, call: &Call, body: Bytes) -> Result<Reply, Problem> {
    cloudevents::check_format(&call.head)?;
    let text = std::str::from_utf8(&body).map_err(|_| Problem::bad("the event is no UTF-8"))?;
    let parts = cloudevents::read(text)?;
    let mut key = key_of(call)?;
    if key.is_empty() {
        key = parts.key;
    }
    event(edge, call, key, parts.meta, &parts.value, &body).await
}
