//! The items of a complete body, in order.
//!
//! Invariant: items that were not requested yet use no memory, because a body of 64 MiB may have
//! half as many items as bytes.

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::item::Position;
use crate::http::problem::Problem;
use crate::resources::framing::Framing;

/// Position of the next item.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    framing: Framing,
    /// Index of the first byte that was not scanned.
    at: usize,
    /// Number of items before it, including empty ones.
    line: u64,
}

/// An item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source<'a> {
    pub(super) position: Position,
    pub(super) bytes: &'a [u8],
}

impl Cursor {
    /// Creates a cursor before the first item, after checking the framing of the whole body.
    pub(super) fn new(framing: Framing, body: &[u8]) -> Result<Self, Problem> {
        if framing == Framing::Events {
            let text = std::str::from_utf8(body);
            let text = text.map_err(|_| Problem::bad("the batch is not UTF-8"))?;
            // Uses no memory: `IgnoredAny` has no size.
            serde_json::from_str::<Vec<IgnoredAny>>(text)
                .map_err(|_| Problem::bad("the batch is not a JSON array"))?;
        }
        Ok(Self {
            framing,
            at: 0,
            line: 0,
        })
    }

    /// Returns the next item that is not blank.
    pub(super) fn next<'a>(&mut self, body: &'a [u8]) -> Option<Source<'a>> {
        loop {
            let source = match self.framing {
                Framing::Lines => self.next_delimited(body, b'\n'),
                Framing::Sequence => self.next_delimited(body, 0x1e),
                Framing::Events => self.next_value(body),
            }?;
            self.line += 1;
            if !source.trim_ascii().is_empty() {
                let byte = source.as_ptr().addr().saturating_sub(body.as_ptr().addr());
                return Some(Source {
                    position: Position {
                        line: self.line,
                        byte: byte as u64,
                    },
                    bytes: source,
                });
            }
        }
    }

    fn next_delimited<'a>(&mut self, body: &'a [u8], end: u8) -> Option<&'a [u8]> {
        let rest = body.get(self.at..)?;
        let size = rest.iter().position(|byte| *byte == end);
        let size = size.unwrap_or(rest.len());
        // Moves past the end of the body after the last item.
        self.at += size + 1;
        rest.get(..size)
    }

    fn next_value<'a>(&mut self, body: &'a [u8]) -> Option<&'a [u8]> {
        let rest = body.get(self.at..)?;
        // A bracket or a comma precedes each value.
        let mark = rest.iter().position(|byte| !byte.is_ascii_whitespace())?;
        let rest = rest.get(mark + 1..)?;
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<&RawValue>();
        let value = values.next()?.ok()?;
        self.at += mark + 1 + values.byte_offset();
        Some(value.get().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    fn all(framing: Framing, body: &str) -> Option<Vec<(u64, usize, &str)>> {
        let mut cursor = Cursor::new(framing, body.as_bytes()).ok()?;
        let next = || cursor.next(body.as_bytes());
        let text = |source: Source<'_>| {
            let Position { line, byte } = source.position;
            let from = usize::try_from(byte).unwrap();
            (line, from, &body[from..from + source.bytes.len()])
        };
        Some(std::iter::from_fn(next).map(text).collect())
    }

    #[test]
    fn items_have_their_number_and_offset() {
        assert_eq!(
            all(Framing::Lines, "1\n \n{\"a\":2} \n").unwrap(),
            [(1, 0, "1"), (3, 4, "{\"a\":2} ")]
        );
        assert_eq!(
            all(Framing::Sequence, "\x1e1\n\x1e2").unwrap(),
            [(2, 1, "1\n"), (3, 4, "2")]
        );
        assert_eq!(
            all(Framing::Events, " [ {\"a\":[1,2]} ,2,\"],\" , null ] \n").unwrap(),
            [
                (1, 3, "{\"a\":[1,2]}"),
                (2, 16, "2"),
                (3, 18, "\"],\""),
                (4, 25, "null")
            ]
        );
        assert_eq!(all(Framing::Events, "[]").unwrap(), []);
        assert_eq!(all(Framing::Lines, "").unwrap(), []);
    }

    #[test]
    fn a_batch_of_events_must_be_an_array() {
        for wrong in ["", "{}", "[1,]", "[1] 2", "[1", "1,2"] {
            assert!(all(Framing::Events, wrong).is_none(), "{wrong}");
        }
        assert!(Cursor::new(Framing::Events, b"[\"\xff\"]").is_err());
    }
}
