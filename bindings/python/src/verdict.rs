//! Verdicts: values, also when the answer is no.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use weir::{Commit, Detail, Effect, Outcome, Outcomes};

use crate::error::{Answer, Failure};

/// The final answer to one intention. True when it is VALID.
///
/// A verdict that is not VALID is an answer, not an error: the store understood and said no.
/// `check()` makes an exception of it where that is wanted.
#[pyclass(module = "weir", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct Verdict {
    commit: Commit,
    replayed: bool,
}

impl Verdict {
    fn of(outcome: Outcome) -> Answer<Self> {
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

    /// From the store's own form.
    pub(crate) fn new(verdict: &weir::Verdict) -> Self {
        Self {
            commit: verdict.commit().clone(),
            replayed: verdict.is_replayed(),
        }
    }

    /// The answers to all intentions of a call, in their order.
    pub(crate) fn all(outcomes: &Outcomes) -> Answer<Vec<Self>> {
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

    /// Whether it was executed.
    #[getter]
    fn valid(&self) -> bool {
        self.commit.effect == Effect::Valid
    }

    fn __bool__(&self) -> bool {
        self.valid()
    }

    /// Why not: the name of an error, such as "CONFLICT"; None for VALID.
    #[getter]
    fn reason(&self) -> Option<&'static str> {
        self.commit.reason.map(weir::ErrorCode::name)
    }

    /// The number of the reason; None for VALID.
    #[getter]
    fn number(&self) -> Option<u16> {
        self.commit.reason.map(weir::ErrorCode::number)
    }

    /// More about the reason, by name: `actual` (the offset that a condition found), `limit`,
    /// `index` and `reason` (of a transaction), `code` and `text` (of a program), `trap`. None when
    /// there is no more.
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

    /// Position in the global order. Every verdict has one.
    #[getter]
    fn intention(&self) -> u64 {
        self.commit.intention.0
    }

    /// Offset of its first record; None when it made none.
    #[getter]
    fn offset(&self) -> Option<u64> {
        (self.commit.records > 0).then_some(self.commit.first.0)
    }

    /// Number of its records.
    #[getter]
    fn records(&self) -> u32 {
        self.commit.records
    }

    /// Whether this is the kept answer to an earlier sending of the same nonce.
    #[getter]
    fn replayed(&self) -> bool {
        self.replayed
    }

    /// Fuel that the topic's program used; 0 without one.
    #[getter]
    fn fuel(&self) -> u64 {
        self.commit.fuel
    }

    /// The verdict itself when it is VALID; else raises `VerdictError`.
    fn check(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        match slf.get().commit.reason {
            None => Ok(slf),
            Some(code) => Err(Failure::new(code, code.sentence()).into()),
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
