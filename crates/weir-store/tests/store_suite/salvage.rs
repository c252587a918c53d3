//! Salvage creates a new store from the readable part of a damaged one, and does not change
//! the damaged store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use weir_store::{SalvageReport, SalvagedTopic, Store, StoreError, salvage_dry_run};

use crate::world::{create, keys, options, put_many, records};

/// Returns every file below a directory with its content, except the lock.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else if !path.ends_with("LOCK") {
                let content = std::fs::read(&path).unwrap();
                found.insert(path, content);
            }
        }
    }
    found
}

fn flip(path: &Path, byte: usize) {
    let mut content = std::fs::read(path).unwrap();
    content[byte] ^= 4;
    std::fs::write(path, content).unwrap();
}

/// Salvages after a dry run, which must return an equal report and write nothing.
fn salvage(source: &Path, target: &Path) -> Result<SalvageReport, StoreError> {
    let before = files(source);
    let dry = salvage_dry_run(source, None);
    assert_eq!(files(source), before, "a dry run only reads");
    assert!(!target.join("weir.id").exists());
    let report = weir_store::salvage(source, target, None);
    assert_eq!(files(source), before, "the source is only read");
    match (&dry, &report) {
        (Ok(dry), Ok(report)) => assert_eq!(dry, report),
        (Err(dry), Err(StoreError::NotEmpty { .. })) => assert!(dry.is_damage()),
        (Err(dry), Err(error)) => assert_eq!(dry.to_string(), error.to_string()),
        other => panic!("{other:?}"),
    }
    report
}

fn kept_range(first: u64, last: u64) -> Vec<SalvagedTopic> {
    let topic = "t".to_owned();
    vec![SalvagedTopic { topic, first, last }]
}

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

/// Returns the third log segment, which begins with a batch of records.
fn log_segment(directory: &Path) -> PathBuf {
    let names = std::fs::read_dir(directory.join("log")).unwrap();
    let mut paths: Vec<_> = names.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.remove(2)
}

#[test]
fn a_salvage_of_a_complete_log_ends_before_its_first_damage() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("old"), dir.path().join("new"));
    let store = Store::open(&source, &options()).unwrap();
    create(&store, "t");
    fill(&store, 0, 100);
    let all = records(&store, "t");
    store.close().unwrap();
    flip(&log_segment(&source), 6_000);
    assert!(Store::open(&source, &options()).unwrap_err().is_damage());
    let report = salvage(&source, &target).unwrap();
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    assert!(report.findings[0].file.starts_with("log/"));
    assert!(report.lost.is_empty());
    let store = Store::open(&target, &options()).unwrap();
    let found = records(&store, "t");
    assert!(
        found.len() > 1 && found.len() < all.len(),
        "{}",
        found.len()
    );
    assert_eq!(found, all[..found.len()]);
    assert_eq!(
        (store.applied(), store.digest()),
        (report.applied, report.digest)
    );
    assert_eq!(report.applied.0, found.len() as u64);
    assert!(!report.is_complete() && !report.log_complete);
    let last = report.applied.0;
    assert_eq!(report.kept, kept_range(1, last));
    // The blocks of the topic contain later records than the readable log.
    let [later] = report.lost_later.as_slice() else {
        panic!("{:?}", report.lost_later);
    };
    assert_eq!((later.topic.as_str(), later.first), ("t", last + 1));
    assert!(later.last <= all.len() as u64);
    fill(&store, 0, 10);
    store.close().unwrap();
    assert!(weir_store::verify(&target).unwrap().is_clean());
}

#[test]
fn a_damaged_block_of_a_purged_store_loses_only_its_records() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("old"), dir.path().join("new"));
    let store = Store::open(&source, &options()).unwrap();
    create(&store, "t");
    fill(&store, 0, 300);
    store.compact_log().unwrap();
    fill(&store, 300, 320);
    let (all, digest, applied) = (records(&store, "t"), store.digest(), store.applied());
    store.close().unwrap();
    let segment = source.join("topics/00000000/0000000001.seg");
    flip(&segment, 1_000);
    let report = salvage(&source, &target).unwrap();
    assert_eq!((report.applied, report.digest), (applied, digest));
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    let [lost] = report.lost.as_slice() else {
        panic!("{:?}", report.lost);
    };
    assert_eq!((lost.topic.as_str(), lost.first), ("t", 1));
    assert!(lost.last < 300);
    assert!(report.log_complete && !report.is_complete());
    assert_eq!(report.kept, kept_range(lost.last + 1, 321));
    let store = Store::open(&target, &options()).unwrap();
    let remaining: Vec<_> = all
        .into_iter()
        .filter(|record| record.offset > lost.last)
        .collect();
    assert!(remaining.len() > 20);
    assert_eq!(records(&store, "t"), remaining);
    // Every key was written again after the lost records.
    assert_eq!(keys(&store, "t").len(), 90);
    store.close().unwrap();
}

#[test]
fn a_damaged_snapshot_is_replaced_by_the_one_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("old"), dir.path().join("new"));
    let store = Store::open(&source, &options()).unwrap();
    create(&store, "t");
    fill(&store, 0, 30);
    store.compact_log().unwrap();
    fill(&store, 30, 60);
    let index = store.checkpoint().unwrap();
    let (all, digest) = (records(&store, "t"), store.digest());
    store.close().unwrap();
    flip(&source.join(format!("snapshots/{:020}.snap", index.0)), 530);
    let report = salvage(&source, &target).unwrap();
    assert_eq!((report.digest, report.lost.len()), (digest, 0));
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(report.kept, kept_range(1, 61));
    let store = Store::open(&target, &options()).unwrap();
    assert_eq!(records(&store, "t"), all);
}

#[test]
fn a_salvage_without_any_state_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("old"), dir.path().join("new"));
    let store = Store::open(&source, &options()).unwrap();
    create(&store, "t");
    let index = store.compact_log().unwrap().index;
    store.close().unwrap();
    flip(&source.join(format!("snapshots/{:020}.snap", index.0)), 530);
    assert!(salvage(&source, &target).unwrap_err().is_damage());
    assert!(!target.exists());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    std::fs::create_dir(&target).unwrap();
    std::fs::write(target.join("mine"), b"x").unwrap();
    let refused = salvage(&source, &target).unwrap_err();
    assert!(matches!(refused, StoreError::NotEmpty { .. }));
}
