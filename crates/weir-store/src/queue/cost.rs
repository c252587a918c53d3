//! The cost model: estimates the fuel of calls for each topic that has a program.
//!
//! The estimate decides when a call is admitted to the log. It never affects the outcome.

use std::collections::HashMap;

use weir_core::TopicOptions;
use weir_core::intention::{Intention, Operation};
use weir_core::limits::{FUEL_DEFAULT, START_FUEL};

/// Minimum fuel of a costly call: about 50 us on a fast machine.
pub(crate) const COSTLY_FUEL: u64 = 100_000;
/// Expected fuel of an intention that calls no program.
pub(super) const PLAIN_FUEL: u64 = 1_000;
/// Expected fuel of a program start, without the compilation. An assumption: the real fuel is
/// unknown before the start.
pub(super) const START_EXPECTED_FUEL: u64 = 1_000_000;
/// Expected fuel of the compilation for each byte of a module: about 0.4 us.
const COMPILE_FUEL_PER_BYTE: u64 = 1_000;
/// Consecutive cheap calls after which a topic leaves the slow lane. If a call of a topic outside
/// the lane is costly, the number doubles for this topic.
const PROBATION_CALLS: u32 = 16;
/// Maximum number of times that [`PROBATION_CALLS`] doubles.
const MISJUDGED_CALLS_MAX: u8 = 16;

/// The cost estimate for the program of one topic.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Recent fuel of a call. The fuel limit of a call before the first measurement.
    fuel: u64,
    /// Cheap calls since the last costly one.
    cheap: u32,
    /// How often a call of the topic outside the slow lane was costly.
    misjudged_calls: u8,
    /// Whether the topic has a program. A topic without a program retains `misjudged_calls`.
    has_program: bool,
}

impl Cost {
    fn is_trusted(&self) -> bool {
        self.cheap >= PROBATION_CALLS << self.misjudged_calls
    }
}

/// The fuel that applied calls of one topic used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FuelUse {
    /// Number of calls of the program. Each step of a transaction is one call.
    pub(crate) calls: u32,
    /// Fuel of all calls.
    pub(crate) fuel: u64,
    /// The largest fuel per call of any intention.
    pub(crate) most: u64,
}

/// The expected cost of an intention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) fuel: u64,
    /// Number of calls of a program.
    pub(super) calls: usize,
    /// Whether the intention belongs to the slow lane even if it uses little fuel.
    pub(super) is_slow: bool,
}

#[derive(Debug, Default)]
pub(super) struct CostModel {
    topics: HashMap<Box<str>, Cost>,
}

impl CostModel {
    /// Returns the expected cost of an intention. `may_start` is false for a program start that
    /// will be rejected before the program is called.
    pub(super) fn expected(&self, intention: &Intention<'_>, may_start: bool) -> Expected {
        let plain = Expected {
            fuel: PLAIN_FUEL,
            ..Expected::default()
        };
        let refused = Expected { calls: 1, ..plain };
        let steps = match &intention.operation {
            Operation::CreateProgram { code, .. } | Operation::Replace { code, .. } => {
                // An earlier intention in the queue may give the topic a program.
                let is_known = matches!(intention.operation, Operation::Replace { .. })
                    && self
                        .topics
                        .get(intention.topic)
                        .is_some_and(|cost| cost.has_program);
                if !may_start && !is_known {
                    return refused;
                }
                let compile = (code.len() as u64).saturating_mul(COMPILE_FUEL_PER_BYTE);
                return Expected {
                    fuel: START_EXPECTED_FUEL + compile.min(START_FUEL),
                    calls: 1,
                    is_slow: true,
                };
            }
            Operation::Put { .. } | Operation::Delete { .. } => 1,
            Operation::Txn { ops } => ops.len(),
            _ => return plain,
        };
        let Some(cost) = self
            .topics
            .get(intention.topic)
            .filter(|cost| cost.has_program)
        else {
            return plain;
        };
        let fuel = cost.fuel.saturating_mul(steps as u64).min(START_FUEL);
        Expected {
            fuel: fuel.max(PLAIN_FUEL),
            calls: steps,
            is_slow: !cost.is_trusted(),
        }
    }

    /// Returns the expected fuel of calls of a topic; `None` if they call no program.
    pub(super) fn fuel_of_calls(&self, topic: &str, calls: usize) -> Option<u64> {
        let cost = self.topics.get(topic).filter(|cost| cost.has_program)?;
        let fuel = cost.fuel.saturating_mul(calls as u64);
        (calls > 0).then_some(fuel.max(PLAIN_FUEL))
    }

    /// Registers a queued program start in a topic. Keeps the estimate if the topic has a program.
    pub(super) fn starting(&mut self, topic: &str, fuel_max: u64) {
        match self.topics.get_mut(topic) {
            Some(cost) if cost.has_program => {}
            _ => self.started(topic, fuel_max),
        }
    }

    /// Registers a new program of a topic, without measurements.
    pub(super) fn started(&mut self, topic: &str, fuel_max: u64) {
        let misjudged_calls = self
            .topics
            .get(topic)
            .map_or(0, |cost| cost.misjudged_calls);
        let cost = Cost {
            fuel: fuel_max,
            cheap: 0,
            misjudged_calls,
            has_program: true,
        };
        self.topics.insert(Box::from(topic), cost);
    }

    /// Registers that a topic has no program any more.
    pub(super) fn ended(&mut self, topic: &str) {
        if let Some(cost) = self.topics.get_mut(topic) {
            cost.has_program = false;
            if cost.misjudged_calls == 0 {
                self.topics.remove(topic);
            }
        }
    }

    /// Updates the estimate with the fuel that calls used.
    pub(super) fn update(&mut self, topic: &str, used: FuelUse) {
        let Some(cost) = self.topics.get_mut(topic).filter(|_| used.calls > 0) else {
            return;
        };
        let average = used.fuel / u64::from(used.calls);
        for _ in 0..used.calls.min(16) {
            cost.fuel = cost.fuel / 4 * 3 + average / 4;
        }
        if used.most < COSTLY_FUEL {
            cost.cheap = cost.cheap.saturating_add(used.calls);
            return;
        }
        if cost.is_trusted() {
            cost.misjudged_calls = MISJUDGED_CALLS_MAX.min(cost.misjudged_calls + 1);
        }
        cost.cheap = 0;
        cost.fuel = cost.fuel.max(used.most);
    }
}

/// Returns the maximum fuel of one program call in a topic with these options.
pub(crate) fn fuel_of_a_call(options: &TopicOptions) -> u64 {
    options.program.fuel_max.unwrap_or(FUEL_DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(model: &CostModel) -> Expected {
        let operation = Operation::Put {
            key: b"k",
            value: b"v",
        };
        model.expected(&Intention::new("t", operation), true)
    }

    fn used(calls: u32, each: u64) -> FuelUse {
        FuelUse {
            calls,
            fuel: each * u64::from(calls),
            most: each,
        }
    }

    #[test]
    fn a_program_is_slow_until_enough_calls_were_cheap() {
        let mut model = CostModel::default();
        assert!(!put(&model).is_slow, "no program");
        model.started("t", 1_000_000);
        assert_eq!(put(&model).fuel, 1_000_000);
        for _ in 0..PROBATION_CALLS {
            assert!(put(&model).is_slow);
            model.update("t", used(1, 2_000));
        }
        assert!(!put(&model).is_slow);
        assert!(put(&model).fuel < COSTLY_FUEL);
    }

    #[test]
    fn each_misjudged_call_doubles_the_probation() {
        let mut model = CostModel::default();
        model.started("t", 1_000_000);
        for misjudged_calls in 0..4 {
            let calls = PROBATION_CALLS << misjudged_calls;
            model.update("t", used(calls - 1, 10));
            assert!(put(&model).is_slow);
            model.update("t", used(1, 10));
            assert!(!put(&model).is_slow, "after {calls} cheap calls");
            model.update("t", used(1, COSTLY_FUEL));
            assert!(put(&model).is_slow);
            assert!(put(&model).fuel >= COSTLY_FUEL);
            // The misjudged calls remain for another program and another topic with the same name.
            model.ended("t");
            assert!(!put(&model).is_slow);
            model.started("t", 1_000_000);
        }
    }

    #[test]
    fn a_start_costs_its_module_unless_it_will_be_rejected() {
        let model = CostModel::default();
        let code = [0; 2_000];
        let operation = Operation::Replace {
            expected: None,
            code: &code,
            args: b"",
        };
        let start = Intention::new("t", operation);
        let expected = model.expected(&start, true);
        assert_eq!(expected.fuel, START_EXPECTED_FUEL + 2_000_000);
        assert!(expected.is_slow);
        let refused = model.expected(&start, false);
        assert_eq!((refused.fuel, refused.is_slow), (PLAIN_FUEL, false));
    }
}
