//! Errors of a page, a path or a plan.
//!
//! Invariant: an error has the offset of the first offending byte, and no payload.

use std::fmt;

/// Why and where a page was rejected. No result of the page may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanError {
    /// The kind of the fault.
    pub kind: ScanErrorKind,
    /// Offset of the first offending byte in the page; the length of the page if it ends too early.
    /// For an unterminated string, the offset of its opening quote.
    pub offset: usize,
    /// Index of the item with the fault, counted from 0, skipped bad items included. Outside of
    /// items, the number of items before the fault.
    pub item: usize,
}

/// Kinds of faults of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScanErrorKind {
    /// Bytes that are not UTF-8.
    NotUtf8,
    /// A byte that RFC 8259 does not allow at this position, a byte order mark included.
    NotJson,
    /// An unescaped control character inside a string.
    ControlCharacter,
    /// A string whose closing quote is missing.
    UnterminatedString,
    /// Brackets do not balance, or the page ends inside a value.
    Unbalanced,
    /// Something other than white space after the value of the page (or line, or frame).
    TrailingData,
    /// More levels of nesting than the limit.
    TooDeep,
    /// The page or an item is larger than its limit.
    TooLarge,
    /// The page is not an array, or the path of the shape does not lead to an array.
    BadEnvelope,
    /// Strict only: an object on a path has the same member name twice.
    DuplicateName,
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            ScanErrorKind::NotUtf8 => "bytes that are not UTF-8 begin",
            ScanErrorKind::NotJson => "not JSON",
            ScanErrorKind::ControlCharacter => "unescaped control character in a string",
            ScanErrorKind::UnterminatedString => "unterminated string starting",
            ScanErrorKind::Unbalanced => "brackets do not balance",
            ScanErrorKind::TrailingData => "data after the end of the value",
            ScanErrorKind::TooDeep => "nested too deeply",
            ScanErrorKind::TooLarge => "larger than its limit, starting",
            ScanErrorKind::BadEnvelope => "no array of items",
            ScanErrorKind::DuplicateName => "member name repeated",
        };
        write!(f, "{what} at byte {} (item {})", self.offset, self.item)
    }
}

impl std::error::Error for ScanError {}

/// Why a path or expression was rejected, and where in its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathError {
    /// The kind of the fault.
    pub kind: PathErrorKind,
    /// Byte offset in the text.
    pub offset: usize,
}

/// Kinds of faults of a path or expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathErrorKind {
    /// A violation of the grammar of RFC 9535, with the expected syntax.
    Syntax(&'static str),
    /// A selector that can yield several nodes, but a singular query is required.
    NotSingular,
    /// The length, depth or number of parts exceeds this limit.
    TooComplex(ExpressionLimit),
    /// A function that does not exist.
    UnknownFunction,
    /// A type that this position does not allow (RFC 9535, 2.4.3).
    WrongType,
}

/// Limits of paths and expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExpressionLimit {
    /// Bytes of text: [`EXPRESSION_BYTES_MAX`](crate::EXPRESSION_BYTES_MAX).
    Bytes,
    /// Steps of a path: [`PATH_STEPS_MAX`](crate::PATH_STEPS_MAX).
    Steps,
    /// Different singular paths: [`PATHS_MAX`](crate::PATHS_MAX).
    Paths,
    /// Nesting of brackets, negations, functions and filters.
    Nesting,
    /// Nesting of walks: `..`, and `$` in a filter selector.
    Walks,
    /// Selectors in a pair of brackets.
    Selectors,
    /// Parts of one `&&` or `||`.
    Parts,
}

impl ExpressionLimit {
    /// A description of the exceeded limit, with its value.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Bytes => "more than 65536 bytes of text",
            Self::Steps => "more than 64 steps in a path",
            Self::Paths => "more than 64 paths",
            Self::Nesting => {
                "more than 64 brackets, negations, functions and filters inside of each other"
            }
            Self::Walks => {
                "more than 4 walks (`..`, or `$` in a filter selector) inside of each other"
            }
            Self::Selectors => "more than 1024 selectors in a pair of brackets",
            Self::Parts => "more than 4096 parts of one `&&` or `||`",
        }
    }
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            PathErrorKind::Syntax(expected) => write!(f, "expected {expected}")?,
            PathErrorKind::NotSingular => f.write_str("a path of names and indexes is needed")?,
            PathErrorKind::TooComplex(limit) => f.write_str(limit.sentence())?,
            PathErrorKind::UnknownFunction => f.write_str("unknown function")?,
            PathErrorKind::WrongType => f.write_str("wrong type at this position")?,
        }
        write!(f, " at byte {}", self.offset)
    }
}

impl std::error::Error for PathError {}

/// Why a plan is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// More than [`PATHS_MAX`](crate::PATHS_MAX) paths.
    TooManyPaths,
    /// A limit above the maximum of the scanner.
    LimitTooHigh,
    /// Level `none` is for framed and single items without paths.
    LevelNeedsChecks,
    /// Bad items can be skipped only in shapes with independent items: lines, frames.
    NotIndependent,
    /// This machine lacks the kernel.
    NoKernel,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooManyPaths => "more than 64 paths",
            Self::LimitTooHigh => "a limit is higher than the scanner allows",
            Self::LevelNeedsChecks => "level none is for framed or single items without paths",
            Self::NotIndependent => "bad items can be skipped only in lines and frames",
            Self::NoKernel => "this machine does not have the kernel",
        })
    }
}

impl std::error::Error for PlanError {}

/// The evaluation would exceed the limit of steps ([`STEPS_PER_BYTE`](crate::STEPS_PER_BYTE) and
/// the size of the item), or the caller has cancelled it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfSteps;

impl fmt::Display for OutOfSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("more steps in an item than its size allows")
    }
}

impl std::error::Error for OutOfSteps {}
