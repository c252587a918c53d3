//! The producers of a workload. Each has a thread that sends, and one that waits for the verdicts.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use twox_hash::XxHash3_64;
use weir::{Intention, Operation, Outcome, Proposal, Weir};

use super::file::Keys;
use super::{POLL_INTERVAL, Run, TopicState};
use crate::bench::Measurements;
use crate::bench::histogram::Histogram;
use crate::report::{Failure, FailureContext, OutcomeContext};
use crate::verdict;

/// Number of different keys, as in the benchmark.
const KEYS: u64 = 10_000;

/// A producer: its connection, its topic and its number among all producers.
pub(super) struct Producer {
    weir: Weir,
    topic: usize,
    number: u64,
}

/// The figures of a producer.
#[derive(Default)]
pub(super) struct Published {
    pub(super) seen: Measurements,
    /// Time from when a message was due to the call.
    pub(super) delay: Histogram,
}

impl Published {
    pub(super) fn add(&mut self, other: &Self) {
        self.seen.add(&other.seen);
        self.delay.add(&other.delay);
    }
}

/// A message without a verdict.
struct Sent {
    due_ns: u64,
    called_ns: u64,
    proposal: Proposal,
}

/// The producers of all topics, with their connections.
pub(super) fn clients(run: &Run<'_>) -> anyhow::Result<Vec<Producer>> {
    // Consecutive messages go to different topics.
    let numbers = 0..run.plan.all_producers();
    let topics = (0..run.topics.len()).cycle();
    let client = |(number, topic)| {
        Ok(Producer {
            weir: run.bench.client()?,
            topic,
            number,
        })
    };
    numbers.zip(topics).map(client).collect()
}

/// Publishes the messages of a producer, and waits for their verdicts.
pub(super) fn produce(run: &Run<'_>, producer: &Producer) -> anyhow::Result<Published> {
    let Some(topic) = run.topics.get(producer.topic) else {
        return Ok(Published::default());
    };
    let window = usize::try_from(run.window).unwrap_or(usize::MAX);
    let (sender, receiver) = channel();
    // A permit is in this channel from before the call until after the verdict of its message.
    let (permits, releases) = sync_channel(window);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || await_verdicts(run, topic, &receiver, &releases));
        let sent = send(run, producer, topic, &permits, &sender);
        drop(sender);
        let published = waiting.join();
        let published = published.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // The error of a verdict ends the sending without an error.
        sent.and(published)
    })
}

fn send(
    run: &Run<'_>,
    producer: &Producer,
    topic: &TopicState,
    permits: &SyncSender<()>,
    sender: &Sender<Sent>,
) -> anyhow::Result<()> {
    let name = topic.name.as_str();
    let failed = || format!("cannot write to {name}");
    let mut number = producer.number;
    let mut message = Vec::new();
    for payload in run.plan.payloads.iter().cycle() {
        // Blocks while the window is full. Fails if the other thread has ended with an error.
        if permits.send(()).is_err() {
            break;
        }
        let Some(due_ns) = next_due(run, number) else {
            break;
        };
        message.clone_from(payload);
        stamp(&mut message, run.id, due_ns);
        let put = Operation::Put {
            key: &key(run.plan.keys, number),
            value: &message,
        };
        let called_ns = run.now_ns();
        let proposal = producer.weir.propose(&[Intention::new(name, put)]);
        let proposal = proposal.failed(failed)?;
        let sent = Sent {
            due_ns,
            called_ns,
            proposal,
        };
        if sender.send(sent).is_err() {
            break;
        }
        number += run.plan.all_producers();
    }
    Ok(())
}

/// Writes the id of the run and the time when the message is due to the start of a message.
pub(super) fn stamp(message: &mut [u8], id: u64, due_ns: u64) {
    let words = [id, due_ns].map(u64::to_le_bytes);
    for (place, word) in message.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word);
    }
}

/// Waits until message `number` is due, and returns that time; `None` after the last message, and
/// if the run is over.
fn next_due(run: &Run<'_>, number: u64) -> Option<u64> {
    let plan = run.plan;
    if plan.rate == 0 {
        let now = run.now_ns();
        let end = super::nanos(plan.warmup + plan.duration);
        // A producer sends at least one message.
        let is_first = number < plan.all_producers();
        return (!run.is_over() && (is_first || now < end)).then_some(now);
    }
    let due = plan.due_ns(number);
    while number < plan.total() && !run.is_over() {
        let early = Duration::from_nanos(due.saturating_sub(run.now_ns()));
        if early.is_zero() {
            return Some(due);
        }
        std::thread::sleep(early.min(POLL_INTERVAL));
    }
    None
}

/// The key of message `number`.
fn key(keys: Keys, number: u64) -> Vec<u8> {
    let number = match keys {
        Keys::None => return Vec::new(),
        Keys::RoundRobin => number % KEYS,
        Keys::Random => XxHash3_64::oneshot(&number.to_le_bytes()) % KEYS,
    };
    format!("key-{number}").into_bytes()
}

/// The error of a verdict that is not VALID.
fn failure(run: &Run<'_>, topic: &str, outcome: &Outcome) -> Option<Failure> {
    match outcome {
        Outcome::Committed(commit) | Outcome::Replayed(commit) => {
            verdict::failure_in(run.bench.weir, topic, commit)
        }
        Outcome::Refused { code, .. } => {
            Some(Failure::new(*code, format!("cannot write to {topic}")))
        }
    }
}

/// Waits for each verdict, and then removes the permit of the message from `releases`.
fn await_verdicts(
    run: &Run<'_>,
    topic: &TopicState,
    receiver: &Receiver<Sent>,
    releases: &Receiver<()>,
) -> anyhow::Result<Published> {
    let failed = || format!("cannot write to {}", topic.name);
    let early_end_ns = run.plan.early_end_ns();
    let mut published = Published::default();
    for sent in receiver {
        let outcomes = sent.proposal.wait().answered(failed, "measure again")?;
        let now_ns = run.now_ns();
        let failure = |outcome| failure(run, &topic.name, &outcome);
        if let Some(failure) = outcomes.iter().find_map(failure) {
            return Err(failure.into());
        }
        // The permit was sent before the message.
        let _permit = releases.recv();
        topic.published.fetch_add(1, Ordering::Release);
        if sent.due_ns < early_end_ns {
            count_early_message(run, now_ns);
            continue;
        }
        published.seen.messages += 1;
        published.seen.bytes += run.plan.message_bytes();
        published
            .seen
            .latency
            .record(now_ns.saturating_sub(sent.due_ns));
        published
            .delay
            .record(sent.called_ns.saturating_sub(sent.due_ns));
        run.published_ns.fetch_max(now_ns, Ordering::Relaxed);
    }
    Ok(published)
}

/// Counts a message of the warm-up or of the backlog. After the last one, consumers read.
fn count_early_message(run: &Run<'_>, now_ns: u64) {
    let count = run.early_published.fetch_add(1, Ordering::AcqRel) + 1;
    if run.plan.has_backlog && count == run.plan.early {
        run.backlog_ns.store(now_ns, Ordering::Relaxed);
    }
}
