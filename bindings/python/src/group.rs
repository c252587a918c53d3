//! Members of groups, which claim records, and acknowledge or reject them.

use std::time::Instant;

use pyo3::prelude::*;
use weir::{Claim, ConsequenceOffset, ErrorCode, ReadFrom, Settle};

use crate::error::{Failure, Result};
use crate::exclusive::Exclusive;
use crate::reader::{Position, start};
use crate::record::Record;
use crate::store_handle::StoreHandle;
use crate::verdict::Verdict;
use crate::wait::{self, seconds};

/// A member of a group. One thread at a time may use it.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Group {
    name: String,
    exclusive: bool,
    state: Exclusive<GroupState>,
}

/// The state that one thread at a time uses.
struct GroupState {
    group: StoreHandle<weir::Group>,
    /// Records claimed for a call that was interrupted; the next call returns them first.
    pending_works: Vec<weir::Work>,
}

impl Group {
    pub(crate) fn new(name: &str, group: StoreHandle<weir::Group>, exclusive: bool) -> Self {
        Self {
            name: name.to_owned(),
            exclusive,
            state: Exclusive::new(GroupState {
                group,
                pending_works: Vec::new(),
            }),
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut weir::Group) -> Result<T>) -> Result<T> {
        work(self.state.lock()?.group.get_mut()?)
    }

    /// Like `with`, for calls that end claims: drops the stored records, because the member must claim
    /// them again or has lost them.
    fn ending_claims<T>(&self, work: impl FnOnce(&mut weir::Group) -> Result<T>) -> Result<T> {
        let mut state = self.state.lock()?;
        let state = &mut *state;
        let done = work(state.group.get_mut()?)?;
        state.pending_works.clear();
        Ok(done)
    }
}

fn offsets(lost: Vec<ConsequenceOffset>) -> Vec<u64> {
    lost.into_iter().map(|offset| offset.0).collect()
}

/// A claimed record, or its claim and offset.
#[derive(FromPyObject)]
pub(crate) enum AnyWork<'py> {
    Work(Bound<'py, Work>),
    Named((u64, u64)),
}

fn claims(works: &[AnyWork<'_>]) -> Vec<Claim> {
    let works = works.iter();
    works
        .map(|work| match work {
            AnyWork::Work(work) => Claim::from(&work.get().work),
            AnyWork::Named((claim, offset)) => Claim {
                claim: *claim,
                offset: ConsequenceOffset(*offset),
            },
        })
        .collect()
}

#[pymethods]
impl Group {
    /// The name of the group.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Claims up to `max` records; waits up to `timeout` seconds for the first one (None: no
    /// limit). Ctrl-C ends the wait.
    #[pyo3(signature = (max=100, timeout=Some(0.0)))]
    #[pyo3(text_signature = "($self, max=100, timeout=0.0)")]
    fn claim(&self, py: Python<'_>, max: usize, timeout: Option<f64>) -> PyResult<Vec<Work>> {
        if self.fetch(py, max, timeout)? {
            return self.take(max);
        }
        Ok(Vec::new())
    }

    /// The first half of `claim`, which can be interrupted. Returns whether there are records to
    /// take.
    #[pyo3(name = "_fetch")]
    fn fetch(&self, py: Python<'_>, max: usize, timeout: Option<f64>) -> PyResult<bool> {
        if max == 0 {
            // It would never find a record, and a wait without a timeout would not end.
            let text = "max is 0, not a number from 1";
            return Err(Failure::new(ErrorCode::BadOption, text).into());
        }
        let available = wait::wait_in_slices(py, wait::until(timeout)?, |slice| {
            let mut state = self.state.lock()?;
            if state.pending_works.is_empty() {
                let remaining = slice.saturating_duration_since(Instant::now());
                state.pending_works = state.group.get_mut()?.claim(max, remaining)?;
            }
            Ok((!state.pending_works.is_empty()).then_some(()))
        })?;
        Ok(available.is_some())
    }

    /// The second half of `claim`, which does not wait.
    #[pyo3(name = "_take")]
    fn take(&self, max: usize) -> PyResult<Vec<Work>> {
        let mut state = self.state.lock()?;
        let count = max.min(state.pending_works.len());
        let works = state.pending_works.drain(..count);
        Ok(works.map(|work| Work { work }).collect())
    }

    /// Acknowledges records; the acknowledgement is durable when this returns. Returns the offsets
    /// of those that another member has claimed by now. In an exclusive group, this acknowledges
    /// every record up to the last one.
    fn ack(&self, py: Python<'_>, work: Vec<AnyWork<'_>>) -> PyResult<Vec<u64>> {
        let work = claims(&work);
        let lost = wait::interruptible(py, || {
            self.with(|group| Ok(group.settle(&work, Settle::Done)?))
        })?;
        Ok(offsets(lost))
    }

    /// Acknowledges records of an exclusive group without waiting. The acknowledgement is written soon,
    /// together with later ones. After a crash the records may be delivered again.
    fn ack_soon(&self, py: Python<'_>, work: Vec<AnyWork<'_>>) -> PyResult<()> {
        let work = claims(&work);
        wait::interruptible(py, || {
            self.with(|group| Ok(group.settle(&work, Settle::DoneSoon).map(drop)?))
        })
    }

    /// Returns records to the group, which can deliver them again after `delay` seconds. Returns
    /// the offsets of those that another member has claimed by now.
    #[pyo3(signature = (work, *, delay=0.0, reason=""))]
    fn nack(
        &self,
        py: Python<'_>,
        work: Vec<AnyWork<'_>>,
        delay: f64,
        reason: &str,
    ) -> PyResult<Vec<u64>> {
        let (work, delay) = (claims(&work), seconds("delay", delay)?);
        let settlement = Settle::Fail { delay, reason };
        let lost = wait::interruptible(py, || {
            let settle = |group: &mut weir::Group| Ok(group.settle(&work, settlement)?);
            if self.exclusive && !work.is_empty() {
                // The member of an exclusive group then reads again from the first of these records.
                self.ending_claims(settle)
            } else {
                self.with(settle)
            }
        })?;
        Ok(offsets(lost))
    }

    /// Extends the leases of records: each now ends in `lease` seconds. Returns the offsets of
    /// those that this member no longer has.
    fn extend(&self, py: Python<'_>, work: Vec<AnyWork<'_>>, lease: f64) -> PyResult<Vec<u64>> {
        let (work, lease) = (claims(&work), seconds("lease", lease)?);
        let lost = wait::interruptible(py, || {
            self.with(|group| Ok(group.settle(&work, Settle::Extend { lease })?))
        })?;
        Ok(offsets(lost))
    }

    /// Moves the group to a position, as for `Topic.pages`. All earlier records count as
    /// acknowledged, and all later ones as not acknowledged. Members lose the records that they have
    /// claimed.
    #[pyo3(signature = (position=None, *, after=None, last=None, time_ms=None, end=false))]
    fn reset(
        &self,
        py: Python<'_>,
        position: Option<Position>,
        after: Option<u64>,
        last: Option<u64>,
        time_ms: Option<u64>,
        end: bool,
    ) -> PyResult<Verdict> {
        let to = start(position, after, last, time_ms, end, ReadFrom::Start)?;
        let verdict = wait::interruptible(py, || self.ending_claims(|group| Ok(group.reset(to)?)))?;
        Ok(Verdict::new(&verdict))
    }

    /// Makes this member the owner of an exclusive group and replaces the present owner.
    fn take_over(&self, py: Python<'_>) -> PyResult<()> {
        wait::interruptible(py, || self.ending_claims(|group| Ok(group.take_over()?)))
    }

    /// Gives up the ownership of an exclusive group, so that another member need not wait.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        wait::interruptible(py, || self.ending_claims(|group| Ok(group.leave()?)))
    }

    /// Deletes the group and its position.
    fn delete(&self, py: Python<'_>) -> PyResult<Verdict> {
        let verdict = wait::interruptible(py, || self.ending_claims(|group| Ok(group.delete()?)))?;
        Ok(Verdict::new(&verdict))
    }

    /// The current state of the group.
    fn info(&self, py: Python<'_>) -> PyResult<GroupInfo> {
        Ok(wait::interruptible(py, || self.with(|group| Ok(group.info()?)))?.into())
    }

    fn __repr__(&self) -> String {
        format!("<weir.Group {}>", self.name)
    }
}

/// A claimed record.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Work {
    work: weir::Work,
}

#[pymethods]
impl Work {
    /// The record.
    #[getter]
    fn record(&self) -> Record {
        Record::of_work(self.work.clone())
    }

    /// The claim and the offset of the record, with which a member can acknowledge it later.
    #[getter]
    fn name(&self) -> (u64, u64) {
        let claim = Claim::from(&self.work);
        (claim.claim, claim.offset.0)
    }

    /// How often the record was delivered, including this time; 1 in an exclusive group.
    #[getter]
    fn attempts(&self) -> u32 {
        self.work.attempts()
    }

    fn __repr__(&self) -> String {
        format!("<weir.Work {}>", self.work.record().offset)
    }
}

/// The state of a group at the time of the call.
#[pyclass(module = "weir", frozen, get_all)]
pub(crate) struct GroupInfo {
    /// The topic of the group.
    topic: String,
    /// The name of the group.
    name: String,
    /// "shared", "keyed" or "exclusive".
    mode: &'static str,
    /// All records up to this offset are acknowledged.
    cursor: u64,
    /// No record after this offset was delivered.
    frontier: u64,
    /// Offset of the newest record of the topic.
    last: u64,
    /// Number of offsets that are not acknowledged.
    lag: u64,
    /// Number of records that members have claimed.
    leased: u64,
    /// Number of delivered records that are neither acknowledged nor claimed.
    waiting: u64,
    /// Number of deliveries beyond the first of a record.
    redeliveries: u64,
    /// Number of records that became dead letters.
    dead_lettered: u64,
    /// Number of dead letters that are not written yet.
    unwritten_dead_letters: u64,
    /// Length of a lease in milliseconds.
    lease_ms: u64,
    /// Number of deliveries after which a record becomes a dead letter; 0: never.
    attempts_max: u32,
    /// Topic for dead letters; empty if there is none.
    dead_letters: String,
}

impl From<weir::GroupInfo> for GroupInfo {
    fn from(info: weir::GroupInfo) -> Self {
        Self {
            topic: info.topic,
            name: info.name,
            mode: info.mode.name(),
            cursor: info.cursor.0,
            frontier: info.frontier.0,
            last: info.last.0,
            lag: info.lag,
            leased: info.leased,
            waiting: info.waiting,
            redeliveries: info.redeliveries,
            dead_lettered: info.dead_lettered,
            unwritten_dead_letters: info.unwritten_dead_letters,
            lease_ms: info.lease_ms,
            attempts_max: info.attempts_max,
            dead_letters: info.dead_letters,
        }
    }
}

#[pymethods]
impl GroupInfo {
    fn __repr__(&self) -> String {
        format!(
            "<weir.GroupInfo {} of {}: cursor {}>",
            self.name, self.topic, self.cursor
        )
    }
}
