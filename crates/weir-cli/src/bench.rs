//! `weir bench`: measures how fast a store responds, in a directory or at a server.
//!
//! Each client is a thread. At a server, each client has a separate connection. A latency is the
//! time from the call of the program to the response. Each result is printed with the durability
//! level, because it cannot be interpreted without the level.
//!
//! Invariants:
//! - No figure includes failed work.
//! - Memory does not grow with the number of messages.

mod histogram;
mod read;
mod tail;
mod workload;
mod write;

use std::process::ExitCode;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use clap::{Args, Subcommand};
use weir::{ErrorCode, SOCKET_FILE, Weir};

use self::histogram::Histogram;
use crate::caller::Caller;
use crate::interrupt::Interrupt;
use crate::output::{Cell, Field, Shape, field, wide};
use crate::place::{self, Access, Location};
use crate::report::{Failure, FailureContext};
use crate::settings::durability_text;

/// Maximum number of clients in one run.
const CLIENTS_MAX: u64 = 1024;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    verb: Verb,
}

/// Options that the three benchmarks share.
#[derive(Debug, Args)]
pub(crate) struct Load {
    /// Topic of the messages; `write` and `tail` create it and do not remove it
    #[arg(short, long, default_value = "bench")]
    topic: String,
    /// Concurrent clients, each with a separate connection
    #[arg(short, long, default_value_t = 1, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=CLIENTS_MAX))]
    clients: u64,
    /// Total number of messages
    #[arg(short, long, default_value_t = 10_000, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    messages: u64,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Write messages and wait for their verdicts
    #[command(after_long_help = "\
Latency is the time from a call with --batch messages to its verdict. With --window N, a client has up
to N calls in flight; with 1, it waits for each verdict. Ctrl-C prints the results so far.

Examples:
  weir bench write --messages 500
  weir bench write --clients 5 --messages 1000 --bytes 200 --batch 10 --window 4 -o json")]
    Write(write::WriteArgs),
    /// Read a topic from its beginning, or single records
    #[command(after_long_help = "\
Latency is the time to read a page, or with --single one record at a random offset. All clients read
equal numbers of messages. Without --single, each client begins at the start of the topic.

Examples:
  weir bench write -m 500 --quiet && weir bench read
  weir bench write -m 500 --quiet && weir bench read --single --clients 2 -m 200 -o json")]
    Read(read::ReadArgs),
    /// Measure the time from a write to its arrival at listeners
    #[command(after_long_help = "\
Runs one writer and --clients listeners. Latency is the time from the write call to the arrival of the
message at a listener, so it includes the time of the write.

Examples:
  weir bench tail --clients 2 --messages 200
  weir bench tail --messages 200 --rate 1000 -o json")]
    Tail(tail::TailArgs),
    /// Run a workload file of the OpenMessaging Benchmark
    #[command(after_long_help = "\
Prints a row for each kind of figure, with the messages of the measured time only:
  publish  from when a message was due to its verdict
  delay    from when a message was due to its call
  deliver  from when a message was due to its arrival at a consumer
  drain    the time in which all consumers read the backlog (consumerBacklogSizeGB)

A message is due at a fixed time, independent of the responses; with a producerRate of 0, it is due when
it is sent. Its first 16 bytes contain the id of the run and this time. A subscription with several
consumers is a shared group. A topic has one producer, subscription and consumer by default. Fields that do
not apply are named. The first error of a client ends the run.

Examples:
  printf 'topics: 2\\nmessageSize: 100\\nproducerRate: 500\\n' >small.yaml
  weir bench workload small.yaml --warmup 0s --duration 500ms
  weir bench workload small.yaml --warmup 100ms --duration 500ms --topic load -o json")]
    Workload(workload::WorkloadArgs),
}

/// Fields of a measurement.
pub(crate) const FIELDS: &[Field] = &[
    field(
        "verb",
        "text",
        "write, read or tail; of a workload: publish, delay, deliver or drain",
    ),
    field("at", "text", "directory or server of the store"),
    field(
        "durability",
        "text",
        "durability level: group, each, interval:TIME or memory",
    ),
    field("clients", "number", "number of concurrent clients"),
    field("messages", "number", "messages that were written or read"),
    field("bytes", "number", "bytes of the values of these messages"),
    wide("batch", "number", "messages in one call"),
    wide("window", "number", "maximum calls in flight of a client"),
    field(
        "ms",
        "number",
        "duration of the measurement in milliseconds",
    ),
    field("per_second", "number", "messages per second"),
    wide("samples", "number", "number of measured latencies"),
    field("p50_us", "number", "median latency in microseconds"),
    field(
        "p90_us",
        "number",
        "90th percentile of the latencies in microseconds",
    ),
    field(
        "p99_us",
        "number",
        "99th percentile of the latencies in microseconds",
    ),
    field(
        "p999_us",
        "number",
        "99.9th percentile of the latencies in microseconds",
    ),
    field("max_us", "number", "longest latency in microseconds"),
    field("invalid", "number", "verdicts that were not VALID"),
    field("complete", "bool", "whether the measurement ran to its end"),
];

/// Measurements of one client, or of all clients together.
#[derive(Debug, Default)]
pub(crate) struct Measurements {
    messages: u64,
    bytes: u64,
    invalid: u64,
    latency: Histogram,
}

impl Measurements {
    fn add(&mut self, other: &Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.invalid += other.invalid;
        self.latency.add(&other.latency);
    }
}

/// Waits for all clients. Returns their results in order. Resumes the panic of a client in this
/// thread.
fn join<T>(running: Vec<ScopedJoinHandle<'_, T>>) -> Vec<T> {
    let ended = running.into_iter().map(ScopedJoinHandle::join);
    ended
        .map(|seen| seen.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        .collect()
}

/// Adds the measurements of all clients. Fails with the first error of a client.
fn sum(clients: Vec<anyhow::Result<Measurements>>) -> anyhow::Result<Measurements> {
    let mut all = Measurements::default();
    for seen in clients {
        all.add(&seen?);
    }
    Ok(all)
}

/// A completed measurement.
struct Measurement {
    verb: &'static str,
    clients: u64,
    batch: u64,
    window: u64,
    time: Duration,
    seen: Measurements,
}

/// State of one run.
pub(crate) struct Bench<'a> {
    caller: &'a Caller,
    weir: &'a Weir,
    interrupt: &'a Interrupt,
}

impl Bench<'_> {
    /// Returns the store for one client: a new connection, or a clone of the store that this
    /// process has open.
    fn client(&self) -> anyhow::Result<Weir> {
        if self.weir.local().is_some() {
            return Ok(self.weir.clone());
        }
        let mut options = place::connect_options(self.caller)?;
        let url = match place::location(self.caller)? {
            Location::Server(url) => url.to_owned(),
            Location::Directory(at) => {
                // A process that may read the files needs no token.
                options.token = None;
                format!("unix:{at}/{SOCKET_FILE}")
            }
        };
        let connected = Weir::connect_with(&url, &options);
        connected.failed(|| format!("cannot use the server {url}"))
    }

    fn is_over(&self) -> bool {
        self.interrupt.is_requested()
    }
}

/// Returns how many of `messages` the client with number `client` processes.
fn share(messages: u64, clients: u64, client: u64) -> u64 {
    messages / clients + u64::from(client < messages % clients)
}

/// Runs `weir bench`.
pub(crate) fn run(caller: &Caller, args: &BenchArgs) -> anyhow::Result<ExitCode> {
    let shape = match args.verb {
        Verb::Workload(_) => Shape::List,
        _ => Shape::One,
    };
    let Some(mut out) = caller.style.open(shape, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let no_signals = || "cannot install the handler for Ctrl-C".to_owned();
    let interrupt = Interrupt::new().failed(no_signals)?;
    let access = match args.verb {
        Verb::Read(_) => Access::Change,
        _ => Access::Write,
    };
    let weir = place::open(caller, access)?;
    interrupt.watch().failed(no_signals)?;
    let bench = Bench {
        caller,
        weir: &weir,
        interrupt: &interrupt,
    };
    let measured = match &args.verb {
        Verb::Write(args) => vec![write::run(&bench, args)?],
        Verb::Read(args) => vec![read::run(&bench, args)?],
        Verb::Tail(args) => vec![tail::run(&bench, args)?],
        Verb::Workload(args) => workload::run(&bench, args)?,
    };
    let level = weir.durability();
    let level = level.failed(|| "cannot read the durability".to_owned())?;
    let level = durability_text(level);
    let complete = !interrupt.is_requested();
    for measured in &measured {
        row(&mut out, caller, measured, &level, complete)?;
    }
    out.finish()?;
    weir.close()
        .failed(|| "cannot close the store".to_owned())?;
    if !complete {
        let failure = Failure::new(ErrorCode::Cancelled, "the measurement was interrupted");
        let messages = measured.first().map_or(0, |first| first.seen.messages);
        let why = format!("{messages} messages were measured");
        return Err(failure.because(why).into());
    }
    Ok(ExitCode::SUCCESS)
}

fn row(
    out: &mut crate::output::Output,
    caller: &Caller,
    measured: &Measurement,
    level: &str,
    complete: bool,
) -> anyhow::Result<()> {
    let seen = &measured.seen;
    let nanos = measured.time.as_nanos().max(1);
    let rate = u128::from(seen.messages) * 1_000_000_000 / nanos;
    let quantile = |per_mille| {
        let ns = seen.latency.quantile(per_mille);
        ns.map_or(Cell::Nothing, |ns| Cell::Count(ns.div_ceil(1000)))
    };
    out.row(&[
        Cell::Text(measured.verb.into()),
        Cell::Text(caller.settings.at.value.as_str().into()),
        Cell::Text(level.into()),
        Cell::Count(measured.clients),
        Cell::Count(seen.messages),
        Cell::Size(seen.bytes),
        Cell::Count(measured.batch),
        Cell::Count(measured.window),
        Cell::Count(u64::try_from(measured.time.as_millis()).unwrap_or(u64::MAX)),
        Cell::Count(u64::try_from(rate).unwrap_or(u64::MAX)),
        Cell::Count(seen.latency.count()),
        quantile(500),
        quantile(900),
        quantile(990),
        quantile(999),
        quantile(1000),
        Cell::Count(seen.invalid),
        Cell::Flag(complete),
    ])
}
