//! Server-sent events of a stream: each `data` is followed by a `control` with the position of the
//! reader.
//!
//! A reader is only a position, as in [`tail`](crate::resources::events::tail). Text is split at
//! CR, LF or CR LF, as in server-sent events, so a client cannot distinguish the kinds of line
//! ends. Bytes are sent in base64, unchanged.

use std::sync::Arc;

use bytes::Bytes;

use super::cursor::cursor;
use super::lease::ReaderLease;
use super::view::{self, View};
use super::walk::CollectedBody;
use crate::http::base64;
use crate::http::exchange::busy;
use crate::http::json::Object;
use crate::http::problem::Problem;
use crate::http::reply::{Body, Boxed, Reply, Source};
use crate::limits::TAIL_BYTES;
use crate::resources::context::{Call, Edge};
use crate::resources::live::{EventStream, WaitEnd};
use crate::resources::streams::position;

struct Follower {
    live: EventStream,
    incarnation: u64,
    _lease: Option<ReaderLease>,
    position: u64,
    /// The position that the client received last.
    sent: Option<u64>,
    cursor: Option<u64>,
    is_finished: bool,
}

/// Opens a stream of events.
pub(super) fn open(
    edge: &Arc<Edge>,
    call: &Call,
    view: &View,
    position: u64,
    cursor: Option<u64>,
) -> Reply {
    let follower = Follower {
        live: EventStream::new(edge, call, &view.topic),
        incarnation: view.incarnation,
        _lease: ReaderLease::new(edge, view),
        position,
        sent: None,
        cursor,
        is_finished: false,
    };
    let mut reply = Reply::new(200).field("content-type", "text/event-stream");
    if view.is_binary() {
        reply.add("stream-sse-data-encoding", "base64");
    }
    reply.add("cache-control", "no-cache, no-store, no-transform");
    reply.add("x-accel-buffering", "no");
    reply.body = Body::Source(Box::new(follower));
    reply
}

impl Source for Follower {
    fn next(&mut self) -> Boxed<'_, Option<Bytes>> {
        Box::pin(self.piece())
    }

    fn is_tail(&self) -> bool {
        true
    }
}

impl Follower {
    /// Returns the next events; `None` at the end. If the body ends without `streamClosed`, the
    /// client reconnects from its position.
    async fn piece(&mut self) -> Option<Bytes> {
        loop {
            self.live.mark_seen();
            let is_end = self.live.is_draining() || self.live.is_old();
            if self.is_finished || is_end || !self.live.may_read() {
                return None;
            }
            match self.read().await {
                Ok(Some(bytes)) => return Some(bytes),
                Ok(None) => {}
                Err(problem) => {
                    tracing::warn!(
                        topic = self.live.topic,
                        problem = problem.kind.name(),
                        "a reader of a stream was disconnected"
                    );
                    return None;
                }
            }
            if self.is_finished {
                return None;
            }
            match self.live.wait().await {
                WaitEnd::Changed => {}
                WaitEnd::Idle => return Some(Bytes::from_static(b":\n\n")),
                WaitEnd::Closed => return None,
            }
        }
    }

    /// Returns the next events; `None` if nothing has changed.
    async fn read(&mut self) -> Result<Option<Bytes>, Problem> {
        let store = &self.live.edge.shared.store;
        let view = view::find(&self.live.edge, &self.live.topic).await?;
        let is_current = |view: &View| {
            let is_live = !view.gone && !self.live.edge.ds.is_expired(view, &self.live.edge.shared);
            is_live && view.incarnation == self.incarnation
        };
        let Some(view) = view.filter(is_current) else {
            self.is_finished = true;
            return Ok(None);
        };
        let collected = CollectedBody::new(store, &view, self.position, TAIL_BYTES);
        let (collected, mut reservation) = collected
            .run(&self.live.edge.shared, self.live.principal())
            .await?;
        self.position = collected.next();
        if collected.count() == 0 && self.sent == Some(self.position) {
            return Ok(None);
        }
        let mut out = Vec::new();
        if collected.count() > 0 {
            let body = collected.body();
            // Memory for the events, in addition to the data.
            reservation.cover(body.len() * 3).await.map_err(busy)?;
            data(&body, view.is_binary(), &mut out);
        }
        self.control(&view, &mut out);
        self.sent = Some(self.position);
        self.is_finished = view.ends_at(self.position);
        Ok(Some(reservation.attach(out.into())))
    }

    fn control(&mut self, view: &View, out: &mut Vec<u8>) {
        let closed = view.ends_at(self.position);
        out.extend_from_slice(b"event: control\ndata:");
        let mut object = Object::new(out);
        object.text("streamNextOffset", &position::token(self.position));
        if !closed {
            let next = cursor(self.cursor.take());
            object.text("streamCursor", &next.to_string());
        }
        if self.position >= view.tail {
            object.flag("upToDate", true);
        }
        if closed {
            object.flag("streamClosed", true);
        }
        object.end();
        out.extend_from_slice(b"\n\n");
    }
}

/// Writes an event with data.
fn data(body: &[u8], binary: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: data\n");
    if binary {
        out.extend_from_slice(b"data:");
        base64::encode(body, out);
        out.extend_from_slice(b"\n\n");
        return;
    }
    let mut rest = body;
    loop {
        let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
        let line = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        out.extend_from_slice(b"data:");
        // A client strips one leading space.
        if line.first() == Some(&b' ') {
            out.push(b' ');
        }
        out.extend_from_slice(line);
        out.push(b'\n');
        let Some(end) = end else { break };
        let is_crlf = rest.get(end..end + 2) == Some(b"\r\n");
        rest = rest
            .get(end + 1 + usize::from(is_crlf)..)
            .unwrap_or_default();
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::data;

    #[test]
    fn lines_of_data_cannot_become_events() {
        for (body, binary, want) in [
            (&b"a\nb"[..], false, "data:a\ndata:b\n"),
            (
                b"a\r\n\r\nevent: x\rb",
                false,
                "data:a\ndata:\ndata:event: x\ndata:b\n",
            ),
            (b" a\n", false, "data:  a\ndata:\n"),
            (b"\x00\xff", true, "data:AP8=\n"),
        ] {
            let mut out = Vec::new();
            data(body, binary, &mut out);
            let text = String::from_utf8(out).unwrap();
            assert_eq!(text, format!("event: data\n{want}\n"));
        }
    }
}
