//! What a hostile module costs: wall time of one intention at default fuel,
//! and what writers to another topic notice.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use weir::{Effect, Intention, Operation, Weir};

use super::create;
use crate::clock::{process_cpu_ns, wall_ns};
use crate::contender::store::{durability, failed, options, remove, scratch};
use crate::contender::{Contender, ContenderError, parameter};
use crate::protocol::{Answer, Fields, Timed};

/// Topic of the hostile module, and of its neighbour.
const BAD: &str = "bad";
const GOOD: &str = "good";

/// A module whose `weir_apply` is `body`.
fn hostile(kind: &str) -> Result<Vec<u8>, ContenderError> {
    let (functions, body) = match kind {
        "loop" => ("", "(loop $l (br $l)) (i32.const 0)"),
        "recursion" => (
            "(func $r (param i32) (result i32) (call $r (i32.add (local.get 0) (i32.const 1))))",
            "(call $r (i32.const 0))",
        ),
        "memory" => (
            "",
            "(local $n i32) (loop $l
                (drop (memory.grow (i32.const 1)))
                (memory.fill (i32.const 0) (i32.const 7) (i32.mul (memory.size) (i32.const 65536)))
                (br $l)) (i32.const 0)",
        ),
        "flood" => (
            "",
            "(loop $l (call $put (i32.const 0) (i32.const 8) (i32.const 0) (i32.const 60000)) (br $l))
             (i32.const 0)",
        ),
        "hash" => (
            "",
            "(loop $l (call $hash (i32.const 1) (i32.const 0) (i32.const 65000) (i32.const 65100)) (br $l))
             (i32.const 0)",
        ),
        _ => return Err(ContenderError::Parameter("kind")),
    };
    let text = format!(
        r#"(module
        (import "weir1" "emit_put" (func $put (param i32 i32 i32 i32)))
        (import "weir1" "hash" (func $hash (param i32 i32 i32 i32)))
        (memory (export "memory") 1 16)
        {functions}
        (func (export "weir_abi") (result i32) (i32.const 1))
        (func (export "weir_apply") (result i32) {body}))"#
    );
    wat::parse_str(text).map_err(failed)
}

/// One intention after the other to a hostile module, each answered ERROR;
/// `wall` is that of one. With `neighbour = true` instead: puts to a plain
/// topic, one at a time, while another thread does just that; `wall` is that
/// of one put, `worst` that of the slowest. Without a `kind` nobody is hostile.
#[derive(Debug, Default)]
pub struct Hostile {
    inputs: BTreeMap<usize, Input>,
}

#[derive(Debug)]
struct Input {
    kind: String,
    neighbour: bool,
    messages: u64,
    durability: weir::Durability,
    path: PathBuf,
}

/// Puts one message; whether it was VALID, and how long it took.
fn put(weir: &Weir, topic: &str) -> Result<(bool, u64), ContenderError> {
    let start = wall_ns();
    let put = Operation::Put {
        key: b"k",
        value: &[7; 100],
    };
    let outcomes = weir
        .propose(&[Intention::new(topic, put)])
        .map_err(failed)?;
    let outcomes = outcomes.wait().map_err(failed)?;
    let valid = outcomes
        .iter()
        .all(|outcome| outcome.commit().is_some_and(|c| c.effect == Effect::Valid));
    Ok((valid, wall_ns() - start))
}

impl Input {
    fn store(&self) -> Result<Weir, ContenderError> {
        remove(&self.path)?;
        let weir = Weir::open_with(&self.path, &options(self.durability)).map_err(failed)?;
        create(&weir, GOOD, &[], &[])?;
        if self.kind != "none" {
            create(&weir, BAD, &hostile(&self.kind)?, &[])?;
        }
        Ok(weir)
    }

    #[allow(clippy::cast_precision_loss)] // nanoseconds below 2^53
    fn pass(&self, messages: u64) -> Result<Timed, ContenderError> {
        let weir = self.store()?;
        let cpu = process_cpu_ns();
        let mut times = if self.neighbour {
            self.beside(&weir, messages)?
        } else {
            let mut times = Vec::new();
            for _ in 0..messages {
                let (valid, took) = put(&weir, BAD)?;
                if valid {
                    return Err(failed("a hostile call was VALID"));
                }
                times.push(took);
            }
            times
        };
        let cpu_ns = process_cpu_ns() - cpu;
        weir.close().map_err(failed)?;
        remove(&self.path)?;
        times.sort_unstable();
        let at = |share: usize| {
            let place = (times.len() * share / 100).min(times.len().saturating_sub(1));
            times.get(place).copied().unwrap_or(0) as f64
        };
        let extra = [("p50", at(50)), ("p99", at(99)), ("worst", at(100))];
        Ok(Timed {
            wall_ns: times.iter().sum(),
            cpu_ns,
            touch: messages,
            extra: extra.map(|(name, value)| (name.to_owned(), value)).into(),
        })
    }

    /// Times of puts to the neighbour while the hostile topic is kept busy.
    fn beside(&self, weir: &Weir, messages: u64) -> Result<Vec<u64>, ContenderError> {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let attacker = scope.spawn(|| {
                while self.kind != "none" && !done.load(Ordering::Relaxed) {
                    put(weir, BAD)?;
                }
                Ok::<(), ContenderError>(())
            });
            let times: Result<Vec<u64>, ContenderError> = (0..messages)
                .map(|_| match put(weir, GOOD)? {
                    (true, took) => Ok(took),
                    (false, _) => Err(failed("the neighbour's put was not VALID")),
                })
                .collect();
            done.store(true, Ordering::Relaxed);
            attacker
                .join()
                .map_err(|_| failed("the attacker panicked"))??;
            times
        })
    }
}

impl Contender for Hostile {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let read = Input {
            kind: parameter(fields, "kind")?,
            neighbour: parameter(fields, "neighbour").unwrap_or(false),
            messages: parameter(fields, "messages")?,
            durability: durability(fields)?,
            path: scratch(fields, "hostile", input)?,
        };
        if read.messages == 0 || (read.kind == "none" && !read.neighbour) {
            return Err(ContenderError::Parameter("messages"));
        }
        self.inputs.insert(input, read);
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        let input = self
            .inputs
            .get(&input)
            .ok_or(ContenderError::NotLoaded(input))?;
        input.pass(1)?;
        Ok(Answer {
            touch: input.messages,
            ..Answer::default()
        })
    }

    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let input = self
            .inputs
            .get(&input)
            .ok_or(ContenderError::NotLoaded(input))?;
        let mut sum = Timed::default();
        for _ in 0..iterations {
            let timed = input.pass(input.messages)?;
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

impl Drop for Hostile {
    fn drop(&mut self) {
        for input in self.inputs.values() {
            let _ = remove(&input.path);
        }
    }
}
