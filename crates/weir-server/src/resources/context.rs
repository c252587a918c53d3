//! Arguments of every handler of a resource: the state of the port and the request.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;
use weir_core::intention::ONCE;
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
use crate::limits::KEYS_FULL_RETRY_MS;
use crate::security::{Denied, Principal, Right};
use crate::sessions::keys::KEYS_FULL;
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
    /// The principal among whose keys it is counted; `None` if it is not counted.
    principal: Option<String>,
}

impl Drop for KeyInFlight {
    fn drop(&mut self) {
        if let Some(principal) = &self.principal {
            let is_stored = self.edge.has_key(self.client);
            let keys = &self.edge.shared.idempotency_keys;
            keys.end(principal, is_stored);
        }
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

    /// Marks an idempotency key as in flight. Fails if it is already, or if it is new and the
    /// principal has its maximum number of keys.
    pub(crate) fn start_key(
        self: &Arc<Self>,
        principal: &Principal,
        client: ClientId,
    ) -> Result<KeyInFlight, Problem> {
        if !self.keys_in_flight.lock().insert(client) {
            return Err(Problem::new(Kind::InProgress, ""));
        }
        // Created only for a new key, because dropping a `KeyInFlight` removes the mark.
        let mut key = KeyInFlight {
            edge: Arc::clone(self),
            client,
            principal: None,
        };
        if principal.is_limited() && !self.has_key(client) {
            let counted = self.shared.idempotency_keys.start(&principal.name);
            counted.map_err(keys_full)?;
            key.principal = Some(principal.name.clone());
        }
        Ok(key)
    }

    /// Whether the store has the idempotency key of this client id.
    fn has_key(&self, client: ClientId) -> bool {
        self.shared.store.outcome(client, ONCE).is_some()
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

    /// Checks the right of a request again after its body has arrived, because it may have been
    /// revoked meanwhile. The audit has no second record of an allowed request.
    pub(crate) fn check_right_after_body(&self, call: &Call) -> Result<(), Problem> {
        let topic = &call.matched.topic;
        let security = &self.shared.security;
        let is_allowed = |right| security.has(&call.principal, right, topic);
        if call.checked_right.is_none_or(is_allowed) {
            return Ok(());
        }
        self.check_right_again(call)
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

/// The problem of a principal that may have this many idempotency keys, and has them.
fn keys_full(max: usize) -> Problem {
    let problem = Problem::new(Kind::Busy, KEYS_FULL).code(ErrorCode::Busy);
    let mut problem = problem.number("limit", max as u64);
    problem.retry_after_ms = Some(KEYS_FULL_RETRY_MS);
    problem
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use weir_core::{Intention, Operation, TopicOptions};
    use weir_store::{Durability, OpenOptions, Store};

    use super::*;
    use crate::config::ServerConfig;
    use crate::http::problem::Member;
    use crate::security::Security;
    use crate::sessions::keys::IdempotencyKeys;

    const KEYS_MAX: usize = 16;

    fn edge(folder: &std::path::Path) -> Arc<Edge> {
        let options = OpenOptions {
            durability: Durability::Memory,
            ..OpenOptions::default()
        };
        let store = Arc::new(Store::open(folder, &options).unwrap());
        let options = TopicOptions::default();
        let create = Operation::Create { options: &options };
        let created = store.propose(&[Intention::new("t", create)]);
        created.unwrap().wait().unwrap();
        let config = ServerConfig::default();
        let security = Security::open(&config).unwrap();
        let descriptors = crate::descriptors::raise().unwrap();
        let mut shared = Shared::new(config, store, security, descriptors, Vec::new()).unwrap();
        shared.idempotency_keys = IdempotencyKeys::new(KEYS_MAX);
        Arc::new(Edge::new(Arc::new(shared), || ""))
    }

    /// Writes once under a key of a principal.
    fn write(edge: &Arc<Edge>, principal: &str, key: u8) -> Result<(), Problem> {
        let mut caller = Principal::default();
        principal.clone_into(&mut caller.name);
        let client = crate::sessions::stored(&caller, ClientId([key; 16]));
        let in_flight = edge.start_key(&caller, client)?;
        let put = Operation::Put {
            key: b"k",
            value: b"1",
        };
        let intention = Intention::new("t", put).under(client, ONCE);
        let proposal = edge.shared.store.propose(&[intention]);
        proposal.unwrap().wait().unwrap();
        drop(in_flight);
        Ok(())
    }

    #[test]
    fn a_principal_with_its_maximum_of_keys_is_refused_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let edge = edge(folder.path());
        let refused = (1..).find_map(|key| write(&edge, "a", key).err().map(|error| (key, error)));
        let (key, problem) = refused.unwrap();
        let stored = KEYS_MAX / 8 * 7;
        assert_eq!(usize::from(key), stored + 1);
        assert_eq!((problem.kind, &*problem.detail), (Kind::Busy, KEYS_FULL));
        let limit = stored as u64;
        let has_limit =
            |member: &Member| matches!(member, Member::Number("limit", max) if *max == limit);
        assert!(problem.members.iter().any(has_limit), "{problem:?}");
        // A retry of a stored key gets its outcome.
        write(&edge, "a", 1).unwrap();
        write(&edge, "b", 1).unwrap();
        assert!(write(&edge, "a", key).is_err());
        // A key in flight allows no second request, and a refused key leaves no mark.
        let (caller, client) = (Principal::default(), ClientId([7; 16]));
        let in_flight = edge.start_key(&caller, client).unwrap();
        let second = edge.start_key(&caller, client).unwrap_err();
        assert_eq!(second.kind, Kind::InProgress);
        drop(in_flight);
        assert!(edge.start_key(&caller, client).is_ok());
    }
}
