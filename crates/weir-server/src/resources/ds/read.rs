//! GET and HEAD: the description of a stream, and its data from a position on, at once or by
//! waiting for new data.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_core::{ConsequenceOffset, ErrorCode};
use weir_protocol::Consistency;

use super::cursor::cursor;
use super::follow;
use super::lease::ReaderLease;
use super::open::open;
use super::view::View;
use super::walk::CollectedBody;
use crate::http::date;
use crate::http::prefer::Prefer;
use crate::http::problem::{Kind, Problem};
use crate::http::reply::{Body, Reply};
use crate::limits::{PAGE_BYTES, WAIT_SECONDS_MAX};
use crate::phase::Phase;
use crate::resources::context::{Call, Edge};
use crate::resources::events::read::{is_not_modified, no_topic};
use crate::resources::problems;
use crate::resources::streams::config::Expiry;
use crate::resources::streams::position::{self, StreamPosition};
use crate::resources::streams::terms::POLL_SECONDS;

/// How a reader waits for more data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitMode {
    Poll,
    Events,
}

/// Responds to HEAD, which does not count as a use of the stream.
pub(super) async fn head(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    let view = open(edge, &call.matched.topic).await?;
    let mut reply = Reply::new(200).field("content-type", &view.config.content_type);
    view.add_fields(&mut reply);
    match view.config.expiry {
        Expiry::Never => {}
        Expiry::Idle(seconds) => reply.add("stream-ttl", seconds),
        Expiry::At(ms) => reply.add("stream-expires-at", date::rfc3339(ms)),
    }
    reply.add("cache-control", "no-store");
    // The length of the body of a GET is unknown here.
    reply.body = Body::Omitted;
    Ok(reply)
}

/// Responds to GET.
pub(super) async fn get(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    let words = [("long-poll", WaitMode::Poll), ("sse", WaitMode::Events)];
    let live = call.query.word("live", &words)?;
    let start_at = match call.query.text("offset")? {
        Some(text) => Some(StreamPosition::read(text).ok_or_else(|| {
            Problem::bad("offset must be -1, now, or a Stream-Next-Offset of a response")
        })?),
        None => None,
    };
    if live.is_some() && start_at.is_none() {
        return Err(Problem::bad("a live read needs an offset"));
    }
    let client_cursor = call.query.text("cursor")?;
    let client_cursor = client_cursor.and_then(crate::http::query::offset_of);
    let mut found = open(edge, &call.matched.topic).await;
    let start_at = start_at.unwrap_or(StreamPosition::Start);
    if matches!(start_at, StreamPosition::After(position) if lacks(&found, position)) {
        // A node of a cluster may have applied less than the node that returned the offset.
        let is_current = edge.shared.wait_for_consistency(Consistency::Linear).await;
        is_current.map_err(|error| problems::of_store(&error))?;
        found = open(edge, &call.matched.topic).await;
    }
    let view = found?;
    edge.ds.record_use(&view);
    let position = start(&view, start_at)?;
    match live {
        Some(WaitMode::Events) => Ok(follow::open(edge, call, &view, position, client_cursor)),
        Some(WaitMode::Poll) => poll(edge, call, view, position, client_cursor).await,
        None if start_at == StreamPosition::Now => Ok(now(&view)),
        None => page(edge, call, &view, position).await,
    }
}

/// Whether this server does not have the position, or has no such stream.
fn lacks(found: &Result<View, Problem>, position: u64) -> bool {
    match found {
        Ok(view) => position > view.tail,
        Err(problem) => problem.kind == Kind::NoTopic,
    }
}

/// Returns the position after which a reader starts.
fn start(view: &View, start_at: StreamPosition) -> Result<u64, Problem> {
    match start_at {
        StreamPosition::Start | StreamPosition::After(0) => Ok(0),
        StreamPosition::Now => Ok(view.tail),
        StreamPosition::After(position) if position > view.tail => {
            Err(Problem::bad("the offset is after the end of the stream"))
        }
        StreamPosition::After(position) if view.is_before(position) => Err(Problem::new(
            Kind::Gone,
            "the offset is of an earlier stream of this name",
        )
        .code(ErrorCode::Gone)),
        StreamPosition::After(position) => Ok(position),
    }
}

/// The head of a response after which the reader is at `position`.
fn at(view: &View, status: u16, position: u64) -> Reply {
    let mut reply = Reply::new(status);
    reply.add("stream-next-offset", position::token(position));
    if position >= view.tail {
        reply.add("stream-up-to-date", "true");
    }
    if view.ends_at(position) {
        reply.add("stream-closed", "true");
    }
    reply
}

/// The current end of the stream, without data.
fn now(view: &View) -> Reply {
    let reply = at(view, 200, view.tail).field("cache-control", "no-store");
    let body: &'static [u8] = if view.json { b"[]" } else { b"" };
    reply.with(&view.config.content_type, body)
}

/// Returns the available data.
async fn page(edge: &Arc<Edge>, call: &Call, view: &View, position: u64) -> Result<Reply, Problem> {
    let collected = CollectedBody::new(&edge.shared.store, view, position, PAGE_BYTES);
    let (collected, reservation) = collected.run(&edge.shared, &call.principal).await?;
    let next = collected.next();
    let mut reply = at(view, 200, next);
    let end = if view.ends_at(next) { "c" } else { "" };
    let tag = format!("\"{}.{position}-{next}{end}\"", view.incarnation);
    reply.add("etag", &tag);
    reply.add("vary", "accept-encoding");
    let is_final = next < view.tail;
    reply.add(
        "cache-control",
        if is_final {
            "private, max-age=60, stale-while-revalidate=300"
        } else {
            "private, no-cache"
        },
    );
    if is_not_modified(&call.head, &tag) {
        reply.status = 304;
        return Ok(reply);
    }
    let reply = reply.with(&view.config.content_type, collected.body());
    Ok(reply.reserved(reservation))
}

/// Waits up to a deadline for data, and returns it.
async fn poll(
    edge: &Arc<Edge>,
    call: &Call,
    mut view: View,
    mut position: u64,
    client_cursor: Option<u64>,
) -> Result<Reply, Problem> {
    let wait = Prefer::read(&call.head).wait.unwrap_or(POLL_SECONDS);
    let deadline = Instant::now() + Duration::from_secs(wait.min(WAIT_SECONDS_MAX));
    let mut phase = edge.shared.phase.subscribe();
    let incarnation = view.incarnation;
    let _lease = ReaderLease::new(edge, &view);
    let mut is_over = false;
    loop {
        let collected = CollectedBody::new(&edge.shared.store, &view, position, PAGE_BYTES);
        let (collected, reservation) = collected.run(&edge.shared, &call.principal).await?;
        position = collected.next();
        let found = collected.count() > 0;
        if found || is_over || view.ends_at(position) {
            let mut reply = at(&view, if found { 200 } else { 204 }, position);
            reply.add("stream-cursor", cursor(client_cursor));
            reply.add("cache-control", "no-store");
            return Ok(if found {
                let reply = reply.with(&view.config.content_type, collected.body());
                reply.reserved(reservation)
            } else {
                reply
            });
        }
        let last = ConsequenceOffset(view.offset(view.tail));
        let reader = edge.shared.store.listen(&view.topic, last);
        let waiting = edge.shared.metrics.waiting_polls.count_one();
        is_over = tokio::select! {
            changed = reader.changed() => !changed,
            () = tokio::time::sleep_until(deadline) => true,
            _ = phase.wait_for(|phase| *phase >= Phase::Draining) => true,
        };
        drop(waiting);
        edge.check_right_again(call)?;
        view = open(edge, &view.topic).await?;
        if view.incarnation != incarnation {
            return Err(no_topic());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::cursor;

    #[test]
    fn a_cursor_increases() {
        let now = cursor(None);
        assert!(now > 0);
        assert!(cursor(Some(now - 1)) >= now);
        for given in [now, now + 1000] {
            let next = cursor(Some(given));
            assert!(next > given && next <= given + 180, "{given} {next}");
        }
        assert_eq!(cursor(Some(u64::MAX)), u64::MAX);
    }
}
