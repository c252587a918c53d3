//! The engine: accepts pages, and returns results in a fixed order.
//!
//! The engine is sans-I/O: the caller fetches pages and supplies them, and [`Query::next`] returns
//! what the query needs.
//!
//! Invariants:
//! - Equal queries and calls give equal results, byte for byte.
//! - No payload byte is copied, and no call waits.
//! - The result does not depend on which page arrived first, except in the mode `Arrival`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_core::exact::to_u32;

use bytes::Bytes;
use weir_scan::Items;

use crate::buffer::{Account, Buffer};
use crate::distinct::{self, Distinct};
use crate::error::QueryError;
use crate::fold::Fold;
use crate::input::{Need, PageIn, SourceId};
use crate::key::OwnedKey;
use crate::load::{Load, Loader};
use crate::options::{Bounds, Budgets, Mode};
use crate::order::Boundary;
use crate::page::{Item, ResultPage};
use crate::plan::{Plan, Select};
use crate::rows::LoadedPage;
use crate::sort::Sorter;
use crate::source::Source;
use crate::token::Token;
use crate::tournament::Tournament;
use weir_core::error_code::ErrorCode;

/// The result of [`Query::next`].
#[derive(Clone, Debug)]
pub enum Step {
    /// At least one result.
    Ready(ResultPage),
    /// The engine needs these pages before it can continue; required pages come first.
    Need(Vec<Need>),
    /// All results were returned.
    Done,
}

/// A run of a query. Must be used by one thread at a time; may move between threads.
#[derive(Debug)]
pub struct Query {
    pub(super) plan: Arc<Plan>,
    pub(super) budgets: Budgets,
    pub(super) account: Arc<Account>,
    pub(super) sources: Vec<Source>,
    /// Sources, ordered by rank.
    pub(super) order: Vec<u32>,
    /// Fixed by the first call of `next`.
    pub(super) mode: Option<Mode>,
    pub(super) flow: Flow,
    pub(super) stages: Stages,
    /// Boundaries of earlier runs: first that of the last item; the others apply to sources
    /// that were split, and to their parts.
    pub(super) boundary: Vec<Boundary>,
    pub(super) resumed: Option<Token>,
    /// The mode of the run that created the token.
    pub(super) forced: Option<Mode>,
    scratch: Items,
    skipped: u64,
    serial: u64,
    done: bool,
    /// Error that the next call returns, after the results before it.
    pub(super) fault: Option<QueryError>,
    failed: Option<QueryError>,
    stop: Option<Arc<AtomicBool>>,
}

/// State of the modes.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// The current item of each source of a merge.
    pub(super) heads: Tournament,
    /// The source of the last item of a merge.
    pub(super) streak: Option<u32>,
    pub(super) sorter: Sorter,
    /// The source of each page in memory, in order of arrival.
    pub(super) arrivals: VecDeque<u32>,
    /// Size in bytes of the largest page so far. A page is read ahead only if this much space
    /// is free.
    pub(super) page_seen: u64,
    /// Rank of the source whose turn it is.
    pub(super) turn: usize,
    /// The source of the last item, in the mode `Sequential`.
    pub(super) used: Option<u32>,
    /// Keys and source of the last item that was passed on, after its page is dropped.
    pub(super) last: Option<Last>,
    /// Source and row of that item while its page is in memory.
    pub(super) last_row: Option<(u32, usize)>,
    /// Number of results returned, including those of earlier runs.
    pub(super) results: u64,
}

/// The last item that a merge passed on.
#[derive(Clone, Debug)]
pub(super) struct Last {
    pub(super) source: u32,
    pub(super) keys: Vec<OwnedKey>,
    pub(super) tie: Option<OwnedKey>,
    /// Number of consecutive items with these keys.
    pub(super) run: u64,
}

/// The stages after the merge.
#[derive(Debug)]
pub(super) struct Stages {
    pub(super) fold: Option<Fold>,
    pub(super) distinct: Option<Distinct>,
    pub(super) offset: u64,
    pub(super) limit: Option<u64>,
}

/// Number of bytes of constructed results at which a page is full, so that spans of 32 bits fit
/// all of them. The last result may exceed the number.
const CONSTRUCTED_BYTES_MAX: usize = 1 << 30;

/// A result page under construction.
pub(super) struct PageBuilder {
    page: ResultPage,
    bounds: Bounds,
    serial: u64,
    /// Bytes of the results that the engine constructed.
    constructed: Vec<u8>,
}

/// The location of the next item.
pub(super) enum NextItem {
    /// At the front of a source.
    Source(u32),
    /// In the sorter.
    Sorted,
    /// Unknown, because pages are missing.
    Blocked,
    /// There are no more items.
    End,
}

impl Query {
    /// Creates a run of a compiled query.
    #[must_use]
    pub fn new(plan: Arc<Plan>, budgets: Budgets) -> Self {
        let stages = Stages {
            fold: plan
                .constructs_results()
                .then(|| Fold::new(&plan, budgets.groups_max)),
            distinct: (plan.distinct && !plan.constructs_results())
                .then(|| Distinct::new(plan.distinct_in_order(), budgets.distinct_max)),
            offset: plan.offset,
            limit: plan.limit,
        };
        Self {
            plan,
            budgets,
            account: Arc::default(),
            sources: Vec::new(),
            order: Vec::new(),
            mode: None,
            flow: Flow::default(),
            stages,
            boundary: Vec::new(),
            resumed: None,
            forced: None,
            scratch: Items::default(),
            skipped: 0,
            serial: 0,
            done: false,
            fault: None,
            failed: None,
            stop: None,
        }
    }

    /// Returns the compiled query.
    #[must_use]
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Returns the number of bytes of pages that are referenced, by result pages too.
    #[must_use]
    pub fn buffered_bytes(&self) -> u64 {
        self.account.bytes()
    }

    /// Returns the number of bad items omitted so far.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Returns the name of a source.
    #[must_use]
    pub fn source_name(&self, source: SourceId) -> Option<&[u8]> {
        self.sources.get(source.index()).map(|source| &*source.name)
    }

    pub(super) fn source(&self, id: SourceId) -> Result<&Source, QueryError> {
        self.sources.get(id.index()).ok_or_else(|| {
            let mut error = QueryError::new(ErrorCode::UnknownSource);
            error.location.source = Some(id);
            error
        })
    }

    /// Adds a page of a source. `next` is the continuation of the following page; without
    /// it, this page is the last. Pages of a source must come in order, but need not be
    /// requested first.
    ///
    /// # Errors
    /// `UNKNOWN_SOURCE`, `SOURCE_FINISHED`, `OVER_BUDGET`, `SOURCE_NOT_SORTED`,
    /// `ORDER_KEY_TYPE`, or the error of a malformed page. After the query has failed, its
    /// error. On an error, nothing changes and the page is dropped.
    pub fn enqueue(
        &mut self,
        id: SourceId,
        page: impl Into<PageIn>,
        next: Option<Bytes>,
    ) -> Result<(), QueryError> {
        let page = page.into();
        let bytes = page.bytes.len() as u64;
        let mut scratch = std::mem::take(&mut self.scratch);
        let load = self.load(id, page, &mut scratch);
        self.scratch = scratch;
        let Some(load) = load? else {
            return Ok(());
        };
        for (boundary, used) in self.boundary.iter_mut().zip(&load.equal_used) {
            boundary.equal -= used;
        }
        self.skipped += load.skipped;
        self.flow.page_seen = self.flow.page_seen.max(bytes);
        let Some(source) = self.sources.get_mut(id.index()) else {
            return Ok(());
        };
        source.pages_in += 1;
        source.items_in += load.raw;
        // A caller may cut the same items into smaller pages than in the earlier run.
        let skip = u64::from(source.skip).saturating_sub(load.raw);
        source.skip = to_u32(skip, "it is at most the number before");
        if skip == 0 {
            source.equal = 0;
        }
        source.splits = 0;
        source.pages_left = source.pages_left.map(|left| left.saturating_sub(1));
        source.ended = next.is_none() || source.pages_left == Some(0);
        source.continuation = next.filter(|_| !source.ended);
        if load.last_raw.is_some() {
            source.last_raw = load.last_raw;
        }
        if load.last_kept.is_some() {
            source.last_kept = load.last_kept;
        }
        if !load.page.heads.is_empty() {
            source.pages.push_back(load.page);
            if matches!(self.mode, None | Some(Mode::Arrival | Mode::Sort)) {
                self.flow.arrivals.push_back(id.0);
            }
        }
        self.update_merge(id.0);
        Ok(())
    }

    /// Checks whether a source may supply a page of `bytes` bytes now, whatever its
    /// content. A caller can check this before it copies the page.
    ///
    /// # Errors
    /// Those errors of [`enqueue`](Self::enqueue) that do not depend on the content of the
    /// page.
    pub fn admits(&self, id: SourceId, bytes: u64) -> Result<(), QueryError> {
        let source = self.source(id)?;
        if source.ended {
            return Err(QueryError::new(ErrorCode::SourceFinished).of(id, &source.name));
        }
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.done {
            return Ok(());
        }
        if bytes > self.budgets.page_bytes_max {
            let max = self.budgets.page_bytes_max;
            let error = QueryError::limit(ErrorCode::PageTooLarge, "bytes of a page", max, bytes);
            return Err(error.of(id, &source.name));
        }
        let found = self.account.bytes().saturating_add(bytes);
        let max = self.budgets.buffer_bytes_max;
        if found > max && !source.pages.is_empty() {
            let error = QueryError::limit(ErrorCode::OverBudget, "bytes of pages", max, found);
            return Err(error.of(id, &source.name));
        }
        Ok(())
    }

    /// Loads a page; `None` if the query needs no more pages.
    pub(super) fn load(
        &self,
        id: SourceId,
        page: PageIn,
        scratch: &mut Items,
    ) -> Result<Option<Load>, QueryError> {
        self.admits(id, page.bytes.len() as u64)?;
        if self.done {
            return Ok(None);
        }
        let source = self.source(id)?;
        let loader = Loader {
            plan: &self.plan,
            source,
            id,
            boundary: &self.boundary,
            stop: self.stop.as_deref(),
        };
        let buffer = Buffer::new(page.bytes, &self.account);
        let load = loader.load(&buffer, page.frames, scratch)?;
        Ok(Some(load))
    }

    /// Ends a source: it has no more pages.
    ///
    /// # Errors
    /// `UNKNOWN_SOURCE`, `SOURCE_FINISHED`.
    pub fn finish(&mut self, id: SourceId) -> Result<(), QueryError> {
        let source = self.source(id)?;
        if source.ended {
            return Err(QueryError::new(ErrorCode::SourceFinished).of(id, &source.name));
        }
        let sorts = self.planned_mode() == Mode::Sort;
        if let Some(source) = self.sources.get_mut(id.index()) {
            source.ended = true;
            source.continuation = None;
            // Without names of items, the rest of a stable page is read again after a
            // resume.
            let paged = |page: &LoadedPage| page.starts.is_empty() && !sorts;
            if source.stable && source.pages.front().is_some_and(paged) {
                source.pages_left = Some(0);
            }
        }
        self.update_merge(id.0);
        Ok(())
    }

    /// Returns results if there are any, else the pages that the engine needs, else the
    /// end. All results that can be determined are returned first, also before an error.
    ///
    /// # Errors
    /// `SOURCES_OWED` after a resume, until each source with remaining rows was added or
    /// [abandoned](Self::abandon). All other errors are final: each further call repeats
    /// them. Result pages returned earlier stay valid.
    pub fn next(&mut self, bounds: Bounds) -> Result<Step, QueryError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let begins = self.mode.is_none() && !self.done && self.stages.limit != Some(0);
        if begins && self.missing_sources().next().is_some() {
            return Err(QueryError::new(ErrorCode::SourcesOwed).naming(self.missing_sources()));
        }
        let step = match self.fault.take() {
            Some(fault) => Err(fault),
            None => self.step(bounds),
        };
        if let Err(error) = &step {
            self.failed = Some(error.clone());
            self.release();
        }
        step
    }

    fn step(&mut self, bounds: Bounds) -> Result<Step, QueryError> {
        if self.done || self.stages.limit == Some(0) {
            return Ok(self.end());
        }
        self.start()?;
        self.serial += 1;
        let mut out = PageBuilder {
            page: ResultPage::default(),
            bounds,
            serial: self.serial,
            constructed: Vec::new(),
        };
        let filled = self.fill(&mut out);
        self.flow.results += out.page.items.len() as u64;
        if let Some(page) = out.finish(&self.account, self.skipped) {
            self.fault = filled.err();
            return Ok(Step::Ready(page));
        }
        let end = filled?;
        if end || self.stages.limit == Some(0) {
            return Ok(self.end());
        }
        Ok(Step::Need(self.needs()))
    }

    /// Fills the page with results. Returns `true` at the end of all results.
    fn fill(&mut self, out: &mut PageBuilder) -> Result<bool, QueryError> {
        let runs = matches!(self.mode, Some(Mode::Merge | Mode::Sequential));
        let runs = runs && self.stages.fold.is_none();
        while !out.is_full() && self.stages.limit != Some(0) {
            match self.pull()? {
                NextItem::Source(source) if runs => self.pass_run_through_stages(source, out)?,
                NextItem::Source(source) => self.pass_through_stages(source, out)?,
                NextItem::Sorted => {
                    if !self.pass_sorted_through_stages(out)? {
                        return Ok(!self.drain(out));
                    }
                }
                NextItem::Blocked => break,
                NextItem::End => return Ok(!self.drain(out)),
            }
        }
        Ok(false)
    }

    fn end(&mut self) -> Step {
        self.done = true;
        self.release();
        Step::Done
    }

    fn release(&mut self) {
        for source in &mut self.sources {
            source.pages.clear();
        }
        self.flow.heads.clear();
        self.flow.sorter.clear();
        self.flow.arrivals.clear();
    }

    /// Returns whether the query has ended or failed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.done || self.failed.is_some()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Returns how many items of each source, after the filter, can still change the
    /// result; `None` if all can.
    #[must_use]
    pub fn wanted(&self) -> Option<u64> {
        let whole = self.stages.fold.is_some() || self.stages.distinct.is_some();
        if whole || self.planned_mode() == Mode::Sort {
            return None;
        }
        let limit = self.stages.limit?;
        Some(limit.saturating_add(self.stages.offset))
    }

    /// Cancels the query: each further `next` fails with `CANCELLED`.
    pub fn cancel(&mut self) {
        if self.failed.is_none() && !self.done {
            self.failed = Some(QueryError::new(ErrorCode::Cancelled));
            self.release();
        }
    }

    /// Makes `enqueue` stop when any thread sets the flag. With a filter, `enqueue` then
    /// fails with `CANCELLED` at the next item, or within a long one. The flag does not
    /// affect other calls.
    pub fn stop_by(&mut self, flag: Arc<AtomicBool>) {
        self.stop = Some(flag);
    }

    /// Passes the front item of a source through the stages.
    fn pass_through_stages(
        &mut self,
        source: u32,
        out: &mut PageBuilder,
    ) -> Result<(), QueryError> {
        let id = SourceId(source);
        let Some(from) = self.sources.get_mut(source as usize) else {
            return Ok(());
        };
        let (mut constructed, mut fault) = (None, Ok(()));
        if let Some(fold) = &mut self.stages.fold {
            if let Some(page) = from.pages.front() {
                let row = page.next;
                let added = fold.add(&self.plan, from, page, row, &mut constructed);
                fault = added.map_err(|error| located(error, id, from, page.number));
            }
        } else if let Some(page) = from.pages.front_mut() {
            let row = page.next;
            let stages = &mut self.stages;
            let applied = stages.apply(&self.plan, page, row, id, out);
            if let Err(error) = applied {
                let page = page.number;
                return Err(located(error, id, from, page));
            }
        }
        if let Some(constructed) = constructed {
            self.stages.apply_constructed(&constructed, out);
        }
        fault?;
        self.advance(source);
        Ok(())
    }

    /// As `pass_through_stages`, with the next item of the sorter. Returns `false` at the end.
    fn pass_sorted_through_stages(&mut self, out: &mut PageBuilder) -> Result<bool, QueryError> {
        let (mut constructed, mut fault) = (None, Ok(()));
        let sorter = &mut self.flow.sorter;
        let Some((id, page, row)) = sorter.next(&self.plan, &self.sources) else {
            return Ok(false);
        };
        let Some(from) = self.sources.get(id.index()) else {
            return Ok(true);
        };
        if let Some(fold) = &mut self.stages.fold {
            let added = fold.add(&self.plan, from, page, row, &mut constructed);
            fault = added.map_err(|error| located(error, id, from, page.number));
        } else {
            let applied = self.stages.apply(&self.plan, page, row, id, out);
            let number = page.number;
            applied.map_err(|error| located(error, id, from, number))?;
        }
        sorter.done();
        if let Some(constructed) = constructed {
            self.stages.apply_constructed(&constructed, out);
        }
        fault?;
        Ok(true)
    }

    /// Returns the aggregated results. Returns `false` when there are no more.
    fn drain(&mut self, out: &mut PageBuilder) -> bool {
        while !out.is_full() && self.stages.limit != Some(0) {
            let fold = self.stages.fold.as_mut();
            let Some(constructed) = fold.and_then(|fold| fold.drain(&self.plan)) else {
                return false;
            };
            self.stages.apply_constructed(&constructed, out);
        }
        true
    }
}

pub(super) fn located(error: QueryError, id: SourceId, from: &Source, page: u64) -> QueryError {
    let mut error = error.of(id, &from.name);
    error.location.page = Some(page);
    error
}

impl Stages {
    /// Applies distinct, offset, limit and select to an item.
    #[inline]
    pub(super) fn apply(
        &mut self,
        plan: &Plan,
        page: &mut LoadedPage,
        row: usize,
        source: SourceId,
        out: &mut PageBuilder,
    ) -> Result<(), QueryError> {
        let head = page.head(row);
        let span = match plan.select {
            Select::Path(path) => page.value(row, path).span,
            _ => head.span,
        };
        let columns = plan.columns.iter();
        if let Some(distinct) = &mut self.distinct {
            let value_hash = match plan.select {
                Select::Columns => {
                    let spans = columns
                        .clone()
                        .map(|named| page.value(row, named.what).span);
                    distinct::values_hash(&page.buffer, spans)?
                }
                _ => distinct::value_hash(&page.buffer, span)?,
            };
            if !distinct.is_new(value_hash)? {
                return Ok(());
            }
        }
        if self.offset > 0 {
            self.offset -= 1;
            return Ok(());
        }
        self.count_result();
        let buffer = out.buffer(page);
        if plan.select == Select::Columns {
            let values = columns.map(|named| page.value(row, named.what));
            let before = out.page.values.len();
            out.page.values.extend(values);
            let new = &out.page.values[before..];
            out.page.width = new.len();
            out.page.bytes += new.iter().map(|v| u64::from(v.span.len)).sum::<u64>();
        } else {
            out.page.bytes += u64::from(span.len);
        }
        out.page.items.push(Item {
            buffer,
            offset: span.offset,
            len: span.len,
            source,
            index: page.index(row),
            constructed: false,
        });
        Ok(())
    }

    /// Counts a result towards the limit.
    #[inline]
    fn count_result(&mut self) {
        if let Some(limit) = &mut self.limit {
            assert!(*limit > 0, "no result is after the limit");
            *limit -= 1;
        }
    }

    /// As `apply`, for a constructed result.
    fn apply_constructed(&mut self, constructed: &[u8], out: &mut PageBuilder) {
        if self.offset > 0 {
            self.offset -= 1;
            return;
        }
        self.count_result();
        let length = |bytes: usize| to_u32(bytes, "a page of constructed results ends at 1 GiB");
        out.page.bytes += constructed.len() as u64;
        out.page.items.push(Item {
            buffer: u32::MAX,
            offset: length(out.constructed.len()),
            len: length(constructed.len()),
            source: SourceId::NONE,
            index: 0,
            constructed: true,
        });
        out.constructed.extend_from_slice(constructed);
    }
}

impl PageBuilder {
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        let items = self.page.items.len();
        items > 0
            && (items >= self.bounds.items_max
                || self.page.bytes >= self.bounds.bytes_max
                || self.constructed.len() >= CONSTRUCTED_BYTES_MAX)
    }

    /// Returns the index of a page among the buffers.
    fn buffer(&mut self, page: &mut LoadedPage) -> u32 {
        if page.result_buffer.0 != self.serial {
            let at = to_u32(
                self.page.buffers.len(),
                "a page of results has fewer than 2^32 buffers",
            );
            self.page.buffers.push(page.buffer.clone());
            self.page.pages.push(page.number);
            page.result_buffer = (self.serial, at);
        }
        page.result_buffer.1
    }

    /// Returns the page, or `None` if it is empty.
    fn finish(mut self, account: &Arc<Account>, skipped: u64) -> Option<ResultPage> {
        if self.page.items.is_empty() {
            return None;
        }
        if !self.constructed.is_empty() {
            let at = to_u32(
                self.page.buffers.len(),
                "a page of results has fewer than 2^32 buffers",
            );
            self.page
                .buffers
                .push(Buffer::new(Bytes::from(self.constructed), account));
            self.page.pages.push(0);
            for item in self.page.items.iter_mut().filter(|item| item.constructed) {
                item.buffer = at;
            }
        }
        self.page.skipped = skipped;
        Some(self.page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_constructed_results_is_full_before_their_spans_overflow() {
        let mut out = PageBuilder {
            page: ResultPage::default(),
            bounds: Bounds {
                items_max: usize::MAX,
                bytes_max: u64::MAX,
            },
            serial: 1,
            constructed: Vec::new(),
        };
        out.page.items.push(Item {
            buffer: u32::MAX,
            offset: 0,
            len: 1,
            source: SourceId::NONE,
            index: 0,
            constructed: true,
        });
        assert!(!out.is_full());
        // The system provides zeros on demand: the test uses no memory for them.
        out.constructed = vec![0; CONSTRUCTED_BYTES_MAX];
        assert!(out.is_full());
    }
}
