//! The part of a query that runs beside the records: which of them the rest
//! of the query has to see, and what of them.
//!
//! Invariants:
//! - A query over the records that passed a filter has the results of the query
//!   over all records, including the first fault: the filter scans, checks and
//!   filters with the code of the engine.
//! - A stage needs one record only.

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

/// Looks through pages of one topic.
#[derive(Debug)]
pub struct PushdownFilter {
    query: Query,
    source: SourceId,
    properties: Properties,
    cuts: bool,
    scratch: Items,
}

/// What a filter let through of a page.
#[derive(Debug, Default)]
pub struct Filtered {
    /// Number of each record in the page, from 0, and where the part of its
    /// value is that goes on.
    pub kept: Vec<(usize, Span)>,
    /// Bad items that were left out.
    pub skipped: u64,
    /// What is wrong with the record after all these, and its number; nothing
    /// after it was looked at. The byte is one of the page.
    pub fault: Option<(usize, QueryError)>,
}

impl QueryText {
    /// What of this query a filter does.
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
    /// Whether records can be left out before the query sees them.
    #[must_use]
    pub fn may_push_down(&self) -> bool {
        self.filter.is_some()
            || self.missing == Missing::Drop
            || matches!(self.select, Select::Path(_) | Select::Columns)
    }

    /// Whether the selected values can stand for the items: nothing else looks
    /// into them.
    #[must_use]
    pub fn may_cut(&self) -> bool {
        let outside = |column: &Column| matches!(column, Column::Meta(_));
        matches!(self.select, Select::Path(_)) && self.keys.iter().all(|key| outside(&key.column))
    }

    /// This query for items that a filter let through; `cut`: for their selected
    /// values. Its tokens are those of the whole query.
    ///
    /// # Errors
    /// None that the whole query has not.
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
    /// A filter for records of a topic; `cut`: only selected values go on.
    ///
    /// # Errors
    /// Those of [`QueryText::compile`]; `BAD_OPTION` for properties that
    /// records do not have, and for a cut that the query does not allow.
    pub fn new(text: &QueryText, topic: &str, cut: bool) -> Result<Self, QueryError> {
        let plan = text.pushed_down().compile()?;
        let properties = Properties::of(&plan)?;
        if cut && !plan.may_cut() {
            let error = QueryError::new(weir_core::ErrorCode::BadOption);
            return Err(error.because("the query looks at more than the selected value"));
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

    /// Ends the work on a page when the flag is set: `filter` fails with
    /// `CANCELLED` then.
    pub fn stop_by(&mut self, flag: Arc<AtomicBool>) {
        self.query.stop_by(flag);
    }

    /// What records have to bring.
    #[must_use]
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Looks through a page.
    ///
    /// # Errors
    /// Faults of the page as a whole; those of a record are part of the answer.
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
                    // What stands before it counts; there may be another among that.
                    let item = error.place.item.and_then(|at| usize::try_from(at).ok());
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
