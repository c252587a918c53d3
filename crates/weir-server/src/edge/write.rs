//! Writes of one event: POST to a topic, PUT and DELETE of a key.
//!
//! The payload goes from the input buffer of the connection straight into the
//! batch that will be logged. The answer is given when the store has answered.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use weir_core::intention::ONCE;
use weir_core::{ClientId, Effect, ErrorCode, Intention, Operation, Outcome, Outcomes};
use weir_store::{Proposal, StoreError};

use super::base64;
use super::cloudevents;
use super::condition::{About, Conditions, One};
use super::head::{Head, Known, Method};
use super::json::Object;
use super::limits::{
    CONFLICTS_MAX, IDEMPOTENCY_KEY_MAX, INLINE_WORK_BYTES, KEYS_FULL_RETRY_MS, TAG_ATTEMPTS_MAX,
};
use super::meta::{Declared, MetaWriter, declared};
use super::missed::Missed;
use super::problem::{self, Kind, Problem};
use super::reply::{Boxed, Reply};
use super::route::{Resource, offset_of};
use super::service::{Call, Edge, Keyed, Started};
use super::{batch, json};
use crate::admission::Permit;
use crate::sessions::{InUse, SESSIONS_FULL, Shut};

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

/// Who writes, for writes that are carried out once however often they come.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) client: ClientId,
    pub(crate) nonce: u64,
    pub(crate) fingerprint: Option<u64>,
    /// Held while the request is in flight.
    pub(crate) keyed: Option<Keyed>,
    /// The same for a session.
    pub(crate) entered: Option<InUse>,
}

/// The preferences of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prefer {
    pub(crate) minimal: bool,
    pub(crate) detached: bool,
    pub(crate) wait: Option<u64>,
    /// Records that the answer to a conflict is to have.
    pub(crate) conflicts: u64,
}

impl Prefer {
    pub(crate) fn read(head: &Head) -> Self {
        let mut prefer = Self::default();
        for element in head.list(Known::Prefer) {
            match element.split_once('=') {
                Some(("return", "minimal")) => prefer.minimal = true,
                Some(("wait", seconds)) => prefer.wait = offset_of(seconds.trim()),
                Some(("conflicts", number)) => {
                    let number = offset_of(number.trim()).unwrap_or(0);
                    prefer.conflicts = number.min(CONFLICTS_MAX);
                }
                None if element == "respond-async" => prefer.detached = true,
                // What is not known is not preferred.
                _ => {}
            }
        }
        prefer
    }
}

impl Session {
    /// Reads `Weir-Client` with `Weir-Nonce`, or `Idempotency-Key`.
    pub(crate) fn read(edge: &Arc<Edge>, call: &Call, body: &[u8]) -> Result<Self, Problem> {
        let head = &call.head;
        let named = [Known::WeirClient, Known::WeirNonce, Known::IdempotencyKey];
        let [client, nonce, key] = named.map(|known| head.raw(known));
        if named.iter().any(|known| head.is_repeated(*known)) {
            return Err(Problem::bad(
                "a client, nonce or idempotency key is given twice",
            ));
        }
        match (client, nonce, key) {
            (None, None, None) => Ok(Self::default()),
            (Some(client), Some(nonce), None) => {
                let client = read_client(client).ok_or_else(|| {
                    Problem::bad("Weir-Client is 32 hexadecimal digits, not all 0")
                })?;
                let nonce = std::str::from_utf8(nonce)
                    .ok()
                    .and_then(offset_of)
                    .filter(|nonce| (1..ONCE).contains(nonce));
                let nonce = nonce.ok_or_else(|| Problem::bad("Weir-Nonce is a number from 1"))?;
                let sessions = &edge.shared.sessions;
                let known = |id| edge.shared.store.last_nonce(id);
                let entered = sessions.enter(&call.principal, client, Some(nonce), known);
                let entered = entered.map_err(|shut| shut_out(shut, nonce))?;
                Ok(Self {
                    client: entered.client,
                    nonce,
                    entered: Some(entered),
                    ..Self::default()
                })
            }
            (None, None, Some(key)) => Self::of_key(edge, call, key, body),
            _ => Err(Problem::bad(
                "a write has Weir-Client and Weir-Nonce, or an Idempotency-Key",
            )),
        }
    }

    /// The same for a request that is many intentions, one behind the other.
    pub(crate) fn counted(edge: &Arc<Edge>, call: &Call, body: &[u8]) -> Result<Self, Problem> {
        let mut session = Self::read(edge, call, body)?;
        if session.nonce == ONCE {
            session.nonce = 1;
            let known = |id| edge.shared.store.last_nonce(id);
            let sessions = &edge.shared.sessions;
            let entered = sessions.enter_own(&call.principal, session.client, known);
            session.entered = Some(entered.map_err(|shut| shut_out(shut, 1))?);
        }
        Ok(session)
    }

    /// What an idempotency key stands for: an id that is a hash of principal,
    /// topic and key, and good for one intention.
    fn of_key(edge: &Arc<Edge>, call: &Call, key: &[u8], body: &[u8]) -> Result<Self, Problem> {
        let key = read_idempotency_key(key).ok_or_else(|| {
            Problem::bad("Idempotency-Key is a text of 1 to 255 characters in double quotes")
        })?;
        let mut hash = Sha256::new();
        for part in [
            call.principal.name.as_bytes(),
            call.matched.topic.as_bytes(),
            &key,
        ] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let hash = hash.finalize();
        let mut id = [0_u8; 16];
        id.iter_mut().zip(hash).for_each(|(to, from)| *to = from);
        let client = ClientId(id);
        let fingerprint = fingerprint(call, body);
        let keyed = edge
            .enter(client)
            .ok_or_else(|| Problem::new(Kind::InProgress, ""))?;
        Ok(Self {
            client,
            nonce: ONCE,
            fingerprint: Some(fingerprint),
            keyed: Some(keyed),
            entered: None,
        })
    }
}

/// Why a session may not be used.
fn shut_out(shut: Shut, nonce: u64) -> Problem {
    match shut {
        Shut::Expired => refused(ErrorCode::SessionExpired, nonce),
        Shut::Full => {
            let mut problem = Problem::new(Kind::Busy, SESSIONS_FULL).code(ErrorCode::Busy);
            problem.retry_after_ms = Some(KEYS_FULL_RETRY_MS);
            problem
        }
    }
}

/// What tells one request from another under the same key: method, target, key
/// and body.
fn fingerprint(call: &Call, body: &[u8]) -> u64 {
    let head = &call.head;
    let seed = twox_hash::XxHash3_64::oneshot(body);
    let mut text = Vec::with_capacity(128);
    for part in [
        head.method.name().as_bytes(),
        head.path().as_bytes(),
        head.query().unwrap_or_default().as_bytes(),
        head.raw(Known::WeirKey).unwrap_or_default(),
        head.raw(Known::WeirKeyB64).unwrap_or_default(),
    ] {
        text.extend_from_slice(&(part.len() as u64).to_be_bytes());
        text.extend_from_slice(part);
    }
    twox_hash::XxHash3_64::oneshot_with_seed(seed, &text)
}

fn read_client(text: &[u8]) -> Option<ClientId> {
    let mut id = [0_u8; 16];
    if text.len() != 32 {
        return None;
    }
    for (byte, digits) in id.iter_mut().zip(text.chunks(2)) {
        let digits = std::str::from_utf8(digits)
            .ok()
            .filter(|text| !text.starts_with('+'))?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(ClientId(id)).filter(|client| !client.is_none())
}

/// A text in quotes (RFC 9651), or a bare word, as many clients send it.
fn read_idempotency_key(text: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(text.len());
    if let [b'"', inner @ .., b'"'] = text {
        let mut bytes = inner.iter();
        while let Some(byte) = bytes.next() {
            match byte {
                b'\\' => key.push(*bytes.next().filter(|next| matches!(next, b'"' | b'\\'))?),
                b'"' => return None,
                0x20..0x7f => key.push(*byte),
                _ => return None,
            }
        }
    } else {
        let word = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:~+/=".contains(byte);
        if !text.iter().all(word) {
            return None;
        }
        key.extend_from_slice(text);
    }
    (1..=IDEMPOTENCY_KEY_MAX)
        .contains(&key.len())
        .then_some(key)
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

/// A nonce that was not executed.
pub(crate) fn refused(code: ErrorCode, expected: u64) -> Problem {
    let problem = Problem::new(problem::kind_of(code), code.sentence()).code(code);
    match code {
        ErrorCode::NonceGap | ErrorCode::NonceReused if expected != ONCE => {
            problem.number("expected", expected)
        }
        // An idempotency key found no room: not before others are forgotten.
        ErrorCode::Busy if expected == ONCE => {
            let mut problem = problem;
            problem.retry_after_ms = Some(KEYS_FULL_RETRY_MS);
            problem
        }
        _ => problem,
    }
}

/// Hands intentions over if whoever calls may do what they do, and there is
/// room.
pub(crate) fn propose(
    edge: &Edge,
    call: &Call,
    intentions: &[Intention<'_>],
) -> Result<(Proposal, Permit), Problem> {
    edge.allow(call, intentions)
        .map_err(|(_, problem)| problem)?;
    hand_over(edge, intentions)
}

/// The same for steps of a request whose rights were asked about as a whole,
/// and for what nobody has requested.
pub(crate) fn hand_over(
    edge: &Edge,
    intentions: &[Intention<'_>],
) -> Result<(Proposal, Permit), Problem> {
    let bytes = intentions.iter().map(Intention::size_hint).sum();
    let permit = edge.shared.room(intentions, bytes);
    let permit = permit.ok_or_else(|| {
        Problem::new(Kind::Busy, ErrorCode::Busy.sentence()).code(ErrorCode::Busy)
    })?;
    let proposal = edge
        .shared
        .propose(intentions)
        .map_err(|error| problem::of_store(&error))?;
    let permit = edge.shared.admission.follow(permit, &proposal);
    Ok((proposal, permit))
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

/// A write that waits for the store.
pub(crate) struct Commit {
    edge: Arc<Edge>,
    call: Box<Call>,
    plan: Plan,
    proposal: Option<Proposal>,
    permit: Option<Permit>,
    /// A conflict that is told with what was missed, and without it.
    telling: Option<(Boxed<'static, Problem>, Problem)>,
}

impl Commit {
    fn start(mut self) -> Started {
        if !self.plan.detached {
            return Started::Commit(Box::new(self));
        }
        self.detach();
        let reply = Reply::new(202).field("preference-applied", "respond-async");
        Started::Done(self.edge.finish(&self.call, Ok(reply)))
    }

    /// Lets the store go on without anybody who waits; what is held for it is
    /// given back when it has answered.
    fn detach(&mut self) {
        let held = (self.permit.take(), self.plan.session.keyed.take());
        if let Some(proposal) = self.proposal.take() {
            tokio::spawn(async move {
                drop(proposal.await);
                drop(held);
            });
        }
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Reply> {
        if let Some((telling, _)) = &mut self.telling {
            let Poll::Ready(problem) = telling.as_mut().poll(context) else {
                return Poll::Pending;
            };
            self.telling = None;
            return Poll::Ready(self.edge.finish(&self.call, Err(problem)));
        }
        let Some(proposal) = &mut self.proposal else {
            return Poll::Pending;
        };
        let waker = self.edge.shared.turns.waker(context.waker());
        let mut turned = Context::from_waker(&waker);
        let Poll::Ready(result) = Pin::new(proposal).poll(&mut turned) else {
            return Poll::Pending;
        };
        self.proposal = None;
        self.permit = None;
        let mut missed = None;
        let result = match first(result) {
            Ok(outcome) => {
                charge(&self.edge, &self.call, &outcome);
                missed = self.plan.missed(&self.edge, &self.call, &outcome);
                self.plan.answer(&self.call, &outcome)
            }
            Err(problem) => Err(problem),
        };
        self.plan.session.keyed = None;
        let result = match (result, missed) {
            (Err(problem), Some(missed)) => {
                let plain = problem.clone();
                self.telling = Some((Box::pin(missed.tell(problem)), plain));
                return self.poll(context);
            }
            (result, _) => result,
        };
        Poll::Ready(self.edge.finish(&self.call, result))
    }

    /// The answer when the store takes too long.
    pub(crate) fn expire(&mut self) -> Reply {
        if let Some((_, conflict)) = self.telling.take() {
            // The verdict is known; what was missed can be read by itself.
            return self.edge.finish(&self.call, Err(conflict));
        }
        self.detach();
        self.edge.shared.metrics.timeout("store");
        self.edge.finish(&self.call, Err(timed_out()))
    }
}

impl Drop for Commit {
    fn drop(&mut self) {
        // The client went away; its bytes are still in the queue.
        if self.proposal.is_some() && tokio::runtime::Handle::try_current().is_ok() {
            self.detach();
        }
    }
}

/// The problem of a write whose outcome did not come in time.
pub(crate) fn timed_out() -> Problem {
    Problem::new(Kind::CommitTimeout, "the write may still be carried out; under a nonce or idempotency key the same request asks for its outcome")
        .code(ErrorCode::Indeterminate)
}

/// Counts the fuel that a program used.
pub(crate) fn charge(edge: &Edge, call: &Call, outcome: &Outcome) {
    if let Some(fuel) = outcome
        .commit()
        .map(|commit| commit.fuel)
        .filter(|fuel| *fuel > 0)
    {
        edge.shared.security.charge_fuel(&call.principal, fuel);
    }
}

fn first(result: Result<Outcomes, StoreError>) -> Result<Outcome, Problem> {
    let outcomes = result.map_err(|error| problem::of_store(&error))?;
    let run = outcomes.runs().first();
    run.map(|run| run.outcome.clone())
        .ok_or_else(|| Problem::new(Kind::Internal, "the store answered nothing"))
}

/// Waits for the store, within its time.
pub(crate) async fn outcomes(
    edge: &Edge,
    proposal: Proposal,
    permit: Permit,
) -> Result<Outcomes, Problem> {
    let mut proposal = proposal;
    let limit = edge.shared.config.store_timeout;
    if let Ok(result) = tokio::time::timeout(limit, &mut proposal).await {
        return result.map_err(|error| problem::of_store(&error));
    }
    edge.shared.metrics.timeout("store");
    tokio::spawn(async move {
        drop(proposal.await);
        drop(permit);
    });
    Err(timed_out())
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
        super::offload::inline(|| Plan::read(edge, call, way, &body))?
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

#[cfg(test)]
mod tests {
    use super::{read_client, read_idempotency_key};

    #[test]
    fn keys_and_clients_are_strict() {
        let key = |text: &str| read_idempotency_key(text.as_bytes());
        assert_eq!(key("\"a b\\\"c\""), Some(b"a b\"c".to_vec()));
        assert_eq!(key("\"a\""), key("a"));
        for wrong in ["", "\"\"", "\"a", "\"a\"b\"", "a b", "\"\\a\"", "\"é\""] {
            assert_eq!(key(wrong), None, "{wrong}");
        }
        assert_eq!(key(&format!("\"{}\"", "x".repeat(256))), None);
        assert!(read_client(b"0123456789abcdefABCDEF0123456789").is_some());
        for wrong in [
            &b"00000000000000000000000000000000"[..],
            b"+123456789abcdefABCDEF0123456789",
            b"0",
        ] {
            assert!(read_client(wrong).is_none());
        }
    }
}
