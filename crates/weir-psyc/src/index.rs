//! Indexes into a variable: `#n` a position, `.name` a field, `{key}` an entry.

use crate::class::is_keyword_byte;
use crate::container::{ContainerError, ContainerErrorKind, Key, Place, ReadError, Source};
use crate::scan::keyword_len;

/// One step of an index; steps apply from left to right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexStep<'a> {
    /// The element at this position of a list, from 0.
    Pos(u64),
    /// The field of a struct.
    Field(&'a [u8]),
    /// The entry of a dict.
    Key(Key<'a>),
}

/// Walks an index that is a whole value: at least one step, and nothing after the last one.
///
/// ```
/// use weir_psyc::{Index, IndexStep};
///
/// let steps: Result<Vec<_>, _> = Index::new(b"#1._bar").collect();
/// assert_eq!(steps?, [IndexStep::Pos(1), IndexStep::Field(b"_bar")]);
/// # Ok::<(), weir_psyc::ContainerError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Index<'a> {
    bytes: &'a [u8],
    pos: usize,
    over: bool,
}

impl<'a> Index<'a> {
    /// A walker over the whole index `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Index<'a> {
        Index {
            bytes,
            pos: 0,
            over: false,
        }
    }

    /// A walker that resumes where another walker over the same index stopped.
    pub fn resume(bytes: &'a [u8], place: Place) -> Index<'a> {
        Index {
            bytes,
            pos: place.index(bytes),
            over: place.state != 0,
        }
    }

    /// The current position of the walker.
    pub fn place(&self) -> Place {
        Place::whole(self.pos, u64::from(self.over))
    }
}

impl<'a> Iterator for Index<'a> {
    type Item = Result<IndexStep<'a>, ContainerError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over || (self.pos != 0 && self.pos == self.bytes.len()) {
            return None;
        }
        let step = step(self.bytes, &mut self.pos);
        self.over = step.is_err();
        Some(step)
    }
}

/// Reads the step that starts at `pos` and moves `pos` after it.
pub(crate) fn step<'a>(bytes: &'a [u8], pos: &mut usize) -> Result<IndexStep<'a>, ContainerError> {
    let start = *pos;
    let source = Source {
        bytes,
        complete: true,
    };
    let fail = |kind, index: usize| ContainerError {
        kind,
        offset: index as u64,
    };
    match bytes.get(start) {
        Some(b'#') => match source.number(start + 1) {
            Ok((number, end)) => {
                *pos = end;
                Ok(IndexStep::Pos(number))
            }
            Err(ReadError::Length(index)) => Err(fail(ContainerErrorKind::Index, index)),
            Err(_) => Err(fail(ContainerErrorKind::Index, bytes.len())),
        },
        Some(b'.') => {
            let end = keyword_len(bytes, start + 1);
            match bytes.get(start + 1..end) {
                Some(name) if name.first().copied().is_some_and(is_keyword_byte) => {
                    *pos = end;
                    Ok(IndexStep::Field(name))
                }
                _ => Err(fail(ContainerErrorKind::Index, start + 1)),
            }
        }
        Some(b'{') => match source.key(start + 1) {
            Ok((key, end)) => {
                *pos = end;
                Ok(IndexStep::Key(key))
            }
            Err(ReadError::Brace(index)) => Err(fail(ContainerErrorKind::KeyEnd, index)),
            Err(ReadError::Length(index) | ReadError::Type(index)) => {
                Err(fail(ContainerErrorKind::KeyLength, index))
            }
            Err(ReadError::Short | ReadError::More) => {
                Err(fail(ContainerErrorKind::Short, bytes.len()))
            }
        },
        _ => Err(fail(ContainerErrorKind::Index, start)),
    }
}
