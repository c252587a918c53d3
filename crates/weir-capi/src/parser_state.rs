//! The state in the memory of a `weir_psyc_parser`, between the marks of `crate::handle`.

use weir_psyc::Parser;

/// A parser of the codec, and the result of its last call.
pub(crate) struct ParserState {
    pub(crate) parser: Parser,
    /// Lower bound of the bytes that the last call needed in addition; 0 if unknown.
    pub(crate) wanted: u64,
}
