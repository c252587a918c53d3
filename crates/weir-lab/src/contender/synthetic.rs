//! Contenders with which the lab tests itself.
//!
//! [`Synthetic`] does no work, and returns times from its parameters: `ns` for each iteration, with
//! a relative noise of `noise`, and CPU time of `cpus` CPUs (default 1). So a test of the statistics
//! knows the true times and does not depend on a clock. `reports`, like `rate=5,p50_us=7`, are
//! further metrics for each iteration. With `listen`, it listens on a free port, and writes the
//! number of the socket to a file in `dir`. [`Spin`] executes `units` steps of real work, and
//! [`KnownShares`] divides its time between two functions.

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::path::Path;

use super::canary::integer_loop;
use super::{Contender, ContenderError, optional, parameter};
use crate::clock::Stopwatch;
use crate::protocol::{Answer, Fields, Timed};
use crate::rng::SplitMix64;

/// Start of the names of the files that name the sockets of synthetic contenders.
pub const SOCKET_FILE: &str = "synthetic-socket-";

/// Returns invented times.
#[derive(Debug)]
pub struct Synthetic {
    inputs: BTreeMap<usize, Input>,
    content: u64,
    listener: Option<TcpListener>,
}

#[derive(Debug)]
struct Input {
    ns: f64,
    noise: f64,
    cpus: f64,
    reports: BTreeMap<String, f64>,
    rng: SplitMix64,
}

impl Synthetic {
    /// A contender whose content is `content`, whatever the input.
    pub fn new(content: u64) -> Synthetic {
        Synthetic {
            inputs: BTreeMap::new(),
            content,
            listener: None,
        }
    }

    /// Listens on a free port, and writes the number of the socket to a file in `dir`.
    fn listen(&mut self, dir: &Path) -> Result<(), ContenderError> {
        let path = dir.join(format!("{SOCKET_FILE}{}", std::process::id()));
        let listening = || -> std::io::Result<TcpListener> {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            // `socket:[12345]`
            let link = fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd()))?;
            let number = link
                .to_string_lossy()
                .replace(|c: char| !c.is_ascii_digit(), "");
            fs::write(&path, number)?;
            Ok(listener)
        };
        let listener = listening().map_err(|source| ContenderError::Io {
            path: path.display().to_string(),
            source,
        })?;
        self.listener = Some(listener);
        Ok(())
    }
}

/// Metrics like `rate=5,p50_us=7`.
fn reports(text: &str) -> Option<BTreeMap<String, f64>> {
    let pairs = text.split(',').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=')?;
            Some((name.to_owned(), value.parse().ok()?))
        })
        .collect()
}

impl Contender for Synthetic {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let seed: u64 = parameter(fields, "seed")?;
        let block: u64 = parameter(fields, "block").unwrap_or(0);
        if optional(fields, "listen")?.unwrap_or(false) && self.listener.is_none() {
            self.listen(Path::new(&parameter::<String>(fields, "dir")?))?;
        }
        let metrics: String = optional(fields, "reports")?.unwrap_or_default();
        let input_state = Input {
            ns: parameter(fields, "ns")?,
            noise: parameter(fields, "noise").unwrap_or(0.0),
            cpus: optional(fields, "cpus")?.unwrap_or(1.0),
            reports: reports(&metrics).ok_or(ContenderError::Parameter("reports"))?,
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
        let ns = input_state.ns * factor * iterations as f64;
        let reports = input_state.reports.iter();
        let total = |(name, value): (&String, &f64)| (name.clone(), value * iterations as f64);
        Ok(Timed {
            wall_ns: ns as u64,
            cpu_ns: (ns * input_state.cpus) as u64,
            touch: iterations,
            extra: reports.map(total).collect(),
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

/// Uses 30 % of its CPU time in one function and 70 % in another, for tests of profiles.
#[derive(Debug)]
pub struct KnownShares {
    rng: SplitMix64,
}

/// Fewest steps of a percent of a round, and rounds of an iteration. A round takes less than the time
/// between two samples.
const PERCENT_STEPS: u64 = 500;
const ROUNDS: u64 = 20;

impl Default for KnownShares {
    fn default() -> KnownShares {
        KnownShares {
            rng: SplitMix64::new(1),
        }
    }
}

/// Dependent steps of integer arithmetic. Without a call, so that the time is that of the caller.
#[inline(always)]
#[allow(clippy::inline_always)] // in builds without optimisation, too
fn steps(count: u64) -> u64 {
    let (mut x, mut at) = (count, 0);
    while at < count {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        at += 1;
    }
    x
}

/// Uses 30 % of the time of a round.
#[inline(never)]
pub fn use_thirty_percent(percent: u64) -> u64 {
    steps(black_box(30 * percent))
}

/// Uses 70 % of the time of a round.
#[inline(never)]
pub fn use_seventy_percent(percent: u64) -> u64 {
    steps(black_box(70 * percent))
}

impl Contender for KnownShares {
    fn load(&mut self, _input: usize, _fields: &Fields) -> Result<(), ContenderError> {
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        let touch = self.run(input, 1)?.touch;
        Ok(Answer {
            touch,
            ..Answer::default()
        })
    }

    fn run(&mut self, _input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let watch = Stopwatch::start();
        for _ in 0..iterations * ROUNDS {
            // Rounds of one length could have the rhythm of the samples.
            let percent = PERCENT_STEPS + self.rng.next_u64() % (2 * PERCENT_STEPS);
            black_box(use_thirty_percent(percent));
            black_box(use_seventy_percent(percent));
        }
        let (wall_ns, cpu_ns) = watch.stop();
        Ok(Timed {
            wall_ns,
            cpu_ns,
            touch: iterations,
            extra: BTreeMap::new(),
        })
    }
}
