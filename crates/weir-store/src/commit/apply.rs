//! Applies synced batches in the order of the log, publishes their records and returns their
//! verdicts.
//!
//! A batch is applied in portions, and readers may lock the machine between two portions. The fuel
//! that programs used is reported to the queue, which admits later calls by it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_core::exact::to_u32;
use weir_core::machine::Portion;
use weir_core::{Batch, Effect, Outcome, Outcomes};

use super::ReplayCost;
use super::sink::Topics;
use crate::agreement::DigestSamples;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::log::LogIndex;
use crate::log_index::EntryId;
use crate::node::AppliedState;
use crate::proposal::complete_waiters;
use crate::queue::{COSTLY_FUEL, Pending, fuel_of};
use crate::replay::{AppliedMembership, Content};

/// Bounds how long the machine stays locked: about 100 us, or one call.
const PORTION: Portion = Portion {
    items_max: 1024,
    fuel_max: 2 * COSTLY_FUEL,
};

/// Batches that are in the log, each with its stamp in milliseconds.
pub(super) type LoggedBatches = VecDeque<(Pending, u64)>;

/// Applies the log. It is the only writer of the machine and of all topics.
pub(crate) struct Applier {
    engine: Arc<Engine>,
    pub(crate) topics: Topics,
    outcomes: Outcomes,
    /// The newest entry that is applied.
    pub(crate) applied: LogIndex,
    /// The term of `applied`; without a provider, also the term of the next batch.
    pub(crate) term: u64,
    /// The newest membership entry that is applied.
    pub(crate) membership: Option<AppliedMembership>,
    /// Time that batches of the slow lane took since this field was last read.
    pub(super) slow_time: Duration,
    /// The cost of a replay from the newest snapshot.
    pub(crate) cost: ReplayCost,
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

    /// Applies batches in the order of the log and returns their verdicts. A failure poisons the
    /// store. The batches that were not applied are in the log, and their outcomes are unknown.
    pub(super) fn apply_all(&mut self, batches: LoggedBatches) -> Result<(), StoreError> {
        let mut batches = batches.into_iter();
        while let Some((mut pending, time_ms)) = batches.next() {
            let (is_slow, start) = (pending.slow.is_some(), Instant::now());
            let (fuel, is_costly) = match self.apply(&mut pending, time_ms) {
                Ok(used) => used,
                Err(error) => {
                    let error = self.engine.poison(error).in_doubt();
                    let rest = batches.map(|(pending, _)| pending);
                    let waiters = std::iter::once(pending).chain(rest);
                    for (_, slot) in waiters.flat_map(|pending| pending.waiters) {
                        slot.complete(Err(error.copy_for_caller()));
                    }
                    return Err(error);
                }
            };
            self.engine.queue.recycle(pending);
            self.topics.write_out();
            let time = start.elapsed();
            self.cost.add(fuel, time + self.engine.take_compile_time());
            // Calls that turned out to be cheap delay others no more than those of the quick lane.
            if is_slow && is_costly {
                self.slow_time += time;
            }
        }
        Ok(())
    }

    /// Returns the fuel that programs used, and whether a call was costly.
    fn apply(&mut self, pending: &mut Pending, time_ms: u64) -> Result<(u64, bool), StoreError> {
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
        let engine = &self.engine;
        let is_costly = engine
            .queue
            .report_fuel(&engine.machine, pending, time_ms, &outcomes);
        complete_waiters(&outcomes, &mut pending.waiters);
        let fuel = fuel_of(&outcomes);
        self.outcomes = outcomes;
        Ok((fuel, is_costly))
    }

    /// Applies a batch in portions and publishes its records.
    fn run(
        &mut self,
        index: LogIndex,
        batch: &Batch<'_>,
        outcomes: &mut Outcomes,
    ) -> Result<(), StoreError> {
        let mut items = batch.items();
        while items.left() > 0 {
            let mut machine = self.engine.machine.write();
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
        self.engine.topic_created.notify();
    }

    /// Applies an entry that a log provider has committed. Returns the outcomes of its items; none
    /// for an entry that is not a batch.
    pub(crate) fn apply_committed(
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
        if DigestSamples::is_sample_index(index) {
            let digest = self.engine.machine.read().digest();
            self.engine.samples.add(index, digest);
        }
        self.topics.write_out();
        Ok(outcomes)
    }

    /// The log position of the machine, for a log provider.
    pub(crate) fn state(&self) -> AppliedState {
        let id = |term, index| EntryId { term, index };
        let last = (self.applied > LogIndex::ZERO).then_some(id(self.term, self.applied));
        let membership = self.membership.as_ref().map(|membership| {
            let AppliedMembership { index, term, body } = membership.clone();
            (id(term, index), body)
        });
        AppliedState { last, membership }
    }

    /// Adds the cost of an entry that `apply_committed` applied.
    pub(crate) fn add_cost(&mut self, outcomes: &Outcomes, time: Duration) {
        let time = time + self.engine.take_compile_time();
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
