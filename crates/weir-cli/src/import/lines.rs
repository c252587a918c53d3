//! NDJSON: one value per line. Blank lines are skipped. A line ends with LF or CR LF. The rest of a
//! line beyond the limit is skipped.

use std::io::{self, BufRead};

use super::input_item::InputItem;

/// Reads lines.
pub(super) struct LineReader {
    input: Box<dyn BufRead>,
    bytes_max: usize,
    line: u64,
    bytes: u64,
}

impl LineReader {
    /// Starts reading.
    pub(super) fn new(input: Box<dyn BufRead>, bytes_max: usize) -> Self {
        Self {
            input,
            bytes_max,
            line: 0,
            bytes: 0,
        }
    }

    /// Number of bytes read.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads the next line that is not blank, without outer blanks.
    pub(super) fn next(&mut self, item: &mut Vec<u8>) -> io::Result<Option<InputItem>> {
        loop {
            item.clear();
            let (mut any, mut too_long) = (false, false);
            loop {
                let chunk = self.input.fill_buf()?;
                if chunk.is_empty() {
                    break;
                }
                any = true;
                let end = chunk.iter().position(|byte| *byte == b'\n');
                let part = chunk.get(..end.unwrap_or(chunk.len())).unwrap_or_default();
                too_long |= item.len() + part.len() > self.bytes_max;
                if !too_long {
                    item.extend_from_slice(part);
                }
                let used = end.map_or(chunk.len(), |end| end + 1);
                self.input.consume(used);
                self.bytes += used as u64;
                if end.is_some() {
                    break;
                }
            }
            if !any {
                return Ok(None);
            }
            self.line += 1;
            let start = item
                .iter()
                .take_while(|byte| byte.is_ascii_whitespace())
                .count();
            let end = item.trim_ascii_end().len();
            if too_long {
                let problem = Some(format!("the line has more than {} bytes", self.bytes_max));
                return Ok(Some(InputItem {
                    line: self.line,
                    column: 1,
                    problem,
                }));
            }
            if start < end {
                item.truncate(end);
                item.drain(..start);
                return Ok(Some(InputItem {
                    line: self.line,
                    column: start as u64 + 1,
                    problem: None,
                }));
            }
        }
    }
}
