//! `weir program bench`: measures what a program adds to a write.
//!
//! A plain topic and a topic with the program get equal writes, in one store of this process at
//! durability `memory`, in alternating blocks. The first blocks are not counted. The reported
//! difference is the median over pairs of adjacent blocks, so that other load on the machine
//! affects both sides.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use weir::program::script;
use weir::{
    Durability, Effect, ErrorCode, Intention, OpenOptions, Operation, ProgramInfo, StateMode,
    TopicOptions, TxnOp, Weir,
};

use super::deploy::argument;
use super::script::module_of;
use super::{module, read};
use crate::caller::Caller;
use crate::output::{Cell, Field, Shape, field};
use crate::report::{self, Failure, FailureContext};
use crate::scratch::ScratchDirectory;
use crate::topic_options as options;

/// Arguments of `weir program bench`.
#[derive(Debug, Args)]
pub(super) struct BenchArgs {
    /// Module, a .wasm file
    file: PathBuf,
    /// Options of the topic, as for `weir program deploy`
    #[arg(value_name = "OPTION=VALUE")]
    options: Vec<String>,
    /// Repeat the writes of this script to the first topic that it creates
    #[arg(long, conflicts_with_all = ["key", "value", "args", "options", "state_entries"])]
    script: Option<PathBuf>,
    /// Key of each write, in the syntax of scripts
    #[arg(long, default_value = "key")]
    key: String,
    /// Value of each write, in the syntax of scripts
    #[arg(long, default_value = "{x*100}")]
    value: String,
    /// Arguments of the program, in the syntax of scripts
    #[arg(long, default_value = "", hide_default_value = true)]
    args: String,
    /// Number of writes to each topic, rounded up to whole blocks of calls
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1000..=100_000_000))]
    count: u32,
    /// Number of writes in one call
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// Number of keys (KEY and a number); each is written once before the measurement
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    state_entries: u32,
}

pub(super) const FIELDS: &[Field] = &[
    field("count", "number", "writes to each topic that were measured"),
    field("batch", "number", "writes in one call"),
    field(
        "plain_p50_ns",
        "number",
        "plain topic: median time per write, in nanoseconds",
    ),
    field(
        "plain_p99_ns",
        "number",
        "plain topic: 99th percentile of the time per write, in nanoseconds",
    ),
    field(
        "program_p50_ns",
        "number",
        "topic with the program: median time per write, in nanoseconds",
    ),
    field(
        "program_p99_ns",
        "number",
        "topic with the program: 99th percentile of the time per write, in nanoseconds",
    ),
    field(
        "extra_ns",
        "number",
        "time that the program adds to a write, in nanoseconds: median over pairs of blocks; below 0: noise",
    ),
    field("fuel", "number", "mean fuel of a write"),
    field("valid", "number", "writes with the verdict VALID"),
    field("rejected", "number", "writes that the program rejected"),
    field(
        "trapped",
        "number",
        "writes that trapped, ran out of fuel or exceeded a limit",
    ),
    field("failed", "number", "writes that failed for another reason"),
    field(
        "state",
        "text",
        "state mode of the program: none, kv or memory",
    ),
    field("entries", "count", "entries of the state at the end"),
    field("state_bytes", "bytes", "bytes of the state at the end"),
    field(
        "reset",
        "text",
        "memory of the module that is reset between two calls",
    ),
    field(
        "build",
        "text",
        "build profile; figures of debug are not meaningful",
    ),
];

/// Blocks of each side.
const BLOCKS: u32 = 20;
/// Blocks of each side at the start that are not counted.
const WARM_UP: u32 = 2;
/// Writes in one call before the measurement.
const FILL_BATCH: usize = 1000;

/// A write that owns its bytes.
struct Write {
    operation: OwnedOperation,
    principal: Vec<u8>,
}

enum OwnedOperation {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Txn(Vec<(Vec<u8>, Option<Vec<u8>>)>),
}

/// The work to measure.
struct Job {
    options: TopicOptions,
    code: Vec<u8>,
    args: Vec<u8>,
    /// The writes, repeated in a cycle.
    writes: Vec<Write>,
    /// Whether each write runs once before the measurement.
    fill: bool,
}

/// The measurements of one topic.
#[derive(Default)]
struct TopicMeasurement {
    /// Nanoseconds for each write of a call, in the counted blocks.
    calls: Vec<u64>,
    /// The median of each block.
    blocks: Vec<u64>,
    valid: u64,
    rejected: u64,
    trapped: u64,
    failed: u64,
    fuel: u64,
    next: usize,
}

/// Runs `weir program bench`.
pub(super) fn run(caller: &Caller, args: &BenchArgs) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    report::note(
        caller.quiet || !cfg!(debug_assertions),
        "this is a debug build; its figures are not those of a release build",
    );
    let job = Job::of(args)?;
    let place = ScratchDirectory::new(None)?;
    let measured = measure(&place, &job, args.count, args.batch);
    place.close()?;
    let (plain, program, info) = measured?;
    let count = |n| Cell::Count(n);
    let total = program.valid + program.rejected + program.trapped + program.failed;
    let extra = median_difference(&plain.blocks, &program.blocks);
    out.row(&[
        count(total),
        count(u64::from(args.batch)),
        count(rank(&plain.calls, 50)),
        count(rank(&plain.calls, 99)),
        count(rank(&program.calls, 50)),
        count(rank(&program.calls, 99)),
        Cell::signed(extra),
        count(program.fuel / total.max(1)),
        count(program.valid),
        count(program.rejected),
        count(program.trapped),
        count(program.failed),
        Cell::Text(info.mode.name().into()),
        count(info.state_entries),
        Cell::Size(info.state_bytes),
        Cell::Text(reset(&job).into()),
        Cell::Text(
            if cfg!(debug_assertions) {
                "debug"
            } else {
                "release"
            }
            .into(),
        ),
    ])?;
    out.finish()?;
    note_others(caller, &program, total);
    Ok(ExitCode::SUCCESS)
}

/// Prints how many of the writes to the topic with the program were not valid.
fn note_others(caller: &Caller, program: &TopicMeasurement, total: u64) {
    if program.valid == total {
        return;
    }
    let hint = if program.valid == 0 {
        "; no write was valid: give writes that the program accepts, with --script or --key and --value"
    } else {
        ""
    };
    let text = format!(
        "{} of {total} writes were rejected, {} trapped, {} failed otherwise; the figures include their time{hint}",
        program.rejected, program.trapped, program.failed
    );
    report::note(caller.quiet, &text);
}

impl Job {
    fn of(args: &BenchArgs) -> anyhow::Result<Self> {
        let code = module(&args.file)?;
        match &args.script {
            Some(path) => Self::of_script(args, code, path),
            None => Self::of_key(args, code),
        }
    }

    fn of_key(args: &BenchArgs, code: Vec<u8>) -> anyhow::Result<Self> {
        let key = argument("--key", &args.key)?;
        let value = argument("--value", &args.value)?;
        let put = |key| Write {
            operation: OwnedOperation::Put(key, value.clone()),
            principal: Vec::new(),
        };
        let several = args.state_entries > 1;
        let writes = (0..args.state_entries).map(|n| {
            let number = n.to_string();
            put(if several {
                [&key[..], number.as_bytes()].concat()
            } else {
                key.clone()
            })
        });
        Ok(Self {
            options: options::parse(&args.options, &TopicOptions::default())?,
            args: argument("--args", &args.args)?,
            writes: writes.collect(),
            code,
            fill: several,
        })
    }

    fn of_script(args: &BenchArgs, code: Vec<u8>, path: &std::path::Path) -> anyhow::Result<Self> {
        let text = String::from_utf8_lossy(&read(path)?).into_owned();
        let mut job = Self {
            options: TopicOptions::default(),
            args: Vec::new(),
            writes: Vec::new(),
            code: Vec::new(),
            fill: false,
        };
        let mut topic: Option<String> = None;
        let module_of = |name: &str| module_of(&args.file, &code, name);
        let parsed = script::intentions(&text, &module_of, &mut |intention| {
            if let (None, Operation::CreateProgram { options, args, .. }) =
                (&topic, &intention.operation)
            {
                (job.options, job.args) = ((*options).clone(), args.to_vec());
                topic = Some(intention.topic.to_owned());
            }
            if topic.as_deref() == Some(intention.topic) {
                job.writes.extend(Write::of(intention));
            }
        });
        let unusable = || format!("cannot use {}", path.display());
        let bad = |why: String| Failure::new(ErrorCode::BadRequest, unusable()).because(why);
        parsed.map_err(|error| bad(error.to_string()))?;
        if job.writes.is_empty() {
            return Err(bad(
                "the script writes nothing to the topic that it creates with a program".to_owned(),
            )
            .into());
        }
        job.code = code;
        Ok(job)
    }
}

impl Write {
    fn of(intention: &Intention<'_>) -> Option<Self> {
        let operation = match intention.operation {
            Operation::Put { key, value } => OwnedOperation::Put(key.to_vec(), value.to_vec()),
            Operation::Delete { key } => OwnedOperation::Delete(key.to_vec()),
            Operation::Txn { ops } => OwnedOperation::Txn(
                ops.iter()
                    .map(|op| match op {
                        TxnOp::Put { key, value, .. } => (key.to_vec(), Some(value.to_vec())),
                        TxnOp::Delete { key, .. } => (key.to_vec(), None),
                    })
                    .collect(),
            ),
            _ => return None,
        };
        let principal = intention.principal.to_vec();
        Some(Self {
            operation,
            principal,
        })
    }

    /// The steps of a transaction, borrowed; empty for other writes.
    fn steps(&self) -> Vec<TxnOp<'_>> {
        let OwnedOperation::Txn(steps) = &self.operation else {
            return Vec::new();
        };
        let meta = &[][..];
        steps
            .iter()
            .map(|(key, value)| match value {
                Some(value) => TxnOp::Put { key, value, meta },
                None => TxnOp::Delete { key, meta },
            })
            .collect()
    }
}

/// Runs the blocks of both sides alternately.
fn measure(
    place: &ScratchDirectory,
    job: &Job,
    count: u32,
    batch: u32,
) -> anyhow::Result<(TopicMeasurement, TopicMeasurement, ProgramInfo)> {
    let options = OpenOptions {
        durability: Durability::Memory,
        ..OpenOptions::default()
    };
    let weir = Weir::open_with(place.path().join("store"), &options)
        .failed(|| "cannot create a store for the measurement".to_owned())?;
    let create = Operation::CreateProgram {
        options: &job.options,
        code: &job.code,
        args: &job.args,
    };
    let plain_options = TopicOptions::default();
    let plain = Operation::Create {
        options: &plain_options,
    };
    for (topic, operation) in [(TOPICS[0], plain), (TOPICS[1], create)] {
        let intention = Intention::new(topic, operation);
        let outcome =
            crate::write::propose_one(&weir, intention, || "cannot create the topic".to_owned())?;
        if let Some(failure) = outcome
            .commit()
            .and_then(|commit| crate::verdict::failure(topic, commit))
        {
            return Err(failure.into());
        }
    }
    let mut sides = [TopicMeasurement::default(), TopicMeasurement::default()];
    if job.fill {
        for topic in TOPICS {
            let mut side = TopicMeasurement::default();
            for _ in 0..job.writes.len().div_ceil(FILL_BATCH) {
                side.call(&weir, topic, job, FILL_BATCH)?;
            }
        }
    }
    let calls = count.div_ceil(BLOCKS * batch);
    for block in 0..BLOCKS + WARM_UP {
        for (side, topic) in sides.iter_mut().zip(TOPICS) {
            let mut times = Vec::with_capacity(calls as usize);
            for _ in 0..calls {
                let took = side.call(&weir, topic, job, batch as usize)?;
                let each = took.as_nanos() / u128::from(batch);
                times.push(u64::try_from(each).unwrap_or(u64::MAX));
            }
            if block < WARM_UP {
                // A warm-up block moves the position in the writes, and nothing else.
                let next = side.next;
                *side = TopicMeasurement::default();
                side.next = next;
            } else {
                side.blocks.push(rank(&times, 50));
                side.calls.extend(times);
            }
        }
    }
    let info = weir
        .store()?
        .program(TOPICS[1])
        .context("the measured topic has no program")?;
    weir.close()
        .failed(|| "cannot close the store".to_owned())?;
    let [plain, program] = sides;
    Ok((plain, program, info))
}

/// The plain topic, and the one with the program.
const TOPICS: [&str; 2] = ["plain", "program"];

impl TopicMeasurement {
    /// Executes one call with `batch` writes. Returns its duration.
    fn call(
        &mut self,
        weir: &Weir,
        topic: &str,
        job: &Job,
        batch: usize,
    ) -> anyhow::Result<Duration> {
        let writes = job.writes.iter().cycle().skip(self.next).take(batch);
        let writes: Vec<(&Write, Vec<TxnOp<'_>>)> =
            writes.map(|write| (write, write.steps())).collect();
        self.next = (self.next + batch) % job.writes.len();
        let intentions: Vec<Intention<'_>> = writes
            .iter()
            .map(|(write, steps)| {
                let operation = match &write.operation {
                    OwnedOperation::Put(key, value) => Operation::Put { key, value },
                    OwnedOperation::Delete(key) => Operation::Delete { key },
                    OwnedOperation::Txn(_) => Operation::Txn { ops: steps },
                };
                let mut intention = Intention::new(topic, operation);
                intention.principal = &write.principal;
                intention
            })
            .collect();
        let failed = || format!("cannot write to {topic}");
        let start = Instant::now();
        let outcomes = weir
            .propose(&intentions)
            .failed(failed)?
            .wait()
            .failed(failed)?;
        let took = start.elapsed();
        for commit in outcomes
            .iter()
            .filter_map(|outcome| outcome.commit().cloned())
        {
            match (commit.effect, commit.reason) {
                (Effect::Valid, _) => self.valid += 1,
                (_, Some(ErrorCode::Rejected)) => self.rejected += 1,
                (_, Some(ErrorCode::Trap | ErrorCode::OutOfFuel | ErrorCode::Limit)) => {
                    self.trapped += 1;
                }
                _ => self.failed += 1,
            }
            self.fuel += commit.fuel;
        }
        Ok(took)
    }
}

/// A percentile by nearest rank; 0 if there are no times.
fn rank(times: &[u64], percent: usize) -> u64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    let rank = (times.len() * percent).div_ceil(100).max(1);
    times.get(rank - 1).copied().unwrap_or(0)
}

/// Median difference of adjacent blocks.
fn median_difference(plain: &[u64], program: &[u64]) -> i64 {
    let pairs = plain.iter().zip(program);
    let mut extra: Vec<i64> = pairs
        .map(|(plain, program)| program.cast_signed() - plain.cast_signed())
        .collect();
    extra.sort_unstable();
    extra.get(extra.len() / 2).copied().unwrap_or(0)
}

/// What the host resets between two calls, derived from the module.
fn reset(job: &Job) -> String {
    const WRITE: [&str; 6] = [
        "input_info",
        "input_read",
        "state_get",
        "state_next",
        "key_get",
        "hash",
    ];
    let Ok(report) = weir::program::inspect(&job.code) else {
        return String::new();
    };
    let globals = report.globals.len();
    let written = report.stores
        || report
            .imports
            .iter()
            .any(|name| WRITE.contains(&name.as_str()));
    if job.options.program.state == StateMode::Memory {
        format!(
            "nothing; up to {} bytes of memory are compared and stored",
            report.memory_bytes
        )
    } else if report.changes_segments {
        "all: a fresh instance for each call".to_owned()
    } else if written {
        format!(
            "{} bytes of memory and {globals} globals",
            report.memory_bytes
        )
    } else {
        format!("{globals} globals; the program never writes its memory")
    }
}
