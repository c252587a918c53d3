//! Any bytes as a stream of packets, whole and in pieces. The parser never panics, always
//! progresses, and gives the same result for both. The first two bytes choose the mode and the size
//! of the pieces.

use weir_psyc::{ErrorCode, Mode, ParseStep, Parser};

/// Offset of the end, whether the end is between two packets, and the error.
fn parse(mode: Mode, bytes: &[u8], piece: usize) -> (u64, bool, Option<ErrorCode>) {
    let mut parser = Parser::new(mode);
    let mut given = 0;
    let mut steps = 0;
    loop {
        steps += 1;
        assert!(steps <= 8 * bytes.len() + 8, "a parser that stands still");
        match parser.step(&bytes[..given]) {
            ParseStep::Error(error) => return (parser.offset(), false, Some(error.code)),
            ParseStep::NeedMore(_) if given == bytes.len() => {
                return (parser.offset(), parser.is_clean(), None);
            }
            ParseStep::NeedMore(_) => given = bytes.len().min(given + piece),
            _ => {}
        }
    }
}

/// The fuzz target.
pub fn run(input: &[u8]) {
    let [mode, piece, bytes @ ..] = input else {
        return;
    };
    let mode = match mode % 3 {
        0 => Mode::Full,
        1 => Mode::RoutingOnly,
        _ => Mode::Content {
            length: bytes.len() as u64,
        },
    };
    let whole = parse(mode, bytes, bytes.len().max(1));
    let pieces = parse(mode, bytes, usize::from(*piece).max(1));
    assert_eq!((whole.1, whole.2), (pieces.1, pieces.2));
}
