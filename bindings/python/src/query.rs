//! The query engine over pages of JSON from any source.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMapping};
use weir::ErrorCode;
use weir::query::{
    BadItem, Bounds, Budgets, Complex, Level, Missing, Mode, PageIn, QueryText, SourceId,
    SourceOptions, Step, Strings,
};

use crate::buffer::Buffer;
use crate::data::Data;
use crate::error::{Failure, Result};
use crate::exclusive::Exclusive;
use crate::frames::{self, Frames};
use crate::result::Page;
use crate::value::RELEASE_BYTES;

/// A query over pages of JSON: ordered merge, filter, groups, limits. It does no I/O: `next`
/// returns the needed pages, and the caller fetches them. One thread at a time may use it.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Query {
    query: Exclusive<weir::query::Query>,
    /// Number of calls that advanced a source.
    advanced: AtomicU64,
}

impl Query {
    fn with<T>(&self, work: impl FnOnce(&mut weir::query::Query) -> Result<T>) -> Result<T> {
        work(&mut *self.query.lock()?)
    }

    /// Like `with`, for calls that advance a source.
    fn advance<T>(&self, work: impl FnOnce(&mut weir::query::Query) -> Result<T>) -> Result<T> {
        let done = self.with(work)?;
        self.advanced.fetch_add(1, Relaxed);
        Ok(done)
    }
}

/// The value of an option that accepts certain words.
fn word<T: Copy>(what: &str, words: &[(&str, T)], value: &str) -> Result<T> {
    let Some((_, found)) = words.iter().find(|(word, _)| *word == value) else {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        return Err(Failure::word(what, value, &words));
    };
    Ok(*found)
}

const LEVELS: &[(&str, Level)] = &[
    ("none", Level::None),
    ("structural", Level::Structural),
    ("strict", Level::Strict),
];

/// A JSON scalar from a Python object. A `str` becomes a JSON string; it is not JSON text.
fn scalar(value: &Bound<'_, PyAny>) -> PyResult<String> {
    value
        .py()
        .import("json")?
        .call_method1("dumps", (value,))?
        .extract()
}

/// The fields of a query by name.
pub(crate) fn text(fields: Option<&Bound<'_, PyDict>>) -> PyResult<QueryText> {
    let modes = [
        Mode::Sequential,
        Mode::Arrival,
        Mode::RoundRobin,
        Mode::Merge,
        Mode::Sort,
    ];
    let modes = modes.map(|mode| (mode.name(), mode));
    let mut text = QueryText::default();
    for (name, value) in fields.into_iter().flat_map(PyDictMethods::iter) {
        let name: String = name.extract()?;
        match name.as_str() {
            "where" => text.filter = value.extract()?,
            "order" => text.order = value.extract()?,
            "select" => text.select = value.extract()?,
            "group" => text.group = value.extract()?,
            "distinct" => text.distinct = value.extract()?,
            "offset" => text.offset = value.extract()?,
            "limit" => text.limit = value.extract()?,
            "top" => text.top = value.extract()?,
            "params" if value.is_none() => {}
            "params" => {
                for (name, value) in value.cast::<PyDict>()?.iter() {
                    text.params.push((name.extract()?, scalar(&value)?));
                }
            }
            "strings" => {
                let words = [("scalar", Strings::Scalar), ("utf16", Strings::Utf16)];
                text.strings = word("strings", &words, value.extract()?)?;
            }
            "complex" => {
                let words = [("error", Complex::Error), ("rank", Complex::Rank)];
                text.complex = word("complex", &words, value.extract()?)?;
            }
            "missing" => {
                let words = [("first", Missing::First), ("drop", Missing::Drop)];
                text.missing = word("missing", &words, value.extract()?)?;
            }
            "level" => text.level = word("level", LEVELS, value.extract()?)?,
            "on_bad_item" => {
                let words = [
                    ("error", BadItem::Error),
                    ("skip", BadItem::Skip),
                    ("undefined", BadItem::Undefined),
                ];
                text.on_bad_item = word("on_bad_item", &words, value.extract()?)?;
            }
            "mode" if value.is_none() => text.mode = None,
            "mode" => text.mode = Some(word("mode", &modes, value.extract()?)?),
            _ => {
                let what = format!("a query has no field {name:?}");
                return Err(pyo3::exceptions::PyTypeError::new_err(what));
            }
        }
    }
    Ok(text)
}

/// Budgets by name.
pub(crate) fn budgets(
    mut budgets: Budgets,
    fields: Option<&Bound<'_, PyDict>>,
) -> PyResult<Budgets> {
    for (name, value) in fields
        .into_iter()
        .flat_map(pyo3::types::PyDictMethods::iter)
    {
        let name: String = name.extract()?;
        match name.as_str() {
            "buffer_bytes_max" => budgets.buffer_bytes_max = value.extract()?,
            "pages_ahead" => budgets.pages_ahead = value.extract()?,
            "sort_bytes_max" => budgets.sort_bytes_max = value.extract()?,
            "groups_max" => budgets.groups_max = value.extract()?,
            "distinct_max" => budgets.distinct_max = value.extract()?,
            "sources_max" => budgets.sources_max = value.extract()?,
            "page_bytes_max" => budgets.page_bytes_max = value.extract()?,
            "item_bytes_max" => budgets.item_bytes_max = value.extract()?,
            "depth_max" => budgets.depth_max = value.extract()?,
            "page_bytes_hint" => budgets.page_bytes_hint = value.extract()?,
            _ => {
                let text = format!("there is no budget {name:?}");
                return Err(pyo3::exceptions::PyTypeError::new_err(text));
            }
        }
    }
    Ok(budgets)
}

/// Options of a source by name.
fn source_options(
    name: Option<Data>,
    fields: Option<&Bound<'_, PyDict>>,
) -> PyResult<SourceOptions> {
    let mut options = SourceOptions {
        name: name.map(|name| name.as_ref().to_vec()).unwrap_or_default(),
        ..SourceOptions::default()
    };
    for (name, value) in fields
        .into_iter()
        .flat_map(pyo3::types::PyDictMethods::iter)
    {
        let name: String = name.extract()?;
        match name.as_str() {
            "name" => options.name = value.extract::<Data>()?.as_ref().to_vec(),
            "sorted" => options.sorted = value.extract()?,
            "shape" => {
                let shape = weir::query::parse_shape(value.extract()?);
                options.shape = shape.map_err(Failure::from)?;
            }
            "level" if value.is_none() => options.level = None,
            "level" => options.level = Some(word("level", LEVELS, value.extract()?)?),
            "first" => {
                let first = value.extract::<Option<Data>>()?;
                options.first = first.map(|first| Bytes::copy_from_slice(first.as_ref()));
            }
            "ordinal" => options.ordinal = value.extract()?,
            "trust_order" => options.trust_order = value.extract()?,
            "stable" => options.stable = value.extract()?,
            "tie" => options.tie = value.extract()?,
            "partial" => options.partial = value.extract()?,
            "bound" if value.is_none() => options.bound = None,
            "bound" => {
                let bound = value.try_iter()?.map(|key| scalar(&key?));
                options.bound = Some(bound.collect::<PyResult<_>>()?);
            }
            "meta" => {
                for (name, value) in value.cast::<PyDict>()?.iter() {
                    options.meta.push((name.extract()?, scalar(&value)?));
                }
            }
            _ => {
                let text = format!("a source has no option {name:?}");
                return Err(pyo3::exceptions::PyTypeError::new_err(text));
            }
        }
    }
    Ok(options)
}

/// A source, or its number.
#[derive(FromPyObject)]
pub(crate) enum AnySource<'py> {
    Source(Bound<'py, Source>),
    Number(u32),
}

impl AnySource<'_> {
    fn id(&self) -> SourceId {
        match self {
            Self::Source(source) => source.get().id,
            Self::Number(number) => SourceId(*number),
        }
    }
}

/// The buffer of a page, and its bytes, which return to the buffer if a query rejects the page.
type BufferLoan<'py> = Option<(Bound<'py, Buffer>, Bytes)>;

/// Converts a page. Moves the memory out of a `Buffer`. Other objects are read in place or copied.
fn page<'py>(
    data: &Bound<'py, PyAny>,
    length: Option<usize>,
) -> PyResult<(Bytes, BufferLoan<'py>)> {
    if let Ok(buffer) = data.cast::<Buffer>() {
        let (memory, length) = buffer.get().take(length)?;
        return Ok((memory.slice(..length), Some((buffer.clone(), memory))));
    }
    let bytes = data.extract::<Data>()?.into_bytes();
    match length {
        None => Ok((bytes, None)),
        Some(length) if length <= bytes.len() => Ok((bytes.slice(..length), None)),
        Some(_) => Err(pyo3::exceptions::PyValueError::new_err(
            "length is more than the page has",
        )),
    }
}

#[pymethods]
impl Query {
    /// `where` is a JSONPath filter in which `@` is the item. `order`, `select` and `group` are
    /// lists as in `docs/guide/query.md`. `params` are the values of `param('name')`.
    ///
    /// `strings` is "scalar" or "utf16". `complex` (arrays and objects as order keys) is "error" or
    /// "rank". `missing` (items without an order key) is "first" or "drop". `level` is "structural"
    /// or "strict". `on_bad_item` (in lines) is "error", "skip" or "undefined". `mode` is None,
    /// "sequential", "arrival", "round_robin", "merge" or "sort". `budgets` limits the memory of
    /// the query. `token` resumes the query that returned it; the fields must be equal.
    ///
    /// Raises QueryError with the field and the byte that is wrong.
    #[new]
    #[pyo3(signature = (*, budgets=None, token=None, **fields))]
    fn new(
        budgets: Option<&Bound<'_, PyDict>>,
        token: Option<Data>,
        fields: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let text = text(fields)?;
        let budgets = self::budgets(Budgets::default(), budgets)?;
        let plan = Arc::new(text.compile().map_err(Failure::from)?);
        let query = match token {
            None => weir::query::Query::new(plan, budgets),
            Some(token) => {
                weir::query::Query::resume(plan, budgets, token.as_ref()).map_err(Failure::from)?
            }
        };
        Ok(Self {
            query: Exclusive::new(query),
            advanced: AtomicU64::new(0),
        })
    }

    /// Adds a source.
    ///
    /// `name` is the name in messages and tokens. Options: sorted (items arrive in the order of the
    /// query), shape ("array", "lines", "values", "single", "framed", or "member:PATH" with the
    /// path of the array), level, first (the name of the first page), ordinal (rank among equal
    /// items), stable (a continuation always returns the same items), tie, meta, bound, partial,
    /// trust_order.
    #[pyo3(signature = (name=None, **options))]
    fn add_source<'py>(
        slf: Bound<'py, Self>,
        name: Option<Data>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Source> {
        let options = source_options(name, options)?;
        let id = slf.get().with(|query| Ok(query.add_source(options)?))?;
        Ok(Source {
            query: slf.unbind(),
            id,
        })
    }

    /// Enqueues a page of a source. `next` names the next page; None: the page is the last.
    ///
    /// `bytes` and `str` are referenced and not copied. The memory of a `Buffer` is moved. Other
    /// buffers are copied. With `length`, only that many bytes from the front are used.
    ///
    /// For the shape "framed", `frames` has offset and length of each item. `meta` maps the name of
    /// each property that the query uses to one value for each item: a number, offset and length of
    /// bytes in the page, or None.
    ///
    /// Raises QueryError with source, item and byte. The query is then unchanged, and a `Buffer`
    /// has its memory again.
    #[pyo3(signature = (source, data, next=None, *, length=None, frames=None, meta=None))]
    fn enqueue(
        &self,
        py: Python<'_>,
        source: AnySource<'_>,
        data: &Bound<'_, PyAny>,
        next: Option<Data>,
        length: Option<usize>,
        frames: Option<Frames>,
        meta: Option<&Bound<'_, PyMapping>>,
    ) -> PyResult<()> {
        let id = source.id();
        let frames = match (frames, meta) {
            (None, None) => None,
            (frames, meta) => {
                let columns = frames::columns(meta)?;
                let frames = frames.unwrap_or_default();
                Some(self.with(|query| frames::convert(query.plan(), &frames, &columns))?)
            }
        };
        let (bytes, loan) = page(data, length)?;
        let next = next.map(|next| Bytes::copy_from_slice(next.as_ref()));
        let large = bytes.len() > RELEASE_BYTES;
        let page = PageIn { bytes, frames };
        let work = || self.advance(|query| Ok(query.enqueue(id, page, next)?));
        let done = if large { py.detach(work) } else { work() };
        if done.is_err()
            && let Some((buffer, memory)) = loan
        {
            buffer.get().put_back(memory);
        }
        Ok(done?)
    }

    /// Ends a source: it has no more pages.
    fn finish(&self, source: AnySource<'_>) -> PyResult<()> {
        let id = source.id();
        Ok(self.advance(|query| Ok(query.finish(id)?))?)
    }

    /// Declares that a source of the query that returned the token no longer exists, so its
    /// remaining rows never arrive. While a source of that query is neither added nor abandoned,
    /// `next` raises QueryError SOURCES_OWED, which is not final.
    fn abandon(&self, name: Data) -> PyResult<()> {
        Ok(self.with(|query| Ok(query.abandon(name.as_ref())?))?)
    }

    /// Declares that a source has no more items below these order keys.
    #[pyo3(signature = (source, *keys))]
    fn watermark(&self, source: AnySource<'_>, keys: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        let id = source.id();
        let keys: Vec<String> = keys.iter().map(scalar).collect::<PyResult<_>>()?;
        Ok(self.advance(|query| Ok(query.watermark(id, &keys)?))?)
    }

    /// Replaces a source that was split by its parts, after its last enqueued page. Each part is a
    /// dict with the options of `add_source`.
    fn replace<'py>(
        slf: Bound<'py, Self>,
        source: AnySource<'py>,
        parts: Vec<Bound<'py, PyDict>>,
    ) -> PyResult<Vec<Source>> {
        let id = source.id();
        let parts = parts.iter().map(|part| source_options(None, Some(part)));
        let parts = parts.collect::<PyResult<Vec<_>>>()?;
        let ids = slf.get().advance(|query| Ok(query.replace(id, parts)?))?;
        let ids = ids.into_iter();
        Ok(ids
            .map(|id| Source {
                query: slf.clone().unbind(),
                id,
            })
            .collect())
    }

    /// Returns a `Page` if there are results, a list of `Need` if pages are missing, None at the
    /// end.
    ///
    /// Raises QueryError, which is final.
    #[pyo3(signature = (max_items=256, max_bytes=1 << 20))]
    fn next(
        slf: Bound<'_, Self>,
        max_items: usize,
        max_bytes: u64,
    ) -> PyResult<Option<Bound<'_, PyAny>>> {
        let py = slf.py();
        let bounds = Bounds {
            items_max: max_items,
            bytes_max: max_bytes,
        };
        let query = slf.get();
        match py.detach(|| query.with(|query| Ok(query.next(bounds)?)))? {
            Step::Done => Ok(None),
            Step::Ready(page) => Ok(Some(Bound::new(py, Page::new(page))?.into_any())),
            Step::Need(needs) => Ok(Some(Need::list(&slf, needs)?.into_any())),
        }
    }

    /// The pages that the query requests now: a list of `Need`.
    fn needs(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyList>> {
        let needs = slf.get().with(|query| Ok(query.needs()))?;
        Need::list(&slf, needs)
    }

    /// A token with which a query resumes later, at most 64 KiB.
    ///
    /// Raises QueryError NO_TOKEN if the query cannot be resumed.
    fn token<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let token = self.with(|query| Ok(query.token()?))?;
        Ok(PyBytes::new(py, &token))
    }

    /// A description of the execution, for people.
    fn explain(&self) -> PyResult<String> {
        Ok(self.with(|query| Ok(query.explain().to_string()))?)
    }

    /// Name of a source by its number; None if there is no such source.
    fn source_name<'py>(
        &self,
        py: Python<'py>,
        number: u32,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let id = SourceId(number);
        let name = self.with(|query| Ok(query.source_name(id).map(<[u8]>::to_vec)))?;
        Ok(name.map(|name| PyBytes::new(py, &name)))
    }

    /// How often a source was advanced, for loops over results.
    #[getter]
    fn _advanced(&self) -> u64 {
        self.advanced.load(Relaxed)
    }

    /// Raises the error for a required page that was not enqueued.
    fn _missing_page_error(&self, source: AnySource<'_>, fetched: bool) -> PyResult<()> {
        let id = source.id();
        let name = self.with(|query| Ok(query.source_name(id).map(<[u8]>::to_vec)))?;
        let name = match String::from_utf8_lossy(&name.unwrap_or_default()) {
            name if name.is_empty() => format!("number {id}"),
            name => name.into_owned(),
        };
        let text = if fetched {
            format!("`fetch` enqueued nothing, and a page of source {name} is needed")
        } else {
            format!("a page of source {name} is needed; give `fetch`")
        };
        Err(Failure::new(ErrorCode::BadOption, text).into())
    }

    /// Bytes of referenced pages, including those of results.
    #[getter]
    fn buffered_bytes(&self) -> PyResult<u64> {
        Ok(self.with(|query| Ok(query.buffered_bytes()))?)
    }

    /// Number of bad items that were skipped so far.
    #[getter]
    fn skipped(&self) -> PyResult<u64> {
        Ok(self.with(|query| Ok(query.skipped()))?)
    }
}

/// A source of a query.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Source {
    query: Py<Query>,
    id: SourceId,
}

#[pymethods]
impl Source {
    /// The number of the source, which items refer to.
    #[getter]
    fn number(&self) -> u32 {
        self.id.0
    }

    /// The name of the source.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let name = self.query.bind(py).get().source_name(py, self.id.0)?;
        Ok(name.unwrap_or_else(|| PyBytes::new(py, b"")))
    }

    /// See `Query.enqueue`.
    #[pyo3(signature = (data, next=None, *, length=None, frames=None, meta=None))]
    fn enqueue(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        next: Option<Data>,
        length: Option<usize>,
        frames: Option<Frames>,
        meta: Option<&Bound<'_, PyMapping>>,
    ) -> PyResult<()> {
        let query = self.query.bind(py).get();
        let source = AnySource::Number(self.id.0);
        query.enqueue(py, source, data, next, length, frames, meta)
    }

    /// See `Query.finish`.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.query
            .bind(py)
            .get()
            .finish(AnySource::Number(self.id.0))
    }

    /// See `Query.watermark`.
    #[pyo3(signature = (*keys))]
    fn watermark(&self, py: Python<'_>, keys: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        self.query
            .bind(py)
            .get()
            .watermark(AnySource::Number(self.id.0), keys)
    }

    /// See `Query.replace`.
    fn replace<'py>(
        &self,
        py: Python<'py>,
        parts: Vec<Bound<'py, PyDict>>,
    ) -> PyResult<Vec<Source>> {
        let query = self.query.bind(py).clone();
        Query::replace(query, AnySource::Number(self.id.0), parts)
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.id == other.id && self.query.is(&other.query)
    }

    fn __hash__(&self) -> u64 {
        u64::from(self.id.0)
    }

    fn __repr__(&self) -> String {
        format!("<weir.Source {}>", self.id)
    }
}

/// A page that the query requests.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Need {
    query: Py<Query>,
    need: weir::query::Need,
}

impl Need {
    fn list<'py>(
        query: &Bound<'py, Query>,
        needs: Vec<weir::query::Need>,
    ) -> PyResult<Bound<'py, PyList>> {
        let needs = needs.into_iter();
        let needs = needs.map(|need| Self {
            query: query.clone().unbind(),
            need,
        });
        PyList::new(query.py(), needs.collect::<Vec<_>>())
    }
}

#[pymethods]
impl Need {
    /// The source of the page.
    #[getter]
    fn source(&self, py: Python<'_>) -> Source {
        Source {
            query: self.query.clone_ref(py),
            id: self.need.source,
        }
    }

    /// The name of the page; None for a first page without a name.
    #[getter]
    fn continuation<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        let continuation = self.need.continuation.as_ref();
        continuation.map(|bytes| PyBytes::new(py, bytes))
    }

    /// Whether the next result needs the page; otherwise it is a page ahead.
    #[getter]
    fn required(&self) -> bool {
        self.need.required
    }

    /// Suggested size in bytes.
    #[getter]
    fn bytes(&self) -> u64 {
        self.need.bytes
    }

    fn __repr__(&self) -> String {
        let word = if self.need.required {
            "required"
        } else {
            "ahead"
        };
        format!("<weir.Need of source {}, {word}>", self.need.source)
    }
}
