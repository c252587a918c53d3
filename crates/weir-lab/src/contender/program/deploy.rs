//! The cost of deploying modules, and of having many modules.

use std::collections::BTreeMap;
use std::path::PathBuf;

use weir::{Durability, Weir};

use super::{arguments, create, module};
use crate::clock::Stopwatch;
use crate::contender::store::keys::status;
use crate::contender::store::{failed, options, remove, scratch};
use crate::contender::{Contender, ContenderError, parameter};
use crate::protocol::{Answer, Fields, Timed};

/// Creates `topics` topics, each with a different module: `program` with a custom section that
/// makes it unique. Reports `cpu_per_kib` (nanoseconds for each KiB of module) and
/// `bytes_per_topic` (resident bytes for each topic, above those of an empty store).
#[derive(Debug, Default)]
pub struct Deploy {
    inputs: BTreeMap<usize, (String, usize, PathBuf)>,
    /// Number of deployed modules, because a module that was compiled once is not compiled again.
    deployed: usize,
}

/// `code` with a custom section that holds `number`.
pub(super) fn distinct(code: &[u8], number: usize) -> Vec<u8> {
    const SECTION: [u8; 8] = [0, 14, 5, b'n', b'u', b'm', b'b', b'r'];
    let mut code = code.to_vec();
    code.extend_from_slice(&SECTION);
    code.extend_from_slice(&(number as u64).to_le_bytes());
    code
}

impl Deploy {
    #[allow(clippy::cast_precision_loss)] // bytes and nanoseconds below 2^53
    fn pass(&mut self, input: usize, most: usize) -> Result<Timed, ContenderError> {
        let (program, topics, path) = self
            .inputs
            .get(&input)
            .ok_or(ContenderError::NotLoaded(input))?;
        let code = module(program)?;
        let topics = (*topics).min(most);
        remove(path)?;
        let weir = Weir::open_with(path, &options(Durability::Memory)).map_err(failed)?;
        let before = status("VmRSS");
        let watch = Stopwatch::start();
        for number in 0..topics {
            let topic = format!("t{number}");
            let code = distinct(code, self.deployed + number);
            create(&weir, &topic, &code, arguments(program))?;
        }
        let (wall_ns, cpu_ns) = watch.stop();
        self.deployed += topics;
        let resident = status("VmRSS").saturating_sub(before);
        let kib = topics as f64 * code.len() as f64 / 1024.0;
        weir.close().map_err(failed)?;
        remove(path)?;
        let extra = [
            ("cpu_per_kib", cpu_ns as f64 / kib),
            ("bytes_per_topic", resident as f64 / topics as f64),
        ];
        Ok(Timed {
            wall_ns,
            cpu_ns,
            touch: topics as u64,
            extra: extra.map(|(name, value)| (name.to_owned(), value)).into(),
        })
    }
}

impl Contender for Deploy {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let program: String = parameter(fields, "program")?;
        let topics: usize = parameter(fields, "topics")?;
        if module(&program)?.is_empty() || topics == 0 {
            return Err(ContenderError::Parameter("topics"));
        }
        let path = scratch(fields, "deploy", input)?;
        self.inputs.insert(input, (program, topics, path));
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        self.pass(input, 10)?;
        let topics = self.inputs.get(&input).map_or(0, |(_, topics, _)| *topics);
        Ok(Answer {
            touch: topics as u64,
            ..Answer::default()
        })
    }

    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let mut sum = Timed::default();
        for _ in 0..iterations {
            let timed = self.pass(input, usize::MAX)?;
            sum.wall_ns += timed.wall_ns;
            sum.cpu_ns += timed.cpu_ns;
            sum.touch = sum.touch.wrapping_add(timed.touch);
            for (name, value) in timed.extra {
                *sum.extra.entry(name).or_default() += value;
            }
        }
        Ok(sum)
    }
}

impl Drop for Deploy {
    fn drop(&mut self) {
        for (_, _, path) in self.inputs.values() {
            let _ = remove(path);
        }
    }
}
