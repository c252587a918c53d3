//! What waits for the commit thread.
//!
//! Callers encode their intentions straight into the batch that will be
//! logged, so a value is copied once. Everything that is there when the commit
//! thread comes back from a sync goes into the next one: that is all there is
//! to group commit, no timer. The queue is bounded in bytes; a caller who finds
//! it full waits.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use weir_core::batch::{Action, Author, BatchBuilder, Items};
use weir_core::intention::{Intention, IntentionLimits, Operation};
use weir_core::limits::{BATCH_BYTES_MAX, BATCH_ITEMS_MAX, CALL_ITEMS_MAX};
use weir_core::machine::deferred::{COSTLY_FUEL, Judging};
use weir_core::{ClientId, Program};

use crate::error::StoreError;
use crate::lock_ext::LockExt;
use crate::proposal::{Answer, Proposal};

/// Bytes of encoded intentions that may wait. One call may exceed it.
pub(crate) const QUEUE_BYTES_MAX: usize = 64 << 20;
/// The same for those behind costly programs. A server admits less there, but
/// topics of calls that it let in with the others may turn out to be costly.
pub(crate) const SLOW_BYTES_MAX: usize = 96 << 20;
/// Fuel that the calls of such a batch are expected to use together: some
/// milliseconds. One call may exceed it.
const SLOW_BATCH_FUEL: u64 = 100 * COSTLY_FUEL;
/// What the start of a program counts for there: nobody knows what it uses.
const START_EXPECTED_FUEL: u64 = SLOW_BATCH_FUEL / 10;
/// Topics that are known to be costly.
const COSTLY_TOPICS_MAX: usize = 1024;
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
    /// Holds calls of costly programs, and what must not overtake them.
    pub(crate) is_slow: bool,
    /// Whom it makes wait: those of a slow batch.
    holds: Holds,
    /// Fuel that it is expected to use.
    fuel: u64,
}

impl Pending {
    /// Topics that it makes wait.
    pub(crate) fn held_topics(&self) -> impl Iterator<Item = &str> {
        self.holds.calls.iter().map(|(topic, _)| &**topic)
    }
}

/// What must not overtake a batch: topics and clients of its calls, and topics
/// that are made while it makes some.
#[derive(Debug, Default)]
struct Holds {
    calls: Vec<(Box<str>, ClientId)>,
    makes: usize,
}

/// Whether a program begins with it.
fn is_start(operation: &Operation<'_>) -> bool {
    matches!(
        operation,
        Operation::CreateProgram { .. } | Operation::Replace { .. }
    )
}

/// Whether a topic is made.
fn makes(operation: &Operation<'_>) -> bool {
    matches!(
        operation,
        Operation::Create { .. } | Operation::CreateProgram { .. }
    )
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
#[derive(Clone, Debug)]
pub(crate) enum Shut {
    Closed,
    Poisoned(Arc<StoreError>),
}

impl Shut {
    pub(crate) fn error(&self) -> StoreError {
        match self {
            Self::Closed => StoreError::Closed,
            Self::Poisoned(cause) => StoreError::Poisoned {
                cause: Arc::clone(cause),
            },
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self, Self::Closed)
    }
}

#[derive(Default)]
struct Inner {
    batches: VecDeque<Pending>,
    bytes: usize,
    /// Batches that are logged one by one, each when the one before it is
    /// applied.
    slow: VecDeque<Pending>,
    slow_bytes: usize,
    /// Topics with costly programs: fuel of a call, lately.
    costly: BTreeMap<Box<str>, u64>,
    /// Topics and clients with calls in slow batches: how many.
    held_topics: BTreeMap<Box<str>, usize>,
    held_clients: BTreeMap<ClientId, usize>,
    /// Calls there that make topics.
    held_makes: usize,
    /// The call that was judged beside.
    judged: Option<Judged>,
    tasks: VecDeque<Task>,
    /// Those that need not wait until nothing is deferred.
    tasks_at_once: VecDeque<Task>,
    spare: Vec<Pending>,
    /// Only the store itself may still propose something.
    closing: bool,
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

/// When the commit thread hears of something new, if it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tell {
    Now,
    Later,
    /// Now, and also while the store is being closed.
    Last,
}

/// When a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Between two batches.
    AtOnce,
    /// When nothing is deferred, so that the machine stands where the log does.
    Whole,
}

/// A call that was judged beside the commit thread.
pub(crate) type Judged = Result<Box<Judging>, JudgeDied>;

/// The thread that judged it has panicked.
#[derive(Debug)]
pub(crate) struct JudgeDied;

/// What the commit thread finds.
pub(crate) struct Work {
    pub(crate) batches: VecDeque<Pending>,
    pub(crate) judged: Option<Judged>,
    pub(crate) tasks: VecDeque<Task>,
    pub(crate) tasks_at_once: VecDeque<Task>,
    pub(crate) shut: Option<Shut>,
}

impl Work {
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
            && self.tasks.is_empty()
            && self.tasks_at_once.is_empty()
            && self.judged.is_none()
    }
}

impl Inner {
    /// Fuel that a call is expected to use when it must go with the slow ones:
    /// a program begins, its topics are costly, or something waits there
    /// already that it must not overtake.
    fn slow_fuel(&self, intentions: &[Intention<'_>]) -> Option<u64> {
        let is_quiet = self.costly.is_empty() && self.held_topics.is_empty();
        if is_quiet && !intentions.iter().any(|one| is_start(&one.operation)) {
            return None;
        }
        let mut slow = false;
        let mut sum = 0_u64;
        for intention in intentions {
            let fuel = if is_start(&intention.operation) {
                Some(START_EXPECTED_FUEL)
            } else {
                self.costly.get(intention.topic).copied()
            };
            sum = sum.saturating_add(fuel.unwrap_or(0));
            slow |= fuel.is_some()
                || self.held_topics.contains_key(intention.topic)
                || self.held_clients.contains_key(&intention.client)
                || (self.held_makes > 0 && makes(&intention.operation));
        }
        slow.then_some(sum)
    }

    /// Makes others wait behind these: calls, with whether they make a topic.
    fn hold<'a>(&mut self, calls: impl Iterator<Item = (&'a str, ClientId, bool)>) -> Holds {
        let mut holds = Holds::default();
        for (topic, client, makes) in calls {
            holds.makes += usize::from(makes);
            let calls = &mut holds.calls;
            if calls
                .last()
                .is_some_and(|last| *last.0 == *topic && last.1 == client)
            {
                continue;
            }
            *self.held_topics.entry(Box::from(topic)).or_default() += 1;
            if !client.is_none() {
                *self.held_clients.entry(client).or_default() += 1;
            }
            calls.push((Box::from(topic), client));
        }
        self.held_makes += holds.makes;
        holds
    }

    /// Why a call is not taken.
    fn refuses(&self, tell: Tell) -> Option<Shut> {
        let closing = self.closing && tell != Tell::Last;
        let closing = closing.then_some(Shut::Closed);
        self.shut.clone().or(closing)
    }

    /// Takes out what waits behind costly calls; nobody waits for it any more.
    fn refuse_slow(&mut self) -> VecDeque<Pending> {
        self.slow_bytes = 0;
        let slow = std::mem::take(&mut self.slow);
        for pending in &slow {
            self.release(&pending.holds);
        }
        slow
    }

    fn suspect(&mut self, topic: &str, fuel: u64) {
        if let Some(known) = self.costly.get_mut(topic) {
            *known = fuel.max(*known);
            return;
        }
        // Whoever is dropped is found out again by its next call.
        if self.costly.len() >= COSTLY_TOPICS_MAX {
            let cheapest = self.costly.iter().min_by_key(|(_, fuel)| **fuel);
            if let Some(cheapest) = cheapest.map(|(topic, _)| topic.clone()) {
                self.costly.remove(&cheapest);
            }
        }
        self.costly.insert(Box::from(topic), fuel);
    }

    fn release(&mut self, holds: &Holds) {
        self.held_makes -= holds.makes;
        for (topic, client) in &holds.calls {
            release(&mut self.held_topics, topic);
            if !client.is_none() {
                release(&mut self.held_clients, client);
            }
        }
    }
}

fn release<K, Q>(counts: &mut BTreeMap<K, usize>, key: &Q)
where
    K: Ord + std::borrow::Borrow<Q>,
    Q: Ord + ?Sized,
{
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
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
    /// full. The commit thread is woken now, or by [`wake`](Self::wake).
    pub(crate) fn propose(
        &self,
        author: Author,
        intentions: &[Intention<'_>],
        prepared: Prepared,
        tell: Tell,
    ) -> Result<Proposal, StoreError> {
        if intentions.len() > CALL_ITEMS_MAX {
            return Err(StoreError::LimitExceeded {
                what: "intentions in one call",
                limit: CALL_ITEMS_MAX as u64,
                value: intentions.len() as u64,
            });
        }
        if intentions.is_empty() {
            let (proposal, answer) = Proposal::new(false);
            answer.complete(Ok(weir_core::Outcomes::default()));
            return Ok(proposal);
        }
        // A call that is too large for company gets a batch of its own.
        let size = intentions.iter().map(Intention::size_hint).sum::<usize>();
        let mut inner = self.inner.lock_ok();
        let slow_fuel = loop {
            let slow_fuel = inner.slow_fuel(intentions);
            let is_full = match slow_fuel {
                Some(_) => inner.slow_bytes >= SLOW_BYTES_MAX,
                None => inner.bytes >= QUEUE_BYTES_MAX,
            };
            if !is_full || inner.refuses(tell).is_some() {
                break slow_fuel;
            }
            if std::mem::take(&mut inner.asleep) {
                // What was handed over quietly makes the room.
                self.work.notify_one();
            }
            inner = self
                .room
                .wait(inner)
                .unwrap_or_else(PoisonError::into_inner);
        };
        if let Some(shut) = inner.refuses(tell) {
            return Err(shut.error());
        }
        let (proposal, answer) = Proposal::new(slow_fuel.is_some());
        let fuel = slow_fuel.unwrap_or(0);
        let lane = match slow_fuel {
            Some(_) => &inner.slow,
            None => &inner.batches,
        };
        let fits = lane.back().is_some_and(|last| {
            !self.apart
                && last.builder.bytes() + size <= BATCH_BYTES_MAX
                && last.builder.len() + intentions.len() <= BATCH_ITEMS_MAX
                && last.fuel.saturating_add(fuel) <= SLOW_BATCH_FUEL
        });
        let fresh = if fits { None } else { inner.spare.pop() };
        let holds = match slow_fuel {
            Some(_) => inner.hold(
                intentions
                    .iter()
                    .map(|one| (one.topic, one.client, makes(&one.operation))),
            ),
            None => Holds::default(),
        };
        let lane = match slow_fuel {
            Some(_) => &mut inner.slow,
            None => &mut inner.batches,
        };
        if !fits {
            lane.push_back(fresh.unwrap_or_default());
        }
        let Some(last) = lane.back_mut() else {
            return Err(StoreError::Closed);
        };
        let before = last.builder.bytes();
        if let Err((index, error)) = last.builder.push_all_from(author, intentions, &self.limits) {
            if last.waiters.is_empty() {
                lane.pop_back();
            }
            inner.release(&holds);
            return Err(StoreError::Refused { index, error });
        }
        let added = last.builder.bytes() - before;
        let count = u32::try_from(intentions.len()).unwrap_or(u32::MAX);
        last.waiters.push((count, answer));
        last.prepared.0.extend(prepared.0);
        last.is_slow = slow_fuel.is_some();
        last.fuel = last.fuel.saturating_add(fuel);
        last.holds.calls.extend(holds.calls);
        last.holds.makes += holds.makes;
        if slow_fuel.is_some() {
            inner.slow_bytes += added;
        } else {
            inner.bytes += added;
        }
        for intention in intentions {
            if is_start(&intention.operation) {
                inner.suspect(intention.topic, COSTLY_FUEL);
            }
        }
        let asleep = tell != Tell::Later && std::mem::take(&mut inner.asleep);
        drop(inner);
        if asleep {
            self.work.notify_one();
        }
        Ok(proposal)
    }

    /// Wakes the commit thread if it sleeps beside work.
    pub(crate) fn wake(&self) {
        let mut inner = self.inner.lock_ok();
        if !inner.asleep || (inner.batches.is_empty() && inner.slow.is_empty()) {
            return;
        }
        inner.asleep = false;
        drop(inner);
        self.work.notify_one();
    }

    /// Whether these intentions would go with the slow ones now.
    pub(crate) fn is_slow(&self, intentions: &[Intention<'_>]) -> bool {
        self.inner.lock_ok().slow_fuel(intentions).is_some()
    }

    /// Hands work to the commit thread.
    pub(crate) fn task(&self, when: When, task: Task) -> Result<(), StoreError> {
        let mut inner = self.inner.lock_ok();
        // A poisoned store still serves reads and tasks.
        if inner.gone || inner.shut.as_ref().is_some_and(Shut::is_closed) {
            return Err(inner.shut.as_ref().unwrap_or(&Shut::Closed).error());
        }
        match when {
            When::AtOnce => inner.tasks_at_once.push_back(task),
            When::Whole => inner.tasks.push_back(task),
        }
        drop(inner);
        self.work.notify_one();
        Ok(())
    }

    /// Makes others wait behind what is left of a batch that was not slow and
    /// is deferred, until it is [recycled](Self::recycle).
    pub(crate) fn hold_back(&self, pending: &mut Pending, items: &Items<'_>) {
        let calls = items.clone().filter_map(Result::ok);
        let mut inner = self.inner.lock_ok();
        let holds = inner.hold(calls.filter_map(|item| {
            let topic = std::str::from_utf8(item.topic).ok()?;
            let makes = matches!(item.action, Action::Create { .. });
            Some((topic, item.client, makes))
        }));
        pending.holds.calls.extend(holds.calls);
        pending.holds.makes += holds.makes;
    }

    /// Whether slow batches wait.
    pub(crate) fn has_slow(&self) -> bool {
        !self.inner.lock_ok().slow.is_empty()
    }

    /// Whether batches wait that [`take`](Self::take) gives in any case.
    pub(crate) fn has_batches(&self) -> bool {
        !self.inner.lock_ok().batches.is_empty()
    }

    /// Takes everything that waits; sleeps while there is nothing, at most for
    /// `patience`. Of the slow batches at most one comes, and only to one who
    /// is ready for it.
    pub(crate) fn take(&self, patience: Option<Duration>, slow_too: bool) -> Work {
        let mut inner = self.inner.lock_ok();
        while inner.batches.is_empty()
            && inner.tasks.is_empty()
            && inner.tasks_at_once.is_empty()
            && inner.judged.is_none()
            && (inner.slow.is_empty() || !slow_too)
            && !inner.shut.as_ref().is_some_and(Shut::is_closed)
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
        let mut batches = std::mem::take(&mut inner.batches);
        if slow_too && let Some(slow) = inner.slow.pop_front() {
            inner.slow_bytes = inner.slow_bytes.saturating_sub(slow.builder.bytes());
            batches.push_back(slow);
        }
        let work = Work {
            batches,
            judged: inner.judged.take(),
            tasks: std::mem::take(&mut inner.tasks),
            tasks_at_once: std::mem::take(&mut inner.tasks_at_once),
            shut: inner.shut.clone(),
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
        pending.is_slow = false;
        pending.fuel = 0;
        let mut inner = self.inner.lock_ok();
        inner.release(&pending.holds);
        pending.holds.calls.clear();
        pending.holds.makes = 0;
        if inner.spare.len() < 4 {
            inner.spare.push(pending);
        }
    }

    /// A program of this topic used so much fuel in a call. Topics that need
    /// much are kept apart from the others until they need less.
    pub(crate) fn spent(&self, topic: &str, fuel: u64) {
        let mut inner = self.inner.lock_ok();
        let Some(known) = inner.costly.get_mut(topic) else {
            if fuel >= COSTLY_FUEL {
                inner.suspect(topic, fuel);
            }
            return;
        };
        *known = *known / 4 * 3 + fuel / 4;
        if *known < COSTLY_FUEL / 2 {
            inner.costly.remove(topic);
        }
    }

    /// What a program needs is not known: its first calls are judged apart.
    pub(crate) fn suspect(&self, topic: &str) {
        self.inner.lock_ok().suspect(topic, COSTLY_FUEL);
    }

    /// A topic cannot be costly any more.
    pub(crate) fn forget(&self, topic: &str) {
        self.inner.lock_ok().costly.remove(topic);
    }

    /// A call was judged, or its judge died.
    pub(crate) fn judged(&self, judging: Judged) {
        let mut inner = self.inner.lock_ok();
        inner.judged = Some(judging);
        drop(inner);
        self.work.notify_one();
    }

    /// Waits for the call that is being judged.
    pub(crate) fn wait_judged(&self) -> Judged {
        let mut inner = self.inner.lock_ok();
        loop {
            if let Some(judging) = inner.judged.take() {
                return judging;
            }
            inner = self
                .work
                .wait(inner)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The commit thread ends: what still waits is answered with an error, and
    /// nothing is taken any more.
    pub(crate) fn leave(&self, why: &Shut) {
        let mut inner = self.inner.lock_ok();
        inner.gone = true;
        inner.shut = Some(why.clone());
        let batches = std::mem::take(&mut inner.batches);
        let slow = std::mem::take(&mut inner.slow);
        let tasks = std::mem::take(&mut inner.tasks);
        let at_once = std::mem::take(&mut inner.tasks_at_once);
        drop(inner);
        self.room.notify_all();
        refuse(batches, why);
        refuse(slow, why);
        drop((tasks, at_once));
    }

    /// The store is going to be closed: nobody but the store itself proposes
    /// anything any more, and what is not logged because costly calls are
    /// before it is refused.
    pub(crate) fn begin_close(&self) {
        let mut inner = self.inner.lock_ok();
        inner.closing = true;
        let slow = inner.refuse_slow();
        drop(inner);
        refuse(slow, &Shut::Closed);
        self.room.notify_all();
    }

    /// Takes no more calls. Closing replaces any earlier reason. Batches that
    /// are not logged because costly ones are before them are not waited for.
    pub(crate) fn shut(&self, why: &Shut) {
        let mut inner = self.inner.lock_ok();
        if inner.shut.is_none() || why.is_closed() {
            inner.shut = Some(why.clone());
        }
        let slow = inner.refuse_slow();
        drop(inner);
        refuse(slow, why);
        self.work.notify_one();
        self.room.notify_all();
    }
}

fn refuse(batches: VecDeque<Pending>, why: &Shut) {
    for pending in batches {
        for (_, answer) in pending.waiters {
            answer.complete(Err(why.error()));
        }
    }
}
