//! What happens with a request, whichever protocol it came by.
//!
//! [`Edge::start`] takes a request whose body is there and does at once what
//! can be done at once; [`Edge::call`] takes one whose body is still coming.
//! Both pass the same checks in the same order before anything that costs more
//! than parsing: host, resource, method, origin, right, parameters, size.

pub(crate) mod visit;

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::time::Instant;
use weir_core::{ClientId, ErrorCode, Intention};

use super::limits::INLINE_WORK_BYTES;
use crate::access::{Principal, Right};
use crate::http::coding;
use crate::http::head::{Bad, Head, Known, Method, Version};
use crate::http::origin::{self, Page};
use crate::http::problem::{Kind, Problem};
use crate::http::query::Query;
use crate::http::reply::{Body, Boxed, Reply};
use crate::limits::connections::Slot;
use crate::limits::room::{self, NoRoom, Room};
use crate::resources::events::hub::Hub;
use crate::resources::events::write::Commit;
use crate::resources::events::{read, tail, write};
use crate::resources::programs;
use crate::resources::route::{self, Matched, Resource};
use crate::resources::{batch, ds, groups, ops, topics};
use crate::security::Denied;
use crate::shared::{Phase, Shared};

/// Where a request came from.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Whoever the connection itself proves.
    pub(crate) principal: Arc<Principal>,
    /// Its connection.
    pub(crate) slot: Arc<Slot>,
}

/// What all connections of the HTTP port share.
#[derive(Debug)]
pub(crate) struct Edge {
    pub(crate) shared: Arc<Shared>,
    pub(crate) hub: Hub,
    pub(crate) ds: ds::Ds,
    /// First half of the ids of requests; the second one counts.
    run: u64,
    requests: AtomicU64,
    /// Sessions of idempotency keys whose first request is not answered yet.
    keyed: Mutex<HashSet<ClientId>>,
}

/// A request that passed the checks.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) head: Head,
    pub(crate) matched: Matched,
    pub(crate) query: Query,
    pub(crate) page: Page,
    pub(crate) principal: Arc<Principal>,
    /// The right that it has on its topic, as was found before its body was
    /// read.
    pub(crate) asked: Option<Right>,
    pub(crate) begun: Instant,
    pub(crate) id: String,
}

/// What went wrong with a body on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// The client went away, or ended early.
    Cut,
    /// It came too slowly.
    Slow,
    /// Its chunks cannot be read.
    Framing,
}

/// A body that is still coming.
pub(crate) trait BodySource: Send {
    /// The next piece, not empty; `None` at the end.
    fn next(&mut self) -> Boxed<'_, Result<Option<Bytes>, BodyError>>;

    /// Whether what was read of it holds room that others wait for: then it
    /// must come faster.
    fn hurry(&mut self, holds: bool);
}

/// A body of which nobody knows how long it will be: what arrives is charged.
struct Charged<'a> {
    source: &'a mut dyn BodySource,
    edge: &'a Edge,
    principal: Arc<Principal>,
}

impl BodySource for Charged<'_> {
    fn next(&mut self) -> Boxed<'_, Result<Option<Bytes>, BodyError>> {
        Box::pin(async move {
            let piece = self.source.next().await?;
            let bytes = piece.as_ref().map_or(0, Bytes::len) as u64;
            let security = &self.edge.shared.security;
            security.charge_bytes(&self.principal, bytes);
            Ok(piece)
        })
    }

    fn hurry(&mut self, holds: bool) {
        self.source.hurry(holds);
    }
}

/// The body of a request.
pub(crate) enum Input<'a> {
    Whole(Bytes),
    Source(&'a mut dyn BodySource),
}

/// An answer, or what it waits for.
pub(crate) enum Started {
    Done(Reply),
    Commit(Box<Commit>),
    Later(Boxed<'static, Reply>),
    /// It was given already.
    Gone,
}

impl Started {
    /// The answer, once it is there.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Reply> {
        match self {
            Self::Done(_) => {}
            Self::Commit(commit) => return commit.poll(context),
            Self::Later(future) => return future.as_mut().poll(context),
            Self::Gone => return Poll::Pending,
        }
        match std::mem::replace(self, Self::Gone) {
            Self::Done(reply) => Poll::Ready(reply),
            other => {
                *self = other;
                Poll::Pending
            }
        }
    }

    /// Whether it must be there within the time for the store.
    pub(crate) fn expires(&self) -> bool {
        matches!(self, Self::Commit(_))
    }

    /// The answer when it is not.
    pub(crate) fn expire(&mut self) -> Reply {
        match self {
            Self::Commit(commit) => commit.expire(),
            _ => Problem::new(Kind::Internal, "nothing was waited for").reply(""),
        }
    }
}

impl Future for Started {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        Started::poll(&mut self, context)
    }
}

/// An idempotency key in flight; the next one may come when this is dropped.
#[derive(Debug)]
pub(crate) struct Keyed {
    edge: Arc<Edge>,
    client: ClientId,
}

impl Drop for Keyed {
    fn drop(&mut self) {
        let mut keyed = self
            .edge
            .keyed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        keyed.remove(&self.client);
    }
}

impl Edge {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        // Ids need not be secret, only different from those of the run before.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(0));
        Self {
            hub: Hub::new(Arc::clone(&shared)),
            ds: ds::Ds::default(),
            shared,
            run: twox_hash::XxHash3_64::oneshot(&now.to_be_bytes()) >> 32,
            requests: AtomicU64::new(1),
            keyed: Mutex::default(),
        }
    }

    /// Marks an idempotency key as in flight; `None`: it is already.
    pub(crate) fn enter(self: &Arc<Self>, client: ClientId) -> Option<Keyed> {
        let mut keyed = self.keyed.lock().unwrap_or_else(PoisonError::into_inner);
        let edge = Arc::clone(self);
        // Made only when it is new: dropping one takes the mark away.
        keyed.insert(client).then(|| Keyed { edge, client })
    }

    fn next_id(&self) -> String {
        let n = self.requests.fetch_add(1, Ordering::Relaxed);
        format!("{:08x}{n:08x}", self.run)
    }

    /// The checks. `length` of the body, when it is declared.
    fn open(&self, head: Head, peer: Peer, length: Option<u64>) -> Result<Box<Call>, Reply> {
        let begun = Instant::now();
        let trace = head.text(Known::Traceparent).and_then(trace_id);
        let id = trace.map_or_else(|| self.next_id(), str::to_owned);
        let mut call = Box::new(Call {
            page: origin::page(&head, &self.shared.config),
            head,
            matched: Matched {
                resource: Resource::Unknown,
                topic: String::new(),
                key: Vec::new(),
                offset: 0,
                name: String::new(),
            },
            query: Query::default(),
            principal: peer.principal,
            asked: None,
            begun,
            id,
        });
        let checked = self.check(&mut call, length);
        if checked.is_ok() && (right(&call).is_some() || !self.shared.security.required()) {
            peer.slot.authenticated();
        }
        match checked {
            Ok(None) => Ok(call),
            Ok(Some(reply)) => Err(self.finish(&call, Ok(reply))),
            Err(problem) => {
                let too_large = matches!(problem.kind, Kind::TooLarge | Kind::Expectation);
                let mut reply = self.finish(&call, Err(problem));
                reply.close |= too_large;
                Err(reply)
            }
        }
    }

    fn check(&self, call: &mut Call, length: Option<u64>) -> Result<Option<Reply>, Problem> {
        let head = &call.head;
        let config = &self.shared.config;
        origin::check_host(head, config)?;
        let expects = head.raw(Known::Expect);
        if expects.is_some_and(|value| !value.eq_ignore_ascii_case(b"100-continue")) {
            return Err(Problem::new(Kind::Expectation, ""));
        }
        if head.method == Method::Options && head.path() == "*" {
            return Ok(Some(
                Reply::new(204).field("allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
            ));
        }
        call.matched = route::find(head.path())?;
        let Some(row) = call.matched.resource.row() else {
            return Err(Problem::new(Kind::NotFound, ""));
        };
        if head.method == Method::Options {
            return Ok(Some(origin::options(head, &row.allow(), &call.page)));
        }
        let Some(params) = row.params(head.method) else {
            return Err(Problem::new(Kind::Method, "").field("allow", row.allow()));
        };
        origin::check_write(&call.page, head.method)?;
        if let Some(right) = right(call) {
            if let Some(principal) = self.authenticate(call)? {
                call.principal = Arc::new(principal);
            }
            let security = &self.shared.security;
            security
                .admit(&call.principal, 1, length.unwrap_or(0))
                .map_err(rate)?;
            let topic = &call.matched.topic;
            // Its items say whether it writes, removes, or both.
            let open = (call.matched.resource == Resource::Transactions || batch::is_batch(call))
                && security.has(&call.principal, Right::Delete, topic);
            if !open || security.has(&call.principal, right, topic) {
                let allowed = self.shared.authorize(&call.principal, right, topic);
                allowed.map_err(|denied| denial(denied, topic))?;
                call.asked = Some(right);
            }
        }
        let head = &call.head;
        call.query = match call.matched.resource {
            Resource::Stream => Query::read_known(head.query(), params)?,
            _ => Query::read(head.query(), params)?,
        };
        let max = body_max(call, config);
        if length.is_some_and(|length| length > max as u64) {
            return Err(Problem::too_large("the body", max));
        }
        if head.method.writes() && self.shared.phase() >= Phase::Cut {
            return Err(Problem::new(Kind::Draining, "").code(ErrorCode::Draining));
        }
        Ok(None)
    }

    /// Whoever shows a token; `None` without one.
    fn authenticate(&self, call: &Call) -> Result<Option<Principal>, Problem> {
        let Some(value) = call.head.raw(Known::Authorization) else {
            return Ok(None);
        };
        if call.head.is_repeated(Known::Authorization) {
            return Err(Problem::bad("more than one Authorization"));
        }
        let security = &self.shared.security;
        if !security.required() {
            return Ok(None);
        }
        let (scheme, token) = value.split_at(
            value
                .iter()
                .position(|byte| *byte == b' ')
                .unwrap_or(value.len()),
        );
        let wrong = || {
            Problem::new(Kind::Unauthenticated, ErrorCode::Unauthenticated.sentence())
                .code(ErrorCode::Unauthenticated)
                .field("www-authenticate", "Bearer error=\"invalid_token\"")
        };
        if !scheme.eq_ignore_ascii_case(b"bearer") {
            return Err(wrong());
        }
        let proved = security.authenticate(token.trim_ascii(), &call.principal);
        proved.map(Some).map_err(|unproved| {
            let mut problem = wrong();
            problem.retry_after_ms = unproved.retry.map(milliseconds);
            problem
        })
    }

    /// Begins a request whose body is there.
    pub(crate) fn start(self: &Arc<Self>, head: Head, peer: Peer, body: &[u8]) -> Started {
        let call = match self.open(head, peer, Some(body.len() as u64)) {
            Ok(call) => call,
            Err(reply) => return Started::Done(reply),
        };
        self.begin(call, body)
    }

    fn begin(self: &Arc<Self>, call: Box<Call>, body: &[u8]) -> Started {
        let call = match write::quick(self, call, body) {
            Ok(started) => return started,
            Err(call) => call,
        };
        if let Some(result) = read::quick(self, &call) {
            return Started::Done(self.finish(&call, result));
        }
        let (edge, body) = (Arc::clone(self), Bytes::copy_from_slice(body));
        Started::Later(Box::pin(async move {
            edge.handle(call, Input::Whole(body)).await
        }))
    }

    /// Carries out a request whose body is still coming.
    pub(crate) async fn call(
        self: &Arc<Self>,
        head: Head,
        peer: Peer,
        input: Input<'_>,
        length: Option<u64>,
    ) -> Reply {
        let call = match self.open(head, peer, length) {
            Ok(call) => call,
            Err(reply) => return reply,
        };
        match input {
            Input::Source(source) if length.is_none() => {
                let mut charged = Charged {
                    source,
                    edge: self,
                    principal: Arc::clone(&call.principal),
                };
                self.receive(call, Input::Source(&mut charged)).await
            }
            input => self.receive(call, input).await,
        }
    }

    async fn receive(self: &Arc<Self>, call: Box<Call>, input: Input<'_>) -> Reply {
        if batch::is_stream(&call) {
            return self.handle(call, input).await;
        }
        let max = body_max(&call, &self.shared.config);
        // Held until the answer is there.
        let mut room = Room::new(&self.shared.admission);
        match whole(input, max, &mut room).await {
            Ok(body) if body.len() <= INLINE_WORK_BYTES => self.wait(self.begin(call, &body)).await,
            Ok(body) => self.handle(call, Input::Whole(body)).await,
            Err(problem) => {
                let mut reply = self.finish(&call, Err(problem));
                reply.close = true;
                reply
            }
        }
    }

    /// Waits for an answer, within the time for the store.
    pub(crate) async fn wait(&self, mut started: Started) -> Reply {
        if !started.expires() {
            return started.await;
        }
        let limit = self.shared.config.store_timeout;
        match tokio::time::timeout(limit, &mut started).await {
            Ok(reply) => reply,
            Err(_) => started.expire(),
        }
    }

    /// Everything that is not done at once.
    async fn handle(self: &Arc<Self>, call: Box<Call>, input: Input<'_>) -> Reply {
        let result = self.result(&call, input).await;
        let result = match result {
            Ok(reply) => coding::encode(&call, reply).await,
            Err(problem) => Err(problem),
        };
        let result = match result {
            Ok(reply) => self.held(reply).await,
            Err(problem) => Err(problem),
        };
        self.finish(&call, result)
    }

    /// An answer with the room that it takes until it is sent.
    async fn held(&self, mut reply: Reply) -> Result<Reply, Problem> {
        if let Body::Bytes(bytes) = reply.body {
            let held = room::hold(&self.shared.admission, bytes).await;
            reply.body = Body::Bytes(held.map_err(busy)?);
        }
        Ok(reply)
    }

    async fn result(self: &Arc<Self>, call: &Call, input: Input<'_>) -> Result<Reply, Problem> {
        let edge = self;
        if batch::is_stream(call) {
            return batch::run(edge, call, input).await;
        }
        let max = body_max(call, &self.shared.config);
        let mut room = Room::new(&self.shared.admission);
        let body = whole(input, max, &mut room).await?;
        let body = coding::decode(call, body, max, &mut room).await?;
        match (call.matched.resource, call.head.method) {
            (Resource::Events, Method::Post) => write::post(edge, call, body).await,
            (Resource::Key, Method::Put | Method::Delete) => write::key(edge, call, body).await,
            (Resource::Transactions, _) => batch::transaction(edge, call, &body).await,
            (Resource::Topic, Method::Put) => topics::create(edge, call, &body).await,
            (Resource::Topic, Method::Patch) => topics::alter(edge, call, &body).await,
            (Resource::Topic, Method::Delete) => topics::destroy(edge, call).await,
            (Resource::Program, Method::Put) => programs::put(edge, call, body).await,
            (Resource::Program, _) => programs::get(edge, call),
            (Resource::Module, _) => programs::module(edge, call),
            (Resource::Topic, _) => topics::get(edge, call),
            (Resource::Groups, _) => groups::list(edge, call).await,
            (Resource::Group, Method::Put) => groups::open(edge, call, &body).await,
            (Resource::Group, Method::Delete) => groups::delete(edge, call).await,
            (Resource::Group, _) => groups::get(edge, call).await,
            (Resource::GroupClaim, _) => groups::claim(edge, call).await,
            (resource, Method::Post) if resource.is_of_group() => {
                groups::step(edge, call, &body).await
            }
            (Resource::Topics, _) => topics::list(edge, call).await,
            (Resource::Events, _) if tail::is_wanted(call) => tail::open(edge, call).await,
            (Resource::Events, _) => read::page(edge, call).await,
            (Resource::Keys, _) => read::keys(edge, call).await,
            (Resource::Key, _) => read::key(edge, call).await,
            (Resource::Event, _) => read::event(edge, call).await,
            (Resource::Stream, _) => ds::run(edge, call, body).await,
            (Resource::Metrics, _) => ops::metrics(edge, call).await,
            (resource, _) => ops::get(edge, call, resource),
        }
    }

    /// The last touch of every answer to a request.
    pub(crate) fn finish(&self, call: &Call, result: Result<Reply, Problem>) -> Reply {
        let mut reply = match result {
            Ok(reply) => reply,
            Err(problem) => {
                if matches!(problem.kind, Kind::Internal | Kind::Store) {
                    tracing::error!(
                        request = call.id,
                        problem = problem.kind.name(),
                        detail = problem.detail
                    );
                }
                problem.reply(&call.id)
            }
        };
        if call.head.method == Method::Head {
            reply = reply.headless();
        }
        reply.add("weir-request-id", &call.id);
        if call.matched.resource == Resource::Stream {
            // Whatever somebody has put there, it is no page of this server.
            reply.add("x-content-type-options", "nosniff");
            reply.add("cross-origin-resource-policy", "same-origin");
            reply.add("content-security-policy", read::NO_PAGE);
        }
        if call.page != Page::None {
            reply.add("vary", "origin");
            origin::decorate(&mut reply, &call.page);
        }
        let taken = call.begun.elapsed();
        let resource = call.matched.resource;
        self.shared
            .metrics
            .request(resource, call.head.method, reply.status, taken);
        let quiet = matches!(
            resource,
            Resource::Healthz | Resource::Readyz | Resource::Metrics
        );
        if self.shared.config.access_log && !quiet {
            tracing::info!(
                target: "weir::access",
                request = call.id,
                method = call.head.method.name(),
                route = resource.label(),
                status = reply.status,
                bytes = reply.length(),
                microseconds = u64::try_from(taken.as_micros()).unwrap_or(u64::MAX),
                http2 = call.head.version == Version::H2,
                "request"
            );
        }
        reply
    }

    /// An error before there was a request.
    pub(crate) fn finish_bare(&self, problem: Problem) -> Reply {
        let id = self.next_id();
        self.shared.metrics.refused(problem.kind.status());
        let mut reply = problem.reply(&id).field("weir-request-id", &id);
        reply.close = true;
        reply
    }

    /// The answer to a head that is refused.
    pub(crate) fn refuse(&self, bad: Bad) -> Reply {
        let config = &self.shared.config;
        self.finish_bare(match bad {
            Bad::Syntax(what) => Problem::bad(what),
            Bad::Target => {
                Problem::new(Kind::Uri, "").number("limit", config.request_line_max.0 as u64)
            }
            Bad::Fields => Problem::new(Kind::Headers, "")
                .number("limit", config.head_max.0 as u64)
                .number("fields", config.head_fields_max as u64),
            Bad::Coding => Problem::new(Kind::Unsupported, "the only transfer coding is chunked"),
            Bad::Version => Problem::new(Kind::Version, ""),
        })
    }
}

fn milliseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis())
        .unwrap_or(u64::MAX)
        .saturating_add(1)
}

/// The answer to whoever comes too fast.
fn rate(pause: std::time::Duration) -> Problem {
    let mut problem = Problem::new(Kind::Rate, ErrorCode::Rate.sentence()).code(ErrorCode::Rate);
    problem.retry_after_ms = Some(milliseconds(pause));
    problem
}

impl Edge {
    /// Whether whoever calls may propose these.
    pub(crate) fn allow(
        &self,
        call: &Call,
        intentions: &[Intention<'_>],
    ) -> Result<(), (usize, Problem)> {
        let asked = call.asked.map(|right| (right, &*call.matched.topic));
        let security = &self.shared.security;
        let allowed = security.allow(&call.principal, asked, intentions);
        allowed.map_err(|not| (not.index, denial(not.denied, &not.topic)))
    }
}

pub(crate) fn denial(denied: Denied, topic: &str) -> Problem {
    if denied.code == ErrorCode::Unauthenticated {
        let problem = Problem::new(Kind::Unauthenticated, denied.code.sentence()).code(denied.code);
        return problem.field("www-authenticate", "Bearer");
    }
    let problem = Problem::new(Kind::Forbidden, denied.code.sentence()).code(denied.code);
    problem
        .text("right", denied.right.name())
        .text("topic", topic)
}

/// The trace id of a `traceparent`, if it is one.
fn trace_id(text: &str) -> Option<&str> {
    let mut parts = text.split('-');
    let (_, id) = (
        parts.next().filter(|version| version.len() == 2)?,
        parts.next()?,
    );
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (id.len() == 32 && id.bytes().all(hex) && id.bytes().any(|byte| byte != b'0')).then_some(id)
}

/// The right that a request needs; none for what is open to all.
fn right(call: &Call) -> Option<Right> {
    Some(match (call.matched.resource, call.head.method) {
        (Resource::Healthz | Resource::Readyz | Resource::OpenApi | Resource::Problem, _) => {
            return None;
        }
        (Resource::Root, _) => return None,
        (Resource::Metrics, _) => Right::Admin,
        (resource, _) if resource.is_of_group() => Right::Group,
        (Resource::Topic | Resource::Stream, Method::Put) | (Resource::Topic, Method::Patch) => {
            Right::Create
        }
        (Resource::Topic | Resource::Stream, Method::Delete) => Right::Destroy,
        (Resource::Program, Method::Put) | (Resource::Module, _) => Right::Program,
        (_, Method::Get | Method::Head) => Right::Read,
        (_, Method::Delete) => Right::Delete,
        _ => Right::Put,
    })
}

/// Bytes of the body that a request may have.
fn body_max(call: &Call, config: &crate::config::ServerConfig) -> usize {
    match (call.matched.resource, call.head.method) {
        (Resource::Transactions, _) => config.body_max.0,
        _ if batch::is_batch(call) => config.body_max.0,
        (Resource::Events | Resource::Key | Resource::Stream, Method::Post | Method::Put) => {
            config.payload_max.0
        }
        (Resource::Program, Method::Put) => weir_core::limits::CODE_BYTES_MAX,
        // Options, or no use for a body at all.
        _ => config.json_max.0,
    }
}

/// The whole body, up to `max` bytes. What is large of it takes room.
pub(crate) async fn whole(
    input: Input<'_>,
    max: usize,
    room: &mut Room<'_>,
) -> Result<Bytes, Problem> {
    let source = match input {
        Input::Whole(bytes) if bytes.len() > max => {
            return Err(Problem::too_large("the body", max));
        }
        Input::Whole(bytes) => return Ok(bytes),
        Input::Source(source) => source,
    };
    let mut body: Vec<u8> = Vec::new();
    loop {
        source.hurry(room.is_held());
        let Some(piece) = source.next().await.map_err(lost)? else {
            return Ok(body.into());
        };
        let length = body.len() + piece.len();
        if length > max {
            return Err(Problem::too_large("the body", max));
        }
        if length > body.capacity() {
            // It grows with what arrives, never with what is announced.
            let size = length.max(body.capacity().saturating_mul(2).min(max));
            source.hurry(false);
            room.cover(size).await.map_err(busy)?;
            body.reserve_exact(size - body.len());
        }
        body.extend_from_slice(&piece);
    }
}

/// The answer to whoever finds no room.
pub(crate) fn busy(_: NoRoom) -> Problem {
    Problem::new(Kind::Busy, ErrorCode::Busy.sentence()).code(ErrorCode::Busy)
}

/// What is answered to a body that does not arrive.
pub(crate) fn lost(error: BodyError) -> Problem {
    match error {
        BodyError::Cut => Problem::bad("the body ends early"),
        BodyError::Slow => Problem::new(Kind::TooSlow, "the body came too slowly"),
        BodyError::Framing => Problem::bad("the chunks of the body cannot be read"),
    }
}
