//! The part of a query that runs at the records: it selects the records that the rest of
//! the query needs, and the parts of their values.
//!
//! Invariants:
//! - A query over the records that passed a filter has the results of the query over all
//!   records, including the first fault: the filter scans, checks and filters with the code
//!   of the engine.
//! - Each stage needs only one record at a time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use weir_scan::{Items, Shape, Span};

use crate::engine::Query;
use crate::error::QueryError;
use crate::input::{Frames, PageIn, SourceId};
use crate::options::{Budgets, Missing, QueryText, SourceOptions};
use crate::plan::{Column, Plan, Select};
use crate::records::Properties;

/// Filters pages of one topic.
#[derive(Debug)]
pub struct PushdownFilter {
    query: Query,
    source: SourceId,
    properties: Properties,
    cuts: bool,
    scratch: Items,
}

/// The records of a page that passed a filter.
#[derive(Debug, Default)]
pub struct Filtered {
    /// Index of each record in the page, from 0, and the span of the part of its value that
    /// is passed on.
    pub kept: Vec<(usize, Span)>,
    /// Number of bad items that were omitted.
    pub skipped: u64,
    /// Index and error of the record at which the filter stopped, after all records in
    /// `kept`; no later record was read. The byte of the error is a byte of the page.
    pub fault: Option<(usize, QueryError)>,
}

impl QueryText {
    /// Returns the part of this query that a filter runs.
    fn pushed_down(&self) -> Self {
        Self {
            distinct: false,
            offset: 0,
            limit: None,
            top: None,
            mode: None,
            ..self.clone()
        }
    }
}

impl Plan {
    /// Returns whether a filter may omit records before the query.
    #[must_use]
    pub fn may_push_down(&self) -> bool {
        self.filter.is_some()
            || self.missing == Missing::Drop
            || matches!(self.select, Select::Path(_) | Select::Columns)
    }

    /// Returns whether the selected values can replace the items, because no other field
    /// reads the items.
    #[must_use]
    pub fn may_cut(&self) -> bool {
        let outside = |column: &Column| matches!(column, Column::Meta(_));
        matches!(self.select, Select::Path(_)) && self.keys.iter().all(|key| outside(&key.column))
    }

    /// Returns the query to run over items that passed a filter; with `cut`, over their
    /// selected values. Its tokens are those of the whole query.
    ///
    /// # Errors
    /// Only errors of compiling the whole query.
    pub fn after_pushdown(&self, text: &QueryText, cut: bool) -> Result<Self, QueryError> {
        let mut rest = QueryText {
            filter: String::new(),
            params: Vec::new(),
            ..text.clone()
        };
        if cut {
            rest.select = String::new();
        }
        let mut plan = rest.compile()?;
        plan.fingerprint = self.fingerprint;
        Ok(plan)
    }
}

impl PushdownFilter {
    /// Creates a filter for records of a topic. With `cut`, only selected values are passed
    /// on.
    ///
    /// # Errors
    /// Those of [`QueryText::compile`]; `BAD_OPTION` for properties that records do not
    /// have, and for `cut` if the query does not allow it.
    pub fn new(text: &QueryText, topic: &str, cut: bool) -> Result<Self, QueryError> {
        let plan = text.pushed_down().compile()?;
        let properties = Properties::of(&plan)?;
        if cut && !plan.may_cut() {
            let error = QueryError::new(weir_core::ErrorCode::BadOption);
            return Err(error.because("the query reads more than the selected value"));
        }
        let mut query = Query::new(plan.into(), Budgets::default());
        let source = query.add_source(SourceOptions {
            name: topic.as_bytes().to_vec(),
            shape: Shape::Framed,
            meta: vec![("topic".to_owned(), format!("\"{topic}\""))],
            ..SourceOptions::default()
        })?;
        Ok(Self {
            query,
            source,
            properties,
            cuts: cut,
            scratch: Items::default(),
        })
    }

    /// Makes `filter` fail with `CANCELLED` when any thread sets the flag.
    pub fn stop_by(&mut self, flag: Arc<AtomicBool>) {
        self.query.stop_by(flag);
    }

    /// Returns the properties that each record must have.
    #[must_use]
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Filters a page.
    ///
    /// # Errors
    /// Errors of the page as a whole; an error of a record is in the result.
    pub fn filter(&mut self, page: &Bytes, mut frames: Frames) -> Result<Filtered, QueryError> {
        let mut fault = None;
        let load = loop {
            let whole = PageIn {
                bytes: page.clone(),
                frames: Some(frames.clone()),
            };
            match self.query.load(self.source, whole, &mut self.scratch) {
                Ok(Some(load)) => break load,
                Ok(None) => return Ok(Filtered::default()),
                Err(error) => {
                    // The records before it are valid results, unless the filter finds
                    // another error among them.
                    let item = error.location.item.and_then(|at| usize::try_from(at).ok());
                    match item {
                        Some(at) if at < frames.spans.len() => {
                            self.properties.truncate(&mut frames, at);
                            fault = Some((at, error));
                        }
                        _ => return Err(error),
                    }
                }
            }
        };
        let select = match self.query.plan().select {
            Select::Path(path) if self.cuts => Some(path),
            _ => None,
        };
        let rows = 0..load.page.heads.len();
        let kept = rows.map(|row| {
            let head = load.page.head(row);
            let span = select.map_or(head.span, |path| load.page.value(row, path).span);
            (load.page.index(row) as usize, span)
        });
        Ok(Filtered {
            kept: kept.collect(),
            skipped: load.skipped,
            fault,
        })
    }
}
