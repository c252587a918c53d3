//! Dicts: `[type] *( "{" key "}" value )`.

use crate::container::{
    ContainerError, ContainerErrorKind, Element, Key, Parsed, Place, Progress, ReadError, Source,
    element,
};
use crate::scan::keyword_len;

/// An item that [`Dict`] yields: first the type, if there is one, then keys and values in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DictEvent<'a> {
    /// The default type of the values. If present, it is the first event.
    Type(&'a [u8]),
    /// A key. A key that occurs twice is reported twice; callers use its last value.
    Key(Key<'a>),
    /// The value of the key before it.
    Value(Element<'a>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Type = 0,
    Key,
    Value,
    Over,
}

/// Walks a dict value. Ends after the last value, or after the first error.
///
/// ```
/// use weir_psyc::{Dict, DictEvent};
///
/// let north = Dict::new(b"_amount{north} 21{5 so}th} 19").entries().next();
/// let (key, value) = north.unwrap()?;
/// assert_eq!((key.key, value.value), (&b"north"[..], &b"21"[..]));
/// # Ok::<(), weir_psyc::ContainerError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Dict<'a> {
    bytes: &'a [u8],
    pos: usize,
    state: State,
}

impl<'a> Dict<'a> {
    /// A walker over the whole value `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Dict<'a> {
        Dict {
            bytes,
            pos: 0,
            state: State::Type,
        }
    }

    /// A walker that resumes where another walker over the same value stopped.
    pub fn resume(bytes: &'a [u8], place: Place) -> Dict<'a> {
        Dict {
            bytes,
            pos: place.index(bytes),
            state: match place.state {
                0 => State::Type,
                1 => State::Key,
                2 => State::Value,
                _ => State::Over,
            },
        }
    }

    /// The current position of the walker.
    pub fn place(&self) -> Place {
        Place::whole(self.pos, self.state as u64)
    }

    /// The entries, without the type. If the value of a key is malformed, only the error is
    /// yielded.
    pub fn entries(self) -> impl Iterator<Item = Result<(Key<'a>, Element<'a>), ContainerError>> {
        let mut dict = self;
        core::iter::from_fn(move || {
            loop {
                let key = match dict.next()? {
                    Ok(DictEvent::Key(key)) => key,
                    Ok(_) => continue,
                    Err(error) => return Some(Err(error)),
                };
                return match dict.next()? {
                    Ok(DictEvent::Value(value)) => Some(Ok((key, value))),
                    Ok(_) => continue,
                    Err(error) => Some(Err(error)),
                };
            }
        })
    }

    fn fail(&mut self, kind: ContainerErrorKind, index: usize) -> ContainerError {
        self.state = State::Over;
        ContainerError {
            kind,
            offset: (self.pos + index) as u64,
        }
    }

    fn key(&mut self, rest: &'a [u8]) -> Result<DictEvent<'a>, ContainerError> {
        if rest.first() != Some(&b'{') {
            return Err(self.fail(ContainerErrorKind::KeyStart, 0));
        }
        match (Source {
            bytes: rest,
            complete: true,
        })
        .key(1)
        {
            Ok((key, used)) => {
                self.pos += used;
                self.state = State::Value;
                Ok(DictEvent::Key(key))
            }
            Err(ReadError::Brace(index)) => Err(self.fail(ContainerErrorKind::KeyEnd, index)),
            Err(ReadError::Length(index) | ReadError::Type(index)) => {
                Err(self.fail(ContainerErrorKind::KeyLength, index))
            }
            Err(ReadError::Short | ReadError::More) => {
                Err(self.fail(ContainerErrorKind::Short, rest.len()))
            }
        }
    }

    fn value(&mut self, rest: &'a [u8]) -> Result<DictEvent<'a>, ContainerError> {
        let source = Source {
            bytes: rest,
            complete: true,
        };
        let mut progress = Progress::NEW;
        match element(source, b'{', &mut progress) {
            Ok(Parsed::Whole(element, used)) => {
                self.pos += used;
                self.state = State::Key;
                Ok(DictEvent::Value(element))
            }
            Err(ReadError::Type(index)) => Err(self.fail(ContainerErrorKind::ValueType, index)),
            Err(ReadError::Length(index) | ReadError::Brace(index)) => {
                Err(self.fail(ContainerErrorKind::ValueLength, index))
            }
            Ok(Parsed::Start(..)) | Err(ReadError::Short | ReadError::More) => {
                Err(self.fail(ContainerErrorKind::Short, rest.len()))
            }
        }
    }
}

impl<'a> Iterator for Dict<'a> {
    type Item = Result<DictEvent<'a>, ContainerError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.pos..).unwrap_or_default();
        match self.state {
            State::Type => {
                self.state = State::Key;
                let end = keyword_len(rest, 0);
                if end == 0 {
                    return self.next();
                }
                self.pos += end;
                rest.get(..end).map(|ty| Ok(DictEvent::Type(ty)))
            }
            State::Key if rest.is_empty() => {
                self.state = State::Over;
                None
            }
            State::Key => Some(self.key(rest)),
            State::Value => Some(self.value(rest)),
            State::Over => None,
        }
    }
}
