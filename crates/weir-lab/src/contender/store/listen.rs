//! Reading a topic from its first record, as a listener from the start does.

use std::collections::BTreeMap;
use std::path::PathBuf;

use weir::{Durability, Weir};

use super::put::fresh;
use super::{Load, no_key, put_all, read_all, remove, scratch};
use crate::clock::Stopwatch;
use crate::contender::wire::{part, touch};
use crate::contender::{Contender, ContenderError};
use crate::protocol::{Answer, Fields, Timed};

/// Listens to the messages of a [`Load`], which are put once, when the input is first used. The
/// value of every record is touched.
#[derive(Debug, Default)]
pub struct Listen {
    inputs: BTreeMap<usize, (Load, PathBuf, Option<Weir>)>,
}

impl Listen {
    fn weir(&mut self, input: usize) -> Result<Weir, ContenderError> {
        let (load, path, weir) = self
            .inputs
            .get_mut(&input)
            .ok_or(ContenderError::NotLoaded(input))?;
        if let Some(weir) = weir {
            return Ok(weir.clone());
        }
        let new = fresh(path, Durability::Memory)?;
        put_all(&new, *load, no_key)?;
        *weir = Some(new.clone());
        Ok(new)
    }
}

impl Contender for Listen {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let path = scratch(fields, "listen", input)?;
        self.inputs.insert(input, (Load::read(fields)?, path, None));
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        let weir = self.weir(input)?;
        let content = read_all(&weir, |value| part(b'r', value))?;
        let touch = read_all(&weir, touch)?;
        Ok(Answer {
            content,
            touch,
            ..Answer::default()
        })
    }

    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let weir = self.weir(input)?;
        let mut sum = 0u64;
        let watch = Stopwatch::start();
        for _ in 0..iterations {
            sum = sum.wrapping_add(read_all(&weir, touch)?);
        }
        let (wall_ns, cpu_ns) = watch.stop();
        Ok(Timed {
            wall_ns,
            cpu_ns,
            touch: sum,
            extra: BTreeMap::new(),
        })
    }
}

impl Drop for Listen {
    fn drop(&mut self) {
        for (_, path, weir) in self.inputs.values_mut() {
            drop(weir.take());
            let _ = remove(path);
        }
    }
}
