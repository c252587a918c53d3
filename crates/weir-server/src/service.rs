//! Checks and dispatches HTTP requests of both versions of the protocol.
//!
//! [`HttpConnection::start`] accepts a request with its whole body, and responds at once if no
//! operation has to wait. [`HttpConnection::call`] accepts a request whose body is still arriving.
//! Before any work that costs more than parsing, both run these checks in this order: host,
//! resource, method, origin, right, parameters, size.

pub(crate) mod listen;

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use tokio::time::Instant;
use weir_core::ErrorCode;

use crate::config::ServerConfig;
use crate::http::coding;
use crate::http::exchange::{BodyError, BodySource, Input, Started, busy, too_large, whole};
use crate::http::head::{FieldName, Head, HeadError, Method};
use crate::http::origin;
use crate::http::problem::{Kind, Problem};
use crate::http::query::Query;
use crate::http::reply::{Body, Boxed, Reply};
use crate::http::responder::Responder;
use crate::limits::INLINE_WORK_BYTES;
use crate::limits::admission::Admission;
use crate::limits::budget::Reservation;
use crate::phase::Phase;
use crate::resources::context::{Call, Edge, Peer, denial, milliseconds, over_rate};
use crate::resources::events::{self, write};
use crate::resources::route::{self, Matched, Resource};
use crate::resources::table::{BodyMax, Operation, Row, Table};
use crate::resources::{
    batch, consistency, ds, framing, groups, openapi, ops, problems, programs, topics,
};
use crate::security::{Principal, Right};

/// The tables of all resources, the most requested first.
const TABLES: &[Table] = &[
    events::TABLE,
    batch::TABLE,
    topics::TABLE,
    groups::TABLE,
    programs::TABLE,
    ds::TABLE,
    ops::TABLE,
];

/// The `OpenAPI` document as JSON.
static DESCRIPTION: LazyLock<String> = LazyLock::new(|| openapi::document(TABLES).to_string());

/// Returns the `OpenAPI` document, which is a resource too.
pub(crate) fn description() -> &'static str {
    &DESCRIPTION
}

fn rows() -> impl Iterator<Item = &'static Row> {
    TABLES.iter().flat_map(|table| table.rows)
}

/// Returns the labels of the request counters, in the order of [`Resource`].
pub(crate) fn routes() -> Vec<&'static str> {
    let mut labels = vec!["unknown"; route::RESOURCES];
    for row in rows() {
        if let Some(label) = labels.get_mut(row.resource as usize) {
            *label = row.template;
        }
    }
    labels
}

/// Finds the resource that a path names, and its row.
fn find(path: &str) -> Result<(Matched, &'static Row), Problem> {
    for row in rows() {
        if let Some(found) = route::match_path(row.resource, row.template, path)? {
            return Ok((found, row));
        }
    }
    Err(Problem::new(Kind::NotFound, "no resource has this path"))
}

/// A request that passed the checks, and its operation.
type Routed = (Box<Call>, &'static Operation);

/// The result of the checks.
enum Checked {
    Routed(&'static Operation),
    /// The response is ready, for example for OPTIONS.
    Responded(Reply),
}

/// A body of unknown length: each part is charged to the budget when it arrives.
struct ChargedBody<'a> {
    source: &'a mut dyn BodySource,
    edge: &'a Edge,
    principal: Arc<Principal>,
}

impl BodySource for ChargedBody<'_> {
    fn next(&mut self) -> Boxed<'_, Result<Option<Bytes>, BodyError>> {
        Box::pin(async move {
            let piece = self.source.next().await?;
            let bytes = piece.as_ref().map_or(0, Bytes::len) as u64;
            let security = &self.edge.shared.security;
            security.charge_bytes(&self.principal, bytes);
            Ok(piece)
        })
    }

    fn require_minimum_rate(&mut self, holds: bool) {
        self.source.require_minimum_rate(holds);
    }
}

/// The requests of one connection to the edge.
#[derive(Clone, Debug)]
pub(crate) struct HttpConnection {
    pub(crate) edge: Arc<Edge>,
    pub(crate) peer: Peer,
}

impl Responder for HttpConnection {
    fn config(&self) -> &ServerConfig {
        &self.edge.shared.config
    }

    fn start(&self, head: Head, body: &[u8]) -> Started {
        let length = Some(body.len() as u64);
        match self.edge.open(head, self.peer.clone(), length) {
            Ok(routed) => self.edge.start_operation(routed, body),
            Err(reply) => Started::Done(reply),
        }
    }

    async fn call(&self, head: Head, input: Input<'_>, length: Option<u64>) -> Reply {
        let routed = match self.edge.open(head, self.peer.clone(), length) {
            Ok(routed) => routed,
            Err(reply) => return reply,
        };
        match input {
            Input::Source(source) if length.is_none() => {
                let mut charged = ChargedBody {
                    source,
                    edge: &self.edge,
                    principal: Arc::clone(&routed.0.principal),
                };
                let input = Input::Source(&mut charged);
                self.edge.receive(routed, input).await
            }
            input => self.edge.receive(routed, input).await,
        }
    }

    fn refuse(&self, error: HeadError) -> Reply {
        self.edge.refuse(error)
    }

    fn too_slow(&self) -> Reply {
        let problem = Problem::new(Kind::TooSlow, "the header fields arrived too slowly");
        self.edge.finish_without_call(problem)
    }

    fn refuse_with(&self, problem: Problem) -> Reply {
        self.edge.finish_without_call(problem)
    }

    fn admission(&self) -> Option<&Admission> {
        Some(&self.edge.shared.admission)
    }

    fn timed_out(&self, what: &'static str) {
        self.edge.shared.metrics.timeout(what);
    }
}

impl Edge {
    /// Runs the checks. `length` is the length of the body in bytes, if declared.
    fn open(&self, head: Head, peer: Peer, length: Option<u64>) -> Result<Routed, Reply> {
        let started = Instant::now();
        let trace = head.text(FieldName::Traceparent).and_then(trace_id);
        let id = trace.map_or_else(|| self.next_id(), str::to_owned);
        let mut call = Box::new(Call {
            page: origin::page(&head, &self.shared.config),
            head,
            matched: Matched::unknown(),
            has_method: false,
            query: Query::default(),
            principal: peer.principal,
            checked_right: None,
            started,
            id,
        });
        let checked = self.check(&mut call, length);
        if let Ok(Checked::Routed(operation)) = &checked
            && (operation.right.is_some() || !self.shared.security.required())
        {
            peer.slot.authenticated();
        }
        match checked {
            Ok(Checked::Routed(operation)) => Ok((call, operation)),
            Ok(Checked::Responded(reply)) => Err(self.finish(&call, Ok(reply))),
            Err(problem) => {
                let too_large = matches!(problem.kind, Kind::TooLarge | Kind::Expectation);
                let mut reply = self.finish(&call, Err(problem));
                reply.close |= too_large;
                Err(reply)
            }
        }
    }

    fn check(&self, call: &mut Call, length: Option<u64>) -> Result<Checked, Problem> {
        let head = &call.head;
        let config = &self.shared.config;
        origin::check_host(head, config)?;
        let expects = head.raw(FieldName::Expect);
        if expects.is_some_and(|value| !value.eq_ignore_ascii_case(b"100-continue")) {
            return Err(Problem::new(Kind::Expectation, ""));
        }
        if head.method == Method::Options && head.path() == "*" {
            let allow = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
            return Ok(Checked::Responded(Reply::new(204).field("allow", allow)));
        }
        let (matched, row) = find(head.path())?;
        call.matched = matched;
        if head.method == Method::Options {
            let reply = origin::options(head, &row.allow(), &call.page);
            return Ok(Checked::Responded(reply));
        }
        let Some(operation) = row.operation(head.method) else {
            return Err(Problem::new(Kind::Method, "").field("allow", row.allow()));
        };
        call.has_method = true;
        origin::check_write(&call.page, head.method)?;
        let max = body_max(call, operation, config);
        if let Some(right) = operation.right {
            if let Some(principal) = self.authenticate(call)? {
                call.principal = Arc::new(principal);
            }
            let security = &self.shared.security;
            let admitted = security.admit(&call.principal, 1, 0);
            admitted.map_err(over_rate)?;
            let topic = &call.matched.topic;
            let is_status = matches!(call.matched.resource, Resource::Status | Resource::Metrics);
            // The items of a batch decide whether it needs the right to write, to delete, or both.
            let items_decide = (call.matched.resource == Resource::Transactions
                || framing::is_batch(call))
                && security.has(&call.principal, Right::Delete, topic);
            if is_status {
                let allowed = self.shared.authorize_status(&call.principal);
                allowed.map_err(|denied| denial(denied, topic))?;
                call.checked_right = Some(right);
            } else if !items_decide || security.has(&call.principal, right, topic) {
                let allowed = self.shared.authorize(&call.principal, right, topic);
                allowed.map_err(|denied| denial(denied, topic))?;
                call.checked_right = Some(right);
            }
            if !is_status {
                let is_member = self.shared.check_is_member();
                is_member.map_err(|error| problems::of_store(&error))?;
            }
            // Charged here, because the body of a denied request is not read. A body over its limit
            // is refused below, and not read either.
            let body_bytes = length.filter(|length| *length <= max as u64);
            security.charge_bytes(&call.principal, body_bytes.unwrap_or(0));
        }
        let head = &call.head;
        call.query = match call.matched.resource {
            Resource::Stream => Query::read_known(head.query(), operation.query)?,
            _ => Query::read(head.query(), operation.query)?,
        };
        if length.is_some_and(|length| length > max as u64) {
            let budget = &self.shared.admission.bodies;
            return Err(too_large(max, &Reservation::new(budget)));
        }
        if head.method.writes() {
            if self.shared.phase() >= Phase::Cut {
                return Err(Problem::new(Kind::Draining, "").code(ErrorCode::Draining));
            }
            // After the write, its outcome must be sent.
            coding::check_acceptable(head)?;
        }
        Ok(Checked::Routed(operation))
    }

    /// Returns the principal of the request's token; `None` without a token.
    fn authenticate(&self, call: &Call) -> Result<Option<Principal>, Problem> {
        let Some(value) = call.head.raw(FieldName::Authorization) else {
            return Ok(None);
        };
        if call.head.is_repeated(FieldName::Authorization) {
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
        let result = security.authenticate(token.trim_ascii(), &call.principal);
        result.map(Some).map_err(|rejected| {
            let mut problem = wrong();
            problem.retry_after_ms = rejected.retry.map(milliseconds);
            problem
        })
    }

    fn start_operation(self: &Arc<Self>, (call, operation): Routed, body: &[u8]) -> Started {
        let call = match write::start_inline(self, call, body) {
            Ok(started) => return started,
            Err(call) => call,
        };
        if let Some(result) = self.run_immediately(&call, operation) {
            return Started::Done(self.finish(&call, result));
        }
        let (edge, body) = (Arc::clone(self), Bytes::copy_from_slice(body));
        Started::Later(Box::pin(async move {
            edge.handle((call, operation), Input::Whole(body)).await
        }))
    }

    /// Executes an operation that never waits. Returns `None` if the operation may wait.
    fn run_immediately(
        self: &Arc<Self>,
        call: &Call,
        operation: &Operation,
    ) -> Option<Result<Reply, Problem>> {
        let run = operation.immediate?;
        if call.head.has(FieldName::AcceptEncoding)
            || !consistency::is_met_now(self, call, operation)
        {
            return None;
        }
        run(self, call)
    }

    async fn receive(self: &Arc<Self>, (call, operation): Routed, input: Input<'_>) -> Reply {
        if framing::is_batch(&call) {
            return self.handle((call, operation), input).await;
        }
        let max = body_max(&call, operation, &self.shared.config);
        // Held until the response is ready.
        let mut reservation =
            Reservation::for_principal(&self.shared.admission.bodies, call.principal.share_key());
        let body = whole(input, max, &mut reservation).await;
        let checked = body.and_then(|body| self.check_right_after_body(&call).map(|()| body));
        match checked {
            Ok(body) if body.len() <= INLINE_WORK_BYTES => {
                self.wait(self.start_operation((call, operation), &body))
                    .await
            }
            Ok(body) => self.handle((call, operation), Input::Whole(body)).await,
            Err(problem) => {
                let mut reply = self.finish(&call, Err(problem));
                reply.close = true;
                reply
            }
        }
    }

    /// Waits for the response, at most `store_timeout`.
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

    /// Executes an operation that may wait.
    async fn handle(self: &Arc<Self>, (call, operation): Routed, input: Input<'_>) -> Reply {
        let result = self.execute(&call, operation, input).await;
        let result = match result {
            Ok(reply) => coding::encode(&call.head, reply).await,
            Err(problem) => Err(problem),
        };
        let result = match result {
            Ok(reply) => self.reserve_response(&call, reply).await,
            Err(problem) => Err(problem),
        };
        self.finish(&call, result)
    }

    /// Reserves the memory of a response until it is sent. Operations that return records
    /// have reserved their memory before. The response to a write is sent even if the budget is used
    /// up, because the write was executed.
    async fn reserve_response(&self, call: &Call, mut reply: Reply) -> Result<Reply, Problem> {
        if let Body::Bytes(bytes) = reply.body {
            let budget = &self.shared.admission.answers;
            let reservation = reply.reservation.take();
            let mut reservation = reservation.map_or_else(
                || Reservation::for_principal(budget, call.principal.share_key()),
                |reservation| *reservation,
            );
            let is_reserved = reservation.cover(bytes.len()).await;
            if !call.head.method.writes() {
                is_reserved.map_err(busy)?;
            }
            reply.body = Body::Bytes(reservation.attach(bytes));
        }
        Ok(reply)
    }

    async fn execute(
        self: &Arc<Self>,
        call: &Call,
        operation: &Operation,
        input: Input<'_>,
    ) -> Result<Reply, Problem> {
        let edge = self;
        if framing::is_batch(call) {
            return batch::run(edge, call, input).await;
        }
        let max = body_max(call, operation, &self.shared.config);
        let mut reservation =
            Reservation::for_principal(&self.shared.admission.bodies, call.principal.share_key());
        let body = whole(input, max, &mut reservation).await?;
        let body = coding::decode(&call.head, body, max, &mut reservation).await?;
        consistency::wait(edge, call, operation).await?;
        (operation.handler)(edge, call, body).await
    }
}

/// Returns the trace id of a `traceparent`, or `None` if the text is not valid.
fn trace_id(text: &str) -> Option<&str> {
    let mut parts = text.split('-');
    let (_, id) = (
        parts.next().filter(|version| version.len() == 2)?,
        parts.next()?,
    );
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (id.len() == 32 && id.bytes().all(hex) && id.bytes().any(|byte| byte != b'0')).then_some(id)
}

/// Returns the largest body of a request, in bytes.
fn body_max(call: &Call, operation: &Operation, config: &ServerConfig) -> usize {
    match operation.body {
        BodyMax::Json => config.json_max.0,
        BodyMax::Event if !framing::is_batch(call) => config.payload_max.0,
        BodyMax::Event | BodyMax::Batch => config.body_max.0,
        BodyMax::Module => weir_core::limits::CODE_BYTES_MAX.min(config.body_max.0),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use std::fmt::Write as _;

    use serde_json::Value;

    use super::*;

    fn found(path: &str) -> Result<Matched, Problem> {
        find(path).map(|(found, _)| found)
    }

    #[test]
    fn every_path_finds_its_one_row() {
        for row in rows() {
            let path = row
                .template
                .replace("{topic}", "t")
                .replace("{key}", "k")
                .replace("{offset}", "7")
                .replace("{group}", "g")
                .replace("{sha256}", "0")
                .replace("{name}", "n");
            assert_eq!(found(&path).unwrap().resource, row.resource, "{path}");
        }
        let mut all: Vec<u8> = rows().map(|row| row.resource as u8).collect();
        all.sort_unstable();
        let whole = (0..).take(route::RESOURCES - 1).collect::<Vec<u8>>();
        assert_eq!(all, whole);
    }

    #[test]
    fn json_examples_are_valid() {
        for operation in rows().flat_map(|row| row.operations) {
            let answers = operation.responses.iter().flat_map(|one| one.content);
            for one in operation.request.iter().chain(answers) {
                if one.media.ends_with("json")
                    && !one.example.contains('\n')
                    && one.schema != "Text"
                {
                    let read = serde_json::from_str::<Value>(one.example);
                    assert!(read.is_ok(), "{}: {}", operation.summary, one.example);
                }
            }
        }
    }

    #[test]
    fn keys_are_decoded_after_the_split() {
        let key = |path: &str| found(&format!("/v1/topics/t/keys/{path}")).map(|found| found.key);
        assert_eq!(key("a%2Fb").unwrap(), b"a/b");
        assert_eq!(key("%ff+").unwrap(), b"\xff+");
        assert_eq!(key("~b64/Li4").unwrap(), b"..");
        for wrong in ["a/b", "%2", "%zz", "~a", "", "~b64/", "~b64/%"] {
            assert!(key(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn malformed_names_and_numbers_are_refused() {
        for wrong in [
            "/v1/topics/a%20b",
            "/v1/topics/.x%20",
            "/v1/topics/",
            "/v1/",
            "/v2",
            "//v1",
            "/v1/topics/t/events/07",
            "/v1/topics/t/events/0",
            "/v1/topics/t/events/-1",
            "/v1/topics/t/events/99999999999999999999",
            "/v1/topics/t/events/7/",
            "*",
        ] {
            assert!(found(wrong).is_err(), "{wrong}");
        }
        assert_eq!(found("/v1/topics/a%2eb").unwrap().topic, "a.b");
    }

    /// Block style, members in order, strings in double quotes.
    fn yaml(value: &Value, depth: usize, out: &mut String) {
        let pad = "  ".repeat(depth);
        match value {
            Value::Object(members) if !members.is_empty() => {
                for (name, value) in members {
                    let _ = write!(out, "\n{pad}{}:", Value::from(name.as_str()));
                    yaml(value, depth + 1, out);
                }
            }
            Value::Array(items) if !items.is_empty() => {
                for item in items {
                    let _ = write!(out, "\n{pad}-");
                    yaml(item, depth + 1, out);
                }
            }
            other => {
                let _ = write!(out, " {other}");
            }
        }
    }

    #[test]
    fn the_openapi_file_matches_the_tables() {
        let mut text = String::from(
            "# Generated from the tables of the resources (crates/weir-server); do not edit. A test\n# compares them; with WEIR_BLESS=1, the test writes this file.",
        );
        yaml(&openapi::document(TABLES), 0, &mut text);
        text.push('\n');
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api/openapi.yaml");
        if std::env::var_os("WEIR_BLESS").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        assert!(
            std::fs::read_to_string(path).unwrap() == text,
            "docs/api/openapi.yaml differs from the tables; run this test with WEIR_BLESS=1"
        );
    }

    #[test]
    fn all_references_exist() {
        fn walk(value: &Value, root: &Value) {
            match value {
                Value::Object(members) => {
                    if let Some(Value::String(to)) = members.get("$ref") {
                        assert!(
                            root.pointer(to.strip_prefix('#').unwrap()).is_some(),
                            "{to}"
                        );
                    }
                    members.values().for_each(|value| walk(value, root));
                }
                Value::Array(items) => items.iter().for_each(|value| walk(value, root)),
                _ => {}
            }
        }
        let document = openapi::document(TABLES);
        walk(&document, &document);
    }
}
