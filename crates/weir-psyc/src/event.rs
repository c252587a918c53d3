//! What the packet parser reports.

use crate::error::ParseError;
use crate::operator::Operator;

/// One whole modifier: operator, name and value, borrowed from the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable<'a> {
    /// What happens to the variable.
    pub operator: Operator,
    /// Its name, one or more keyword bytes.
    pub name: &'a [u8],
    /// Its value, any bytes; without LF unless `sized`.
    pub value: &'a [u8],
    /// Whether the value's length was announced. Always false in the routing header.
    pub sized: bool,
}

/// What one call of [`Parser::step`](crate::Parser::step) found.
///
/// Slices point into the buffer of that call; nothing is copied. Joining `…Start`, `…Cont` and
/// `…End` gives the same sequence for every way of cutting the input. Act on a packet only at
/// [`Complete`](ParseStep::Complete): until then an error can still follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseStep<'a> {
    /// A routing modifier, whole; never sized.
    Routing(Variable<'a>),
    /// The line `=`: forget the stored state, what follows is all of it.
    StateReset,
    /// The line `?`: send me a reset.
    StateResync,
    /// An entity modifier, whole.
    Entity(Variable<'a>),
    /// A sized value that is not all in the buffer.
    EntityStart {
        /// What happens to the variable.
        operator: Operator,
        /// Its name.
        name: &'a [u8],
        /// Bytes of the whole value.
        total: u64,
        /// What is there of it; may be empty.
        part: &'a [u8],
    },
    /// More of the value, never empty.
    EntityCont(&'a [u8]),
    /// The rest of the value, never empty.
    EntityEnd(&'a [u8]),
    /// Method and data, whole.
    Body {
        /// The method, one or more keyword bytes.
        method: &'a [u8],
        /// The data, any bytes; empty when there is none.
        data: &'a [u8],
        /// Whether the content's length was announced.
        sized: bool,
    },
    /// A method whose sized data is not all in the buffer.
    BodyStart {
        /// The method.
        method: &'a [u8],
        /// Bytes of the whole data.
        total: u64,
        /// What is there of it; may be empty.
        part: &'a [u8],
    },
    /// More of the data, never empty.
    BodyCont(&'a [u8]),
    /// The rest of the data, never empty.
    BodyEnd(&'a [u8]),
    /// Routing-only mode: the raw content through its last LF, whole; may be empty.
    Content {
        /// Everything between the routing header and the end mark.
        data: &'a [u8],
        /// Whether its length was announced.
        sized: bool,
    },
    /// Routing-only mode: a sized content that is not all in the buffer.
    ContentStart {
        /// Bytes of the whole content.
        total: u64,
        /// What is there of it; may be empty.
        part: &'a [u8],
    },
    /// More of the content, never empty.
    ContentCont(&'a [u8]),
    /// The rest of the content, never empty.
    ContentEnd(&'a [u8]),
    /// The end mark: everything since the last one is a packet.
    Complete,
    /// Keep the bytes that are not consumed, add input, step again. Carries the number of bytes
    /// that the piece being read still lacks, where the parser knows it.
    NeedMore(Option<u64>),
    /// The stream is broken. Repeated by every further step until the parser is reset.
    Error(ParseError),
}
