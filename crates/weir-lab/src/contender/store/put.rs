//! Puts messages into a new store, until all answers have arrived.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use weir::{Durability, Weir};

use super::{Load, TOPIC, durability, failed, no_key, options, put_all, read_all, remove, scratch};
use crate::contender::wire::part;
use crate::contender::{Contender, ContenderError};
use crate::protocol::{Answer, Fields, Timed};

/// Puts by [`Load`] at the durability `level`. Reports `syncs` and `batches`
/// of the log and `sync_ns`.
#[derive(Debug, Default)]
pub struct Put {
    inputs: BTreeMap<usize, (Load, Durability, PathBuf)>,
}

/// A new store in `path` with the topic of the lab.
pub(super) fn fresh(path: &Path, durability: Durability) -> Result<Weir, ContenderError> {
    remove(path)?;
    let weir = Weir::open_with(path, &options(durability)).map_err(failed)?;
    weir.topic(TOPIC)
        .and_then(|topic| topic.ensure())
        .map_err(failed)?;
    Ok(weir)
}

impl Put {
    fn input(&self, input: usize) -> Result<(Load, Durability, PathBuf), ContenderError> {
        self.inputs
            .get(&input)
            .cloned()
            .ok_or(ContenderError::NotLoaded(input))
    }
}

impl Contender for Put {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let path = scratch(fields, "put", input)?;
        self.inputs
            .insert(input, (Load::read(fields)?, durability(fields)?, path));
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        let (load, durability, path) = self.input(input)?;
        let weir = fresh(&path, durability)?;
        put_all(&weir, load.for_check(), no_key)?;
        let content = read_all(&weir, |value| part(b'r', value))?;
        weir.close().map_err(failed)?;
        remove(&path)?;
        Ok(Answer {
            content,
            touch: load.messages,
            ..Answer::default()
        })
    }

    #[allow(clippy::cast_precision_loss)] // counts below 2^53
    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let (load, durability, path) = self.input(input)?;
        let mut sum = Timed::default();
        for _ in 0..iterations {
            let weir = fresh(&path, durability)?;
            let before = weir.store().map_err(failed)?.stats();
            let (wall_ns, cpu_ns) = put_all(&weir, load, no_key)?;
            let after = weir.store().map_err(failed)?.stats();
            sum.wall_ns += wall_ns;
            sum.cpu_ns += cpu_ns;
            sum.touch = sum.touch.wrapping_add(after.valid - before.valid);
            for (name, from, to) in [
                ("syncs", before.syncs, after.syncs),
                ("batches", before.batches, after.batches),
                ("sync_ns", before.sync_ns, after.sync_ns),
            ] {
                *sum.extra.entry(name.to_owned()).or_default() += (to - from) as f64;
            }
            weir.close().map_err(failed)?;
            remove(&path)?;
        }
        Ok(sum)
    }
}

impl Drop for Put {
    fn drop(&mut self) {
        for (_, _, path) in self.inputs.values() {
            // Scratch files that cannot be removed do no harm.
            let _ = remove(path);
        }
    }
}
