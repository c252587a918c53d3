//! Iterates over the members or elements of a value.
//!
//! Invariants: the iteration stops at the first byte that is not JSON, and reports it; it does not
//! allocate.

use crate::items::{Span, Tag, Value};
use crate::kernel::scalar::Fault;
use crate::token::{blanks, unexpected};
use crate::walk::Walk;

/// An iteration over the children of one container.
pub(crate) struct Children<'w, 'a> {
    walk: &'w mut Walk<'a>,
    object: bool,
    /// The expected position of the next child; `None` after the last child or a fault.
    at: Option<usize>,
    passed: usize,
}

/// One child.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Child {
    /// Name of the child with quotes, if the parent is an object.
    pub(crate) name: Option<Span>,
    pub(crate) value: Value,
}

impl<'w, 'a> Children<'w, 'a> {
    /// Children of the value at `at`; none if it is a scalar.
    pub(crate) fn new(walk: &'w mut Walk<'a>, at: usize) -> Self {
        let bytes = walk.bytes;
        let object = bytes.get(at) == Some(&b'{');
        let first = blanks(bytes, at + 1);
        let some = object || bytes.get(at) == Some(&b'[');
        let empty = matches!(bytes.get(first), Some(b'}' | b']'));
        Self {
            walk,
            object,
            at: (some && !empty).then_some(first),
            passed: first,
        }
    }

    /// End of the bytes that were examined, white space included.
    pub(crate) fn passed(&self) -> usize {
        self.passed
    }

    fn step(&mut self, at: usize) -> Result<Child, Fault> {
        let bytes = self.walk.bytes;
        let (mut at, mut name) = (at, None);
        if self.object {
            if bytes.get(at) != Some(&b'"') {
                return Err(unexpected(bytes, at));
            }
            let end = self.walk.string(at)?.close + 1;
            name = Some(Span::new(at, end));
            at = blanks(bytes, end);
            if bytes.get(at) != Some(&b':') {
                return Err(unexpected(bytes, at));
            }
            at = blanks(bytes, at + 1);
        }
        let (tag, escaped, end) = self.walk.skip_value(at, 0)?;
        let value = Value {
            span: Span::new(at, end),
            tag,
            escaped,
        };
        let after = blanks(bytes, end);
        self.passed = after;
        self.at = match (bytes.get(after), self.object) {
            (Some(b','), _) => {
                self.passed = blanks(bytes, after + 1);
                Some(self.passed)
            }
            (Some(b'}'), true) | (Some(b']'), false) => None,
            _ => return Err(unexpected(bytes, after)),
        };
        Ok(Child { name, value })
    }
}

impl Iterator for Children<'_, '_> {
    type Item = Result<Child, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at.take()?;
        Some(self.step(at))
    }
}

/// The tag of the value that begins with `byte`.
pub(crate) fn tag_of(byte: Option<&u8>) -> Tag {
    match byte {
        Some(b'{') => Tag::Object,
        Some(b'[') => Tag::Array,
        Some(b'"') => Tag::String,
        Some(b't') => Tag::True,
        Some(b'f') => Tag::False,
        Some(b'n') => Tag::Null,
        Some(b'-' | b'0'..=b'9') => Tag::Number,
        _ => Tag::Undefined,
    }
}
