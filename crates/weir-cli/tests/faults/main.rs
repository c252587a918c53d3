//! Clusters of real processes under faults: no acknowledged write is lost, repeated or misread.
//!
//! `make cluster-faults` runs 200 cycles, a normal test run six. A round is a cluster of three
//! nodes, or of five if its seed is odd. Its clients write histories while faults follow each
//! other. The seed determines the faults, but not the moments at which they reach the nodes. Needs
//! Linux: loopback addresses, `prlimit`, libfaketime.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::zombie_processes,
    missing_docs,
    reason = "a test may fail by panicking"
)]

mod clients;
mod history;
mod nemesis;
mod nodes;
#[path = "../support/ports.rs"]
mod ports;
mod proxy;
mod random;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::clients::Shared;
use crate::history::{Counts, MODELS};
use crate::nemesis::Fault;
use crate::nodes::Nodes;
use crate::random::Random;

/// Far longer than any step takes; only a hang reaches this limit.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Cycles of a normal test run. `WEIR_FAULT_CYCLES` sets another number.
const CYCLES: u64 = 6;
/// Cycles of one cluster.
const ROUND_CYCLES: u64 = 10;
/// Cycles in which each kind of fault must take effect at least once. A round has ten of eighteen
/// kinds.
const COMPLETE_CYCLES: u64 = 200;

fn env_number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().expect(name))
}

/// Runs a cluster through its faults. Returns its counts and the violations. Adds the faults that
/// took effect to `effective`.
fn round(
    place: &Path,
    checker: &Path,
    seed: u64,
    cycles: u64,
    effective: &mut BTreeSet<Fault>,
) -> (Counts, Vec<String>) {
    let mut random = Random(seed);
    let mut nodes = Nodes::start(place, if seed.is_multiple_of(2) { 3 } else { 5 });
    let at: Vec<_> = nodes.ids().into_iter().map(|id| nodes.at(id)).collect();
    let addresses: Vec<_> = nodes
        .ids()
        .into_iter()
        .map(|id| nodes.address(id))
        .collect();
    clients::prepare(&at[0]).unwrap();
    let shared = Shared::new();
    let threads = clients::start(&at, &shared, &mut random);
    let mut violations = Vec::new();
    for fault in Fault::order(cycles, &mut random) {
        let begun = Instant::now();
        if nemesis::inject(&mut nodes, fault, &mut random) {
            effective.insert(fault);
        } else {
            println!("seed {seed}: {fault:?} had no effect");
        }
        match nemesis::recover(&nodes) {
            Ok(took) => println!(
                "seed {seed}: {fault:?}, {:.1} s, then a write after {:.2} s",
                begun.elapsed().saturating_sub(took).as_secs_f32(),
                took.as_secs_f32()
            ),
            Err(why) => violations.push(format!("{fault:?}: {why}")),
        }
        if !violations.is_empty() {
            break;
        }
    }
    shared.is_over.store(true, Ordering::Relaxed);
    for thread in threads {
        if let Err(panic) = thread.join() {
            let text = panic.downcast_ref::<String>().cloned();
            violations.push(text.unwrap_or_else(|| "a client has panicked".to_owned()));
        }
    }
    violations.extend(nodes.wait_until_equal().err());
    let file = std::env::temp_dir().join(format!("weir-faults-{seed}.jsonl"));
    let (counts, wrong) = shared
        .history
        .verify(&addresses, &clients::TOPICS, checker, &file);
    violations.extend(wrong);
    for id in nodes.ids() {
        nodes.stop(id);
        let found = weir::verify(&place.join(format!("node-{id}"))).unwrap();
        if !found.is_clean() {
            violations.push(format!("node {id}: {:?}", found.findings));
        }
    }
    if violations.is_empty() {
        drop(std::fs::remove_file(file));
    }
    (Counts { cycles, ..counts }, violations)
}

#[test]
fn faults_cause_no_lost_repeated_or_misread_writes() {
    let tools = tempfile::tempdir().unwrap();
    let checker = history::build_checker(tools.path());
    let (cycles, first) = (
        env_number("WEIR_FAULT_CYCLES", CYCLES),
        env_number("WEIR_FAULT_SEED", 1),
    );
    let round_cycles = ROUND_CYCLES.min(cycles.div_ceil(2));
    let (mut sum, mut broken, mut left) = (Counts::default(), 0, cycles);
    let mut effective = BTreeSet::new();
    for seed in first.. {
        let round_cycles = left.min(round_cycles);
        let place = tempfile::tempdir().unwrap();
        let (counts, violations) =
            round(place.path(), &checker, seed, round_cycles, &mut effective);
        sum.add(counts);
        if !violations.is_empty() {
            broken += 1;
            for line in violations {
                println!("seed {seed}: {line}");
            }
            // The first of the two clusters of this command repeats the cycles.
            println!(
                "repeat: make cluster-faults SEED={seed} CYCLES={}",
                2 * round_cycles
            );
            println!("logs: {}", place.keep().display());
        }
        left -= round_cycles;
        if left == 0 {
            break;
        }
    }
    println!("{sum:?}");
    assert_eq!(broken, 0, "clusters that violated a promise");
    let has_all = sum.by_model.iter().all(|count| *count > 0);
    assert!(
        has_all || cycles < CYCLES,
        "{MODELS:?} have {:?} operations",
        sum.by_model
    );
    let missing: Vec<_> = Fault::ALL
        .iter()
        .filter(|fault| !effective.contains(*fault))
        .collect();
    assert!(
        missing.is_empty() || cycles < COMPLETE_CYCLES,
        "faults that never took effect: {missing:?}"
    );
}

/// Cargo also succeeds if no test has the name that the target passes.
#[test]
fn the_make_target_names_the_test_of_the_faults() {
    let makefile = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Makefile");
    let makefile = std::fs::read_to_string(makefile).unwrap();
    let name = std::any::type_name_of_val(&faults_cause_no_lost_repeated_or_misread_writes);
    let name = name.rsplit("::").next().unwrap();
    let filter = format!("--test faults -- {name} ");
    assert!(makefile.contains(&filter), "no target has `{filter}`");
}

/// Checks the checker: it must find wrong histories.
#[test]
fn wrong_histories_are_found() {
    let tools = tempfile::tempdir().unwrap();
    let checker = history::build_checker(tools.path());
    let wrong = [
        (
            "register",
            [
                ("put", 1, 0, "ok"),
                ("put", 2, 0, "ok"),
                ("get", 1, 0, "ok"),
            ],
        ),
        (
            "append",
            [
                ("append", 2, 0, "ok"),
                ("append", 3, 0, "ok"),
                ("last", 2, 0, "ok"),
            ],
        ),
        (
            "bank",
            [
                ("read", 0, 100, "ok"),
                ("transfer", 0, 1, "ok"),
                ("read", 1, 101, "ok"),
            ],
        ),
        (
            "queue",
            [
                ("add", 0, 0, "ok"),
                ("done", 0, 0, "ok"),
                ("claim", 0, 0, "ok"),
            ],
        ),
        (
            "lease",
            [
                ("take", 1, 0, "ok"),
                ("take", 2, 0, "ok"),
                ("use", 1, 0, "ok"),
            ],
        ),
    ];
    for (model, steps) in wrong {
        let line = |(at, (op, a, b, outcome)): (usize, (&str, i64, i64, &str))| {
            // For the bank: 5 from account 0 to 1, each with a balance of 100.
            let (c, d) = (5, (0x64_i64 << 32) | 0x64);
            let text = serde_json::json!({
                "model": model, "part": "p", "client": 1, "call": at * 2, "return": at * 2 + 1,
                "op": op, "a": a, "b": b, "c": c, "d": d, "outcome": outcome,
            });
            format!("{text}\n")
        };
        let all: String = steps.into_iter().enumerate().map(line).collect();
        let results = history::check(&checker, &all);
        assert_eq!(results, [format!("illegal {model} p 3")]);
        // Without its last step, each history is valid.
        let valid: String = steps.into_iter().take(2).enumerate().map(line).collect();
        assert_eq!(
            history::check(&checker, &valid),
            [format!("ok {model} p 2")]
        );
    }
}
