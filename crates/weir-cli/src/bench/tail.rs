//! `weir bench tail`: measures one writer and many listeners.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use weir::{ReadFrom, TopicReader};

use super::{Bench, Load, Measurement, Measurements, join, sum};
use crate::report::FailureContext;
use crate::write::ensure;

/// How often a listener checks whether the writer has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Bytes at the start of a value that contain the time of its call.
const STAMP_BYTES: usize = 8;

/// Arguments of `weir bench tail`.
#[derive(Debug, Args)]
pub(crate) struct TailArgs {
    #[command(flatten)]
    load: Load,
    /// Size of a value in bytes; the first 8 bytes contain the time of the write call
    #[arg(short, long, default_value_t = 100, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(8..=(64 << 20)))]
    bytes: u64,
    /// Messages per second [else each message after the verdict of the previous one]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: Option<u64>,
}

pub(super) fn run(bench: &Bench<'_>, args: &TailArgs) -> anyhow::Result<Measurement> {
    let load = &args.load;
    let failed = || format!("cannot read {}", load.topic);
    ensure(bench.caller, bench.weir, &load.topic, false)?;
    let end = bench.weir.topic(&load.topic).failed(failed)?.try_info();
    let end = end.failed(failed)?.map_or(0, |info| info.last.0);
    // All listeners start after the same record.
    let from = ReadFrom::After(weir::ConsequenceOffset(end));
    let readers: Vec<TopicReader> = (0..load.clients)
        .map(|_| {
            let topic = bench.client()?.topic(&load.topic).failed(failed)?;
            topic.reader(from).failed(failed)
        })
        .collect::<anyhow::Result<_>>()?;
    let ended = AtomicBool::new(false);
    let started = Instant::now();
    let (wrote, all) = std::thread::scope(|scope| {
        let ended = &ended;
        let running: Vec<_> = readers
            .into_iter()
            .map(|reader| scope.spawn(move || listen(bench, reader, load.messages, ended, started)))
            .collect();
        let wrote = write(bench, args, started);
        ended.store(true, Ordering::Release);
        (wrote, join(running))
    });
    let time = started.elapsed();
    let mut seen = sum(all)?;
    seen.invalid = wrote?;
    Ok(Measurement {
        verb: "tail",
        clients: load.clients,
        batch: 1,
        window: 1,
        time,
        seen,
    })
}

/// Writes the messages. Returns the number of verdicts that are not VALID.
fn write(bench: &Bench<'_>, args: &TailArgs, started: Instant) -> anyhow::Result<u64> {
    let failed = || format!("cannot write to {}", args.load.topic);
    let topic = bench.weir.topic(&args.load.topic).failed(failed)?;
    let size = usize::try_from(args.bytes).unwrap_or(usize::MAX);
    let mut value = vec![b'x'; size.max(STAMP_BYTES)];
    let mut invalid = 0;
    for n in 0..args.load.messages {
        if bench.is_over() {
            break;
        }
        if let Some(rate) = args.rate {
            let due = Duration::from_nanos(n.saturating_mul(1_000_000_000) / rate);
            std::thread::sleep(due.saturating_sub(started.elapsed()));
        }
        let stamp = nanos(started).to_le_bytes();
        if let Some(place) = value.get_mut(..STAMP_BYTES) {
            place.copy_from_slice(&stamp);
        }
        let verdict = topic.append(&value).failed(failed)?;
        invalid += u64::from(!verdict.is_valid());
    }
    Ok(invalid)
}

/// Reads the messages. Ends early once the writer has ended and no message arrives.
fn listen(
    bench: &Bench<'_>,
    mut reader: TopicReader,
    messages: u64,
    ended: &AtomicBool,
    started: Instant,
) -> anyhow::Result<Measurements> {
    let failed = || "cannot listen".to_owned();
    let mut seen = Measurements::default();
    while seen.messages < messages && !bench.is_over() {
        let had_ended = ended.load(Ordering::Acquire);
        if !reader.wait(Some(Instant::now() + POLL_INTERVAL)) {
            if had_ended {
                break;
            }
            continue;
        }
        while let Some(page) = reader.next_page().failed(failed)? {
            let now = nanos(started);
            for record in &page {
                let record = record.failed(failed)?;
                let stamp = record.value.first_chunk::<STAMP_BYTES>();
                // A value of another writer has no stamp of this run.
                let sent = stamp.map_or(u64::MAX, |stamp| u64::from_le_bytes(*stamp));
                if sent <= now {
                    seen.messages += 1;
                    seen.bytes += record.value.len() as u64;
                    seen.latency.record(now - sent);
                }
            }
        }
    }
    Ok(seen)
}

fn nanos(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
