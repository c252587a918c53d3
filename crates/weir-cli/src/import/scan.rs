//! Reads the elements of a JSON array one at a time, without the whole document in memory.
//!
//! The scanner follows brackets and strings only; the caller checks that an element is JSON.
//!
//! Invariants: no recursion; a truncated document is an error.

use std::io::{self, BufRead};

use super::input_item::{InputItem, Problem};
use super::key_path::Step;

/// Reads an array.
pub(super) struct Array {
    input: Box<dyn BufRead>,
    bytes_max: usize,
    line: u64,
    column: u64,
    bytes: u64,
    state: State,
    /// Opening brackets without their closing bracket: those around the array, and its own.
    open_brackets: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// At the start of the document.
    Start,
    /// After the opening bracket of the array.
    First,
    /// After an element.
    After,
    /// After the end of the document.
    Done,
}

impl Array {
    /// Starts reading.
    pub(super) fn new(input: Box<dyn BufRead>, bytes_max: usize) -> Self {
        Self {
            input,
            bytes_max,
            line: 1,
            column: 1,
            bytes: 0,
            state: State::Start,
            open_brackets: Vec::new(),
        }
    }

    /// Returns the number of bytes read.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn problem<T>(&self, why: impl Into<String>) -> Result<T, Problem> {
        Err(Problem::Wrong {
            line: self.line,
            column: self.column,
            why: why.into(),
        })
    }

    /// Reads the next element, byte for byte.
    pub(super) fn next(
        &mut self,
        path: &[Step],
        item: &mut Vec<u8>,
    ) -> Result<Option<InputItem>, Problem> {
        item.clear();
        if self.state == State::Start {
            self.enter(path)?;
            if self.state == State::After {
                // A document that is not an array is one element.
                return self.element(item).map(Some);
            }
        }
        match (self.state, self.peek()?) {
            (State::Done, _) => return Ok(None),
            (_, Some(b']')) if !self.open_brackets.is_empty() => {
                self.consume();
                self.leave()?;
                return Ok(None);
            }
            (State::First, _) => {}
            (_, Some(b',')) if !self.open_brackets.is_empty() => {
                self.consume();
                self.peek()?;
            }
            (_, None) if self.open_brackets.is_empty() => {
                self.state = State::Done;
                return Ok(None);
            }
            (_, None) => return self.problem("the document ends within the array"),
            (_, Some(_)) if self.open_brackets.is_empty() => {
                return self
                    .problem("text follows the end of the document; for one value per line, use --format jsonl");
            }
            (_, Some(_)) => return self.problem("expected a comma or the end of the array"),
        }
        self.state = State::After;
        self.element(item).map(Some)
    }

    fn element(&mut self, item: &mut Vec<u8>) -> Result<InputItem, Problem> {
        let (line, column) = (self.line, self.column);
        self.value(Some(item))?;
        let over = item.len() > self.bytes_max;
        let problem = over.then(|| format!("the element has more than {} bytes", self.bytes_max));
        if item.is_empty() {
            return self.problem("expected a value");
        }
        Ok(InputItem {
            line,
            column,
            problem,
        })
    }

    /// Skips to the array at the path, and past its opening bracket.
    fn enter(&mut self, path: &[Step]) -> Result<(), Problem> {
        for step in path {
            match step {
                Step::Name(name) => self.enter_member(name)?,
                Step::Index(index) => self.enter_element(*index)?,
            }
        }
        match self.peek()? {
            Some(b'[') => {
                self.consume();
                self.open_brackets.push(b'[');
                self.state = State::First;
                Ok(())
            }
            None => self.problem("the input is empty"),
            Some(_) if path.is_empty() => {
                self.state = State::After;
                Ok(())
            }
            Some(_) => self.problem("there is no array at the path"),
        }
    }

    fn enter_member(&mut self, wanted: &str) -> Result<(), Problem> {
        if self.peek()? != Some(b'{') {
            return self.problem(format!("expected an object with the member {wanted}"));
        }
        self.consume();
        self.open_brackets.push(b'{');
        loop {
            match self.peek()? {
                Some(b'"') => {}
                Some(b'}') => return self.problem(format!("the object has no member {wanted}")),
                _ => return self.problem("expected the name of a member"),
            }
            let mut name = Vec::new();
            self.value(Some(&mut name))?;
            let is_wanted =
                serde_json::from_slice::<String>(&name).is_ok_and(|name| name == wanted);
            self.expect(b':')?;
            self.peek()?;
            if is_wanted {
                return Ok(());
            }
            self.value(None)?;
            if self.peek()? == Some(b',') {
                self.consume();
            }
        }
    }

    fn enter_element(&mut self, wanted: usize) -> Result<(), Problem> {
        self.expect(b'[')?;
        self.open_brackets.push(b'[');
        for _ in 0..wanted {
            self.peek()?;
            self.value(None)?;
            self.expect(b',')?;
        }
        self.peek()?;
        Ok(())
    }

    fn expect(&mut self, byte: u8) -> Result<(), Problem> {
        if self.peek()? != Some(byte) {
            return self.problem(format!("expected a {}", char::from(byte)));
        }
        self.consume();
        Ok(())
    }

    /// Reads the rest of the document after the array.
    fn leave(&mut self) -> Result<(), Problem> {
        self.open_brackets.pop();
        while let Some(open) = self.open_brackets.pop() {
            let close = if open == b'{' { b'}' } else { b']' };
            loop {
                match self.peek()? {
                    Some(byte) if byte == close => break self.consume(),
                    Some(b',' | b':') => self.consume(),
                    Some(b'}' | b']') => {
                        return self.problem("a closing bracket has no matching opening bracket");
                    }
                    Some(_) => self.value(None)?,
                    None => return self.problem("the document ends too early"),
                }
            }
        }
        self.state = State::Done;
        match self.peek()? {
            None => Ok(()),
            Some(_) => self.problem(
                "text follows the end of the array; for one array per line, use --format jsonl",
            ),
        }
    }

    /// Returns the next byte that is not white space, without consuming it.
    fn peek(&mut self) -> io::Result<Option<u8>> {
        loop {
            let chunk = self.input.fill_buf()?;
            let Some(byte) = chunk.first().copied() else {
                return Ok(None);
            };
            if !matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                return Ok(Some(byte));
            }
            self.consume_byte(byte);
        }
    }

    /// Consumes the byte that `peek` returned; it is not a line end.
    fn consume(&mut self) {
        self.consume_byte(b' ');
    }

    fn consume_byte(&mut self, byte: u8) {
        self.input.consume(1);
        self.bytes += 1;
        self.column += 1;
        if byte == b'\n' {
            self.line += 1;
            self.column = 1;
        }
    }

    /// Reads one value, delimited by its brackets and quotes.
    fn value(&mut self, mut into: Option<&mut Vec<u8>>) -> Result<(), Problem> {
        let mut depth = 0_usize;
        let (mut text, mut escaped, mut any) = (false, false, false);
        loop {
            let chunk = self.input.fill_buf()?;
            if chunk.is_empty() {
                // The end of the document may end a number or a word.
                if depth == 0 && !text && any && self.open_brackets.is_empty() {
                    return Ok(());
                }
                return self.problem("the document ends within a value");
            }
            let mut end = None;
            for (at, byte) in chunk.iter().enumerate() {
                if text {
                    match byte {
                        _ if escaped => escaped = false,
                        b'\\' => escaped = true,
                        b'"' => {
                            text = false;
                            end = (depth == 0).then_some(at + 1);
                        }
                        _ => {}
                    }
                } else {
                    match byte {
                        b'"' | b'{' | b'[' if depth == 0 && any => end = Some(at),
                        _ if depth == 0 && b"}],: \t\r\n".contains(byte) => end = Some(at),
                        b'"' => text = true,
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => {
                            depth -= 1;
                            end = (depth == 0).then_some(at + 1);
                        }
                        _ => {}
                    }
                }
                any = true;
                if end.is_some() {
                    break;
                }
            }
            let used = end.unwrap_or(chunk.len());
            let part = chunk.get(..used).unwrap_or_default();
            if let Some(into) = &mut into {
                let space = (self.bytes_max + 1).saturating_sub(into.len());
                into.extend_from_slice(part.get(..space).unwrap_or(part));
            }
            match part.iter().rposition(|byte| *byte == b'\n') {
                None => self.column += used as u64,
                Some(at) => {
                    self.column = (used - at) as u64;
                    self.line += part.split(|byte| *byte == b'\n').count() as u64 - 1;
                }
            }
            self.input.consume(used);
            self.bytes += used as u64;
            if end.is_some() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use super::super::key_path::KeyPath;
    use super::*;

    /// Reads the document in pieces of every size, and asserts equal results.
    fn read(path: &str, text: &str) -> Result<Vec<(String, u64, u64)>, String> {
        let steps = path.parse::<KeyPath>().unwrap();
        let mut results = (1..=text.len().max(1)).map(|piece| {
            let input = io::BufReader::with_capacity(piece, io::Cursor::new(text.to_owned()));
            let mut array = Array::new(Box::new(input), 40);
            let mut found = Vec::new();
            let mut item = Vec::new();
            loop {
                match array.next(steps.steps(), &mut item) {
                    Ok(Some(at)) => {
                        let shown = at
                            .problem
                            .unwrap_or(String::from_utf8(item.clone()).unwrap());
                        found.push((shown, at.line, at.column));
                    }
                    Ok(None) => {
                        assert_eq!(array.bytes(), text.len() as u64);
                        return Ok(found);
                    }
                    Err(Problem::Wrong { line, column, why }) => {
                        return Err(format!("{line}:{column} {why}"));
                    }
                    Err(Problem::Io(error)) => panic!("{error}"),
                }
            }
        });
        let first = results.next().unwrap();
        assert!(results.all(|result| result == first), "{text}");
        first
    }

    fn items(path: &str, text: &str) -> Vec<String> {
        read(path, text)
            .unwrap()
            .into_iter()
            .map(|(item, ..)| item)
            .collect()
    }

    #[test]
    fn elements_are_returned_byte_for_byte_with_their_positions() {
        let text = "[ {\"a\": [1, \"]}\"]},\n  \"x\\\"y\", -1.5e3 ,null\n,\n[\n]]\n";
        let expect = [
            ("{\"a\": [1, \"]}\"]}", 1, 3),
            ("\"x\\\"y\"", 2, 3),
            ("-1.5e3", 2, 11),
            ("null", 2, 19),
            ("[\n]", 4, 1),
        ];
        let expect: Vec<_> = expect.map(|(text, l, c)| (text.to_owned(), l, c)).into();
        assert_eq!(read("$", text), Ok(expect));
        assert_eq!(items("$", "[]"), Vec::<String>::new());
        assert_eq!(items("$", " 42 "), ["42"]);
        assert_eq!(items("$", "{\"a\":1}"), ["{\"a\":1}"]);
    }

    #[test]
    fn arrays_inside_are_found_by_path() {
        let text = r#"{"skip":{"list":[0]},"n":1,"list":[1,[2]],"after":[3]} "#;
        assert_eq!(items("$.list", text), ["1", "[2]"]);
        assert_eq!(items("$.skip.list", text), ["0"]);
        assert_eq!(items("$[1].a", r#"[{"a":[0]},{"a":[5,6]},[]]"#), ["5", "6"]);
        assert_eq!(items("$['l\u{e9}']", "{\"l\\u00e9\":[7]}"), ["7"]);
    }

    #[test]
    fn an_error_in_a_document_has_a_position() {
        let check = |path: &str, text: &str, expect: &str| {
            let error = read(path, text).unwrap_err();
            assert!(error.starts_with(expect), "{text}: {error}");
        };
        check("$", "[1,2", "1:5 the document ends");
        check("$", "[1,\n\"ab", "2:4 the document ends");
        check("$", "[1 2]", "1:4 expected a comma");
        check("$", "[1,]", "1:4 expected a value");
        check("$", "[1],[2]", "1:4 text follows");
        check("$", "[1]\n[2]", "2:1 text follows");
        check("$", "", "1:1 the input is empty");
        check("$.a", "{\"b\":1}", "1:7 the object has no member a");
        check("$.a", "{\"a\":1}", "1:6 there is no array");
        check("$.a", "{\"a\":[1]", "1:9 the document ends");
        check("$.a", "[]", "1:1 expected an object");
    }

    #[test]
    fn an_element_over_the_limit_is_reported_and_the_next_is_read() {
        let long = format!("[\"{}\",2]", "x".repeat(50));
        assert_eq!(
            items("$", &long),
            ["the element has more than 40 bytes", "2"]
        );
    }
}
