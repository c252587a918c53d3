//! Shared parts of the store contenders: their load, and their scratch directories.
//!
//! A load is `messages` messages of `bytes` bytes from `producers` producers, in calls of `batch`
//! messages with at most `window` unanswered calls. The messages are fixed: message i of producer p
//! is the `SplitMix64` sequence with the seed p x 2^32 + (i mod [`DISTINCT`]), each number low byte
//! first, cut to length. The content of a check is the wrapping sum of FNV-1a over `r` and each
//! message that was read back, in any order.

pub mod keys;
pub mod listen;
pub mod open;
pub mod put;

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Barrier;

use weir::{
    Durability, Effect, Intention, OpenOptions, Operation, Proposal, ReadFrom, RecordKind, Weir,
    WeirError,
};

use super::{ContenderError, parameter};
use crate::clock::Stopwatch;
use crate::protocol::Fields;
use crate::rng::SplitMix64;

/// Number of distinct messages of a producer, after which they repeat.
pub const DISTINCT: usize = 4_096;
/// The topic of all messages.
pub const TOPIC: &str = "lab";
/// Maximum number of messages that a check writes.
pub const CHECK_MESSAGES_MAX: u64 = 20_000;

/// The load of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Threads.
    pub producers: u64,
    /// Messages of all producers together.
    pub messages: u64,
    /// Bytes of a message.
    pub bytes: usize,
    /// Messages in a call.
    pub batch: usize,
    /// Maximum unanswered calls of a producer.
    pub window: usize,
}

/// The messages of one producer.
#[derive(Debug)]
pub struct Payload {
    bytes: Vec<u8>,
    size: usize,
}

impl Load {
    /// Reads the load from the parameters of an input.
    pub fn read(fields: &Fields) -> Result<Load, ContenderError> {
        let load = Load {
            producers: parameter(fields, "producers")?,
            messages: parameter(fields, "messages")?,
            bytes: parameter(fields, "bytes")?,
            batch: parameter(fields, "batch").unwrap_or(1),
            window: parameter(fields, "window").unwrap_or(1),
        };
        for (name, bad) in [
            ("producers", load.producers == 0),
            (
                "messages",
                load.messages == 0 || !load.messages.is_multiple_of(load.producers),
            ),
            ("bytes", load.bytes == 0),
            ("batch", load.batch == 0),
            ("window", load.window == 0),
        ] {
            if bad {
                return Err(ContenderError::Parameter(name));
            }
        }
        Ok(load)
    }

    /// Reads a load like `read`, with few enough messages for a check.
    #[must_use]
    pub fn for_check(self) -> Load {
        let most = CHECK_MESSAGES_MAX / self.producers * self.producers;
        Load {
            messages: self.messages.min(most),
            ..self
        }
    }

    /// The messages of producer `producer`.
    pub fn payload(&self, producer: u64) -> Payload {
        let mut bytes = Vec::with_capacity(DISTINCT * self.bytes);
        for message in 0..DISTINCT as u64 {
            let mut rng = SplitMix64::new((producer << 32) + message);
            let end = bytes.len() + self.bytes;
            while bytes.len() < end {
                bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
            }
            bytes.truncate(end);
        }
        Payload {
            bytes,
            size: self.bytes,
        }
    }
}

impl Payload {
    /// Returns message number `message`.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // a remainder by a small number
    pub fn message(&self, message: u64) -> &[u8] {
        let place = (message % DISTINCT as u64) as usize * self.size;
        self.bytes.get(place..place + self.size).unwrap_or_default()
    }
}

/// A path below the scratch directory that only this process uses. Nothing exists there.
pub fn scratch(fields: &Fields, what: &str, input: usize) -> Result<PathBuf, ContenderError> {
    let dir: PathBuf = parameter(fields, "dir")?;
    let path = dir.join(format!("{what}-{}-{input}", std::process::id()));
    remove(&path)?;
    Ok(path)
}

/// Removes a directory tree, if it is there.
pub fn remove(path: &Path) -> Result<(), ContenderError> {
    match fs::remove_dir_all(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(ContenderError::Io {
            path: path.display().to_string(),
            source,
        }),
        _ => Ok(()),
    }
}

/// Any error of the store, as a contender reports it.
pub fn failed(error: impl std::fmt::Display) -> ContenderError {
    ContenderError::Refused(error.to_string())
}

/// The durability level called `name`.
pub fn durability(fields: &Fields) -> Result<Durability, ContenderError> {
    let name: String = parameter(fields, "level")?;
    match name.as_str() {
        "group" => Ok(Durability::Group),
        "each" => Ok(Durability::Each),
        "memory" => Ok(Durability::Memory),
        "interval" => Ok(Durability::Interval(std::time::Duration::from_millis(100))),
        _ => Err(ContenderError::Parameter("level")),
    }
}

/// Options of a new store with this level.
pub fn options(durability: Durability) -> OpenOptions {
    OpenOptions {
        durability,
        ..OpenOptions::default()
    }
}

/// Puts `load` into `weir` and waits for every answer. Returns wall and CPU nanoseconds from the
/// moment when all producers are ready. `key` returns the key of a message, or an empty key for
/// none.
pub fn put_all(
    weir: &Weir,
    load: Load,
    key: fn(u64, &mut Vec<u8>),
) -> Result<(u64, u64), ContenderError> {
    let ready = Barrier::new(usize::try_from(load.producers).unwrap_or(1) + 1);
    std::thread::scope(|scope| {
        let ready = &ready;
        let producers: Vec<_> = (0..load.producers)
            .map(|producer| {
                scope.spawn(move || {
                    let payload = load.payload(producer);
                    ready.wait();
                    produce(weir, load, producer, &payload, key)
                })
            })
            .collect();
        ready.wait();
        let watch = Stopwatch::start();
        for producer in producers {
            producer
                .join()
                .map_err(|_| failed("a producer panicked"))??;
        }
        Ok(watch.stop())
    })
}

/// The part of one producer.
fn produce(
    weir: &Weir,
    load: Load,
    producer: u64,
    payload: &Payload,
    key: fn(u64, &mut Vec<u8>),
) -> Result<(), ContenderError> {
    let messages = load.messages / load.producers;
    let mut waiting: std::collections::VecDeque<Proposal> =
        std::collections::VecDeque::with_capacity(load.window);
    let mut keys: Vec<Vec<u8>> = vec![Vec::new(); load.batch];
    let mut next = 0u64;
    while next < messages {
        let until = messages.min(next + load.batch as u64);
        for (number, key_bytes) in (next..until).zip(&mut keys) {
            key_bytes.clear();
            key(producer * messages + number, key_bytes);
        }
        if waiting.len() == load.window
            && let Some(oldest) = waiting.pop_front()
        {
            await_valid(oldest)?;
        }
        // With a window of one call, the producer only waits after it has sent a call.
        let propose = match load.window {
            1 => Weir::propose_inline,
            _ => Weir::propose,
        };
        waiting.push_back(call(weir, payload, next..until, &keys, propose)?);
        next = until;
    }
    waiting.into_iter().try_for_each(await_valid)
}

/// Sends the messages of one call.
fn call(
    weir: &Weir,
    payload: &Payload,
    numbers: Range<u64>,
    keys: &[Vec<u8>],
    propose: fn(&Weir, &[Intention<'_>]) -> Result<Proposal, WeirError>,
) -> Result<Proposal, ContenderError> {
    let mut calls = numbers.zip(keys).map(|(number, key)| {
        let value = payload.message(number);
        Intention::new(TOPIC, Operation::Put { key, value })
    });
    if keys.len() == 1 {
        let one = calls.next().ok_or_else(|| failed("an empty call"))?;
        return propose(weir, &[one]).map_err(failed);
    }
    let calls: Vec<Intention<'_>> = calls.collect();
    propose(weir, &calls).map_err(failed)
}

/// Waits for an answer. Any verdict other than VALID is an error here.
fn await_valid(proposal: Proposal) -> Result<(), ContenderError> {
    let outcomes = proposal.wait().map_err(failed)?;
    let valid = outcomes.runs().iter().all(|run| {
        run.outcome
            .commit()
            .is_some_and(|commit| commit.effect == Effect::Valid)
    });
    if valid {
        Ok(())
    } else {
        Err(failed("a put was not VALID"))
    }
}

/// Sums `each` over the values of all puts, from the first record on.
pub fn read_all(weir: &Weir, each: impl Fn(&[u8]) -> u64) -> Result<u64, ContenderError> {
    let mut sum = 0u64;
    let topic = weir.topic(TOPIC).map_err(failed)?;
    for page in topic.pages(ReadFrom::Start).map_err(failed)? {
        for record in &page.map_err(failed)? {
            let record = record.map_err(failed)?;
            if record.kind == RecordKind::Put {
                sum = sum.wrapping_add(each(record.value));
            }
        }
    }
    Ok(sum)
}

/// No key.
pub fn no_key(_: u64, _: &mut Vec<u8>) {}
