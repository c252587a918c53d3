//! What lists, dicts, indexes and updates have in common: keywords, lengths, keys and elements.
//!
//! All callers share one reader for an element and one for a key. Both return how far they got
//! when the input ends too early, so that a list can be read in pieces.

use core::fmt;

use crate::class::is_digit;
use crate::limits::LENGTH_DIGITS_MAX;
use crate::scan::keyword_len;

pub(crate) const SP: u8 = b' ';

/// What is wrong with a container, an index or an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum ContainerErrorKind {
    /// No `|` where an element of a list has to begin.
    ElemStart = 1,
    /// `=` without a keyword, or something else after an element's type.
    ElemType = 2,
    /// An element's length without its blank, without digits or too large; text without its blank.
    ElemLength = 3,
    /// No `{` where an entry of a dict has to begin.
    KeyStart = 4,
    /// A key's length without its blank, or too large.
    KeyLength = 5,
    /// A sized key that is not followed by `}`.
    KeyEnd = 6,
    /// Like `ElemType`, for the value of a dict entry.
    ValueType = 7,
    /// Like `ElemLength`, for the value of a dict entry.
    ValueLength = 8,
    /// The input ends inside a sized element, a key or before its brace; an update without
    /// operator.
    Short = 9,
    /// A step of an index that is none, or an index without steps.
    Index = 10,
    /// Something else where an update has its operator.
    Oper = 11,
    /// Something else after the operator or the type of an update.
    Type = 12,
    /// The length of an update's value is malformed, or the value does not reach the end.
    Length = 13,
}

impl ContainerErrorKind {
    /// Its number in the C interface, from 1. Numbers are never reused.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The short name printed by the tools.
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

    /// One sentence for people.
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

/// An error in a container, an index or an update, and its place. The sender's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerError {
    /// What is wrong.
    pub kind: ContainerErrorKind,
    /// The offending byte, counted from the start of the value; its length when it is too short.
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

/// Where a walker of a value stands, without the bytes of the value: plain numbers, to be kept where
/// a borrow cannot be. Those of another value are safe; what the walker yields then means nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Bytes of the value that were walked over; of a list in parts those of all its parts.
    pub at: u64,
    /// What comes next; 0 at the start.
    pub state: u64,
    /// Of an element in parts: the bytes that are missing.
    pub missing: u64,
    /// What a list in parts need not look at again.
    pub scanned: [u64; 3],
}

impl Place {
    /// The place in a whole value.
    pub(crate) fn whole(at: usize, state: u64) -> Place {
        Place {
            at: at as u64,
            state,
            ..Place::default()
        }
    }

    /// Where that is in `bytes`; their end when they have less.
    pub(crate) fn index(self, bytes: &[u8]) -> usize {
        usize::try_from(self.at).map_or(bytes.len(), |at| at.min(bytes.len()))
    }
}

/// An element of a list, or the value of a dict entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element<'a> {
    /// Its own type, if it has one.
    pub ty: Option<&'a [u8]>,
    /// Its bytes.
    pub value: &'a [u8],
    /// Whether its length was announced.
    pub sized: bool,
}

/// A key of a dict or of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// Its bytes; may be empty.
    pub key: &'a [u8],
    /// Whether its length was announced.
    pub sized: bool,
}

/// What a reader of this module could not do.
pub(crate) enum Trouble {
    /// The bytes end here and more may come.
    More,
    /// The type is wrong at an index.
    Type(usize),
    /// The length is wrong at an index.
    Length(usize),
    /// The bytes end here and nothing more comes.
    Short,
    /// A sized key without its brace.
    Brace(usize),
}

/// Bytes to read, and whether they are all there will be.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) complete: bool,
}

impl<'a> Source<'a> {
    fn at(self, index: usize) -> Option<u8> {
        self.bytes.get(index).copied()
    }

    /// What it means that the bytes end, when something else has to come.
    fn ended(self, trouble: Trouble) -> Trouble {
        if self.complete {
            trouble
        } else {
            Trouble::More
        }
    }

    /// A length and its blank: the number and the index after the blank.
    pub(crate) fn length(self, start: usize) -> Result<(u64, usize), Trouble> {
        let (number, end) = self.number(start)?;
        match self.at(end) {
            Some(SP) => Ok((number, end + 1)),
            Some(_) => Err(Trouble::Length(end)),
            None => Err(self.ended(Trouble::Length(end))),
        }
    }

    /// At least one digit: the number and the index after it.
    pub(crate) fn number(self, start: usize) -> Result<(u64, usize), Trouble> {
        let mut number = 0u64;
        let mut index = start;
        while let Some(byte) = self.at(index).filter(|&byte| is_digit(byte)) {
            if index - start >= usize::from(LENGTH_DIGITS_MAX) {
                return Err(Trouble::Length(index));
            }
            let digit = u64::from(byte - b'0');
            let next = number
                .checked_mul(10)
                .and_then(|tens| tens.checked_add(digit));
            number = next.ok_or(Trouble::Length(index))?;
            index += 1;
        }
        match self.at(index) {
            _ if index > start => Ok((number, index)),
            Some(_) => Err(Trouble::Length(index)),
            None => Err(self.ended(Trouble::Length(index))),
        }
    }

    /// A key whose first byte is at `start`, and the index after its `}`.
    pub(crate) fn key(self, start: usize) -> Result<(Key<'a>, usize), Trouble> {
        if self.at(start).is_some_and(is_digit) {
            let (number, from) = match self.length(start) {
                Ok(length) => length,
                Err(Trouble::Length(index)) if index >= self.bytes.len() => {
                    return Err(self.ended(Trouble::Short));
                }
                Err(trouble) => return Err(trouble),
            };
            let end = usize::try_from(number)
                .ok()
                .and_then(|number| from.checked_add(number));
            let key = end.and_then(|end| self.bytes.get(from..end));
            let (Some(key), Some(end)) = (key, end) else {
                return Err(self.ended(Trouble::Short));
            };
            return match self.at(end) {
                Some(b'}') => Ok((Key { key, sized: true }, end + 1)),
                Some(_) => Err(Trouble::Brace(end)),
                None => Err(self.ended(Trouble::Short)),
            };
        }
        let rest = self.bytes.get(start..).unwrap_or_default();
        match memchr::memchr(b'}', rest).and_then(|end| Some((rest.get(..end)?, end))) {
            Some((key, end)) => Ok((Key { key, sized: false }, start + end + 1)),
            None => Err(self.ended(Trouble::Short)),
        }
    }
}

/// How far an element has been read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// The end of the type's bytes seen so far, or of the whole type.
    pub(crate) ty: usize,
    /// Bytes of the text that hold no end, counted from the element's start.
    pub(crate) text: usize,
}

impl Progress {
    pub(crate) const NEW: Progress = Progress { ty: 0, text: 0 };
}

/// The part of an element that has arrived.
pub(crate) enum Parsed<'a> {
    /// All of it, and the index after it.
    Whole(Element<'a>, usize),
    /// A sized one that is not all here: its type, its length and where its bytes start.
    Start(Option<&'a [u8]>, u64, usize),
}

/// Reads the element that starts at the first byte of `source`; its text ends in front of `stop`.
pub(crate) fn element<'a>(
    source: Source<'a>,
    stop: u8,
    progress: &mut Progress,
) -> Result<Parsed<'a>, Trouble> {
    let mut at = 0;
    let mut ty = None;
    if source.at(0) == Some(b'=') {
        let end = keyword_len(source.bytes, progress.ty.max(1));
        progress.ty = end;
        if end == source.bytes.len() && !source.complete {
            return Err(Trouble::More);
        }
        if end == 1 {
            return Err(Trouble::Type(1));
        }
        ty = source.bytes.get(1..end);
        at = end;
    }
    let whole = |value, sized, end| Parsed::Whole(Element { ty, value, sized }, end);
    match source.at(at) {
        None if !source.complete => Err(Trouble::More),
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
                return Err(Trouble::More);
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
                None if source.complete => Err(Trouble::Short),
                None => Ok(Parsed::Start(ty, total, from)),
            }
        }
        Some(_) if ty.is_some() => Err(Trouble::Type(at)),
        Some(_) => Err(Trouble::Length(at)),
    }
}
