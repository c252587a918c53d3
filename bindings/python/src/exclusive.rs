//! Objects that serve one thread at a time.

use std::sync::{Mutex, MutexGuard, TryLockError};

use weir::ErrorCode;

use crate::error::{Failure, Result};

/// A value that one thread at a time may use.
pub(crate) struct Exclusive<T>(Mutex<T>);

impl<T> Exclusive<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Locks the value.
    ///
    /// # Errors
    /// `HANDLE_BUSY` if another thread uses it, `HANDLE_POISONED` if a panic ended an earlier use.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, T>> {
        let code = match self.0.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::WouldBlock) => ErrorCode::HandleBusy,
            Err(TryLockError::Poisoned(_)) => ErrorCode::HandlePoisoned,
        };
        Err(Failure::new(code, code.sentence()))
    }
}
