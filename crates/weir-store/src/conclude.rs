//! Returns the verdicts of an applied batch to the waiting callers, and first reports the fuel of
//! its calls to the queue.

use weir_core::batch::Action;
use weir_core::exact::to_u32;
use weir_core::{Batch, Effect, Outcome, OutcomeRun, Outcomes};

use crate::engine::Engine;
use crate::proposal::Answer;
use crate::queue::{AppliedCost, Change, Pending, Used, fuel_of_a_call};

/// Number of verdicts that are set before their waiting callers are woken: about 10 us.
const WAKE_EVERY: usize = 128;

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

/// Returns the verdicts of an applied batch to the waiting callers, and first reports the fuel of
/// its calls to the queue.
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
        report_fuel(engine, &batch, outcomes, pending);
    }
    complete_waiters(outcomes, &mut pending.waiters);
}

/// Reports the fuel of the calls of a batch to the queue.
fn report_fuel(engine: &Engine, batch: &Batch<'_>, outcomes: &Outcomes, pending: &Pending) {
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
            Action::Create { .. } | Action::Replace { .. } | Action::Destroy => Change::Tried,
            _ => Change::None,
        };
        let Ok(topic) = std::str::from_utf8(item.topic) else {
            unreachable!("the topic of an intention is text");
        };
        let used = Used {
            calls: if change == Change::None { calls } else { 0 },
            fuel,
            most: fuel / u64::from(calls.max(1)),
        };
        match costs.last_mut() {
            Some(last) if last.topic == topic => last.add(used, change),
            _ => costs.push(AppliedCost::new(topic, used, change)),
        }
    }
    let changed = |cost: &&mut AppliedCost<'_>| cost.change != Change::None;
    if costs.iter_mut().any(|cost| changed(&cost)) {
        let machine = engine.machine.read();
        for cost in costs.iter_mut().filter(changed) {
            let topic = machine.topic(cost.topic);
            let topic = topic.filter(|topic| topic.program.is_some());
            let options = topic.and_then(|topic| topic.options);
            cost.fuel_max = options.map(fuel_of_a_call);
        }
    }
    engine
        .queue
        .update_costs(&costs, pending.slow.as_ref(), fuel_of(outcomes));
}

/// Returns to each waiting caller the outcomes of its own items. Callers are woken in groups: a
/// caller that is woken for its first outcome would use the processor and then wait for the next
/// one.
fn complete_waiters(outcomes: &Outcomes, waiters: &mut Vec<(u32, Answer)>) {
    let mut runs = outcomes.runs().iter();
    let mut current: Option<OutcomeRun> = None;
    let mut wakes = Vec::new();
    for (number, (items, slot)) in waiters.drain(..).enumerate() {
        if number % WAKE_EVERY == 0 {
            wakes.clear();
        }
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
        wakes.extend(slot.complete_deferred(Ok(own)));
    }
}
