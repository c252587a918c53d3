//! Chapters "topics", "write" and "listen": writes the earthquakes as events.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use serde_json::{Value, json};
use weir::{ClientId, ConsequenceOffset, Intention, Operation, ReadFrom, RecordKind, Weir};

use super::facts::{Facts, seconds};
use super::output::{DemoOutput, count, rate, time};
use super::quakes::{Quake, Quakes, topic};

/// Concurrent sessions that write.
const WRITERS: usize = 4;
/// Events in one call of a writer.
const BATCH_EVENTS: usize = 10;
/// Minimum magnitude of the earthquakes that are printed when they arrive.
const STRONG: f64 = 5.5;
/// Characters of a place that are shown.
const PLACE_CHARS: usize = 50;
/// Pause of a writer after each call when people watch.
const WATCHED_PAUSE: Duration = Duration::from_millis(80);
/// Maximum wait of a listener for the next record.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Creates a topic for each network.
pub(super) fn topics(
    output: &mut DemoOutput,
    facts: &mut Facts,
    weir: &Weir,
    quakes: &Quakes,
) -> anyhow::Result<()> {
    output.step("topics", |_| {
        for (network, _) in quakes.networks() {
            let name = topic(network);
            ensure!(weir.topic(&name)?.ensure()?, "{name} existed before");
        }
        let codes = quakes.codes();
        facts.insert("topics".into(), codes.len().into());
        let line = format!(
            "{} topics, one for each seismic network: {}",
            codes.len(),
            codes.join(" ")
        );
        Ok((line, ()))
    })
}

/// Writes all earthquakes while a listener follows each topic. Prints the strong ones when they
/// arrive.
pub(super) fn quakes(
    output: &mut DemoOutput,
    facts: &mut Facts,
    weir: &Weir,
    quakes: &Quakes,
) -> anyhow::Result<()> {
    let before = weir.store()?.stats();
    let (delivered, shown_live) = output.step("write", |output| {
        let total = quakes.all().len() as u64;
        let bar = output.bar("writing", total);
        let written = AtomicU64::new(0);
        let (sender, received) = mpsc::channel();
        let watched = output.is_watched();
        output
            .print_line("              live, the strong earthquakes that the listeners receive:")?;
        let (latencies, delivered, took, shown_live) = thread::scope(|scope| {
            let listeners: Vec<_> = quakes
                .networks()
                .map(|(network, expected)| {
                    let sender = sender.clone();
                    scope.spawn(move || listen(weir, &topic(network), expected, &sender))
                })
                .collect();
            drop(sender);
            let start = Instant::now();
            let writers: Vec<_> = shares(quakes)
                .into_iter()
                .zip(1..)
                .map(|(share, id)| {
                    let (bar, written) = (&bar, &written);
                    let interrupt = output.interrupt();
                    scope.spawn(move || {
                        let latencies = write(weir, client(id), &share, |n| {
                            bar.inc(n);
                            written.fetch_add(n, Ordering::Relaxed);
                            if watched && !interrupt.is_requested() {
                                interrupt.pause(WATCHED_PAUSE);
                            }
                        })?;
                        Ok((latencies, start.elapsed()))
                    })
                })
                .collect();
            let mut shown_live = 0;
            // Ends when the last listener ends.
            for line in received {
                shown_live += u64::from(written.load(Ordering::Relaxed) < total);
                bar.suspend(|| output.print_line(&line))?;
            }
            let (mut latencies, mut took) = (Vec::new(), Duration::ZERO);
            for writer in writers {
                let (of_writer, until) = join(writer)?;
                latencies.extend(of_writer);
                took = took.max(until);
            }
            let mut delivered = 0;
            for listener in listeners {
                delivered += join(listener)?;
            }
            Ok::<_, anyhow::Error>((latencies, delivered, took, shown_live))
        })?;
        bar.finish_and_clear();
        let events = written.load(Ordering::Relaxed);
        ensure!(
            events == total,
            "{events} of {total} events were acknowledged"
        );
        let syncs = weir.store()?.stats().syncs - before.syncs;
        let (p50, p99) = percentiles(latencies.clone());
        // The pauses for people make the rate meaningless.
        let speed = if watched {
            String::new()
        } else {
            format!(" at {}/s", count(rate(events, took)))
        };
        let (p50_text, p99_text) = (time(p50), time(p99));
        let (written, calls) = (count(events), latencies.len());
        let line = format!(
            "{written} events written by {WRITERS} writers{speed}: {calls} calls in {syncs} syncs, \
             commit latency p50 {p50_text}, p99 {p99_text}",
        );
        facts.insert(
            "write".into(),
            json!({
                "events": events,
                "writers": WRITERS,
                "seconds": seconds(took),
                "events_per_s": rate(events, took),
                "calls": calls,
                "syncs": syncs,
                "commit_p50_s": seconds(p50),
                "commit_p99_s": seconds(p99),
            }),
        );
        Ok((line, (delivered, shown_live)))
    })?;
    output.step("listen", |_| {
        let listeners = quakes.networks().count();
        facts.insert(
            "listen".into(),
            json!({"listeners": listeners, "records": delivered, "shown_while_writing": shown_live}),
        );
        let line = format!(
            "{listeners} listeners, one per topic, received {} records meanwhile: in order, each once",
            count(delivered),
        );
        Ok((line, ()))
    })
}

/// The earthquakes of each writer, oldest first. Each network goes to one writer; writers get
/// networks of similar total size.
fn shares(quakes: &Quakes) -> Vec<Vec<Quake>> {
    let mut networks: Vec<&[Quake]> = quakes.networks().map(|(_, quakes)| quakes).collect();
    networks.sort_by_key(|quakes| std::cmp::Reverse(quakes.len()));
    let mut shares = vec![Vec::new(); WRITERS];
    for network in networks {
        if let Some(least) = shares
            .iter_mut()
            .min_by_key(|share: &&mut Vec<_>| share.len())
        {
            least.extend_from_slice(network);
        }
    }
    for share in &mut shares {
        share.sort_unstable_by_key(|quake| quake.time_ms);
    }
    shares
}

/// Writes a share in batches, and waits for each batch. Returns the time of each batch.
fn write(
    weir: &Weir,
    client: ClientId,
    share: &[Quake],
    answered: impl Fn(u64),
) -> anyhow::Result<Vec<Duration>> {
    let mut session = weir.session(client);
    let mut latencies = Vec::new();
    for quakes in share.chunks(BATCH_EVENTS) {
        let topics: Vec<String> = quakes.iter().map(Quake::topic).collect();
        let puts: Vec<Intention<'_>> = quakes
            .iter()
            .zip(&topics)
            .map(|(quake, topic)| {
                let operation = Operation::Put {
                    key: quake.id.as_bytes(),
                    value: quake.bytes,
                };
                Intention::new(topic, operation)
            })
            .collect();
        let start = Instant::now();
        let verdicts = session.execute(&puts)?;
        latencies.push(start.elapsed());
        for (verdict, quake) in verdicts.iter().zip(quakes) {
            ensure!(
                verdict.is_valid(),
                "{} got the verdict {}",
                quake.id,
                verdict.effect().name()
            );
        }
        answered(verdicts.len() as u64);
    }
    Ok(latencies)
}

/// Follows a topic from its start until all expected records have arrived, and sends a line for
/// each strong earthquake. Returns the number of records.
fn listen(
    weir: &Weir,
    name: &str,
    expected: &[Quake],
    sender: &Sender<String>,
) -> anyhow::Result<u64> {
    let topic = weir.topic(name)?;
    let mut wanted = expected.iter();
    let mut last = 0;
    for page in topic.follow(ReadFrom::Start, TIMEOUT)? {
        for record in &page? {
            let record = record?;
            let offset = record.offset.0;
            ensure!(
                offset == last + 1,
                "the listener of {name} received offset {offset} after {last}"
            );
            last = offset;
            if record.kind == RecordKind::Create {
                continue;
            }
            let quake = wanted
                .next()
                .with_context(|| format!("the listener of {name} received one record too many"))?;
            ensure!(
                record.key == quake.id.as_bytes() && record.value == quake.bytes,
                "the listener of {name} did not receive {} at offset {offset}",
                quake.id
            );
            if quake.magnitude >= STRONG {
                // The receiver no longer exists if the chapter failed.
                let _ = sender.send(shown(name, record.value)?);
            }
        }
        if wanted.len() == 0 {
            break;
        }
    }
    let missing = wanted.len();
    ensure!(
        missing == 0,
        "the listener of {name} waits for {missing} more records"
    );
    let mut rest = topic.pages(ReadFrom::After(ConsequenceOffset(last)))?;
    ensure!(
        rest.next().is_none(),
        "{name} has records that no writer wrote"
    );
    Ok(last)
}

/// A line about an earthquake, from a received record.
fn shown(topic: &str, record: &[u8]) -> anyhow::Result<String> {
    let quake: Value = serde_json::from_slice(record)?;
    let properties = &quake["properties"];
    let magnitude = properties["mag"].as_f64().context("no magnitude")?;
    let place = properties["place"].as_str().context("no place")?;
    let place: String = place.chars().take(PLACE_CHARS).collect();
    Ok(format!("                {magnitude:.1}  {topic}  {place}"))
}

/// The result of a thread of this chapter.
pub(super) fn join<T>(thread: ScopedJoinHandle<'_, anyhow::Result<T>>) -> anyhow::Result<T> {
    thread
        .join()
        .map_err(|_| anyhow!("a thread of the demo panicked"))?
}

/// A client id of the demo.
pub(super) fn client(number: u8) -> ClientId {
    let mut id = *b"weir demo writer";
    id[15] = number;
    ClientId(id)
}

/// Median and 99th percentile (nearest rank).
fn percentiles(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    let rank = |percent: usize| {
        let rank = (times.len() * percent).div_ceil(100).max(1);
        times.get(rank - 1).copied().unwrap_or_default()
    };
    (rank(50), rank(99))
}
