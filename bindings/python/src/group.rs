//! Members of groups: they take records, and say what became of them.

use std::time::Instant;

use pyo3::prelude::*;
use weir::{Claim, ConsequenceOffset, ReadFrom, Settle};

use crate::error::Answer;
use crate::exclusive::Exclusive;
use crate::reader::start;
use crate::record::Record;
use crate::verdict::Verdict;
use crate::wait::{self, seconds};

/// A member of a group. Used by one thread at a time.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Group {
    name: String,
    exclusive: bool,
    inside: Exclusive<Inside>,
}

/// What one thread at a time uses.
struct Inside {
    group: weir::Group,
    /// Claimed for a call that was broken off; the next one gets it first.
    kept: Vec<weir::Work>,
}

impl Group {
    pub(crate) fn new(name: &str, group: weir::Group, exclusive: bool) -> Self {
        Self {
            name: name.to_owned(),
            exclusive,
            inside: Exclusive::new(Inside {
                group,
                kept: Vec::new(),
            }),
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut weir::Group) -> Answer<T>) -> Answer<T> {
        work(&mut self.inside.lock()?.group)
    }

    /// As `with`, for what changes what the member has: what is kept, it claims again or has no more.
    fn anew<T>(&self, work: impl FnOnce(&mut weir::Group) -> Answer<T>) -> Answer<T> {
        let mut inside = self.inside.lock()?;
        let inside = &mut *inside;
        let done = work(&mut inside.group)?;
        inside.kept.clear();
        Ok(done)
    }
}

fn offsets(lost: Vec<ConsequenceOffset>) -> Vec<u64> {
    lost.into_iter().map(|offset| offset.0).collect()
}

/// A record that a member has, or what names it.
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

    /// Takes up to `max` records, waiting up to `timeout` seconds for the first one (None: for
    /// ever). Ctrl-C ends the wait.
    #[pyo3(signature = (max=100, timeout=Some(0.0)))]
    fn claim(&self, py: Python<'_>, max: usize, timeout: Option<f64>) -> PyResult<Vec<Work>> {
        if self.fetch(py, max, timeout)? {
            return self.take(max);
        }
        Ok(Vec::new())
    }

    /// The first half of `claim`, which may be broken off: whether there is something to take.
    #[pyo3(name = "_fetch")]
    fn fetch(&self, py: Python<'_>, max: usize, timeout: Option<f64>) -> PyResult<bool> {
        let there = wait::sliced(py, wait::until(timeout)?, |slice| {
            let mut inside = self.inside.lock()?;
            if inside.kept.is_empty() {
                let left = slice.saturating_duration_since(Instant::now());
                inside.kept = inside.group.claim(max, left)?;
            }
            Ok((!inside.kept.is_empty()).then_some(()))
        })?;
        Ok(there.is_some())
    }

    /// The other half, which does not wait.
    #[pyo3(name = "_take")]
    fn take(&self, max: usize) -> PyResult<Vec<Work>> {
        let mut inside = self.inside.lock()?;
        let count = max.min(inside.kept.len());
        let taken = inside.kept.drain(..count);
        Ok(taken.map(|work| Work { work }).collect())
    }

    /// These are done, for good when this returns. The offsets of those that are with somebody else
    /// by now. In an exclusive group everything up to the last of them is done.
    fn ack(&self, py: Python<'_>, work: Vec<AnyWork<'_>>) -> PyResult<Vec<u64>> {
        let work = claims(&work);
        let lost = wait::heard(py, || {
            self.with(|group| Ok(group.settle(&work, Settle::Done)?))
        })?;
        Ok(offsets(lost))
    }

    /// Acknowledges records of an exclusive group without waiting. The acknowledgement is written soon,
    /// together with later ones. After a crash the records may be delivered again.
    fn ack_soon(&self, py: Python<'_>, work: Vec<AnyWork<'_>>) -> PyResult<()> {
        let work = claims(&work);
        wait::heard(py, || {
            self.with(|group| Ok(group.settle(&work, Settle::DoneSoon).map(drop)?))
        })
    }

    /// These are given back; they may be claimed again after `delay` seconds. The offsets of those
    /// that are with somebody else by now.
    #[pyo3(signature = (work, *, delay=0.0, reason=""))]
    fn nack(
        &self,
        py: Python<'_>,
        work: Vec<AnyWork<'_>>,
        delay: f64,
        reason: &str,
    ) -> PyResult<Vec<u64>> {
        let (work, delay) = (claims(&work), seconds("delay", delay)?);
        let how = Settle::Fail { delay, reason };
        let lost = wait::heard(py, || {
            let settle = |group: &mut weir::Group| Ok(group.settle(&work, how)?);
            if self.exclusive && !work.is_empty() {
                // It reads again from there.
                self.anew(settle)
            } else {
                self.with(settle)
            }
        })?;
        Ok(offsets(lost))
    }

    /// The member is still at them: their leases end in `lease` seconds. The offsets of those that
    /// it has not any more.
    fn extend(&self, py: Python<'_>, work: Vec<AnyWork<'_>>, lease: f64) -> PyResult<Vec<u64>> {
        let (work, lease) = (claims(&work), seconds("lease", lease)?);
        let lost = wait::heard(py, || {
            self.with(|group| Ok(group.settle(&work, Settle::Extend { lease })?))
        })?;
        Ok(offsets(lost))
    }

    /// Moves the group to a position, as for `Topic.pages`: everything before it counts as done, and
    /// nothing after it. Members lose the records that they have claimed.
    #[pyo3(signature = (position=None, *, after=None, last=None, time_ms=None, end=false))]
    fn reset(
        &self,
        py: Python<'_>,
        position: Option<&str>,
        after: Option<u64>,
        last: Option<u64>,
        time_ms: Option<u64>,
        end: bool,
    ) -> PyResult<Verdict> {
        let to = start(position, after, last, time_ms, end, ReadFrom::Start)?;
        let verdict = wait::heard(py, || self.anew(|group| Ok(group.reset(to)?)))?;
        Ok(Verdict::new(&verdict))
    }

    /// Makes this member the owner of an exclusive group, in place of the present owner.
    fn take_over(&self, py: Python<'_>) -> PyResult<()> {
        wait::heard(py, || self.anew(|group| Ok(group.take_over()?)))
    }

    /// Gives up the ownership of an exclusive group, so that another member need not wait.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        wait::heard(py, || self.anew(|group| Ok(group.leave()?)))
    }

    /// Ends the group; its position is forgotten.
    fn delete(&self, py: Python<'_>) -> PyResult<Verdict> {
        let verdict = wait::heard(py, || self.anew(|group| Ok(group.delete()?)))?;
        Ok(Verdict::new(&verdict))
    }

    /// The group as it is now.
    fn info(&self, py: Python<'_>) -> PyResult<GroupInfo> {
        Ok(wait::heard(py, || self.with(|group| Ok(group.info()?)))?.into())
    }

    fn __repr__(&self) -> String {
        format!("<weir.Group {}>", self.name)
    }
}

/// A record that a member has.
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

    /// What names it, for a member that puts it aside: its claim and its offset.
    #[getter]
    fn name(&self) -> (u64, u64) {
        let claim = Claim::from(&self.work);
        (claim.claim, claim.offset.0)
    }

    /// How often it was delivered, this time included; 1 in an exclusive group.
    #[getter]
    fn attempts(&self) -> u32 {
        self.work.attempts()
    }

    fn __repr__(&self) -> String {
        format!("<weir.Work {}>", self.work.record().offset)
    }
}

/// A group as it was when it was asked for.
#[pyclass(module = "weir", frozen, get_all)]
pub(crate) struct GroupInfo {
    /// Topic it reads.
    topic: String,
    /// Its name.
    name: String,
    /// "shared", "keyed" or "exclusive".
    mode: &'static str,
    /// Everything up to here is done.
    cursor: u64,
    /// Offsets that are not done.
    lag: u64,
    /// Records that members have.
    leased: u64,
    /// Records that were seen and wait to be claimed.
    waiting: u64,
    /// Deliveries beyond the first of a record.
    redeliveries: u64,
    /// Records that were given up.
    deaths: u64,
    /// Milliseconds of a lease.
    lease_ms: u64,
    /// Deliveries after which a record is given up; 0: never.
    attempts_max: u32,
    /// Topic for dead letters; empty for none.
    dead_letters: String,
}

impl From<weir::GroupInfo> for GroupInfo {
    fn from(info: weir::GroupInfo) -> Self {
        Self {
            topic: info.topic,
            name: info.name,
            mode: info.mode.name(),
            cursor: info.cursor.0,
            lag: info.lag,
            leased: info.leased,
            waiting: info.waiting,
            redeliveries: info.redeliveries,
            deaths: info.deaths,
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
