//! What lies in the memory of a `weir_psyc_parser`, between the marks of `crate::handle`.

use weir_psyc::Parser;

/// A parser of the codec, and what its last call left to say.
pub(crate) struct ParserState {
    pub(crate) parser: Parser,
    /// Bytes that were missing at the end of the last call; 0 if unknown.
    pub(crate) wanted: u64,
}
