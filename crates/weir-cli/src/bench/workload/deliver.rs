//! The consumers of a workload.

use std::sync::atomic::Ordering;
use std::time::Instant;

use weir::{ErrorCode, Group, GroupMode, GroupSetup, ReadFrom, TopicReader, WeirError, Work};

use super::{PATIENCE, POLL_INTERVAL, Run, TopicState};
use crate::bench::Measurements;
use crate::report::{Failure, FailureContext};

/// Maximum messages that a member of a group claims at a time.
const CLAIM_MAX: usize = 1_000;

/// A consumer: how it reads, and which subscription it belongs to.
pub(super) struct Consumer {
    source: Source,
    topic: usize,
    subscription: usize,
}

/// How a consumer gets messages.
enum Source {
    /// It follows the topic alone.
    Reader(Box<TopicReader>),
    /// It shares the messages with the other members of a group.
    Member(Box<Group>),
}

/// The consumers of all subscriptions, with their connections. They start after the newest record.
pub(super) fn clients(run: &Run<'_>) -> anyhow::Result<Vec<Consumer>> {
    let mut consumers = Vec::new();
    for (topic, state) in run.topics.iter().enumerate() {
        let failed = || format!("cannot read {}", state.name);
        let from = ReadFrom::After(state.start);
        for subscription in 0..state.delivered.len() {
            for _ in 0..run.plan.consumers {
                let client = run.bench.client()?.topic(&state.name).failed(failed)?;
                let source = if run.plan.consumers == 1 {
                    Source::Reader(Box::new(client.reader(from).failed(failed)?))
                } else {
                    let setup = GroupSetup {
                        start: state.start.0,
                        ..GroupSetup::new(GroupMode::Shared)
                    };
                    let group = client.group_with(&group_name(run, subscription), &setup);
                    let member = format!("member-{}", consumers.len());
                    Source::Member(Box::new(group.failed(failed)?.member(member)))
                };
                consumers.push(Consumer {
                    source,
                    topic,
                    subscription,
                });
            }
        }
    }
    Ok(consumers)
}

/// Reads until the subscription has all messages of its topic, or the run is over.
pub(super) fn consume(run: &Run<'_>, mut consumer: Consumer) -> anyhow::Result<Measurements> {
    let mut seen = Measurements::default();
    let Some(topic) = run.topics.get(consumer.topic) else {
        return Ok(seen);
    };
    let mut last = Instant::now();
    while !run.is_over() && !is_complete(run, topic, consumer.subscription) {
        if !run.reads() {
            std::thread::sleep(POLL_INTERVAL);
            last = Instant::now();
            continue;
        }
        let before = delivered(topic, consumer.subscription);
        receive_available(run, topic, &mut consumer, &mut seen)?;
        let has_ended = run.ended.load(Ordering::Acquire);
        if !has_ended || delivered(topic, consumer.subscription) > before {
            last = Instant::now();
        } else if last.elapsed() > PATIENCE {
            let (all, now) = (topic.published.load(Ordering::Acquire), before);
            let seconds = PATIENCE.as_secs();
            let why = format!("{now} of {all} messages arrived, and then none for {seconds} s");
            let what = format!("cannot read {}", topic.name);
            return Err(Failure::new(ErrorCode::Internal, what).because(why).into());
        }
    }
    Ok(seen)
}

/// The name of the group of a subscription. Each run has other groups.
fn group_name(run: &Run<'_>, subscription: usize) -> String {
    format!("bench-{:016x}-{subscription}", run.id)
}

/// Deletes the groups of the run.
pub(super) fn delete_groups(run: &Run<'_>) -> anyhow::Result<()> {
    if run.plan.consumers == 1 {
        return Ok(());
    }
    for state in &run.topics {
        let failed = || format!("cannot delete a group of {}", state.name);
        let topic = run.bench.weir.topic(&state.name).failed(failed)?;
        for subscription in 0..state.delivered.len() {
            let name = group_name(run, subscription);
            let mut group = topic.group(&name, GroupMode::Shared).failed(failed)?;
            // A repeated call reports that the group is absent.
            drop(group.delete().failed(failed)?);
        }
    }
    Ok(())
}

fn delivered(topic: &TopicState, subscription: usize) -> u64 {
    let count = topic.delivered.get(subscription);
    count.map_or(0, |count| count.load(Ordering::Acquire))
}

fn is_complete(run: &Run<'_>, topic: &TopicState, subscription: usize) -> bool {
    run.ended.load(Ordering::Acquire)
        && delivered(topic, subscription) >= topic.published.load(Ordering::Acquire)
}

/// Receives the messages that have arrived. Blocks for a moment if there are none.
fn receive_available(
    run: &Run<'_>,
    topic: &TopicState,
    consumer: &mut Consumer,
    seen: &mut Measurements,
) -> anyhow::Result<()> {
    let failed = || format!("cannot read {}", topic.name);
    let subscription = consumer.subscription;
    match &mut consumer.source {
        Source::Reader(reader) => {
            if !reader.wait(Some(Instant::now() + POLL_INTERVAL)) {
                return Ok(());
            }
            while let Some(page) = reader.next_page().failed(failed)? {
                let now_ns = run.now_ns();
                for record in &page {
                    let record = record.failed(failed)?;
                    receive(run, topic, subscription, record.value, now_ns, seen);
                }
            }
        }
        Source::Member(group) => {
            let works = group.claim(CLAIM_MAX, POLL_INTERVAL).failed(failed)?;
            let now_ns = run.now_ns();
            for work in &acknowledge(group, works).failed(failed)? {
                receive(run, topic, subscription, work.record().value, now_ns, seen);
            }
        }
    }
    Ok(())
}

/// Acknowledges messages. Returns those that no other member has claimed since.
fn acknowledge(group: &mut Group, mut works: Vec<Work>) -> Result<Vec<Work>, WeirError> {
    let lost = group.ack(&works)?;
    works.retain(|work| !lost.contains(&work.record().offset));
    Ok(works)
}

/// Counts a message of this run, and ignores any other record.
fn receive(
    run: &Run<'_>,
    topic: &TopicState,
    subscription: usize,
    value: &[u8],
    now_ns: u64,
    seen: &mut Measurements,
) {
    let Some(due_ns) = due_ns(value, run.id) else {
        return;
    };
    if let Some(count) = topic.delivered.get(subscription) {
        count.fetch_add(1, Ordering::AcqRel);
    }
    if due_ns >= run.plan.early_end_ns() {
        seen.messages += 1;
        seen.bytes += value.len() as u64;
        seen.latency.record(now_ns.saturating_sub(due_ns));
        run.delivered_ns.fetch_max(now_ns, Ordering::Relaxed);
        return;
    }
    let count = run.early_delivered.fetch_add(1, Ordering::AcqRel) + 1;
    if run.plan.has_backlog && count == run.plan.early * run.plan.subscriptions {
        run.drained_ns.store(now_ns, Ordering::Relaxed);
    }
}

/// When a message of the run `id` was due; `None` for any other record.
fn due_ns(value: &[u8], id: u64) -> Option<u64> {
    let (of_run, rest) = value.split_first_chunk()?;
    let due = rest.first_chunk()?;
    (u64::from_le_bytes(*of_run) == id).then_some(u64::from_le_bytes(*due))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use std::time::Duration;

    use weir::Weir;

    use super::*;
    use crate::bench::workload::publish::stamp;

    #[test]
    fn only_messages_of_the_run_are_counted() {
        let mut message = [9; 20];
        stamp(&mut message, 7, 1_000);
        assert_eq!(due_ns(&message, 7), Some(1_000));
        assert_eq!(due_ns(&message, 8), None);
        assert_eq!(due_ns(&message[..15], 7), None);
        assert_eq!(message[16..], [9; 4]);
    }

    #[test]
    fn a_redelivered_message_counts_for_the_member_that_acknowledges_it() {
        let dir = tempfile::tempdir().unwrap();
        let weir = Weir::open(dir.path()).unwrap();
        let topic = weir.topic("t").unwrap();
        topic.ensure().unwrap();
        topic.append("a").unwrap().ensure_valid().unwrap();
        topic.append("b").unwrap().ensure_valid().unwrap();
        let member = |name: &str| topic.group("g", GroupMode::Shared).unwrap().member(name);
        let (mut one, mut two) = (member("one"), member("two"));
        let before = one.claim(CLAIM_MAX, Duration::ZERO).unwrap();
        assert_eq!(before.len(), 2);
        one.nack(&before[..1], Duration::ZERO, "").unwrap();
        let again = two.claim(CLAIM_MAX, PATIENCE).unwrap();
        assert_eq!((again.len(), again[0].attempts()), (1, 2));
        let values = |works: &[Work]| -> Vec<Vec<u8>> {
            let values = works.iter().map(|work| work.record().value.to_vec());
            values.collect()
        };
        let kept = acknowledge(&mut one, before).unwrap();
        assert_eq!(values(&kept), [b"b"]);
        let kept = acknowledge(&mut two, again).unwrap();
        assert_eq!(values(&kept), [b"a"]);
        weir.close().unwrap();
    }
}
