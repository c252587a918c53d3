//! Syntax errors, after which a stream of packets cannot be read further.

use core::fmt;

/// Kind of a syntax error. The numbers are part of the interface and never reused.
///
/// The sender caused each of these errors. A retry with the same bytes fails in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i8)]
pub enum ErrorCode {
    /// `-1`: a state the decoder must not reach.
    Internal = -1,
    /// `-2`: content length malformed or over the limit, or different from the content.
    Length = -2,
    /// `-3`: operator not followed by a keyword.
    ModName = -3,
    /// `-4`: variable name not followed by TAB, or by SP length TAB.
    ModTab = -4,
    /// `-5`: value length missing, malformed, over the limit or larger than the content.
    ModLen = -5,
    /// `-6`: sized value not followed by LF.
    ModNl = -6,
    /// `-7`: method not followed by LF.
    Method = -7,
    /// `-8`: no end mark where the packet must end, or sized bytes that do not end in LF.
    End = -8,
    /// `-9`: unsized content too large, or a delimiter inside one of its sized values.
    NoLen = -9,
    /// `-10`: unsized value over the limit.
    ModNoLen = -10,
    /// `-11`: routing header too large, too many modifiers, name or method too long.
    Limit = -11,
}

impl ErrorCode {
    /// The number of this error in all implementations of the syntax.
    pub const fn number(self) -> i8 {
        self as i8
    }

    /// The short name that the event printer prints.
    pub const fn name(self) -> &'static str {
        match self {
            ErrorCode::Internal => "error",
            ErrorCode::Length => "length",
            ErrorCode::ModName => "mod-name",
            ErrorCode::ModTab => "mod-tab",
            ErrorCode::ModLen => "mod-len",
            ErrorCode::ModNl => "mod-nl",
            ErrorCode::Method => "method",
            ErrorCode::End => "end",
            ErrorCode::NoLen => "no-len",
            ErrorCode::ModNoLen => "mod-no-len",
            ErrorCode::Limit => "limit",
        }
    }

    /// One sentence that describes the error.
    pub const fn sentence(self) -> &'static str {
        match self {
            ErrorCode::Internal => "the decoder reached a state it must not reach",
            ErrorCode::Length => "the content length is malformed, too large or does not fit",
            ErrorCode::ModName => "an operator is not followed by a variable name",
            ErrorCode::ModTab => "a variable name is not followed by a tab",
            ErrorCode::ModLen => "a value length is malformed, too large or does not fit",
            ErrorCode::ModNl => "a sized value is not followed by a line feed",
            ErrorCode::Method => "a method is not followed by a line feed",
            ErrorCode::End => "the packet does not end at the required position",
            ErrorCode::NoLen => "a content without a length is too large or contains the end mark",
            ErrorCode::ModNoLen => "a value without a length is too large",
            ErrorCode::Limit => "the header, the number of variables or a name is too large",
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

/// A syntax error and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The kind of the error.
    pub code: ErrorCode,
    /// Offset of the offending byte from the first byte of this parser, or from its last reset.
    /// Does not depend on how the input is split.
    pub offset: u64,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (byte {})", self.code, self.offset)
    }
}

impl core::error::Error for ParseError {}
