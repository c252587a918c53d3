//! The canary: two short pieces of fixed work that show disturbances of the machine. The integer
//! loop shows stolen CPU time and clock changes. The copy of 32 MiB shows other users of caches and
//! memory, which the steal counter does not show.

use std::collections::BTreeMap;
use std::hint::black_box;

use super::{Contender, ContenderError, parameter};
use crate::clock::Stopwatch;
use crate::protocol::{Answer, Fields, Timed};

/// Bytes of the copy.
pub const COPY_BYTES: usize = 32 << 20;
/// Steps of the integer loop, about 10 ms.
pub const LOOP_STEPS: u64 = 10_000_000;

/// The two pieces, by the parameter `kind` of an input: `integer` or `copy`.
#[derive(Debug, Default)]
pub struct CanaryWork {
    kinds: BTreeMap<usize, String>,
    from: Vec<u8>,
    to: Vec<u8>,
}

/// `steps` dependent steps of integer arithmetic.
pub fn integer_loop(steps: u64) -> u64 {
    let mut x = black_box(0x1234_5678_9ABC_DEF0u64);
    for _ in 0..steps {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    black_box(x)
}

impl Contender for CanaryWork {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        self.kinds.insert(input, parameter(fields, "kind")?);
        self.from.resize(COPY_BYTES, 0x5A);
        self.to.resize(COPY_BYTES, 0);
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        let touch = self.run(input, 1)?.touch;
        Ok(Answer {
            touch,
            ..Answer::default()
        })
    }

    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let kind = self
            .kinds
            .get(&input)
            .ok_or(ContenderError::NotLoaded(input))?;
        let mut touch = 0u64;
        let watch = Stopwatch::start();
        for _ in 0..iterations {
            touch = touch.wrapping_add(if kind == "integer" {
                integer_loop(LOOP_STEPS)
            } else {
                self.to.copy_from_slice(black_box(&self.from));
                u64::from(*black_box(&self.to).last().unwrap_or(&0))
            });
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
