//! The body of a request, read as it arrives.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite};

use super::chunked::{Chunked, Step};
use super::{Connection, End};
use crate::http::exchange::{BodyError, BodySource};
use crate::http::head::Framing;
use crate::http::reply::Boxed;
use crate::http::responder::Responder;
use crate::limits::READ_BYTES;
use crate::limits::minimum_rate::BodyRate;

/// The part of a body that is still unread.
#[derive(Clone, Copy, Debug)]
pub(super) enum UnreadBody {
    Length(u64),
    Chunks(Chunked),
    Nothing,
}

impl UnreadBody {
    /// The whole body, unread.
    pub(super) fn new(framing: Framing) -> Self {
        match framing {
            Framing::Length(0) => Self::Nothing,
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Chunks(Chunked::default()),
        }
    }

    /// Returns the bytes of the body that the input contains. Empty: more input is needed. `None`:
    /// the body is complete.
    pub(super) fn take(&mut self, input: &mut BytesMut) -> Result<Option<Bytes>, BodyError> {
        match self {
            Self::Nothing => Ok(None),
            Self::Length(length) => {
                let take = usize::try_from(*length)
                    .unwrap_or(usize::MAX)
                    .min(input.len());
                *length -= take as u64;
                if *length == 0 {
                    *self = Self::Nothing;
                }
                Ok(Some(input.split_to(take).freeze()))
            }
            Self::Chunks(chunked) => match chunked.step(input) {
                Ok(Step::Data(bytes)) => Ok(Some(bytes)),
                Ok(Step::Need) => Ok(Some(Bytes::new())),
                Ok(Step::End) => {
                    *self = Self::Nothing;
                    Ok(None)
                }
                Err(_) => Err(BodyError::Framing),
            },
        }
    }
}

/// Reads a body from its connection, within the configured deadlines.
pub(super) struct BodyReader<'a, S, R> {
    connection: &'a mut Connection<S, R>,
    left: UnreadBody,
    /// The client waits for `100 Continue`.
    expects: bool,
    rate: BodyRate,
    /// The connection is broken.
    lost: bool,
}

impl<'a, S, R> BodyReader<'a, S, R> {
    pub(super) fn new(
        connection: &'a mut Connection<S, R>,
        framing: Framing,
        expects: bool,
    ) -> Self {
        Self {
            connection,
            left: UnreadBody::new(framing),
            expects,
            rate: BodyRate::default(),
            lost: false,
        }
    }

    /// Returns whether part of the body is unread, and whether the connection is broken.
    pub(super) fn end_state(&self) -> (bool, bool) {
        (!matches!(self.left, UnreadBody::Nothing), self.lost)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send, R: Responder> BodyReader<'_, S, R> {
    async fn read(&mut self) -> Result<Option<Bytes>, BodyError> {
        if std::mem::take(&mut self.expects) && self.connection.input.is_empty() {
            let sent = self
                .connection
                .write(b"HTTP/1.1 100 Continue\r\n\r\n")
                .await;
            self.lost |= sent.is_err();
            sent.map_err(|_| BodyError::Cut)?;
        }
        loop {
            let piece = self.left.take(&mut self.connection.input)?;
            if piece.as_ref().is_none_or(|piece| !piece.is_empty()) {
                self.rate.arrived(piece.as_ref().map_or(0, Bytes::len));
                return Ok(piece);
            }
            if self.connection.eof {
                return Err(BodyError::Cut);
            }
            let due = self.rate.deadline(self.connection.responder.config());
            if self.connection.input.capacity() - self.connection.input.len() < READ_BYTES / 4 {
                self.connection.input.reserve(READ_BYTES);
            }
            match self.connection.fill(due, false).await {
                Ok(()) => {}
                Err(End::Idle) => {
                    self.connection.responder.timed_out("body");
                    return Err(BodyError::Slow);
                }
                Err(End::Closed) => {
                    self.lost = true;
                    return Err(BodyError::Cut);
                }
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send, R: Responder> BodySource for BodyReader<'_, S, R> {
    fn next(&mut self) -> Boxed<'_, Result<Option<Bytes>, BodyError>> {
        Box::pin(self.read())
    }

    fn require_minimum_rate(&mut self, holds: bool) {
        self.rate.set_required(holds);
    }
}

/// A stream that first returns bytes that were read earlier.
#[derive(Debug)]
pub(crate) struct Rewound<S> {
    first: Bytes,
    io: S,
}

impl<S> Rewound<S> {
    pub(crate) fn new(first: Bytes, io: S) -> Self {
        Self { first, io }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        if !self.first.is_empty() {
            let take = self.first.len().min(buffer.remaining());
            buffer.put_slice(&self.first.split_to(take));
            return std::task::Poll::Ready(Ok(()));
        }
        std::pin::Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        std::pin::Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.io).poll_shutdown(context)
    }
}
