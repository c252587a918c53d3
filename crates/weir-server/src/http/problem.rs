//! Errors as problem objects (RFC 9457). The `type` names a page of this server; `code` is the
//! number in docs/formats/errors.md, if it has one.
//!
//! `type` and the members are part of the API; `detail` is for people. Invariant: a problem
//! contains no bytes of a payload, no file name and no address.

use std::sync::Arc;

use bytes::Bytes;
use weir_core::ErrorCode;

use super::json::Object;
use super::reply::Reply;
use crate::limits::budget::{Reservation, share};

macro_rules! problems {
    ($($name:ident = $status:literal $text:literal, $title:literal;)*) => {
        /// Kinds of problems.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind { $($name,)* }

        impl Kind {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Last part of the `type` URL.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            pub(crate) const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            pub(crate) const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

problems! {
    Redirect = 307 "redirect", "Another node is the leader and accepts the writes.";
    BadRequest = 400 "bad-request", "The request is malformed.";
    BadCoding = 400 "bad-coding", "The body does not follow its content coding.";
    BadItem = 400 "bad-item", "An item of the batch is malformed; the items before it are committed.";
    Unauthenticated = 401 "unauthenticated", "The request has no valid credentials.";
    Forbidden = 403 "forbidden", "The caller has no right to do this.";
    StreamEpoch = 403 "stream-epoch", "The producer has begun a newer epoch.";
    NoTopic = 404 "no-topic", "The topic does not exist.";
    NoKey = 404 "no-key", "The topic has no value for the key.";
    NoRecord = 404 "no-record", "The topic has no record at the offset.";
    NoGroup = 404 "no-group", "The topic has no group of this name.";
    NotFound = 404 "not-found", "No resource has this path.";
    Method = 405 "method", "The resource has no such method.";
    NotAcceptable = 406 "not-acceptable", "The client accepts none of the media types of the response.";
    TooSlow = 408 "too-slow", "The request was sent too slowly.";
    TopicExists = 409 "topic-exists", "A topic of this name already exists.";
    TxnAborted = 409 "txn-aborted", "An operation of the transaction failed, so none was executed.";
    NonceGap = 409 "nonce-gap", "Nonces before this one have not arrived.";
    GroupExists = 409 "group-exists", "A group of this name already exists.";
    NotOwner = 409 "not-owner", "Another consumer owns the record or the group now.";
    GroupMode = 409 "group-mode", "The mode of the group does not allow this operation.";
    InProgress = 409 "in-progress", "The first request with this key is still in progress.";
    StreamExists = 409 "stream-exists", "A stream of this name exists, with other properties.";
    StreamType = 409 "stream-type", "The content type is not that of the stream.";
    StreamClosed = 409 "stream-closed", "The stream is closed and accepts no more appends.";
    StreamOrder = 409 "stream-order", "The sequence number of the write is out of order.";
    StreamGone = 410 "stream-gone", "The stream was deleted, and only its forks read it.";
    Gone = 410 "gone", "The offset is before the first record that is kept.";
    SessionExpired = 410 "session-expired", "The session was idle for too long.";
    Conflict = 412 "conflict", "The condition does not hold.";
    TooLarge = 413 "too-large", "A part of the request is over its limit.";
    Ratio = 413 "ratio", "The body grows too much when it is decoded.";
    Uri = 414 "uri", "The request line is too long.";
    MediaType = 415 "media-type", "The server does not support the media type.";
    Coding = 415 "coding", "The server does not support the content coding.";
    Range = 416 "range", "The range is outside of the payload.";
    Expectation = 417 "expectation", "Only 100-continue can be expected.";
    WrongHost = 421 "wrong-host", "The server does not serve this host name.";
    Rejected = 422 "rejected", "The program of the topic rejected the write.";
    Trap = 422 "trap", "The program of the topic trapped.";
    OutOfFuel = 422 "out-of-fuel", "The program of the topic used up its fuel.";
    Limit = 422 "limit", "A limit of the topic was reached.";
    BadProgram = 422 "bad-program", "The code is not a program that can run here.";
    InvalidPayload = 422 "invalid-payload", "The payload does not match its media type.";
    InvalidOption = 422 "invalid-option", "The option of the topic is not valid.";
    KeyReused = 422 "key-reused", "The key or nonce was used before, for another request.";
    ExpectRequired = 428 "expect-required", "The topic accepts conditional writes only.";
    Rate = 429 "rate", "The caller exceeds a rate limit.";
    Headers = 431 "headers", "The header fields are too many or too long.";
    Internal = 500 "internal", "An internal error occurred.";
    Store = 500 "store", "The store failed.";
    Unsupported = 501 "unsupported", "This server does not support the request.";
    Busy = 503 "busy", "The server is at a limit of its capacity.";
    NoLeader = 503 "no-leader", "The cluster has no leader at present.";
    Draining = 503 "draining", "The server is shutting down.";
    Opening = 503 "opening", "The server is opening its store.";
    ReadOnly = 503 "read-only", "The store accepts no writes at present.";
    Quarantined = 503 "quarantined", "The topic is stopped.";
    Lagging = 504 "lagging", "The offset was not reached in time.";
    CommitTimeout = 504 "commit-timeout", "The outcome of the write is unknown.";
    Version = 505 "version", "The server does not support this version of HTTP.";
    Quota = 507 "quota", "A quota is used up: keys or groups of the topic, or memory of the state of programs.";
}

/// A member in addition to the common ones.
#[derive(Clone, Debug)]
pub(crate) enum Member {
    Number(&'static str, u64),
    Text(&'static str, String),
    /// JSON, inserted unchanged.
    Raw(&'static str, Vec<u8>),
    /// Not rendered: the memory of the other members, reserved until the response is sent.
    Reserved(Arc<Reservation>),
}

/// An error for the client.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) kind: Kind,
    /// Number in the common table of errors.
    pub(crate) code: Option<ErrorCode>,
    pub(crate) detail: String,
    pub(crate) members: Vec<Member>,
    /// Offset of the intention, if it is in the log.
    pub(crate) intention: Option<u64>,
    /// Milliseconds after which the client may retry.
    pub(crate) retry_after_ms: Option<u64>,
    /// Response fields in addition to the common ones.
    pub(crate) fields: Vec<(&'static str, String)>,
}

impl Problem {
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let retry = matches!(
            kind,
            Kind::Busy
                | Kind::Draining
                | Kind::InProgress
                | Kind::NoLeader
                | Kind::Opening
                | Kind::Rate
        );
        Self {
            kind,
            code: None,
            detail: detail.into(),
            members: Vec::new(),
            intention: None,
            retry_after_ms: retry.then_some(1000),
            fields: Vec::new(),
        }
    }

    pub(crate) fn bad(detail: impl Into<String>) -> Self {
        Self::new(Kind::BadRequest, detail).code(ErrorCode::BadRequest)
    }

    pub(crate) fn code(mut self, code: ErrorCode) -> Self {
        self.code = Some(code);
        self
    }

    pub(crate) fn number(mut self, name: &'static str, value: u64) -> Self {
        self.members.push(Member::Number(name, value));
        self
    }

    pub(crate) fn text(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.members.push(Member::Text(name, value.into()));
        self
    }

    pub(crate) fn raw(mut self, name: &'static str, value: Vec<u8>) -> Self {
        self.members.push(Member::Raw(name, value));
        self
    }

    pub(crate) fn field(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    pub(crate) fn too_large(what: &str, limit: usize) -> Self {
        Self::new(Kind::TooLarge, format!("{what} is over the limit"))
            .code(ErrorCode::TooLarge)
            .number("limit", limit as u64)
    }

    /// Renders the problem object.
    pub(crate) fn json(&self, instance: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        let mut object = Object::new(&mut out);
        object.member("type").extend_from_slice(b"\"/problems/");
        object.finish_text(self.kind.name());
        object
            .text("title", self.kind.title())
            .number("status", self.kind.status().into());
        if !self.detail.is_empty() {
            object.text("detail", &self.detail);
        }
        if !instance.is_empty() {
            object.text("instance", instance);
        }
        if let Some(code) = self.code {
            object.number("code", code.number().into());
        }
        for member in &self.members {
            match member {
                Member::Number(name, value) => object.number(name, *value),
                Member::Text(name, value) => object.text(name, value),
                Member::Raw(name, value) => object.raw(name, value),
                Member::Reserved(_) => &mut object,
            };
        }
        if let Some(ms) = self.retry_after_ms {
            object.number("retry_after_ms", ms);
        }
        object.end();
        out
    }

    /// Renders the response.
    pub(crate) fn reply(self, instance: &str) -> Reply {
        let mut reply = Reply::new(self.kind.status());
        if let Some(intention) = self.intention {
            reply = reply.number("weir-intention", intention);
        }
        if let Some(ms) = self.retry_after_ms {
            reply = reply.number("retry-after", ms.div_ceil(1000));
        }
        for (name, value) in &self.fields {
            reply.add(name, value);
        }
        reply.add("cache-control", "no-store");
        let mut body = Bytes::from(self.json(instance));
        for member in self.members {
            if let Member::Reserved(reservation) = member {
                body = share(reservation, body);
            }
        }
        reply.with("application/problem+json", body)
    }
}

impl Object<'_> {
    /// Appends the rest of a text whose first part is already written.
    fn finish_text(&mut self, rest: &str) {
        let out = self.buffer();
        out.extend_from_slice(rest.as_bytes());
        out.push(b'"');
    }
}

/// The kind for an error number of the common table.
pub(crate) fn kind_of(code: ErrorCode) -> Kind {
    match code {
        ErrorCode::Redirect => Kind::Redirect,
        ErrorCode::TopicExists => Kind::TopicExists,
        ErrorCode::TopicAbsent | ErrorCode::NoTopic | ErrorCode::TopicUnknown => Kind::NoTopic,
        ErrorCode::GroupExists => Kind::GroupExists,
        ErrorCode::GroupAbsent | ErrorCode::GroupUnknown => Kind::NoGroup,
        ErrorCode::NotOwner => Kind::NotOwner,
        ErrorCode::GroupMode => Kind::GroupMode,
        ErrorCode::Rejected => Kind::Rejected,
        ErrorCode::Conflict => Kind::Conflict,
        ErrorCode::Quota => Kind::Quota,
        ErrorCode::TxnAborted => Kind::TxnAborted,
        ErrorCode::Trap => Kind::Trap,
        ErrorCode::OutOfFuel => Kind::OutOfFuel,
        ErrorCode::Limit => Kind::Limit,
        ErrorCode::BadProgram => Kind::BadProgram,
        ErrorCode::Quarantined => Kind::Quarantined,
        ErrorCode::Busy => Kind::Busy,
        ErrorCode::NoLeader => Kind::NoLeader,
        ErrorCode::Rate => Kind::Rate,
        ErrorCode::NonceGap => Kind::NonceGap,
        ErrorCode::SessionExpired => Kind::SessionExpired,
        ErrorCode::NonceReused => Kind::KeyReused,
        ErrorCode::Unauthenticated => Kind::Unauthenticated,
        ErrorCode::Forbidden => Kind::Forbidden,
        ErrorCode::TooLarge => Kind::TooLarge,
        ErrorCode::BadRequest | ErrorCode::BadName => Kind::BadRequest,
        ErrorCode::Unsupported | ErrorCode::EngineMissing => Kind::Unsupported,
        ErrorCode::ReadOnly | ErrorCode::DiskFull => Kind::ReadOnly,
        ErrorCode::Gone => Kind::Gone,
        ErrorCode::KeyAbsent => Kind::NoKey,
        ErrorCode::RecordAbsent => Kind::NoRecord,
        ErrorCode::Lagging => Kind::Lagging,
        ErrorCode::Draining | ErrorCode::Closed => Kind::Draining,
        ErrorCode::Opening => Kind::Opening,
        ErrorCode::BadOption => Kind::InvalidOption,
        ErrorCode::Indeterminate => Kind::CommitTimeout,
        _ => Kind::Store,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    #[test]
    fn a_cluster_without_a_leader_has_its_own_kind() {
        let problem = Problem::new(kind_of(ErrorCode::NoLeader), "");
        assert_eq!(problem.kind.name(), "no-leader");
        assert_eq!(problem.kind.status(), 503);
        assert_eq!(problem.retry_after_ms, Some(1000));
    }

    #[test]
    fn a_problem_contains_its_members() {
        let problem = Problem::too_large("the \"body\"", 12).text("x", "y");
        let json: serde_json::Value = serde_json::from_slice(&problem.json("id")).unwrap();
        let expected = serde_json::json!({
            "type": "/problems/too-large", "title": Kind::TooLarge.title(), "status": 413,
            "detail": "the \"body\" is over the limit", "instance": "id",
            "code": ErrorCode::TooLarge.number(), "limit": 12, "x": "y",
        });
        assert_eq!(json, expected);
        let busy = Problem::new(Kind::Busy, "").reply("id");
        assert_eq!(busy.get("retry-after"), Some("1"));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Kind::ALL.len());
    }

    #[test]
    fn verdicts_have_the_status_of_the_common_table() {
        for number in 101..400 {
            let Some(code) = ErrorCode::from_number(number) else {
                continue;
            };
            let (ours, theirs) = (kind_of(code).status(), code.http_status());
            let known = matches!(code, ErrorCode::Redirect | ErrorCode::Superseded);
            assert!(
                known || ours == theirs,
                "{}: {ours} and {theirs}",
                code.name()
            );
        }
    }
}
