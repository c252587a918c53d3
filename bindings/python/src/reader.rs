//! Reading a topic in order: existing pages, and new ones.

use std::time::Instant;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};
use weir::{ConsequenceOffset, ReadFrom, TopicReader};

use crate::error::{Failure, Result};
use crate::exclusive::Exclusive;
use crate::record::{Record, RecordPage};
use crate::store_handle::StoreHandle;
use crate::wait;

/// A position as text; an integer is an offset, or below 0 a number of last records.
pub(crate) struct Position(String);

impl<'py> FromPyObject<'_, 'py> for Position {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_exact_instance_of::<PyInt>() {
            return Ok(Self(object.str()?.to_string()));
        }
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(Self(text.to_str()?.to_owned()));
        }
        let kind = object.get_type().name()?;
        let text = format!("a position is a str or an int, not {kind}");
        Err(PyTypeError::new_err(text))
    }
}

/// The start position: at most one of the arguments.
///
/// # Errors
/// `BAD_OPTION` for more than one argument, and for a text that is not a position.
pub(crate) fn start(
    position: Option<Position>,
    after: Option<u64>,
    last: Option<u64>,
    time_ms: Option<u64>,
    end: bool,
    default: ReadFrom,
) -> Result<ReadFrom> {
    let position = position.map(|given| ReadFrom::parse(&given.0)).transpose();
    let position =
        position.map_err(|error| Failure::new(weir::ErrorCode::BadOption, error.to_string()))?;
    let positions = [
        position,
        after.map(|offset| ReadFrom::After(ConsequenceOffset(offset))),
        last.map(ReadFrom::Last),
        time_ms.map(ReadFrom::Time),
        end.then_some(ReadFrom::End),
    ];
    let mut positions = positions.into_iter().flatten();
    let from = positions.next().unwrap_or(default);
    if positions.next().is_some() {
        let text = "there is one position: position, after, last, time_ms or end";
        return Err(Failure::new(weir::ErrorCode::BadOption, text));
    }
    Ok(from)
}

/// Pages of records of a topic, in order, each once: an iterator. One thread at a time may use it.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Reader {
    inner: Exclusive<ReaderState>,
    /// Seconds that the iterator waits for a page; `None`: no limit.
    patience: Option<f64>,
}

/// The state that one thread at a time uses.
struct ReaderState {
    reader: StoreHandle<TopicReader>,
    /// A page read for a call that a signal ended, and the position before it. For the next call.
    pending_page: Option<(RecordPage, u64)>,
}

impl ReaderState {
    /// Reads the next page, if there is one, and stores it.
    fn read(&mut self) -> Result<()> {
        let reader = self.reader.get_mut()?;
        let before = reader.position().0;
        if let Some(page) = reader.next_page()? {
            self.pending_page = Some((RecordPage::new(page)?, before));
        }
        Ok(())
    }
}

impl Reader {
    pub(crate) fn new(reader: StoreHandle<TopicReader>, patience: Option<f64>) -> Self {
        Self {
            inner: Exclusive::new(ReaderState {
                reader,
                pending_page: None,
            }),
            patience,
        }
    }

    /// The next page; waits for it until `end`.
    fn page(&self, py: Python<'_>, end: Option<Instant>) -> PyResult<Option<RecordPage>> {
        let mut first = true;
        let available = wait::wait_in_slices(py, end, |slice| {
            let mut state = self.inner.lock()?;
            state.reader.check()?;
            let waits = !std::mem::take(&mut first);
            if state.pending_page.is_none() && (!waits || state.reader.get_mut()?.wait(Some(slice)))
            {
                state.read()?;
            }
            Ok(state.pending_page.is_some().then_some(()))
        })?;
        match available {
            Some(()) => Ok(self.inner.lock()?.pending_page.take().map(|(page, _)| page)),
            None => Ok(None),
        }
    }
}

#[pymethods]
impl Reader {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<RecordPage>> {
        self.page(py, wait::until(self.patience)?)
    }

    /// The next page; None if there is none within `timeout` seconds (None: no limit).
    #[pyo3(signature = (timeout=Some(0.0)), text_signature = "($self, timeout=0.0)")]
    fn next_page(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<RecordPage>> {
        self.page(py, wait::until(timeout)?)
    }

    /// All records of the pages: an iterator, with the patience of this iterator.
    pub(crate) fn records(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let chain = py.import("itertools")?.getattr("chain")?;
        Ok(chain.call_method1("from_iterable", (slf,))?.unbind())
    }

    /// Continues at the first record after this offset.
    fn seek(&self, py: Python<'_>, after: u64) -> PyResult<()> {
        Ok(py.detach(|| -> Result<()> {
            let mut state = self.inner.lock()?;
            state.pending_page = None;
            state.reader.get_mut()?.seek(ConsequenceOffset(after));
            Ok(())
        })?)
    }

    /// The next page starts at this offset, or at the first existing record after it.
    #[getter]
    fn position(&self) -> PyResult<u64> {
        let state = self.inner.lock()?;
        match &state.pending_page {
            Some((_, before)) => Ok(*before),
            None => Ok(state.reader.get_after_close()?.position().0),
        }
    }

    /// Seconds that the iterator waits for a page; None: no limit.
    #[getter]
    fn timeout(&self) -> Option<f64> {
        self.patience
    }
}

/// The current values, then new records: an iterator of records.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Latest {
    /// The iterator, and a record read for a call that a signal ended.
    latest: Exclusive<(StoreHandle<weir::Latest>, Option<Record>)>,
    patience: Option<f64>,
}

impl Latest {
    pub(crate) fn new(latest: StoreHandle<weir::Latest>, patience: Option<f64>) -> Self {
        Self {
            latest: Exclusive::new((latest, None)),
            patience,
        }
    }
}

#[pymethods]
impl Latest {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Record>> {
        let available = wait::wait_in_slices(py, wait::until(self.patience)?, |_| {
            let mut state = self.latest.lock()?;
            let (latest, pending_record) = &mut *state;
            if pending_record.is_none() {
                // One call waits no longer than a slice.
                let found = latest.get_mut()?.next().transpose()?;
                *pending_record =
                    found.map(|one| Record::of_value(one.value).with_replay(one.replay));
            }
            Ok(pending_record.is_some().then_some(()))
        })?;
        match available {
            Some(()) => Ok(self.latest.lock()?.1.take()),
            None => Ok(None),
        }
    }
}
