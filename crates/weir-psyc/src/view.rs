//! A whole packet, borrowed from a buffer.
//!
//! [`PacketView::parse`] runs the parser of this crate over the buffer and stores the positions of
//! the parts; there is no second grammar. The header iterators read lines that the parser accepted.

use crate::class::is_digit;
use crate::container::SP;
use crate::error::ParseError;
use crate::event::{ParseStep, Variable};
use crate::limits::Limits;
use crate::operator::Operator;
use crate::packet::StateOperation;
use crate::parser::{Mode, Parser};
use crate::scan::{LF, TAB, keyword_len};

/// A whole packet in a buffer. [`Packet`](crate::Packet) is a packet to be rendered.
///
/// ```
/// use weir_psyc::PacketView;
///
/// let buffer = b":_tag\t7\n\n:_n\t1\n_ping\nhello\n|\nrest";
/// let (packet, size) = PacketView::parse(buffer)?.expect("a whole packet");
/// assert_eq!(packet.routing_value(b"_tag"), Some(&b"7"[..]));
/// assert_eq!((packet.method(), packet.data()), (&b"_ping"[..], &b"hello"[..]));
/// assert_eq!(packet.content(), Some(&b":_n\t1\n_ping\nhello\n"[..]));
/// assert_eq!(&buffer[size..], b"rest");
/// # Ok::<(), weir_psyc::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketView<'a> {
    routing: &'a [u8],
    content: Option<&'a [u8]>,
    content_sized: bool,
    state: Option<StateOperation>,
    entity: &'a [u8],
    method: &'a [u8],
    data: &'a [u8],
}

impl<'a> PacketView<'a> {
    /// Finds the packet at the start of `buffer`. Returns the packet and its size in bytes, or
    /// `None` if the packet is incomplete.
    ///
    /// Each call scans the whole packet, except sized bytes. For a stream, use
    /// [`PacketReader`](crate::PacketReader) or [`Parser`].
    pub fn parse(buffer: &'a [u8]) -> Result<Option<(PacketView<'a>, usize)>, ParseError> {
        PacketView::parse_with(buffer, Limits::DEFAULT)
    }

    /// Like [`parse`](PacketView::parse), with the given limits.
    pub fn parse_with(
        buffer: &'a [u8],
        limits: Limits,
    ) -> Result<Option<(PacketView<'a>, usize)>, ParseError> {
        let mut parser = Parser::with_limits(Mode::Full, limits);
        let mut view = PacketView {
            routing: &[],
            content: None,
            content_sized: false,
            state: None,
            entity: &[],
            method: &[],
            data: &[],
        };
        let mut routing_end = 0;
        // The end of the entity header, or of the routing header if there is no entity header.
        let mut entity_end = 0;
        loop {
            match parser.step(buffer) {
                ParseStep::Routing(_) => routing_end = parser.consumed(),
                ParseStep::StateReset => view.state = Some(StateOperation::Reset),
                ParseStep::StateResync => view.state = Some(StateOperation::Resync),
                ParseStep::Entity(_) => entity_end = parser.consumed(),
                ParseStep::Body { method, data, .. } => {
                    view.method = method;
                    view.data = data;
                }
                ParseStep::Complete => break,
                ParseStep::Error(error) => return Err(error),
                // An event of a part means that the packet is incomplete.
                _ => return Ok(None),
            }
        }
        let size = parser.consumed();
        view.find_parts(buffer, routing_end, entity_end, size.saturating_sub(2));
        Ok(Some((view, size)))
    }

    /// Finds headers and content in a buffer that holds a packet whose end mark is at `end`.
    fn find_parts(&mut self, buffer: &'a [u8], routing_end: usize, entity_end: usize, end: usize) {
        self.routing = buffer.get(..routing_end).unwrap_or_default();
        let after = buffer.get(routing_end..end).unwrap_or_default();
        let digits = after.iter().take_while(|&&byte| is_digit(byte)).count();
        if after.get(digits) != Some(&LF) {
            return;
        }
        self.content_sized = digits != 0;
        let content = routing_end + digits + 1;
        self.content = buffer.get(content..end);
        let entity = content + if self.state.is_some() { 2 } else { 0 };
        self.entity = buffer.get(entity..entity_end).unwrap_or_default();
    }

    /// The routing modifiers, in order.
    pub fn routing(&self) -> Modifiers<'a> {
        Modifiers { rest: self.routing }
    }

    /// The value of the last routing modifier with the name `name`. Linear in the header.
    pub fn routing_value(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.routing()
            .filter(|variable| variable.name == name)
            .last()
            .map(|found| found.value)
    }

    /// The state operation, if there is one.
    pub fn state(&self) -> Option<StateOperation> {
        self.state
    }

    /// The entity modifiers, in order.
    pub fn entity(&self) -> Modifiers<'a> {
        Modifiers { rest: self.entity }
    }

    /// The last entity modifier with the name `name`. Linear in the header.
    pub fn entity_variable(&self, name: &[u8]) -> Option<Variable<'a>> {
        self.entity()
            .filter(|variable| variable.name == name)
            .last()
    }

    /// The method; empty if there is none.
    pub fn method(&self) -> &'a [u8] {
        self.method
    }

    /// The data; empty if there is none.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The raw content through its last LF, in the form that a relay forwards. `None` if the packet
    /// has no content part.
    pub fn content(&self) -> Option<&'a [u8]> {
        self.content
    }

    /// Whether the length of the content was announced.
    pub fn is_sized(&self) -> bool {
        self.content_sized
    }
}

/// Iterator over the modifiers of one header.
#[derive(Clone, Debug)]
pub struct Modifiers<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Modifiers<'a> {
    type Item = Variable<'a>;

    fn next(&mut self) -> Option<Variable<'a>> {
        let line = self.rest;
        let operator = Operator::from_byte(*line.first()?)?;
        let name_end = keyword_len(line, 1);
        let name = line.get(1..name_end)?;
        let (&separator, after) = line.get(name_end..)?.split_first()?;
        let (value, after, sized) = if separator == SP {
            let tab = after.iter().position(|&byte| byte == TAB)?;
            let digits = after.get(..tab)?;
            let number = |number: usize, &digit: &u8| {
                number
                    .checked_mul(10)?
                    .checked_add(usize::from(digit.wrapping_sub(b'0')))
            };
            let length = digits.iter().try_fold(0, number)?;
            let (value, after) = after.get(tab + 1..)?.split_at_checked(length)?;
            (value, after, true)
        } else {
            let end = memchr::memchr(LF, after)?;
            let (value, after) = after.split_at_checked(end)?;
            (value, after, false)
        };
        // The LF after a sized value at the end of the header may be outside of the slice.
        self.rest = after.get(1..).unwrap_or_default();
        Some(Variable {
            operator,
            name,
            value,
            sized,
        })
    }
}
