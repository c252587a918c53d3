//! The common parts of lists, dicts, indexes and updates: keywords, lengths, keys and elements.
//!
//! All callers share one reader of elements and one reader of keys. If the input ends too early,
//! both return how far they read, so that a list can be read in pieces.

use core::fmt;

use crate::class::is_digit;
use crate::limits::LENGTH_DIGITS_MAX;
use crate::scan::keyword_len;

pub(crate) const SP: u8 = b' ';

/// Kind of an error in a container, an index or an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum ContainerErrorKind {
    /// No `|` where an element of a list must begin.
    ElemStart = 1,
    /// `=` without a keyword, or an invalid byte after the type of an element.
    ElemType = 2,
    /// An element length has no blank, has no digits or is too large; or a text has no blank.
    ElemLength = 3,
    /// No `{` where an entry of a dict must begin.
    KeyStart = 4,
    /// A key length has no blank or is too large.
    KeyLength = 5,
    /// A sized key without a `}` after it.
    KeyEnd = 6,
    /// Like `ElemType`, for the value of a dict entry.
    ValueType = 7,
    /// Like `ElemLength`, for the value of a dict entry.
    ValueLength = 8,
    /// The input ends inside a sized element, inside a key or before the brace of the key; or an
    /// update has no operator.
    Short = 9,
    /// An invalid step of an index, or an index without steps.
    Index = 10,
    /// Not an operator at the position of the operator of an update.
    Oper = 11,
    /// An invalid byte after the operator or the type of an update.
    Type = 12,
    /// The length of an update's value is malformed, or the value does not reach the end.
    Length = 13,
}

impl ContainerErrorKind {
    /// Its number in the C interface, from 1. Numbers are never reused.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The short name that the tools print.
    pub const fn name(self) -> &'static str {
        match self {
            ContainerErrorKind::ElemStart => "elem-start",
            ContainerErrorKind::ElemType => "elem-type",
            ContainerErrorKind::ElemLength => "elem-length",
            ContainerErrorKind::KeyStart => "key-start",
            ContainerErrorKind::KeyLength => "key-length",
            ContainerErrorKind::KeyEnd => "key-end",
            ContainerErrorKind::ValueType => "value-type",
            ContainerErrorKind::ValueLength => "value-length",
            ContainerErrorKind::Short => "short",
            ContainerErrorKind::Index => "index",
            ContainerErrorKind::Oper => "oper",
            ContainerErrorKind::Type => "type",
            ContainerErrorKind::Length => "length",
        }
    }

    /// One sentence that describes the error.
    pub const fn sentence(self) -> &'static str {
        match self {
            ContainerErrorKind::ElemStart => "an element of a list does not begin with a bar",
            ContainerErrorKind::ElemType => "the type of an element is malformed",
            ContainerErrorKind::ElemLength => "the length of an element is malformed",
            ContainerErrorKind::KeyStart => "an entry of a dict does not begin with a brace",
            ContainerErrorKind::KeyLength => "the length of a key is malformed",
            ContainerErrorKind::KeyEnd => "a sized key does not end in a brace",
            ContainerErrorKind::ValueType => "the type of a value is malformed",
            ContainerErrorKind::ValueLength => "the length of a value is malformed",
            ContainerErrorKind::Short => "the value ends too early",
            ContainerErrorKind::Index => "a step of an index is malformed",
            ContainerErrorKind::Oper => "an update has no operator",
            ContainerErrorKind::Type => "the type of an update is malformed",
            ContainerErrorKind::Length => "the length of an update is malformed",
        }
    }
}

/// An error in a container, an index or an update, and its position. The sender caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerError {
    /// The kind of the error.
    pub kind: ContainerErrorKind,
    /// Offset of the offending byte from the start of the value. Equals the length of the value if
    /// the value is too short.
    pub offset: u64,
}

impl fmt::Display for ContainerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (byte {} of the value)",
            self.kind.name(),
            self.offset
        )
    }
}

impl core::error::Error for ContainerError {}

/// The position of a walker in a value, as plain numbers without the bytes of the value. For
/// callers that cannot keep a borrow. A place of another value is safe to resume from, but the
/// items that the walker then yields are meaningless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Bytes of the value before the position. For a list in parts: the bytes of all its parts.
    pub at: u64,
    /// What the walker expects next; 0 at the start.
    pub state: u64,
    /// The number of missing bytes of an element in parts.
    pub missing: u64,
    /// Bytes of a list in parts that are already scanned.
    pub scanned: [u64; 3],
}

impl Place {
    /// The position `at` in a whole value.
    pub(crate) fn whole(at: usize, state: u64) -> Place {
        Place {
            at: at as u64,
            state,
            ..Place::default()
        }
    }

    /// The index of this position in `bytes`, at most their length.
    pub(crate) fn index(self, bytes: &[u8]) -> usize {
        usize::try_from(self.at).map_or(bytes.len(), |at| at.min(bytes.len()))
    }
}

/// An element of a list, or the value of a dict entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element<'a> {
    /// The type of the element, if the element has its own.
    pub ty: Option<&'a [u8]>,
    /// The bytes of the element.
    pub value: &'a [u8],
    /// Whether the length was announced.
    pub sized: bool,
}

/// A key of a dict or of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// The bytes of the key; may be empty.
    pub key: &'a [u8],
    /// Whether the length was announced.
    pub sized: bool,
}

/// Why a reader of this module failed.
pub(crate) enum ReadError {
    /// The bytes end here; more may follow.
    More,
    /// The type is wrong at an index.
    Type(usize),
    /// The length is wrong at an index.
    Length(usize),
    /// The bytes end here; no more follow.
    Short,
    /// A sized key has no closing brace at an index.
    Brace(usize),
}

/// Bytes to read, and whether more bytes may follow.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) complete: bool,
}

impl<'a> Source<'a> {
    fn at(self, index: usize) -> Option<u8> {
        self.bytes.get(index).copied()
    }

    /// The result at the end of the bytes, where more bytes are required.
    fn ended(self, error: ReadError) -> ReadError {
        if self.complete {
            error
        } else {
            ReadError::More
        }
    }

    /// Reads a length and its blank. Returns the number and the index after the blank.
    pub(crate) fn length(self, start: usize) -> Result<(u64, usize), ReadError> {
        let (number, end) = self.number(start)?;
        match self.at(end) {
            Some(SP) => Ok((number, end + 1)),
            Some(_) => Err(ReadError::Length(end)),
            None => Err(self.ended(ReadError::Length(end))),
        }
    }

    /// Reads at least one digit. Returns the number and the index after the digits.
    pub(crate) fn number(self, start: usize) -> Result<(u64, usize), ReadError> {
        let mut number = 0u64;
        let mut index = start;
        while let Some(byte) = self.at(index).filter(|&byte| is_digit(byte)) {
            if index - start >= usize::from(LENGTH_DIGITS_MAX) {
                return Err(ReadError::Length(index));
            }
            let digit = u64::from(byte - b'0');
            let next = number
                .checked_mul(10)
                .and_then(|tens| tens.checked_add(digit));
            number = next.ok_or(ReadError::Length(index))?;
            index += 1;
        }
        match self.at(index) {
            _ if index > start => Ok((number, index)),
            Some(_) => Err(ReadError::Length(index)),
            None => Err(self.ended(ReadError::Length(index))),
        }
    }

    /// Reads the key whose first byte is at `start`. Returns it and the index after its `}`.
    pub(crate) fn key(self, start: usize) -> Result<(Key<'a>, usize), ReadError> {
        if self.at(start).is_some_and(is_digit) {
            let (number, from) = match self.length(start) {
                Ok(length) => length,
                Err(ReadError::Length(index)) if index >= self.bytes.len() => {
                    return Err(self.ended(ReadError::Short));
                }
                Err(error) => return Err(error),
            };
            let end = usize::try_from(number)
                .ok()
                .and_then(|number| from.checked_add(number));
            let key = end.and_then(|end| self.bytes.get(from..end));
            let (Some(key), Some(end)) = (key, end) else {
                return Err(self.ended(ReadError::Short));
            };
            return match self.at(end) {
                Some(b'}') => Ok((Key { key, sized: true }, end + 1)),
                Some(_) => Err(ReadError::Brace(end)),
                None => Err(self.ended(ReadError::Short)),
            };
        }
        let rest = self.bytes.get(start..).unwrap_or_default();
        match memchr::memchr(b'}', rest).and_then(|end| Some((rest.get(..end)?, end))) {
            Some((key, end)) => Ok((Key { key, sized: false }, start + end + 1)),
            None => Err(self.ended(ReadError::Short)),
        }
    }
}

/// How far an element has been read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// The end of the type, or of the part of the type that was read.
    pub(crate) ty: usize,
    /// Bytes of the text in which no end was found, counted from the start of the element.
    pub(crate) text: usize,
}

impl Progress {
    pub(crate) const NEW: Progress = Progress { ty: 0, text: 0 };
}

/// The part of an element that is in the buffer.
pub(crate) enum Parsed<'a> {
    /// A whole element, and the index after it.
    Whole(Element<'a>, usize),
    /// A sized element that is incomplete: its type, its length and the index of its first byte.
    Start(Option<&'a [u8]>, u64, usize),
}

/// Reads the element that starts at the first byte of `source`. A text ends before `stop`.
pub(crate) fn element<'a>(
    source: Source<'a>,
    stop: u8,
    progress: &mut Progress,
) -> Result<Parsed<'a>, ReadError> {
    let mut at = 0;
    let mut ty = None;
    if source.at(0) == Some(b'=') {
        let end = keyword_len(source.bytes, progress.ty.max(1));
        progress.ty = end;
        if end == source.bytes.len() && !source.complete {
            return Err(ReadError::More);
        }
        if end == 1 {
            return Err(ReadError::Type(1));
        }
        ty = source.bytes.get(1..end);
        at = end;
    }
    let whole = |value, sized, end| Parsed::Whole(Element { ty, value, sized }, end);
    match source.at(at) {
        None if !source.complete => Err(ReadError::More),
        None => Ok(whole(&[], false, at)),
        Some(byte) if byte == stop => Ok(whole(&[], false, at)),
        Some(SP) => {
            let from = at + 1;
            let scanned = progress.text.max(from);
            let found = source
                .bytes
                .get(scanned..)
                .and_then(|rest| memchr::memchr(stop, rest));
            if found.is_none() && !source.complete {
                progress.text = source.bytes.len();
                return Err(ReadError::More);
            }
            let end = found.map_or(source.bytes.len(), |found| scanned + found);
            Ok(whole(
                source.bytes.get(from..end).unwrap_or_default(),
                false,
                end,
            ))
        }
        Some(byte) if (ty.is_none() && is_digit(byte)) || (ty.is_some() && byte == b':') => {
            let (total, from) = source.length(at + usize::from(ty.is_some()))?;
            let end = usize::try_from(total)
                .ok()
                .and_then(|total| from.checked_add(total));
            match end.and_then(|end| Some((source.bytes.get(from..end)?, end))) {
                Some((value, end)) => Ok(whole(value, true, end)),
                None if source.complete => Err(ReadError::Short),
                None => Ok(Parsed::Start(ty, total, from)),
            }
        }
        Some(_) if ty.is_some() => Err(ReadError::Type(at)),
        Some(_) => Err(ReadError::Length(at)),
    }
}
