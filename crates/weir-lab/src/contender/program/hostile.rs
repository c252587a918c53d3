//! The cost of a hostile module: wall time of one intention at the default fuel, and the effect on
//! writers, readers and listeners of another topic.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use weir::{Effect, Intention, Operation, ReadFrom, TopicReader, Weir};

use super::create;
use super::deploy::distinct;
use crate::clock::{process_cpu_ns, wall_ns};
use crate::contender::store::{durability, failed, options, remove, scratch};
use crate::contender::{Contender, ContenderError, optional, parameter};
use crate::protocol::{Answer, Fields, Timed};

/// Topics of the hostile module and of its neighbour.
const HOSTILE_TOPIC: &str = "bad";
const NEIGHBOUR_TOPIC: &str = "good";

/// The parts of a hostile module except its memory.
#[derive(Default)]
struct Parts {
    functions: String,
    /// The initial memory, and the arguments of the topic.
    data: String,
    args: String,
    init: &'static str,
    body: &'static str,
}

/// Entries of the state for `lookup`, and for `undo`, whose values are large.
const LOOKUP_INIT: &str = "(local $n i32) (loop $l
    (i32.store (i32.const 0) (i32.mul (local.get $n) (i32.const 0x9e3779b1)))
    (call $state_put (i32.const 0) (i32.const 64) (i32.const 0) (i32.const 8))
    (local.set $n (i32.add (local.get $n) (i32.const 1)))
    (br_if $l (i32.lt_u (local.get $n) (i32.const 200000)))) (i32.const 0)";
const UNDO_INIT: &str = "(local $n i32) (loop $l
    (i32.store (i32.const 0) (local.get $n))
    (call $state_put (i32.const 0) (i32.const 4) (i32.const 0) (i32.const 60000))
    (local.set $n (i32.add (local.get $n) (i32.const 1)))
    (br_if $l (i32.lt_u (local.get $n) (i32.const 1000)))) (i32.const 0)";

/// The body of `weir_apply` in a module of this kind.
fn calls(kind: &str) -> Option<Parts> {
    let mut parts = Parts::default();
    parts.body = match kind {
        "loop" => "(loop $l (br $l)) (i32.const 0)",
        "recursion" => {
            parts.functions = String::from(
                "(func $r (param i32) (result i32) (call $r (i32.add (local.get 0) (i32.const 1))))",
            );
            "(call $r (i32.const 0))"
        }
        "memory" => {
            "(local $n i32) (loop $l
                (drop (memory.grow (i32.const 1)))
                (memory.fill (i32.const 0) (i32.const 7) (i32.mul (memory.size) (i32.const 65536)))
                (br $l)) (i32.const 0)"
        }
        "grow" => "(loop $l (drop (memory.grow (i32.const 60000))) (br $l)) (i32.const 0)",
        "flood" => {
            "(loop $l (call $put (i32.const 0) (i32.const 8) (i32.const 0) (i32.const 60000)) (br $l))
             (i32.const 0)"
        }
        "hash" => {
            "(loop $l (call $hash (i32.const 1) (i32.const 0) (i32.const 65000) (i32.const 65100)) (br $l))
             (i32.const 0)"
        }
        "lookup" => {
            parts.init = LOOKUP_INIT;
            "(local $n i32) (loop $l
                (i32.store (i32.const 0) (i32.mul (local.get $n) (i32.const 0x9e3779b1)))
                (drop (call $state_get (i32.const 0) (i32.const 64) (i32.const 0) (i32.const 0) (i32.const 0)))
                (local.set $n (i32.rem_u (i32.add (local.get $n) (i32.const 7919)) (i32.const 200000)))
                (br $l)) (i32.const 0)"
        }
        "undo" => {
            parts.init = UNDO_INIT;
            "(local $n i32) (loop $l
                (i32.store (i32.const 0) (local.get $n))
                (call $state_delete (i32.const 0) (i32.const 4))
                (local.set $n (i32.add (local.get $n) (i32.const 1)))
                (br $l)) (i32.const 0)"
        }
        "json-back" => {
            let (open, close) = ("[".repeat(64), "]".repeat(64));
            parts.args = format!("{open}{}{close}", vec!["1"; 30_000].join(","));
            parts.data = format!("${}", "[-1]".repeat(64));
            "(loop $l (br_if $l (i32.le_s (i32.const 0)
                (call $find (i32.const 2) (i32.const 1) (i32.const 0) (i32.const 257) (i32.const 8192)))))
             (i32.const 0)"
        }
        "json-names" => {
            parts.args = format!("{{{}}}", vec![r#""\n":1"#; 8_000].join(","));
            let paths: Vec<String> = (10..74).map(|n| format!("$.n{n}")).collect();
            parts.data = paths.join("\\n");
            "(loop $l (br_if $l (i32.le_s (i32.const 0)
                (call $find (i32.const 2) (i32.const 1) (i32.const 0) (i32.const 383) (i32.const 8192)))))
             (i32.const 0)"
        }
        _ => return None,
    };
    Some(parts)
}

/// Code that is slow to compile, as large as the limits allow.
fn bomb(kind: &str) -> Option<Parts> {
    let function = |locals: &str, body: &str| format!("(func (local {locals}) {body})");
    let functions = match kind {
        "bomb-stores" => {
            let line = "(i32.store (local.get 0) (local.get 1))".repeat(18_000);
            function("i32 i32", &line).repeat(8)
        }
        "bomb-floats" => {
            let chain = "f64.sqrt ".repeat(24_000);
            let body = format!("local.get 0 {chain} i64.reinterpret_f64 global.set $g");
            function("f64", &body).repeat(4)
        }
        "bomb-loops" => function("i32", &"(loop (br_if 0 (local.get 0)))".repeat(2_000)).repeat(10),
        _ => return None,
    };
    Some(Parts {
        functions,
        body: "(i32.const 0)",
        ..Parts::default()
    })
}

/// A hostile module, and the arguments of its topic.
fn hostile(kind: &str) -> Result<(Vec<u8>, String), ContenderError> {
    let parts = calls(kind).or_else(|| bomb(kind));
    let parts = parts.ok_or(ContenderError::Parameter("kind"))?;
    let Parts {
        functions,
        data,
        args,
        init,
        body,
    } = parts;
    let init = if init.is_empty() {
        "(i32.const 0)"
    } else {
        init
    };
    let text = format!(
        r#"(module
        (import "weir1" "emit_put" (func $put (param i32 i32 i32 i32)))
        (import "weir1" "hash" (func $hash (param i32 i32 i32 i32)))
        (import "weir1" "state_put" (func $state_put (param i32 i32 i32 i32)))
        (import "weir1" "state_delete" (func $state_delete (param i32 i32)))
        (import "weir1" "state_get" (func $state_get (param i32 i32 i32 i32 i32) (result i32)))
        (import "weir1" "json_find" (func $find (param i32 i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1 16)
        (data (i32.const 0) "{data}")
        (global $g (mut i64) (i64.const 0))
        {functions}
        (func (export "weir_abi") (result i32) (i32.const 1))
        (func (export "weir_init") (result i32) {init})
        (func (export "weir_apply") (result i32) {body}))"#
    );
    Ok((wat::parse_str(text).map_err(failed)?, args))
}

/// Sends intentions to a hostile module, one after the other. Each ends with ERROR, and `wall` is
/// the time of one intention. A `bomb` is deployed instead, a new one each time.
///
/// With `neighbour = "put"`, `"get"` or `"listen"`, the time is that of an operation on a plain
/// topic: a put, a look-up of a key, or a put until a listener has its record. Meanwhile `writers`
/// threads (default 1) send to the hostile module. `worst` is the slowest operation. With `kind =
/// "none"` there is no hostile module.
#[derive(Debug, Default)]
pub struct Hostile {
    inputs: BTreeMap<usize, Input>,
}

#[derive(Debug)]
struct Input {
    kind: String,
    neighbour: Option<Neighbour>,
    /// Threads that send to the hostile module beside a neighbour.
    writers: usize,
    messages: u64,
    durability: weir::Durability,
    path: PathBuf,
    /// Number of bombs so far, because each bomb must be different.
    bombs: AtomicUsize,
}

/// The operation of the neighbour.
#[derive(Clone, Copy, Debug)]
enum Neighbour {
    Put,
    Get,
    Listen,
}

impl std::str::FromStr for Neighbour {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "put" => Ok(Neighbour::Put),
            "get" => Ok(Neighbour::Get),
            "listen" => Ok(Neighbour::Listen),
            _ => Err(()),
        }
    }
}

/// Waits until the listener has a record, and skips the record.
fn delivered(listener: &mut TopicReader) -> Result<(), ContenderError> {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        if listener.next_page().map_err(failed)?.is_some() {
            return Ok(());
        }
        if !listener.wait(Some(deadline)) {
            return Err(failed("a listener waited for a minute"));
        }
    }
}

/// Puts one message. Returns whether it was VALID, and its duration.
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
    fn is_bomb(&self) -> bool {
        self.kind.starts_with("bomb")
    }

    /// Sends one hostile intention, and returns its duration.
    fn send_hostile(&self, weir: &Weir, code: &[u8]) -> Result<u64, ContenderError> {
        if self.is_bomb() {
            let number = self.bombs.fetch_add(1, Ordering::Relaxed);
            let start = wall_ns();
            let code = distinct(code, number);
            create(weir, &format!("{HOSTILE_TOPIC}{number}"), &code, &[])?;
            return Ok(wall_ns() - start);
        }
        match put(weir, HOSTILE_TOPIC)? {
            (true, _) => Err(failed("a hostile call was VALID")),
            (false, took) => Ok(took),
        }
    }

    fn store(&self) -> Result<Weir, ContenderError> {
        remove(&self.path)?;
        let weir = Weir::open_with(&self.path, &options(self.durability)).map_err(failed)?;
        create(&weir, NEIGHBOUR_TOPIC, &[], &[])?;
        if self.kind != "none" && !self.is_bomb() {
            let (code, args) = hostile(&self.kind)?;
            create(&weir, HOSTILE_TOPIC, &code, args.as_bytes())?;
        }
        Ok(weir)
    }

    #[allow(clippy::cast_precision_loss)] // nanoseconds below 2^53
    fn pass(&self, messages: u64) -> Result<Timed, ContenderError> {
        let weir = self.store()?;
        let cpu = process_cpu_ns();
        let mut times = if let Some(neighbour) = self.neighbour {
            self.with_neighbour(&weir, neighbour, messages)?
        } else {
            let (code, _) = hostile(&self.kind)?;
            let times = (0..messages).map(|_| self.send_hostile(&weir, &code));
            times.collect::<Result<_, _>>()?
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

    /// Durations of the operations of the neighbour while the hostile topic is kept busy.
    fn with_neighbour(
        &self,
        weir: &Weir,
        neighbour: Neighbour,
        messages: u64,
    ) -> Result<Vec<u64>, ContenderError> {
        let code = match self.kind.as_str() {
            "none" => Vec::new(),
            kind => hostile(kind)?.0,
        };
        let writers = if self.kind == "none" { 0 } else { self.writers };
        let done = AtomicBool::new(false);
        // The neighbour begins when every writer has received an answer.
        let busy = Barrier::new(writers + 1);
        std::thread::scope(|scope| {
            let write_hostile = || {
                let first = self.send_hostile(weir, &code);
                busy.wait();
                first?;
                while !done.load(Ordering::Relaxed) {
                    self.send_hostile(weir, &code)?;
                }
                Ok::<(), ContenderError>(())
            };
            let hostile_writers: Vec<_> =
                (0..writers).map(|_| scope.spawn(write_hostile)).collect();
            busy.wait();
            let times = neighbour_times(weir, neighbour, messages);
            done.store(true, Ordering::Relaxed);
            for writer in hostile_writers {
                writer
                    .join()
                    .map_err(|_| failed("a hostile writer panicked"))??;
            }
            times
        })
    }
}

/// Durations of `messages` operations of one neighbour.
fn neighbour_times(
    weir: &Weir,
    neighbour: Neighbour,
    messages: u64,
) -> Result<Vec<u64>, ContenderError> {
    let good = weir.topic(NEIGHBOUR_TOPIC).map_err(failed)?;
    let first = good.put("k", [7; 100]).map_err(failed)?;
    first.ensure_valid().map_err(failed)?;
    let mut listener = good.listener(ReadFrom::Start).map_err(failed)?;
    while listener.next_page().map_err(failed)?.is_some() {}
    let mut once = || match neighbour {
        Neighbour::Put => match put(weir, NEIGHBOUR_TOPIC)? {
            (true, took) => Ok(took),
            (false, _) => Err(failed("the neighbour's put was not VALID")),
        },
        Neighbour::Get => {
            let start = wall_ns();
            match good.get("k").map_err(failed)? {
                Some(_) => Ok(wall_ns() - start),
                None => Err(failed("the key of the neighbour is missing")),
            }
        }
        Neighbour::Listen => {
            let start = wall_ns();
            put(weir, NEIGHBOUR_TOPIC)?;
            delivered(&mut listener)?;
            Ok(wall_ns() - start)
        }
    };
    (0..messages).map(|_| once()).collect()
}

impl Contender for Hostile {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let read = Input {
            kind: parameter(fields, "kind")?,
            neighbour: optional(fields, "neighbour")?,
            writers: optional(fields, "writers")?.unwrap_or(1),
            messages: parameter(fields, "messages")?,
            durability: durability(fields)?,
            path: scratch(fields, "hostile", input)?,
            bombs: AtomicUsize::new(0),
        };
        if read.messages == 0 || (read.kind == "none" && read.neighbour.is_none()) {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    /// A call that ends for another reason than lack of fuel is no valid measurement.
    #[test]
    fn json_is_looked_through_until_the_fuel_ends() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("hostile");
        let weir = Weir::open_with(&path, &options(weir::Durability::Memory)).unwrap();
        for kind in ["json-back", "json-names"] {
            let (code, args) = hostile(kind).unwrap();
            create(&weir, kind, &code, args.as_bytes()).unwrap();
            let put = Operation::Put {
                key: b"k",
                value: b"v",
            };
            let outcomes = weir.propose(&[Intention::new(kind, put)]).unwrap();
            let outcomes = outcomes.wait().unwrap();
            let first = outcomes.iter().next().unwrap();
            let reason = first.commit().unwrap().reason;
            assert_eq!(reason, Some(weir::ErrorCode::OutOfFuel), "{kind}");
        }
        weir.close().unwrap();
    }
}
