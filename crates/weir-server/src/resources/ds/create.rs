//! PUT: creates a stream, empty or with initial data, new or as a fork.
//!
//! The topic and the initial state of the stream are one log entry. An empty topic that
//! another API created becomes the stream.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use weir_core::limits::VALUE_BYTES_MAX;
use weir_core::{Commit, Effect, ErrorCode, Expect, Intention, Operation, TopicOptions, TxnOp};

use super::append::{meta, operations, problem_of};
use super::leader::wait_until_current;
use super::open::open;
use super::registry::{self, Change};
use super::view::{self, View};
use super::walk::Walk;
use crate::http::offload;
use crate::http::problem::{Kind, Problem};
use crate::http::reply::Reply;
use crate::resources::context::{Call, Edge, denial};
use crate::resources::events::read::no_topic;
use crate::resources::problems;
use crate::resources::propose::{outcomes, propose_unchecked};
use crate::resources::streams::config::{
    Config, CreateRequest, Expiry, Fork, ForkRequest, TYPE_DEFAULT,
};
use crate::resources::streams::position;
use crate::resources::streams::state::lock;
use crate::resources::streams::terms::{
    CLOSED, CONFIG, FORK_PARTS_MAX, KEYS_RESERVED, PRODUCERS_MAX, essence, is_json,
};
use crate::security::Right;

/// Runs a PUT.
pub(super) async fn put(edge: &Arc<Edge>, call: &Call, body: &Bytes) -> Result<Reply, Problem> {
    let request = CreateRequest::read(&call.head)?;
    let topic = call.matched.topic.as_str();
    let check = |right: Right, topic: &str| {
        let allowed = edge.shared.authorize(&call.principal, right, topic);
        allowed.map_err(|denied| denial(denied, topic))
    };
    if !body.is_empty() || request.closed {
        check(Right::Put, topic)?;
    }
    if let Some(fork) = &request.fork {
        check(Right::Read, &fork.from)?;
    }
    wait_until_current(edge).await?;
    match open(edge, topic).await {
        Ok(view) if !view.is_empty_topic() => return existing(&request, &view),
        Err(problem) if problem.kind == Kind::StreamGone => return Err(name_is_retained()),
        Err(problem) if problem.kind != Kind::NoTopic => return Err(problem),
        _ => {}
    }
    if let Some(fork) = &request.fork {
        // Opening the source removes it if it has expired.
        source_of(fork, open(edge, &fork.from).await)?;
    }
    let needs_lock = request.fork.is_some() || request.expiry.is_some();
    let _guard = if needs_lock {
        Some(lock(edge.shared.config.store_timeout, &edge.ds.structure).await?)
    } else {
        None
    };
    if let Some(view) = view::find(edge, topic)
        .await?
        .filter(|view| !view.is_empty_topic())
    {
        return if view.gone {
            Err(name_is_retained())
        } else {
            existing(&request, &view)
        };
    }
    let source = match &request.fork {
        Some(fork) => Some(source_of(
            fork,
            view::find(edge, &fork.from).await?.ok_or_else(no_topic),
        )?),
        None => None,
    };
    let (config, slice) = plan(edge, &request, source.as_ref()).await?;
    let text = serde_json::to_vec(&config);
    let text = text.map_err(|_| {
        Problem::new(
            Kind::Internal,
            "the description of the stream cannot be serialized",
        )
    })?;
    register(edge, topic, (&config, &text), body).await?;
    let commit = create(edge, call, &request, (&config, &text), [&slice, body]).await;
    let Some(commit) = commit? else {
        // Another request created the stream first.
        let view = view::find(edge, topic).await?.ok_or_else(no_topic)?;
        return existing(&request, &view);
    };
    // The record of the description has the position where the stream starts.
    let last = commit.first.0 + u64::from(commit.records).max(1) - 1;
    let tail = match &config.fork {
        Some(fork) => fork.base + (last - commit.first.0),
        None => last,
    };
    let mut reply = head(201, &config.content_type);
    reply.add("location", location(edge, call));
    reply.add("stream-next-offset", position::token(tail));
    if request.closed {
        reply.add("stream-closed", "true");
    }
    Ok(reply.number("weir-intention", commit.intention.0))
}

fn head(status: u16, content_type: &str) -> Reply {
    let mut reply = Reply::new(status).field("content-type", content_type);
    reply.add("cache-control", "no-store");
    reply
}

/// The response if the stream already exists.
fn existing(request: &CreateRequest, view: &View) -> Result<Reply, Problem> {
    if view.gone {
        return Err(name_is_retained());
    }
    if !request.matches(&view.config, view.closed.is_some()) {
        return Err(view.refuse(
            Kind::StreamExists,
            "its content type, expiry, end or source differs from the request",
        ));
    }
    let mut reply = head(200, &view.config.content_type);
    view.add_fields(&mut reply);
    Ok(reply)
}

/// The problem of a name that is reserved until its forks are deleted.
fn name_is_retained() -> Problem {
    Problem::new(
        Kind::StreamExists,
        "the stream was deleted; its name is reserved until its forks are deleted",
    )
}

/// Checks the source of a fork.
fn source_of(fork: &ForkRequest, found: Result<View, Problem>) -> Result<View, Problem> {
    match found {
        Ok(view) if !view.gone => Ok(view),
        Ok(_) => Err(gone_source()),
        Err(problem) if problem.kind == Kind::StreamGone => Err(gone_source()),
        Err(problem) => Err(problem.text("source", fork.from.clone())),
    }
}

fn gone_source() -> Problem {
    Problem::new(
        Kind::StreamExists,
        "the source was deleted; only its existing forks can read it",
    )
}

/// Returns the configuration of the stream, and the part of a source record that it copies.
async fn plan(
    edge: &Arc<Edge>,
    request: &CreateRequest,
    source: Option<&View>,
) -> Result<(Config, Vec<u8>), Problem> {
    let (Some(fork), Some(source)) = (&request.fork, source) else {
        let content_type = request.content_type.clone();
        let config = Config {
            content_type: content_type.unwrap_or_else(|| TYPE_DEFAULT.to_owned()),
            expiry: request.expiry.unwrap_or_default(),
            fork: None,
        };
        return Ok((config, Vec::new()));
    };
    let source_type = &source.config.content_type;
    let content_type = request.content_type.as_ref().unwrap_or(source_type);
    if essence(content_type) != essence(source_type) {
        let problem = Problem::new(
            Kind::StreamType,
            "a fork must have the content type of its source",
        );
        return Err(problem.text("content_type", source_type.clone()));
    }
    let at = fork.at.unwrap_or(source.tail);
    let after_end = || Problem::bad("the position of the fork is after the end of the source");
    if at > source.tail {
        return Err(after_end());
    }
    let (base, slice) = if fork.sub == 0 {
        (at, Vec::new())
    } else {
        boundary(edge, source, at, fork.sub)
            .await?
            .ok_or_else(after_end)?
    };
    let mut parts = source.parts();
    for part in &mut parts {
        part.end = part.end.min(base);
    }
    parts.retain(|part| part.base < part.end);
    if parts.len() >= FORK_PARTS_MAX {
        return Err(Problem::too_large(
            "the number of streams through which the fork would be read",
            FORK_PARTS_MAX,
        ));
    }
    let config = Config {
        content_type: content_type.clone(),
        expiry: request.expiry.unwrap_or(source.config.expiry),
        fork: Some(Fork {
            from: source.topic.clone(),
            incarnation: source.incarnation,
            at,
            sub: fork.sub,
            base,
            parts,
        }),
    };
    Ok((config, slice))
}

/// Returns the position `sub` bytes or messages after `at`, and the required part of the record
/// after it. `None` if the source is too short.
async fn boundary(
    edge: &Arc<Edge>,
    source: &View,
    at: u64,
    sub: u64,
) -> Result<Option<(u64, Vec<u8>)>, Problem> {
    let json = source.json;
    let mut walk = Walk::new(&edge.shared.store, source, at);
    offload::run(move || {
        let (mut left, mut slice) = (sub, Vec::new());
        while left > 0 {
            let is_end = walk.step(|record| {
                let size = if json { 1 } else { record.value.len() as u64 };
                if left == 0 {
                    return ControlFlow::Break(());
                }
                if size > left {
                    let part = record.value.get(..usize::try_from(left).unwrap_or(0));
                    slice.extend_from_slice(part.unwrap_or_default());
                    left = 0;
                    return ControlFlow::Break(());
                }
                left -= size;
                ControlFlow::Continue(())
            })?;
            if is_end && left > 0 {
                return Ok(None);
            }
        }
        Ok(Some((walk.position, slice)))
    })
    .await
}

/// Returns the entries that the registry needs before the stream exists.
fn entries(edge: &Edge, topic: &str, config: &Config, seal: &str) -> Result<Vec<Change>, Problem> {
    let mut changes = Vec::new();
    if let Some(fork) = &config.fork {
        changes.push(registry::put_fork(&fork.from, topic, seal));
    }
    if config.expiry != Expiry::Never {
        if edge.ds.is_full() {
            return Err(Problem::new(
                Kind::Quota,
                "the maximum number of streams with an expiry is reached",
            )
            .number(
                "limit",
                crate::resources::streams::terms::EXPIRING_MAX as u64,
            ));
        }
        changes.push(registry::put_expiry(topic, config.expiry, seal));
    }
    Ok(changes)
}

/// Writes the entries that the registry needs before the stream exists. A malformed body leaves no
/// entry.
async fn register(
    edge: &Arc<Edge>,
    topic: &str,
    (config, text): (&Config, &[u8]),
    body: &[u8],
) -> Result<(), Problem> {
    let changes = entries(edge, topic, config, &registry::seal(text))?;
    if !changes.is_empty() && !body.is_empty() {
        let json = is_json(&config.content_type);
        drop(operations(json, body, b"", VALUE_BYTES_MAX)?);
    }
    registry::change(edge, changes).await?;
    if config.expiry != Expiry::Never {
        edge.ds.lease(topic, config.expiry);
    }
    Ok(())
}

/// Creates the topic and the stream in it; `None` if the stream was created meanwhile.
async fn create(
    edge: &Arc<Edge>,
    call: &Call,
    request: &CreateRequest,
    (config, text): (&Config, &[u8]),
    data: [&[u8]; 2],
) -> Result<Option<Commit>, Problem> {
    let json = is_json(&config.content_type);
    let value_max = edge.shared.store.limits().value_bytes_max;
    let meta = meta(json, &config.content_type)?;
    let put = |key: &'static [u8], value| TxnOp::Put {
        key,
        value,
        meta: b"",
    };
    let mut ops = vec![put(CONFIG, text)];
    for data in data {
        if !data.is_empty() {
            // A slice is always bytes: messages are never split.
            ops.extend(operations(
                json,
                data,
                &meta,
                value_max.min(VALUE_BYTES_MAX),
            )?);
        }
    }
    if request.closed {
        ops.push(put(CLOSED, b""));
    }
    let mut options = TopicOptions::default();
    options.keys_max = Some(PRODUCERS_MAX + 1 + KEYS_RESERVED);
    let topic = call.matched.topic.as_str();
    let principal = call.principal.name.as_bytes();
    let queued = {
        let expect = [Expect::TopicEmpty];
        let create_topic = Intention {
            principal,
            ..Intention::new(topic, Operation::Create { options: &options })
        };
        let fill = Intention {
            principal,
            expect: &expect,
            ..Intention::new(topic, Operation::Txn { ops: &ops })
        };
        propose_unchecked(edge, Some(call), &[create_topic, fill])?
    };
    drop(ops);
    let outcomes = outcomes(edge, queued).await?;
    let commits: Vec<Commit> = outcomes
        .iter()
        .filter_map(|outcome| outcome.commit().cloned())
        .collect();
    let [created, fill] = commits.as_slice() else {
        return Err(Problem::new(
            Kind::Internal,
            "the store returned no outcome",
        ));
    };
    if created.effect != Effect::Valid && created.reason != Some(ErrorCode::TopicExists) {
        return Err(problems::of_commit(created));
    }
    match fill.reason {
        _ if fill.effect == Effect::Valid => Ok(Some(fill.clone())),
        Some(ErrorCode::Conflict) => Ok(None),
        _ => Err(problem_of(fill)),
    }
}

/// The URL of the stream, with the host that the client addressed.
fn location(edge: &Edge, call: &Call) -> String {
    let tls = edge.shared.config.tls_cert.is_some();
    let scheme = if tls { "https" } else { "http" };
    let host = call.head.host().map(String::from_utf8_lossy);
    let host = host.unwrap_or("localhost".into());
    format!("{scheme}://{host}{}", call.head.path())
}
