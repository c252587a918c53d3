//! The state machine: 10,000 puts of 100 bytes, in batches, applied without a log; and its parts,
//! measured alone.
//!
//! Keys: `none`; `new`, a different key for each put; `repeated`, each of 1,000 keys ten times;
//! `conditional`, as `repeated`, and each put requires that the key exists.

use std::collections::{BTreeMap, HashMap};

use weir_core::batch::{Action, Batch, BatchBuilder};
use weir_core::intention::{Expect, Intention, IntentionLimits};
use weir_core::record::ConsequenceSink;
use weir_core::{Effect, Machine, Operation, Outcomes, Record, TopicId, TopicName, TopicOptions};

use super::{Timer, Work, key, value};
use crate::contender::wire::{pair, touch};
use crate::contender::{ContenderError, parameter};
use crate::protocol::Fields;

/// Number of puts of a pass.
pub const PUTS: u64 = 10_000;
/// Number of keys that are repeated.
const KEYS: u64 = 1_000;
const TOPIC: &str = "lab";

/// A put: its key, which may be empty, and its value.
struct Put {
    key: Vec<u8>,
    value: Vec<u8>,
}

/// An input: its puts, and the form in which they are written.
struct Input {
    puts: Vec<Put>,
    batch: usize,
    conditional: bool,
}

fn refused(error: impl std::fmt::Display) -> ContenderError {
    ContenderError::Refused(error.to_string())
}

impl Input {
    fn read(fields: &Fields) -> Result<Input, ContenderError> {
        let keys: String = parameter(fields, "keys")?;
        let number: fn(u64) -> Option<u64> = match keys.as_str() {
            "none" => |_| None,
            "new" => Some,
            "repeated" | "conditional" => |number| Some(number % KEYS),
            _ => return Err(ContenderError::Parameter("keys")),
        };
        let put = |index| Put {
            key: number(index).map(key).unwrap_or_default(),
            value: value(index % KEYS),
        };
        Ok(Input {
            puts: (0..PUTS).map(put).collect(),
            batch: parameter(fields, "batch")?,
            conditional: keys == "conditional",
        })
    }

    /// Appends a part of the puts to `builder`.
    fn push(&self, puts: &[Put], builder: &mut BatchBuilder) -> Result<(), ContenderError> {
        let limits = IntentionLimits::default();
        for put in puts {
            let (key, value) = (put.key.as_slice(), put.value.as_slice());
            let mut intention = Intention::new(TOPIC, Operation::Put { key, value });
            if self.conditional {
                intention.expect = &[Expect::KeyPresent(None)];
            }
            builder.push(&intention, &limits).map_err(refused)?;
        }
        Ok(())
    }

    fn batches(&self) -> Result<Vec<Vec<u8>>, ContenderError> {
        let mut builder = BatchBuilder::default();
        let mut batches = Vec::new();
        for puts in self.puts.chunks(self.batch.max(1)) {
            builder.clear(usize::MAX);
            self.push(puts, &mut builder)?;
            batches.push(builder.to_bytes(1));
        }
        Ok(batches)
    }
}

/// The puts that remain after a pass: the last one of each key, and each one without a key. The
/// check compares them between the contenders.
#[derive(Default)]
struct Remaining {
    puts: BTreeMap<Vec<u8>, (u64, Vec<u8>)>,
    without_key: u64,
}

impl Remaining {
    /// Adds put number `number`.
    fn add(&mut self, number: u64, key: &[u8], value: &[u8]) {
        if key.is_empty() {
            let name = number.to_le_bytes();
            self.without_key = self.without_key.wrapping_add(pair(b'n', &name, value));
        } else {
            self.puts.insert(key.to_vec(), (number, value.to_vec()));
        }
    }

    /// Adds the puts of batches in order.
    fn of_batches(batches: &[Vec<u8>]) -> Result<Remaining, ContenderError> {
        let (mut remaining, mut number) = (Remaining::default(), 0);
        for bytes in batches {
            for item in Batch::read(bytes, 1).map_err(refused)?.items() {
                let (key, value) = put_of(item.map_err(refused)?.action)?;
                remaining.add(number, key, value);
                number += 1;
            }
        }
        Ok(remaining)
    }

    fn hash(&self) -> u64 {
        self.puts
            .iter()
            .fold(self.without_key, |sum, (key, (number, value))| {
                let put = [number.to_le_bytes().as_slice(), value].concat();
                sum.wrapping_add(pair(b'k', key, &put))
            })
    }
}

/// Key and value of an item that must be a put.
fn put_of(action: Action<'_>) -> Result<(&[u8], &[u8]), ContenderError> {
    match action {
        Action::Put { key, value } => Ok((key, value)),
        _ => Err(refused("an item that is not a put")),
    }
}

/// Collects the records.
#[derive(Default)]
struct Collected(Vec<(Vec<u8>, Vec<u8>)>);

impl ConsequenceSink for Collected {
    fn topic(&mut self, _: TopicId, _: &TopicName) {}

    fn record(&mut self, _: TopicId, record: &Record<'_>) {
        self.0.push((record.key.to_vec(), record.value.to_vec()));
    }
}

/// Reads the records without storing them.
#[derive(Default)]
struct Sum(u64);

impl ConsequenceSink for Sum {
    fn topic(&mut self, _: TopicId, _: &TopicName) {}

    #[inline]
    fn record(&mut self, _: TopicId, record: &Record<'_>) {
        let sum = self.0.wrapping_add(record.offset.0);
        self.0 = sum.wrapping_add(touch(record.value));
    }
}

/// The batches are applied by a new machine, which has the keys that a put requires.
struct Apply {
    batches: Vec<Vec<u8>>,
    first: Vec<u8>,
    /// Number of outcomes of the first batch.
    before: u64,
}

/// Returns the number of VALID outcomes.
fn apply<S: ConsequenceSink>(
    machine: &mut Machine,
    bytes: &[u8],
    state: &mut (S, Outcomes),
) -> Result<u64, ContenderError> {
    let (sink, outcomes) = state;
    outcomes.clear();
    let batch = Batch::read(bytes, 1).map_err(refused)?;
    machine.apply(&batch, sink, outcomes).map_err(refused)?;
    let runs = outcomes.runs().iter();
    let valid = runs.filter(|run| {
        let commit = run.outcome.commit();
        commit.is_some_and(|commit| commit.effect == Effect::Valid)
    });
    Ok(valid.map(|run| u64::from(run.count)).sum())
}

impl Work for Apply {
    fn pass(&mut self, timer: &mut Timer) -> Result<u64, ContenderError> {
        let mut machine = Machine::new(9);
        let mut state = (Sum::default(), Outcomes::default());
        if apply(&mut machine, &self.first, &mut state)? != self.before {
            return Err(refused("the first batch was rejected"));
        }
        let batches = &self.batches;
        let valid = timer.time(|| {
            let mut valid = 0;
            for bytes in batches {
                valid += apply(&mut machine, bytes, &mut state)?;
            }
            Ok::<u64, ContenderError>(valid)
        })?;
        match valid {
            PUTS => Ok(state.0.0),
            _ => Err(refused(format!("{valid} puts of {PUTS} were VALID"))),
        }
    }

    fn content(&mut self) -> Result<u64, ContenderError> {
        let mut machine = Machine::new(9);
        let mut state = (Collected::default(), Outcomes::default());
        apply(&mut machine, &self.first, &mut state)?;
        state.0.0.clear();
        for bytes in &self.batches {
            apply(&mut machine, bytes, &mut state)?;
        }
        let mut remaining = Remaining::default();
        for (number, (key, value)) in (0..).zip(&state.0.0) {
            remaining.add(number, key, value);
        }
        Ok(remaining.hash())
    }
}

/// Applies batches.
pub fn applied(_: usize, fields: &Fields) -> Result<Box<dyn Work>, ContenderError> {
    let puts = Input::read(fields)?;
    let options = TopicOptions::default();
    let create = Operation::Create { options: &options };
    let mut builder = BatchBuilder::default();
    let limits = IntentionLimits::default();
    let create = Intention::new(TOPIC, create);
    builder.push(&create, &limits).map_err(refused)?;
    if puts.conditional {
        let without = Input {
            conditional: false,
            batch: puts.batch,
            puts: Vec::new(),
        };
        let keys = usize::try_from(KEYS).map_err(refused)?;
        without.push(puts.puts.get(..keys).unwrap_or_default(), &mut builder)?;
    }
    Ok(Box::new(Apply {
        batches: puts.batches()?,
        first: builder.to_bytes(0),
        before: builder.len() as u64,
    }))
}

/// The batches are read, item by item.
struct Decode(Vec<Vec<u8>>);

impl Work for Decode {
    fn pass(&mut self, timer: &mut Timer) -> Result<u64, ContenderError> {
        let batches = &self.0;
        timer.time(|| {
            let mut sum = 0u64;
            for bytes in batches {
                for item in Batch::read(bytes, 1).map_err(refused)?.items() {
                    let (key, value) = put_of(item.map_err(refused)?.action)?;
                    sum = sum.wrapping_add(touch(key)).wrapping_add(touch(value));
                }
            }
            Ok(sum)
        })
    }

    fn content(&mut self) -> Result<u64, ContenderError> {
        Ok(Remaining::of_batches(&self.0)?.hash())
    }
}

/// Reads batches.
pub fn decoded(_: usize, fields: &Fields) -> Result<Box<dyn Work>, ContenderError> {
    Ok(Box::new(Decode(Input::read(fields)?.batches()?)))
}

/// The puts are encoded into batches.
struct Encode(Input, BatchBuilder);

impl Work for Encode {
    fn pass(&mut self, timer: &mut Timer) -> Result<u64, ContenderError> {
        let (puts, builder) = (&self.0, &mut self.1);
        timer.time(|| {
            let mut sum = 0u64;
            for part in puts.puts.chunks(puts.batch.max(1)) {
                builder.clear(usize::MAX);
                puts.push(part, builder)?;
                sum = sum.wrapping_add(touch(builder.items()));
            }
            Ok(sum)
        })
    }

    fn content(&mut self) -> Result<u64, ContenderError> {
        Ok(Remaining::of_batches(&self.0.batches()?)?.hash())
    }
}

/// Encodes batches.
pub fn encoded(_: usize, fields: &Fields) -> Result<Box<dyn Work>, ContenderError> {
    let puts = Input::read(fields)?;
    Ok(Box::new(Encode(puts, BatchBuilder::default())))
}

/// The floor: the batches are copied.
struct PlainCopy(Vec<Vec<u8>>, Vec<u8>);

impl Work for PlainCopy {
    fn pass(&mut self, timer: &mut Timer) -> Result<u64, ContenderError> {
        let (batches, out) = (&self.0, &mut self.1);
        Ok(timer.time(|| {
            let mut sum = 0u64;
            for bytes in batches {
                out.clear();
                out.extend_from_slice(bytes);
                sum = sum.wrapping_add(touch(out));
            }
            sum
        }))
    }

    fn content(&mut self) -> Result<u64, ContenderError> {
        let out = &mut self.1;
        let copy = |bytes: &Vec<u8>| {
            out.clear();
            out.extend_from_slice(bytes);
            out.clone()
        };
        let copies: Vec<Vec<u8>> = self.0.iter().map(copy).collect();
        Ok(Remaining::of_batches(&copies)?.hash())
    }
}

/// Copies batches.
pub fn copied(_: usize, fields: &Fields) -> Result<Box<dyn Work>, ContenderError> {
    let batches = Input::read(fields)?.batches()?;
    Ok(Box::new(PlainCopy(batches, Vec::new())))
}

/// The floor of keys: a hash table of the standard library gets each key with a number.
struct Map(Vec<Put>);

impl Map {
    fn fill(&self) -> HashMap<Vec<u8>, u64> {
        let mut map: HashMap<Vec<u8>, u64> = HashMap::new();
        for (number, put) in (0u64..).zip(&self.0) {
            if let Some(offset) = map.get_mut(&put.key) {
                *offset = number;
            } else {
                map.insert(put.key.clone(), number);
            }
        }
        map
    }
}

impl Work for Map {
    fn pass(&mut self, timer: &mut Timer) -> Result<u64, ContenderError> {
        let map = timer.time(|| self.fill());
        Ok(map
            .values()
            .fold(map.len() as u64, |sum, number| sum.wrapping_add(*number)))
    }

    fn content(&mut self) -> Result<u64, ContenderError> {
        let mut remaining = Remaining::default();
        for (key, number) in self.fill() {
            let index = usize::try_from(number).map_err(refused)?;
            let put = self
                .0
                .get(index)
                .ok_or_else(|| refused("a number without a put"))?;
            remaining.add(number, &key, &put.value);
        }
        Ok(remaining.hash())
    }
}

/// Sets keys in a hash table. Puts without a key have none.
pub fn mapped(_: usize, fields: &Fields) -> Result<Box<dyn Work>, ContenderError> {
    let puts = Input::read(fields)?.puts;
    if puts.iter().any(|put| put.key.is_empty()) {
        return Err(ContenderError::Parameter("keys"));
    }
    Ok(Box::new(Map(puts)))
}
