//! Scripts: the behaviour of a program as text that can be run.
//!
//! A script has blocks. A block is a list of commands, a line `----`, and the expected results up
//! to an empty line. Lines that start with `#` are comments. The commands run one by one on a
//! machine in memory, each as a separate batch. docs/guide/programs.md describes the commands.
//!
//! Invariant: every outcome comes from the machine.

mod bytes;
mod step;

use std::fmt::Write as _;
use std::sync::Arc;

use weir_core::intention::{Intention, IntentionLimits};
use weir_core::limits::{ARGUMENT_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use weir_core::{
    Batch, BatchBuilder, ClientId, Commit, ConsequenceSink, Detail, Machine, Outcome, Outcomes,
    ProgramHost, Record, RecordKind, TopicId, TopicName,
};

pub use bytes::{parse, parse_at, show};
use step::Step;

/// A block of a script and its results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Line of its first command, from 1.
    pub line: usize,
    /// What the script expects.
    pub expected: String,
    /// The actual results.
    pub actual: String,
    /// The actual results of each command. Expected lines after those of the last command belong to
    /// that command.
    pub steps: Vec<StepResult>,
}

/// A command of a script and its results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepResult {
    /// Its line, from 1.
    pub line: usize,
    /// Its text.
    pub command: String,
    /// Line of the script at which its expected results begin, from 1.
    pub expected_line: usize,
    /// The expected results, with line ends.
    pub expected: String,
    /// The actual results, with line ends.
    pub actual: String,
}

/// How a script is run. The outcomes must not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// Whether the machine is saved and loaded after each command.
    pub restarts: bool,
    /// Whether each write is sent twice under its nonce.
    pub twice: bool,
}

/// The error of a script that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ScriptError {
    /// The line, from 1.
    pub line: usize,
    /// The fault of the line.
    pub what: String,
}

/// Runs a script. `program` returns the code for a name in the script.
///
/// # Errors
/// If a line cannot be parsed. A wrong outcome is not an error: the two texts of its block differ.
pub fn run(
    script: &str,
    host: &Arc<dyn ProgramHost>,
    options: RunOptions,
    program: &dyn Fn(&str) -> Option<Vec<u8>>,
) -> Result<(Vec<Block>, Machine), ScriptError> {
    let mut script_run = ScriptRun {
        host: Arc::clone(host),
        machine: Machine::new(1).with_host(Some(Arc::clone(host))),
        nonce: 0,
        time_ms: 1000,
        seen: WrittenRecords::default(),
        options,
    };
    let mut blocks = Vec::new();
    let mut commands: Vec<(usize, &str)> = Vec::new();
    let mut lines = (1..).zip(script.lines());
    while let Some((number, line)) = lines.next() {
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        if line != "----" {
            commands.push((number, line));
            continue;
        }
        let below = lines.by_ref().take_while(|(_, line)| !line.is_empty());
        let expected: Vec<&str> = below.map(|(_, line)| line).collect();
        let first = commands.first().map_or(number, |(line, _)| *line);
        let mut steps = Vec::new();
        let mut left = (number + 1..).zip(expected.iter());
        for step in Step::all(&commands, program)? {
            let mut actual = String::new();
            script_run
                .run_step(&step, &mut actual)
                .map_err(|what| ScriptError {
                    line: step.line,
                    what,
                })?;
            let command = commands.iter().find(|(line, _)| *line == step.line);
            steps.push(StepResult {
                line: step.line,
                command: command.map_or("", |(_, text)| text).to_owned(),
                ..expected_of(&step, &mut left, actual)
            });
        }
        if let Some(last) = steps.last_mut() {
            last.expected
                .extend(left.flat_map(|(_, line)| [line, "\n"]));
        }
        commands.clear();
        blocks.push(Block {
            line: first,
            expected: expected.iter().flat_map(|line| [line, "\n"]).collect(),
            actual: steps.iter().map(|step| step.actual.as_str()).collect(),
            steps,
        });
    }
    match commands.first() {
        Some((line, _)) => Err(ScriptError {
            line: *line,
            what: "commands without a line ---- after them".to_owned(),
        }),
        None => Ok((blocks, script_run.machine)),
    }
}

/// The expected results of a command: one line, or for `state` the lines up to the number of
/// entries.
fn expected_of<'a>(
    step: &Step,
    left: &mut impl Iterator<Item = (usize, &'a &'a str)>,
    actual: String,
) -> StepResult {
    let mut ran = StepResult {
        line: step.line,
        command: String::new(),
        expected_line: 0,
        expected: String::new(),
        actual,
    };
    for (number, line) in left.by_ref() {
        if ran.expected_line == 0 {
            ran.expected_line = number;
        }
        ran.expected.push_str(line);
        ran.expected.push('\n');
        if step.name != "state" || line.ends_with(" entries") {
            break;
        }
    }
    ran
}

/// Passes each command of a script to `take` as an intention, in order. Skips the expected results
/// and the command `state`.
///
/// # Errors
/// If a line cannot be parsed.
pub fn intentions(
    script: &str,
    program: &dyn Fn(&str) -> Option<Vec<u8>>,
    take: &mut dyn FnMut(&Intention<'_>),
) -> Result<(), ScriptError> {
    let mut commands: Vec<(usize, &str)> = Vec::new();
    let mut lines = (1..).zip(script.lines());
    while let Some((number, line)) = lines.next() {
        if line == "----" {
            for _ in lines.by_ref().take_while(|(_, line)| !line.is_empty()) {}
        } else if !line.starts_with('#') && !line.trim().is_empty() {
            commands.push((number, line));
        }
    }
    let steps = Step::all(&commands, program)?;
    for step in steps.iter().filter(|step| step.name != "state") {
        step.with_intention(|intention| take(&intention));
    }
    Ok(())
}

/// The script with the actual results in place of the expected results.
#[must_use]
pub fn rewritten(script: &str, blocks: &[Block]) -> String {
    let mut out = String::new();
    let mut blocks = blocks.iter();
    let mut lines = script.lines();
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        if line == "----" {
            for _ in lines.by_ref().take_while(|line| !line.is_empty()) {}
            if let Some(block) = blocks.next() {
                out.push_str(&block.actual);
            }
            out.push('\n');
        }
    }
    let end = out.trim_end().len();
    out.truncate(end);
    out.push('\n');
    out
}

struct ScriptRun {
    host: Arc<dyn ProgramHost>,
    machine: Machine,
    nonce: u64,
    time_ms: u64,
    seen: WrittenRecords,
    options: RunOptions,
}

const CLIENT: ClientId = ClientId([7; 16]);
const WIDE: IntentionLimits = IntentionLimits {
    key_bytes_max: KEY_BYTES_MAX,
    value_bytes_max: VALUE_BYTES_MAX,
};
const _: () = assert!(ARGUMENT_BYTES_MAX <= VALUE_BYTES_MAX);

/// The records of one write, as text.
#[derive(Default)]
struct WrittenRecords {
    names: Vec<String>,
    text: String,
}

impl ConsequenceSink for WrittenRecords {
    fn topic(&mut self, _: TopicId, name: &TopicName) {
        self.names.push(name.to_string());
    }

    fn record(&mut self, id: TopicId, record: &Record<'_>) {
        let name = self.names.get(id.index()).map_or("?", String::as_str);
        let mark = if self.text.is_empty() { ":" } else { ";" };
        let (offset, kind) = (record.offset, record.kind.name());
        let _ = write!(self.text, "{mark} {name} {offset} {kind}");
        match record.kind {
            RecordKind::Put => {
                let (key, value) = (show(record.key), show(record.value));
                let _ = write!(self.text, " {key}={value}");
            }
            RecordKind::Delete => {
                let _ = write!(self.text, " {}", show(record.key));
            }
            _ => {}
        }
        if record.flags.txn() {
            self.text.push_str(" txn");
        }
        if record.flags.last() {
            self.text.push_str(" last");
        }
    }
}

impl ScriptRun {
    fn run_step(&mut self, step: &Step, out: &mut String) -> Result<(), String> {
        self.time_ms = step.at_ms.unwrap_or(self.time_ms);
        if step.name == "state" {
            return self.state(&step.topic, out);
        }
        self.nonce += 1;
        let nonce = self.nonce;
        let commit = self.send(step, nonce)?;
        print(&commit, out);
        out.push_str(&std::mem::take(&mut self.seen.text));
        out.push('\n');
        if self.options.twice {
            let again = self.send(step, nonce)?;
            let kept = Commit { fuel: 0, ..commit };
            if again != kept || !self.seen.text.is_empty() {
                return Err(format!("the second of two equal writes returned {again:?}"));
            }
        }
        if self.options.restarts {
            self.restart()?;
        }
        Ok(())
    }

    fn send(&mut self, step: &Step, nonce: u64) -> Result<Commit, String> {
        let mut builder = BatchBuilder::default();
        step.with_intention(|intention| builder.push(&intention.under(CLIENT, nonce), &WIDE))
            .map_err(|error| error.to_string())?;
        let bytes = builder.to_bytes(self.time_ms);
        let batch = Batch::read(&bytes, 1).map_err(|error| error.to_string())?;
        let mut outcomes = Outcomes::default();
        self.machine
            .apply(&batch, &mut self.seen, &mut outcomes)
            .map_err(|error| error.to_string())?;
        match outcomes.iter().next() {
            Some(Outcome::Committed(commit) | Outcome::Replayed(commit)) => Ok(commit),
            other => Err(format!("expected a verdict, got {other:?}")),
        }
    }

    fn restart(&mut self) -> Result<(), String> {
        let mut bytes = Vec::new();
        self.machine
            .save(&mut bytes)
            .map_err(|error| error.to_string())?;
        let host = Some(Arc::clone(&self.host));
        let loaded = Machine::load_with(&mut bytes.as_slice(), 2, host);
        let loaded = loaded.map_err(|error| error.to_string())?;
        let mut again = Vec::new();
        loaded.save(&mut again).map_err(|error| error.to_string())?;
        if again != bytes || loaded.digest() != self.machine.digest() {
            return Err("the state differs after a save and a load".to_owned());
        }
        self.machine = loaded;
        Ok(())
    }

    fn state(&self, topic: &str, out: &mut String) -> Result<(), String> {
        let view = self.machine.topic(topic).and_then(|view| view.program);
        let program = view.ok_or("a topic without a program has no state")?;
        for (key, value) in program.state.iter().flat_map(|state| state.iter()) {
            let _ = writeln!(out, "{}={}", show(key), show(value));
        }
        let count = program.state_entries;
        let _ = writeln!(out, "{count} entries");
        Ok(())
    }
}

/// A verdict as text: offset, effect, reason and details.
fn print(commit: &Commit, out: &mut String) {
    let _ = write!(out, "{} {}", commit.intention, commit.effect.name());
    if let Some(reason) = commit.reason {
        let _ = write!(out, " {}", reason.name());
    }
    let _ = match &commit.detail {
        Detail::None => Ok(()),
        Detail::Actual(offset) => write!(out, " actual {offset}"),
        Detail::Limit(max) => write!(out, " limit {max}"),
        Detail::Operation { index, reason } => write!(out, " step {index}: {}", reason.name()),
        Detail::Rejected { code, text } if text.is_empty() => write!(out, " {code}"),
        Detail::Rejected { code, text } => write!(out, " {code} {text:?}"),
        Detail::Trapped(kind) => write!(out, " {}", kind.name()),
        Detail::Text(text) => write!(out, " {text}"),
    };
}
