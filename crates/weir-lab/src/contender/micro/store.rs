//! Single operations of a store in this process, whose answers come from memory, and their floors.
//!
//! `put` waits for each of 1,000 verdicts; `put-100` puts as many in ten calls; `get` reads 1,000
//! keys of 10,000; `at` reads 1,000 records by their offset; `read` reads 10,000 records in order.
//! The floors: a write to a file with a checksum, a hash table, and reads of a file with a
//! checksum.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crc_fast::{CrcAlgorithm, checksum};
use weir::{
    ConsequenceOffset, Durability, Effect, Intention, Operation, ReadFrom, RecordKind, Topic, Weir,
};

use super::{Timer, Work, key, value};
use crate::contender::store::{TOPIC, failed, options, remove, scratch};
use crate::contender::wire::touch;
use crate::contender::{ContenderError, parameter};
use crate::protocol::Fields;
use crate::rng::SplitMix64;

/// Number of records before the clock starts.
const RECORDS: u64 = 10_000;
/// Number of operations of a pass, except for `read`.
const OPERATIONS: u64 = 1_000;
/// Bytes of a value.
const BYTES: usize = 100;
/// Records of a write or read of many.
const MANY: usize = 100;

/// The operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Put,
    PutMany,
    Get,
    At,
    Read,
}

impl Op {
    fn parse(fields: &Fields) -> Result<Op, ContenderError> {
        let name: String = parameter(fields, "op")?;
        Ok(match name.as_str() {
            "put" => Op::Put,
            "put-100" => Op::PutMany,
            "get" => Op::Get,
            "at" => Op::At,
            "read" => Op::Read,
            _ => return Err(ContenderError::Parameter("op")),
        })
    }
}

/// The records that `get` and `at` read, in an order that is the same for all contenders.
fn chosen() -> Vec<u64> {
    let mut rng = SplitMix64::new(OPERATIONS);
    let records = usize::try_from(RECORDS).unwrap_or(usize::MAX);
    let mut number = || rng.below(records) as u64;
    (0..OPERATIONS).map(|_| number()).collect()
}

/// Sums `each` over the records that are read.
fn sum_of<T>(
    numbers: &[T],
    mut each: impl FnMut(&T) -> Result<u64, ContenderError>,
) -> Result<u64, ContenderError> {
    let mut sum = 0u64;
    for number in numbers {
        sum = sum.wrapping_add(each(number)?);
    }
    Ok(sum)
}

/// A store with [`RECORDS`] records, each with a key.
struct InStore {
    op: Op,
    weir: Option<Weir>,
    topic: Topic,
    /// Offset of the record before the first one.
    start: u64,
    numbers: Vec<u64>,
    keys: Vec<Vec<u8>>,
    values: Vec<Vec<u8>>,
    path: PathBuf,
}

/// Opens a store for `op`.
pub fn stored(input: usize, fields: &Fields) -> Result<Box<dyn Work>, ContenderError> {
    let op = Op::parse(fields)?;
    let path = scratch(fields, "micro", input)?;
    let weir = Weir::open_with(&path, &options(Durability::Memory)).map_err(failed)?;
    let topic = weir.topic(TOPIC).map_err(failed)?;
    topic.ensure().map_err(failed)?;
    let info = topic.info().ok_or_else(|| failed("the topic is missing"))?;
    let start = info.last.0;
    let keys: Vec<Vec<u8>> = (0..RECORDS).map(key).collect();
    let values: Vec<Vec<u8>> = (0..RECORDS).map(value).collect();
    let puts: Vec<Intention<'_>> = keys
        .iter()
        .zip(&values)
        .map(|(key, value)| Intention::new(TOPIC, Operation::Put { key, value }))
        .collect();
    for puts in puts.chunks(MANY) {
        if put(&weir, puts)? != puts.len() as u64 {
            return Err(failed("a put was not VALID"));
        }
    }
    Ok(Box::new(InStore {
        op,
        weir: Some(weir),
        topic,
        start,
        numbers: chosen(),
        keys,
        values,
        path,
    }))
}

/// Puts records and waits for the verdicts. Returns the number of VALID ones.
fn put(weir: &Weir, puts: &[Intention<'_>]) -> Result<u64, ContenderError> {
    let outcomes = weir.propose(puts).map_err(failed)?.wait().map_err(failed)?;
    let runs = outcomes.runs().iter();
    let valid = runs.filter(|run| {
        let commit = run.outcome.commit();
        commit.is_some_and(|commit| commit.effect == Effect::Valid)
    });
    Ok(valid.map(|run| u64::from(run.count)).sum())
}

impl InStore {
    fn puts(&self) -> Vec<Intention<'_>> {
        let values = self.values.iter().take(self.numbers.len());
        values
            .map(|value| Intention::new(TOPIC, Operation::Put { key: b"", value }))
            .collect()
    }

    fn put(&self, many: usize, timer: &mut Timer) -> Result<u64, ContenderError> {
        let weir = self.weir.as_ref().ok_or_else(|| failed("a closed store"))?;
        let puts = self.puts();
        timer.time(|| puts.chunks(many).map(|puts| put(weir, puts)).sum())
    }

    fn read(&self, timer: &mut Timer) -> Result<u64, ContenderError> {
        timer.time(|| {
            let mut sum = 0u64;
            for page in self.topic.pages(ReadFrom::Start).map_err(failed)? {
                for record in &page.map_err(failed)? {
                    let record = record.map_err(failed)?;
                    if record.kind == RecordKind::Put {
                        sum = sum.wrapping_add(touch(record.value));
                    }
                }
            }
            Ok(sum)
        })
    }
}

impl Work for InStore {
    fn pass(&mut self, timer: &mut Timer) -> Result<u64, ContenderError> {
        let missing = || failed("a record is missing");
        match self.op {
            Op::Put => self.put(1, timer),
            Op::PutMany => self.put(MANY, timer),
            Op::Get => {
                let indexes = self.numbers.iter().filter_map(|n| usize::try_from(*n).ok());
                let keys: Vec<&Vec<u8>> =
                    indexes.filter_map(|index| self.keys.get(index)).collect();
                timer.time(|| {
                    sum_of(&keys, |key| {
                        let found = self.topic.get(key).map_err(failed)?;
                        Ok(touch(found.ok_or_else(missing)?.value()))
                    })
                })
            }
            Op::At => timer.time(|| {
                sum_of(&self.numbers, |number| {
                    let offset = ConsequenceOffset(self.start + 1 + number);
                    let found = self.topic.at(offset).map_err(failed)?;
                    Ok(touch(found.ok_or_else(missing)?.value()))
                })
            }),
            Op::Read => self.read(timer),
        }
    }
}

impl Drop for InStore {
    fn drop(&mut self) {
        if let Some(weir) = self.weir.take() {
            let _ = weir.close();
        }
        // Scratch files that cannot be removed do no harm.
        let _ = remove(&self.path);
    }
}

/// A file with the values of [`RECORDS`] records, and a table of them by key.
struct Floor {
    op: Op,
    file: File,
    end: u64,
    values: Vec<Vec<u8>>,
    table: HashMap<Vec<u8>, Vec<u8>>,
    keys: Vec<Vec<u8>>,
    numbers: Vec<u64>,
    out: Vec<u8>,
}

/// The floor of `op`.
pub fn floor(input: usize, fields: &Fields) -> Result<Box<dyn Work>, ContenderError> {
    let op = Op::parse(fields)?;
    let path = scratch(fields, "micro-floor", input)?;
    let values: Vec<Vec<u8>> = (0..RECORDS).map(value).collect();
    let all = values.concat();
    let open = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path);
    let file = open.map_err(failed)?;
    file.write_all_at(&all, 0).map_err(failed)?;
    // The file exists until it is closed.
    fs::remove_file(&path).map_err(failed)?;
    let numbers = chosen();
    Ok(Box::new(Floor {
        op,
        file,
        end: all.len() as u64,
        table: (0..RECORDS).map(key).zip(values.iter().cloned()).collect(),
        keys: numbers.iter().map(|number| key(*number)).collect(),
        values,
        numbers,
        out: Vec::new(),
    }))
}

impl Floor {
    /// Writes values to the end of the file, `many` in a call. Their checksum is written, too.
    fn write(&mut self, many: usize, timer: &mut Timer) -> Result<u64, ContenderError> {
        let (file, out, end) = (&self.file, &mut self.out, &mut self.end);
        let count = self.numbers.len();
        let values = self.values.get(..count).unwrap_or_default();
        timer.time(|| {
            for values in values.chunks(many) {
                out.clear();
                for value in values {
                    out.extend_from_slice(value);
                }
                let sum = checksum(CrcAlgorithm::Crc32Iscsi, out);
                out.extend_from_slice(&sum.to_le_bytes());
                file.write_all_at(out, *end).map_err(failed)?;
                *end += out.len() as u64;
            }
            Ok(count as u64)
        })
    }

    /// Reads records from the file at these numbers, `many` in a call.
    fn read(
        &mut self,
        numbers: &[u64],
        many: usize,
        timer: &mut Timer,
    ) -> Result<u64, ContenderError> {
        let (file, out) = (&self.file, &mut self.out);
        out.resize(many * BYTES, 0);
        timer.time(|| {
            let mut checksums = 0u64;
            let sum = sum_of(numbers, |number| {
                let at = number * BYTES as u64;
                file.read_exact_at(out, at).map_err(failed)?;
                checksums ^= checksum(CrcAlgorithm::Crc32Iscsi, out);
                let records = out.chunks(BYTES).map(touch);
                Ok(records.fold(0, u64::wrapping_add))
            });
            std::hint::black_box(checksums);
            sum
        })
    }
}

impl Work for Floor {
    fn pass(&mut self, timer: &mut Timer) -> Result<u64, ContenderError> {
        match self.op {
            Op::Put => self.write(1, timer),
            Op::PutMany => self.write(MANY, timer),
            Op::Get => {
                let (table, out) = (&self.table, &mut self.out);
                timer.time(|| {
                    sum_of(&self.keys, |key| {
                        let value = table.get(key).ok_or_else(|| failed("a missing key"))?;
                        out.clear();
                        out.extend_from_slice(value);
                        Ok(touch(out))
                    })
                })
            }
            Op::At => {
                let numbers = std::mem::take(&mut self.numbers);
                let sum = self.read(&numbers, 1, timer);
                self.numbers = numbers;
                sum
            }
            Op::Read => {
                let numbers: Vec<u64> = (0..RECORDS).step_by(MANY).collect();
                self.read(&numbers, MANY, timer)
            }
        }
    }
}
