//! What waits for the commit thread.
//!
//! Callers encode their intentions straight into the batch that will be
//! logged, so a value is copied once. Everything in the quick lane when the
//! commit thread returns from a sync goes into the next one: group commit
//! without a timer. Calls that are expected to be costly wait in the slow lane
//! (docs/decisions/0053), which is admitted in small batches. Both lanes are
//! bounded in bytes; a caller blocks while its lane is full.
//!
//! Invariant: calls that share a topic or a client are logged in the order in
//! which they were proposed; so are the parts of one call. Group steps keep their order with writes of their
//! client and with the start of their topic's program, not with other writes of
//! their topic.

mod cost;
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
pub(crate) use cost::{COSTLY_FUEL, Used, fuel_of_a_call};
use cost::{CostModel, Expected};
use lane::{Lane, Names};

/// Bytes of encoded intentions that may wait in the quick lane. One call may
/// exceed it.
pub(crate) const QUEUE_BYTES_MAX: usize = 64 << 20;
/// Bytes of encoded intentions that may wait in the slow lane. A server admits
/// less there.
pub(crate) const SLOW_BYTES_MAX: usize = 96 << 20;
/// Fuel that the calls of one slow batch are expected to use together: one call
/// at the default limit. One intention may exceed it.
pub(crate) const SLOW_BATCH_FUEL: u64 = FUEL_DEFAULT;
/// Calls of programs in one slow batch. It bounds for how long calls that turn
/// out to be costlier than expected delay others.
const SLOW_BATCH_CALLS_MAX: usize = 256;
/// Calls of programs in the batches of the quick lane that share a sync, for
/// the same reason. One call may exceed it.
const QUICK_CALLS_MAX: usize = 1024;
/// Memory that an emptied batch keeps.
const SPARE_BYTES: usize = BATCH_BYTES_MAX + (64 << 10);

/// A batch being filled, and who waits for its items, in order.
#[derive(Default)]
pub(crate) struct Pending {
    pub(crate) builder: BatchBuilder,
    pub(crate) waiters: Vec<(u32, Answer)>,
    /// Compiled programs that its items bring: they stay known until then.
    pub(crate) prepared: Vec<Box<dyn Program>>,
    /// It came from the slow lane: its flow there, and its expected fuel.
    pub(crate) slow: Option<(Box<str>, u64)>,
    /// Calls of programs in it; more than none also when programs start or end.
    pub(crate) calls: usize,
    /// DESTROYs in it.
    destroys: usize,
}

/// What was found out about intentions before they are queued.
#[derive(Default)]
pub(crate) struct Prepared {
    /// Programs that were compiled.
    pub(crate) programs: Vec<Box<dyn Program>>,
    /// As the state is now, every program start among them will be refused
    /// before its program is called.
    pub(crate) starts_refused: bool,
}

/// Why the queue takes nothing more.
#[derive(Clone, Debug)]
pub(crate) enum Shut {
    Closed,
    ReadOnly,
    Poisoned(Arc<StoreError>),
}

impl Shut {
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
    /// Topics whose module was restored and is not compiled. Their calls are held in the slow lane,
    /// for the thread that applies would compile it.
    uncompiled: BTreeMap<Box<str>, CodeHash>,
    /// Threads that compile modules which were restored.
    compilers: usize,
    /// DESTROYs that are not applied yet: what a start will meet is not known.
    destroys: usize,
    /// Tasks that were sent to the commit thread and not taken.
    tasks: usize,
    spare: Vec<Pending>,
    /// Only the store itself may still propose something.
    closing: bool,
    shut: Option<Shut>,
    /// The commit thread has ended: nobody will answer.
    gone: bool,
    asleep: bool,
    /// Batches that a log provider has and did not answer.
    in_flight: usize,
}

pub(crate) struct Queue {
    inner: Mutex<Inner>,
    work: Condvar,
    room: Condvar,
    limits: IntentionLimits,
    /// Batches that a log provider may have at a time; no provider, no bound.
    in_flight_max: AtomicUsize,
    /// Whether each call is a batch of its own.
    apart: bool,
}

/// When the commit thread is woken, if it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notify {
    Now,
    Deferred,
    /// Now, and also while the store is being closed.
    Last,
}

/// What the commit thread finds.
pub(crate) struct Work {
    pub(crate) batches: VecDeque<Pending>,
    /// Tasks that wait in the channel of the commit thread.
    pub(crate) tasks: usize,
    pub(crate) shut: Option<Shut>,
}

impl Work {
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.tasks == 0
    }
}

/// What was done to the program of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    None,
    /// The topic was destroyed, or an attempt to start a program was refused.
    Tried,
    /// The topic was created, or its program replaced.
    Program,
}

/// Program calls of one topic that were applied, one after the other.
#[derive(Debug)]
pub(crate) struct Lesson<'a> {
    pub(crate) topic: &'a str,
    used: Used,
    pub(crate) change: Change,
    /// After a change: fuel that a call of the program may use which the topic
    /// has now; none without a program.
    pub(crate) fuel_max: Option<u64>,
}

impl<'a> Lesson<'a> {
    pub(crate) fn new(topic: &'a str, used: Used, change: Change) -> Self {
        Self {
            topic,
            used,
            change,
            fuel_max: None,
        }
    }

    /// More calls of the topic.
    pub(crate) fn add(&mut self, used: Used, change: Change) {
        self.used.calls = self.used.calls.saturating_add(used.calls);
        self.used.fuel = self.used.fuel.saturating_add(used.fuel);
        self.used.most = self.used.most.max(used.most);
        self.change = self.change.max(change);
    }
}

/// What a call is expected to cost, and where it waits.
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

    /// Whether something waits in the slow lane that an intention must not
    /// overtake.
    fn must_follow(&self, intention: &Intention<'_>) -> bool {
        let topic = intention.topic;
        let by_topic = match intention.operation {
            Operation::Cursor { .. } => self.slow.has_start(topic),
            _ => self.slow.has_topic(topic),
        };
        by_topic || self.slow.has_client(intention.client)
    }

    /// Why a call is not taken.
    fn refuses(&self, notify: Notify) -> Option<Shut> {
        let closing = self.closing && notify != Notify::Last;
        let closing = closing.then_some(Shut::Closed);
        self.shut.clone().or(closing)
    }

    /// Takes out what waits in the slow lane. A call of which a part was
    /// admitted already stays, if it is `begun_too` that is false.
    fn refuse_slow(&mut self, begun_too: bool) -> Vec<Pending> {
        let begun = |pending: &Pending| pending.waiters.iter().any(|(_, slot)| slot.has_begun());
        let refused = self.slow.take_if(|pending| begun_too || !begun(pending));
        for pending in &refused {
            self.slow_bytes -= pending.builder.bytes();
            self.destroys -= pending.destroys;
        }
        refused
    }

    /// The next batches of the slow lane, for one sync.
    fn take_slow(&mut self, batches: &mut VecDeque<Pending>) {
        let mut fuel = 0_u64;
        while let Some(cost) = self.slow.next_cost() {
            if fuel > 0 && fuel.saturating_add(cost) > SLOW_BATCH_FUEL {
                break;
            }
            let Some(pending) = self.slow.pop() else {
                break;
            };
            self.slow_bytes -= pending.builder.bytes();
            // A part of this call failed: the rest must not be executed.
            if pending.waiters.iter().any(|(_, slot)| slot.has_failed()) {
                self.destroys -= pending.destroys;
                continue;
            }
            for (_, slot) in &pending.waiters {
                slot.begin();
            }
            fuel = fuel.saturating_add(cost);
            batches.push_back(pending);
        }
    }

    /// Lets the calls of topics go on.
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
}

/// A part of a call that is to be a batch of the slow lane.
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
            // A group step keeps its order with the start of a program alone:
            // the name of its topic would make writes wait for it.
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

/// How many of these intentions make up one slow batch: at least one.
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
    pub(crate) fn new(limits: IntentionLimits, apart: bool) -> Self {
        let inner = Mutex::new(Inner::default());
        Self {
            inner,
            work: Condvar::new(),
            room: Condvar::new(),
            limits,
            in_flight_max: AtomicUsize::new(usize::MAX),
            apart,
        }
    }

    /// The limits that intentions are checked against.
    pub(crate) fn limits(&self) -> IntentionLimits {
        self.limits
    }

    /// Adds intentions that are answered together. Blocks while the lane is
    /// full.
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
                // What was proposed without waking the thread makes the room.
                self.work.notify_one();
            }
            self.room.wait(&mut inner);
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
        // A call that is too large for company gets a batch of its own.
        let fits = inner.batches.back().is_some_and(|last| {
            !self.apart
                && last.builder.bytes() + size <= BATCH_BYTES_MAX
                && last.builder.len() + intentions.len() <= BATCH_ITEMS_MAX
                && last.calls + plan.calls <= QUICK_CALLS_MAX
        });
        if !fits {
            let fresh = inner.spare();
            inner.batches.push_back(fresh);
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
        let begins: Vec<(&str, u64)> = intentions
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
            inner.slow.join(number, &part.names, part.flow, part.fuel);
            return Ok(());
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
        // Parts are applied in order: the programs stay known until the last one.
        if let Some((last, _)) = batches.last_mut() {
            last.prepared.extend(prepared.programs);
        }
        let whole = (batches.len() > 1).then(|| inner.slow.divide());
        let answers = answer.split(batches.len());
        for ((mut pending, mut part), answer) in batches.into_iter().zip(answers) {
            part.names.whole = whole;
            pending.waiters.push((count(part.intentions), answer));
            inner.slow_bytes += pending.builder.bytes();
            inner.slow.push(pending, part.names, part.flow, part.fuel);
        }
        for (topic, fuel_max) in begins {
            inner.costs.starting(topic, fuel_max);
        }
        Ok(())
    }

    /// The batch of the slow lane that a call can be added to.
    fn joinable(&self, inner: &mut Inner, part: &Part<'_>) -> Option<u64> {
        let number = (!self.apart)
            .then(|| inner.slow.joinable(&part.names, part.fuel, SLOW_BATCH_FUEL))
            .flatten()?;
        let last = inner.slow.get_mut(number);
        let fits = last.builder.bytes() + part.size_hint() <= BATCH_BYTES_MAX
            && last.builder.len() + part.intentions.len() <= BATCH_ITEMS_MAX
            && last.calls + part.calls <= SLOW_BATCH_CALLS_MAX;
        fits.then_some(number)
    }

    /// Wakes the commit thread if it sleeps beside work.
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

    /// Counts a task for the commit thread and wakes it. `send` puts the task into the channel of
    /// that thread; it is not called when nobody would take the task.
    pub(crate) fn task(&self, send: impl FnOnce()) -> Result<(), StoreError> {
        let mut inner = self.inner.lock();
        // A poisoned store still serves reads and tasks.
        if inner.gone || inner.shut.as_ref().is_some_and(Shut::is_closed) {
            return Err(inner.shut.as_ref().unwrap_or(&Shut::Closed).error());
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

    /// Takes everything in the quick lane (of calls of programs no more than
    /// [`QUICK_CALLS_MAX`]) and, when `slow_in` is over, one batch of the slow
    /// lane. Blocks while there is neither, for `patience` at most.
    pub(crate) fn take(&self, patience: Option<Duration>, slow_in: Duration) -> Work {
        let since = Instant::now();
        let mut inner = self.inner.lock();
        let in_flight_max = self.in_flight_max.load(Ordering::Relaxed);
        // A provider that has enough gets no more until it has answered.
        let is_held = |inner: &Inner| inner.in_flight >= in_flight_max;
        let slow_is_due = |inner: &Inner| {
            inner.slow.is_ready()
                && !is_held(inner)
                && (inner.shut.is_some() || since.elapsed() >= slow_in)
        };
        while (inner.batches.is_empty() || is_held(&inner))
            && inner.tasks == 0
            && !slow_is_due(&inner)
            && !inner.shut.as_ref().is_some_and(Shut::is_closed)
        {
            let slow_in = (inner.slow.is_ready() && !is_held(&inner)).then_some(slow_in);
            let passed = since.elapsed();
            let is_over = patience.is_some_and(|patience| passed >= patience);
            if is_over {
                break;
            }
            let time = [patience, slow_in].into_iter().flatten().min();
            inner.asleep = true;
            match time {
                None => self.work.wait(&mut inner),
                Some(time) => {
                    self.work.wait_for(&mut inner, time.saturating_sub(passed));
                }
            }
        }
        inner.asleep = false;
        let mut batches = VecDeque::new();
        let mut calls = 0;
        while !is_held(&inner)
            && batches.len() < in_flight_max.saturating_sub(inner.in_flight)
            && let Some(next) = inner.batches.front()
        {
            if calls > 0 && calls + next.calls > QUICK_CALLS_MAX {
                break;
            }
            calls += next.calls;
            inner.bytes -= next.builder.bytes();
            batches.extend(inner.batches.pop_front());
        }
        // Not before a call of the quick lane that came earlier.
        if inner.batches.is_empty() && slow_is_due(&inner) {
            inner.take_slow(&mut batches);
        }
        let work = Work {
            batches,
            tasks: std::mem::take(&mut inner.tasks),
            shut: inner.shut.clone(),
        };
        drop(inner);
        self.room.notify_all();
        work
    }

    /// Limits how many batches a log provider has at a time.
    pub(crate) fn set_in_flight_max(&self, batches: usize) {
        self.in_flight_max.store(batches.max(1), Ordering::Relaxed);
    }

    /// Counts a batch that is given to a log provider.
    pub(crate) fn admitted(&self) {
        self.inner.lock().in_flight += 1;
    }

    /// Counts a batch that a log provider has answered.
    pub(crate) fn concluded(&self) {
        let mut inner = self.inner.lock();
        assert!(inner.in_flight > 0, "each admitted batch is answered once");
        inner.in_flight -= 1;
        drop(inner);
        self.work.notify_one();
    }

    /// Keeps the memory of an answered batch for a later one.
    pub(crate) fn recycle(&self, mut pending: Pending) {
        let mut inner = self.inner.lock();
        inner.destroys -= pending.destroys;
        if inner.spare.len() < 4 {
            pending.builder.clear(SPARE_BYTES);
            pending.waiters.clear();
            pending.prepared.clear();
            (pending.slow, pending.calls, pending.destroys) = (None, 0, 0);
            inner.spare.push(pending);
        }
    }

    /// Registers the programs of topics after an open, each with the fuel limit of a call. Calls of
    /// a program for which `is_put_off` is true wait until it is compiled, if a thread compiles it.
    pub(crate) fn restored(
        &self,
        programs: &[(TopicName, u64, CodeHash)],
        is_put_off: impl Fn(CodeHash) -> bool,
    ) {
        let mut inner = self.inner.lock();
        inner.release(|_, _| true);
        for (topic, fuel_max, code) in programs {
            inner.costs.started(topic.as_str(), *fuel_max);
            // Asked under the lock: `compiled` comes after it.
            if inner.compilers > 0 && is_put_off(*code) {
                inner.slow.hold(topic.as_str());
                inner.uncompiled.insert(Box::from(topic.as_str()), *code);
            }
        }
    }

    /// Counts a thread that begins to compile restored modules.
    pub(crate) fn compiler_began(&self) {
        self.inner.lock().compilers += 1;
    }

    /// Counts the end of such a thread. When the last one ends, no call waits for a module any more.
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

    /// Lets the calls of a module proceed: it is compiled, or cannot be.
    pub(crate) fn compiled(&self, code: CodeHash) {
        self.inner.lock().release(|_, other| other == code);
        self.work.notify_one();
    }

    /// Learns from a batch that was applied. `slow` is its flow in the slow
    /// lane and its expected fuel, `fuel` what it used.
    pub(crate) fn learn(&self, lessons: &[Lesson<'_>], slow: Option<&(Box<str>, u64)>, fuel: u64) {
        let mut inner = self.inner.lock();
        for lesson in lessons {
            match lesson.fuel_max {
                Some(fuel_max) if lesson.change == Change::Program => {
                    inner.costs.started(lesson.topic, fuel_max);
                    inner.release(|topic, _| topic == lesson.topic);
                }
                Some(fuel_max) => inner.costs.starting(lesson.topic, fuel_max),
                None if lesson.change != Change::None && !inner.slow.has_start(lesson.topic) => {
                    inner.costs.ended(lesson.topic);
                    inner.release(|topic, _| topic == lesson.topic);
                }
                None => {}
            }
            inner.costs.learn(lesson.topic, lesson.used);
        }
        if let Some((flow, expected)) = slow {
            inner.slow.correct(flow, *expected, fuel);
        }
    }

    /// The commit thread ends: what still waits is answered with an error, and
    /// nothing is taken any more.
    pub(crate) fn leave(&self, why: &Shut) {
        let mut inner = self.inner.lock();
        inner.gone = true;
        inner.shut = Some(why.clone());
        let batches = std::mem::take(&mut inner.batches);
        let slow = inner.refuse_slow(true);
        drop(inner);
        self.room.notify_all();
        refuse(batches, why);
        refuse(slow, why);
    }

    /// The store is going to be closed: only the store itself still proposes,
    /// and calls of the slow lane that have not begun are refused.
    pub(crate) fn begin_close(&self) {
        let mut inner = self.inner.lock();
        inner.closing = true;
        // What has begun goes on at once.
        inner.release(|_, _| true);
        let slow = inner.refuse_slow(false);
        drop(inner);
        refuse(slow, &Shut::Closed);
        self.room.notify_all();
    }

    /// Whether calls are refused.
    pub(crate) fn is_shut(&self) -> bool {
        self.inner.lock().shut.is_some()
    }

    /// Refuses calls from now on, with the reason `why`. [`Shut::Closed`] replaces an earlier reason.
    pub(crate) fn shut(&self, why: &Shut) {
        let mut inner = self.inner.lock();
        if inner.shut.is_none() || why.is_closed() {
            inner.shut = Some(why.clone());
        }
        inner.release(|_, _| true);
        let slow = inner.refuse_slow(!why.is_closed());
        drop(inner);
        refuse(slow, why);
        self.work.notify_one();
        self.room.notify_all();
    }
}

fn count(intentions: &[Intention<'_>]) -> u32 {
    to_u32(intentions.len(), "a call has at most 10,000 intentions")
}

/// Adds intentions to a batch; in an error they are counted from `done` on.
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

fn refuse(batches: impl IntoIterator<Item = Pending>, why: &Shut) {
    for pending in batches {
        for (_, answer) in pending.waiters {
            // The parts that began are in the log, or may be.
            let error = if answer.has_begun() {
                why.error().in_doubt()
            } else {
                why.error()
            };
            answer.complete(Err(error));
        }
    }
}
