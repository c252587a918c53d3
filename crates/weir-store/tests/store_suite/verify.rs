//! A check of a large store uses little memory, reports its progress, and lists a bounded
//! number of findings.
//!
//! The measured process is this test program; environment variables make it the checker.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use weir_core::limits::CALL_ITEMS_MAX;
use weir_store::disk::{Disk, SimDisk};
use weir_store::{
    Durability, FINDINGS_MAX, OpenOptions, Severity, Store, VerifyProgress, verify_with,
};

use crate::world::{create, options, put};

const DIRECTORY: &str = "WEIR_TEST_VERIFY_DIRECTORY";
const MEMORY_MAX: u64 = 256 << 20;
const KEYS: u64 = 100_000;
const KEY_BYTES: usize = 1000;

/// Returns the highest resident memory of this process so far, in bytes.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let mut words = line.unwrap().split_whitespace();
    words.nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn child_checks_a_store() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let mut last = VerifyProgress::default();
    let mut calls = 0;
    let report = verify_with(Path::new(&directory), None, &mut |progress| {
        assert!(progress.done_bytes >= last.done_bytes);
        last = progress;
        calls += 1;
    })
    .unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
    assert!(calls > 100, "{calls}");
    assert!(last.done_bytes >= report.bytes && last.total_bytes > report.bytes);
    println!("peak {}", peak_bytes());
}

/// Sends calls of `items` PUTs with long keys. Several calls are in flight.
fn fill(store: &Store, from: u64, to: u64, items: usize) {
    let numbers: Vec<u64> = (from..to).collect();
    let mut sent = std::collections::VecDeque::new();
    for part in numbers.chunks(items) {
        let keys: Vec<Vec<u8>> = part
            .iter()
            .map(|n| {
                let mut key = n.to_be_bytes().to_vec();
                key.resize(KEY_BYTES, 7);
                key
            })
            .collect();
        let puts: Vec<_> = keys.iter().map(|key| put("t", key, &[1; 1000])).collect();
        sent.push_back(store.propose(&puts).unwrap());
        if sent.len() > 16 {
            sent.pop_front().unwrap().wait().unwrap();
        }
    }
    for proposal in sent {
        proposal.wait().unwrap();
    }
}

#[test]
fn a_check_takes_little_memory_beside_the_state() {
    let dir = tempfile::tempdir().unwrap();
    let options = OpenOptions {
        log_segment_bytes: 64 << 20,
        // No entry is proven durable before the close.
        durability: Durability::Memory,
        ..options()
    };
    let store = Store::open(dir.path(), &options).unwrap();
    create(&store, "t");
    fill(&store, 0, KEYS - 20_000, CALL_ITEMS_MAX);
    store.checkpoint().unwrap();
    fill(&store, KEYS - 20_000, KEYS, 1);
    store.checkpoint().unwrap();
    store.close().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "verify::child_checks_a_store", "--nocapture"])
        .env(DIRECTORY, dir.path())
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{output}");
    let (_, peak) = output
        .split_once("peak ")
        .expect("the child prints its peak");
    let peak: u64 = peak.split_whitespace().next().unwrap().parse().unwrap();
    assert!(peak < MEMORY_MAX, "{} MiB", peak >> 20);
}

#[test]
fn a_report_lists_a_bounded_number_of_findings() {
    let disk = SimDisk::new();
    let store = Store::open_disk(Arc::new(disk.clone()), &options()).unwrap();
    create(&store, "t");
    store.close().unwrap();
    let more = 7;
    for number in 0..FINDINGS_MAX + more {
        disk.put(&format!("stray-{number}"), Vec::new());
    }
    // It is found after the stray files fill the list, and is more severe than they are.
    disk.put("topics/00000000/0000000099.seg", vec![1; 200]);
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let report = weir_store::verify_disk(&disk).unwrap();
    assert_eq!(report.findings.len(), FINDINGS_MAX);
    assert_eq!(report.left_out, more as u64 + 1);
    assert_eq!(report.findings[0].severity, Severity::Derived);
}
