//! Sessions: writers whose intentions are executed exactly once.

use pyo3::prelude::*;

use crate::error::Result;
use crate::exclusive::Exclusive;
use crate::intention::{self, Op};
use crate::pending::Pending;
use crate::store_handle::StoreHandle;
use crate::verdict::Verdict;
use crate::wait;

/// A writer whose intentions are executed exactly once, even if they are sent again after a crash.
/// One session at a time may use a client id.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Session(Exclusive<StoreHandle<weir::Session>>);

impl Session {
    pub(crate) fn new(session: StoreHandle<weir::Session>) -> Self {
        Self(Exclusive::new(session))
    }

    fn with<T>(&self, work: impl FnOnce(&mut weir::Session) -> Result<T>) -> Result<T> {
        work(self.0.lock()?.get_mut()?)
    }
}

#[pymethods]
impl Session {
    /// The client id, 16 bytes.
    #[getter]
    fn client(&self) -> PyResult<Vec<u8>> {
        Ok(self.0.lock()?.get_after_close()?.client().0.to_vec())
    }

    /// The number of the next intention: one more than the last one that was sent, or that the
    /// store has recorded.
    #[getter]
    fn next_nonce(&self, py: Python<'_>) -> PyResult<u64> {
        wait::interruptible(py, || self.with(|session| Ok(session.try_next_nonce()?)))
    }

    /// Resumes at a nonce without an answer. For intentions that it has already executed, the store
    /// returns the recorded verdicts; it executes the others.
    fn resume(&self, py: Python<'_>, nonce: u64) -> PyResult<()> {
        wait::interruptible(py, || self.with(|session| Ok(session.try_resume(nonce)?)))
    }

    /// Sends intentions with the next nonces, and does not wait for the verdicts. Each intention is
    /// a topic and a `Put` or `Delete`.
    fn send(slf: Bound<'_, Self>, intentions: Vec<(String, Op<'_>)>) -> PyResult<Pending> {
        let steps: Vec<_> = intentions
            .iter()
            .map(|(topic, op)| (&**topic, op.get()))
            .collect();
        let session = slf.get();
        let proposal = wait::interruptible(slf.py(), || {
            let borrowed = intention::borrow(&steps);
            let intentions = intention::intentions(&borrowed);
            session.with(|session| Ok(session.send(&intentions)?.into_proposal()))
        })?;
        Ok(Pending::new(proposal).sent_by(slf.into_any().unbind()))
    }

    /// Sends intentions and waits for their verdicts.
    fn execute(slf: Bound<'_, Self>, intentions: Vec<(String, Op<'_>)>) -> PyResult<Vec<Verdict>> {
        let py = slf.py();
        let pending = Self::send(slf, intentions)?;
        Ok(pending.verdicts(py, None)?.unwrap_or_default())
    }
}
