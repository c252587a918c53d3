//! Writes of one event: POST to a topic, PUT and DELETE of a key.
//!
//! The payload goes from the input buffer of the connection straight into the
//! batch that will be logged. The answer is given when the store has answered.

mod commit;

use std::sync::Arc;

use bytes::Bytes;
use weir_core::{Effect, Intention, Operation, Outcome};
use weir_store::Proposal;

pub(crate) use self::commit::Commit;
use super::missed::Missed;
use crate::http::base64;
use crate::http::head::{Head, Known, Method};
use crate::http::json;
use crate::http::json::Object;
use crate::http::prefer::Prefer;
use crate::http::problem::{self, Kind, Problem};
use crate::http::reply::Reply;
use crate::limits::admission::Permit;
use crate::limits::{INLINE_WORK_BYTES, TAG_ATTEMPTS_MAX};
use crate::resources::batch;
use crate::resources::cloudevents;
use crate::resources::condition::{About, Conditions, One};
use crate::resources::meta::{Declared, MetaWriter, declared};
use crate::resources::propose::{charge, first, outcomes, propose, refused};
use crate::resources::route::Resource;
use crate::resources::session::Session;
use crate::service::{Call, Edge, Started};

/// Which write it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Post,
    Put,
    Delete,
}

/// A write, ready to be proposed but for its value.
#[derive(Debug)]
pub(crate) struct Plan {
    way: Way,
    key: Vec<u8>,
    meta: Vec<u8>,
    conditions: Conditions,
    session: Session,
    minimal: bool,
    detached: bool,
    /// A PUT that makes its key, as far as that is known.
    fresh: bool,
    conflicts: u64,
}

/// The key of an event, from `Weir-Key`, `Weir-Key-B64` or `?key=`; empty for
/// none.
pub(crate) fn key_of(call: &Call) -> Result<Vec<u8>, Problem> {
    let head = &call.head;
    let plain = head.raw(Known::WeirKey).map(<[u8]>::to_vec);
    let coded = match head.text(Known::WeirKeyB64) {
        None => None,
        Some(text) => Some(
            base64::decode(text.trim_matches(':'))
                .ok_or_else(|| Problem::bad("Weir-Key-B64 is no base64"))?,
        ),
    };
    let query = call.query.bytes("key").map(<[u8]>::to_vec);
    let repeated = head.is_repeated(Known::WeirKey) || head.is_repeated(Known::WeirKeyB64);
    let mut given = [plain, coded, query].into_iter().flatten();
    let key = given.next();
    if given.next().is_some() || repeated {
        return Err(Problem::bad("the key is given twice"));
    }
    if key.as_ref().is_some_and(Vec::is_empty) {
        return Err(Problem::bad("a key has at least one byte"));
    }
    Ok(key.unwrap_or_default())
}

fn way(call: &Call) -> Option<Way> {
    match (call.matched.resource, call.head.method) {
        (Resource::Events, Method::Post) => Some(Way::Post),
        (Resource::Key, Method::Put) => Some(Way::Put),
        (Resource::Key, Method::Delete) => Some(Way::Delete),
        _ => None,
    }
}

impl Plan {
    fn read(edge: &Arc<Edge>, call: &Call, way: Way, body: &[u8]) -> Result<Self, Problem> {
        let about = if way == Way::Post {
            About::Events
        } else {
            About::Key
        };
        let conditions = Conditions::read(&call.head, about)?;
        let mut key = if way == Way::Post {
            key_of(call)?
        } else {
            call.matched.key.clone()
        };
        let mut meta = MetaWriter::default();
        if way != Way::Delete {
            let attributes = cloudevents::binary(&call.head)?;
            payload(&call.head, body, &mut meta)?;
            for (name, value) in attributes.iter().flatten() {
                if name == "partitionkey" && key.is_empty() {
                    key = value.clone().into_bytes();
                }
                meta.field(&format!("ce-{name}"), value)?;
            }
        }
        if let Some(trace) = call.head.text(Known::Traceparent) {
            meta.field("traceparent", trace)?;
        }
        let session = Session::read(edge, call, body)?;
        if !conditions.tags.is_empty() && session.nonce != 0 {
            return Err(Problem::bad(
                "a write under a nonce or idempotency key takes one tag",
            ));
        }
        let prefer = Prefer::read(&call.head);
        let fresh = way == Way::Put
            && (conditions.all.contains(&One::KeyAbsent)
                || (session.nonce == 0
                    && edge
                        .shared
                        .store
                        .key_offset(&call.matched.topic, &key)
                        .is_none()));
        Ok(Self {
            way,
            key,
            meta: meta.done()?,
            conditions,
            session,
            minimal: prefer.minimal,
            detached: prefer.detached,
            fresh,
            conflicts: prefer.conflicts,
        })
    }

    /// Hands the write over.
    fn propose(
        &self,
        edge: &Edge,
        call: &Call,
        value: &[u8],
        tag: Option<One>,
    ) -> Result<(Proposal, Permit), Problem> {
        let operation = match self.way {
            Way::Delete => Operation::Delete { key: &self.key },
            Way::Post | Way::Put => Operation::Put {
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
        propose(edge, call, std::slice::from_ref(&intention))
    }

    /// What a writer that was late has not seen, if it wants to know.
    fn missed(&self, edge: &Edge, call: &Call, outcome: &Outcome) -> Option<Missed> {
        let (conditions, key) = (&self.conditions, &self.key);
        Missed::of(
            edge,
            call,
            conditions,
            key,
            outcome.commit()?,
            self.conflicts,
        )
    }

    /// The answer to an outcome.
    fn answer(&self, call: &Call, outcome: &Outcome) -> Result<Reply, Problem> {
        let commit = match outcome {
            Outcome::Refused { code, expected } => {
                return Err(refused(*code, *expected));
            }
            Outcome::Committed(commit) | Outcome::Replayed(commit) => commit,
        };
        let replayed = matches!(outcome, Outcome::Replayed(_));
        if commit.effect != Effect::Valid {
            let mut problem = problem::of_commit(commit);
            if problem.kind == Kind::Conflict {
                problem = self.conditions.explain(problem);
                problem.fields.extend(current_tag(&self.conditions, commit));
            }
            if replayed {
                problem = problem.field("weir-replayed", "?1");
            }
            return Err(problem);
        }
        let (offset, records) = (commit.first.0, u64::from(commit.records));
        let small = self.minimal || self.way != Way::Post;
        let status = match self.way {
            _ if records == 0 => 200,
            Way::Put if self.fresh => 201,
            Way::Post if !self.minimal => 201,
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
        if self.session.entered.is_some() {
            // What readers see, which need not be what the writer calls itself.
            reply.add("weir-client", self.session.client);
        }
        if replayed {
            reply.add("weir-replayed", "?1");
        }
        if self.minimal {
            reply.add("preference-applied", "return=minimal");
        }
        if small && status != 200 {
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

/// The tag that a conditional write would have needed.
fn current_tag(
    conditions: &Conditions,
    commit: &weir_core::Commit,
) -> Option<(&'static str, String)> {
    let weir_core::Detail::Actual(actual) = commit.detail else {
        return None;
    };
    let letter = match conditions.all.first().or(conditions.tags.first())? {
        One::KeyOffset(_) | One::KeyAbsent if actual != 0 => 'k',
        One::TopicOffset(_) | One::TopicAbsentOr(_) | One::TopicEmpty => 'o',
        _ => return None,
    };
    Some(("etag", format!("\"{letter}{actual}\"")))
}

/// What the media type of a payload means for its metadata; checks what is
/// called JSON.
fn payload(head: &Head, body: &[u8], meta: &mut MetaWriter) -> Result<(), Problem> {
    if head.is_repeated(Known::ContentType) {
        return Err(Problem::bad("more than one Content-Type"));
    }
    let text = head.text(Known::ContentType);
    typed(text, body, meta)
}

/// The same for a media type from elsewhere.
pub(crate) fn typed(
    content_type: Option<&str>,
    body: &[u8],
    meta: &mut MetaWriter,
) -> Result<(), Problem> {
    let kind = declared(content_type);
    if matches!(kind, Declared::Json | Declared::LikeJson) {
        if let Some(at) = json::check(body) {
            return Err(
                Problem::new(Kind::InvalidPayload, "the payload is no JSON text")
                    .number("byte", at as u64),
            );
        }
        meta.json();
    }
    match (kind, content_type) {
        (Declared::LikeJson | Declared::Other, Some(text)) => meta.field("content-type", text),
        _ => Ok(()),
    }
}

/// Begins a write at once, or gives the request back when it needs more than
/// that.
pub(crate) fn quick(edge: &Arc<Edge>, call: Box<Call>, body: &[u8]) -> Result<Started, Box<Call>> {
    let Some(way) = way(&call) else {
        return Err(call);
    };
    let special = body.len() > INLINE_WORK_BYTES
        || call.head.has(Known::ContentEncoding)
        || (way == Way::Post && (batch::is_batch(&call) || cloudevents::is_structured(&call.head)));
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
            let commit = Commit {
                edge,
                call,
                plan,
                proposal: Some(proposal),
                permit: Some(permit),
                telling: None,
            };
            Ok(commit.start())
        }
        Err(problem) => Ok(Started::Done(edge.finish(&call, Err(problem)))),
    }
}

/// A write that is not [`quick`]: a large or coded payload, a structured
/// `CloudEvent`, a list of tags.
pub(crate) async fn post(edge: &Arc<Edge>, call: &Call, body: Bytes) -> Result<Reply, Problem> {
    if cloudevents::is_structured(&call.head) {
        return cloudevents::post(edge, call, body).await;
    }
    single(edge, call, Way::Post, body).await
}

/// The same for a key.
pub(crate) async fn key(edge: &Arc<Edge>, call: &Call, body: Bytes) -> Result<Reply, Problem> {
    let way = way(call).unwrap_or(Way::Put);
    single(edge, call, way, body).await
}

async fn single(edge: &Arc<Edge>, call: &Call, way: Way, body: Bytes) -> Result<Reply, Problem> {
    // Looking at a large payload takes longer than the reactor should be away.
    let plan = if body.len() > INLINE_WORK_BYTES {
        crate::http::offload::inline(|| Plan::read(edge, call, way, &body))?
    } else {
        Plan::read(edge, call, way, &body)?
    };
    execute(edge, call, &plan, &body).await
}

/// Proposes until a condition decides; once unless there is a list of tags.
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
        let missed = plan.missed(edge, call, &outcome);
        let tell = async |answer: Result<Reply, Problem>| match (answer, missed) {
            (Err(problem), Some(missed)) => Err(missed.tell(problem).await),
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

/// The tag of a list that fits what is there now, else the first one.
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

/// A write of a `CloudEvent` whose parts are known.
pub(crate) async fn event(
    edge: &Arc<Edge>,
    call: &Call,
    key: Vec<u8>,
    meta: Vec<u8>,
    value: &[u8],
    body: &[u8],
) -> Result<Reply, Problem> {
    let prefer = Prefer::read(&call.head);
    let plan = Plan {
        way: Way::Post,
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
