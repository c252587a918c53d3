//! A connection of HTTP/2, by prior knowledge: the preface decides.
//!
//! hyper speaks the protocol; requests and answers are turned into those of
//! the edge, which knows one service only.

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

use super::h1::Rewound;
use super::head::{Builder, Head, Known, Method, Version};
use super::limits::STREAMS_MAX;
use super::problem::{Kind, Problem};
use super::reply::{Body, Boxed, Reply};
use super::service::{BodyError, BodySource, Edge, Input, Peer};
use crate::shared::Phase;

/// Window of a stream and of the connection.
const WINDOW: u32 = 1 << 20;
/// Bytes that wait to be sent on a stream.
const SEND_BYTES: usize = 64 << 10;
/// Streams that a client may reset before it has read their answers.
const RESETS_MAX: usize = 50;
/// Time between two signs of life that the client is asked for.
const PING: Duration = Duration::from_secs(20);

/// Serves a connection until its end.
pub(crate) async fn serve<S>(
    io: S,
    first: Bytes,
    edge: Arc<Edge>,
    peer: Peer,
    mut phase: watch::Receiver<Phase>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(Rewound::new(first, io));
    let config = &edge.shared.config;
    let head_max = u32::try_from(config.head_max.0).unwrap_or(u32::MAX);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(head_max)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_send_buf_size(SEND_BYTES)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    let service = service_fn(move |request| {
        let (edge, peer) = (Arc::clone(&edge), peer.clone());
        async move { Ok::<_, Infallible>(answer(&edge, peer, request).await) }
    });
    let mut connection = std::pin::pin!(builder.serve_connection(io, service));
    let ends = async {
        drop(phase.wait_for(|phase| *phase >= Phase::Draining).await);
    };
    tokio::select! {
        // What went wrong with a connection is its client's to see.
        done = connection.as_mut() => drop(done),
        () = ends => {
            connection.as_mut().graceful_shutdown();
            drop(connection.await);
        }
    }
}

async fn answer(edge: &Arc<Edge>, peer: Peer, request: Request<Incoming>) -> Response<Outgoing> {
    let (parts, body) = request.into_parts();
    let head = match head(
        &parts,
        edge.shared.config.request_line_max.0,
        edge.shared.config.head_fields_max,
    ) {
        Ok(head) => head,
        Err(problem) => return respond(edge.finish_bare(problem)),
    };
    let length = head
        .text(Known::ContentLength)
        .and_then(|text| text.parse().ok());
    let config = &edge.shared.config;
    let mut source = Stream {
        body,
        patience: config.body_timeout,
    };
    let reply = if source.body.is_end_stream() {
        edge.wait(edge.start(head, peer, b"")).await
    } else {
        edge.call(head, peer, Input::Source(&mut source), length)
            .await
    };
    respond(reply)
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
    let head = builder.done();
    if head.host().is_none() {
        return Err(Problem::bad("the request names no host"));
    }
    Ok(head)
}

/// The body of a request.
struct Stream {
    body: Incoming,
    patience: Duration,
}

impl BodySource for Stream {
    fn next(&mut self) -> Boxed<'_, Result<Option<Bytes>, BodyError>> {
        Box::pin(async move {
            loop {
                let frame =
                    std::future::poll_fn(|context| Pin::new(&mut self.body).poll_frame(context));
                match tokio::time::timeout(self.patience, frame).await {
                    Err(_) => return Err(BodyError::Slow),
                    Ok(None) => return Ok(None),
                    Ok(Some(Err(_))) => return Err(BodyError::Cut),
                    Ok(Some(Ok(frame))) => {
                        // A trailer is read past.
                        if let Ok(bytes) = frame.into_data()
                            && !bytes.is_empty()
                        {
                            return Ok(Some(bytes));
                        }
                    }
                }
            }
        })
    }
}

/// The body of an answer.
enum Outgoing {
    Whole(Option<Bytes>),
    Pieces(mpsc::Receiver<Bytes>),
}

impl hyper::body::Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Pieces(pieces) => pieces
                .poll_recv(context)
                .map(|piece| Some(Ok(Frame::data(piece?)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Pieces(_) => SizeHint::default(),
        }
    }
}

fn respond(reply: Reply) -> Response<Outgoing> {
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
    let body = match reply.body {
        Body::None | Body::Length(_) | Body::Omitted => Outgoing::Whole(None),
        Body::Bytes(bytes) if bytes.is_empty() => Outgoing::Whole(None),
        Body::Bytes(bytes) => Outgoing::Whole(Some(bytes)),
        Body::Source(mut source) => {
            // One piece waits at most; the next is made when it is taken.
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
            Outgoing::Pieces(receiver)
        }
    };
    // The fields were written by us, so they are fields.
    response
        .body(body)
        .unwrap_or_else(|_| Response::new(Outgoing::Whole(None)))
}
