//! Records of topics, and pages of them. Values are not copied.

use std::ffi::c_int;

use bytes::Bytes;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};
use weir::{Page, RecordKind, StoreError, Value, Work};

use crate::buffer;
use crate::error::{Failure, Result};
use crate::result::{Index, out_of_range};
use crate::value;

/// Characters of a key or value in the `repr` of a record.
const SUMMARY_CHARS: usize = 100;

/// The beginning of a text, in quotes if `quoted`, or the number of bytes if they are not UTF-8.
fn summary(bytes: &[u8], quoted: bool) -> String {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return format!("<{} bytes>", bytes.len());
    };
    let (start, rest) = match text.char_indices().nth(SUMMARY_CHARS) {
        Some((end, _)) => (text.get(..end).unwrap_or(text), "…"),
        None => (text, ""),
    };
    if quoted {
        format!("{start:?}{rest}")
    } else {
        let line: String = start.chars().map(printable).collect();
        format!("{line}{rest}")
    }
}

/// A character in a line of text: white space is a blank, other control characters are U+FFFD.
fn printable(c: char) -> char {
    match c {
        '\t' | '\n' | '\r' => ' ',
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    }
}

/// The owner of the bytes of a record.
enum RecordOwner {
    Page(Bytes),
    Value(Value),
    Work(Box<Work>),
}

/// The fields of a record other than its value.
#[derive(Clone)]
struct Head {
    offset: u64,
    intention: u64,
    time_ms: u64,
    kind: &'static str,
    key: Bytes,
    meta: Bytes,
    client: [u8; 16],
    nonce: u64,
    txn: bool,
    last: bool,
}

impl Head {
    fn of(record: &weir::Record<'_>, bytes: impl Fn(&[u8]) -> Bytes) -> Self {
        Self {
            offset: record.offset.0,
            intention: record.intention.0,
            time_ms: record.time_ms,
            kind: record.kind.name(),
            key: bytes(record.key),
            meta: bytes(record.meta),
            client: record.client.0,
            nonce: record.nonce,
            txn: record.flags.txn(),
            last: record.flags.last(),
        }
    }
}

/// A record: the entry of an intention in a topic. Immutable. A buffer of its value, which is not
/// copied and lives as long as the record or a view of it.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Record {
    head: Head,
    owner: RecordOwner,
    replay: bool,
}

impl Record {
    /// A record that was found by key or offset.
    pub(crate) fn of_value(value: Value) -> Self {
        let head = Head::of(&value.record(), Bytes::copy_from_slice);
        Self {
            head,
            owner: RecordOwner::Value(value),
            replay: false,
        }
    }

    /// A record that a member of a group has claimed.
    pub(crate) fn of_work(work: Work) -> Self {
        let head = Head::of(&work.record(), Bytes::copy_from_slice);
        Self {
            head,
            owner: RecordOwner::Work(Box::new(work)),
            replay: false,
        }
    }

    /// Marks whether the record was written before the reading began.
    pub(crate) fn with_replay(mut self, replay: bool) -> Self {
        self.replay = replay;
        self
    }

    /// Whether the record has a value, possibly an empty one.
    fn has_value(&self) -> bool {
        self.head.kind == RecordKind::Put.name() || !self.bytes().is_empty()
    }

    fn bytes(&self) -> &[u8] {
        match &self.owner {
            RecordOwner::Page(bytes) => bytes,
            RecordOwner::Value(value) => value.value(),
            RecordOwner::Work(work) => work.record().value,
        }
    }
}

#[pymethods]
impl Record {
    /// Position in the topic, from 1.
    #[getter]
    fn offset(&self) -> u64 {
        self.head.offset
    }

    /// Position of the intention in the global order.
    #[getter]
    fn intention(&self) -> u64 {
        self.head.intention
    }

    /// When the intention was proposed, in milliseconds since 1970-01-01 UTC.
    #[getter]
    fn time_ms(&self) -> u64 {
        self.head.time_ms
    }

    /// "PUT", "DELETE", "CREATE", "DESTROY", "ALTER" or "REPLACE".
    #[getter]
    fn kind(&self) -> &'static str {
        self.head.kind
    }

    /// The key; empty if there is none.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.head.key)
    }

    /// The value, copied; `memoryview(record)` does not copy.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.bytes())
    }

    /// Metadata, which the store does not interpret.
    #[getter]
    fn meta<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.head.meta)
    }

    /// Id of the client that wrote the record, 16 bytes; all zeros without a session.
    #[getter]
    fn client<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.head.client)
    }

    /// Number of the intention in its session; 0 without a session.
    #[getter]
    fn nonce(&self) -> u64 {
        self.head.nonce
    }

    /// Whether the record is part of a transaction.
    #[getter]
    fn transaction(&self) -> bool {
        self.head.txn
    }

    /// Whether the record is the last one of its intention.
    #[getter]
    fn final_(&self) -> bool {
        self.head.last
    }

    /// From `Topic.latest`: whether the record was written before the reading began.
    #[getter]
    fn replay(&self) -> bool {
        self.replay
    }

    /// The value as text.
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

    /// The scalar at a singular JSONPath in the value, decoded. An array or object is returned as
    /// bytes. Returns `default` if there is no value. Scans only as far as necessary.
    #[pyo3(signature = (path, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        path: &str,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let bytes = self.bytes();
        let Some(found) = value::find(py, bytes, path)? else {
            return Ok(default);
        };
        let part = bytes
            .get(found.start as usize..found.end as usize)
            .unwrap_or_default();
        if found.nested {
            return Ok(Some(PyBytes::new(py, part).into_any()));
        }
        value::scalar(py, part).map(Some)
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.value(py)
    }

    fn __len__(&self) -> usize {
        self.bytes().len()
    }

    fn __bool__(&self) -> bool {
        true
    }

    /// A summary for people: offset, kind, key, and the beginning of the value if the record has one.
    fn __str__(&self) -> String {
        let Head {
            offset, kind, key, ..
        } = &self.head;
        let shown = summary(key, false);
        if self.has_value() {
            let value = summary(self.bytes(), false);
            return format!("{offset} {kind} {shown}={value}");
        }
        if key.is_empty() {
            return format!("{offset} {kind}");
        }
        format!("{offset} {kind} {shown}")
    }

    fn __repr__(&self) -> String {
        let Head {
            offset, kind, key, ..
        } = &self.head;
        let key = if self.has_value() || !key.is_empty() {
            format!(" key={}", summary(key, true))
        } else {
            String::new()
        };
        let value = if self.has_value() {
            format!(" value={}", summary(self.bytes(), true))
        } else {
            String::new()
        };
        format!("<weir.Record {offset} {kind}{key}{value}>")
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
        // SAFETY: the record is frozen and owns the memory of its value.
        unsafe { buffer::fill_readonly(owner, slf.get().bytes(), view, flags) }
    }
}

/// Adjacent records, in order: a sequence. Immutable. Any thread may use it, also after the store
/// is closed. A buffer of the whole block that contains the records.
#[pyclass(module = "weir", frozen, sequence)]
pub(crate) struct RecordPage {
    bytes: Bytes,
    records: Vec<(Head, Bytes)>,
}

impl RecordPage {
    pub(crate) fn new(page: Page) -> Result<Self> {
        let bytes = page.bytes();
        let part = |part: &[u8]| {
            if part.is_empty() {
                Bytes::new()
            } else {
                bytes.slice_ref(part)
            }
        };
        let records = page
            .iter()
            .map(|record| {
                let record = record?;
                Ok((Head::of(&record, part), part(record.value)))
            })
            .collect::<Result<_, StoreError>>()
            .map_err(Failure::from)?;
        Ok(Self { bytes, records })
    }

    fn record(&self, at: usize) -> Option<Record> {
        let (head, value) = self.records.get(at)?;
        Some(Record {
            head: head.clone(),
            owner: RecordOwner::Page(value.clone()),
            replay: false,
        })
    }
}

#[pymethods]
impl RecordPage {
    fn __len__(&self) -> usize {
        self.records.len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: Index<'py>) -> PyResult<Bound<'py, PyAny>> {
        index.select(py, self.records.len(), |at| {
            let record = self.record(at).ok_or_else(out_of_range)?;
            Ok(Bound::new(py, record)?.into_any())
        })
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let all = (0..self.records.len()).filter_map(|at| self.record(at));
        let all: Vec<Record> = all.collect();
        Ok(PyList::new(py, all)?.try_iter()?.into_any())
    }

    /// Offset of the first record.
    #[getter]
    fn first(&self) -> Option<u64> {
        self.records.first().map(|(head, _)| head.offset)
    }

    /// Offset of the last record, after which a reader resumes.
    #[getter]
    fn last(&self) -> Option<u64> {
        self.records.last().map(|(head, _)| head.offset)
    }

    fn __repr__(&self) -> String {
        format!("<weir.RecordPage of {} records>", self.records.len())
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
        // SAFETY: the page is frozen and owns its bytes.
        unsafe { buffer::fill_readonly(owner, &slf.get().bytes, view, flags) }
    }
}
