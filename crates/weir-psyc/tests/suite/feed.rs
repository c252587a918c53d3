//! Feeds a parser in pieces and joins its events.

use weir_psyc::{EventPrinter, Limits, Mode, ParseStep, Parser, Variable};

/// An event with its parts joined and its bytes owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joined {
    Routing(u8, Vec<u8>, Vec<u8>),
    Reset,
    Resync,
    Entity(u8, Vec<u8>, Vec<u8>, bool),
    Body(Vec<u8>, Vec<u8>, bool),
    Content(Vec<u8>, bool),
    Complete,
}

/// The result of parsing an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub events: Vec<Joined>,
    /// Number and position of the error.
    pub error: Option<(i8, u64)>,
    /// Whether the input ended after a packet.
    pub clean: bool,
}

/// Feeds the pieces like a reader: retains bytes that are not consumed, appends, steps again. Also
/// checks the rules about parts.
pub fn feed<'a>(mode: Mode, limits: Limits, pieces: impl Iterator<Item = &'a [u8]>) -> Outcome {
    let mut parser = Parser::with_limits(mode, limits);
    let mut outcome = Outcome {
        events: Vec::new(),
        error: None,
        clean: false,
    };
    let mut joining: Option<(Joined, u64)> = None;
    let mut buffer = Vec::new();
    let mut fed = 0;
    // The last piece is empty: a read of zero bytes must change nothing.
    for piece in pieces.chain(std::iter::once(&b""[..])) {
        buffer.extend_from_slice(piece);
        fed += piece.len() as u64;
        loop {
            let before = parser.consumed();
            let step = parser.step(&buffer);
            assert!(parser.consumed() >= before && parser.consumed() <= buffer.len());
            match step {
                ParseStep::NeedMore(_) => break,
                ParseStep::Error(error) => {
                    assert!(error.offset < fed, "{error:?} after {fed} bytes");
                    assert_eq!(
                        parser.step(&buffer),
                        ParseStep::Error(error),
                        "not poisoned"
                    );
                    outcome.error = Some((error.code.number(), error.offset));
                    return outcome;
                }
                step => join(step, &mut joining, &mut outcome.events),
            }
        }
        let consumed = parser.release();
        buffer.drain(..consumed);
    }
    outcome.clean = parser.is_clean();
    outcome
}

fn join(step: ParseStep<'_>, joining: &mut Option<(Joined, u64)>, events: &mut Vec<Joined>) {
    let start = |event: Joined, total: u64, part: &[u8]| {
        assert!((part.len() as u64) < total, "a whole value came as a start");
        Some((event, total))
    };
    match step {
        ParseStep::Routing(Variable {
            operator,
            name,
            value,
            sized,
        }) => {
            assert!(!sized);
            events.push(Joined::Routing(
                operator.byte(),
                name.to_vec(),
                value.to_vec(),
            ));
        }
        ParseStep::StateReset => events.push(Joined::Reset),
        ParseStep::StateResync => events.push(Joined::Resync),
        ParseStep::Entity(Variable {
            operator,
            name,
            value,
            sized,
        }) => {
            events.push(Joined::Entity(
                operator.byte(),
                name.to_vec(),
                value.to_vec(),
                sized,
            ));
        }
        ParseStep::Body {
            method,
            data,
            sized,
        } => {
            events.push(Joined::Body(method.to_vec(), data.to_vec(), sized));
        }
        ParseStep::Content { data, sized } => events.push(Joined::Content(data.to_vec(), sized)),
        ParseStep::Complete => events.push(Joined::Complete),
        ParseStep::EntityStart {
            operator,
            name,
            total,
            part,
        } => {
            assert!(joining.is_none());
            let event = Joined::Entity(operator.byte(), name.to_vec(), part.to_vec(), true);
            *joining = start(event, total, part);
        }
        ParseStep::BodyStart {
            method,
            total,
            part,
        } => {
            assert!(joining.is_none());
            *joining = start(
                Joined::Body(method.to_vec(), part.to_vec(), true),
                total,
                part,
            );
        }
        ParseStep::ContentStart { total, part } => {
            assert!(joining.is_none());
            *joining = start(Joined::Content(part.to_vec(), true), total, part);
        }
        ParseStep::EntityCont(part)
        | ParseStep::EntityEnd(part)
        | ParseStep::BodyCont(part)
        | ParseStep::BodyEnd(part)
        | ParseStep::ContentCont(part)
        | ParseStep::ContentEnd(part) => {
            assert!(!part.is_empty(), "an empty part");
            let (event, total) = joining.as_mut().expect("a part without a start");
            let (Joined::Entity(_, _, value, _)
            | Joined::Body(_, value, _)
            | Joined::Content(value, _)) = event
            else {
                unreachable!("only sized things are joined")
            };
            value.extend_from_slice(part);
            let whole = value.len() as u64 == *total;
            let end = matches!(
                step,
                ParseStep::EntityEnd(_) | ParseStep::BodyEnd(_) | ParseStep::ContentEnd(_)
            );
            assert_eq!(
                whole, end,
                "the end comes with the last byte and not before"
            );
            if end {
                events.extend(joining.take().map(|(event, _)| event));
            }
        }
        ParseStep::NeedMore(_) | ParseStep::Error(_) => unreachable!("handled by the caller"),
    }
}

/// The whole output of the printer for the pieces, including its last line.
pub fn printed<'a>(mode: Mode, raw: bool, pieces: impl Iterator<Item = &'a [u8]>) -> String {
    let mut parser = Parser::new(mode);
    let mut printer = if raw {
        EventPrinter::raw()
    } else {
        EventPrinter::joined()
    };
    let mut text = String::new();
    let mut buffer = Vec::new();
    for piece in pieces.chain(std::iter::once(&b""[..])) {
        buffer.extend_from_slice(piece);
        loop {
            let step = parser.step(&buffer);
            printer.print(&step, &mut text).unwrap();
            match step {
                ParseStep::NeedMore(_) => break,
                ParseStep::Error(_) => return text,
                _ => {}
            }
        }
        let consumed = parser.release();
        buffer.drain(..consumed);
    }
    text.push_str(if parser.is_clean() {
        "eof\tclean\n"
    } else {
        "eof\tpartial\n"
    });
    text
}
