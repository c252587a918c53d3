//! Reports the fuel that applied calls used to the cost model.

use weir_core::batch::Action;
use weir_core::exact::to_u32;
use weir_core::machine::Machine;
use weir_core::{Batch, Effect, Outcome, OutcomeRun, Outcomes};

use super::cost::{COSTLY_FUEL, FuelUse, fuel_of_a_call};
use super::{Pending, Queue};
use crate::fair_lock::FairRwLock;

/// How applied calls changed the program of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    None,
    /// The topic was destroyed, or an attempt to start a program was rejected.
    Attempted,
    /// The topic was created, or its program replaced.
    Program,
}

/// The cost of consecutive program calls of one topic that were applied.
#[derive(Debug)]
struct AppliedCost<'a> {
    topic: &'a str,
    used: FuelUse,
    change: Change,
    /// After a change: maximum fuel of a call of the present program. `None` without a program.
    fuel_max: Option<u64>,
}

impl<'a> AppliedCost<'a> {
    fn new(topic: &'a str, used: FuelUse, change: Change) -> Self {
        Self {
            topic,
            used,
            change,
            fuel_max: None,
        }
    }

    /// Adds calls of the topic.
    fn add(&mut self, used: FuelUse, change: Change) {
        self.used.calls = self.used.calls.saturating_add(used.calls);
        self.used.fuel = self.used.fuel.saturating_add(used.fuel);
        self.used.most = self.used.most.max(used.most);
        self.change = self.change.max(change);
    }
}

impl Queue {
    /// Reports the fuel that the calls of an applied batch used to the cost model. Runs before the
    /// callers get their verdicts: the estimates are then current for their next calls. Returns
    /// whether the batch had a costly call or a start of a program.
    pub(crate) fn report_fuel(
        &self,
        machine: &FairRwLock<Machine>,
        pending: &Pending,
        time_ms: u64,
        outcomes: &Outcomes,
    ) -> bool {
        if pending.calls == 0 {
            return false;
        }
        let batch = Batch {
            count: to_u32(
                pending.builder.len(),
                "a batch has a bounded number of items",
            ),
            time_ms,
            term: 0,
            items: pending.builder.items(),
        };
        let mut costs = applied_costs(&batch, outcomes);
        find_fuel_max(machine, &mut costs);
        self.update_costs(&costs, pending.slow.as_ref(), fuel_of(outcomes));
        let is_costly =
            |cost: &AppliedCost<'_>| cost.change != Change::None || cost.used.most >= COSTLY_FUEL;
        costs.iter().any(is_costly)
    }

    /// Reports the topics that an entry of a log provider created. On a node that does not lead, no
    /// caller waits for the entry, but the node must know the programs when it leads.
    pub(crate) fn report_created(
        &self,
        machine: &FairRwLock<Machine>,
        batch: &Batch<'_>,
        outcomes: &Outcomes,
    ) {
        let mut costs = applied_costs(batch, outcomes);
        costs.retain(|cost| cost.change == Change::Program);
        for cost in &mut costs {
            // The node that leads reports the fuel of the calls.
            cost.used = FuelUse::default();
        }
        find_fuel_max(machine, &mut costs);
        self.update_costs(&costs, None, 0);
    }

    /// Updates the cost model after a batch was applied. `slow` is the flow of the batch in the
    /// slow lane and its expected fuel; `fuel` is the fuel that it used.
    fn update_costs(&self, costs: &[AppliedCost<'_>], slow: Option<&(Box<str>, u64)>, fuel: u64) {
        let mut inner = self.inner.lock();
        for cost in costs {
            match cost.fuel_max {
                Some(fuel_max) if cost.change == Change::Program => {
                    inner.costs.started(cost.topic, fuel_max);
                    inner.release(|topic, _| topic == cost.topic);
                }
                Some(fuel_max) => inner.costs.starting(cost.topic, fuel_max),
                None if cost.change != Change::None && !inner.slow.has_start(cost.topic) => {
                    inner.costs.ended(cost.topic);
                    inner.release(|topic, _| topic == cost.topic);
                }
                None => {}
            }
            inner.costs.update(cost.topic, cost.used);
        }
        if let Some((flow, expected)) = slow {
            inner.slow.correct(flow, *expected, fuel);
        }
    }
}

/// Sets `fuel_max` of the topics whose program was changed.
fn find_fuel_max(machine: &FairRwLock<Machine>, costs: &mut [AppliedCost<'_>]) {
    let changed = |cost: &&mut AppliedCost<'_>| cost.change != Change::None;
    if costs.iter_mut().any(|cost| changed(&cost)) {
        let machine = machine.read();
        for cost in costs.iter_mut().filter(changed) {
            let topic = machine.topic(cost.topic);
            let topic = topic.filter(|topic| topic.program.is_some());
            let options = topic.and_then(|topic| topic.options);
            cost.fuel_max = options.map(fuel_of_a_call);
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

/// Returns the cost of the calls of a batch, without `fuel_max`.
fn applied_costs<'a>(batch: &Batch<'a>, outcomes: &Outcomes) -> Vec<AppliedCost<'a>> {
    let runs = outcomes.runs().iter();
    let results = runs.flat_map(|run| {
        let result = match &run.outcome {
            Outcome::Committed(commit) => (commit.fuel, commit.effect == Effect::Valid),
            Outcome::Replayed(_) | Outcome::Refused { .. } => (0, false),
        };
        (0..run.count).map(move |_| result)
    });
    let mut costs: Vec<AppliedCost<'_>> = Vec::new();
    for (item, (fuel, is_valid)) in batch.items().zip(results) {
        let Ok(item) = item else {
            unreachable!("a batch that was applied can be read");
        };
        let calls = match item.action {
            Action::Txn(steps) if fuel > 0 => steps.len().max(1),
            _ => u32::from(fuel > 0),
        };
        let change = match item.action {
            Action::Create { .. } | Action::Replace { .. } if is_valid => Change::Program,
            Action::Create { .. } | Action::Replace { .. } | Action::Destroy => Change::Attempted,
            _ => Change::None,
        };
        let Ok(topic) = std::str::from_utf8(item.topic) else {
            unreachable!("the topic of an intention is text");
        };
        let used = FuelUse {
            calls: if change == Change::None { calls } else { 0 },
            fuel,
            most: fuel / u64::from(calls.max(1)),
        };
        match costs.last_mut() {
            Some(last) if last.topic == topic => last.add(used, change),
            _ => costs.push(AppliedCost::new(topic, used, change)),
        }
    }
    costs
}
