//! Verdicts that have not arrived yet.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pyo3::prelude::*;
use weir::{Outcomes, Proposal};

use crate::error::Failure;
use crate::exclusive::Exclusive;
use crate::notify::Calls;
use crate::store_handle::check_process;
use crate::verdict::Verdict;
use crate::wait;

/// Verdicts that have not arrived yet, returned by `send`. Dropping it does not cancel the
/// intentions.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Pending {
    state: Exclusive<State>,
    /// The calls of the tasks that wait.
    calls: Arc<Calls>,
    /// The store, topic or session that sent the intentions. It stays open until this object is
    /// dropped.
    _sender: Option<Py<PyAny>>,
    /// The process that sent the intentions. In a process that was forked from it, no thread would
    /// ever deliver the verdicts.
    process: u32,
}

/// The state of the verdicts.
enum State {
    /// Without verdicts at the last check.
    Pending(Proposal),
    /// With verdicts, stored for further calls.
    Done(Outcomes),
    /// Failed, or lost in a wait that was cancelled.
    Failed(weir::ErrorCode, String),
}

impl Pending {
    pub(crate) fn new(proposal: Proposal) -> Self {
        Self {
            state: Exclusive::new(State::Pending(proposal)),
            calls: Arc::default(),
            _sender: None,
            process: std::process::id(),
        }
    }

    /// Keeps the sender of the intentions open.
    pub(crate) fn sent_by(self, sender: Py<PyAny>) -> Self {
        Self {
            _sender: Some(sender),
            ..self
        }
    }

    /// Waits for the verdicts and checks for signals.
    pub(crate) fn verdicts(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Vec<Verdict>>> {
        check_process(self.process)?;
        let end = wait::until(timeout)?;
        wait::wait_in_slices(py, end, |slice| {
            let mut state = self.state.lock()?;
            let interrupted =
                State::Failed(weir::ErrorCode::Closed, "an earlier wait failed".to_owned());
            match std::mem::replace(&mut *state, interrupted) {
                State::Done(outcomes) => {
                    let verdicts = Verdict::all(&outcomes);
                    *state = State::Done(outcomes);
                    verdicts.map(Some)
                }
                State::Pending(proposal) => {
                    let remaining = slice.saturating_duration_since(std::time::Instant::now());
                    match proposal.wait_for(remaining) {
                        Ok(Ok(outcomes)) => {
                            let verdicts = Verdict::all(&outcomes);
                            *state = State::Done(outcomes);
                            verdicts.map(Some)
                        }
                        Ok(Err(error)) => {
                            *state = State::Failed(error.code(), error.to_string());
                            Err(error.into())
                        }
                        Err(proposal) => {
                            *state = State::Pending(proposal);
                            Ok(None)
                        }
                    }
                }
                State::Failed(code, text) => {
                    *state = State::Failed(code, text.clone());
                    Err(Failure::new(code, text))
                }
            }
        })
    }
}

#[pymethods]
impl Pending {
    /// Waits for the verdicts up to `timeout` seconds. Returns them in the order of the intentions.
    ///
    /// Raises TimeoutError when the time is over; the intentions may still be executed.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Vec<Verdict>> {
        let verdicts = self.verdicts(py, timeout)?;
        verdicts.ok_or_else(|| pyo3::exceptions::PyTimeoutError::new_err("no answer in time"))
    }

    /// Waits up to `timeout` seconds until every intention is queued for the log or has a verdict.
    /// A queued intention can still be lost. Returns False if the time is over.
    ///
    /// A server reports this only to a client that connected with `received=True`.
    #[pyo3(signature = (timeout=None))]
    fn wait_received(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        check_process(self.process)?;
        let end = wait::until(timeout)?;
        let received = wait::wait_in_slices(py, end, |slice| {
            let remaining = slice.saturating_duration_since(std::time::Instant::now());
            Ok(match &*self.state.lock()? {
                State::Pending(proposal) => proposal.wait_received(remaining).then_some(()),
                _ => Some(()),
            })
        })?;
        Ok(received.is_some())
    }

    /// Calls `call(argument)` once, from another thread, when `wait_received` would not block, or
    /// earlier.
    fn notify_received(&self, call: Py<PyAny>, argument: Py<PyAny>) -> PyResult<()> {
        check_process(self.process)?;
        let state = self.state.lock()?;
        let waker = self.calls.add(call, argument);
        if let State::Pending(proposal) = &*state
            && proposal
                .poll_received(&mut Context::from_waker(&waker))
                .is_pending()
        {
            return Ok(());
        }
        waker.wake();
        Ok(())
    }

    /// Whether `wait` would return at once.
    #[getter]
    fn done(&self) -> PyResult<bool> {
        check_process(self.process)?;
        Ok(match &*self.state.lock()? {
            State::Pending(proposal) => proposal.is_done(),
            _ => true,
        })
    }

    /// Calls `call(argument)` once, from another thread, when `wait` would not block, or earlier:
    /// check `done`.
    fn notify(&self, call: Py<PyAny>, argument: Py<PyAny>) -> PyResult<()> {
        check_process(self.process)?;
        let mut state = self.state.lock()?;
        let waker = self.calls.add(call, argument);
        if let State::Pending(proposal) = &mut *state {
            let mut context = Context::from_waker(&waker);
            match Pin::new(proposal).poll(&mut context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(outcomes)) => *state = State::Done(outcomes),
                Poll::Ready(Err(error)) => *state = State::Failed(error.code(), error.to_string()),
            }
        }
        waker.wake();
        Ok(())
    }

    fn __repr__(&self) -> &'static str {
        match self.done() {
            Ok(true) => "<weir.Pending, done>",
            _ => "<weir.Pending>",
        }
    }
}
