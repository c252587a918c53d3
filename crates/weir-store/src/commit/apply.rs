//! What follows a sync: batches are applied in the order of the log, published,
//! answered.
//!
//! A batch is applied in portions, and readers get the machine between two of
//! them. What its programs used is told to the queue, which decides by it when
//! later calls are admitted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_core::batch::Action;
use weir_core::exact::to_u32;
use weir_core::machine::Portion;
use weir_core::{Batch, Effect, Outcome, OutcomeRun, Outcomes};

use super::ReplayCost;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::log::LogIndex;
use crate::proposal::Answer;
use crate::queue::{COSTLY_FUEL, Change, Lesson, Pending, Used, fuel_of_a_call};
use crate::replay::{AppliedMembership, Content};
use crate::topic::sink::Topics;

/// For how long the machine is held in one piece: some 100 us, or one call.
const PORTION: Portion = Portion {
    items_max: 1024,
    fuel_max: 2 * COSTLY_FUEL,
};

/// Batches that are in the log, with their stamps.
pub(super) type Logged = VecDeque<(Pending, u64)>;

/// What applies the log: the machine's one writer, and that of all topics.
pub(crate) struct Applier {
    engine: Arc<Engine>,
    pub(crate) topics: Topics,
    outcomes: Outcomes,
    /// The newest entry that is applied.
    pub(crate) applied: LogIndex,
    /// Its term; without a provider, that of the next batch as well.
    pub(crate) term: u64,
    /// The newest membership entry that is applied.
    pub(crate) membership: Option<AppliedMembership>,
    /// Time that batches of the slow lane took since it was looked at.
    pub(super) slow_time: Duration,
    /// What a replay from the newest snapshot would cost.
    pub(super) cost: ReplayCost,
}

impl Applier {
    pub(crate) fn new(
        engine: Arc<Engine>,
        topics: Topics,
        cost: ReplayCost,
        term: u64,
        membership: Option<AppliedMembership>,
    ) -> Self {
        Self {
            applied: engine.applied_index(),
            term,
            membership,
            engine,
            topics,
            outcomes: Outcomes::default(),
            slow_time: Duration::ZERO,
            cost,
        }
    }

    /// Applies batches of the log, in their order, and answers them. A failure
    /// poisons the store: the batches that are not applied are in the log, and
    /// what becomes of them is not known.
    pub(super) fn apply_all(&mut self, batches: Logged) -> Result<(), StoreError> {
        let mut batches = batches.into_iter();
        while let Some((mut pending, time_ms)) = batches.next() {
            let (is_slow, start) = (pending.slow.is_some(), Instant::now());
            let fuel = match self.apply(&mut pending, time_ms) {
                Ok(fuel) => fuel,
                Err(error) => {
                    let error = self.engine.poison(error).in_doubt();
                    let rest = batches.map(|(pending, _)| pending);
                    let waiters = std::iter::once(pending).chain(rest);
                    for (_, slot) in waiters.flat_map(|pending| pending.waiters) {
                        slot.complete(Err(error.for_another()));
                    }
                    return Err(error);
                }
            };
            self.engine.queue.recycle(pending);
            self.topics.write_out();
            let time = start.elapsed();
            self.cost.add(fuel, time);
            if is_slow {
                self.slow_time += time;
            }
        }
        Ok(())
    }

    /// Returns the fuel that programs used.
    fn apply(&mut self, pending: &mut Pending, time_ms: u64) -> Result<u64, StoreError> {
        let batch = Batch {
            count: to_u32(
                pending.builder.len(),
                "a batch has a bounded number of items",
            ),
            time_ms,
            term: self.term,
            items: pending.builder.items(),
        };
        let mut outcomes = std::mem::take(&mut self.outcomes);
        outcomes.clear();
        self.run(self.applied.next(), &batch, &mut outcomes)?;
        conclude(&self.engine, pending, time_ms, &outcomes);
        let fuel = fuel_of(&outcomes);
        self.outcomes = outcomes;
        Ok(fuel)
    }

    /// Applies a batch in portions and publishes what it causes.
    fn run(
        &mut self,
        index: LogIndex,
        batch: &Batch<'_>,
        outcomes: &mut Outcomes,
    ) -> Result<(), StoreError> {
        let mut items = batch.items();
        while items.left() > 0 {
            let mut machine = self.engine.machine.write_ok();
            let topics = &mut self.topics;
            let applied = machine.apply_some(batch, &mut items, &PORTION, topics, outcomes);
            self.topics.publish();
            drop(machine);
            applied.map_err(|error| StoreError::Apply { index, error })?;
            if items.left() > 0 {
                self.engine.machine.yield_to_readers();
            }
        }
        self.advance(index);
        self.count(outcomes);
        Ok(())
    }

    fn advance(&mut self, index: LogIndex) {
        self.applied = index;
        self.engine.counters.applied_index.set(index.0);
        self.engine.arrivals.notify();
    }

    /// Applies an entry that a log provider has committed, and returns the
    /// outcomes of its items; none for an entry that is no batch.
    pub(crate) fn feed(
        &mut self,
        index: LogIndex,
        term: u64,
        count: u32,
        payload: &Bytes,
    ) -> Result<Outcomes, StoreError> {
        let mut outcomes = Outcomes::default();
        match Content::read(payload, index, term, count)? {
            Content::Batch(batch) => self.run(index, &batch, &mut outcomes)?,
            Content::Membership => {
                self.membership = Some(AppliedMembership::of(index, term, payload));
                self.advance(index);
            }
            Content::Blank => self.advance(index),
        }
        self.term = term;
        self.topics.write_out();
        Ok(outcomes)
    }

    /// Counts what an entry that was fed has cost.
    pub(crate) fn spent(&mut self, outcomes: &Outcomes, time: Duration) {
        self.cost.add(fuel_of(outcomes), time);
    }

    fn count(&self, outcomes: &Outcomes) {
        let counters = &self.engine.counters;
        for run in outcomes.runs() {
            let n = u64::from(run.count);
            match &run.outcome {
                Outcome::Committed(commit) => match commit.effect {
                    Effect::Valid => counters.valid.add(n),
                    Effect::Invalid => counters.invalid.add(n),
                    Effect::Error => counters.errors.add(n),
                },
                Outcome::Replayed(_) => counters.replayed.add(n),
                Outcome::Refused { .. } => counters.refused.add(n),
            }
        }
    }
}

/// Fuel that programs used for these outcomes.
pub(crate) fn fuel_of(outcomes: &Outcomes) -> u64 {
    let fuel = |run: &OutcomeRun| match &run.outcome {
        Outcome::Committed(commit) => commit.fuel.saturating_mul(u64::from(run.count)),
        Outcome::Replayed(_) | Outcome::Refused { .. } => 0,
    };
    outcomes
        .runs()
        .iter()
        .map(fuel)
        .fold(0, u64::saturating_add)
}

/// Answers those who wait for a batch that is applied, after the queue has learned
/// what it cost.
pub(crate) fn conclude(engine: &Engine, pending: &mut Pending, time_ms: u64, outcomes: &Outcomes) {
    if pending.calls > 0 {
        let batch = Batch {
            count: to_u32(
                pending.builder.len(),
                "a batch has a bounded number of items",
            ),
            time_ms,
            term: 0,
            items: pending.builder.items(),
        };
        learn(engine, &batch, outcomes, pending);
    }
    answer(outcomes, &mut pending.waiters);
}

/// Tells the queue what the calls of a batch used.
fn learn(engine: &Engine, batch: &Batch<'_>, outcomes: &Outcomes, pending: &Pending) {
    let runs = outcomes.runs().iter();
    let results = runs.flat_map(|run| {
        let result = match &run.outcome {
            Outcome::Committed(commit) => (commit.fuel, commit.effect == Effect::Valid),
            Outcome::Replayed(_) | Outcome::Refused { .. } => (0, false),
        };
        (0..run.count).map(move |_| result)
    });
    let mut lessons: Vec<Lesson<'_>> = Vec::new();
    for (item, (fuel, is_valid)) in batch.items().zip(results) {
        let Ok(item) = item else { break };
        let calls = match item.action {
            Action::Txn(steps) if fuel > 0 => steps.len().max(1),
            _ => u32::from(fuel > 0),
        };
        let change = match item.action {
            Action::Create { .. } | Action::Replace { .. } if is_valid => Change::Program,
            Action::Create { .. } | Action::Replace { .. } | Action::Destroy => Change::Tried,
            _ => Change::None,
        };
        let Ok(topic) = std::str::from_utf8(item.topic) else {
            continue;
        };
        let used = Used {
            calls: if change == Change::None { calls } else { 0 },
            fuel,
            most: fuel / u64::from(calls.max(1)),
        };
        match lessons.last_mut() {
            Some(last) if last.topic == topic => last.add(used, change),
            _ => lessons.push(Lesson::new(topic, used, change)),
        }
    }
    let changed = |lesson: &&mut Lesson<'_>| lesson.change != Change::None;
    if lessons.iter_mut().any(|lesson| changed(&lesson)) {
        let machine = engine.machine.read_ok();
        for lesson in lessons.iter_mut().filter(changed) {
            let topic = machine.topic(lesson.topic);
            let topic = topic.filter(|topic| topic.program.is_some());
            let options = topic.and_then(|topic| topic.options);
            lesson.fuel_max = options.map(fuel_of_a_call);
        }
    }
    engine
        .queue
        .learn(&lessons, pending.slow.as_ref(), fuel_of(outcomes));
}

/// Hands each waiter the outcomes of its own items.
fn answer(outcomes: &Outcomes, waiters: &mut Vec<(u32, Answer)>) {
    let mut runs = outcomes.runs().iter();
    let mut current: Option<OutcomeRun> = None;
    for (items, slot) in waiters.drain(..) {
        let mut own = Outcomes::default();
        let mut missing = items;
        while missing > 0 {
            let Some(run) = current.take().or_else(|| runs.next().cloned()) else {
                break;
            };
            let taken = run.count.min(missing);
            own.push_run(OutcomeRun {
                count: taken,
                outcome: run.outcome.clone(),
            });
            missing -= taken;
            if taken < run.count {
                current = Some(OutcomeRun {
                    count: run.count - taken,
                    outcome: run.outcome.nth(u64::from(taken)),
                });
            }
        }
        assert!(missing == 0, "every item has an outcome");
        slot.complete(Ok(own));
    }
}
