//! What waits for the commit thread.
//!
//! Callers encode their intentions straight into the batch that will be
//! logged, so a value is copied once. Everything that is there when the commit
//! thread comes back from a sync goes into the next one: that is all there is
//! to group commit, no timer. The queue is bounded in bytes; a caller who finds
//! it full waits.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use weir_core::Program;
use weir_core::batch::{Author, BatchBuilder};
use weir_core::intention::{Intention, IntentionLimits};
use weir_core::limits::{BATCH_BYTES_MAX, BATCH_ITEMS_MAX, CALL_ITEMS_MAX};

use crate::error::StoreError;
use crate::lock_ext::LockExt;
use crate::proposal::{Answer, Proposal};

/// Bytes of encoded intentions that may wait. One call may exceed it.
pub(crate) const QUEUE_BYTES_MAX: usize = 64 << 20;
/// Memory that an emptied batch keeps.
const SPARE_BYTES: usize = BATCH_BYTES_MAX + (64 << 10);

/// Work for the commit thread that is no intention.
pub(crate) type Task = Box<dyn FnOnce(&mut crate::commit::Committer) + Send>;

/// A batch being filled, and who waits for its items, in order.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) builder: BatchBuilder,
    pub(crate) waiters: Vec<(u32, Answer)>,
    /// Compiled programs that its items bring: they stay known until then.
    pub(crate) prepared: Prepared,
}

/// Programs that were compiled when they were received.
#[derive(Default)]
pub(crate) struct Prepared(pub(crate) Vec<Box<dyn Program>>);

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} programs", self.0.len())
    }
}

/// Why the queue takes nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shut {
    Closed,
    Poisoned,
}

impl Shut {
    pub(crate) fn error(self) -> StoreError {
        match self {
            Self::Closed => StoreError::Closed,
            Self::Poisoned => StoreError::Poisoned,
        }
    }
}

#[derive(Default)]
struct Inner {
    batches: VecDeque<Pending>,
    bytes: usize,
    tasks: VecDeque<Task>,
    spare: Vec<Pending>,
    shut: Option<Shut>,
    /// The commit thread has ended: nobody will answer.
    gone: bool,
    asleep: bool,
}

pub(crate) struct Queue {
    inner: Mutex<Inner>,
    work: Condvar,
    room: Condvar,
    limits: IntentionLimits,
    /// Whether each call is a batch of its own.
    apart: bool,
}

/// What the commit thread finds.
pub(crate) struct Work {
    pub(crate) batches: VecDeque<Pending>,
    pub(crate) tasks: VecDeque<Task>,
    pub(crate) shut: Option<Shut>,
}

impl Queue {
    pub(crate) fn new(limits: IntentionLimits, apart: bool) -> Self {
        let inner = Mutex::new(Inner::default());
        Self {
            inner,
            work: Condvar::new(),
            room: Condvar::new(),
            limits,
            apart,
        }
    }

    /// The limits that intentions are checked against.
    pub(crate) fn limits(&self) -> IntentionLimits {
        self.limits
    }

    /// Adds intentions that are answered together. Waits while the queue is
    /// full.
    pub(crate) fn propose(
        &self,
        author: Author,
        intentions: &[Intention<'_>],
        prepared: Prepared,
    ) -> Result<Proposal, StoreError> {
        if intentions.len() > CALL_ITEMS_MAX {
            return Err(StoreError::LimitExceeded {
                what: "intentions in one call",
                limit: CALL_ITEMS_MAX as u64,
                value: intentions.len() as u64,
            });
        }
        let (proposal, answer) = Proposal::new();
        if intentions.is_empty() {
            answer.complete(Ok(weir_core::Outcomes::default()));
            return Ok(proposal);
        }
        // A call that is too large for company gets a batch of its own.
        let size = intentions.iter().map(Intention::size_hint).sum::<usize>();
        let mut inner = self.inner.lock_ok();
        while inner.bytes >= QUEUE_BYTES_MAX && inner.shut.is_none() {
            inner = self
                .room
                .wait(inner)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(shut) = inner.shut {
            return Err(shut.error());
        }
        let fits = inner.batches.back().is_some_and(|last| {
            !self.apart
                && last.builder.bytes() + size <= BATCH_BYTES_MAX
                && last.builder.len() + intentions.len() <= BATCH_ITEMS_MAX
        });
        if !fits {
            let fresh = inner.spare.pop().unwrap_or_default();
            inner.batches.push_back(fresh);
        }
        let Some(last) = inner.batches.back_mut() else {
            return Err(StoreError::Closed);
        };
        let before = last.builder.bytes();
        if let Err((index, error)) = last.builder.push_all_from(author, intentions, &self.limits) {
            if last.waiters.is_empty() {
                inner.batches.pop_back();
            }
            return Err(StoreError::Refused { index, error });
        }
        let added = last.builder.bytes() - before;
        let count = u32::try_from(intentions.len()).unwrap_or(u32::MAX);
        last.waiters.push((count, answer));
        last.prepared.0.extend(prepared.0);
        inner.bytes += added;
        let asleep = std::mem::take(&mut inner.asleep);
        drop(inner);
        if asleep {
            self.work.notify_one();
        }
        Ok(proposal)
    }

    /// Hands work to the commit thread.
    pub(crate) fn task(&self, task: Task) -> Result<(), StoreError> {
        let mut inner = self.inner.lock_ok();
        // A poisoned store still serves reads and tasks.
        if inner.gone || inner.shut == Some(Shut::Closed) {
            return Err(inner.shut.unwrap_or(Shut::Closed).error());
        }
        inner.tasks.push_back(task);
        drop(inner);
        self.work.notify_one();
        Ok(())
    }

    /// Takes everything that waits; sleeps while there is nothing, at most for
    /// `patience`.
    pub(crate) fn take(&self, patience: Option<Duration>) -> Work {
        let mut inner = self.inner.lock_ok();
        while inner.batches.is_empty() && inner.tasks.is_empty() && inner.shut != Some(Shut::Closed)
        {
            inner.asleep = true;
            match patience {
                None => {
                    inner = self
                        .work
                        .wait(inner)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                Some(time) => {
                    let waited = self.work.wait_timeout(inner, time);
                    let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    inner = guard;
                    if timeout.timed_out() {
                        break;
                    }
                }
            }
        }
        inner.asleep = false;
        inner.bytes = 0;
        let work = Work {
            batches: std::mem::take(&mut inner.batches),
            tasks: std::mem::take(&mut inner.tasks),
            shut: inner.shut,
        };
        drop(inner);
        self.room.notify_all();
        work
    }

    /// Gives the memory of a batch back.
    pub(crate) fn recycle(&self, mut pending: Pending) {
        pending.builder.clear(SPARE_BYTES);
        pending.waiters.clear();
        pending.prepared.0.clear();
        let mut inner = self.inner.lock_ok();
        if inner.spare.len() < 4 {
            inner.spare.push(pending);
        }
    }

    /// The commit thread ends: what still waits is answered with an error, and
    /// nothing is taken any more.
    pub(crate) fn leave(&self, why: Shut) {
        let mut inner = self.inner.lock_ok();
        inner.gone = true;
        inner.shut = Some(why);
        let batches = std::mem::take(&mut inner.batches);
        let tasks = std::mem::take(&mut inner.tasks);
        drop(inner);
        self.room.notify_all();
        drop((batches, tasks));
    }

    /// Takes no more calls. Closing replaces any earlier reason.
    pub(crate) fn shut(&self, why: Shut) {
        let mut inner = self.inner.lock_ok();
        if inner.shut.is_none() || why == Shut::Closed {
            inner.shut = Some(why);
        }
        drop(inner);
        self.work.notify_one();
        self.room.notify_all();
    }
}
