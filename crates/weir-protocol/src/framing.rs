//! Finds packets in a stream of bytes, without a copy of the bytes.

use thiserror::Error;
use weir_psyc::{Limits, Mode, PacketView, ParseError, ParseStep, Parser};

use crate::decode::ProtocolError;
use crate::message::Packet;
use crate::{
    HELLO_BYTES_MAX, NAME_BYTES_MAX, PACKET_BYTES_MAX, ROUTING_BYTES_MAX, ROUTING_VARIABLES_MAX,
    VARIABLE_BYTES_MAX, VARIABLES_MAX,
};

/// An error after which no more packets can be found in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The syntax does not allow the byte, or a limit is exceeded.
    #[error("byte {at}: {error}")]
    Syntax {
        /// Byte of the stream at which the error is.
        at: u64,
        /// What is wrong.
        error: ParseError,
    },
    /// The packet is not a valid message.
    #[error("packet at byte {at}: {error}")]
    Message {
        /// Byte of the stream at which the packet starts.
        at: u64,
        /// What is wrong.
        error: ProtocolError,
    },
}

impl FrameError {
    /// Returns the byte of the stream at which the error is.
    #[must_use]
    pub const fn at(&self) -> u64 {
        match self {
            Self::Syntax { at, .. } | Self::Message { at, .. } => *at,
        }
    }
}

/// Finds packets at the front of a growing buffer. Its time is linear in the bytes of the
/// stream and does not depend on the sizes of the received parts. It skips bytes of announced
/// length without reading them.
#[derive(Clone, Debug)]
pub struct Deframer {
    parser: Parser,
    limits: Limits,
    /// Bytes of the stream before the current packet.
    base: u64,
    /// Lower bound of the missing bytes of the current packet; 0 if unknown.
    missing_bytes: usize,
}

const fn limits(content: usize) -> Limits {
    Limits {
        unsized_content: if content < 64 << 10 {
            content as u64
        } else {
            64 << 10
        },
        unsized_value: VARIABLE_BYTES_MAX as u64,
        routing_header: ROUTING_BYTES_MAX as u64,
        routing_modifiers: ROUTING_VARIABLES_MAX,
        entity_modifiers: VARIABLES_MAX,
        sized_content: content as u64,
        sized_value: VARIABLE_BYTES_MAX as u64,
        name: NAME_BYTES_MAX,
    }
}

impl Default for Deframer {
    fn default() -> Self {
        Self::with_limits(limits(PACKET_BYTES_MAX))
    }
}

impl Deframer {
    /// Creates a deframer with the limits that apply before HELLO is answered.
    #[must_use]
    pub fn before_hello() -> Self {
        Self::with_limits(limits(HELLO_BYTES_MAX))
    }

    fn with_limits(limits: Limits) -> Self {
        Self {
            parser: Parser::with_limits(Mode::Full, limits),
            limits,
            base: 0,
            missing_bytes: 0,
        }
    }

    /// Applies the full limits, from the next packet on.
    pub fn open(&mut self) {
        let base = self.base;
        *self = Self::default();
        self.base = base;
    }

    /// Finds the packet at the start of `buffer` and returns its size in bytes. Returns
    /// `None` if the packet is incomplete: call again with the same bytes and more bytes
    /// after them. After a packet was found, the next buffer must begin after that packet.
    pub fn find(&mut self, buffer: &[u8]) -> Result<Option<usize>, FrameError> {
        loop {
            match self.parser.step(buffer) {
                ParseStep::Complete => break,
                ParseStep::NeedMore(missing_bytes) => {
                    self.missing_bytes = missing_bytes
                        .and_then(|n| usize::try_from(n).ok())
                        .unwrap_or(0);
                    return Ok(None);
                }
                ParseStep::Error(error) => {
                    let at = self.base.saturating_add(error.offset);
                    return Err(FrameError::Syntax { at, error });
                }
                _ => {}
            }
        }
        self.missing_bytes = 0;
        let size = self.parser.consumed();
        self.parser.reset();
        self.base = self.base.saturating_add(size as u64);
        Ok(Some(size))
    }

    /// Decodes the packet that [`find`](Self::find) has just found.
    pub fn read<'a>(&self, packet: &'a [u8]) -> Result<Packet<'a>, FrameError> {
        let at = self.base.saturating_sub(packet.len() as u64);
        let whole = PacketView::parse_with(packet, self.limits);
        let whole = whole.map_err(|error| FrameError::Syntax {
            at: at.saturating_add(error.offset),
            error,
        })?;
        let incomplete = ProtocolError {
            variable: "packet",
            what: "a complete packet",
        };
        let read = whole.map_or(Err(incomplete), |(view, _)| Packet::read(&view));
        read.map_err(|error| FrameError::Message { at, error })
    }

    /// Returns a lower bound of the missing bytes of the current packet; 0 if unknown.
    #[must_use]
    pub const fn missing_bytes(&self) -> usize {
        self.missing_bytes
    }

    /// Returns the number of bytes of the stream in the packets found so far.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.base
    }
}
