//! Functions on the bytes of a JSON value, for records and for items of results. The caller keeps
//! the bytes alive.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyString};
use weir::query::{Path, PathSet, Tag, path_error_code};

use crate::error::{Failure, Result};

/// Size in bytes above which a scan releases the interpreter.
pub(crate) const RELEASE_BYTES: usize = 32 << 10;

/// The bytes of a value in its item, and whether it is an array or object.
pub(crate) struct ValueSpan {
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) nested: bool,
}

/// Compiles paths.
///
/// # Errors
/// `SYNTAX` if a text is not a path, `NOT_SINGULAR` if it can find several values, `TOO_COMPLEX` if
/// it is too long or there are too many.
pub(crate) fn path_set(texts: &[impl AsRef<str>]) -> Result<PathSet> {
    let path = |text: &str| {
        Path::parse(text).map_err(|error| {
            let code = path_error_code(error.kind);
            Failure::new(code, format!("path {text:?}: {error}"))
        })
    };
    let paths = texts.iter().map(|text| path(text.as_ref()));
    PathSet::new(&paths.collect::<Result<Vec<_>>>()?)
        .map_err(|error| Failure::new(weir::ErrorCode::TooComplex, error.to_string()))
}

/// Returns the value at a singular path; `None` if the item has no value there.
///
/// # Errors
/// As [`path_set`]; `NOT_JSON` if the item is not JSON up to the value.
pub(crate) fn find(py: Python<'_>, item: &[u8], path: &str) -> Result<Option<ValueSpan>> {
    let search = || {
        let paths = path_set(&[path])?;
        let mut found = Vec::new();
        weir::query::find(item, &paths, &mut found)
            .map_err(|error| Failure::new(weir::ErrorCode::NotJson, error.to_string()))?;
        let value = found.first().filter(|value| value.tag != Tag::Undefined);
        Ok(value.map(|value| ValueSpan {
            start: value.span.offset,
            end: value.span.offset + value.span.len,
            nested: value.tag >= Tag::Array,
        }))
    };
    if item.len() > RELEASE_BYTES {
        py.detach(search)
    } else {
        search()
    }
}

/// `json.loads` of the standard library.
pub(crate) fn loads(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let loads = LOADS.get_or_try_init(py, || {
        PyResult::Ok(py.import("json")?.getattr("loads")?.unbind())
    })?;
    Ok(loads.bind(py))
}

/// Decodes a scalar into the object that `json.loads` returns for it.
pub(crate) fn scalar<'py>(py: Python<'py>, literal: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    loads(py)?.call1((PyBytes::new(py, literal),))
}

/// Decodes all bytes: with `json.loads`, which gets bytes, or with a function that gets a view.
pub(crate) fn decode<'py>(
    py: Python<'py>,
    view: Bound<'py, PyAny>,
    bytes: &[u8],
    with: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    match with {
        Some(with) if !with.is(loads(py)?) => {
            let memory = pyo3::types::PyMemoryView::from(&view)?;
            with.call1((memory,))
        }
        _ => loads(py)?.call1((PyBytes::new(py, bytes),)),
    }
}

/// All bytes as text.
pub(crate) fn text<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    PyString::from_bytes(py, bytes)
}
