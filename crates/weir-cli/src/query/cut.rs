//! Finds positions where a page can be cut: in a long array after a comma between two elements, and
//! in a sequence of values after a value.
//!
//! This module counts brackets and recognises strings; the engine checks everything else.
//! Invariant: the pieces of invalid JSON are not all valid JSON.

/// Recognises strings, byte by byte.
#[derive(Debug, Default)]
struct StringState {
    open: bool,
    escaped: bool,
}

impl StringState {
    /// Processes a byte of an open string.
    fn read(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = true,
            b'"' => self.open = false,
            _ => {}
        }
    }
}

/// Splits an array into pieces.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    at: usize,
    depth: u32,
    string: StringState,
    /// Whether the array has ended, or has not started.
    over: bool,
    /// Whether an element has begun since the start of the array or the last comma.
    has_element: bool,
    /// The last comma after an element.
    comma: Option<usize>,
}

impl Cutter {
    /// Reads the new bytes of `page`. Returns the last comma after an element. Without an element,
    /// the piece before the comma would be an empty array, which is valid.
    pub(super) fn scan(&mut self, page: &[u8]) -> Option<usize> {
        for (at, byte) in page.iter().enumerate().skip(self.at) {
            if self.over {
                break;
            }
            if self.string.open {
                self.string.read(*byte);
                continue;
            }
            match byte {
                b'[' if self.depth == 0 => {
                    self.depth = 1;
                    continue;
                }
                b',' if self.depth == 1 => {
                    if self.has_element {
                        self.comma = Some(at);
                    }
                    self.has_element = false;
                    continue;
                }
                b' ' | b'\t' | b'\n' | b'\r' => continue,
                _ if self.depth == 0 => self.over = true,
                b'"' => self.string.open = true,
                b'[' | b'{' => self.depth += 1,
                b']' | b'}' if self.depth > 1 => self.depth -= 1,
                b']' | b'}' => self.over = true,
                _ => {}
            }
            self.has_element = true;
        }
        self.at = page.len();
        self.comma
    }
}

/// Splits a sequence of values into pieces.
#[derive(Debug, Default)]
pub(super) struct ValueCutter {
    at: usize,
    depth: u32,
    string: StringState,
    /// The last byte of a value, or white space after one.
    end: Option<usize>,
}

impl ValueCutter {
    /// Reads the new bytes of `page`. Returns the last byte at which no value is open.
    pub(super) fn scan(&mut self, page: &[u8]) -> Option<usize> {
        for (at, byte) in page.iter().enumerate().skip(self.at) {
            if self.string.open {
                self.string.read(*byte);
            } else {
                match byte {
                    b'"' => self.string.open = true,
                    b'[' | b'{' => self.depth += 1,
                    b']' | b'}' => self.depth = self.depth.saturating_sub(1),
                    b' ' | b'\t' | b'\n' | b'\r' => {}
                    // The next byte shows the end of a number or a word.
                    _ => continue,
                }
            }
            if self.depth == 0 && !self.string.open {
                self.end = Some(at);
            }
        }
        self.at = page.len();
        self.end
    }
}

/// Checks the last page of an array that was cut after a comma. The page starts with an added
/// bracket; if no element follows the comma, the page becomes invalid JSON at the closing bracket.
pub(super) fn last(page: &mut Vec<u8>) {
    let mut inside = page.iter().enumerate().skip(1);
    let first = inside.find(|(_, byte)| !byte.is_ascii_whitespace());
    if let Some((at, b']')) = first {
        // The comma was not between two elements.
        page.insert(at, b',');
    }
}

#[cfg(test)]
mod tests {
    use super::{Cutter, ValueCutter, last};

    fn comma(text: &str) -> Option<usize> {
        let mut cutter = Cutter::default();
        // Byte by byte, so that reading stops once at every position.
        (1..=text.len())
            .map(|end| cutter.scan(text.as_bytes().get(..end).unwrap_or_default()))
            .next_back()
            .flatten()
    }

    #[test]
    fn commas_in_elements_do_not_cut() {
        assert_eq!(comma("[1,2"), Some(2));
        assert_eq!(comma(" [[1,2],{\"a,\":\"],\\\",\",\"b\":3}"), Some(7));
        assert_eq!(comma("[\"a\\\\\",\",\""), Some(6));
        assert_eq!(comma("[[1,2]"), None);
        assert_eq!(comma("[1],2,3"), None);
        assert_eq!(comma("{\"a\":[1,2]"), None);
        assert_eq!(comma("1,2"), None);
        assert_eq!(comma("[{\"a\":1},[2],{"), Some(12));
        // A comma without an element before it is not the end of a piece.
        assert_eq!(comma("[ ,"), None);
        assert_eq!(comma("[1, ,"), Some(2));
        assert_eq!(comma("[1,,2,"), Some(5));
        assert_eq!(comma("[,\"\","), Some(4));
    }

    #[test]
    fn values_are_cut_only_between_values() {
        let end = |text: &str| {
            let mut cutter = ValueCutter::default();
            (1..=text.len())
                .map(|end| cutter.scan(text.as_bytes().get(..end).unwrap_or_default()))
                .next_back()
                .flatten()
        };
        assert_eq!(end("{\"a\":\"}\"}{\"b"), Some(8));
        assert_eq!(end("12 3"), Some(2));
        assert_eq!(end("12"), None);
        assert_eq!(end("\"a\\\"\"\"b"), Some(4));
        assert_eq!(end("[1]\n[2,"), Some(3));
        assert_eq!(end("]true"), Some(0));
    }

    #[test]
    fn a_comma_before_the_end_remains_an_error() {
        let check = |text: &str, expect: &str| {
            let mut page = text.as_bytes().to_vec();
            last(&mut page);
            assert_eq!(page, expect.as_bytes());
        };
        check("[ ]\n", "[ ,]\n");
        check("[ 1]", "[ 1]");
        check("[", "[");
    }
}
