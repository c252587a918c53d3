//! The queue of batches for the commit thread.
//!
//! Callers encode their intentions directly into the batch that will be logged, so a value is
//! copied once. When the commit thread returns from a sync, it takes everything in the quick lane
//! for the next sync. This is group commit without a timer. Calls that are expected to be costly
//! wait in the slow lane (docs/decisions/0053), which is admitted in small batches. Both lanes are
//! bounded in bytes; a caller blocks while its lane is full.
//!
//! Invariants:
//!
//! - Calls that share a topic or a client are logged in the order in which they were proposed,
//!   except for steps of groups.
//! - A step of a group is logged in order with the writes of its client and with the start of the
//!   program of its topic. It has no order with other writes to its topic.
//! - The parts of one call are logged in order.

mod applied_cost;
mod caller;
mod cost;
mod in_flight;
mod lane;

use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use weir_core::batch::{Author, BatchBuilder};
use weir_core::exact::to_u32;
use weir_core::intention::{Intention, IntentionLimits, Operation};
use weir_core::limits::{BATCH_BYTES_MAX, BATCH_ITEMS_MAX, CALL_ITEMS_MAX, FUEL_DEFAULT};
use weir_core::{CodeHash, Program, TopicName};

use crate::error::StoreError;
use crate::proposal::{Answer, Proposal};
pub(crate) use applied_cost::fuel_of;
pub(crate) use cost::{COSTLY_FUEL, fuel_of_a_call};
use cost::{CostModel, Expected};
use in_flight::InFlight;
use lane::{Lane, Names};

/// Maximum bytes of encoded intentions that wait in the quick lane. One call may exceed the
/// maximum.
pub(crate) const QUEUE_BYTES_MAX: usize = 64 << 20;
/// Maximum bytes of encoded intentions that wait in the slow lane. A server admits less.
pub(crate) const SLOW_BYTES_MAX: usize = 96 << 20;
/// Maximum expected fuel of all calls in one slow batch: that of one call at the default limit. One
/// intention may exceed the maximum.
pub(crate) const SLOW_BATCH_FUEL: u64 = FUEL_DEFAULT;
/// Maximum calls of programs in one slow batch. The maximum bounds the delay of other calls if
/// these calls cost more than expected.
const SLOW_BATCH_CALLS_MAX: usize = 256;
/// Maximum calls of programs in the batches of the quick lane that share a sync. The maximum bounds
/// the delay of other calls too. One call may exceed it.
const QUICK_CALLS_MAX: usize = 1024;
/// Maximum bytes of memory that a recycled batch keeps.
const SPARE_BYTES: usize = BATCH_BYTES_MAX + (64 << 10);

/// An open batch, and the callers that wait for its items, in order.
#[derive(Default)]
pub(crate) struct Pending {
    pub(crate) builder: BatchBuilder,
    pub(crate) waiters: Vec<(u32, Answer)>,
    /// Compiled programs that its items contain. The batch owns them, so that the host does not
    /// evict them before the apply.
    pub(crate) prepared: Vec<PreparedProgram>,
    /// Rejections of modules that its items contain, for the same reason.
    rejections: Vec<Arc<str>>,
    /// For a batch of the slow lane: its flow, and its expected fuel.
    pub(crate) slow: Option<(Box<str>, u64)>,
    /// Number of calls of programs. Starts of programs and DESTROYs count too.
    pub(crate) calls: usize,
    /// Number of DESTROYs.
    destroys: usize,
}

impl Pending {
    /// Whether a batch of the slow lane has room for these bytes, items and calls of programs.
    fn has_room(&self, bytes: usize, items: usize, calls: usize) -> bool {
        self.builder.bytes() + bytes <= BATCH_BYTES_MAX
            && self.builder.len() + items <= BATCH_ITEMS_MAX
            && self.calls + calls <= SLOW_BATCH_CALLS_MAX
    }

    /// Adds all items and waiters of a batch of the same flow, which is empty afterwards.
    fn join(&mut self, other: &mut Self) {
        self.builder.append(&other.builder);
        self.waiters.append(&mut other.waiters);
        self.prepared.append(&mut other.prepared);
        self.rejections.append(&mut other.rejections);
        self.calls += other.calls;
        self.destroys += other.destroys;
        if let (Some((_, expected)), Some((_, more))) = (&mut self.slow, &other.slow) {
            *expected = expected.saturating_add(*more);
        }
    }
}

/// The compiled program of an intention that is not applied yet.
pub(crate) struct PreparedProgram {
    pub(crate) program: Box<dyn Program>,
    _reservation: Option<Arc<()>>,
}

impl PreparedProgram {
    /// The reservation counts the module of the program until the apply. `None` if the store, or an
    /// earlier intention of the call, has the module.
    pub(crate) fn new(program: Box<dyn Program>, reservation: Option<Arc<()>>) -> Self {
        Self {
            program,
            _reservation: reservation,
        }
    }
}

/// Results of the preparation of intentions, before they are queued.
#[derive(Default)]
pub(crate) struct Prepared {
    /// Programs that were compiled.
    pub(crate) programs: Vec<PreparedProgram>,
    /// Rejections that the host keeps while these texts exist.
    pub(crate) rejections: Vec<Arc<str>>,
    /// Whether the present state implies that every program start among the intentions will be
    /// rejected before its program is called.
    pub(crate) starts_refused: bool,
}

/// The reason why the queue rejects calls.
#[derive(Clone, Debug)]
pub(crate) enum ShutReason {
    Closed,
    ReadOnly,
    Poisoned(Arc<StoreError>),
}

impl ShutReason {
    pub(crate) fn error(&self) -> StoreError {
        match self {
            Self::Closed => StoreError::Closed,
            Self::ReadOnly => StoreError::ReadOnly,
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
    slow: Lane<Pending>,
    slow_bytes: usize,
    costs: CostModel,
    /// Topics whose module was restored and is not compiled. Their calls are held in the slow lane.
    /// Otherwise the apply would compile the module.
    uncompiled: BTreeMap<Box<str>, CodeHash>,
    /// Number of threads that compile restored modules.
    compilers: usize,
    /// Number of DESTROYs that are not applied yet. While there are any, the state that a program
    /// start will find is unknown.
    destroys: usize,
    /// Number of tasks in the channel of the commit thread.
    tasks: usize,
    spare: Vec<Pending>,
    /// Whether the store is being closed: only the store itself may still propose intentions.
    closing: bool,
    shut: Option<ShutReason>,
    /// Whether the commit thread has ended.
    thread_ended: bool,
    asleep: bool,
    /// The batches that a log provider has and that have no result yet.
    in_flight: InFlight,
}

pub(crate) struct Queue {
    inner: Mutex<Inner>,
    work: Condvar,
    space: Condvar,
    limits: IntentionLimits,
    /// Maximum number of batches that a log provider has at a time. Unbounded without a provider.
    in_flight_max: AtomicUsize,
    /// Whether each call gets a separate batch.
    one_call_per_batch: bool,
}

/// When a call wakes the commit thread, if that thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notify {
    Now,
    Deferred,
    /// As `Now`, and the call is accepted even while the store is being closed.
    Last,
}

/// The work that the commit thread takes from the queue.
pub(crate) struct Work {
    pub(crate) batches: VecDeque<Pending>,
    /// Number of tasks in the channel of the commit thread.
    pub(crate) tasks: usize,
    pub(crate) shut: Option<ShutReason>,
    /// Time of the applies of the batches of the slow lane that a log provider has completed.
    pub(crate) slow_time: Duration,
}

impl Work {
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.tasks == 0 && self.slow_time.is_zero()
    }
}

/// The expected cost of a call, and the lane in which it waits.
#[derive(Clone, Copy, Debug)]
struct Plan {
    may_start: bool,
    fuel: u64,
    calls: usize,
    is_slow: bool,
}

impl Inner {
    fn plan(&self, intentions: &[Intention<'_>], starts_refused: bool) -> Plan {
        let mut plan = Plan {
            may_start: !starts_refused || self.destroys > 0,
            fuel: 0,
            calls: 0,
            is_slow: false,
        };
        let is_idle = self.slow.is_empty();
        for intention in intentions {
            let one = self.costs.expected(intention, plan.may_start);
            plan.fuel = plan.fuel.saturating_add(one.fuel);
            plan.calls += one.calls;
            plan.is_slow |= one.is_slow || (!is_idle && self.must_follow(intention));
        }
        plan.is_slow |= plan.calls > 0 && plan.fuel > SLOW_BATCH_FUEL;
        plan
    }

    /// Whether a call waits in the slow lane that `intention` must not overtake.
    fn must_follow(&self, intention: &Intention<'_>) -> bool {
        let topic = intention.topic;
        let by_topic = match intention.operation {
            Operation::Cursor { .. } => self.slow.has_start(topic),
            _ => self.slow.has_topic(topic),
        };
        by_topic || self.slow.has_client(intention.client)
    }

    /// Returns the reason why a call is rejected; `None` if it is accepted.
    fn refuses(&self, notify: Notify) -> Option<ShutReason> {
        let closing = self.closing && notify != Notify::Last;
        let closing = closing.then_some(ShutReason::Closed);
        self.shut.clone().or(closing)
    }

    /// Removes the calls that wait in the slow lane, and returns their batches. With `begun_too`
    /// false, calls stay if one of their parts was already admitted to the log.
    fn refuse_slow(&mut self, begun_too: bool) -> Vec<Pending> {
        let begun = |pending: &Pending| pending.waiters.iter().any(|(_, slot)| slot.has_begun());
        let refused = self.slow.take_if(|pending| begun_too || !begun(pending));
        for pending in &refused {
            self.slow_bytes -= pending.builder.bytes();
            self.destroys -= pending.destroys;
        }
        refused
    }

    /// Appends the next batches of the slow lane to `batches`, for one sync. With `may_join`, calls
    /// of one topic share a batch.
    fn take_slow(&mut self, batches: &mut VecDeque<Pending>, may_join: bool) {
        let mut fuel = 0_u64;
        while let Some(number) = self.slow.first() {
            let cost = self.price(number);
            if fuel > 0 && fuel.saturating_add(cost) > SLOW_BATCH_FUEL {
                break;
            }
            let topic: Option<Box<str>> = self.slow.only_topic(number).map(Box::from);
            let Some(mut batch) = self.take_call(number, cost) else {
                continue;
            };
            fuel = fuel.saturating_add(cost);
            while let Some(topic) = topic.as_deref().filter(|_| may_join)
                && let Some(number) = self.slow.first_of(topic)
                && let Some((next, _)) = self.slow.get(number)
                && batch.has_room(next.builder.bytes(), next.builder.len(), next.calls)
            {
                let cost = self.price(number);
                if fuel.saturating_add(cost) > SLOW_BATCH_FUEL {
                    break;
                }
                if let Some(mut next) = self.take_call(number, cost) {
                    fuel = fuel.saturating_add(cost);
                    batch.join(&mut next);
                    self.keep_spare(next);
                }
            }
            batches.push_back(batch);
        }
    }

    /// Returns the expected fuel of a call in the slow lane. At its arrival, the fuel of a new
    /// program was unknown; meanwhile, calls before it may have used less.
    fn price(&self, number: u64) -> u64 {
        let Some((pending, cost)) = self.slow.get(number) else {
            unreachable!("a call that is ready is in the lane");
        };
        let topic = self.slow.only_topic(number);
        let fuel = topic.and_then(|topic| self.costs.fuel_of_calls(topic, pending.calls));
        fuel.map_or(cost, |fuel| fuel.min(cost))
    }

    /// Removes a ready call from the slow lane. `None` if a part of the call has failed: the other
    /// parts must not be executed.
    fn take_call(&mut self, number: u64, cost: u64) -> Option<Pending> {
        let mut pending = self.slow.take(number, cost)?;
        self.slow_bytes -= pending.builder.bytes();
        if !pending.waiters.iter_mut().all(|(_, slot)| slot.begin()) {
            self.destroys -= pending.destroys;
            return None;
        }
        if let Some((_, expected)) = &mut pending.slow {
            *expected = cost;
        }
        Some(pending)
    }

    /// Releases the held calls of topics for which `is_done` returns true.
    fn release(&mut self, is_done: impl Fn(&str, CodeHash) -> bool) {
        let slow = &mut self.slow;
        self.uncompiled.retain(|topic, code| {
            let is_done = is_done(topic, *code);
            if is_done {
                slow.release(topic);
            }
            !is_done
        });
    }

    fn spare(&mut self) -> Pending {
        self.spare.pop().unwrap_or_default()
    }

    /// Retains the memory of a batch for a later batch.
    fn keep_spare(&mut self, mut pending: Pending) {
        if self.spare.len() < 4 {
            pending.builder.clear(SPARE_BYTES);
            pending.waiters.clear();
            pending.prepared.clear();
            pending.rejections.clear();
            (pending.slow, pending.calls, pending.destroys) = (None, 0, 0);
            self.spare.push(pending);
        }
    }
}

/// A part of a call that becomes one batch of the slow lane.
struct Part<'a> {
    intentions: &'a [Intention<'a>],
    names: Names,
    flow: &'a str,
    fuel: u64,
    calls: usize,
    destroys: usize,
}

impl<'a> Part<'a> {
    fn new(lane: &Lane<Pending>, intentions: &'a [Intention<'a>], costs: &[Expected]) -> Self {
        let mut part = Self {
            intentions,
            names: Names::default(),
            flow: "",
            fuel: 0,
            calls: 0,
            destroys: destroys(intentions),
        };
        let mut most = 0;
        for (intention, cost) in intentions.iter().zip(costs) {
            // A group step has an order only with the start of a program. If it always named its
            // topic, writes to the topic would wait for it.
            let is_group_step = matches!(intention.operation, Operation::Cursor { .. });
            let topic = intention.topic;
            if !is_group_step || lane.has_start(topic) {
                part.names.topics.insert(Box::from(topic));
            }
            if cost.is_slow && is_start(&intention.operation) {
                part.names.starts.insert(Box::from(topic));
            }
            if !intention.client.is_none() {
                part.names.clients.insert(intention.client);
            }
            if cost.fuel > most {
                (most, part.flow) = (cost.fuel, topic);
            }
            part.fuel = part.fuel.saturating_add(cost.fuel);
            part.calls += cost.calls;
        }
        part.calls += part.destroys;
        part
    }

    fn size_hint(&self) -> usize {
        self.intentions.iter().map(Intention::size_hint).sum()
    }
}

fn is_start(operation: &Operation<'_>) -> bool {
    matches!(
        operation,
        Operation::CreateProgram { .. } | Operation::Replace { .. }
    )
}

fn destroys(intentions: &[Intention<'_>]) -> usize {
    let is_destroy = |one: &&Intention<'_>| matches!(one.operation, Operation::Destroy);
    intentions.iter().filter(is_destroy).count()
}

/// Returns how many of the first intentions fit into one slow batch; at least one.
fn part_len(intentions: &[Intention<'_>], costs: &[Expected]) -> usize {
    let (mut fuel, mut calls, mut bytes) = (0_u64, 0, 0);
    let fits = |(intention, cost): &(&Intention<'_>, &Expected)| {
        fuel = fuel.saturating_add(cost.fuel);
        calls += cost.calls;
        bytes += intention.size_hint();
        fuel <= SLOW_BATCH_FUEL && calls <= SLOW_BATCH_CALLS_MAX && bytes <= BATCH_BYTES_MAX
    };
    let len = intentions.iter().zip(costs).take_while(fits).count();
    len.max(1)
}

impl Queue {
    pub(crate) fn new(limits: IntentionLimits, one_call_per_batch: bool) -> Self {
        let inner = Mutex::new(Inner::default());
        Self {
            inner,
            work: Condvar::new(),
            space: Condvar::new(),
            limits,
            in_flight_max: AtomicUsize::new(usize::MAX),
            one_call_per_batch,
        }
    }

    /// Returns the limits for intentions.
    pub(crate) fn limits(&self) -> IntentionLimits {
        self.limits
    }

    /// Queues the intentions of one call, which get one result. Blocks while the lane is full.
    pub(crate) fn propose(
        &self,
        author: Author,
        intentions: &[Intention<'_>],
        prepared: Prepared,
        notify: Notify,
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
        let mut inner = self.inner.lock();
        let plan = loop {
            let plan = inner.plan(intentions, prepared.starts_refused);
            let is_full = if plan.is_slow {
                inner.slow_bytes >= SLOW_BYTES_MAX
            } else {
                inner.bytes >= QUEUE_BYTES_MAX
            };
            if !is_full || inner.refuses(notify).is_some() {
                break plan;
            }
            if std::mem::take(&mut inner.asleep) {
                // Deferred calls have not woken the thread; it must take them to free space.
                self.work.notify_one();
            }
            self.space.wait(&mut inner);
        };
        if let Some(shut) = inner.refuses(notify) {
            return Err(shut.error());
        }
        let (proposal, answer) = Proposal::new(plan.is_slow);
        if plan.is_slow {
            self.push_slow(&mut inner, author, intentions, prepared, plan, answer)?;
        } else {
            self.push_quick(&mut inner, author, intentions, prepared, plan, answer)?;
        }
        inner.destroys += destroys(intentions);
        let asleep = notify != Notify::Deferred && std::mem::take(&mut inner.asleep);
        drop(inner);
        if asleep {
            self.work.notify_one();
        }
        Ok(proposal)
    }

    fn push_quick(
        &self,
        inner: &mut Inner,
        author: Author,
        intentions: &[Intention<'_>],
        prepared: Prepared,
        plan: Plan,
        answer: Answer,
    ) -> Result<(), StoreError> {
        let size = intentions.iter().map(Intention::size_hint).sum::<usize>();
        // A call that does not fit into the last batch starts a new one.
        let fits = inner.batches.back().is_some_and(|last| {
            !self.one_call_per_batch
                && last.builder.bytes() + size <= BATCH_BYTES_MAX
                && last.builder.len() + intentions.len() <= BATCH_ITEMS_MAX
                && last.calls + plan.calls <= QUICK_CALLS_MAX
        });
        if !fits {
            let batch = inner.spare();
            inner.batches.push_back(batch);
        }
        let Some(last) = inner.batches.back_mut() else {
            unreachable!("a batch was just pushed");
        };
        let before = last.builder.bytes();
        if let Err(error) = encode(&mut last.builder, author, intentions, &self.limits, 0) {
            if last.waiters.is_empty() {
                inner.batches.pop_back();
            }
            return Err(error);
        }
        let added = last.builder.bytes() - before;
        last.waiters.push((count(intentions), answer));
        last.prepared.extend(prepared.programs);
        last.rejections.extend(prepared.rejections);
        let destroys = destroys(intentions);
        last.calls += plan.calls + destroys;
        last.destroys += destroys;
        inner.bytes += added;
        Ok(())
    }

    fn push_slow(
        &self,
        inner: &mut Inner,
        author: Author,
        intentions: &[Intention<'_>],
        prepared: Prepared,
        plan: Plan,
        answer: Answer,
    ) -> Result<(), StoreError> {
        if let Some((number, part)) = self.joinable_writes(inner, intentions, plan) {
            return self.join(inner, number, author, &part, answer);
        }
        let expected = |one| inner.costs.expected(one, plan.may_start);
        let costs: Vec<Expected> = intentions.iter().map(expected).collect();
        let mut parts = Vec::new();
        let mut rest = (intentions, &costs[..]);
        while !rest.0.is_empty() {
            let len = part_len(rest.0, rest.1);
            let (part, costs) = (rest.0.split_at(len), rest.1.split_at(len));
            parts.push(Part::new(&inner.slow, part.0, costs.0));
            rest = (part.1, costs.1);
        }
        let starts: Vec<(&str, u64)> = intentions
            .iter()
            .zip(&costs)
            .filter(|(_, cost)| cost.is_slow)
            .filter_map(|(one, _)| match one.operation {
                Operation::CreateProgram { options, .. } => {
                    Some((one.topic, fuel_of_a_call(options)))
                }
                _ => None,
            })
            .collect();
        if let [part] = &parts[..]
            && let Some(number) = self.joinable(inner, part)
        {
            return self.join(inner, number, author, part, answer);
        }
        let mut batches = Vec::new();
        let mut done = 0;
        for part in parts {
            let mut pending = inner.spare();
            encode(
                &mut pending.builder,
                author,
                part.intentions,
                &self.limits,
                done,
            )?;
            done += part.intentions.len();
            pending.calls = part.calls;
            pending.destroys = part.destroys;
            pending.slow = Some((Box::from(part.flow), part.fuel));
            batches.push((pending, part));
        }
        // Parts are applied in order: the last batch retains the programs until all are applied.
        if let Some((last, _)) = batches.last_mut() {
            last.prepared.extend(prepared.programs);
            last.rejections.extend(prepared.rejections);
        }
        let divided_call = (batches.len() > 1).then(|| inner.slow.divide());
        let answers = answer.split(batches.len());
        for ((mut pending, mut part), answer) in batches.into_iter().zip(answers) {
            part.names.divided_call = divided_call;
            pending.waiters.push((count(part.intentions), answer));
            inner.slow_bytes += pending.builder.bytes();
            inner.slow.push(pending, part.names, part.flow, part.fuel);
        }
        for (topic, fuel_max) in starts {
            inner.costs.starting(topic, fuel_max);
        }
        Ok(())
    }

    /// Adds a call, which is one part, to a waiting call.
    fn join(
        &self,
        inner: &mut Inner,
        number: u64,
        author: Author,
        part: &Part<'_>,
        answer: Answer,
    ) -> Result<(), StoreError> {
        let last = inner.slow.get_mut(number);
        let before = last.builder.bytes();
        encode(&mut last.builder, author, part.intentions, &self.limits, 0)?;
        let added = last.builder.bytes() - before;
        last.waiters.push((count(part.intentions), answer));
        last.calls += part.calls;
        last.destroys += part.destroys;
        if let Some((_, expected)) = &mut last.slow {
            *expected += part.fuel;
        }
        inner.slow_bytes += added;
        inner.slow.join(number, &part.names, part.fuel);
        Ok(())
    }

    /// Returns the waiting call to which the writes of one client to one topic can be added, and
    /// the part to add. The part has no names, because the waiting call has them. A burst of
    /// writes to a new program takes this path: names cost more than the rest of a call.
    fn joinable_writes<'a>(
        &self,
        inner: &mut Inner,
        intentions: &'a [Intention<'a>],
        plan: Plan,
    ) -> Option<(u64, Part<'a>)> {
        let first = intentions.first()?;
        let is_same_write = |one: &Intention<'_>| {
            matches!(
                one.operation,
                Operation::Put { .. } | Operation::Delete { .. } | Operation::Txn { .. }
            ) && one.topic == first.topic
                && one.client == first.client
        };
        if self.one_call_per_batch || !intentions.iter().all(is_same_write) {
            return None;
        }
        let part = Part {
            intentions,
            names: Names::default(),
            flow: first.topic,
            fuel: plan.fuel,
            calls: plan.calls,
            destroys: 0,
        };
        let slow = &mut inner.slow;
        let number = slow.last_of(first.topic, first.client, part.fuel, SLOW_BATCH_FUEL)?;
        let has_room =
            slow.get_mut(number)
                .has_room(part.size_hint(), intentions.len(), part.calls);
        has_room.then_some((number, part))
    }

    /// Returns the batch of the slow lane to which a call can be added.
    fn joinable(&self, inner: &mut Inner, part: &Part<'_>) -> Option<u64> {
        let number = (!self.one_call_per_batch)
            .then(|| inner.slow.joinable(&part.names, part.fuel, SLOW_BATCH_FUEL))
            .flatten()?;
        let last = inner.slow.get_mut(number);
        last.has_room(part.size_hint(), part.intentions.len(), part.calls)
            .then_some(number)
    }

    /// Wakes the commit thread if it sleeps although work is ready.
    pub(crate) fn wake(&self) {
        let mut inner = self.inner.lock();
        if !inner.asleep || (inner.batches.is_empty() && !inner.slow.is_ready()) {
            return;
        }
        inner.asleep = false;
        drop(inner);
        self.work.notify_one();
    }

    /// Whether these intentions would go to the slow lane now.
    pub(crate) fn is_slow(&self, intentions: &[Intention<'_>], starts_refused: bool) -> bool {
        self.inner.lock().plan(intentions, starts_refused).is_slow
    }

    /// Counts a task for the commit thread, and wakes that thread. `send` puts the task into the
    /// channel of the thread; it is not called if the thread has ended or the store is closed.
    pub(crate) fn task(&self, send: impl FnOnce()) -> Result<(), StoreError> {
        let mut inner = self.inner.lock();
        // A poisoned store still serves reads and tasks.
        if inner.thread_ended || inner.shut.as_ref().is_some_and(ShutReason::is_closed) {
            return Err(inner.shut.as_ref().unwrap_or(&ShutReason::Closed).error());
        }
        send();
        inner.tasks += 1;
        drop(inner);
        self.work.notify_one();
        Ok(())
    }

    /// Whether batches wait in the quick lane.
    pub(crate) fn has_batches(&self) -> bool {
        !self.inner.lock().batches.is_empty()
    }

    /// Blocks until the commit thread has work, up to `patience` (`None`: no limit). After `slow_due`,
    /// the calls of the slow lane count as work.
    pub(crate) fn wait(&self, patience: Option<Duration>, slow_due: Instant) {
        let since = Instant::now();
        let mut inner = self.inner.lock();
        while !self.has_work(&inner, slow_due) {
            let left = patience.map(|patience| patience.saturating_sub(since.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            let slow_after = self.may_take_slow(&inner).then(|| {
                // Zero only if the slow lane became due after the check.
                slow_due.saturating_duration_since(Instant::now())
            });
            inner.asleep = true;
            match [left, slow_after].into_iter().flatten().min() {
                None => self.work.wait(&mut inner),
                Some(time) => {
                    self.work.wait_for(&mut inner, time);
                }
            }
        }
        inner.asleep = false;
    }

    fn has_work(&self, inner: &Inner, slow_due: Instant) -> bool {
        (!inner.batches.is_empty() && !self.is_held(inner))
            || inner.tasks > 0
            || inner.in_flight.has_slow_time()
            || self.is_slow_due(inner, slow_due)
            || inner.shut.as_ref().is_some_and(ShutReason::is_closed)
    }

    /// Whether the provider gets no batch until it completes one.
    fn is_held(&self, inner: &Inner) -> bool {
        inner.in_flight.batches >= self.in_flight_max.load(Ordering::Relaxed)
    }

    fn may_take_slow(&self, inner: &Inner) -> bool {
        inner.slow.is_ready()
            && !self.is_held(inner)
            && (inner.shut.is_some() || inner.in_flight.may_take_slow())
    }

    fn is_slow_due(&self, inner: &Inner, slow_due: Instant) -> bool {
        self.may_take_slow(inner) && (inner.shut.is_some() || Instant::now() >= slow_due)
    }

    /// Takes everything in the quick lane, with at most [`QUICK_CALLS_MAX`] calls of programs. After
    /// `slow_due`, also takes batches of the slow lane for one sync. Does not block.
    pub(crate) fn take(&self, slow_due: Instant) -> Work {
        let mut inner = self.inner.lock();
        let in_flight_max = self.in_flight_max.load(Ordering::Relaxed);
        let mut batches = VecDeque::new();
        let mut calls = 0;
        while batches.len() < in_flight_max.saturating_sub(inner.in_flight.batches)
            && let Some(next) = inner.batches.front()
        {
            if calls > 0 && calls + next.calls > QUICK_CALLS_MAX {
                break;
            }
            calls += next.calls;
            inner.bytes -= next.builder.bytes();
            batches.extend(inner.batches.pop_front());
        }
        // A slow batch must not overtake earlier calls of the quick lane.
        if inner.batches.is_empty() && self.is_slow_due(&inner, slow_due) {
            inner.take_slow(&mut batches, !self.one_call_per_batch);
        }
        let work = Work {
            batches,
            tasks: std::mem::take(&mut inner.tasks),
            shut: inner.shut.clone(),
            slow_time: inner.in_flight.take_slow_time(),
        };
        drop(inner);
        self.space.notify_all();
        work
    }

    /// Sets the maximum number of batches that a log provider has at a time; at least 1.
    pub(crate) fn set_in_flight_max(&self, batches: usize) {
        self.in_flight_max.store(batches.max(1), Ordering::Relaxed);
    }

    /// Counts a batch that is proposed to a log provider.
    pub(crate) fn admitted(&self, is_slow: bool) {
        self.inner.lock().in_flight.add(is_slow);
    }

    /// Counts a batch that a log provider has completed. `slow_time` is the time of the apply of a
    /// batch of the slow lane; zero if it was not applied.
    pub(crate) fn completed(&self, slow_time: Option<Duration>) {
        let mut inner = self.inner.lock();
        inner.in_flight.remove(slow_time);
        // Without work, the commit thread would only sleep again.
        let may_have_work =
            !inner.batches.is_empty() || inner.slow.is_ready() || inner.in_flight.has_slow_time();
        let asleep = may_have_work && std::mem::take(&mut inner.asleep);
        drop(inner);
        if asleep {
            self.work.notify_one();
        }
    }

    /// Retains the memory of a completed batch for a later batch.
    pub(crate) fn recycle(&self, pending: Pending) {
        let mut inner = self.inner.lock();
        inner.destroys -= pending.destroys;
        inner.keep_spare(pending);
    }

    /// Registers the programs of topics after an open, each with the fuel limit of a call. If a
    /// thread compiles restored modules, calls of a program for which `is_deferred` is true wait
    /// until the program is compiled.
    pub(crate) fn restored(
        &self,
        programs: &[(TopicName, u64, CodeHash)],
        is_deferred: impl Fn(CodeHash) -> bool,
    ) {
        let mut inner = self.inner.lock();
        inner.release(|_, _| true);
        for (topic, fuel_max, code) in programs {
            inner.costs.started(topic.as_str(), *fuel_max);
            // Call `is_deferred` under the lock, so that a concurrent `compiled` is not missed.
            if inner.compilers > 0 && is_deferred(*code) {
                inner.slow.hold(topic.as_str());
                inner.uncompiled.insert(Box::from(topic.as_str()), *code);
            }
        }
    }

    /// Counts a thread that begins to compile restored modules.
    pub(crate) fn compiler_began(&self) {
        self.inner.lock().compilers += 1;
    }

    /// Counts a thread that ends compiling restored modules. The last one releases all held calls.
    pub(crate) fn compiler_ended(&self) {
        let mut inner = self.inner.lock();
        inner.compilers -= 1;
        if inner.compilers == 0 {
            inner.release(|_, _| true);
            drop(inner);
            self.work.notify_one();
        }
    }

    /// Returns the module that calls have waited for longest.
    pub(crate) fn wanted(&self) -> Option<CodeHash> {
        let inner = self.inner.lock();
        inner.uncompiled.get(inner.slow.held_first()?).copied()
    }

    /// Releases the calls of a module that is compiled, or that cannot be compiled.
    pub(crate) fn compiled(&self, code: CodeHash) {
        self.inner.lock().release(|_, other| other == code);
        self.work.notify_one();
    }

    /// Fails all queued calls and rejects new ones, because the commit thread ends.
    pub(crate) fn fail_all(&self, why: &ShutReason) {
        let mut inner = self.inner.lock();
        inner.thread_ended = true;
        inner.shut = Some(why.clone());
        let batches = std::mem::take(&mut inner.batches);
        let slow = inner.refuse_slow(true);
        drop(inner);
        self.space.notify_all();
        refuse(batches, why);
        refuse(slow, why);
    }

    /// Begins the close of the store. From now on, only the store itself can propose. Calls of the
    /// slow lane fail if none of their parts was admitted to the log.
    pub(crate) fn begin_close(&self) {
        let mut inner = self.inner.lock();
        inner.closing = true;
        // Calls that have begun must not wait for a module.
        inner.release(|_, _| true);
        let slow = inner.refuse_slow(false);
        drop(inner);
        refuse(slow, &ShutReason::Closed);
        self.space.notify_all();
    }

    /// Whether calls of callers are rejected: the store is poisoned, closed, or being closed.
    pub(crate) fn is_shut(&self) -> bool {
        self.inner.lock().refuses(Notify::Now).is_some()
    }

    /// Rejects calls from now on, with the reason `why`. [`ShutReason::Closed`] replaces an earlier
    /// reason.
    pub(crate) fn shut(&self, why: &ShutReason) {
        let mut inner = self.inner.lock();
        if inner.shut.is_none() || why.is_closed() {
            inner.shut = Some(why.clone());
        }
        inner.release(|_, _| true);
        let slow = inner.refuse_slow(!why.is_closed());
        drop(inner);
        refuse(slow, why);
        self.work.notify_one();
        self.space.notify_all();
    }
}

fn count(intentions: &[Intention<'_>]) -> u32 {
    to_u32(intentions.len(), "a call has at most 10,000 intentions")
}

/// Adds intentions to a batch. An error counts the intentions of the call from `done`.
fn encode(
    builder: &mut BatchBuilder,
    author: Author,
    intentions: &[Intention<'_>],
    limits: &IntentionLimits,
    done: usize,
) -> Result<(), StoreError> {
    let encoded = builder.push_all_from(author, intentions, limits);
    encoded.map_err(|(index, error)| {
        let index = done + index;
        StoreError::Refused { index, error }
    })
}

fn refuse(batches: impl IntoIterator<Item = Pending>, why: &ShutReason) {
    for pending in batches {
        for (_, answer) in pending.waiters {
            // Admitted parts of the call may be in the log.
            let error = if answer.has_begun() {
                why.error().in_doubt()
            } else {
                why.error()
            };
            answer.complete(Err(error));
        }
    }
}
