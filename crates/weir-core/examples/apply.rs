//! Measures the cost of one PUT in the machine alone: nanoseconds per intention, for batches of
//! several sizes and keys of several kinds. The records are discarded. This is a sanity check after
//! a change of the machine; comparisons belong to the experiments.
//!
//! `cargo run --release -p weir-core --example apply [KIND [BATCH]]`
#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "an example that measures"
)]

use std::hint::black_box;
use std::sync::LazyLock;
use std::time::Instant;

use weir_core::batch::{Batch, BatchBuilder};
use weir_core::intention::{Intention, IntentionLimits};
use weir_core::record::ConsequenceSink;
use weir_core::{ClientId, Machine, Operation, Outcomes, Record, TopicId, TopicName, TopicOptions};

const PUTS: u64 = 1_000_000;
const VALUE: [u8; 100] = [0x61; 100];

/// Reads the records without storing them.
#[derive(Default)]
struct Sum(u64);

impl ConsequenceSink for Sum {
    fn topic(&mut self, _: TopicId, _: &TopicName) {}

    #[inline]
    fn record(&mut self, _: TopicId, record: &Record<'_>) {
        self.0 = self
            .0
            .wrapping_add(record.offset.0 ^ record.value.len() as u64);
    }
}

/// The bytes of the n-th key of a kind. An odd factor spreads the keys.
fn key(kind: &str, n: u64, out: &mut Vec<u8>) {
    out.clear();
    let number = match kind {
        "keyless" => return,
        "repeated" => n % 1000,
        _ => n,
    };
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    out.extend_from_slice(b"key:");
    out.extend_from_slice(&spread.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
}

/// All batches, encoded.
fn batches(kind: &str, size: u64, client: ClientId) -> Vec<Vec<u8>> {
    let (mut all, mut builder, mut bytes) = (Vec::new(), BatchBuilder::default(), Vec::new());
    for n in 0..PUTS {
        key(kind, n, &mut bytes);
        let put = Operation::Put {
            key: &bytes,
            value: &VALUE,
        };
        let mut intention = Intention::new("orders", put);
        if !client.is_none() {
            intention = intention.under(client, n + 1);
        }
        builder
            .push(&intention, &IntentionLimits::default())
            .unwrap();
        if builder.len() as u64 == size {
            all.push(builder.to_bytes(n));
            builder.clear(usize::MAX);
        }
    }
    all
}

fn create(machine: &mut Machine, sink: &mut Sum) {
    let options = TopicOptions::default();
    let mut builder = BatchBuilder::default();
    let create = Operation::Create { options: &options };
    let limits = IntentionLimits::default();
    builder
        .push(&Intention::new("orders", create), &limits)
        .unwrap();
    let bytes = builder.to_bytes(0);
    let mut outcomes = Outcomes::default();
    machine
        .apply(&Batch::read(&bytes, 1).unwrap(), sink, &mut outcomes)
        .unwrap();
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let is = |at: usize, name: &str| wanted.get(at).is_none_or(|wanted| wanted == name);
    if cfg!(debug_assertions) {
        println!("this is a debug build: ignore the figures");
    }
    for (client, session) in [
        (ClientId::NONE, "no session"),
        (ClientId([7; 16]), "session"),
    ] {
        for kind in ["distinct", "repeated", "keyless"]
            .into_iter()
            .filter(|k| is(0, k))
        {
            for size in [1, 100, 10_000_u64]
                .into_iter()
                .filter(|s| is(1, &s.to_string()))
            {
                let all = batches(kind, size, client);
                let mut rounds: Vec<f64> = (0..5).map(|_| round(&all)).collect();
                rounds.sort_by(f64::total_cmp);
                println!(
                    "{session:>10} {kind:>9} batches of {size:>6}: {:6.1} ns per put (best {:.1})",
                    rounds[2], rounds[0]
                );
            }
        }
    }
}

/// Nanoseconds per PUT in a new machine.
fn round(all: &[Vec<u8>]) -> f64 {
    let (mut machine, mut sink) = (Machine::new(9), Sum::default());
    create(&mut machine, &mut sink);
    let mut outcomes = Outcomes::default();
    let start = busy_ns();
    for bytes in all {
        outcomes.clear();
        let batch = Batch::read(bytes, 1).unwrap();
        machine.apply(&batch, &mut sink, &mut outcomes).unwrap();
    }
    let took = busy_ns() - start;
    assert_eq!(machine.applied().0, PUTS + 1);
    black_box(sink.0);
    took as f64 / PUTS as f64
}

/// CPU time of this process in nanoseconds, so that other processes disturb less. If the system
/// does not report it, the elapsed time.
fn busy_ns() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let text = std::fs::read_to_string("/proc/self/schedstat").ok();
    let busy = text.and_then(|text| text.split(' ').next()?.parse().ok());
    busy.unwrap_or_else(|| u64::try_from(START.elapsed().as_nanos()).unwrap())
}
