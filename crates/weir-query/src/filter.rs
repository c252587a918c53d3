//! The filter of a query: a logical expression of RFC 9535, compiled once.
//!
//! The singular paths of the filter are the first columns of the plan, which the scan of a
//! page finds. Other values are walked in place. An expression is true or false for any
//! data, unless evaluating it takes more steps than the size of the item allows
//! (docs/decisions/0051).

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_scan::{Bindings, Items, OutOfSteps, Path, PatternFault, PatternText, Span, Value};

use crate::buffer::Buffer;
use crate::constant::Constant;
use crate::error::{QueryError, path_error};
use crate::input::Meta;
use crate::json;
use crate::kind::Kind;
use weir_core::error_code::ErrorCode;

/// A compiled `where`.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    expression: weir_scan::Filter,
    /// JSON scalars by name.
    params: Vec<(String, Box<[u8]>)>,
    /// Name of each property, and its index in the plan.
    metas: Vec<(String, usize)>,
}

/// The input of a filter.
pub(crate) struct Row<'a> {
    pub(crate) page: &'a Buffer,
    pub(crate) item: Span,
    pub(crate) values: &'a [Value],
    pub(crate) metas: &'a [Meta],
    pub(crate) texts: &'a [u8],
    pub(crate) constants: &'a [Option<Constant>],
    /// The caller sets it to stop the evaluation.
    pub(crate) stop: Option<&'a AtomicBool>,
}

impl Row<'_> {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

struct Bound<'a> {
    filter: &'a Filter,
    row: &'a Row<'a>,
}

impl Bindings for Bound<'_> {
    fn param(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.filter.bound_param(name).map(Cow::Borrowed)
    }

    fn meta(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let mut metas = self.filter.metas.iter();
        let (_, at) = metas.find(|(known, _)| known == name)?;
        if let Some(Some(constant)) = self.row.constants.get(*at) {
            return Some(Cow::Borrowed(&constant.literal));
        }
        match self.row.metas.get(*at)? {
            Meta::Nothing => None,
            Meta::Number(number) => Some(Cow::Owned(number.to_string().into_bytes())),
            Meta::Bytes(span) => {
                let mut text = Vec::new();
                json::canonical_raw(span.of(self.row.page), &mut text);
                Some(Cow::Owned(text))
            }
            Meta::Text(span) => {
                let mut text = Vec::new();
                json::canonical_raw(span.of(self.row.texts), &mut text);
                Some(Cow::Owned(text))
            }
            Meta::Kind(kind) => {
                let mut text = Vec::new();
                json::canonical_raw(kind.name().as_bytes(), &mut text);
                Some(Cow::Owned(text))
            }
        }
    }

    fn is_needed(&self) -> bool {
        !self.row.is_stopped()
    }
}

impl Filter {
    /// Compiles the text of a field. `meta` returns the column of a property, and adds the
    /// column if it is missing. The paths of the filter must become the first columns of
    /// the plan.
    pub(crate) fn compile(
        text: &str,
        params: &[(String, String)],
        mut meta: impl FnMut(&str) -> usize,
    ) -> Result<Self, QueryError> {
        let expression = weir_scan::Filter::parse(text);
        let expression = expression.map_err(|error| path_error("where", 0, &error))?;
        let mut bound = Vec::new();
        for name in expression.params() {
            let Some((_, value)) = params.iter().find(|(known, _)| known == name) else {
                return Err(QueryError::new(ErrorCode::NoParam).with_value("parameter", name));
            };
            if json::scalar(value.as_bytes()).is_none() {
                let error = QueryError::new(ErrorCode::BadOption);
                return Err(error.with_value("a JSON scalar is required for the parameter", name));
            }
            bound.push((name.to_owned(), value.trim().as_bytes().into()));
        }
        let metas = expression.metas();
        let metas = metas.map(|name| (name.to_owned(), meta(name))).collect();
        Ok(Self {
            expression,
            params: bound,
            metas,
        })
    }

    /// Returns the value of a parameter.
    pub(crate) fn bound_param(&self, name: &str) -> Option<&[u8]> {
        let mut params = self.params.iter();
        let found = params.find(|(known, _)| known == name);
        found.map(|(_, value)| &**value)
    }

    /// Returns the names of the properties that the filter reads.
    pub(crate) fn meta_names(&self) -> impl Iterator<Item = &str> {
        self.metas.iter().map(|(name, _)| name.as_str())
    }

    /// Returns whether an item outside of any page passes the filter. `found` has the item, and
    /// the values of `paths` in it.
    pub(crate) fn matches_item(
        &self,
        item: &[u8],
        found: &Items,
        bound: &dyn Bindings,
    ) -> Result<bool, OutOfSteps> {
        let span = found.item(0).unwrap_or_default();
        self.expression
            .matches_found(item, span, found.values(0), bound)
    }

    /// Returns the paths that the filter reads, in the order of the first columns.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.expression.paths().iter()
    }

    /// Returns a note for each pattern that is invalid or exceeds a limit, and matches nothing.
    pub(crate) fn notes(&self) -> Vec<String> {
        let patterns = self.expression.patterns().iter().filter_map(|pattern| {
            let text: Cow<'_, str> = match pattern {
                PatternText::Fixed(text) => Cow::Borrowed(text),
                PatternText::Param(name) => {
                    let (_, value) = self.params.iter().find(|(known, _)| **known == **name)?;
                    let is_string = json::kind_of(value) == Kind::String;
                    Cow::Owned(is_string.then(|| json::text(value))?)
                }
            };
            let (what, why) = match weir_scan::pattern_fault(&text)? {
                PatternFault::Invalid(why) => ("is not a regular expression of RFC 9485", why),
                PatternFault::TooLarge(why) => ("exceeds a limit of regular expressions", why),
            };
            Some(format!("`{text}` {what} and matches nothing: {why}"))
        });
        patterns.collect()
    }

    /// Returns whether the filter walks over parts of items that are not columns.
    pub(crate) fn walks(&self) -> bool {
        self.expression.walks()
    }

    /// Returns whether an item passes the filter.
    pub(crate) fn matches(&self, row: &Row<'_>) -> Result<bool, OutOfSteps> {
        let bound = Bound { filter: self, row };
        let values = row.values.get(..self.expression.paths().len());
        let values = values.unwrap_or_default();
        self.expression
            .matches_found(row.page, row.item, values, &bound)
    }

    /// Returns whether an item without paths passes the filter, with only its properties.
    pub(crate) fn matches_nothing(&self, row: &Row<'_>) -> Result<bool, OutOfSteps> {
        let bound = Bound { filter: self, row };
        self.expression
            .matches_found(&[], Span::default(), &[], &bound)
    }
}
