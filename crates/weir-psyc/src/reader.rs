//! Whole packets out of a stream of bytes, without any I/O of its own.

use alloc::vec::Vec;

use crate::error::ParseError;
use crate::event::ParseStep;
use crate::limits::Limits;
use crate::parser::{Mode, Parser};
use crate::view::PacketView;

/// Collects the bytes of a circuit and hands out one packet after the other.
///
/// It holds at most the packet that is being received and what was fed behind it; how large that
/// packet may become is what the limits say, checked on the byte that announces it. Works under any
/// I/O, blocking or not: feed what was read, take packets until there is none, read on.
///
/// ```
/// use weir_psyc::PacketReader;
///
/// let mut reader = PacketReader::new();
/// let mut methods = Vec::new();
/// for piece in [&b"|\n\n_pi"[..], b"ng\n|", b"\n\n_pong\n|\n"] {
///     reader.feed(piece);
///     while let Some(packet) = reader.next_packet()? {
///         methods.push(packet.method().to_vec());
///     }
/// }
/// assert_eq!(methods, [&b""[..], b"_ping", b"_pong"]);
/// # Ok::<(), weir_psyc::ParseError>(())
/// ```
#[derive(Clone, Debug)]
pub struct PacketReader {
    buffer: Vec<u8>,
    /// Bytes at the front that were handed out already.
    done: usize,
    parser: Parser,
}

impl Default for PacketReader {
    fn default() -> PacketReader {
        PacketReader::new()
    }
}

impl PacketReader {
    /// A reader with [`Limits::DEFAULT`].
    pub fn new() -> PacketReader {
        PacketReader::with_limits(Limits::DEFAULT)
    }

    /// A reader with limits of your own.
    pub fn with_limits(limits: Limits) -> PacketReader {
        PacketReader {
            buffer: Vec::new(),
            done: 0,
            parser: Parser::with_limits(Mode::Full, limits),
        }
    }

    /// Appends bytes that were received.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.done);
        self.done = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole packet, or `None` until more is fed. An error repeats for ever: nothing
    /// behind it can be trusted. Linear over the life of the stream; the bytes of a packet are
    /// looked at twice, sized ones not at all.
    pub fn next_packet(&mut self) -> Result<Option<PacketView<'_>>, ParseError> {
        let rest = self.buffer.get(self.done..).unwrap_or_default();
        loop {
            match self.parser.step(rest) {
                ParseStep::Complete => break,
                ParseStep::NeedMore(_) => return Ok(None),
                ParseStep::Error(error) => return Err(error),
                _ => {}
            }
        }
        let size = self.parser.release();
        let packet = rest.get(..size).unwrap_or_default();
        self.done += size;
        let limits = *self.parser.limits();
        Ok(PacketView::parse_with(packet, limits)?.map(|(view, _)| view))
    }

    /// Bytes held that belong to no packet handed out so far.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.done
    }

    /// Whether the stream may end here: behind a packet, or before the first one.
    pub fn is_clean(&self) -> bool {
        self.pending() == 0 && self.parser.is_clean()
    }
}
