//! One write: its parameters, and the response to its outcome.

use crate::http::head::{FieldName, Method};
use crate::http::json::Object;
use crate::http::prefer::Prefer;
use crate::http::problem::{Kind, Problem};
use crate::http::reply::Reply;
use crate::limits::admission::Permit;
use crate::resources::cloudevents;
use crate::resources::condition::{About, Conditions, One};
use crate::resources::context::{Call, Edge};
use crate::resources::events::unseen::UnseenRecords;
use crate::resources::framing::key_of;
use crate::resources::meta::{MetaWriter, payload};
use crate::resources::problems;
use crate::resources::propose::{propose, refused};
use crate::resources::route::Resource;
use crate::resources::session::Session;
use std::sync::Arc;
use weir_core::{Effect, Intention, Operation, Outcome};
use weir_store::Proposal;

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteKind {
    Post,
    Put,
    Delete,
}

/// A write without its value, ready to be proposed.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) way: WriteKind,
    pub(super) key: Vec<u8>,
    pub(super) meta: Vec<u8>,
    pub(super) conditions: Conditions,
    pub(super) session: Session,
    pub(super) minimal: bool,
    pub(super) detached: bool,
    /// Whether a PUT probably creates its key.
    pub(super) fresh: bool,
    pub(super) conflicts: u64,
}

pub(super) fn way(call: &Call) -> Option<WriteKind> {
    match (call.matched.resource, call.head.method) {
        (Resource::Events, Method::Post) => Some(WriteKind::Post),
        (Resource::Key, Method::Put) => Some(WriteKind::Put),
        (Resource::Key, Method::Delete) => Some(WriteKind::Delete),
        _ => None,
    }
}

impl Plan {
    pub(super) fn read(
        edge: &Arc<Edge>,
        call: &Call,
        way: WriteKind,
        body: &[u8],
    ) -> Result<Self, Problem> {
        let about = if way == WriteKind::Post {
            About::Events
        } else {
            About::Key
        };
        let conditions = Conditions::read(&call.head, about)?;
        let mut key = if way == WriteKind::Post {
            key_of(call)?
        } else {
            call.matched.key.clone()
        };
        let mut meta = MetaWriter::default();
        if way != WriteKind::Delete {
            let attributes = cloudevents::binary(&call.head)?;
            payload(&call.head, body, &mut meta)?;
            for (name, value) in attributes.iter().flatten() {
                if name == "partitionkey" && key.is_empty() {
                    key = value.clone().into_bytes();
                }
                meta.field(&format!("ce-{name}"), value)?;
            }
        }
        if let Some(trace) = call.head.text(FieldName::Traceparent) {
            meta.field("traceparent", trace)?;
        }
        let session = Session::read(edge, call, body)?;
        if !conditions.tags.is_empty() && session.nonce != 0 {
            return Err(Problem::bad(
                "a write under a nonce or idempotency key takes one tag",
            ));
        }
        let prefer = Prefer::read(&call.head);
        let fresh = way == WriteKind::Put
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

    /// Proposes the write.
    pub(super) fn propose(
        &self,
        edge: &Edge,
        call: &Call,
        value: &[u8],
        tag: Option<One>,
    ) -> Result<(Proposal, Permit), Problem> {
        let operation = match self.way {
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
        propose(edge, call, std::slice::from_ref(&intention))
    }

    /// Returns the records that the writer had not seen, if the request asks for them.
    pub(super) fn unseen(
        &self,
        edge: &Edge,
        call: &Call,
        outcome: &Outcome,
    ) -> Option<UnseenRecords> {
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
    pub(super) fn answer(&self, call: &Call, outcome: &Outcome) -> Result<Reply, Problem> {
        let commit = match outcome {
            Outcome::Refused { code, expected } => {
                return Err(refused(*code, *expected));
            }
            Outcome::Committed(commit) | Outcome::Replayed(commit) => commit,
        };
        let replayed = matches!(outcome, Outcome::Replayed(_));
        if commit.effect != Effect::Valid {
            let mut problem = problems::of_commit(commit);
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
        let small = self.minimal || self.way != WriteKind::Post;
        let status = match self.way {
            _ if records == 0 => 200,
            WriteKind::Put if self.fresh => 201,
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
        if self.session.entered.is_some() {
            // The id that readers see. It may differ from the id that the writer sent.
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

/// The current tag, which a conditional write should have had.
pub(super) fn current_tag(
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
