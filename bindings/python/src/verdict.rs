//! Verdicts, which are values even if the store rejected the write.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use weir::{Commit, Detail, Effect, ErrorCode, Outcome, Outcomes};

use crate::error::{Failure, Result};

/// The final result of one intention. True if it is VALID.
///
/// A verdict other than VALID is a result, not an error: the store understood the intention and
/// rejected it. `check()` converts such a verdict to an exception.
#[pyclass(module = "weir", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct Verdict {
    commit: Commit,
    replayed: bool,
}

impl Verdict {
    fn of(outcome: Outcome) -> Result<Self> {
        match outcome {
            Outcome::Committed(commit) => Ok(Self {
                commit,
                replayed: false,
            }),
            Outcome::Replayed(commit) => Ok(Self {
                commit,
                replayed: true,
            }),
            Outcome::Refused { code, expected } => Err(Failure::nonce(code, expected)),
        }
    }

    /// Converts a verdict of the store.
    pub(crate) fn new(verdict: &weir::Verdict) -> Self {
        Self {
            commit: verdict.commit().clone(),
            replayed: verdict.is_replayed(),
        }
    }

    /// The meaning of the reason, with the details.
    fn explanation(&self, code: ErrorCode) -> String {
        let detail = self.commit.detail.to_string();
        if detail.is_empty() {
            code.sentence().to_owned()
        } else {
            format!("{} ({detail})", code.sentence())
        }
    }

    /// The verdicts of all intentions of a call, in order.
    pub(crate) fn all(outcomes: &Outcomes) -> Result<Vec<Self>> {
        outcomes.iter().map(Self::of).collect()
    }
}

#[pymethods]
impl Verdict {
    /// "VALID", "INVALID" or "ERROR".
    #[getter]
    fn effect(&self) -> &'static str {
        self.commit.effect.name()
    }

    /// Whether the intention was executed.
    #[getter]
    fn valid(&self) -> bool {
        self.commit.effect == Effect::Valid
    }

    fn __bool__(&self) -> bool {
        self.valid()
    }

    /// Why the verdict is not VALID: the name of an error, such as "CONFLICT"; None for VALID.
    #[getter]
    fn reason(&self) -> Option<&'static str> {
        self.commit.reason.map(ErrorCode::name)
    }

    /// The number of the reason; None for VALID.
    #[getter]
    fn number(&self) -> Option<u16> {
        self.commit.reason.map(ErrorCode::number)
    }

    /// More about the reason, by name: `actual` (the offset that a condition found), `limit`,
    /// `index` and `reason` (of a transaction), `code` and `text` (of a program), `trap`. None if
    /// there are no details.
    #[getter]
    fn detail<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let dict = PyDict::new(py);
        match &self.commit.detail {
            Detail::None => return Ok(None),
            Detail::Actual(offset) => dict.set_item("actual", offset)?,
            Detail::Limit(limit) => dict.set_item("limit", limit)?,
            Detail::Operation { index, reason } => {
                dict.set_item("index", index)?;
                dict.set_item("reason", reason.name())?;
            }
            Detail::Rejected { code, text } => {
                dict.set_item("code", code)?;
                dict.set_item("text", &**text)?;
            }
            Detail::Trapped(kind) => dict.set_item("trap", kind.name())?,
            Detail::Text(text) => dict.set_item("text", &**text)?,
        }
        Ok(Some(dict))
    }

    /// Position of the intention in the global order. Every verdict has one.
    #[getter]
    fn intention(&self) -> u64 {
        self.commit.intention.0
    }

    /// Offset of the first record of the intention; None if it wrote none.
    #[getter]
    fn offset(&self) -> Option<u64> {
        (self.commit.records > 0).then_some(self.commit.first.0)
    }

    /// Number of records of the intention.
    #[getter]
    fn records(&self) -> u32 {
        self.commit.records
    }

    /// Whether the store returned the recorded verdict of an earlier request with this nonce.
    #[getter]
    fn replayed(&self) -> bool {
        self.replayed
    }

    /// Fuel that the program of the topic used; 0 without a program.
    #[getter]
    fn fuel(&self) -> u64 {
        self.commit.fuel
    }

    /// Returns the verdict if it is VALID; otherwise raises `VerdictError`.
    fn check(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        match slf.get().commit.reason {
            None => Ok(slf),
            Some(code) => Err(Failure::new(code, slf.get().explanation(code)).into()),
        }
    }

    fn __repr__(&self) -> String {
        let effect = self.effect();
        match (self.commit.reason, self.offset()) {
            (Some(code), _) => format!("<weir.Verdict {effect} {}>", code.name()),
            (None, Some(offset)) => format!("<weir.Verdict {effect} at {offset}>"),
            (None, None) => format!("<weir.Verdict {effect}>"),
        }
    }
}
