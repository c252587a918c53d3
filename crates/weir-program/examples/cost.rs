//! What a program adds to a PUT in the machine alone: nanoseconds of CPU per
//! intention, program minus plain topic, batches of 100 and 10,000, 100-byte
//! values, 20-byte keys of which there are 1,000. Run with `--release`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "an example that measures"
)]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use weir_core::intention::{Intention, IntentionLimits, Operation};
use weir_core::{
    Batch, BatchBuilder, ConsequenceSink, Machine, Outcomes, ProgramHost, Record, TopicId,
    TopicName, TopicOptions,
};
use weir_program::WasmtimeHost;

/// Key and value of the n-th put.
type Make<'a> = &'a dyn Fn(u64) -> (Vec<u8>, Vec<u8>);

const PUTS: u64 = 200_000;
const ROUNDS: usize = 5;

#[derive(Default)]
struct Sum(u64);

impl ConsequenceSink for Sum {
    fn topic(&mut self, _: TopicId, _: &TopicName) {}
    fn record(&mut self, _: TopicId, record: &Record<'_>) {
        self.0 += record.offset.0 + record.value.len() as u64;
    }
}

fn batches(size: u64, value: &dyn Fn(u64) -> (Vec<u8>, Vec<u8>)) -> Vec<Vec<u8>> {
    let mut builder = BatchBuilder::default();
    let mut all = Vec::new();
    for n in 0..PUTS {
        let (key, value) = &value(n);
        let put = Operation::Put { key, value };
        let limits = IntentionLimits::default();
        builder.push(&Intention::new("t", put), &limits).unwrap();
        if builder.len() as u64 == size {
            all.push(builder.to_bytes(n));
            builder.clear(usize::MAX);
        }
    }
    all
}

fn send(machine: &mut Machine, sink: &mut Sum, operation: Operation<'_>) {
    let mut builder = BatchBuilder::default();
    let limits = IntentionLimits::default();
    builder
        .push(&Intention::new("t", operation), &limits)
        .unwrap();
    let bytes = builder.to_bytes(0);
    let mut outcomes = Outcomes::default();
    let batch = Batch::read(&bytes, 1).unwrap();
    machine.apply(&batch, sink, &mut outcomes).unwrap();
}

/// Best of some rounds, nanoseconds per put, and the share that was VALID.
fn measure(host: &Arc<dyn ProgramHost>, code: &[u8], all: &[Vec<u8>]) -> f64 {
    let options = &TopicOptions::default();
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let mut machine = Machine::new(9).with_host(Some(Arc::clone(host)));
        let mut sink = Sum::default();
        let create = if code.is_empty() {
            Operation::Create { options }
        } else {
            Operation::CreateProgram {
                options,
                code,
                args: &[],
            }
        };
        send(&mut machine, &mut sink, create);
        let mut outcomes = Outcomes::default();
        let start = busy_ns();
        for bytes in all {
            outcomes.clear();
            let batch = Batch::read(bytes, 1).unwrap();
            machine.apply(&batch, &mut sink, &mut outcomes).unwrap();
        }
        best = best.min((busy_ns() - start) as f64 / PUTS as f64);
        let last = outcomes.iter().last().unwrap();
        assert!(last.commit().unwrap().reason.is_none(), "{last:?}");
        black_box(sink.0);
    }
    best
}

/// CPU time of this thread's process, as the system counts it.
fn busy_ns() -> u64 {
    let told = std::fs::read_to_string("/proc/self/schedstat").ok();
    let told = told.and_then(|told| told.split(' ').next()?.parse().ok());
    told.unwrap_or(0)
}

fn main() {
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs/prebuilt");
    let code = |name: &str| std::fs::read(folder.join(format!("{name}.wasm"))).unwrap();
    let plain = |n: u64| (format!("key-{:016}", n % 1000).into_bytes(), vec![7; 100]);
    let add = |n: u64| (format!("key-{:016}", n % 1000).into_bytes(), vec![0; 8]);
    let account = |n: u64| {
        let mut id = vec![0; 32];
        id[..8].copy_from_slice(&(n + 1).to_le_bytes());
        id
    };
    let give = |n: u64| {
        let to = account(n % 1000);
        (
            vec![0; 32],
            [&to[..], &1_i64.to_be_bytes(), &[0; 16]].concat(),
        )
    };
    let rows: [(&str, Make<'_>); 5] = [
        ("nothing", &plain),
        ("vanilla", &plain),
        ("vanilla-memory", &plain),
        ("counter", &add),
        ("balance", &give),
    ];
    for size in [1, 100, 10_000] {
        for (name, make) in rows {
            let all = batches(size, make);
            let base = measure(&host, &[], &all);
            let cost = measure(&host, &code(name), &all);
            println!(
                "batches of {size:>6}  {name:>15}: plain {base:6.1} ns, program {cost:7.1} ns, more {:7.1} ns",
                cost - base
            );
        }
    }
}
