//! The buffer protocol: memory of this crate that Python reads, and memory that Python fills.
//!
//! Only this file has unsafe code: the protocol is two C functions that fill a struct with a
//! pointer, and no safe function allocates zeros where the memory may be refused.
//!
//! Invariants:
//! - While a view exists, this crate does not move, free or write the memory that the view reads. A
//!   view owns a reference to the object, and the object owns the memory.
//! - Memory that Python may write is transferred to the engine only if it has no view.
#![allow(
    unsafe_code,
    reason = "the buffer protocol is a C interface without a safe form"
)]

use std::alloc::{Layout, alloc_zeroed};
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

/// Longest buffer in bytes: the largest page of the engine.
const BYTES_MAX: usize = u32::MAX as usize;

/// Fills a view with immutable bytes.
///
/// # Safety
/// `view` is the argument of `__getbuffer__`: null, or a struct to be filled. `bytes` belongs to
/// `owner` and stays where it is, unchanged, as long as `owner` lives.
pub(crate) unsafe fn fill_readonly(
    owner: Bound<'_, PyAny>,
    bytes: &[u8],
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    // SAFETY: as promised by the caller; the view is marked as read-only.
    unsafe {
        fill(
            owner,
            bytes.as_ptr().cast_mut(),
            bytes.len(),
            true,
            view,
            flags,
        )
    }
}

/// Fills a view.
///
/// # Safety
/// As for [`fill_readonly`]. Without `readonly`, nobody else may read or write the bytes while the
/// view lives.
unsafe fn fill(
    owner: Bound<'_, PyAny>,
    start: *mut u8,
    len: usize,
    readonly: bool,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("there is no view to fill"));
    }
    let len = ffi::Py_ssize_t::try_from(len)
        .map_err(|_| PyBufferError::new_err("more bytes than a view can have"))?;
    // SAFETY: the view is a struct to be filled, by the contract. The function takes a reference to
    // the owner, which keeps the bytes where they are until the view is released.
    let done = unsafe {
        ffi::PyBuffer_FillInfo(
            view,
            owner.as_ptr(),
            start.cast(),
            len,
            c_int::from(readonly),
            flags,
        )
    };
    if done == -1 {
        return Err(PyErr::fetch(owner.py()));
    }
    Ok(())
}

/// Memory for a page: `readinto` fills it, then a query takes it without a copy.
///
/// The buffer is writable. `Query.enqueue` transfers its memory to the query, and the buffer is
/// then empty. This fails while a memoryview of the buffer exists.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Buffer(Mutex<Memory>);

/// The memory of a buffer.
struct Memory {
    bytes: Option<Box<[u8]>>,
    views: usize,
}

impl Buffer {
    /// Takes the memory. `len` is the number of bytes to use from the front; `None`: all.
    pub(crate) fn take(&self, len: Option<usize>) -> PyResult<(Bytes, usize)> {
        let mut memory = self.memory();
        if memory.views > 0 {
            return Err(PyBufferError::new_err("a view of the buffer is in use"));
        }
        let bytes = memory.bytes.as_ref();
        let bytes = bytes.ok_or_else(|| PyValueError::new_err("the buffer was transferred"))?;
        let len = len.unwrap_or(bytes.len());
        if len > bytes.len() {
            return Err(PyValueError::new_err("length is more than the buffer has"));
        }
        let bytes = memory.bytes.take().unwrap_or_default();
        Ok((Bytes::from(bytes), len))
    }

    /// Returns memory that was taken and not used. Copies it if another owner still has a part of
    /// it.
    pub(crate) fn put_back(&self, bytes: Bytes) {
        self.memory().bytes = Some(Vec::from(bytes).into_boxed_slice());
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        // Locked for a few instructions, never during a wait.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `size` zeros. The memory is not touched before it is written.
///
/// # Errors
/// `MemoryError` if there is not enough memory.
fn zeros(size: usize) -> PyResult<Box<[u8]>> {
    if size == 0 {
        return Ok(Box::default());
    }
    let refused = || PyMemoryError::new_err("there is not enough memory for the buffer");
    let layout = Layout::array::<u8>(size).map_err(|_| refused())?;
    // SAFETY: the layout has a size that is not 0.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        return Err(refused());
    }
    // SAFETY: the memory is from the global allocator, with this layout, and all its bytes are
    // initialised.
    Ok(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(memory, size)) })
}

#[pymethods]
impl Buffer {
    /// Creates a buffer of `size` bytes, all zero.
    #[new]
    fn new(size: usize) -> PyResult<Self> {
        if size > BYTES_MAX {
            return Err(PyValueError::new_err("a page has at most 4 GiB"));
        }
        Ok(Self(Mutex::new(Memory {
            bytes: Some(zeros(size)?),
            views: 0,
        })))
    }

    fn __len__(&self) -> usize {
        self.memory().bytes.as_ref().map_or(0, |bytes| bytes.len())
    }

    fn __repr__(&self) -> String {
        match &self.memory().bytes {
            Some(bytes) => format!("<weir.Buffer of {} bytes>", bytes.len()),
            None => "<weir.Buffer, transferred>".to_owned(),
        }
    }

    /// # Safety
    /// Only the interpreter calls this.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let mut memory = slf.get().memory();
        let Some(bytes) = &mut memory.bytes else {
            return Err(PyBufferError::new_err("the buffer was transferred"));
        };
        let (start, len) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: the box is not read, moved or freed here while `views` is not 0.
        unsafe { fill(slf.as_any().clone(), start, len, false, view, flags)? };
        memory.views += 1;
        Ok(())
    }

    /// # Safety
    /// Only the interpreter calls this, once for each view.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        let mut memory = self.memory();
        memory.views = memory.views.saturating_sub(1);
    }
}
