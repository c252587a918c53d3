//! `weir bench read`: measures reads of pages or of single records.

use std::time::Instant;

use clap::Args;
use twox_hash::XxHash3_64;
use weir::{ConsequenceOffset, ErrorCode, ReadFrom, Topic};

use super::{Bench, Load, Measurement, Measurements, join, share, sum};
use crate::report::{Failure, FailureContext};

/// Arguments of `weir bench read`.
#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    load: Load,
    /// Read single records at random offsets instead of pages
    #[arg(long)]
    single: bool,
}

pub(super) fn run(bench: &Bench<'_>, args: &ReadArgs) -> anyhow::Result<Measurement> {
    let load = &args.load;
    let failed = || format!("cannot read {}", load.topic);
    let topics: Vec<Topic> = (0..load.clients)
        .map(|_| bench.client()?.topic(&load.topic).failed(failed))
        .collect::<Result<_, _>>()?;
    let info = match topics.first() {
        Some(topic) => topic.try_info().failed(failed)?,
        None => None,
    };
    let info = info.ok_or_else(|| {
        Failure::new(ErrorCode::TopicUnknown, failed())
            .advise("write to it first: `weir bench write`")
    })?;
    let offsets = info.first.0.max(1)..=info.last.0;
    let started = Instant::now();
    let all = std::thread::scope(|scope| {
        let running: Vec<_> = (0..)
            .zip(&topics)
            .map(|(number, topic)| {
                let offsets = offsets.clone();
                scope.spawn(move || {
                    let messages = share(load.messages, load.clients, number);
                    if args.single {
                        single(bench, topic, number, messages, &offsets)
                    } else {
                        pages(bench, topic, messages)
                    }
                })
            })
            .collect();
        join(running)
    });
    let time = started.elapsed();
    let seen = sum(all)?;
    Ok(Measurement {
        verb: "read",
        clients: load.clients,
        batch: 1,
        window: 1,
        time,
        seen,
    })
}

fn pages(bench: &Bench<'_>, topic: &Topic, messages: u64) -> anyhow::Result<Measurements> {
    let failed = || format!("cannot read {}", topic.name());
    let mut seen = Measurements::default();
    let mut pages = topic.pages(ReadFrom::Start).failed(failed)?;
    while seen.messages < messages && !bench.is_over() {
        let started = Instant::now();
        let Some(page) = pages.next() else { break };
        let page = page.failed(failed)?;
        seen.latency.record(nanos(started));
        for record in &page {
            let record = record.failed(failed)?;
            if seen.messages == messages {
                break;
            }
            seen.messages += 1;
            seen.bytes += record.value.len() as u64;
        }
    }
    Ok(seen)
}

fn single(
    bench: &Bench<'_>,
    topic: &Topic,
    client: u64,
    messages: u64,
    offsets: &std::ops::RangeInclusive<u64>,
) -> anyhow::Result<Measurements> {
    let failed = || format!("cannot read {}", topic.name());
    let mut seen = Measurements::default();
    let span = (offsets.end() + 1).saturating_sub(*offsets.start()).max(1);
    for n in 0..messages {
        if bench.is_over() {
            break;
        }
        // Pseudo-random offsets, equal in each run.
        let hash = XxHash3_64::oneshot_with_seed(client, &n.to_le_bytes());
        let offset = ConsequenceOffset(offsets.start() + hash % span);
        let started = Instant::now();
        let found = topic.at(offset).failed(failed)?;
        seen.latency.record(nanos(started));
        // A compaction removes records, so an offset may have none.
        seen.messages += 1;
        seen.bytes += found.map_or(0, |value| value.value().len() as u64);
    }
    Ok(seen)
}

fn nanos(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
