//! The producers of a workload. Each has a thread that sends, and one that waits for the verdicts.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use twox_hash::XxHash3_64;
use weir::{Effect, ErrorCode, Intention, Operation, Proposal, Weir};

use super::file::Keys;
use super::{Run, TopicState};
use crate::bench::Measurements;
use crate::bench::histogram::Histogram;
use crate::report::{Failure, FailureContext, OutcomeContext};

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
    let (sender, receiver) = sync_channel(window);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || settle(run, topic, &receiver));
        let sent = send(run, producer, topic, &sender);
        drop(sender);
        let settled = waiting.join();
        let settled = settled.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // The error of a verdict ends the sending without an error.
        sent.and(settled)
    })
}

fn send(
    run: &Run<'_>,
    producer: &Producer,
    topic: &TopicState,
    sender: &SyncSender<Sent>,
) -> anyhow::Result<()> {
    let name = topic.name.as_str();
    let failed = || format!("cannot write to {name}");
    let mut number = producer.number;
    let mut payloads = run.plan.payloads.clone();
    let mut turns = (0..payloads.len()).cycle();
    while let Some(due_ns) = next_due(run, number) {
        let value = turns.next().and_then(|turn| payloads.get_mut(turn));
        let Some(value) = value else { break };
        if let Some(place) = value.first_chunk_mut() {
            *place = due_ns.to_le_bytes();
        }
        let key = key(run.plan.keys, number);
        let put = Operation::Put { key: &key, value };
        let called_ns = run.now_ns();
        let proposal = producer.weir.propose(&[Intention::new(name, put)]);
        let proposal = proposal.failed(failed)?;
        let sent = Sent {
            due_ns,
            called_ns,
            proposal,
        };
        if sender.send(sent).is_err() {
            return Ok(());
        }
        number += run.plan.all_producers();
    }
    Ok(())
}

/// Waits until message `number` is due, and returns that time; `None` after the last message, and
/// after an interrupt.
fn next_due(run: &Run<'_>, number: u64) -> Option<u64> {
    let plan = run.plan;
    if run.bench.is_over() {
        return None;
    }
    if plan.rate == 0 {
        let now = run.now_ns();
        let end = super::nanos(plan.warmup + plan.duration);
        // A producer sends at least one message.
        let is_first = number < plan.all_producers();
        return (is_first || now < end).then_some(now);
    }
    if number >= plan.total() {
        return None;
    }
    let due = plan.due_ns(number);
    let early = due.saturating_sub(run.now_ns());
    if early > 0 {
        std::thread::sleep(Duration::from_nanos(early));
    }
    Some(due)
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

/// Waits for each verdict.
fn settle(
    run: &Run<'_>,
    topic: &TopicState,
    receiver: &Receiver<Sent>,
) -> anyhow::Result<Published> {
    let failed = || format!("cannot write to {}", topic.name);
    let early_end_ns = run.plan.early_end_ns();
    let mut published = Published::default();
    for sent in receiver {
        let outcomes = sent.proposal.wait().answered(failed, "measure again")?;
        let now_ns = run.now_ns();
        let is_valid = outcomes.iter().all(|outcome| {
            let commit = outcome.commit();
            commit.is_some_and(|commit| commit.effect == Effect::Valid)
        });
        if !is_valid {
            let failure = Failure::new(ErrorCode::BadRequest, failed());
            return Err(failure.because("a message was not VALID").into());
        }
        topic.published.fetch_add(1, Ordering::Release);
        if sent.due_ns < early_end_ns {
            early(run, now_ns);
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

/// Counts a message of the warm-up or of the backlog. After the last one, consumers may read.
fn early(run: &Run<'_>, now_ns: u64) {
    let count = run.early_published.fetch_add(1, Ordering::AcqRel) + 1;
    if run.plan.has_backlog && count == run.plan.early {
        run.backlog_ns.store(now_ns, Ordering::Relaxed);
        run.reads.store(true, Ordering::Release);
    }
}
