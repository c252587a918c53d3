//! Contenders with which the lab tests itself.
//!
//! [`Synthetic`] does no work, and returns times from its parameters: `ns` for each iteration, with
//! a relative noise of `noise` and a common `drift` for each run. So a test of the statistics knows
//! the true times and does not depend on a clock. [`Spin`] executes `units` steps of real work.

use std::collections::BTreeMap;

use super::canary::integer_loop;
use super::{Contender, ContenderError, parameter};
use crate::clock::Stopwatch;
use crate::protocol::{Answer, Fields, Timed};
use crate::rng::SplitMix64;

/// Returns invented times.
#[derive(Debug)]
pub struct Synthetic {
    inputs: BTreeMap<usize, Input>,
    content: u64,
}

#[derive(Debug)]
struct Input {
    ns: f64,
    noise: f64,
    rng: SplitMix64,
}

impl Synthetic {
    /// A contender whose content is `content`, whatever the input.
    pub fn new(content: u64) -> Synthetic {
        Synthetic {
            inputs: BTreeMap::new(),
            content,
        }
    }
}

impl Contender for Synthetic {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let seed: u64 = parameter(fields, "seed")?;
        let block: u64 = parameter(fields, "block").unwrap_or(0);
        let input_state = Input {
            ns: parameter(fields, "ns")?,
            noise: parameter(fields, "noise").unwrap_or(0.0),
            rng: SplitMix64::new(seed.wrapping_mul(1_000_003).wrapping_add(block)),
        };
        self.inputs.insert(input, input_state);
        Ok(())
    }

    fn check(&mut self, _input: usize) -> Result<Answer, ContenderError> {
        Ok(Answer {
            content: self.content,
            touch: 1,
            ..Answer::default()
        })
    }

    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )] // invented nanoseconds, positive and far below 2^53
    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let input_state = self
            .inputs
            .get_mut(&input)
            .ok_or(ContenderError::NotLoaded(input))?;
        let factor = 1.0 + input_state.noise * (2.0 * input_state.rng.unit() - 1.0);
        let ns = (input_state.ns * factor * iterations as f64) as u64;
        Ok(Timed {
            wall_ns: ns,
            cpu_ns: ns,
            touch: iterations,
            extra: BTreeMap::new(),
        })
    }
}

/// Executes `units` steps of integer arithmetic for each iteration.
#[derive(Debug, Default)]
pub struct Spin {
    inputs: BTreeMap<usize, u64>,
}

impl Contender for Spin {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        self.inputs.insert(input, parameter(fields, "units")?);
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        let units = *self
            .inputs
            .get(&input)
            .ok_or(ContenderError::NotLoaded(input))?;
        Ok(Answer {
            touch: integer_loop(units),
            ..Answer::default()
        })
    }

    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let units = *self
            .inputs
            .get(&input)
            .ok_or(ContenderError::NotLoaded(input))?;
        let watch = Stopwatch::start();
        let mut touch = 0u64;
        for _ in 0..iterations {
            touch = touch.wrapping_add(integer_loop(units));
        }
        let (wall_ns, cpu_ns) = watch.stop();
        Ok(Timed {
            wall_ns,
            cpu_ns,
            touch,
            extra: BTreeMap::new(),
        })
    }
}
