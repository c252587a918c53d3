//! Results of queries: pages of spans, and items that read them.

use std::ffi::c_int;

use pyo3::exceptions::{PyBufferError, PyIndexError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PySlice, PyString, PyTuple};
use weir::query::{ResultPage, SourceId, Tag, Value};

use crate::buffer;
use crate::error::Failure;
use crate::value;

/// The position of a Python index; `None` if it is out of range.
fn index_of(index: isize, len: usize) -> Option<usize> {
    let at = match usize::try_from(index) {
        Ok(at) => at,
        Err(_) => len.checked_sub(index.unsigned_abs())?,
    };
    (at < len).then_some(at)
}

/// An index of a sequence, or a slice.
#[derive(FromPyObject)]
pub(crate) enum Index<'py> {
    At(isize),
    Slice(Bound<'py, PySlice>),
}

impl<'py> Index<'py> {
    /// The object at the index, or a list of the objects in the slice. `object` returns the object
    /// at a position.
    pub(crate) fn select(
        self,
        py: Python<'py>,
        len: usize,
        object: impl Fn(usize) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let slice = match self {
            Self::At(index) => return object(index_of(index, len).ok_or_else(out_of_range)?),
            Self::Slice(slice) => slice.indices(isize::try_from(len)?)?,
        };
        let mut selected = Vec::with_capacity(slice.slicelength);
        let mut at = slice.start;
        for _ in 0..slice.slicelength {
            selected.push(object(usize::try_from(at)?)?);
            at = at.saturating_add(slice.step);
        }
        Ok(PyList::new(py, selected)?.into_any())
    }
}

/// The error for an index that is out of range.
pub(crate) fn out_of_range() -> PyErr {
    PyIndexError::new_err("the index is out of range")
}

/// Results of a query, in order: a sequence of items, at least one. Immutable. It keeps the memory
/// of its items alive, also after the query is released. Any thread may use it.
#[pyclass(module = "weir", frozen, sequence)]
pub(crate) struct Page(ResultPage);

impl Page {
    pub(crate) fn new(page: ResultPage) -> Self {
        Self(page)
    }
}

#[pymethods]
impl Page {
    fn __len__(&self) -> usize {
        self.0.items().len()
    }

    fn __getitem__<'py>(slf: &Bound<'py, Self>, index: Index<'py>) -> PyResult<Bound<'py, PyAny>> {
        let items = slf.get().0.items();
        index.select(slf.py(), items.len(), |at| {
            let span = items.get(at).ok_or_else(out_of_range)?;
            let item = Item::new(slf, u32::try_from(at)?, span.len);
            Ok(Bound::new(slf.py(), item)?.into_any())
        })
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let items = slf.get().0.items().iter();
        let all = items
            .zip(0..)
            .map(|(span, at)| Item::new(slf, at, span.len));
        Ok(PyList::new(slf.py(), all)?.try_iter()?.into_any())
    }

    /// The values at up to 64 singular JSONPaths in each item, with one walk over each item.
    /// Returns a list with a tuple for each item. A tuple has a memoryview for each path, in the
    /// order of the paths, or None if there is no value. A tuple has only None if the scan finds
    /// that its item is not JSON. The views are not copied and keep the page alive.
    #[pyo3(signature = (*paths))]
    fn values<'py>(
        slf: &Bound<'py, Self>,
        paths: Vec<String>,
    ) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let (py, page) = (slf.py(), &slf.get().0);
        let table = py.detach(|| {
            let paths = value::path_set(&paths)?;
            let mut table = Vec::new();
            weir::query::find_each(page.iter(), &paths, &mut table);
            Ok::<_, Failure>(table)
        })?;
        let mut table = table.into_iter();
        let row = |at| {
            let views = table.by_ref().take(paths.len()).map(|value| {
                let view = |part| PyMemoryView::from(Bound::new(py, part)?.as_any());
                Item::part_of(slf, at, value).map(view).transpose()
            });
            PyTuple::new(py, views.collect::<PyResult<Vec<_>>>()?)
        };
        (0..).take(page.items().len()).map(row).collect()
    }

    /// The buffers that contain the items; each supports the buffer protocol.
    #[getter]
    fn buffers(slf: &Bound<'_, Self>) -> Vec<PageBuffer> {
        let count = slf.get().0.buffers().len();
        (0..count)
            .map(|at| PageBuffer {
                page: slf.clone().unbind(),
                at,
            })
            .collect()
    }

    /// The position of each item: number of the buffer, first byte, length.
    #[getter]
    fn spans(&self) -> Vec<(u32, u32, u32)> {
        let items = self.0.items().iter();
        items
            .map(|item| (item.buffer, item.offset, item.len))
            .collect()
    }

    /// Number of bad items that the whole query has skipped so far.
    #[getter]
    fn skipped(&self) -> u64 {
        self.0.skipped()
    }

    fn __repr__(&self) -> String {
        format!("<weir.Page of {} items>", self.0.items().len())
    }

    /// # Safety
    /// Only the interpreter calls this.
    #[allow(unsafe_code, reason = "the buffer protocol requires this signature")]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let owner = slf.as_any().clone();
        let [bytes] = slf.get().0.buffers() else {
            let text = "the items lie in several buffers; see Page.buffers";
            return Err(PyBufferError::new_err(text));
        };
        // SAFETY: the page is frozen and owns its buffers.
        unsafe { buffer::fill_readonly(owner, bytes, view, flags) }
    }
}

/// One of the buffers that contain the items of a page.
#[pyclass(module = "weir", frozen)]
pub(crate) struct PageBuffer {
    page: Py<Page>,
    at: usize,
}

impl PageBuffer {
    fn bytes(&self) -> &[u8] {
        self.page
            .get()
            .0
            .buffers()
            .get(self.at)
            .map_or(&[], |buffer| buffer)
    }
}

#[pymethods]
impl PageBuffer {
    fn __len__(&self) -> usize {
        self.bytes().len()
    }

    /// # Safety
    /// Only the interpreter calls this.
    #[allow(unsafe_code, reason = "the buffer protocol requires this signature")]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let owner = slf.as_any().clone();
        // SAFETY: the object is frozen and owns a reference to the page, which owns its buffers.
        unsafe { buffer::fill_readonly(owner, slf.get().bytes(), view, flags) }
    }
}

/// One result: the bytes of a JSON value, in the page of its source. Immutable. A buffer that is
/// not copied and keeps its page alive.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Item {
    // Small, and with a reference of the interpreter, because each result creates one.
    page: Py<Page>,
    /// The index of the item in the page.
    at: u32,
    /// The range of the bytes of the item: all, or a part that `get` returned.
    start: u32,
    end: u32,
}

impl Item {
    fn new(page: &Bound<'_, Page>, at: u32, len: u32) -> Self {
        Self {
            page: page.clone().unbind(),
            at,
            start: 0,
            end: len,
        }
    }

    /// The part of an item that is a value; `None` for an undefined value.
    fn part_of(page: &Bound<'_, Page>, at: u32, value: Value) -> Option<Self> {
        (value.tag != Tag::Undefined).then(|| Self {
            start: value.span.offset,
            ..Self::new(page, at, value.span.offset + value.span.len)
        })
    }

    fn page(&self) -> &ResultPage {
        &self.page.get().0
    }

    fn span(&self) -> PyResult<&weir::query::Item> {
        let span = self.page().items().get(self.at as usize);
        span.ok_or_else(out_of_range)
    }

    fn bytes(&self) -> &[u8] {
        let page = self.page();
        let span = page.items().get(self.at as usize);
        let bytes = span.map_or(&[][..], |span| page.bytes(span));
        let part = bytes.get(self.start as usize..self.end as usize);
        part.unwrap_or_default()
    }

    fn find(&self, py: Python<'_>, path: &str) -> PyResult<Option<(value::ValueSpan, Self)>> {
        let Some(found) = value::find(py, self.bytes(), path)? else {
            return Ok(None);
        };
        let part = Self {
            page: self.page.clone_ref(py),
            at: self.at,
            start: self.start + found.start,
            end: self.start + found.end,
        };
        Ok(Some((found, part)))
    }
}

#[pymethods]
impl Item {
    /// Number of the source of the item. None for an item that the engine created (a group, an
    /// aggregate).
    #[getter]
    fn source(&self) -> PyResult<Option<u32>> {
        let source = self.span()?.source;
        Ok((source != SourceId::NONE).then_some(source.0))
    }

    /// Index of the item among all items of its page, from 0.
    #[getter]
    fn index(&self) -> PyResult<u32> {
        Ok(self.span()?.index)
    }

    /// Number of the page of the item within its source, from 0.
    #[getter]
    fn page_number(&self) -> PyResult<u64> {
        Ok(self.page().page_of(self.span()?))
    }

    /// Whether the engine created the item.
    #[getter]
    fn constructed(&self) -> PyResult<bool> {
        Ok(self.span()?.constructed)
    }

    /// The JSON text.
    fn text<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        value::text(py, self.bytes())
    }

    /// The decoded value. `loads` gets a memoryview (`json.loads` gets bytes).
    #[pyo3(signature = (loads=None))]
    fn json<'py>(
        slf: Bound<'py, Self>,
        loads: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        value::decode(slf.py(), slf.as_any().clone(), slf.get().bytes(), loads)
    }

    /// The scalar at a singular JSONPath, decoded. An array or object is returned as an item, not
    /// copied. Returns `default` if there is no value. Scans only as far as necessary.
    #[pyo3(signature = (path, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        path: &str,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some((found, part)) = self.find(py, path)? else {
            return Ok(default);
        };
        if found.nested {
            return Ok(Some(Bound::new(py, part)?.into_any()));
        }
        value::scalar(py, part.bytes()).map(Some)
    }

    /// The value of any type at a singular JSONPath, as an item that is not copied; None if there
    /// is no value.
    fn find_raw(&self, py: Python<'_>, path: &str) -> PyResult<Option<Self>> {
        Ok(self.find(py, path)?.map(|(_, part)| part))
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.bytes())
    }

    fn __len__(&self) -> usize {
        (self.end - self.start) as usize
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        let bytes = self.bytes();
        let text = String::from_utf8_lossy(bytes.get(..60).unwrap_or(bytes));
        let ellipsis = if bytes.len() > 60 { "..." } else { "" };
        format!("<weir.Item {text}{ellipsis}>")
    }

    /// # Safety
    /// Only the interpreter calls this.
    #[allow(unsafe_code, reason = "the buffer protocol requires this signature")]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let owner = slf.as_any().clone();
        // SAFETY: the item is frozen and owns a reference to the page, which owns its buffers.
        unsafe { buffer::fill_readonly(owner, slf.get().bytes(), view, flags) }
    }
}
