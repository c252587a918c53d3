//! A text for a buffer, with the character ranges that have a property. It is rendered here and
//! inserted once.

use emacs::{Env, IntoLisp, Result, Value};

/// Position of the number of characters in a span. A text has less than 2^28 characters, so a span
/// is a fixnum.
const SPAN_SHIFT: u32 = 32;

/// A text under construction.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) text: String,
    chars: usize,
    runs: Vec<Run>,
}

/// Characters with a face or a property.
#[derive(Debug)]
struct Run {
    start: usize,
    end: usize,
    kind: &'static str,
    /// The value of a property; `None`: `kind` is a face.
    data: Option<String>,
}

impl Page {
    /// Adds text.
    pub(crate) fn add(&mut self, text: &str) {
        self.text.push_str(text);
        self.chars += text.chars().count();
    }

    /// Adds text in which each byte is a character.
    pub(crate) fn add_ascii(&mut self, text: &str) {
        self.text.push_str(text);
        self.chars += text.len();
    }

    /// Adds a character.
    pub(crate) fn add_char(&mut self, c: char) {
        self.text.push(c);
        self.chars += 1;
    }

    /// Adds spaces.
    pub(crate) fn pad(&mut self, count: usize) {
        self.text.extend(std::iter::repeat_n(' ', count));
        self.chars += count;
    }

    /// Adds text with a face.
    pub(crate) fn face(&mut self, face: &'static str, text: &str) {
        let start = self.chars;
        self.add(text);
        self.mark_face(start, face);
    }

    /// Adds text with a property.
    pub(crate) fn run(&mut self, property: &'static str, data: &str, text: &str) {
        let start = self.chars;
        self.add(text);
        self.mark(start, property, data);
    }

    /// The position of the next text.
    pub(crate) fn position(&self) -> usize {
        self.chars
    }

    /// Gives everything after `start` a face.
    pub(crate) fn mark_face(&mut self, start: usize, face: &'static str) {
        self.mark_run(start, face, None);
    }

    /// Gives everything after `start` a property.
    pub(crate) fn mark(&mut self, start: usize, property: &'static str, data: &str) {
        self.mark_run(start, property, Some(data.to_owned()));
    }

    fn mark_run(&mut self, start: usize, kind: &'static str, data: Option<String>) {
        if start < self.chars {
            self.runs.push(Run {
                start,
                end: self.chars,
                kind,
                data,
            });
        }
    }

    /// `(TEXT . [SPAN KIND DATA ...])`: SPAN is the first character, counted from 0, plus the
    /// number of characters times 2^32. A face has no DATA. The fewer values, the better: their
    /// conversion takes most of the time.
    pub(crate) fn into_value(self, env: &Env) -> Result<Value<'_>> {
        let mut flat = Vec::with_capacity(3 * self.runs.len());
        // A page has hundreds of runs, but few kinds.
        let mut symbols: Vec<(&str, Value<'_>)> = Vec::new();
        for run in &self.runs {
            let span = run.start | ((run.end - run.start) << SPAN_SHIFT);
            flat.push(span.into_lisp(env)?);
            let known = symbols.iter().find(|(kind, _)| *kind == run.kind);
            let symbol = match known {
                Some(&(_, symbol)) => symbol,
                None => env.intern(run.kind)?,
            };
            if known.is_none() {
                symbols.push((run.kind, symbol));
            }
            flat.push(symbol);
            if let Some(data) = &run.data {
                flat.push(data.as_str().into_lisp(env)?);
            }
        }
        let runs = env.call("vector", flat.as_slice())?;
        env.cons(self.text, runs)
    }
}
