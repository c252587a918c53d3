//! JSONPath (RFC 9535) over the bytes of an item: queries that yield values, and filters that yield
//! true or false.
//!
//! Invariants:
//! - Each result is a span of the item.
//! - A value that is missing, has the wrong type or is not JSON gives no result.
//! - An evaluation fails only if it exceeds the limit of steps ([`STEPS_PER_BYTE`]), which depends
//!   only on expression and item.
//! - The depth of recursion is bounded by the expression, not by the data.
//! - No tree of the data is built.

mod ast;
mod compare;
mod evaluate;
mod parse;
mod regex;
mod unicode;

use crate::error::{OutOfSteps, PathError};
use crate::find::find_in_whole;
use crate::items::{Span, Value};
use crate::path::Path;
use crate::path_set::PathSet;
use crate::plan::PAGE_BYTES_LIMIT;
use crate::token::blanks;
use ast::{Logical, Segment};
use evaluate::Evaluation;
use std::borrow::Cow;
use std::fmt;
use std::ops::ControlFlow;

/// Limit on the steps of an evaluation, for each byte of the item and each walk of the expression.
/// A walk is a `..`, or a `$` inside of a filter selector; the rest of the expression counts as one
/// more. Each byte that is read costs one step; each value that is examined costs eight more.
pub const STEPS_PER_BYTE: u64 = 128;

/// Maximum of the number of walks plus one, by which [`STEPS_PER_BYTE`] is multiplied.
pub const WALKS_COUNTED_MAX: u32 = 8;

/// Limit on steps that applies to any small item: about ten milliseconds.
pub const STEPS_MIN: u64 = 4 << 20;

/// The limit on steps for an item of `bytes` bytes.
fn steps(walks: u32, bytes: usize) -> u64 {
    let walks = u64::from(walks.saturating_add(1).min(WALKS_COUNTED_MAX));
    let steps = (bytes as u64).saturating_mul(walks * STEPS_PER_BYTE);
    steps.max(STEPS_MIN)
}

/// Values that an expression refers to outside of the item: `param(name)` and `meta(name)`.
pub trait Bindings {
    /// The parameter `name`, one JSON scalar as text; `None` if it is not bound, so that
    /// `param(name)` yields nothing.
    fn param(&self, name: &str) -> Option<Cow<'_, [u8]>>;

    /// The property `name` of the record, one JSON scalar as text; `None` if there is no such
    /// property.
    fn meta(&self, name: &str) -> Option<Cow<'_, [u8]>>;

    /// Whether the caller still needs the result. A long evaluation calls this from time to time,
    /// and ends with [`OutOfSteps`] if it returns `false`.
    fn is_needed(&self) -> bool {
        true
    }
}

/// No parameter and no property is bound.
impl Bindings for () {
    fn param(&self, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }

    fn meta(&self, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }
}

/// A query: yields values of an item, in the order of RFC 9535.
#[derive(Clone, Debug)]
pub struct Query {
    segments: Vec<Segment>,
    paths: Paths,
    walks: u32,
}

impl Query {
    /// Parses `$…`.
    ///
    /// # Errors
    /// The offset of the first byte that violates the grammar or the type rules of RFC 9535.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let (segments, paths, walks) = parse::query(text)?;
        Ok(Self {
            segments,
            paths,
            walks,
        })
    }

    /// Visits the values in `item`, one JSON value with or without surrounding white space, until
    /// `visit` breaks.
    ///
    /// # Errors
    /// The evaluation exceeds [`STEPS_PER_BYTE`]; the caller must discard the visited values.
    pub fn visit(
        &self,
        item: &[u8],
        bindings: &dyn Bindings,
        mut visit: impl FnMut(Value) -> ControlFlow<()>,
    ) -> Result<(), OutOfSteps> {
        if item.len() as u64 > PAGE_BYTES_LIMIT {
            return Ok(());
        }
        let found = self.paths.find(item);
        let (start, steps) = (blanks(item, 0), steps(self.walks, item.len()));
        let evaluation = Evaluation::new(item, start, &found, bindings, steps);
        evaluation.query(&self.segments, &mut visit)
    }

    /// All values in `item`.
    ///
    /// # Errors
    /// The evaluation exceeds [`STEPS_PER_BYTE`].
    pub fn all(&self, item: &[u8], bindings: &dyn Bindings) -> Result<Vec<Value>, OutOfSteps> {
        let mut all = Vec::new();
        self.visit(item, bindings, |value| {
            all.push(value);
            ControlFlow::Continue(())
        })?;
        Ok(all)
    }
}

/// A logical expression of RFC 9535, true or false for an item. `@` and `$` both refer to the item;
/// inside of a filter selector, `@` refers to the tested value.
#[derive(Clone, Debug)]
pub struct Filter {
    expression: Logical,
    paths: Paths,
    params: Vec<Box<str>>,
    metas: Vec<Box<str>>,
    walks: u32,
    patterns: Vec<PatternText>,
}

/// The pattern of a `match` or `search`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternText {
    /// A literal in the expression.
    Fixed(Box<str>),
    /// The value of this parameter.
    Param(Box<str>),
}

/// Why a pattern matches nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternFault {
    /// It is not a regular expression of RFC 9485 (I-Regexp): the reason, with a valid alternative.
    Invalid(String),
    /// It exceeds a limit: the limit.
    TooLarge(String),
}

/// Explains why a pattern matches nothing; `None` if it is a regular expression of RFC 9485
/// (I-Regexp) within the limits.
#[must_use]
pub fn pattern_fault(text: &str) -> Option<PatternFault> {
    regex::Regex::fault(text)
}

impl Filter {
    /// Parses an expression, for example `@.status == 'open' && @.points >= 3`.
    ///
    /// Functions are those of the standard (`length`, `count`, `value`, `match`, `search`) and
    /// `param(name)`, `meta(name)`, `starts(a, b)`, `type(x)`, `undefined(x)`.
    ///
    /// # Errors
    /// The offset of the first byte that violates the grammar or the type rules.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let parsed = parse::filter(text)?;
        Ok(Self {
            expression: parsed.expression,
            paths: parsed.paths,
            params: parsed.params,
            metas: parsed.metas,
            walks: parsed.walks,
            patterns: parsed.patterns,
        })
    }

    /// The singular paths from the item in the expression. A scan can find their values for
    /// [`matches_found`](Self::matches_found).
    pub fn paths(&self) -> &[Path] {
        &self.paths.list
    }

    /// Names of the parameters that the expression uses, each once.
    pub fn params(&self) -> impl Iterator<Item = &str> {
        self.params.iter().map(AsRef::as_ref)
    }

    /// Names of the properties that the expression uses, each once.
    pub fn metas(&self) -> impl Iterator<Item = &str> {
        self.metas.iter().map(AsRef::as_ref)
    }

    /// The patterns of the expression that do not come from an item; see [`pattern_fault`].
    pub fn patterns(&self) -> &[PatternText] {
        &self.patterns
    }

    /// Whether the expression needs more than the values of [`paths`](Self::paths), so that an
    /// evaluation reads parts of the item.
    pub fn walks(&self) -> bool {
        self.expression.walks()
    }

    /// Whether the expression is true for `item`, one JSON value with or without surrounding white
    /// space.
    ///
    /// # Errors
    /// The evaluation exceeds [`STEPS_PER_BYTE`].
    pub fn matches(&self, item: &[u8], bindings: &dyn Bindings) -> Result<bool, OutOfSteps> {
        if item.len() as u64 > PAGE_BYTES_LIMIT {
            return Ok(false);
        }
        let found = self.paths.find(item);
        let (start, steps) = (blanks(item, 0), steps(self.walks, item.len()));
        Evaluation::new(item, start, &found, bindings, steps).test(&self.expression)
    }

    /// As [`matches`](Self::matches), for the item at `item` in `page`. `found` has the values of
    /// [`paths`](Self::paths) in the item, in order, with spans in `page`.
    ///
    /// # Errors
    /// The evaluation exceeds [`STEPS_PER_BYTE`].
    pub fn matches_found(
        &self,
        page: &[u8],
        item: Span,
        found: &[Value],
        bindings: &dyn Bindings,
    ) -> Result<bool, OutOfSteps> {
        let Some(page) = page.get(..item.end()) else {
            return Ok(false);
        };
        let start = blanks(page, item.offset as usize);
        let steps = steps(self.walks, item.len as usize);
        Evaluation::new(page, start, found, bindings, steps).test(&self.expression)
    }
}

/// Different singular paths from the item.
#[derive(Clone)]
struct Paths {
    list: Vec<Path>,
    set: PathSet,
}

impl Paths {
    fn find(&self, item: &[u8]) -> Vec<Value> {
        let mut found = Vec::new();
        // If the item is not JSON, all entries are undefined.
        let _ = find_in_whole(item, &self.set, &mut found);
        found
    }
}

impl fmt::Debug for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.list.iter().map(ToString::to_string))
            .finish()
    }
}
