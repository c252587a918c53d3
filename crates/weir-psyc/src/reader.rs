//! Splits a stream of bytes into whole packets, without any I/O of its own.

use alloc::vec::Vec;

use crate::error::ParseError;
use crate::event::ParseStep;
use crate::limits::Limits;
use crate::parser::{Mode, Parser};
use crate::view::PacketView;

/// Largest memory that a reader keeps while it stores no byte.
const IDLE_BYTES_MAX: usize = 64 << 10;

/// Collects the bytes of a circuit and returns one packet after the other.
///
/// It stores the incomplete packet and the bytes fed after it. The next [`feed`](Self::feed) removes
/// the bytes of returned packets, unless it would have to move more bytes than it removes. The
/// limits bound the size of a packet, and are checked at the byte that announces a size. After an
/// error, the reader stores nothing; between two packets, it keeps at most 64 KiB of memory. It
/// works with any I/O, blocking or not: feed the bytes that were read, call
/// [`next_packet`](Self::next_packet) until it returns `None`, and read again.
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
    /// Bytes at the front that belong to packets already returned.
    done: usize,
    parser: Parser,
    failed: Option<ParseError>,
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

    /// A reader with the given limits.
    pub fn with_limits(limits: Limits) -> PacketReader {
        PacketReader {
            buffer: Vec::new(),
            done: 0,
            parser: Parser::with_limits(Mode::Full, limits),
            failed: None,
        }
    }

    /// Appends received bytes. After an error, the bytes are dropped.
    ///
    /// Moves the pending bytes only if at least as many bytes were returned. Over the life of the
    /// stream, no more bytes are moved than were fed.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        if self.done >= self.pending() {
            self.buffer.drain(..self.done);
            self.done = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole packet, or `None` until more bytes are fed. An error drops all stored bytes,
    /// because no byte after it is reliable. Each further call returns the same error. Linear over
    /// the life of the stream: the bytes of a packet are scanned twice, sized bytes are not
    /// scanned.
    pub fn next_packet(&mut self) -> Result<Option<PacketView<'_>>, ParseError> {
        let size = match self.next_size() {
            Ok(Some(size)) => size,
            Ok(None) => {
                if self.pending() == 0 && self.buffer.capacity() > IDLE_BYTES_MAX {
                    self.buffer = Vec::new();
                    self.done = 0;
                }
                return Ok(None);
            }
            Err(error) => {
                self.failed = Some(error);
                self.buffer = Vec::new();
                self.done = 0;
                return Err(error);
            }
        };
        let limits = *self.parser.limits();
        let packet = self
            .buffer
            .get(self.done..)
            .and_then(|rest| rest.get(..size));
        self.done += size;
        Ok(PacketView::parse_with(packet.unwrap_or_default(), limits)?.map(|(view, _)| view))
    }

    /// The size of the next packet in bytes, if the whole packet is in the buffer.
    fn next_size(&mut self) -> Result<Option<usize>, ParseError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let rest = self.buffer.get(self.done..).unwrap_or_default();
        loop {
            match self.parser.step(rest) {
                ParseStep::Complete => break,
                ParseStep::NeedMore(_) => return Ok(None),
                ParseStep::Error(error) => return Err(error),
                _ => {}
            }
        }
        Ok(Some(self.parser.release()))
    }

    /// Stored bytes that belong to no returned packet.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.done
    }

    /// Whether the stream may end here: after a packet, or before the first packet.
    pub fn is_clean(&self) -> bool {
        self.failed.is_none() && self.pending() == 0 && self.parser.is_clean()
    }
}

#[cfg(test)]
mod tests {
    use super::{IDLE_BYTES_MAX, PacketReader};

    const PACKET: &[u8] = b"|\n";
    const PACKETS: usize = if cfg!(miri) { 64 } else { 4096 };

    /// For each packet that is fed, one packet is taken, while many more are pending.
    #[test]
    fn feeding_moves_at_most_the_bytes_fed() {
        let mut reader = PacketReader::new();
        reader.feed(&PACKET.repeat(PACKETS));
        let (mut fed, mut moved) = (PACKET.len() * PACKETS, 0);
        for _ in 0..PACKETS {
            let (before, pending) = (reader.done, reader.pending());
            reader.feed(PACKET);
            fed += PACKET.len();
            if before > 0 && reader.done == 0 {
                moved += pending;
            }
            assert!(matches!(reader.next_packet(), Ok(Some(_))));
        }
        assert!(moved <= fed, "{moved} bytes moved of {fed} fed");
        assert!(reader.buffer.len() <= 2 * reader.pending() + PACKET.len());
        for _ in 0..PACKETS {
            assert!(matches!(reader.next_packet(), Ok(Some(_))));
        }
        assert!(matches!(reader.next_packet(), Ok(None)));
        assert!(reader.is_clean());
    }

    #[test]
    fn an_idle_reader_keeps_no_large_buffer() {
        let mut reader = PacketReader::new();
        let data = alloc::vec![b'x'; 2 * IDLE_BYTES_MAX];
        reader.feed(alloc::format!("{}\n_m\n", data.len() + 4).as_bytes());
        reader.feed(&data);
        reader.feed(b"\n|\n|");
        assert!(matches!(reader.next_packet(), Ok(Some(packet)) if packet.data() == data));
        assert!(matches!(reader.next_packet(), Ok(None)));
        assert!(
            reader.buffer.capacity() > IDLE_BYTES_MAX,
            "a packet has begun"
        );
        reader.feed(b"\n");
        assert!(matches!(reader.next_packet(), Ok(Some(_))));
        assert!(matches!(reader.next_packet(), Ok(None)));
        assert!(reader.buffer.capacity() <= IDLE_BYTES_MAX);
        reader.feed(PACKET);
        assert!(matches!(reader.next_packet(), Ok(Some(_))));
        assert!(reader.is_clean());
    }

    #[test]
    fn an_error_releases_the_buffer() {
        let mut reader = PacketReader::new();
        reader.feed(b"|\n");
        reader.feed(b"= no modifier\n");
        assert!(matches!(reader.next_packet(), Ok(Some(_))));
        let error = reader.next_packet().err();
        assert!(error.is_some());
        for _ in 0..16 {
            reader.feed(&[b'x'; 4096]);
            assert_eq!(reader.next_packet().err(), error);
        }
        assert_eq!((reader.pending(), reader.buffer.capacity()), (0, 0));
        assert!(!reader.is_clean());
    }
}
