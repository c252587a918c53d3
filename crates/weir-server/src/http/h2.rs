//! An HTTP/2 connection with prior knowledge: the server recognizes it by its preface.
//!
//! hyper implements the protocol. This module converts requests and responses to the types of the
//! HTTP edge, which has one service for both versions. The time limits are those of HTTP/1.1: a
//! client that reads no response, or sends no request, is disconnected.

mod control_frame_limit;
mod streams;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};

pub(crate) use self::control_frame_limit::ControlFrameLimit;
use self::streams::{ConnectionState, OpenRequest, Streams};
use super::h1::Rewound;
use super::head::{Builder, FieldName, Head, Method, Version};
use super::problem::{Kind, Problem};
use super::reply::{Body, Boxed, Reply};
use super::responder::Responder;
use crate::http::exchange::{BodyError, BodySource, Input, Started};
use crate::limits::minimum_rate::BodyRate;
use crate::limits::{STREAMS_MAX, TAILS_PER_CONNECTION_MAX};
use crate::phase::Phase;

/// Flow-control window of a stream and of the connection, in bytes, for a server without budgets.
const WINDOW: u32 = 1 << 20;
/// Bytes buffered for sending on a stream.
const SEND_BYTES: usize = 64 << 10;
/// Streams that a client may reset before it has read their responses.
const RESETS_MAX: usize = 50;
/// Interval of PING frames.
const PING: Duration = Duration::from_secs(20);
/// Bytes of a response that are passed to hyper at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Serves a connection until it ends.
pub(crate) async fn serve<S, R>(
    io: S,
    first: Bytes,
    responder: R,
    mut phase: watch::Receiver<Phase>,
) where
    R: Responder + Unpin + 'static,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(ControlFrameLimit::new(Rewound::new(first, io)));
    let config = responder.config();
    let head_max = u32::try_from(config.head_max.0).unwrap_or(u32::MAX);
    // No budget counts the bytes that a client sends before the server reads them.
    let window = responder
        .admission()
        .map(|admission| admission.limits().window);
    let window = window.and_then(|window| u32::try_from(window).ok());
    let window = window.unwrap_or(WINDOW);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(head_max)
        .initial_stream_window_size(window)
        .initial_connection_window_size(window)
        .max_send_buf_size(SEND_BYTES)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    let streams = Arc::new(Streams::default());
    let (own, opened) = (responder.clone(), Arc::clone(&streams));
    let service = service_fn(move |request| {
        let (responder, open) = (own.clone(), opened.open());
        async move { Ok::<_, Infallible>(answer(&responder, request, open).await) }
    });
    let mut connection = std::pin::pin!(builder.serve_connection(io, service));
    let mut closing = false;
    let mut checks = tokio::time::interval(Streams::check_interval(config));
    loop {
        tokio::select! {
            // Errors of a connection concern only its client.
            _ = connection.as_mut() => return,
            // The sender lives as long as the server.
            _ = phase.wait_for(|phase| *phase >= Phase::Draining), if !closing => {
                closing = true;
                connection.as_mut().graceful_shutdown();
            }
            _ = checks.tick() => match streams.state() {
                ConnectionState::Idle(time) if closing && time >= config.write_timeout => return,
                ConnectionState::Idle(time) if !closing && time >= config.idle_timeout => {
                    closing = true;
                    connection.as_mut().graceful_shutdown();
                }
                ConnectionState::Busy | ConnectionState::Idle(_) => {}
                ConnectionState::Stalled => {
                    responder.timed_out("write");
                    return;
                }
            }
        }
    }
}

async fn answer<R: Responder + Unpin + 'static>(
    responder: &R,
    request: Request<Incoming>,
    mut open: OpenRequest,
) -> Response<ResponseBody<R>> {
    if let Some(admission) = responder.admission()
        && !open.admit(admission)
    {
        let many = Problem::new(Kind::Busy, "too many streams of all connections");
        let many = many.number("limit", admission.limits().streams as u64);
        return respond(responder, responder.refuse_with(many), open);
    }
    let (parts, body) = request.into_parts();
    let head = match head(
        &parts,
        responder.config().request_line_max.0,
        responder.config().head_fields_max,
    ) {
        Ok(head) => head,
        Err(problem) => return respond(responder, responder.refuse_with(problem), open),
    };
    let length = head
        .text(FieldName::ContentLength)
        .and_then(|text| text.parse().ok());
    let mut source = RequestBody {
        body,
        rate: BodyRate::default(),
        responder: responder.clone(),
    };
    let mut reply = if source.body.is_end_stream() {
        wait(responder, responder.start(head, b"")).await
    } else {
        responder
            .call(head, Input::Source(&mut source), length)
            .await
    };
    let is_tail = matches!(&reply.body, Body::Source(source) if source.is_tail());
    if is_tail && !open.become_tail(TAILS_PER_CONNECTION_MAX) {
        let limit = TAILS_PER_CONNECTION_MAX as u64;
        let many = Problem::new(Kind::Busy, "too many tails of one connection");
        reply = responder.refuse_with(many.number("limit", limit));
    }
    respond(responder, reply, open)
}

/// Waits for a response, up to `store_timeout` if that applies.
async fn wait<R: Responder>(responder: &R, mut started: Started) -> Reply {
    if !started.expires() {
        return started.await;
    }
    match tokio::time::timeout(responder.config().store_timeout, &mut started).await {
        Ok(reply) => reply,
        Err(_) => started.expire(),
    }
}

fn head(
    parts: &hyper::http::request::Parts,
    line_max: usize,
    fields_max: usize,
) -> Result<Head, Problem> {
    let method = Method::read(parts.method.as_str());
    let target = parts
        .uri
        .path_and_query()
        .map_or("/", |target| target.as_str());
    if target.len() > line_max {
        return Err(Problem::new(Kind::Uri, "").number("limit", line_max as u64));
    }
    if parts.headers.len() > fields_max {
        return Err(Problem::new(Kind::Headers, "").number("fields", fields_max as u64));
    }
    let mut builder = Builder::new(method, Version::H2, 256);
    builder
        .target(target)
        .map_err(|_| Problem::bad("the target of the request"))?;
    if let Some(host) = parts.uri.authority() {
        builder.host(host.as_str());
    }
    for (name, value) in &parts.headers {
        builder.field(name.as_str(), value.as_bytes());
    }
    let head = builder.build();
    if head.host().is_none() {
        return Err(Problem::bad("the request has neither :authority nor Host"));
    }
    if head.is_repeated(FieldName::Host) || !head.has_one_host() {
        return Err(Problem::bad(
            "the fields :authority and Host name different hosts",
        ));
    }
    Ok(head)
}

/// The body of a request.
struct RequestBody<R> {
    body: Incoming,
    rate: BodyRate,
    responder: R,
}

impl<R: Responder> RequestBody<R> {
    async fn read(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            let frame =
                std::future::poll_fn(|context| Pin::new(&mut self.body).poll_frame(context));
            let due = self.rate.deadline(self.responder.config());
            match tokio::time::timeout_at(due, frame).await {
                Err(_) => {
                    self.responder.timed_out("body");
                    return Err(BodyError::Slow);
                }
                Ok(None) => return Ok(None),
                Ok(Some(Err(_))) => return Err(BodyError::Cut),
                Ok(Some(Ok(frame))) => {
                    // Trailers are skipped.
                    if let Ok(bytes) = frame.into_data()
                        && !bytes.is_empty()
                    {
                        self.rate.arrived(bytes.len());
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }
}

impl<R: Responder> BodySource for RequestBody<R> {
    fn next(&mut self) -> Boxed<'_, Result<Option<Bytes>, BodyError>> {
        Box::pin(self.read())
    }

    fn require_minimum_rate(&mut self, holds: bool) {
        self.rate.set_required(holds);
    }
}

/// The body of a response, passed on in pieces. hyper polls for the next piece when the client has
/// accepted enough of the earlier ones.
struct ResponseBody<R> {
    /// Bytes that are ready and not sent yet.
    bytes: Bytes,
    pieces: Option<mpsc::Receiver<Bytes>>,
    open: OpenRequest,
    responder: R,
}

impl<R: Responder + Unpin> hyper::body::Body for ResponseBody<R> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.open.accepted();
        if self.bytes.is_empty()
            && let Some(pieces) = &mut self.pieces
        {
            match pieces.poll_recv(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(piece)) => self.bytes = piece,
                Poll::Ready(None) => self.pieces = None,
            }
        }
        if self.bytes.is_empty() {
            return Poll::Ready(None);
        }
        let budget = self
            .responder
            .admission()
            .map(|admission| &admission.answers);
        let holds = budget.is_some_and(|budget| self.bytes.len() > budget.small_bytes());
        let take = self.bytes.len().min(PIECE_BYTES);
        let piece = self.bytes.split_to(take);
        let responder = self.responder.clone();
        self.open.passed_on(take, holds, responder.config());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty() && self.pieces.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.pieces {
            None => SizeHint::with_exact(self.bytes.len() as u64),
            Some(_) => SizeHint::default(),
        }
    }
}

fn respond<R: Responder + Unpin + 'static>(
    responder: &R,
    reply: Reply,
    open: OpenRequest,
) -> Response<ResponseBody<R>> {
    let length = reply.length();
    let mut response = Response::builder().status(reply.status);
    for line in reply.fields.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let (name, value) = line.split_at(colon);
        response = response.header(name, value.get(2..).unwrap_or_default());
    }
    if let (Body::Length(_) | Body::Bytes(_), Some(length)) = (&reply.body, length)
        && !matches!(reply.status, 204 | 304)
    {
        response = response.header("content-length", length);
    }
    let (bytes, pieces) = match reply.body {
        Body::None | Body::Length(_) | Body::Omitted => (Bytes::new(), None),
        Body::Bytes(bytes) => (bytes, None),
        Body::Source(mut source) => {
            // At most one piece waits. The next one is created when hyper has taken it.
            let (sender, receiver) = mpsc::channel(1);
            tokio::spawn(async move {
                loop {
                    let piece = tokio::select! {
                        piece = source.next() => piece,
                        () = sender.closed() => None,
                    };
                    match piece {
                        Some(piece) if piece.is_empty() => {}
                        Some(piece) => {
                            if sender.send(piece).await.is_err() {
                                return;
                            }
                        }
                        None => return,
                    }
                }
            });
            (Bytes::new(), Some(receiver))
        }
    };
    let body = ResponseBody {
        bytes,
        pieces,
        open,
        responder: responder.clone(),
    };
    let (parts, ()) = match response.body(()) {
        Ok(response) => response.into_parts(),
        // Cannot fail: the server wrote these fields, so they are valid.
        Err(_) => Response::new(()).into_parts(),
    };
    Response::from_parts(parts, body)
}
