//! Handles of a store, whose drop may wait for the disk, or for the answers of a server.
//!
//! Invariants:
//! - The interpreter is released during the drop.
//! - A forked process neither uses nor drops a handle of its parent: the threads of the store run in
//!   the parent only, and both processes would write to the same files and connections.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use weir::ErrorCode;

use crate::error::{Failure, Result};

/// A handle of a store, or of an object of a store.
pub(crate) struct StoreHandle<T: Send> {
    /// `None` only during the drop.
    inner: Option<T>,
    /// Whether the store was closed.
    closed: Arc<AtomicBool>,
    /// The process that created the handle.
    process: u32,
}

impl<T: Send> StoreHandle<T> {
    /// `closed` is set when the store is closed.
    pub(crate) fn new(inner: T, closed: &Arc<AtomicBool>) -> Self {
        Self {
            inner: Some(inner),
            closed: Arc::clone(closed),
            process: std::process::id(),
        }
    }

    /// A handle of an object that was opened through this handle.
    pub(crate) fn opened<U: Send>(&self, object: U) -> StoreHandle<U> {
        StoreHandle::new(object, &self.closed)
    }

    /// Whether another process created the handle, from which this one was forked.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    /// The handle.
    ///
    /// # Errors
    /// `CLOSED` after the store was closed, and in a forked process.
    pub(crate) fn get(&self) -> Result<&T> {
        self.check()?;
        self.inner.as_ref().ok_or_else(Failure::closed)
    }

    /// As `get`.
    pub(crate) fn get_mut(&mut self) -> Result<&mut T> {
        self.check()?;
        self.inner.as_mut().ok_or_else(Failure::closed)
    }

    /// As `get`, but also after the store was closed.
    pub(crate) fn get_after_close(&self) -> Result<&T> {
        self.check_process()?;
        self.inner.as_ref().ok_or_else(Failure::closed)
    }

    /// Fails where [`get`](Self::get) does.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_process()?;
        if self.closed.load(Ordering::Acquire) {
            return Err(Failure::closed());
        }
        Ok(())
    }

    fn check_process(&self) -> Result<()> {
        check_process(self.process)
    }
}

/// Fails in a process that was forked from `process`, which created an object of a store.
///
/// # Errors
/// `CLOSED` in any process other than `process`.
pub(crate) fn check_process(process: u32) -> Result<()> {
    if process == std::process::id() {
        return Ok(());
    }
    let text = "the store belongs to the parent process; open or connect in this process";
    Err(Failure::new(ErrorCode::Closed, text))
}

impl<T: Send> Drop for StoreHandle<T> {
    fn drop(&mut self) {
        let inner = self.inner.take();
        if self.is_inherited() {
            let _kept = ManuallyDrop::new(inner);
            return;
        }
        // If the interpreter is shutting down, the handle is dropped as well.
        Python::try_attach(move |py| py.detach(move || drop(inner)));
    }
}
