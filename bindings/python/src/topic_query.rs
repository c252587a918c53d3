//! Queries over topics of a store.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use weir::query::{Bounds, SourceId};
use weir::{
    ErrorCode, IntentionOffset, RecordKind, TopicEnd, TopicQueryCanceller, TopicStep, TopicView,
};

use crate::error::{Failure, Result};
use crate::exclusive::Exclusive;
use crate::result::Page;
use crate::store_handle::StoreHandle;
use crate::wait;

/// Parses the name of a view.
pub(crate) fn view(name: &str) -> Result<TopicView> {
    match name {
        "log" => Ok(TopicView::Log),
        "latest" => Ok(TopicView::Latest),
        _ => Err(Failure::word("view", name, &["log", "latest"])),
    }
}

/// Parses the end of a query.
pub(crate) fn end(as_of: Option<u64>, follow: bool) -> Result<TopicEnd> {
    match (as_of, follow) {
        (None, false) => Ok(TopicEnd::Now),
        (Some(intention), false) => Ok(TopicEnd::AsOf(IntentionOffset(intention))),
        (None, true) => Ok(TopicEnd::Follow),
        (Some(_), true) => {
            let text = "a query that follows has no `as_of`";
            Err(Failure::new(ErrorCode::BadOption, text))
        }
    }
}

/// Parses the names of kinds of records.
pub(crate) fn kinds(names: &[String]) -> Result<Vec<RecordKind>> {
    let all = (1..=u8::MAX).map_while(RecordKind::from_number);
    let all: Vec<RecordKind> = all.collect();
    let found = names.iter().map(|name| {
        let kind = all.iter().find(|kind| kind.name() == name);
        kind.copied().ok_or_else(|| {
            let words: Vec<&str> = all.iter().map(|kind| kind.name()).collect();
            Failure::word("kinds", name, &words)
        })
    });
    found.collect()
}

/// A running query over topics: an iterator of pages. One thread at a time may use it; any thread
/// may call `cancel`. Pages outlive it.
#[pyclass(module = "weir", frozen)]
pub(crate) struct TopicQuery {
    query: Exclusive<StoreHandle<weir::TopicQuery>>,
    canceller: TopicQueryCanceller,
}

/// The result of a wait.
enum WaitOutcome {
    Page(weir::query::ResultPage),
    Done,
}

impl TopicQuery {
    pub(crate) fn new(query: weir::TopicQuery, closed: &Arc<AtomicBool>) -> Self {
        let canceller = query.canceller();
        Self {
            query: Exclusive::new(StoreHandle::new(query, closed)),
            canceller,
        }
    }

    fn with<T>(&self, work: impl FnOnce(&weir::TopicQuery) -> Result<T>) -> Result<T> {
        work(self.query.lock()?.get_after_close()?)
    }

    fn step(
        &self,
        py: Python<'_>,
        end: Option<Instant>,
        bounds: Bounds,
    ) -> PyResult<Option<WaitOutcome>> {
        wait::wait_in_slices(py, end, |slice| {
            let step = self.query.lock()?.get_mut()?.next(bounds, Some(slice))?;
            Ok(match step {
                TopicStep::Page(page) => Some(WaitOutcome::Page(page)),
                TopicStep::Done => Some(WaitOutcome::Done),
                TopicStep::Idle => None,
            })
        })
    }
}

#[pymethods]
impl TopicQuery {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Page>> {
        Ok(match self.step(py, None, Bounds::default())? {
            Some(WaitOutcome::Page(page)) => Some(Page::new(page)),
            _ => None,
        })
    }

    /// The next results, with limits of their number and, approximately, their bytes. Returns None at
    /// the end, or if a query that follows has no result for `timeout` seconds (None: no limit).
    #[pyo3(signature = (timeout=None, *, max_items=256, max_bytes=1 << 20))]
    fn next(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        max_items: usize,
        max_bytes: u64,
    ) -> PyResult<Option<Page>> {
        let bounds = Bounds {
            items_max: max_items,
            bytes_max: max_bytes,
        };
        Ok(match self.step(py, wait::until(timeout)?, bounds)? {
            Some(WaitOutcome::Page(page)) => Some(Page::new(page)),
            _ => None,
        })
    }

    /// Like `next`, but distinguishes the end: a tuple with the page, or with None at the end; None if
    /// there is no result in time.
    #[pyo3(name = "_step")]
    fn step_within(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<(Option<Page>,)>> {
        let outcome = self.step(py, wait::until(Some(timeout))?, Bounds::default())?;
        Ok(outcome.map(|outcome| match outcome {
            WaitOutcome::Page(page) => (Some(Page::new(page)),),
            WaitOutcome::Done => (None,),
        }))
    }

    /// The topic of a result, by the number of its source; None for a result that the query computed.
    fn topic(&self, source: Option<u32>) -> PyResult<Option<String>> {
        let Some(source) = source else {
            return Ok(None);
        };
        Ok(self.with(|query| Ok(query.topic(SourceId(source)).map(str::to_owned)))?)
    }

    /// A token with which a later query resumes after the last result.
    ///
    /// Raises QueryError NO_TOKEN if the query cannot be resumed.
    fn token<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let token = self.with(|query| Ok(query.token()?))?;
        Ok(PyBytes::new(py, &token))
    }

    /// A description of the query, for people.
    fn explain(&self) -> PyResult<String> {
        Ok(self.with(|query| Ok(query.explain().to_string()))?)
    }

    /// The last intention that the query reads; None if it follows.
    #[getter]
    fn as_of(&self) -> PyResult<Option<u64>> {
        Ok(self.with(|query| Ok(query.as_of().map(|offset| offset.0)))?)
    }

    /// Number of items that were skipped because they are not JSON.
    #[getter]
    fn skipped(&self) -> PyResult<u64> {
        Ok(self.with(|query| Ok(query.skipped()))?)
    }

    /// Cancels the query, from any thread: waiting calls raise ClientError CANCELLED.
    fn cancel(&self) {
        self.canceller.cancel();
    }
}
