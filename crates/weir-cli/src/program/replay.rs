//! `weir program replay`: shows where the verdicts of another program would differ in the history
//! of a topic.
//!
//! The log is replayed twice in memory: unchanged, and with the other module in place of every
//! program that the topic had. Verdicts and records are compared intention by intention.
//!
//! Invariants:
//! - The store is only read.
//! - Only the code differs in the second run. Limits, arguments, time stamps and order are
//!   unchanged. If another topic ran a replaced module, that topic runs the other module too, and a
//!   note reports that.
//! - The memory of a program in a snapshot is never given to another program.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use weir::program::{SubstituteHost, WasmtimeHost, inspect};
use weir::{
    CodeHash, Effect, ErrorCode, History, IntentionOffset, ProgramHost, Replayed, StateMode,
};

use super::module;
use super::trace::history_on;
use crate::caller::Caller;
use crate::output::{Cell, Field, Shape, field, wide};
use crate::report::{self, Failure, FailureContext};
use crate::verdict;

/// Arguments of `weir program replay`.
#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// Name of the topic
    topic: String,
    /// Module of the other program, a .wasm file
    #[arg(long, value_name = "FILE")]
    with: PathBuf,
    /// First intention to compare [else the first one that can be replayed]
    #[arg(long, value_name = "INTENTION")]
    from: Option<u64>,
}

pub(super) const FIELDS: &[Field] = &[
    field(
        "intention",
        "number",
        "position of the intention in the order of the store",
    ),
    wide("time", "time", "timestamp of the intention, RFC 3339 UTC"),
    field(
        "operation",
        "text",
        "kind of operation: CREATE, PUT, DELETE, TXN, REPLACE or another one",
    ),
    field("key", "bytes", "key of the write; null: none"),
    field(
        "before",
        "text",
        "verdict with the original program: VALID, INVALID or ERROR",
    ),
    field(
        "before_reason",
        "text",
        "reason and detail with the original program; null if VALID",
    ),
    field("after", "text", "verdict with the other program"),
    field(
        "after_reason",
        "text",
        "reason and detail with the other program; null if VALID",
    ),
    field(
        "records",
        "text",
        "equal, or differ: kind, key or value of a record",
    ),
    wide(
        "fuel_before",
        "number",
        "fuel that the original program used",
    ),
    wide("fuel_after", "number", "fuel that the other program used"),
];

/// The result of an intention.
#[derive(PartialEq, Eq)]
struct Outcome {
    effect: Effect,
    /// Reason and detail.
    why: Option<Box<str>>,
    /// Hash of kinds, keys and values of the records.
    records: u64,
    fuel: u64,
}

impl Outcome {
    fn of(replayed: &Replayed<'_>) -> Self {
        let commit = replayed.commit;
        let mut hasher = DefaultHasher::new();
        for record in replayed.records {
            (record.kind.name(), &record.key, &record.value).hash(&mut hasher);
        }
        let why = commit.reason.map(|reason| {
            let detail = verdict::detail(&commit.detail);
            let detail = detail.map_or(String::new(), |detail| format!(" {detail}"));
            format!("{}{detail}", reason.name()).into()
        });
        Self {
            effect: commit.effect,
            why,
            records: hasher.finish(),
            fuel: commit.fuel,
        }
    }

    fn is_equal(&self, other: &Self) -> bool {
        (self.effect, &self.why, self.records) == (other.effect, &other.why, other.records)
    }
}

/// The first run.
#[derive(Default)]
struct OriginalRun {
    outcomes: Vec<(IntentionOffset, Outcome)>,
    codes: BTreeSet<CodeHash>,
    /// Modules that other topics ran too, with one such topic for each.
    elsewhere: BTreeMap<CodeHash, String>,
    is_known: bool,
    /// Whether the program had a memory when the run began.
    began_with_memory: bool,
}

/// Counts of intentions that differ.
#[derive(Default)]
struct Differences {
    compared: u64,
    no_longer_valid: u64,
    newly_valid: u64,
    others: u64,
    fuel: (u64, u64),
}

/// Runs `weir program replay`.
pub(super) fn run(caller: &Caller, args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    compare(caller, &args.topic, &args.with, args.from)
}

/// Compares the history of a topic with the verdicts of the module in `file`.
pub(super) fn compare(
    caller: &Caller,
    topic: &str,
    file: &Path,
    from: Option<u64>,
) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::List, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let code = module(file)?;
    inspect(&code).map_err(|why| {
        let what = format!("{} is not a program", file.display());
        Failure::new(ErrorCode::BadProgram, what).because(why)
    })?;
    let failed = || format!("cannot replay the history of {topic}");
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let history = history_on(caller, Arc::clone(&host))?;
    let first = history.first().failed(failed)?;
    let from = from.map_or(first, IntentionOffset).max(IntentionOffset(1));
    let past = original_run(&history, &*host, topic, from).failed(failed)?;
    if !past.is_known || past.codes.is_empty() {
        let failure = no_program_failure(&history, &*host, topic, (first, from));
        return Err(failure.failed(failed)?.into());
    }
    if past.began_with_memory && from > IntentionOffset(1) {
        let what =
            format!("cannot replay {topic}: the history begins with the memory of its program");
        let why = "another program cannot use this memory; replay the log from its start, or use `kv` state";
        return Err(Failure::new(ErrorCode::Unsupported, what)
            .because(why)
            .into());
    }
    let both =
        |(code, other): (&CodeHash, &String)| past.codes.contains(code).then(|| other.clone());
    if let Some(other) = past.elsewhere.iter().find_map(both) {
        let text = format!(
            "topic {other} used the same module, so this replay runs the new module there as well"
        );
        report::note(caller.quiet, &text);
    }
    let host: Arc<dyn ProgramHost> = Arc::new(SubstituteHost::new(past.codes, code));
    let history = history_on(caller, host)?;
    let mut found = Differences::default();
    let mut written = Ok(());
    let mut outcomes = past.outcomes.into_iter();
    let end = outcomes.as_slice().last().map_or(from, |(last, _)| *last);
    let replayed = history.replay(from..=end, &mut |replayed| {
        if replayed.topic != topic || written.is_err() {
            return;
        }
        let Some((intention, before)) = outcomes.next() else {
            return;
        };
        assert_eq!(
            intention, replayed.commit.intention,
            "both runs read one log"
        );
        let after = Outcome::of(&replayed);
        if found.count(&before, &after) {
            written = out.row(&row(&replayed, &before, &after));
        }
    });
    replayed.failed(failed)?;
    written?;
    out.finish()?;
    let differ = found.differ();
    report::note(caller.quiet && differ == 0, &found.sentence(topic));
    Ok(if differ > 0 {
        ExitCode::from(verdict::NOT_VALID)
    } else {
        ExitCode::SUCCESS
    })
}

/// The failure for a topic without a program in the intentions from `from` on. The first intention
/// that can be replayed is `first`.
fn no_program_failure(
    history: &History,
    host: &dyn ProgramHost,
    topic: &str,
    (first, from): (IntentionOffset, IntentionOffset),
) -> Result<Failure, weir::StoreError> {
    let all = original_run(history, host, topic, first)?;
    if let Some((last, _)) = all.outcomes.last()
        && *last < from
    {
        let what = format!("topic {topic} has no intention from {from} on");
        let failure = Failure::new(ErrorCode::RecordAbsent, what);
        let why = format!("its newest intention is {last}");
        return Ok(failure
            .because(why)
            .advise("give a smaller number with `--from`"));
    }
    let what = format!("topic {topic} has no program");
    let why = format!("no program processed an intention from {from} on");
    Ok(Failure::new(ErrorCode::TopicUnknown, what).because(why))
}

fn original_run(
    history: &History,
    host: &dyn ProgramHost,
    topic: &str,
    from: IntentionOffset,
) -> Result<OriginalRun, weir::StoreError> {
    let mut past = OriginalRun::default();
    history.replay(from..=IntentionOffset(u64::MAX), &mut |replayed| {
        let view = replayed.machine.topic(replayed.topic);
        let program = view.as_ref().and_then(|view| view.program.as_ref());
        if replayed.topic != topic {
            if let Some(program) = program
                && !past.elsewhere.contains_key(&program.code)
            {
                past.elsewhere
                    .insert(program.code, replayed.topic.to_owned());
            }
            return;
        }
        if !past.is_known {
            let has_memory = program.is_some_and(|program| program.mode == StateMode::Memory);
            past.began_with_memory = has_memory && replayed.code.is_empty();
        }
        past.is_known |= view.is_some();
        past.codes.extend(program.map(|program| program.code));
        if !replayed.code.is_empty() {
            past.codes.insert(host.hash(replayed.code));
        }
        past.outcomes
            .push((replayed.commit.intention, Outcome::of(&replayed)));
    })?;
    Ok(past)
}

impl Differences {
    /// Counts an intention. Returns whether its two results differ.
    fn count(&mut self, before: &Outcome, after: &Outcome) -> bool {
        self.compared += 1;
        self.fuel.0 += before.fuel;
        self.fuel.1 += after.fuel;
        if before.is_equal(after) {
            return false;
        }
        match (before.effect, after.effect) {
            (Effect::Valid, Effect::Valid) => self.others += 1,
            (Effect::Valid, _) => self.no_longer_valid += 1,
            (_, Effect::Valid) => self.newly_valid += 1,
            _ => self.others += 1,
        }
        true
    }

    fn differ(&self) -> u64 {
        self.no_longer_valid + self.newly_valid + self.others
    }

    fn sentence(&self, topic: &str) -> String {
        let (before, after) = self.fuel;
        format!(
            "{topic}: {} intentions, {} differ: {} no longer VALID, {} newly VALID, {} in reason or \
             records; fuel {before} before, {after} after",
            self.compared,
            self.differ(),
            self.no_longer_valid,
            self.newly_valid,
            self.others,
        )
    }
}

fn row<'a>(replayed: &Replayed<'a>, before: &'a Outcome, after: &'a Outcome) -> [Cell<'a>; 11] {
    let why = |outcome: &'a Outcome| match &outcome.why {
        Some(why) => Cell::Text((&**why).into()),
        None => Cell::Nothing,
    };
    let records = if before.records == after.records {
        "equal"
    } else {
        "differ"
    };
    [
        Cell::Count(replayed.commit.intention.0),
        Cell::Time(replayed.time_ms),
        Cell::Text(replayed.operation.into()),
        Cell::Bytes(replayed.key.into()),
        Cell::Text(before.effect.name().into()),
        why(before),
        Cell::Text(after.effect.name().into()),
        why(after),
        Cell::Text(records.into()),
        Cell::Count(before.fuel),
        Cell::Count(after.fuel),
    ]
}
