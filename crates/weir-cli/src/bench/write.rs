//! `weir bench write`: measures writes.

use std::collections::VecDeque;
use std::time::Instant;

use clap::Args;
use weir::{Effect, Intention, Operation, Proposal};

use super::{Bench, Load, Measurement, Measurements, join, share, sum};
use crate::report::{FailureContext, OutcomeContext};
use crate::write::ensure;

/// Arguments of `weir bench write`.
#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    load: Load,
    /// Size of a value in bytes
    #[arg(short, long, default_value_t = 100, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=(64 << 20)))]
    bytes: u64,
    /// Messages in one call
    #[arg(long, default_value_t = 1, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batch: u64,
    /// Maximum calls in flight of a client
    #[arg(long, default_value_t = 1, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000))]
    window: u64,
}

pub(super) fn run(bench: &Bench<'_>, args: &WriteArgs) -> anyhow::Result<Measurement> {
    let load = &args.load;
    ensure(bench.caller, bench.weir, &load.topic, false)?;
    // The connections exist before the measured time starts.
    let clients: Vec<weir::Weir> = (0..load.clients)
        .map(|_| bench.client())
        .collect::<Result<_, _>>()?;
    let value = vec![b'x'; usize::try_from(args.bytes).unwrap_or(usize::MAX)];
    let started = Instant::now();
    let all = std::thread::scope(|scope| {
        let running: Vec<_> = (0..)
            .zip(&clients)
            .map(|(number, weir)| {
                let (value, messages) = (&value, share(load.messages, load.clients, number));
                scope.spawn(move || client(bench, args, weir, value, messages))
            })
            .collect();
        join(running)
    });
    let time = started.elapsed();
    let seen = sum(all)?;
    Ok(Measurement {
        verb: "write",
        clients: load.clients,
        batch: args.batch,
        window: args.window,
        time,
        seen,
    })
}

struct Call {
    proposal: Proposal,
    started: Instant,
}

fn client(
    bench: &Bench<'_>,
    args: &WriteArgs,
    weir: &weir::Weir,
    value: &[u8],
    messages: u64,
) -> anyhow::Result<Measurements> {
    let topic = args.load.topic.as_str();
    let failed = || format!("cannot write to {topic}");
    let one = Intention::new(topic, Operation::Put { key: b"", value });
    let mut seen = Measurements::default();
    let mut calls = VecDeque::new();
    // With a window of one call, a client does nothing else while it waits.
    let propose = match args.window {
        1 => weir::Weir::propose_inline,
        _ => weir::Weir::propose,
    };
    let mut left = messages;
    while left > 0 || !calls.is_empty() {
        if bench.is_over() {
            left = 0;
        }
        if left > 0 && (calls.len() as u64) < args.window {
            let count = args.batch.min(left);
            left -= count;
            let intentions = vec![one; usize::try_from(count).unwrap_or(1)];
            let started = Instant::now();
            let proposal = propose(weir, &intentions).failed(failed)?;
            calls.push_back(Call { proposal, started });
            // A completed call is measured at once, even if the window is not full.
            if !calls
                .front()
                .is_some_and(|call: &Call| call.proposal.is_done())
            {
                continue;
            }
        }
        let Some(call) = calls.pop_front() else {
            continue;
        };
        let outcomes = call.proposal.wait();
        let ns = u64::try_from(call.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let outcomes = outcomes.answered(failed, "measure again")?;
        seen.latency.record(ns);
        for outcome in outcomes.iter() {
            let commit = outcome.commit();
            if commit.is_some_and(|commit| commit.effect == Effect::Valid) {
                seen.messages += 1;
                seen.bytes += value.len() as u64;
            } else {
                seen.invalid += 1;
            }
        }
    }
    Ok(seen)
}
