//! `weir bench workload`: runs a workload file of the OpenMessaging Benchmark.
//!
//! With a rate, each message has a time when it is due, independent of the responses. A producer
//! sends it as soon as possible from then on, and every latency counts from the time when it was
//! due. Without a rate, a message is due when it is sent. The first 16 bytes of a message contain
//! the id of the run and the time when the message is due.
//!
//! A subscription with one consumer follows its topic. One with several consumers is a shared
//! group. With a backlog, no consumer reads before the backlog is complete. An error or a panic of
//! a client ends all clients.
//!
//! Invariants:
//! - No figure except `drain` includes a message that was due in the warm-up or in the backlog.
//! - No figure includes a message of another run.
//! - The number of messages of a run with a rate does not depend on the speed of the store.

mod deliver;
mod file;
mod publish;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use weir::{ConsequenceOffset, ErrorCode};

use self::file::{FileError, Keys, WorkloadFile, present};
use self::publish::Published;
use super::{Bench, CLIENTS_MAX, Measurement, Measurements, join, sum};
use crate::report::{Failure, FailureContext, note};
use crate::scratch::random;
use crate::write::ensure;

/// Bytes of a gigabyte in a workload file.
const GIGABYTE: f64 = 1_073_741_824.0;
/// How often a consumer checks whether the run has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Longest time without a message after the last verdict. After it, the run fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// Arguments of `weir bench workload`.
#[derive(Debug, Args)]
pub(crate) struct WorkloadArgs {
    /// Workload file (YAML)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Start of the names of the topics, which are created and not removed
    #[arg(short, long, default_value = "bench")]
    topic: String,
    /// Duration of the measurement [default: testDurationMinutes]
    #[arg(long, value_name = "TIME", value_parser = weir::units::duration)]
    duration: Option<Duration>,
    /// Duration of the load before the measurement [default: warmupDurationMinutes, or 1 minute]
    #[arg(long, value_name = "TIME", value_parser = weir::units::duration)]
    warmup: Option<Duration>,
    /// Maximum messages in flight of a producer
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100_000))]
    window: u64,
}

/// The load of a run.
#[derive(Debug)]
struct Plan {
    topics: u64,
    /// Producers of each topic.
    producers: u64,
    /// Subscriptions of each topic.
    subscriptions: u64,
    /// Consumers of each subscription.
    consumers: u64,
    /// At least one; all have equal sizes.
    payloads: Vec<Vec<u8>>,
    keys: Keys,
    /// Messages a second of all producers; 0: as fast as the window allows.
    rate: u64,
    /// Messages before the measurement, with a rate: of the warm-up and of the backlog.
    early: u64,
    has_backlog: bool,
    warmup: Duration,
    duration: Duration,
}

impl Plan {
    fn read(args: &WorkloadArgs, file: &WorkloadFile) -> Result<Self, FileError> {
        let minutes = |minutes: f64| Duration::from_secs_f64(minutes * 60.0);
        let duration = args.duration.or(file.duration_minutes.map(minutes));
        let warmup = args.warmup.unwrap_or(minutes(file.warmup_minutes));
        let rate = present(file.rate, "producerRate")?;
        let subscriptions = file.subscriptions;
        let bytes = file.message_bytes()?;
        let directory = args.file.parent().unwrap_or(&args.file);
        let has_backlog = file.backlog_gb > 0.0;
        if has_backlog && (rate == 0 || subscriptions == 0) {
            let why = "needs a producerRate and a subscription";
            return Err(FileError::new(why).of("consumerBacklogSizeGB"));
        }
        let backlog = if has_backlog {
            messages(
                file.backlog_gb * GIGABYTE,
                bytes.saturating_mul(subscriptions),
            )
        } else {
            0
        };
        let plan = Self {
            topics: present(file.topics, "topics")?,
            producers: file.producers,
            subscriptions,
            consumers: file.consumers,
            payloads: file.payloads(directory)?,
            keys: file.keys,
            rate,
            early: due_within(rate, warmup).saturating_add(backlog),
            has_backlog,
            warmup,
            duration: present(duration, "testDurationMinutes")?,
        };
        let clients = plan.all_producers().saturating_add(plan.all_consumers());
        if clients > CLIENTS_MAX {
            let why = format!("{clients} producers and consumers; {CLIENTS_MAX} is the maximum");
            return Err(FileError::new(why));
        }
        Ok(plan)
    }

    fn all_producers(&self) -> u64 {
        self.topics.saturating_mul(self.producers)
    }

    fn all_consumers(&self) -> u64 {
        let each = self.subscriptions.saturating_mul(self.consumers);
        self.topics.saturating_mul(each)
    }

    fn message_bytes(&self) -> u64 {
        self.payloads
            .first()
            .map_or(0, |payload| payload.len() as u64)
    }

    /// Number of messages of a run with a rate.
    fn total(&self) -> u64 {
        self.early
            .saturating_add(due_within(self.rate, self.duration))
    }

    /// When message `number` is due, in nanoseconds; only with a rate.
    fn due_ns(&self, number: u64) -> u64 {
        let ns = u128::from(number) * 1_000_000_000 / u128::from(self.rate.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// End of the warm-up and of the backlog, in nanoseconds.
    fn early_end_ns(&self) -> u64 {
        match self.rate {
            0 => nanos(self.warmup),
            _ => self.due_ns(self.early),
        }
    }
}

/// Number of messages that are due within `time`.
fn due_within(rate: u64, time: Duration) -> u64 {
    let messages = u128::from(rate) * time.as_nanos() / 1_000_000_000;
    u64::try_from(messages).unwrap_or(u64::MAX)
}

/// Number of messages of `each` bytes that have `bytes` bytes together, rounded up.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a positive number of messages; a cast saturates"
)]
fn messages(bytes: f64, each: u64) -> u64 {
    (bytes / each as f64).ceil() as u64
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The state that all clients share. Times are nanoseconds since `started`.
struct Run<'a> {
    bench: &'a Bench<'a>,
    plan: &'a Plan,
    window: u64,
    /// A random number in each message.
    id: u64,
    started: Instant,
    topics: Vec<TopicState>,
    /// Whether all producers have all verdicts.
    ended: AtomicBool,
    /// Whether a client has failed.
    failed: AtomicBool,
    early_published: AtomicU64,
    early_delivered: AtomicU64,
    backlog_ns: AtomicU64,
    drained_ns: AtomicU64,
    /// Time of the last measured verdict, and of the last measured delivery.
    published_ns: AtomicU64,
    delivered_ns: AtomicU64,
}

struct TopicState {
    name: String,
    /// The newest record before the run.
    start: ConsequenceOffset,
    /// Messages with a verdict.
    published: AtomicU64,
    /// Messages that each subscription has received.
    delivered: Vec<AtomicU64>,
}

impl Run<'_> {
    fn now_ns(&self) -> u64 {
        nanos(self.started.elapsed())
    }

    /// Whether all clients must end: after an interrupt, or because a client has failed.
    fn is_over(&self) -> bool {
        self.bench.is_over() || self.failed.load(Ordering::Acquire)
    }

    /// Whether consumers read: at once, or after the backlog is complete.
    fn reads(&self) -> bool {
        let early = self.early_published.load(Ordering::Acquire);
        !self.plan.has_backlog || early >= self.plan.early
    }

    /// Measured time from the end of the early messages to `end_ns`.
    fn time(&self, end_ns: &AtomicU64) -> Duration {
        let end = end_ns.load(Ordering::Relaxed);
        Duration::from_nanos(end.saturating_sub(self.plan.early_end_ns()))
    }
}

/// The topics, which are created if they do not exist.
fn topics(bench: &Bench<'_>, prefix: &str, plan: &Plan) -> anyhow::Result<Vec<TopicState>> {
    let names = (1..=plan.topics).map(|number| format!("{prefix}-{number}"));
    let state = |name: String| {
        let topic = ensure(bench.caller, bench.weir, &name, false)?;
        let info = topic.try_info();
        let info = info.failed(|| format!("cannot read {name}"))?;
        Ok(TopicState {
            name,
            start: info.map_or(ConsequenceOffset::ZERO, |info| info.last),
            published: AtomicU64::new(0),
            delivered: (0..plan.subscriptions).map(|_| AtomicU64::new(0)).collect(),
        })
    };
    names.map(state).collect()
}

pub(super) fn run(bench: &Bench<'_>, args: &WorkloadArgs) -> anyhow::Result<Vec<Measurement>> {
    let shown = args.file.display();
    let what = || format!("cannot run the workload file {shown}");
    let refused = |why: FileError| Failure::new(ErrorCode::BadOption, what()).because(why);
    let text = std::fs::read_to_string(&args.file).failed(what)?;
    let file = WorkloadFile::parse(&text).map_err(refused)?;
    let plan = Plan::read(args, &file).map_err(refused)?;
    for unused in &file.unused {
        let (field, reason) = (unused.field, unused.reason);
        note(
            bench.caller.quiet,
            &format!("{field} does not apply: {reason}"),
        );
    }
    let run = Run {
        bench,
        plan: &plan,
        window: args.window,
        id: random(),
        topics: topics(bench, &args.topic, &plan)?,
        ended: AtomicBool::new(false),
        failed: AtomicBool::new(false),
        early_published: AtomicU64::new(0),
        early_delivered: AtomicU64::new(0),
        backlog_ns: AtomicU64::new(0),
        drained_ns: AtomicU64::new(0),
        published_ns: AtomicU64::new(0),
        delivered_ns: AtomicU64::new(0),
        // The clients exist before the first message is due.
        started: Instant::now(),
    };
    execute(run)
}

/// Sets the flag when it is dropped, unless `is_ok`.
struct FailureGuard<'a> {
    failed: &'a AtomicBool,
    is_ok: bool,
}

impl Drop for FailureGuard<'_> {
    fn drop(&mut self) {
        if !self.is_ok {
            self.failed.store(true, Ordering::Release);
        }
    }
}

/// Calls `work`. Sets `failed` if it returns an error or panics.
fn guarded<T>(failed: &AtomicBool, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let mut guard = FailureGuard {
        failed,
        is_ok: false,
    };
    let result = work();
    guard.is_ok = result.is_ok();
    result
}

/// Runs all clients, and returns a row for each kind of figure.
fn execute(mut run: Run<'_>) -> anyhow::Result<Vec<Measurement>> {
    let loaded = load(&mut run);
    // No group of a failed run remains in the store.
    let deleted = deliver::delete_groups(&run);
    let (published, received) = loaded?;
    deleted?;
    Ok(rows(&run, published, received))
}

/// Runs all clients, and returns the figures of the producers and of the consumers.
fn load(run: &mut Run<'_>) -> anyhow::Result<(Published, Measurements)> {
    let producers = publish::clients(run)?;
    let consumers = deliver::clients(run)?;
    run.started = Instant::now();
    let run = &*run;
    let failed = &run.failed;
    std::thread::scope(|scope| {
        // If this closure panics, the clients end as well.
        guarded(failed, || {
            let consuming = consumers.into_iter().map(|consumer| {
                scope.spawn(move || guarded(failed, || deliver::consume(run, consumer)))
            });
            let consuming: Vec<_> = consuming.collect();
            let producing = producers.into_iter().map(|producer| {
                scope.spawn(move || guarded(failed, || publish::produce(run, &producer)))
            });
            let published = join(producing.collect());
            run.ended.store(true, Ordering::Release);
            let received = join(consuming);
            let mut all = Published::default();
            for one in published {
                all.add(&one?);
            }
            Ok((all, sum(received)?))
        })
    })
}

fn rows(run: &Run<'_>, published: Published, received: Measurements) -> Vec<Measurement> {
    let (plan, sent) = (run.plan, published.seen);
    let row = |verb, clients, time, seen| Measurement {
        verb,
        clients,
        batch: 1,
        window: run.window,
        time,
        seen,
    };
    let time = run.time(&run.published_ns);
    warn_if_late(run, sent.messages, time);
    let delay = Measurements {
        messages: sent.messages,
        bytes: sent.bytes,
        latency: published.delay,
        ..Measurements::default()
    };
    let mut rows = vec![
        row("publish", plan.all_producers(), time, sent),
        row("delay", plan.all_producers(), time, delay),
    ];
    if plan.subscriptions > 0 {
        let time = run.time(&run.delivered_ns);
        rows.push(row("deliver", plan.all_consumers(), time, received));
    }
    rows.extend(
        backlog_measurements(run)
            .map(|(time, seen)| row("drain", plan.all_consumers(), time, seen)),
    );
    rows
}

/// The time in which the backlog was read, and its messages.
fn backlog_measurements(run: &Run<'_>) -> Option<(Duration, Measurements)> {
    let [from, to] = [&run.backlog_ns, &run.drained_ns].map(|ns| ns.load(Ordering::Relaxed));
    let seen = Measurements {
        messages: run.early_delivered.load(Ordering::Relaxed),
        bytes: run.early_delivered.load(Ordering::Relaxed) * run.plan.message_bytes(),
        ..Measurements::default()
    };
    (to > 0).then(|| (Duration::from_nanos(to.saturating_sub(from)), seen))
}

/// Notes that the requested rate was not reached.
fn warn_if_late(run: &Run<'_>, messages: u64, time: Duration) {
    let (rate, ns) = (run.plan.rate, time.as_nanos().max(1));
    let reached = u128::from(messages) * 1_000_000_000 / ns;
    if reached * 100 < u128::from(rate) * 99 {
        let quiet = run.bench.caller.quiet;
        let line = format!("{reached} messages a second were reached, and {rate} were requested");
        note(quiet, &line);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use super::*;

    fn plan(text: &str, duration: Duration) -> Result<Plan, FileError> {
        let args = WorkloadArgs {
            file: PathBuf::from("w.yaml"),
            topic: "bench".to_owned(),
            duration: Some(duration),
            warmup: None,
            window: 10,
        };
        Plan::read(&args, &WorkloadFile::parse(text).unwrap())
    }

    const TEXT: &str = "topics: 2\nmessageSize: 1024\nsubscriptionsPerTopic: 2\n\
        producersPerTopic: 3\nconsumerPerSubscription: 4\nproducerRate: 300\n\
        warmupDurationMinutes: 0.5\n";

    #[test]
    fn a_plan_counts_its_messages_and_clients() {
        let plan = plan(TEXT, Duration::from_millis(1_500)).unwrap();
        assert_eq!((plan.all_producers(), plan.all_consumers()), (6, 16));
        assert_eq!((plan.early, plan.total()), (9_000, 9_450));
        assert_eq!(plan.due_ns(1), 3_333_333);
        assert_eq!(plan.early_end_ns(), 30_000_000_000);
    }

    #[test]
    fn a_backlog_is_as_large_as_requested_for_all_subscriptions() {
        let text = format!("{TEXT}consumerBacklogSizeGB: 0.01\n");
        let plan = plan(&text, Duration::from_secs(1)).unwrap();
        // 0.01 GB are 5,242.88 messages of 1,024 bytes for each of two subscriptions.
        assert_eq!((plan.early, plan.total()), (9_000 + 5_243, 14_243 + 300));
    }

    #[test]
    fn a_file_that_cannot_be_run_is_refused() {
        for (from, to, expected) in [
            ("topics: 2\n", "", "topics is missing"),
            ("topics: 2", "topics: 200", "is the maximum"),
            ("messageSize: 1024\n", "", "messageSize is missing"),
            (
                "producerRate: 300",
                "producerRate: 0\nconsumerBacklogSizeGB: 1",
                "consumerBacklogSizeGB needs a producerRate",
            ),
        ] {
            let error = plan(&TEXT.replace(from, to), Duration::ZERO).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn an_error_and_a_panic_of_a_client_are_failures() {
        let failed = AtomicBool::new(false);
        guarded(&failed, || Ok(())).unwrap();
        assert!(!failed.load(Ordering::Acquire));
        guarded::<()>(&failed, || Err(anyhow::anyhow!("no"))).unwrap_err();
        assert!(failed.swap(false, Ordering::AcqRel));
        let client = || guarded::<()>(&failed, || panic!("a client panics"));
        let panicked = std::thread::scope(|scope| scope.spawn(client).join().is_err());
        assert!(panicked && failed.load(Ordering::Acquire));
    }
}
