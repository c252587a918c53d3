//! The small experiments: single operations of the codec, the machine, the store and the merge,
//! each beside a floor that handles equal data without them.
//!
//! Invariants:
//! - Each pass of an input does equal work, so all its passes have equal touches.
//! - Only what runs in [`Timer::time`] is measured.

pub mod codec;
pub mod machine;
pub mod merge;
pub mod store;

use std::collections::BTreeMap;

use super::{Contender, ContenderError};
use crate::alloc;
use crate::clock::Stopwatch;
use crate::protocol::{Answer, Fields, Timed};
use crate::rng::SplitMix64;

/// Measures the parts of a pass.
#[derive(Debug, Default)]
pub struct Timer {
    wall_ns: u64,
    cpu_ns: u64,
    /// Allocations and their bytes; counted only in a check.
    allocated: Option<(u64, u64)>,
}

impl Timer {
    /// Runs `work` and adds its time.
    #[inline]
    pub fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        if let Some((calls, bytes)) = &mut self.allocated {
            let (value, more_calls, more_bytes) = alloc::count(work);
            *calls += more_calls;
            *bytes += more_bytes;
            return value;
        }
        let watch = Stopwatch::start();
        let value = work();
        let (wall_ns, cpu_ns) = watch.stop();
        self.wall_ns += wall_ns;
        self.cpu_ns += cpu_ns;
        value
    }
}

/// One input of a small experiment.
pub trait Work {
    /// Does the work once and returns the touch.
    fn pass(&mut self, timer: &mut Timer) -> Result<u64, ContenderError>;
    /// Hash of the result, which is equal for all contenders of an answer group; by default the
    /// touch.
    fn content(&mut self) -> Result<u64, ContenderError> {
        self.pass(&mut Timer::default())
    }
}

/// Creates the work of an input from its number and its parameters.
pub type Create = fn(usize, &Fields) -> Result<Box<dyn Work>, ContenderError>;

/// A contender of a small experiment.
pub struct Micro {
    create: Create,
    inputs: BTreeMap<usize, Box<dyn Work>>,
}

impl Micro {
    /// A contender without inputs.
    pub fn new(create: Create) -> Micro {
        Micro {
            create,
            inputs: BTreeMap::new(),
        }
    }

    fn input(&mut self, input: usize) -> Result<&mut dyn Work, ContenderError> {
        let found = self.inputs.get_mut(&input);
        let work = found.ok_or(ContenderError::NotLoaded(input))?;
        Ok(work.as_mut())
    }
}

impl Contender for Micro {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let work = (self.create)(input, fields)?;
        self.inputs.insert(input, work);
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        let work = self.input(input)?;
        let content = work.content()?;
        let mut timer = Timer {
            allocated: Some((0, 0)),
            ..Timer::default()
        };
        let touch = work.pass(&mut timer)?;
        let (allocations, allocated_bytes) = timer.allocated.unwrap_or_default();
        Ok(Answer {
            content,
            touch,
            allocations,
            allocated_bytes,
        })
    }

    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let work = self.input(input)?;
        let (mut timer, mut touch) = (Timer::default(), 0u64);
        for _ in 0..iterations {
            touch = touch.wrapping_add(work.pass(&mut timer)?);
        }
        Ok(Timed {
            wall_ns: timer.wall_ns,
            cpu_ns: timer.cpu_ns,
            touch,
            extra: BTreeMap::new(),
        })
    }
}

/// Key number `number`, 20 bytes. Consecutive keys differ in most bytes.
fn key(number: u64) -> Vec<u8> {
    let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    [
        b"key:".as_slice(),
        &spread.to_le_bytes(),
        &number.to_le_bytes(),
    ]
    .concat()
}

/// Value number `number`, 100 bytes.
fn value(number: u64) -> Vec<u8> {
    let mut rng = SplitMix64::new(number);
    let words = (0..13).map(|_| rng.next_u64().to_le_bytes());
    let mut bytes: Vec<u8> = words.flatten().collect();
    bytes.truncate(100);
    bytes
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::by_name;
    use super::*;

    /// The answer of contender `name`. A run must touch what the check touched, and leave no file.
    fn answer(name: &str, parameters: &[(&str, &str)]) -> Answer {
        let dir = tempfile::tempdir().unwrap();
        let mut fields: Fields = parameters
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let place = dir.path().to_str().unwrap().to_owned();
        fields.insert("dir".to_owned(), place);
        let mut contender = by_name(name).unwrap();
        contender.load(3, &fields).unwrap();
        let answer = contender.check(3).unwrap();
        let timed = contender.run(3, 2).unwrap();
        assert_eq!(timed.touch, answer.touch.wrapping_mul(2), "{name}");
        drop(contender);
        let left = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 0, "{name}");
        answer
    }

    #[test]
    fn operations_of_the_codec_and_their_floors_run() {
        for op in [
            "parse", "render", "list", "dict", "uniform", "method", "template",
        ] {
            let ours = answer("micro-codec", &[("op", op)]);
            assert_ne!(ours.touch, 0, "{op}");
            let copy = answer("micro-codec-copy", &[("op", op)]);
            assert_ne!(copy.touch, 0, "{op}");
            assert_eq!(ours.content, copy.content, "{op}");
            assert_eq!(ours.allocations, 0, "{op}");
        }
    }

    #[test]
    fn the_machine_and_its_parts_give_equal_puts() {
        for keys in ["none", "new", "repeated", "conditional"] {
            let parameters = [("keys", keys), ("batch", "100")];
            let mut contents = Vec::new();
            for name in ["apply", "decode", "encode", "copy"] {
                let answer = answer(&format!("micro-machine-{name}"), &parameters);
                assert_ne!(answer.touch, 0, "{name} {keys}");
                contents.push(answer.content);
            }
            if keys != "none" {
                contents.push(answer("micro-machine-map", &parameters).content);
            }
            contents.dedup();
            assert_eq!(contents.len(), 1, "{keys}");
        }
        let fields = [("keys", "none"), ("batch", "1")];
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut map = by_name("micro-machine-map").unwrap();
        assert!(map.load(0, &Fields::from(fields)).is_err());
    }

    #[test]
    fn the_store_and_its_floors_give_equal_contents() {
        for op in ["put", "put-100", "get", "at", "read"] {
            let store = answer("micro-store", &[("op", op)]);
            let floor = answer("micro-store-floor", &[("op", op)]);
            assert_eq!(store.content, floor.content, "{op}");
            assert_ne!(store.content, 0, "{op}");
        }
    }

    #[test]
    fn the_merge_and_a_heap_of_parsed_keys_give_one_order() {
        for run in ["1", "16"] {
            let parameters = [("items", "4096"), ("sources", "8"), ("run", run)];
            let ours = answer("micro-merge", &parameters);
            let heap = answer("micro-merge-heap", &parameters);
            assert_eq!(ours.content, heap.content);
            assert_ne!(answer("micro-merge-copy", &parameters).touch, 0);
        }
    }
}
