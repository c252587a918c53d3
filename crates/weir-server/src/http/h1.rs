//! A connection of HTTP/1.1.
//!
//! Requests start in the order in which they arrive, and responses are sent in that order.
//! Pipelined requests wait for the store together. Ready responses are collected into one write.
//! The state of a connection is two buffers and a deadline; an idle connection keeps only
//! [`INPUT_BYTES`].
//!
//! Invariants:
//! - Every wait has a deadline.
//! - No buffer grows without limit with the bytes that a client sends.
//! - No byte of one request is read as part of another.

mod body;
mod chunked;
#[doc(hidden)]
pub mod pieces;
#[cfg(test)]
mod slow;
mod watchdog;

use std::collections::VecDeque;
use std::io;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

use self::body::BodyReader;
pub(crate) use self::body::Rewound;
use self::watchdog::Watchdog;
use super::head::{Framing, HeadError, HeadLimits, Parsed, Scan, Version, parse};
use super::reply::{Body, Reply, Source, reason};
use super::responder::Responder;
use crate::http::exchange::{Input, Started};
use crate::limits::minimum_rate::MinimumRate;
use crate::limits::{
    GATHER_BYTES, INLINE_BYTES, INPUT_BYTES, LINGER_SECONDS, PIPELINE_MAX, READ_BYTES,
};
use crate::phase::Phase;

/// Why a connection ends without another response.
#[derive(Debug)]
pub(crate) enum End {
    /// The client closed the connection, or all requests are finished.
    Closed,
    /// No bytes arrived before the deadline.
    Idle,
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Closed
    }
}

/// The connection preface of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) struct Connection<S, R> {
    io: S,
    input: BytesMut,
    output: Vec<u8>,
    scan: Scan,
    watchdog: Watchdog,
    responder: R,
    phase: Receiver<Phase>,
    /// The client has closed its side.
    eof: bool,
    /// Part of a body was not read, so the next bytes are not a request.
    unread: bool,
}

/// A request whose response is not sent yet.
struct Waiting {
    started: Started,
    /// Whether the request changes state.
    writes: bool,
    version: Version,
    keep_alive: bool,
}

/// Returns whether a request may start before the waiting requests finish: only if no result
/// changes. Writes keep their order in the store, and reads change nothing, but a read must see
/// earlier writes.
fn may_overtake(waiting: &VecDeque<Waiting>, writes: bool) -> bool {
    waiting.iter().all(|one| match one.started {
        Started::Commit(_) => writes,
        Started::Later(_) => !writes && !one.writes,
        Started::Done(_) | Started::Returned => true,
    })
}

/// Bytes of responses that wait for earlier responses.
fn ready_bytes(waiting: &VecDeque<Waiting>) -> usize {
    let bytes = |one: &Waiting| match &one.started {
        Started::Done(Reply {
            body: Body::Bytes(bytes),
            ..
        }) => bytes.len(),
        _ => 0,
    };
    waiting.iter().map(bytes).sum()
}

/// The next request head in the input.
enum NextHead {
    Nothing,
    Refused(HeadError),
    Request(Box<Parsed>),
}

/// Removes the next head from the input.
fn next_head(
    scan: &mut Scan,
    input: &mut BytesMut,
    limits: HeadLimits,
    fields_max: usize,
) -> NextHead {
    let end = match scan.end(input, limits) {
        Ok(None) => return NextHead::Nothing,
        Ok(Some(end)) => end,
        Err(bad) => return NextHead::Refused(bad),
    };
    *scan = Scan::default();
    let parsed = parse(input.get(..end).unwrap_or_default(), fields_max);
    input.advance(end);
    match parsed {
        Ok(parsed) => NextHead::Request(Box::new(parsed)),
        Err(bad) => NextHead::Refused(bad),
    }
}

/// Serves a connection until it ends. If the client speaks HTTP/2, returns the connection and the
/// bytes that were read from it.
pub(crate) async fn serve<S, R>(io: S, responder: R, phase: Receiver<Phase>) -> Option<(S, Bytes)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    R: Responder,
{
    let timeout = responder.config().idle_timeout;
    let mut connection = Connection {
        io,
        input: BytesMut::new(),
        output: Vec::new(),
        scan: Scan::default(),
        watchdog: Watchdog::new(timeout),
        responder,
        phase,
        eof: false,
        unread: false,
    };
    if connection.is_http2().await.ok()? {
        return Some((connection.io, connection.input.freeze()));
    }
    match connection.run().await {
        Ok(()) | Err(End::Idle) => connection.linger().await,
        Err(End::Closed) => {}
    }
    None
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send, R: Responder> Connection<S, R> {
    /// Reads until the protocol is known.
    async fn is_http2(&mut self) -> Result<bool, End> {
        let mut head_due = None;
        loop {
            let seen = self.input.len().min(PREFACE.len());
            if self.input.get(..seen) != PREFACE.get(..seen) {
                return Ok(false);
            }
            if seen == PREFACE.len() {
                return Ok(true);
            }
            let config = self.responder.config();
            let now = Instant::now();
            let due = if seen == 0 {
                now + config.idle_timeout
            } else {
                *head_due.get_or_insert(now + config.head_timeout)
            };
            self.fill(due, seen == 0).await?;
            if self.eof {
                return Ok(false);
            }
        }
    }

    #[allow(clippy::too_many_lines, reason = "one loop, read from top to bottom")]
    async fn run(&mut self) -> Result<(), End> {
        let mut waiting: VecDeque<Waiting> = VecDeque::new();
        let mut blocked: Option<Box<Parsed>> = None;
        let mut last = false;
        let mut head_due: Option<Instant> = None;
        loop {
            // Start the requests that have arrived.
            while !last && waiting.len() < PIPELINE_MAX && ready_bytes(&waiting) < GATHER_BYTES {
                let parsed = match blocked.take() {
                    Some(parsed) => parsed,
                    None => match self.next_head() {
                        NextHead::Nothing => break,
                        NextHead::Refused(bad) => {
                            let started = Started::Done(self.responder.refuse(bad));
                            waiting.push_back(Waiting {
                                started,
                                writes: false,
                                version: Version::H11,
                                keep_alive: false,
                            });
                            last = true;
                            break;
                        }
                        NextHead::Request(parsed) => parsed,
                    },
                };
                head_due = None;
                if !may_overtake(&waiting, parsed.head.method.writes()) {
                    blocked = Some(parsed);
                    break;
                }
                let whole = match parsed.framing {
                    Framing::Length(length) => usize::try_from(length)
                        .ok()
                        .filter(|length| *length <= self.input.len()),
                    Framing::Chunked => None,
                };
                if let Some(length) = whole {
                    let Parsed {
                        head, keep_alive, ..
                    } = *parsed;
                    let (version, writes) = (head.version, head.method.writes());
                    let body = self.input.get(..length).unwrap_or_default();
                    let started = self.responder.start(head, body);
                    self.input.advance(length);
                    last |= !keep_alive;
                    waiting.push_back(Waiting {
                        started,
                        writes,
                        version,
                        keep_alive,
                    });
                } else if waiting.is_empty() {
                    last |= !parsed.keep_alive;
                    last |= !self.exclusive(*parsed).await?;
                } else {
                    blocked = Some(parsed);
                    break;
                }
            }
            // Finish the oldest request.
            if let Some(front) = waiting.front_mut() {
                let ready =
                    std::future::poll_fn(|context| Poll::Ready(front.started.poll(context))).await;
                let reply = match ready {
                    Poll::Ready(reply) => reply,
                    Poll::Pending => {
                        self.flush().await?;
                        let due = Instant::now() + self.responder.config().store_timeout;
                        let is_bound = front.started.expires();
                        let expired = async {
                            if !is_bound {
                                std::future::pending::<()>().await;
                            }
                            self.watchdog.expired(due).await;
                        };
                        let done = std::future::poll_fn(|context| front.started.poll(context));
                        let result = tokio::select! {
                            biased;
                            reply = done => Some(reply),
                            () = expired => None,
                        };
                        match result {
                            Some(reply) => reply,
                            None => front.started.expire(),
                        }
                    }
                };
                // Every request that was started gets a response. Only the last response announces
                // that the connection closes.
                let version = front.version;
                last |= !front.keep_alive || reply.close || self.phase() >= Phase::Draining;
                waiting.pop_front();
                let keep_alive = !(last && waiting.is_empty());
                let stays_open = self.answer(reply, version, keep_alive).await?;
                if !stays_open {
                    self.flush().await?;
                    return Ok(());
                }
                continue;
            }
            self.flush().await?;
            if last || self.eof || self.unread {
                return Ok(());
            }
            let begun = self.scan.has_begun(&self.input);
            if !begun {
                self.release_buffers();
                if self.phase() >= Phase::Draining {
                    return Ok(());
                }
            }
            let now = Instant::now();
            let config = self.responder.config();
            let due = if begun {
                *head_due.get_or_insert(now + config.head_timeout)
            } else {
                now + config.idle_timeout
            };
            match self.fill(due, !begun).await {
                Err(End::Idle) if begun => {
                    self.responder.timed_out("head");
                    let reply = self.responder.too_slow();
                    self.answer(reply, Version::H11, false).await?;
                    self.flush().await?;
                    return Ok(());
                }
                other => other?,
            }
            if self.eof && !self.input.is_empty() && !self.could_end() {
                // The client closed its side in the middle of a request.
                return Ok(());
            }
        }
    }

    fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Whether the input may contain a whole request although the client sends no more.
    fn could_end(&mut self) -> bool {
        let limits = self.head_limits();
        let mut scan = self.scan;
        !matches!(scan.end(&self.input, limits), Ok(None))
    }

    fn head_limits(&self) -> HeadLimits {
        let config = self.responder.config();
        HeadLimits {
            line_max: config.request_line_max.0,
            head_max: config.head_max.0,
        }
    }

    /// Removes the next request from the input.
    fn next_head(&mut self) -> NextHead {
        let limits = self.head_limits();
        let fields_max = self.responder.config().head_fields_max;
        next_head(&mut self.scan, &mut self.input, limits, fields_max)
    }

    /// Serves a request whose body has not arrived yet. No other request runs meanwhile.
    async fn exclusive(&mut self, parsed: Parsed) -> Result<bool, End> {
        let Parsed {
            head,
            framing,
            keep_alive,
            expects,
        } = parsed;
        let version = head.version;
        self.flush().await?;
        let responder = self.responder.clone();
        let mut body = BodyReader::new(self, framing, expects);
        let length = match framing {
            Framing::Length(length) => Some(length),
            Framing::Chunked => None,
        };
        // Boxed, so that an idle connection does not carry the state of a request.
        let reply = Box::pin(responder.call(head, Input::Source(&mut body), length)).await;
        let (unread, lost) = body.end_state();
        if lost {
            return Err(End::Closed);
        }
        self.unread = unread;
        let ends = unread || reply.close || self.phase() >= Phase::Draining;
        let stays_open = self.answer(reply, version, keep_alive && !ends).await?;
        self.flush().await?;
        Ok(stays_open)
    }

    /// Appends a response to the output. Returns whether the connection stays open.
    async fn answer(
        &mut self,
        reply: Reply,
        version: Version,
        mut keep_alive: bool,
    ) -> Result<bool, End> {
        let streams = matches!(reply.body, Body::Source(_));
        // Without chunks, only closing the connection ends a body.
        keep_alive &= !(streams && version == Version::H10);
        self.write_head(&reply, version, keep_alive);
        match reply.body {
            Body::None | Body::Length(_) | Body::Omitted => {}
            Body::Bytes(bytes) if bytes.len() <= INLINE_BYTES => {
                self.output.extend_from_slice(&bytes);
            }
            Body::Bytes(bytes) => {
                self.flush().await?;
                self.write(&bytes).await?;
            }
            Body::Source(source) => self.stream(source, version).await?,
        }
        if self.output.len() >= GATHER_BYTES {
            self.flush().await?;
        }
        Ok(keep_alive)
    }

    fn write_head(&mut self, reply: &Reply, version: Version, keep_alive: bool) {
        let out = &mut self.output;
        out.reserve(
            reply.fields.len()
                + 128
                + INLINE_BYTES.min(
                    reply
                        .length()
                        .map_or(0, |n| usize::try_from(n).unwrap_or(0)),
                ),
        );
        out.extend_from_slice(b"HTTP/1.1 ");
        super::json::number(out, reply.status.into());
        out.push(b' ');
        out.extend_from_slice(reason(reply.status).as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&reply.fields);
        match (&reply.body, reply.length()) {
            // These responses have no body and no length.
            _ if matches!(reply.status, 204 | 304) => {}
            (_, Some(length)) => {
                out.extend_from_slice(b"content-length: ");
                super::json::number(out, length);
                out.extend_from_slice(b"\r\n");
            }
            (Body::Source(_), None) if version != Version::H10 => {
                out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            }
            _ => {}
        }
        super::date::append(out);
        if !keep_alive {
            out.extend_from_slice(b"connection: close\r\n");
        } else if version == Version::H10 {
            out.extend_from_slice(b"connection: keep-alive\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Writes each piece of a body as soon as it is ready.
    async fn stream(&mut self, mut source: Box<dyn Source>, version: Version) -> Result<(), End> {
        let chunked = version != Version::H10;
        self.flush().await?;
        loop {
            let piece = if source.is_tail() {
                self.piece_of_tail(source.as_mut()).await?
            } else {
                source.next().await
            };
            let Some(piece) = piece else { break };
            if piece.is_empty() {
                continue;
            }
            let large = piece.len() > INLINE_BYTES;
            if chunked {
                let size = format!("{:x}\r\n", piece.len());
                self.output.extend_from_slice(size.as_bytes());
            }
            if large {
                self.flush().await?;
                self.write(&piece).await?;
            } else {
                self.output.extend_from_slice(&piece);
            }
            if chunked {
                self.output.extend_from_slice(b"\r\n");
            }
            self.flush().await?;
        }
        if chunked {
            self.output.extend_from_slice(b"0\r\n\r\n");
        }
        Ok(())
    }

    /// Returns the next piece, unless the client closes the connection first.
    async fn piece_of_tail(&mut self, source: &mut dyn Source) -> Result<Option<Bytes>, End> {
        if self.input.len() >= INPUT_BYTES {
            // The input buffer is full, so nothing more is read while the tail runs.
            return Ok(source.next().await);
        }
        self.input.reserve(256);
        let next = source.next();
        let closed = async {
            loop {
                match self.io.read_buf(&mut self.input).await {
                    Ok(0) | Err(_) => return,
                    Ok(_) if self.input.len() >= INPUT_BYTES => std::future::pending().await,
                    Ok(_) => {}
                }
            }
        };
        tokio::select! {
            biased;
            piece = next => Ok(piece),
            () = closed => Err(End::Closed),
        }
    }

    /// Reads more bytes, until `due` at the latest. With `idle`, a shutdown of the server also ends
    /// the wait.
    async fn fill(&mut self, due: Instant, idle: bool) -> Result<(), End> {
        if self.input.capacity() - self.input.len() < INPUT_BYTES / 4 {
            let more = self.input.len().clamp(INPUT_BYTES, READ_BYTES);
            self.input.reserve(more);
        }
        let read = self.io.read_buf(&mut self.input);
        tokio::select! {
            biased;
            got = read => {
                self.eof = got? == 0;
                Ok(())
            }
            () = self.watchdog.expired(due) => Err(End::Idle),
            Ok(_) = self.phase.wait_for(|phase| idle && *phase >= Phase::Draining) => Err(End::Idle),
        }
    }

    /// Releases memory before a wait that may be long.
    fn release_buffers(&mut self) {
        if self.input.is_empty() && self.input.capacity() != INPUT_BYTES {
            self.input = BytesMut::new();
        }
        if self.output.capacity() > INPUT_BYTES {
            self.output = Vec::new();
        }
    }

    async fn flush(&mut self) -> Result<(), End> {
        if self.output.is_empty() {
            return Ok(());
        }
        let output = std::mem::take(&mut self.output);
        let written = self.write(&output).await;
        self.output = output;
        self.output.clear();
        written
    }

    /// Writes all bytes. Disconnects a client that accepts nothing for too long. Also disconnects
    /// one that accepts a large response too slowly, because other requests wait for its memory.
    async fn write(&mut self, mut bytes: &[u8]) -> Result<(), End> {
        let budget = self
            .responder
            .admission()
            .map(|admission| &admission.answers);
        let holds = budget.is_some_and(|budget| bytes.len() > budget.small_bytes());
        let mut rate = MinimumRate::default();
        while !bytes.is_empty() {
            let config = self.responder.config();
            let due = Instant::now() + config.write_timeout;
            let due = rate
                .deadline(holds, config)
                .map_or(due, |held| held.min(due));
            let written = tokio::select! {
                biased;
                written = self.io.write(bytes) => written?,
                () = self.watchdog.expired(due) => {
                    self.responder.timed_out("write");
                    return Err(End::Closed);
                }
            };
            if written == 0 {
                return Err(End::Closed);
            }
            rate.transferred(written);
            bytes = bytes.get(written..).unwrap_or_default();
        }
        // With TLS, some bytes may still be in the session.
        let due = Instant::now() + self.responder.config().write_timeout;
        tokio::select! {
            biased;
            flushed = self.io.flush() => Ok(flushed?),
            () = self.watchdog.expired(due) => {
                self.responder.timed_out("write");
                Err(End::Closed)
            }
        }
    }

    /// Closes the connection so that the last response arrives. Reads and drops further input for a
    /// while, because the system would otherwise discard the response.
    async fn linger(&mut self) {
        let until = Instant::now() + Duration::from_secs(LINGER_SECONDS);
        // The close message of TLS waits for a client that accepts nothing.
        let shut = tokio::select! {
            biased;
            shut = self.io.shutdown() => shut,
            () = self.watchdog.expired(until) => return,
        };
        if shut.is_err() || self.eof {
            return;
        }
        let mut discarded = BytesMut::with_capacity(INPUT_BYTES);
        loop {
            discarded.clear();
            let got = tokio::select! {
                biased;
                got = self.io.read_buf(&mut discarded) => got,
                () = self.watchdog.expired(until) => return,
            };
            if !matches!(got, Ok(1..)) {
                return;
            }
        }
    }
}
