//! Update expressions, the values of `@` modifiers: `index SP operator [type] [value]`.

use crate::container::{ContainerError, ContainerErrorKind, Place, ReadError, SP, Source};
use crate::index::{self, IndexStep};
use crate::operator::Operator;
use crate::scan::keyword_len;

/// An item that [`Update`] yields: the steps of the index, the operation, then the value if
/// present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateEvent<'a> {
    /// A step of the index. An index without steps means the whole variable.
    Step(IndexStep<'a>),
    /// The operation on the element.
    Op {
        /// The operator.
        operator: Operator,
        /// The type of the value, if the update has one.
        ty: Option<&'a [u8]>,
    },
    /// The value. If absent, the value is empty.
    Value {
        /// The bytes of the value.
        value: &'a [u8],
        /// Whether the length was announced.
        sized: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Index = 0,
    Value,
    Over,
}

/// Walks an update expression. Ends after the value, or after the first error.
///
/// ```
/// use weir_psyc::{Operator, Update, UpdateEvent};
///
/// let mut update = Update::new(b"{gate} - shut");
/// assert!(matches!(update.next(), Some(Ok(UpdateEvent::Step(_)))));
/// let operation = UpdateEvent::Op { operator: Operator::Diminish, ty: None };
/// assert_eq!(update.next(), Some(Ok(operation)));
/// let value = UpdateEvent::Value { value: b"shut", sized: false };
/// assert_eq!(update.next(), Some(Ok(value)));
/// assert_eq!(update.next(), None);
/// ```
#[derive(Clone, Debug)]
pub struct Update<'a> {
    bytes: &'a [u8],
    pos: usize,
    state: State,
}

impl<'a> Update<'a> {
    /// A walker over the whole expression `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Update<'a> {
        Update {
            bytes,
            pos: 0,
            state: State::Index,
        }
    }

    /// A walker that resumes where another walker over the same expression stopped.
    pub fn resume(bytes: &'a [u8], place: Place) -> Update<'a> {
        Update {
            bytes,
            pos: place.index(bytes),
            state: match place.state {
                0 => State::Index,
                1 => State::Value,
                _ => State::Over,
            },
        }
    }

    /// The current position of the walker.
    pub fn place(&self) -> Place {
        Place::whole(self.pos, self.state as u64)
    }

    fn fail<T>(&self, kind: ContainerErrorKind, index: usize) -> Result<T, ContainerError> {
        Err(ContainerError {
            kind,
            offset: index.min(self.bytes.len()) as u64,
        })
    }

    fn operation(&mut self) -> Result<UpdateEvent<'a>, ContainerError> {
        let bytes = self.bytes;
        let Some(&byte) = bytes.get(self.pos + 1) else {
            return self.fail(ContainerErrorKind::Short, bytes.len());
        };
        let Some(operator) = Operator::from_byte(byte) else {
            return self.fail(ContainerErrorKind::Oper, self.pos + 1);
        };
        let start = self.pos + 2;
        let end = keyword_len(bytes, start);
        let ty = bytes.get(start..end).filter(|ty| !ty.is_empty());
        if !matches!(bytes.get(end), None | Some(&(SP | b':'))) {
            return self.fail(ContainerErrorKind::Type, end);
        }
        self.pos = end;
        self.state = State::Value;
        Ok(UpdateEvent::Op { operator, ty })
    }

    fn value(&mut self) -> Result<UpdateEvent<'a>, ContainerError> {
        let bytes = self.bytes;
        if bytes.get(self.pos) == Some(&SP) {
            let value = bytes.get(self.pos + 1..).unwrap_or_default();
            return Ok(UpdateEvent::Value {
                value,
                sized: false,
            });
        }
        match (Source {
            bytes,
            complete: true,
        })
        .length(self.pos + 1)
        {
            Ok((number, from)) => {
                let value = bytes.get(from..).unwrap_or_default();
                let available = value.len() as u64;
                if available < number {
                    return self.fail(ContainerErrorKind::Short, bytes.len());
                }
                if available > number {
                    let end = from + usize::try_from(number).unwrap_or_default();
                    return self.fail(ContainerErrorKind::Length, end);
                }
                Ok(UpdateEvent::Value { value, sized: true })
            }
            Err(ReadError::Length(index)) => self.fail(ContainerErrorKind::Length, index),
            Err(_) => self.fail(ContainerErrorKind::Short, bytes.len()),
        }
    }
}

impl<'a> Iterator for Update<'a> {
    type Item = Result<UpdateEvent<'a>, ContainerError>;

    fn next(&mut self) -> Option<Self::Item> {
        let event = match self.state {
            State::Over => return None,
            State::Index => match self.bytes.get(self.pos) {
                None => self.fail(ContainerErrorKind::Short, self.pos),
                Some(&SP) => self.operation(),
                Some(_) => index::step(self.bytes, &mut self.pos).map(UpdateEvent::Step),
            },
            State::Value => {
                self.state = State::Over;
                if self.pos == self.bytes.len() {
                    return None;
                }
                self.value()
            }
        };
        if event.is_err() {
            self.state = State::Over;
        }
        Some(event)
    }
}
