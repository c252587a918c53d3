//! The server side of a connection, without I/O: its phase, the nonce that it expects, and
//! its unanswered writes.

use weir_core::ClientId;
use weir_core::error_code::ErrorCode;

use crate::framing::{Deframer, FrameError};
use crate::message::Packet;
use crate::{WINDOW_MAX, WRITES_MAX};

/// Phase of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// HELLO has not been answered.
    #[default]
    AwaitingHello,
    /// HELLO was answered: any message except HELLO is accepted.
    Open,
    /// The server reads no further packets.
    Closing,
}

/// The reason for refusing a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteFault {
    /// `NonceGap`, or `BadRequest` if a nonce would exceed 2^64 - 1.
    pub code: ErrorCode,
    /// Next nonce that would be accepted.
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
            phase: Phase::AwaitingHello,
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
    /// Returns the phase of the connection.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// The session; `NONE` for none.
    #[must_use]
    pub const fn client(&self) -> ClientId {
        self.client
    }

    /// Returns the next nonce of the session on this connection; 0 without a session.
    #[must_use]
    pub const fn expected(&self) -> u64 {
        self.expected
    }

    /// Returns the packet at the front of `buffer` and its size in bytes; `None` if the
    /// packet is incomplete. See [`Deframer::find`].
    pub fn next<'a>(
        &mut self,
        buffer: &'a [u8],
    ) -> Result<Option<(Packet<'a>, usize)>, FrameError> {
        let Some(size) = self.deframer.find(buffer)? else {
            return Ok(None);
        };
        let Some(packet) = buffer.get(..size) else {
            unreachable!("a packet that was found is in the buffer")
        };
        Ok(Some((self.deframer.read(packet)?, size)))
    }

    /// Returns a lower bound of the missing bytes of the current packet; 0 if unknown.
    #[must_use]
    pub const fn missing_bytes(&self) -> usize {
        self.deframer.missing_bytes()
    }

    /// Returns the number of bytes of the stream before the next packet.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.deframer.offset()
    }

    /// Opens the connection when HELLO is answered, with the values of `HELLO_OK`: the
    /// session (or `NONE`), its next nonce, and the credits.
    pub fn open(&mut self, client: ClientId, next: u64, window: u64, window_bytes: usize) {
        assert!(self.phase == Phase::AwaitingHello, "HELLO is answered once");
        self.phase = Phase::Open;
        self.client = client;
        self.expected = if client.is_none() { 0 } else { next };
        self.window = window.min(WINDOW_MAX);
        self.window_bytes = window_bytes;
        self.deframer.open();
    }

    /// Enters the phase [`Closing`](Phase::Closing).
    pub fn leave(&mut self) {
        self.phase = Phase::Closing;
    }

    /// Accepts and counts a write of `count` items and `bytes` bytes, whose first nonce is
    /// `first`. Fails if its nonces are not acceptable.
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

    /// Records the answer to a write that [`write`](Self::write) accepted.
    pub fn answered(&mut self, count: u32, bytes: usize) {
        assert!(
            self.items >= u64::from(count) && self.bytes >= bytes && self.writes > 0,
            "no write is answered twice"
        );
        self.items -= u64::from(count);
        self.bytes -= bytes;
        self.writes -= 1;
    }

    /// Resets the expected nonce after an accepted nonce was refused on apply.
    pub fn lower_expected_nonce(&mut self, expected: u64) {
        self.expected = self.expected.min(expected);
    }

    /// Returns whether another packet may be read, because the client is within its credit.
    #[must_use]
    pub const fn may_read(&self) -> bool {
        self.writes == 0
            || (self.items < self.window
                && self.bytes < self.window_bytes
                && self.writes < WRITES_MAX)
    }

    /// Returns whether no write is unanswered.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.writes == 0
    }
}
