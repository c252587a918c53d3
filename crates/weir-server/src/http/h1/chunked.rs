//! Chunked bodies, parsed strictly: lines end with CR LF, sizes consist of hexadecimal digits only,
//! extensions and trailers are skipped.

use bytes::{Buf, Bytes, BytesMut};

use crate::limits::{CHUNK_LINE_MAX, TRAILER_MAX};

/// Position of the parser in a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkState {
    #[default]
    Size,
    Data(u64),
    DataEnd,
    Trailer(usize),
    End,
}

/// Reads chunks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chunked {
    state: ChunkState,
}

/// Result of parsing the next input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Bytes of the body.
    Data(Bytes),
    /// More input is needed.
    Need,
    /// The body is complete.
    End,
}

/// The body is not a valid chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadChunk;

impl Chunked {
    /// Removes the next bytes from the input.
    pub(crate) fn step(&mut self, input: &mut BytesMut) -> Result<Step, BadChunk> {
        loop {
            match self.state {
                ChunkState::Size => {
                    let Some(line) = line(input, CHUNK_LINE_MAX)? else {
                        return Ok(Step::Need);
                    };
                    let size = size(&line)?;
                    self.state = if size == 0 {
                        ChunkState::Trailer(0)
                    } else {
                        ChunkState::Data(size)
                    };
                }
                ChunkState::Data(left) => {
                    if input.is_empty() {
                        return Ok(Step::Need);
                    }
                    let take = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    let left = left - take as u64;
                    self.state = if left == 0 {
                        ChunkState::DataEnd
                    } else {
                        ChunkState::Data(left)
                    };
                    return Ok(Step::Data(input.split_to(take).freeze()));
                }
                ChunkState::DataEnd => match input.get(..2) {
                    Some(b"\r\n") => {
                        input.advance(2);
                        self.state = ChunkState::Size;
                    }
                    Some(_) => return Err(BadChunk),
                    None if input.first().is_some_and(|byte| *byte != b'\r') => {
                        return Err(BadChunk);
                    }
                    None => return Ok(Step::Need),
                },
                ChunkState::Trailer(seen) => {
                    let Some(line) = line(input, TRAILER_MAX - seen)? else {
                        return Ok(Step::Need);
                    };
                    let seen = seen + line.len() + 2;
                    if line.is_empty() {
                        self.state = ChunkState::End;
                    } else if seen >= TRAILER_MAX
                        || !line.contains(&b':')
                        || line
                            .first()
                            .is_some_and(|byte| matches!(byte, b' ' | b'\t'))
                    {
                        return Err(BadChunk);
                    } else {
                        self.state = ChunkState::Trailer(seen);
                    }
                }
                ChunkState::End => return Ok(Step::End),
            }
        }
    }
}

/// Returns a line without its line end.
fn line(input: &mut BytesMut, max: usize) -> Result<Option<BytesMut>, BadChunk> {
    let window = input.get(..input.len().min(max)).unwrap_or_default();
    let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
        return if input.len() < max {
            Ok(None)
        } else {
            Err(BadChunk)
        };
    };
    let mut line = input.split_to(end + 1);
    line.truncate(end);
    if line.last() != Some(&b'\r')
        || line.iter().position(|byte| *byte == b'\r') != Some(end.saturating_sub(1))
    {
        return Err(BadChunk);
    }
    line.truncate(end - 1);
    Ok(Some(line))
}

fn size(line: &[u8]) -> Result<u64, BadChunk> {
    let digits = line
        .iter()
        .take_while(|byte| byte.is_ascii_hexdigit())
        .count();
    let (digits, rest) = line.split_at(digits);
    if digits.is_empty() || digits.len() > 15 || !(rest.is_empty() || rest.first() == Some(&b';')) {
        return Err(BadChunk);
    }
    let text = std::str::from_utf8(digits).map_err(|_| BadChunk)?;
    u64::from_str_radix(text, 16).map_err(|_| BadChunk)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    /// Returns the body, and how many bytes of input it used. `None`: the body is not complete.
    fn read(text: &[u8], piece: usize) -> Result<Option<(Vec<u8>, usize)>, BadChunk> {
        let (mut chunked, mut input, mut body) = (Chunked::default(), BytesMut::new(), Vec::new());
        let mut received = 0;
        for part in text.chunks(piece) {
            input.extend_from_slice(part);
            received += part.len();
            loop {
                match chunked.step(&mut input)? {
                    Step::Data(data) => body.extend_from_slice(&data),
                    Step::Need => break,
                    Step::End => return Ok(Some((body, received - input.len()))),
                }
            }
        }
        Ok(None)
    }

    #[test]
    fn pieces_of_any_size_give_equal_results() {
        let text = b"3\r\nabc\r\n00A;x=\"y\"\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nGET";
        for piece in 1..=text.len() {
            let (body, used) = read(text, piece).unwrap().unwrap();
            assert_eq!(body, b"abc0123456789");
            assert!(used >= text.len() - 3);
        }
        for cut in 0..text.len() - 3 {
            assert_eq!(read(&text[..cut], 7), Ok(None), "cut at {cut}");
        }
    }

    #[test]
    fn invalid_sizes_are_refused() {
        for text in [
            "x\r\n",
            "\r\n",
            "-1\r\n",
            "0x3\r\nabc\r\n",
            "3\nabc\r\n",
            "3\r\nabcd",
            "3 4\r\n",
            "1 \r\n",
            "1 ;x\r\n",
            "1000000000000000\r\n",
            "0\r\nx\r\n\r\n",
            "0\r\na: b\n\r\n",
            "3;\r\r\n",
        ] {
            for piece in 1..=text.len() {
                assert_eq!(
                    read(text.as_bytes(), piece),
                    Err(BadChunk),
                    "{text:?} in {piece}"
                );
            }
        }
        assert_eq!(
            read(&[b'1'; 2000], 100),
            Err(BadChunk),
            "a line without end"
        );
    }
}
