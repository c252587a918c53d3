//! The event printer: one event a line, fields separated by TAB, bytes escaped.
//!
//! The test vectors and the command line tool use this format; docs/formats/psyc.md specifies it.

use alloc::vec::Vec;
use core::fmt::{self, Write};

use crate::error::ParseError;
use crate::event::{ParseStep, Variable};
use crate::operator::Operator;

mod containers;

pub use containers::{ListPrinter, print_dict, print_index, print_update};

/// Displays bytes outside 0x20 to 0x7e, and the backslash, as `\xhh`.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.0 {
            if (0x20..=0x7e).contains(&byte) && byte != b'\\' {
                f.write_char(char::from(byte))?;
            } else {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Reads the escapes `\n`, `\t`, `\\` and `\xHH` back into bytes. `None` if another escape
/// occurs.
pub fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next()? {
            b'n' => b'\n',
            b't' => b'\t',
            b'\\' => b'\\',
            b'x' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high * 16 + low).ok()?
            }
            _ => return None,
        });
    }
    Some(bytes)
}

/// Prints the steps of a [`Parser`](crate::Parser).
///
/// The joined form collects the parts of a value and prints the value once, as if it were whole.
/// The raw form prints each part as it arrives and stores nothing.
#[derive(Debug, Default)]
pub struct EventPrinter {
    raw: bool,
    head: Vec<u8>,
    operator: Option<Operator>,
    value: Vec<u8>,
}

impl EventPrinter {
    /// A printer of the joined form. Stores the parts of one value at a time.
    pub fn joined() -> EventPrinter {
        EventPrinter::default()
    }

    /// A printer of the raw form.
    pub fn raw() -> EventPrinter {
        EventPrinter {
            raw: true,
            ..EventPrinter::default()
        }
    }

    /// Prints `step`. Prints nothing for `NeedMore`, or for parts in the joined form.
    pub fn print(&mut self, step: &ParseStep<'_>, out: &mut dyn Write) -> fmt::Result {
        match *step {
            ParseStep::Routing(Variable {
                operator,
                name,
                value,
                ..
            }) => {
                writeln!(
                    out,
                    "routing\t{operator}\t{}\t{}",
                    Escaped(name),
                    Escaped(value)
                )
            }
            ParseStep::StateReset => writeln!(out, "state-reset"),
            ParseStep::StateResync => writeln!(out, "state-resync"),
            ParseStep::Entity(Variable {
                operator,
                name,
                value,
                sized,
            }) => print_entity(operator, name, value, sized, out),
            ParseStep::Body {
                method,
                data,
                sized,
            } => print_body(method, data, sized, out),
            ParseStep::Content { data, sized } => print_content(data, sized, out),
            ParseStep::Complete => writeln!(out, "complete"),
            ParseStep::NeedMore(_) => Ok(()),
            ParseStep::Error(ParseError { code, .. }) => {
                writeln!(out, "error\t{}\t{}", code.number(), code.name())
            }
            _ if self.raw => print_part(step, out),
            _ => self.join(step, out),
        }
    }

    fn start(&mut self, operator: Option<Operator>, head: &[u8], part: &[u8]) {
        self.operator = operator;
        self.head.clear();
        self.head.extend_from_slice(head);
        self.value.clear();
        self.value.extend_from_slice(part);
    }

    fn join(&mut self, step: &ParseStep<'_>, out: &mut dyn Write) -> fmt::Result {
        match *step {
            ParseStep::EntityStart {
                operator,
                name,
                part,
                ..
            } => {
                self.start(Some(operator), name, part);
            }
            ParseStep::BodyStart { method, part, .. } => self.start(None, method, part),
            ParseStep::ContentStart { part, .. } => self.start(None, b"", part),
            ParseStep::EntityEnd(part) => {
                self.value.extend_from_slice(part);
                let operator = self.operator.unwrap_or(Operator::Set);
                return print_entity(operator, &self.head, &self.value, true, out);
            }
            ParseStep::BodyEnd(part) => {
                self.value.extend_from_slice(part);
                return print_body(&self.head, &self.value, true, out);
            }
            ParseStep::ContentEnd(part) => {
                self.value.extend_from_slice(part);
                return print_content(&self.value, true, out);
            }
            ParseStep::EntityCont(part)
            | ParseStep::BodyCont(part)
            | ParseStep::ContentCont(part) => {
                self.value.extend_from_slice(part);
            }
            _ => {}
        }
        Ok(())
    }
}

fn mark(sized: bool) -> &'static str {
    if sized { "len" } else { "-" }
}

fn print_entity(
    operator: Operator,
    name: &[u8],
    value: &[u8],
    sized: bool,
    out: &mut dyn Write,
) -> fmt::Result {
    let (name, value) = (Escaped(name), Escaped(value));
    writeln!(out, "entity\t{operator}\t{name}\t{}\t{value}", mark(sized))
}

fn print_body(method: &[u8], data: &[u8], sized: bool, out: &mut dyn Write) -> fmt::Result {
    writeln!(
        out,
        "body\t{}\t{}\t{}",
        Escaped(method),
        mark(sized),
        Escaped(data)
    )
}

fn print_content(data: &[u8], sized: bool, out: &mut dyn Write) -> fmt::Result {
    writeln!(out, "content\t{}\t{}", mark(sized), Escaped(data))
}

fn print_part(step: &ParseStep<'_>, out: &mut dyn Write) -> fmt::Result {
    match *step {
        ParseStep::EntityStart {
            operator,
            name,
            total,
            part,
        } => {
            let (name, part) = (Escaped(name), Escaped(part));
            writeln!(out, "entity-start\t{operator}\t{name}\t{total}\t{part}")
        }
        ParseStep::BodyStart {
            method,
            total,
            part,
        } => {
            writeln!(
                out,
                "body-start\t{}\t{total}\t{}",
                Escaped(method),
                Escaped(part)
            )
        }
        ParseStep::ContentStart { total, part } => {
            writeln!(out, "content-start\t{total}\t{}", Escaped(part))
        }
        ParseStep::EntityCont(part) => writeln!(out, "entity-cont\t{}", Escaped(part)),
        ParseStep::EntityEnd(part) => writeln!(out, "entity-end\t{}", Escaped(part)),
        ParseStep::BodyCont(part) => writeln!(out, "body-cont\t{}", Escaped(part)),
        ParseStep::BodyEnd(part) => writeln!(out, "body-end\t{}", Escaped(part)),
        ParseStep::ContentCont(part) => writeln!(out, "content-cont\t{}", Escaped(part)),
        ParseStep::ContentEnd(part) => writeln!(out, "content-end\t{}", Escaped(part)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn escaping_round_trips() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        let text = Escaped(&all).to_string();
        assert!(text.contains("\\x0a") && text.contains("\\x5c") && text.contains(" !\""));
        assert_eq!(unescape(text.as_bytes()).unwrap(), all);
        assert_eq!(unescape(b"a\\tb\\n\\x7C").unwrap(), b"a\tb\n|");
        for bad in ["\\", "\\q", "\\x1", "\\xg0"] {
            assert_eq!(unescape(bad.as_bytes()), None);
        }
    }
}
