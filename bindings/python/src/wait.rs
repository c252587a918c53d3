//! Waiting with the interpreter released, so that Ctrl-C ends a wait.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use weir::ErrorCode;

use crate::error::{Failure, Result};

/// Interval at which a wait checks for signals.
pub(crate) const SLICE: Duration = Duration::from_millis(50);

/// Interval at which a call that waits for a server checks for signals.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Longest wait, in seconds: one year. A longer timeout is treated as one year.
const SECONDS_MAX: f64 = 31_536_000.0;

/// Converts seconds to a duration.
///
/// # Errors
/// `BAD_OPTION` for a value that is negative or not a number.
pub(crate) fn seconds(what: &str, value: f64) -> Result<Duration> {
    if value.is_nan() || value < 0.0 {
        return Err(Failure::new(
            ErrorCode::BadOption,
            format!("{what} is {value}: not a time"),
        ));
    }
    Ok(Duration::from_secs_f64(value.min(SECONDS_MAX)))
}

/// When a wait ends; `None`: never.
pub(crate) fn until(timeout: Option<f64>) -> Result<Option<Instant>> {
    let time = timeout.map(|value| seconds("timeout", value)).transpose()?;
    Ok(time.and_then(|time| Instant::now().checked_add(time)))
}

/// Runs a call with the interpreter released. While the call waits for a server, it checks for
/// signals and ends if there is one; a write that was already sent may still be executed.
///
/// # Errors
/// The errors of the call, and the exception of a signal handler.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    call: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    let raised = Arc::<Mutex<Option<PyErr>>>::default();
    let shared = Arc::clone(&raised);
    let done = py.detach(move || {
        let is_interrupted = move || {
            let mut raised = shared.lock().unwrap_or_else(PoisonError::into_inner);
            if raised.is_none() {
                *raised = Python::attach(|py| py.check_signals().err());
            }
            raised.is_some()
        };
        weir::interruptible(SIGNAL_CHECK_INTERVAL, Arc::new(is_interrupted), call)
    });
    let raised = raised.lock().unwrap_or_else(PoisonError::into_inner).take();
    match raised {
        Some(raised) => Err(raised),
        None => Ok(done?),
    }
}

/// Calls `step` with the interpreter released, until it returns a value or the time is over. Its
/// argument is the time until which it may wait, at most one slice away.
///
/// # Errors
/// The errors of `step`, and the exception of a signal handler.
pub(crate) fn wait_in_slices<T: Send>(
    py: Python<'_>,
    end: Option<Instant>,
    mut step: impl FnMut(Instant) -> Result<Option<T>> + Send,
) -> PyResult<Option<T>> {
    loop {
        let now = Instant::now();
        let slice = now + SLICE;
        let slice = end.map_or(slice, |end| end.min(slice));
        if let Some(found) = interruptible(py, || step(slice))? {
            return Ok(Some(found));
        }
        py.check_signals()?;
        if end.is_some_and(|end| end <= Instant::now()) {
            return Ok(None);
        }
    }
}
