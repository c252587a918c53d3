//! The operations of the clients, and the check of their history.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::json;
use weir::{ReadFrom, RecordKind, Weir, WeirError};

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ok,
    /// Rejected by the state.
    No,
    /// Unknown.
    Open,
}

/// An operation, as `porcupine/main.go` reads it. That file defines the meaning of its numbers.
#[allow(clippy::struct_field_names)] // `porcupine/main.go` reads the field `op`
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) model: &'static str,
    pub(crate) part: String,
    pub(crate) client: u64,
    pub(crate) call: Instant,
    pub(crate) op: &'static str,
    pub(crate) numbers: [i64; 4],
    pub(crate) outcome: Outcome,
    /// The unique value of the write, with its topic.
    pub(crate) writes: Option<(&'static str, String)>,
}

struct Ended {
    op: Op,
    end: Instant,
}

#[derive(Default)]
struct State {
    ended: Vec<Ended>,
    /// Acknowledged values, with their offsets.
    acknowledged: BTreeMap<(&'static str, String), u64>,
    /// Values whose write failed with an error that excludes an effect.
    rejected: Vec<(&'static str, String)>,
}

/// The history of one cluster. Clones share it.
#[derive(Clone)]
pub(crate) struct History {
    begun: Instant,
    state: Arc<Mutex<State>>,
}

/// The models of `porcupine/main.go`.
pub(crate) const MODELS: [&str; 5] = ["register", "append", "bank", "queue", "lease"];

/// Counts of a checked history.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) cycles: u64,
    pub(crate) operations: u64,
    /// Operations of each of the [`MODELS`].
    pub(crate) by_model: [u64; MODELS.len()],
    pub(crate) acknowledged: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) stale: u64,
    pub(crate) illegal: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Self) {
        self.cycles += other.cycles;
        self.operations += other.operations;
        for (sum, count) in self.by_model.iter_mut().zip(other.by_model) {
            *sum += count;
        }
        self.acknowledged += other.acknowledged;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.stale += other.stale;
        self.illegal += other.illegal;
    }
}

/// The offsets of each value of a topic.
type ValueOffsets = HashMap<String, Vec<u64>>;

impl History {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            state: Arc::default(),
        }
    }

    /// Adds an operation that has ended now. Its value is at `offset`.
    pub(crate) fn add(&self, op: Op, offset: Option<u64>) {
        let mut state = self.state.lock().unwrap();
        if let (Some(written), Some(offset)) = (&op.writes, offset) {
            state.acknowledged.insert(written.clone(), offset);
        }
        let end = Instant::now();
        state.ended.push(Ended { op, end });
    }

    /// Adds an operation that has ended at `end`.
    pub(crate) fn add_at(&self, op: Op, end: Instant) {
        self.state.lock().unwrap().ended.push(Ended { op, end });
    }

    /// Adds a write that was rejected without an effect.
    pub(crate) fn reject(&self, written: Option<(&'static str, String)>) {
        self.state.lock().unwrap().rejected.extend(written);
    }

    /// Compares the history with the logs of one node.
    fn compare(
        &self,
        topic: &'static str,
        found: &ValueOffsets,
        counts: &mut Counts,
    ) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let mut violations = Vec::new();
        for (value, offsets) in found {
            if offsets.len() > 1 {
                counts.doubled += 1;
                violations.push(format!("{topic}: {value:?} is at {offsets:?}"));
            }
        }
        for ((at, value), offset) in &state.acknowledged {
            if *at == topic && found.get(value).is_none_or(|all| !all.contains(offset)) {
                counts.lost += 1;
                let actual = found.get(value);
                violations.push(format!(
                    "{topic}: {value:?}, acknowledged at {offset}, is at {actual:?}"
                ));
            }
        }
        for (at, value) in &state.rejected {
            if *at == topic && found.contains_key(value) {
                counts.doubled += 1;
                violations.push(format!(
                    "{topic}: {value:?} was rejected, but is in the log"
                ));
            }
        }
        violations
    }

    /// Checks the history against the final state of `nodes`.
    pub(crate) fn verify(
        &self,
        nodes: &[String],
        topics: &[&'static str],
        checker: &Path,
        file: &Path,
    ) -> (Counts, Vec<String>) {
        let (mut counts, mut violations) = (Counts::default(), Vec::new());
        let mut written: HashMap<&str, ValueOffsets> = HashMap::new();
        for node in nodes {
            let client = Weir::connect(node).unwrap();
            for topic in topics {
                let found = values(&client, topic).unwrap();
                violations.extend(self.compare(topic, &found, &mut counts));
                written.insert(topic, found);
            }
        }
        let lines = self.lines(&written);
        std::fs::write(file, &lines).unwrap();
        counts.operations = lines.lines().count() as u64;
        counts.by_model = MODELS.map(|model| {
            let name = format!("\"model\":\"{model}\"");
            lines.matches(&name).count() as u64
        });
        counts.acknowledged = self.state.lock().unwrap().acknowledged.len() as u64;
        for line in check(checker, &lines) {
            if line.starts_with("ok ") {
                continue;
            }
            counts.illegal += 1;
            counts.stale += u64::from(line.contains(" register ") || line.contains(" append "));
            violations.push(format!(
                "Porcupine: {line}; the history is in {}",
                file.display()
            ));
        }
        (counts, violations)
    }

    /// The operations as lines of JSON. A write with unknown outcome is omitted if no log contains
    /// it, else it has its offset.
    fn lines(&self, written: &HashMap<&str, ValueOffsets>) -> String {
        let state = self.state.lock().unwrap();
        let nanos = |at: Instant| u64::try_from((at - self.begun).as_nanos()).unwrap();
        let mut lines = String::new();
        for Ended { op, end } in &state.ended {
            let mut numbers = op.numbers;
            if let (Outcome::Open, Some((topic, value))) = (op.outcome, &op.writes) {
                let Some(offsets) = written[topic].get(value) else {
                    continue;
                };
                if op.op == "append" {
                    numbers[0] = i64::try_from(offsets[0]).unwrap();
                }
            }
            let (outcome, end) = match op.outcome {
                Outcome::Ok => ("ok", json!(nanos(*end))),
                Outcome::No => ("no", json!(nanos(*end))),
                Outcome::Open => ("open", json!(-1)),
            };
            let line = json!({
                "model": op.model, "part": op.part, "client": op.client,
                "call": nanos(op.call), "return": end, "op": op.op,
                "a": numbers[0], "b": numbers[1], "c": numbers[2], "d": numbers[3],
                "outcome": outcome,
            });
            lines += &line.to_string();
            lines.push('\n');
        }
        lines
    }
}

/// The values of a topic, each with its offsets.
fn values(client: &Weir, topic: &str) -> Result<ValueOffsets, WeirError> {
    let mut found = ValueOffsets::new();
    let mut reader = client.topic(topic)?.reader(ReadFrom::Start)?;
    while let Some(page) = reader.next_page()? {
        for record in &page {
            let record = record.unwrap();
            if record.kind == RecordKind::Put {
                let value = String::from_utf8(record.value.to_vec()).unwrap();
                found.entry(value).or_default().push(record.offset.0);
            }
        }
    }
    Ok(found)
}

/// Builds the program that checks histories with Porcupine. Go fetches the module, pinned by the
/// checksum in `go.sum`.
pub(crate) fn build_checker(place: &Path) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/porcupine");
    let program = place.join("porcupine");
    let mut go = Command::new("go");
    go.args(["build", "-mod=readonly", "-buildvcs=false", "-o"]);
    let built = go.arg(&program).arg(".").current_dir(folder).output();
    let built = built.expect("the check of histories needs Go");
    assert!(built.status.success(), "{built:?}");
    program
}

/// Runs the checker. Returns one line for each model and part.
pub(crate) fn check(checker: &Path, lines: &str) -> Vec<String> {
    let mut command = Command::new(checker);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(lines.as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.code().is_some_and(|code| code < 2),
        "{output:?}"
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}
