//! Scrubbing rereads all files, reports the damaged ones, and changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_store::disk::SimDisk;
use weir_store::{OpenOptions, Scrub, Store};

use crate::disks::{EMFILE, Gate, Op, PATIENCE, Rule};
use crate::world::{create, open, options, put_many, records};

/// Writes in calls of ten, so that there are many entries and log segments.
fn fill(store: &Store, from: u32, to: u32) {
    for first in (from..to).step_by(10) {
        let numbers = first..(first + 10).min(to);
        put_many(
            store,
            "t",
            numbers.map(|n| (format!("key-{}", n % 90), vec![n as u8; 3_000])),
        );
    }
}

fn contents(disk: &SimDisk) -> BTreeMap<String, Option<Vec<u8>>> {
    let paths = disk.files().into_iter();
    paths
        .map(|path| (path.clone(), disk.content(&path)))
        .collect()
}

/// Fills a store with a purged log, two snapshots and several blocks.
fn sample(disk: &SimDisk) -> Store {
    let store = open(Arc::new(disk.clone()));
    create(&store, "t");
    fill(&store, 0, 100);
    store.checkpoint().unwrap();
    fill(&store, 100, 200);
    store.checkpoint().unwrap();
    store
}

#[test]
fn a_round_reads_everything_and_changes_nothing() {
    let disk = SimDisk::new();
    let store = sample(&disk);
    let before = contents(&disk);
    let report = store.scrub(u64::MAX);
    assert!(
        report.complete && report.findings.is_empty(),
        "{:?}",
        report.findings
    );
    // Each record is in the log and in a topic.
    assert!(report.bytes > 2 * 200 * 3_000, "{}", report.bytes);
    assert_eq!(contents(&disk), before);
    let stats = store.stats();
    assert_eq!((stats.scrub_rounds, stats.damage), (1, 0));
    assert_eq!(stats.scrubbed_bytes, report.bytes);
}

#[test]
fn damage_in_each_kind_of_file_is_reported_once_and_not_changed() {
    let disk = SimDisk::new();
    let store = sample(&disk);
    let nth = |part: &str, nth: usize| {
        let paths = disk.files().into_iter();
        paths
            .filter(|path| path.starts_with(part))
            .nth(nth)
            .unwrap()
    };
    // The third log segment begins with a batch of records.
    let damaged = [nth("log/0", 2), nth("snapshots/", 0), nth("topics/", 0)];
    for path in &damaged {
        let byte = if path.starts_with("snap") { 530 } else { 6_000 };
        disk.flip(path, byte, 2);
    }
    let before = contents(&disk);
    for _ in 0..2 {
        let report = store.scrub(u64::MAX);
        let files: Vec<_> = report.findings.iter().map(|found| &found.file).collect();
        assert!(report.complete);
        assert_eq!(
            files,
            damaged.iter().collect::<Vec<_>>(),
            "{:?}",
            report.findings
        );
    }
    assert_eq!(contents(&disk), before);
    assert_eq!(store.stats().damage, 3);
    assert_eq!(store.damage().len(), 3);
    // The store continues to accept writes.
    fill(&store, 200, 210);
}

#[test]
fn a_lack_of_descriptors_is_not_reported_as_damage() {
    let disk = SimDisk::new();
    drop(sample(&disk));
    let gate = Gate::new(disk);
    let store = open(gate.disk());
    gate.rule(Op::Open, "snapshots/", Rule::Fail(EMFILE));
    let report = store.scrub(u64::MAX);
    assert!(!report.complete);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!((store.stats().scrub_rounds, store.stats().damage), (0, 0));
    gate.release();
    assert!(store.scrub(u64::MAX).complete);
}

#[test]
fn the_thread_starts_rounds_and_ends_with_the_store() {
    let disk = SimDisk::new();
    drop(sample(&disk));
    let gate = Gate::new(disk.clone());
    let often = OpenOptions {
        scrub: Some(Scrub {
            bytes_per_s: u64::MAX,
            every: Duration::ZERO,
        }),
        ..options()
    };
    let store = Store::open_disk(gate.disk(), &often).unwrap();
    let start = Instant::now();
    while store.stats().scrub_rounds < 3 {
        assert!(start.elapsed() < PATIENCE, "no rounds");
        std::thread::yield_now();
    }
    // A reader is served while a read of the scrubber is held.
    gate.rule(Op::Read, "snapshots/", Rule::HoldOne);
    gate.wait_held();
    assert_eq!(records(&store, "t").len(), 201);
    gate.release();
    store.close().unwrap();
    // A close ends a round that would take years.
    let slow = OpenOptions {
        scrub: Some(Scrub {
            bytes_per_s: 1,
            every: Duration::ZERO,
        }),
        ..options()
    };
    let store = Store::open_disk(gate.disk(), &slow).unwrap();
    store.close().unwrap();
}
