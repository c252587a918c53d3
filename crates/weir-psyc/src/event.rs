//! The events that the packet parser reports.

use crate::error::ParseError;
use crate::operator::Operator;

/// One whole modifier: operator, name and value, borrowed from the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable<'a> {
    /// The operator, which specifies how the variable changes.
    pub operator: Operator,
    /// The name, one or more keyword bytes.
    pub name: &'a [u8],
    /// The value, any bytes; without LF unless `sized`.
    pub value: &'a [u8],
    /// Whether the length of the value was announced. Always false in the routing header.
    pub sized: bool,
}

/// The result of one call of [`Parser::step`](crate::Parser::step).
///
/// Slices point into the buffer of the call; nothing is copied. After `…Start`, `…Cont` and
/// `…End` are joined, the sequence of events does not depend on how the input is split. Act on a
/// packet only at [`Complete`](ParseStep::Complete), because an error can occur before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseStep<'a> {
    /// A whole routing modifier; never sized.
    Routing(Variable<'a>),
    /// The line `=`: drop the stored state; the modifiers that follow are the complete state.
    StateReset,
    /// The line `?`: the peer requests a reset.
    StateResync,
    /// A whole entity modifier.
    Entity(Variable<'a>),
    /// A sized value of which the buffer has only a part.
    EntityStart {
        /// The operator, which specifies how the variable changes.
        operator: Operator,
        /// The name.
        name: &'a [u8],
        /// Length of the whole value in bytes.
        total: u64,
        /// The part of the value in the buffer; may be empty.
        part: &'a [u8],
    },
    /// More of the value, never empty.
    EntityCont(&'a [u8]),
    /// The rest of the value, never empty.
    EntityEnd(&'a [u8]),
    /// A whole method and its data.
    Body {
        /// The method, one or more keyword bytes.
        method: &'a [u8],
        /// The data, any bytes; empty if there is none.
        data: &'a [u8],
        /// Whether the length of the content was announced.
        sized: bool,
    },
    /// A method with sized data, of which the buffer has only a part.
    BodyStart {
        /// The method.
        method: &'a [u8],
        /// Length of the whole data in bytes.
        total: u64,
        /// The part of the data in the buffer; may be empty.
        part: &'a [u8],
    },
    /// More of the data, never empty.
    BodyCont(&'a [u8]),
    /// The rest of the data, never empty.
    BodyEnd(&'a [u8]),
    /// Routing-only mode: the whole raw content through its last LF; may be empty.
    Content {
        /// All bytes between the routing header and the end mark.
        data: &'a [u8],
        /// Whether the length was announced.
        sized: bool,
    },
    /// Routing-only mode: a sized content of which the buffer has only a part.
    ContentStart {
        /// Length of the whole content in bytes.
        total: u64,
        /// The part of the content in the buffer; may be empty.
        part: &'a [u8],
    },
    /// More of the content, never empty.
    ContentCont(&'a [u8]),
    /// The rest of the content, never empty.
    ContentEnd(&'a [u8]),
    /// The end mark. All events since the last end mark form a packet.
    Complete,
    /// More input is needed. Keep the bytes that are not consumed, append input, and step again.
    /// Carries the number of missing bytes of the current piece, if the parser knows it.
    NeedMore(Option<u64>),
    /// The stream is malformed. Each further step returns this error until the parser is reset.
    Error(ParseError),
}
