//! The server's side of a connection, without its I/O: what it has said about
//! itself, which nonce it may send, and how much it has not been answered.

use weir_core::ClientId;
use weir_core::error_code::ErrorCode;

use crate::framing::{Deframer, FrameError};
use crate::message::Packet;
use crate::{WINDOW_MAX, WRITES_MAX};

/// How far a connection has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// HELLO has not been answered.
    #[default]
    Fresh,
    /// Everything but HELLO.
    Open,
    /// Nothing is read any more.
    Leaving,
}

/// A write that is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteFault {
    /// `NonceGap`, or `BadRequest` for a nonce that cannot be.
    pub code: ErrorCode,
    /// Next nonce that would be taken.
    pub expected: u64,
}

/// State of one connection on the server.
#[derive(Clone, Debug)]
pub struct ServerConnection {
    deframer: Deframer,
    phase: Phase,
    client: ClientId,
    expected: u64,
    window: u64,
    window_bytes: usize,
    items: u64,
    bytes: usize,
    writes: usize,
}

impl Default for ServerConnection {
    fn default() -> Self {
        Self {
            deframer: Deframer::before_hello(),
            phase: Phase::Fresh,
            client: ClientId::NONE,
            expected: 0,
            window: 0,
            window_bytes: 0,
            items: 0,
            bytes: 0,
            writes: 0,
        }
    }
}

impl ServerConnection {
    /// How far it has come.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// The session; `NONE` for none.
    #[must_use]
    pub const fn client(&self) -> ClientId {
        self.client
    }

    /// Next nonce of the session on this connection; 0 without session.
    #[must_use]
    pub const fn expected(&self) -> u64 {
        self.expected
    }

    /// The packet at the front of `buffer` and its size; `None` when it is not
    /// all there. See [`Deframer::find`].
    pub fn next<'a>(
        &mut self,
        buffer: &'a [u8],
    ) -> Result<Option<(Packet<'a>, usize)>, FrameError> {
        let Some(size) = self.deframer.find(buffer)? else {
            return Ok(None);
        };
        let Some(packet) = buffer.get(..size) else {
            unreachable!("a packet that was found lies in the buffer")
        };
        Ok(Some((self.deframer.read(packet)?, size)))
    }

    /// Bytes that the packet begun lacks at least.
    #[must_use]
    pub const fn lacks(&self) -> usize {
        self.deframer.lacks()
    }

    /// Bytes of the stream in front of the packet that is read next.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.deframer.offset()
    }

    /// HELLO is answered: the session (or `NONE`), its next nonce, and the
    /// credits that were named.
    pub fn open(&mut self, client: ClientId, next: u64, window: u64, window_bytes: usize) {
        assert!(self.phase == Phase::Fresh, "HELLO is answered once");
        self.phase = Phase::Open;
        self.client = client;
        self.expected = if client.is_none() { 0 } else { next };
        self.window = window.min(WINDOW_MAX);
        self.window_bytes = window_bytes;
        self.deframer.open();
    }

    /// Nothing is read any more.
    pub fn leave(&mut self) {
        self.phase = Phase::Leaving;
    }

    /// A write of `count` items from `first` on, in `bytes` bytes: takes note
    /// of it, or says why it is not taken.
    pub fn write(&mut self, first: u64, count: u32, bytes: usize) -> Result<(), WriteFault> {
        let fault = |code| {
            Err(WriteFault {
                code,
                expected: self.expected,
            })
        };
        if !self.client.is_none() {
            let Some(after) = first.checked_add(u64::from(count)) else {
                return fault(ErrorCode::BadRequest);
            };
            if first > self.expected {
                return fault(ErrorCode::NonceGap);
            }
            self.expected = self.expected.max(after);
        }
        self.items += u64::from(count);
        self.bytes += bytes;
        self.writes += 1;
        Ok(())
    }

    /// A write that [`write`](Self::write) took is answered.
    pub fn answered(&mut self, count: u32, bytes: usize) {
        assert!(
            self.items >= u64::from(count) && self.bytes >= bytes && self.writes > 0,
            "no write is answered twice"
        );
        self.items -= u64::from(count);
        self.bytes -= bytes;
        self.writes -= 1;
    }

    /// A nonce was refused after it had been taken: the session goes on there.
    pub fn fall_back(&mut self, expected: u64) {
        self.expected = self.expected.min(expected);
    }

    /// Whether another packet may be read: the client is within its credit.
    #[must_use]
    pub const fn may_read(&self) -> bool {
        self.writes == 0
            || (self.items < self.window
                && self.bytes < self.window_bytes
                && self.writes < WRITES_MAX)
    }

    /// Whether nothing is unanswered.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.writes == 0
    }
}
