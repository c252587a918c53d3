//! Chapter "load": the throughput under load.

use std::collections::VecDeque;
use std::thread;
use std::time::Instant;

use anyhow::ensure;
use serde_json::json;
use weir::{Intention, Operation, Weir};

use super::facts::{Facts, seconds};
use super::output::{DemoOutput, bytes, check_interrupt, count, rate};
use super::write::{client, join};
use crate::interrupt::Interrupt;

/// The topic of the load.
const TOPIC: &str = "load";
/// Concurrent sessions that write.
const WRITERS: u64 = 4;
/// Events in one call.
const BATCH_EVENTS: u64 = 100;
/// Bytes of a value.
const VALUE_BYTES: usize = 100;
/// Maximum number of pending calls of a writer.
const CALLS_IN_FLIGHT_MAX: usize = 16;

/// Writes `events` events, a multiple of [`WRITERS`] times [`BATCH_EVENTS`].
pub(super) fn run(
    output: &mut DemoOutput,
    facts: &mut Facts,
    weir: &Weir,
    events: u64,
) -> anyhow::Result<()> {
    output.step("load", |output| {
        let bar = output.bar("loading", events);
        ensure!(weir.topic(TOPIC)?.ensure()?, "the topic existed already");
        let before = weir.store()?.stats();
        let start = Instant::now();
        thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let bar = &bar;
                    let share = events / WRITERS;
                    let interrupt = output.interrupt();
                    scope.spawn(move || write(weir, writer, share, interrupt, |n| bar.inc(n)))
                })
                .collect();
            writers.into_iter().try_for_each(join)
        })?;
        let took = start.elapsed();
        bar.finish_and_clear();
        let after = weir.store()?.stats();
        let syncs = after.syncs - before.syncs;
        let batches = after.batches - before.batches;
        let topic = weir.topic(TOPIC)?.info();
        let stored = topic.as_ref().map_or(0, |topic| topic.bytes);
        let keys = topic.as_ref().map_or(0, |topic| topic.keys);
        ensure!(keys == events, "{keys} keys for {events} events");
        facts.insert(
            "load".into(),
            json!({"events": events, "value_bytes": VALUE_BYTES, "writers": WRITERS,
                   "seconds": seconds(took), "events_per_s": rate(events, took),
                   "batches": batches, "syncs": syncs, "topic_bytes": stored}),
        );
        let line = format!(
            "{} events of {VALUE_BYTES} bytes at {} events/s: {syncs} syncs, {} in the topic",
            count(events),
            count(rate(events, took)),
            bytes(stored),
        );
        Ok((line, ()))
    })
}

fn write(
    weir: &Weir,
    writer: u64,
    events: u64,
    interrupt: &Interrupt,
    answered: impl Fn(u64),
) -> anyhow::Result<()> {
    let mut session = weir.session(client(200 + u8::try_from(writer)?));
    let value = [b'x'; VALUE_BYTES];
    let mut in_flight = VecDeque::new();
    let wait = |pending: weir::Pending| -> anyhow::Result<()> {
        let mut n = 0;
        for run in pending.into_proposal().wait()?.runs() {
            let valid = run
                .outcome
                .commit()
                .is_some_and(|commit| commit.records == 1);
            ensure!(valid, "an event got the outcome {:?}", run.outcome);
            n += u64::from(run.count);
        }
        answered(n);
        Ok(())
    };
    let mut next = 0;
    while next < events {
        check_interrupt(interrupt)?;
        let end = (next + BATCH_EVENTS).min(events);
        let keys: Vec<String> = (next..end).map(|n| format!("{writer}-{n:08}")).collect();
        let puts: Vec<Intention<'_>> = keys
            .iter()
            .map(|key| {
                let key = key.as_bytes();
                Intention::new(TOPIC, Operation::Put { key, value: &value })
            })
            .collect();
        in_flight.push_back(session.send(&puts)?);
        if in_flight.len() > CALLS_IN_FLIGHT_MAX
            && let Some(oldest) = in_flight.pop_front()
        {
            wait(oldest)?;
        }
        next = end;
    }
    in_flight.into_iter().try_for_each(wait)
}
