//! Arguments of every handler of a resource: the state of the port and the request.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;
use weir_core::{ClientId, ErrorCode};

use super::hub::Hub;
use super::route::{Matched, Resource};
use super::streams::state::{KeyedLocks, Streams};
use crate::connections::Slot;
use crate::http::head::{Head, HeadError, Method, Version};
use crate::http::origin::{self, PageOrigin, SANDBOX};
use crate::http::problem::{Kind, Problem};
use crate::http::query::Query;
use crate::http::reply::Reply;
use crate::security::{Denied, Principal, Right};
use crate::shared::Shared;

/// The connection of a request.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// The principal that the connection itself authenticates.
    pub(crate) principal: Arc<Principal>,
    /// The slot of its connection.
    pub(crate) slot: Arc<Slot>,
}

/// State that all connections of the HTTP port share.
#[derive(Debug)]
pub(crate) struct Edge {
    pub(crate) shared: Arc<Shared>,
    pub(crate) hub: Hub,
    pub(crate) ds: Streams,
    /// Locks of changes of the options of a topic.
    pub(crate) option_changes: KeyedLocks,
    /// Returns the `OpenAPI` description of the interface.
    pub(crate) description: fn() -> &'static str,
    /// First half of the request ids; the second half is a counter.
    run_id: u64,
    requests: AtomicU64,
    /// Sessions of idempotency keys whose first request has no response yet.
    keys_in_flight: Mutex<HashSet<ClientId>>,
}

/// A request that passed the checks.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) head: Head,
    pub(crate) matched: Matched,
    /// Whether the resource has this method.
    pub(crate) has_method: bool,
    pub(crate) query: Query,
    pub(crate) page: PageOrigin,
    pub(crate) principal: Arc<Principal>,
    /// The right on the topic that was checked before the body was read.
    pub(crate) checked_right: Option<Right>,
    pub(crate) started: Instant,
    pub(crate) id: String,
}

/// An idempotency key in flight. Dropping it allows the next request with this key.
#[derive(Debug)]
pub(crate) struct KeyInFlight {
    edge: Arc<Edge>,
    client: ClientId,
}

impl Drop for KeyInFlight {
    fn drop(&mut self) {
        let mut keys = self.edge.keys_in_flight.lock();
        keys.remove(&self.client);
    }
}

impl Edge {
    /// `description` returns the `OpenAPI` document.
    pub(crate) fn new(shared: Arc<Shared>, description: fn() -> &'static str) -> Self {
        // Ids need not be secret. They must only differ from those of an earlier run.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(0));
        Self {
            hub: Hub::new(Arc::clone(&shared)),
            ds: Streams::default(),
            option_changes: KeyedLocks::default(),
            description,
            shared,
            run_id: twox_hash::XxHash3_64::oneshot(&now.to_be_bytes()) >> 32,
            requests: AtomicU64::new(1),
            keys_in_flight: Mutex::default(),
        }
    }

    /// Marks an idempotency key as in flight; `None` if it is already.
    pub(crate) fn start_key(self: &Arc<Self>, client: ClientId) -> Option<KeyInFlight> {
        let mut keys = self.keys_in_flight.lock();
        let edge = Arc::clone(self);
        // Created only for a new key, because dropping a `KeyInFlight` removes the mark.
        keys.insert(client).then(|| KeyInFlight { edge, client })
    }

    /// Checks the right of a request again after a wait, because it may have been revoked meanwhile.
    pub(crate) fn check_right_again(&self, call: &Call) -> Result<(), Problem> {
        let Some(right) = call.checked_right else {
            return Ok(());
        };
        let topic = &call.matched.topic;
        let allowed = self.shared.authorize(&call.principal, right, topic);
        allowed.map_err(|denied| denial(denied, topic))
    }

    pub(crate) fn next_id(&self) -> String {
        let n = self.requests.fetch_add(1, Ordering::Relaxed);
        format!("{:08x}{n:08x}", self.run_id)
    }

    /// Completes the response to every request.
    pub(crate) fn finish(&self, call: &Call, result: Result<Reply, Problem>) -> Reply {
        let mut reply = match result {
            Ok(reply) => reply,
            Err(mut problem) => {
                if problem.kind == Kind::Redirect {
                    complete_redirect(&mut problem, &call.head);
                }
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
            reply = reply.without_body();
        }
        reply.add("weir-request-id", &call.id);
        if call.matched.resource == Resource::Stream {
            // Stored content must never run as a page of this server.
            reply.add("x-content-type-options", "nosniff");
            reply.add("cross-origin-resource-policy", "same-origin");
            reply.add("content-security-policy", SANDBOX);
        }
        // A cache must not return a response without CORS fields to a page of an allowed origin.
        if call.page != PageOrigin::None || !self.shared.config.cors_origins.is_empty() {
            reply.add("vary", "origin");
            origin::add_cors_fields(&mut reply, &call.page);
        }
        let elapsed = call.started.elapsed();
        let resource = call.matched.resource;
        // Unknown methods share one label, so that a client cannot add series.
        let method = if call.has_method {
            call.head.method.name()
        } else {
            "OTHER"
        };
        self.shared
            .metrics
            .request(resource as usize, method, reply.status, elapsed);
        let is_probe = matches!(
            resource,
            Resource::Healthz | Resource::Readyz | Resource::Metrics
        );
        if self.shared.config.access_log && !is_probe {
            tracing::info!(
                target: "weir::access",
                request = call.id,
                method = call.head.method.name(),
                route = call.matched.template,
                status = reply.status,
                bytes = reply.length(),
                microseconds = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
                http2 = call.head.version == Version::H2,
                "request"
            );
        }
        reply
    }

    /// The response to an error that occurred before there was a request.
    pub(crate) fn finish_without_call(&self, problem: Problem) -> Reply {
        let id = self.next_id();
        self.shared.metrics.refused(problem.kind.status());
        let mut reply = problem.reply(&id).field("weir-request-id", &id);
        reply.close = true;
        reply
    }

    /// The response to a head that is refused.
    pub(crate) fn refuse(&self, error: HeadError) -> Reply {
        let config = &self.shared.config;
        self.finish_without_call(match error {
            HeadError::Syntax(what) => Problem::bad(what),
            HeadError::Target => {
                Problem::new(Kind::Uri, "").number("limit", config.request_line_max.0 as u64)
            }
            HeadError::Fields => Problem::new(Kind::Headers, "")
                .number("limit", config.head_max.0 as u64)
                .number("fields", config.head_fields_max as u64),
            HeadError::Coding => {
                Problem::new(Kind::Unsupported, "the only transfer coding is chunked")
            }
            HeadError::Version => Problem::new(Kind::Version, ""),
        })
    }
}

/// Completes a redirect with the path of this resource at the leader.
fn complete_redirect(problem: &mut Problem, head: &Head) {
    for (name, value) in &mut problem.fields {
        if *name == "location" {
            value.push_str(head.path());
            if let Some(query) = head.query() {
                value.push('?');
                value.push_str(query);
            }
        }
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

/// The problem of a caller that exceeds its rate.
pub(crate) fn over_rate(pause: std::time::Duration) -> Problem {
    let mut problem = Problem::new(Kind::Rate, ErrorCode::Rate.sentence()).code(ErrorCode::Rate);
    problem.retry_after_ms = Some(milliseconds(pause));
    problem
}

/// Converts a duration to whole milliseconds plus one, so that the result is never too short.
pub(crate) fn milliseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis())
        .unwrap_or(u64::MAX)
        .saturating_add(1)
}
