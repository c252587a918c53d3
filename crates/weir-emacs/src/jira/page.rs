//! A text for a buffer, with the character ranges that have a property. It is rendered here and
//! inserted once.

use emacs::{Env, IntoLisp, Result, Value};

/// Position of the number of characters in a span. A text has less than 2^28 characters, so a span is
/// a fixnum.
const SPAN_SHIFT: u32 = 32;

/// A text under construction.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) text: String,
    chars: usize,
    runs: Vec<Run>,
}

/// Characters with a property.
#[derive(Debug)]
struct Run {
    start: usize,
    end: usize,
    kind: &'static str,
    data: String,
}

impl Page {
    /// Adds text.
    pub(crate) fn add(&mut self, text: &str) {
        self.text.push_str(text);
        self.chars += text.chars().count();
    }

    /// Adds text as a run with a property.
    pub(crate) fn run(&mut self, kind: &'static str, data: &str, text: &str) {
        let start = self.chars;
        self.add(text);
        self.mark(start, kind, data);
    }

    /// The position of the next text.
    pub(crate) fn here(&self) -> usize {
        self.chars
    }

    /// Makes a run of everything after `start`.
    pub(crate) fn mark(&mut self, start: usize, kind: &'static str, data: &str) {
        if start < self.chars {
            self.runs.push(Run {
                start,
                end: self.chars,
                kind,
                data: data.to_owned(),
            });
        }
    }

    /// `(TEXT . [SPAN KIND DATA ...])`: SPAN is the first character, counted from 0, plus the number
    /// of characters times 2^32. One integer for both halves the number of conversions, which take
    /// most of the time.
    pub(crate) fn into_value(self, env: &Env) -> Result<Value<'_>> {
        let mut flat = Vec::with_capacity(3 * self.runs.len());
        // A page has hundreds of runs, but few kinds, and most runs have no data.
        let mut symbols: Vec<(&str, Value<'_>)> = Vec::new();
        let no_data = "".into_lisp(env)?;
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
            flat.push(match run.data.as_str() {
                "" => no_data,
                data => data.into_lisp(env)?,
            });
        }
        let runs = env.call("vector", flat.as_slice())?;
        env.cons(self.text, runs)
    }
}
