//! Ends an HTTP/2 connection that sends too many control frames (reliability OV4).
//!
//! The HTTP/2 library answers each SETTINGS and PING and bounds resets, continuations and empty
//! DATA frames. It does not bound the number of SETTINGS, PING, PRIORITY, `WINDOW_UPDATE` and
//! unknown frames. This stream counts them below the library: each one uses one unit of a budget.
//! The budget grows with time, with requests and with the bytes sent to the client. A client that
//! exceeds the budget gets GOAWAY with `ENHANCE_YOUR_CALM`, and its further input is dropped.
//!
//! Invariant: GOAWAY starts at a frame boundary.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::limits::LINGER_SECONDS;

/// Control frames that a client may send in a burst; also the maximum of the budget.
const CONTROL_FRAMES_MAX: u32 = 1000;
/// Control frames per second that a client may send in addition.
const CONTROL_FRAMES_PER_SECOND: u32 = 100;
/// Control frames that each request adds to the budget.
const CONTROL_FRAMES_PER_REQUEST: u32 = 4;
/// Bytes sent to the client that add one control frame to the budget.
const BYTES_PER_CONTROL_FRAME: usize = 512;
/// Bytes of the preface, which precedes the first frame of a client.
const PREFACE_BYTES: usize = 24;
const HEADER_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
/// GOAWAY with error 11 (`ENHANCE_YOUR_CALM`). The highest stream is 2^31 - 1: any stream may have
/// been processed (RFC 9113, 6.8). So no client resends a request on the assumption that it was not
/// processed.
const GOAWAY: [u8; 17] = [
    0, 0, 8, 7, 0, 0, 0, 0, 0, 0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 11,
];

/// A byte stream below HTTP/2.
#[derive(Debug)]
pub(crate) struct ControlFrameLimit<S> {
    io: S,
    read: Frames,
    written: Frames,
    budget: Budget,
    state: State,
}

#[derive(Debug)]
enum State {
    Serving,
    /// This many bytes of GOAWAY are written.
    Closing(usize),
    /// Drops further input of the client, so that GOAWAY arrives.
    Lingering(Pin<Box<Sleep>>),
}

/// Tracks where frames start and end in a byte stream.
#[derive(Debug, Default)]
struct Frames {
    header: [u8; HEADER_BYTES],
    seen: usize,
    /// Bytes of the preface or of a payload that have not arrived yet.
    skip: usize,
}

impl Frames {
    /// Scans the next bytes; calls `on_frame` with the type of each frame that starts.
    fn scan(&mut self, mut bytes: &[u8], mut on_frame: impl FnMut(u8)) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skip = self.skip.min(bytes.len());
                self.skip -= skip;
                bytes = bytes.get(skip..).unwrap_or_default();
                continue;
            }
            let (open, rest) = (self.header.get_mut(self.seen..), bytes);
            let open = open.unwrap_or_default();
            let take = open.len().min(rest.len());
            let (head, rest) = rest.split_at(take);
            for (to, from) in open.iter_mut().zip(head) {
                *to = *from;
            }
            self.seen += take;
            bytes = rest;
            if self.seen == HEADER_BYTES {
                let [a, b, c, kind, ..] = self.header;
                self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                self.seen = 0;
                on_frame(kind);
            }
        }
    }

    fn is_at_boundary(&self) -> bool {
        self.seen == 0 && self.skip == 0
    }
}

#[derive(Debug)]
struct Budget {
    left: u32,
    since: Instant,
    /// Bytes sent that have not yet added a frame to the budget.
    bytes: usize,
}

impl Budget {
    fn add(&mut self, frames: u32) {
        self.left = self.left.saturating_add(frames).min(CONTROL_FRAMES_MAX);
    }

    fn sent(&mut self, bytes: usize) {
        self.bytes += bytes;
        let frames = self.bytes / BYTES_PER_CONTROL_FRAME;
        self.bytes %= BYTES_PER_CONTROL_FRAME;
        self.add(u32::try_from(frames).unwrap_or(u32::MAX));
    }

    /// Charges a frame to the budget. Returns false if the budget is exceeded.
    fn charge(&mut self, kind: u8) -> bool {
        match kind {
            HEADERS => self.add(CONTROL_FRAMES_PER_REQUEST),
            DATA | CONTINUATION => {}
            _ => {
                if self.left == 0 {
                    let now = Instant::now();
                    let elapsed = now.saturating_duration_since(self.since);
                    let ms = u32::try_from(elapsed.as_millis()).unwrap_or(u32::MAX);
                    let frames = ms.saturating_mul(CONTROL_FRAMES_PER_SECOND) / 1000;
                    if frames == 0 {
                        return false;
                    }
                    self.since = now;
                    self.add(frames);
                }
                self.left -= 1;
            }
        }
        true
    }
}

impl<S> ControlFrameLimit<S> {
    pub(crate) fn new(io: S) -> Self {
        Self {
            io,
            read: Frames {
                skip: PREFACE_BYTES,
                ..Frames::default()
            },
            written: Frames::default(),
            budget: Budget {
                left: CONTROL_FRAMES_MAX,
                since: Instant::now(),
                bytes: 0,
            },
            state: State::Serving,
        }
    }

    /// Records that the first `count` bytes of `slices` were written.
    fn record_written<'a>(&mut self, count: usize, slices: impl Iterator<Item = &'a [u8]>) {
        let mut left = count;
        for slice in slices {
            let take = left.min(slice.len());
            left -= take;
            self.written
                .scan(slice.get(..take).unwrap_or_default(), |_| {});
        }
        self.budget.sent(count);
    }
}

fn too_many_frames() -> io::Error {
    io::Error::new(ErrorKind::ConnectionAborted, "too many control frames")
}

impl<S: AsyncRead + AsyncWrite + Unpin> ControlFrameLimit<S> {
    /// Sends GOAWAY, then drops further input for a while, so that the client can receive it.
    fn close(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            match &mut self.state {
                State::Serving => return Poll::Ready(too_many_frames()),
                State::Closing(sent) => {
                    let rest = GOAWAY.get(*sent..).unwrap_or_default();
                    if rest.is_empty() {
                        // The client may have closed the connection already.
                        let _ = ready!(Pin::new(&mut self.io).poll_shutdown(context));
                        let wait = tokio::time::sleep(Duration::from_secs(LINGER_SECONDS));
                        self.state = State::Lingering(Box::pin(wait));
                        continue;
                    }
                    match ready!(Pin::new(&mut self.io).poll_write(context, rest)) {
                        Ok(written) if written > 0 => *sent += written,
                        _ => return Poll::Ready(too_many_frames()),
                    }
                }
                State::Lingering(wait) => {
                    if wait.as_mut().poll(context).is_ready() {
                        return Poll::Ready(too_many_frames());
                    }
                    let mut discarded = [0; 4096];
                    let mut discarded = ReadBuf::new(&mut discarded);
                    let read = ready!(Pin::new(&mut self.io).poll_read(context, &mut discarded));
                    if read.is_err() || discarded.filled().is_empty() {
                        return Poll::Ready(too_many_frames());
                    }
                }
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ControlFrameLimit<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if matches!(this.state, State::Serving) {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.io).poll_read(context, buffer))?;
            let (read, budget) = (&mut this.read, &mut this.budget);
            let mut allowed = true;
            let new = buffer.filled().get(before..).unwrap_or_default();
            read.scan(new, |kind| allowed &= budget.charge(kind));
            if allowed {
                return Poll::Ready(Ok(()));
            }
            buffer.set_filled(before);
            this.state = State::Closing(0);
        }
        if matches!(this.state, State::Closing(0)) && !this.written.is_at_boundary() {
            // The rest of a frame must be written first; its writer wakes this task.
            return Poll::Pending;
        }
        this.close(context).map(Err)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ControlFrameLimit<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if !matches!(this.state, State::Serving)
            && (this.written.is_at_boundary() || !matches!(this.state, State::Closing(0)))
        {
            return this.close(context).map(Err);
        }
        let written = ready!(Pin::new(&mut this.io).poll_write_vectored(context, slices))?;
        this.record_written(written, slices.iter().map(|slice| &**slice));
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
