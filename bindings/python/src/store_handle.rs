//! Handles of a store, whose drop may wait for the disk, or for the answers of a server.
//!
//! Invariants:
//! - The interpreter is released during the drop.
//! - A forked process neither uses nor drops a handle of its parent: the threads of the store run in
//!   the parent only, and both processes would write to the same files and connections.

use pyo3::prelude::*;
use weir::ErrorCode;

use crate::error::{Failure, Result};

/// A handle of a store, or of an object of a store.
pub(crate) struct StoreHandle<T: Send> {
    /// `None` only during the drop.
    inner: Option<T>,
    /// The process that created the handle.
    process: u32,
}

impl<T: Send> StoreHandle<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self {
            inner: Some(inner),
            process: std::process::id(),
        }
    }

    /// Whether another process created the handle, from which this one was forked.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    /// The handle.
    ///
    /// # Errors
    /// `CLOSED` in a forked process.
    pub(crate) fn get(&self) -> Result<&T> {
        self.check_process()?;
        self.inner.as_ref().ok_or_else(Failure::closed)
    }

    /// As `get`.
    pub(crate) fn get_mut(&mut self) -> Result<&mut T> {
        self.check_process()?;
        self.inner.as_mut().ok_or_else(Failure::closed)
    }

    fn check_process(&self) -> Result<()> {
        if self.is_inherited() {
            let text = "the store belongs to the parent process; open or connect in this process";
            return Err(Failure::new(ErrorCode::Closed, text));
        }
        Ok(())
    }
}

impl<T: Send> Drop for StoreHandle<T> {
    fn drop(&mut self) {
        let inner = self.inner.take();
        if self.is_inherited() {
            std::mem::forget(inner);
            return;
        }
        // If the interpreter is shutting down, the handle is dropped as well.
        Python::try_attach(move |py| py.detach(move || drop(inner)));
    }
}
