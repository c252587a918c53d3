//! Bytes from Python: text, bytes, and any object with a buffer.
//!
//! `bytes` and `str` are immutable, so they are read in place; everything else is copied.

use bytes::Bytes;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};

/// Bytes of the caller, valid beyond the call.
pub(crate) enum Data {
    /// Bytes of a `bytes` object, to which this is a reference.
    Bytes(PyBackedBytes),
    /// UTF-8 of a `str`, to which this is a reference.
    Text(PyBackedStr),
    /// A copy.
    Copy(Vec<u8>),
}

impl AsRef<[u8]> for Data {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Text(text) => text.as_bytes(),
            Self::Copy(bytes) => bytes,
        }
    }
}

impl Data {
    /// Like `as_ref`, as a page; nothing is copied.
    pub(crate) fn into_bytes(self) -> Bytes {
        match self {
            Self::Copy(bytes) => Bytes::from(bytes),
            owned => Bytes::from_owner(owned),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Data {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self::Bytes(PyBackedBytes::from(bytes.to_owned())));
        }
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(Self::Text(PyBackedStr::try_from(text.to_owned())?));
        }
        let Ok(buffer) = PyBuffer::<u8>::get(&object) else {
            let kind = object.get_type().name()?;
            let text = format!("bytes, str or a buffer of bytes is needed, not {kind}");
            return Err(PyTypeError::new_err(text));
        };
        Ok(Self::Copy(buffer.to_vec(object.py())?))
    }
}

/// The value of a record: bytes as [`Data`], or a `dict` or `list` that is converted to JSON.
pub(crate) struct Content(Data);

impl AsRef<[u8]> for Content {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref()
    }
}

impl<'py> FromPyObject<'_, 'py> for Content {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.cast::<PyDict>().is_ok() || object.cast::<PyList>().is_ok() {
            let text = encode(object.py())?.call1((object,))?;
            return text.extract().map(Self);
        }
        if object.is_instance_of::<PyInt>()
            || object.is_instance_of::<PyFloat>()
            || object.is_none()
        {
            let kind = object.get_type().name()?;
            let text = format!("a value is a str, bytes, a dict or a list, not {kind}");
            return Err(PyTypeError::new_err(text));
        }
        object.extract().map(Self)
    }
}

/// The method `encode` of an encoder of the standard library: the shortest JSON, in UTF-8 and
/// without numbers that JSON lacks.
fn encode(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static ENCODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let encode = ENCODE.get_or_try_init(py, || {
        let options = PyDict::new(py);
        options.set_item("ensure_ascii", false)?;
        options.set_item("allow_nan", false)?;
        options.set_item("separators", (",", ":"))?;
        let class = py.import("json")?.getattr("JSONEncoder")?;
        let encoder = class.call((), Some(&options))?;
        PyResult::Ok(encoder.getattr("encode")?.unbind())
    })?;
    Ok(encode.bind(py))
}
