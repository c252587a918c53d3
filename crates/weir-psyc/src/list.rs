//! Lists: `[type] *( "|" element )`.
//!
//! [`List`] walks a complete value. [`ListStream`] reads a value that arrives in parts, with the
//! rules of the packet parser: only sized elements are split, and joined events do not depend on
//! how the input is split. The walker is a stream with complete input.

use crate::container::{
    ContainerError, ContainerErrorKind, Element, Parsed, Place, Progress, ReadError, Source,
    element,
};
use crate::scan::{BAR, keyword_len};

/// The result of one call of [`ListStream::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListStep<'a> {
    /// The type of all elements that have no type of their own. Only the first event.
    Type(&'a [u8]),
    /// A whole element.
    Elem(Element<'a>),
    /// A sized element of which the buffer has only a part.
    ElemStart {
        /// The type of the element, if the element has its own.
        ty: Option<&'a [u8]>,
        /// Length of the whole element in bytes.
        total: u64,
        /// The part of the element in the buffer; may be empty.
        part: &'a [u8],
    },
    /// More of the element, never empty.
    ElemCont(&'a [u8]),
    /// The rest of the element, never empty.
    ElemEnd(&'a [u8]),
    /// The end of the list.
    End,
    /// More input is needed. Keep the bytes that are not consumed, append input, and step again.
    NeedMore,
    /// The value is not a list. Each further step returns this error.
    Error(ContainerError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the type, or before the first element.
    Type,
    /// Before an element, or at the end.
    Elem,
    /// Inside a sized element.
    Part,
    End,
    Failed(ContainerError),
}

/// Incremental list parser; allocates nothing.
#[derive(Clone, Debug)]
pub struct ListStream {
    state: State,
    pos: usize,
    base: u64,
    missing: u64,
    /// Progress within the type or the element.
    scanned: usize,
    progress: Progress,
}

impl Default for ListStream {
    fn default() -> ListStream {
        ListStream::new()
    }
}

impl ListStream {
    /// A parser at the start of a list.
    pub const fn new() -> ListStream {
        ListStream {
            state: State::Type,
            pos: 0,
            base: 0,
            missing: 0,
            scanned: 0,
            progress: Progress::NEW,
        }
    }

    /// Continues in `buffer`, which holds all bytes that are not released yet. `complete` means
    /// that no more bytes follow; only then can an element be too short. Linear in the new bytes.
    pub fn step<'a>(&mut self, buffer: &'a [u8], complete: bool) -> ListStep<'a> {
        let rest = buffer.get(self.pos..).unwrap_or_default();
        // The place may be of another list. Progress counts from the byte after the bar of an
        // element.
        self.scanned = self.scanned.min(rest.len());
        let after_bar = rest.len().saturating_sub(1);
        self.progress.ty = self.progress.ty.min(after_bar);
        self.progress.text = self.progress.text.min(after_bar);
        match self.state {
            State::Failed(error) => ListStep::Error(error),
            State::End => ListStep::End,
            State::Part => self.part(rest, complete),
            State::Type => self.default_type(rest, complete),
            State::Elem => self.elem(rest, complete),
        }
    }

    /// A stream that resumes where another stream stopped. Pass it the bytes that were not
    /// consumed.
    pub fn resume(place: Place) -> ListStream {
        let [scanned, ty, text] = place
            .scanned
            .map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        ListStream {
            state: match place.state {
                0 => State::Type,
                1 => State::Elem,
                2 => State::Part,
                _ => State::End,
            },
            pos: 0,
            base: place.at,
            missing: place.missing,
            scanned,
            progress: Progress { ty, text },
        }
    }

    /// The position of the stream once the consumed bytes are released. `None` after an error,
    /// because no event follows an error.
    pub fn place(&self) -> Option<Place> {
        let state = match self.state {
            State::Type => 0,
            State::Elem => 1,
            State::Part => 2,
            State::End => 3,
            State::Failed(_) => return None,
        };
        Some(Place {
            at: self.base.saturating_add(self.pos as u64),
            state,
            missing: self.missing,
            scanned: [self.scanned, self.progress.ty, self.progress.text].map(|n| n as u64),
        })
    }

    /// Bytes at the front of the buffer that the stream no longer needs.
    pub const fn consumed(&self) -> usize {
        self.pos
    }

    /// Records that the caller removed the consumed bytes from the buffer. Returns their number.
    pub const fn release(&mut self) -> usize {
        let consumed = self.pos;
        self.base = self.base.saturating_add(consumed as u64);
        self.pos = 0;
        consumed
    }

    fn fail<'a>(&mut self, kind: ContainerErrorKind, index: usize) -> ListStep<'a> {
        let offset = self
            .base
            .saturating_add(self.pos as u64)
            .saturating_add(index as u64);
        let error = ContainerError { kind, offset };
        self.state = State::Failed(error);
        ListStep::Error(error)
    }

    fn default_type<'a>(&mut self, rest: &'a [u8], complete: bool) -> ListStep<'a> {
        let end = keyword_len(rest, self.scanned);
        if end == rest.len() && !complete {
            self.scanned = end;
            return ListStep::NeedMore;
        }
        self.state = State::Elem;
        self.scanned = 0;
        match rest.get(..end) {
            Some(ty) if end != 0 => {
                self.pos += end;
                ListStep::Type(ty)
            }
            _ => self.elem(rest, complete),
        }
    }

    fn elem<'a>(&mut self, rest: &'a [u8], complete: bool) -> ListStep<'a> {
        let Some((&bar, bytes)) = rest.split_first() else {
            if !complete {
                return ListStep::NeedMore;
            }
            self.state = State::End;
            return ListStep::End;
        };
        if bar != BAR {
            return self.fail(ContainerErrorKind::ElemStart, 0);
        }
        match element(Source { bytes, complete }, BAR, &mut self.progress) {
            Ok(Parsed::Whole(element, used)) => {
                self.pos += 1 + used;
                self.progress = Progress::NEW;
                ListStep::Elem(element)
            }
            Ok(Parsed::Start(ty, total, from)) => {
                let part = bytes.get(from..).unwrap_or_default();
                self.pos += rest.len();
                self.progress = Progress::NEW;
                self.missing = total - part.len() as u64;
                self.state = State::Part;
                ListStep::ElemStart { ty, total, part }
            }
            Err(ReadError::More) => ListStep::NeedMore,
            Err(ReadError::Type(index)) => self.fail(ContainerErrorKind::ElemType, index + 1),
            Err(ReadError::Length(index) | ReadError::Brace(index)) => {
                self.fail(ContainerErrorKind::ElemLength, index + 1)
            }
            Err(ReadError::Short) => self.fail(ContainerErrorKind::Short, rest.len()),
        }
    }

    fn part<'a>(&mut self, rest: &'a [u8], complete: bool) -> ListStep<'a> {
        let missing = usize::try_from(self.missing).unwrap_or(usize::MAX);
        let part = rest.get(..missing).unwrap_or(rest);
        if part.is_empty() {
            if complete {
                return self.fail(ContainerErrorKind::Short, 0);
            }
            return ListStep::NeedMore;
        }
        self.pos += part.len();
        self.missing -= part.len() as u64;
        if self.missing == 0 {
            self.state = State::Elem;
            return ListStep::ElemEnd(part);
        }
        ListStep::ElemCont(part)
    }
}

/// An item that [`List`] yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListEvent<'a> {
    /// The type of all elements that have no type of their own. Only the first event.
    Type(&'a [u8]),
    /// An element.
    Elem(Element<'a>),
}

/// Walks a list value. Ends after the last element, or after the first error.
///
/// ```
/// use weir_psyc::{List, ListEvent};
///
/// let mut values = Vec::new();
/// for event in List::new(b"_nick| north|5 a|b|c") {
///     if let ListEvent::Elem(element) = event? {
///         values.push(element.value);
///     }
/// }
/// assert_eq!(values, [&b"north"[..], b"a|b|c"]);
/// # Ok::<(), weir_psyc::ContainerError>(())
/// ```
#[derive(Clone, Debug)]
pub struct List<'a> {
    stream: ListStream,
    bytes: &'a [u8],
    over: bool,
}

impl<'a> List<'a> {
    /// A walker over the whole value `bytes`.
    pub const fn new(bytes: &'a [u8]) -> List<'a> {
        List {
            stream: ListStream::new(),
            bytes,
            over: false,
        }
    }

    /// A walker that resumes where another walker over the same value stopped.
    pub fn resume(bytes: &'a [u8], place: Place) -> List<'a> {
        let mut stream = ListStream::resume(Place::whole(0, place.state));
        stream.pos = place.index(bytes);
        List {
            stream,
            bytes,
            over: false,
        }
    }

    /// The current position of the walker; after an error, the end of the value.
    pub fn place(&self) -> Place {
        let end = Place::whole(self.bytes.len(), 3);
        self.stream.place().map_or(end, |place| Place {
            scanned: [0; 3],
            ..place
        })
    }

    /// Only the elements.
    pub fn elements(self) -> impl Iterator<Item = Result<Element<'a>, ContainerError>> {
        self.filter_map(|event| match event {
            Ok(ListEvent::Elem(element)) => Some(Ok(element)),
            Ok(ListEvent::Type(_)) => None,
            Err(error) => Some(Err(error)),
        })
    }
}

impl<'a> Iterator for List<'a> {
    type Item = Result<ListEvent<'a>, ContainerError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        match self.stream.step(self.bytes, true) {
            ListStep::Type(ty) => Some(Ok(ListEvent::Type(ty))),
            ListStep::Elem(element) => Some(Ok(ListEvent::Elem(element))),
            ListStep::Error(error) => {
                self.over = true;
                Some(Err(error))
            }
            // Parts and waiting cannot occur, because the input is complete.
            _ => {
                self.over = true;
                None
            }
        }
    }
}
