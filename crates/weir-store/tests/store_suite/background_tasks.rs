//! Snapshots, compaction of the log and of topics, and backup: none of them changes the
//! contents of a store.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Instant;

use weir_core::intention::{Intention, Operation};
use weir_core::{ClientId, ConsequenceOffset, RecordKind, TopicOptions, TxnOp};
use weir_store::disk::{FileDisk, SimDisk};
use weir_store::{OpenOptions, Store, StoreError};

use crate::disks::{Gate, Op, PATIENCE, Rule};
use crate::model::{Expected, script, with_intentions};
use crate::world::{
    CLIENT, SplitMix, create, create_with, execute, keys, latest, open, options, put, put_many,
    records, state,
};

fn delete<'a>(topic: &'a str, key: &'a [u8]) -> Intention<'a> {
    Intention::new(topic, Operation::Delete { key })
}

fn fill(store: &Store, topic: &str, from: u64, to: u64) {
    let items = (from..to).map(|n| (format!("key-{}", n % 40), [n as u8; 100]));
    put_many(store, topic, items);
}

#[test]
fn a_snapshot_and_the_log_after_it_equal_the_whole_log() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    let (items, _) = script(200, 60);
    let expected = Expected::compute(items);
    let half = expected.items.len() / 2;
    let send = |store: &Store, items: &[crate::model::Item]| {
        with_intentions(items, |i| store.propose(i))
            .unwrap()
            .wait()
            .unwrap();
    };
    send(&store, &expected.items[..half]);
    store.checkpoint().unwrap();
    send(&store, &expected.items[half..]);
    let (wanted, digest) = (state(&store), store.digest());
    assert_eq!(&wanted, expected.states.last().unwrap());
    store.close().unwrap();
    let log_only = disk.killed();
    for path in log_only.files() {
        if !path.starts_with("log/") && path != "weir.id" {
            log_only.take(&path);
        }
    }
    let with = open(Arc::new(disk));
    let without = open(Arc::new(log_only));
    assert!(with.report().snapshot.is_some() && without.report().snapshot.is_none());
    assert!(with.report().replayed_intentions < without.report().replayed_intentions);
    for store in [&with, &without] {
        assert_eq!(store.digest(), digest);
        assert_eq!(state(store), wanted);
    }
    for (item, commit) in expected.items.iter().zip(&expected.commits) {
        for store in [&with, &without] {
            assert_eq!(
                store.outcome(item.client, item.nonce).as_ref(),
                Some(commit)
            );
        }
    }
}

#[test]
fn snapshots_of_equal_states_have_equal_bytes_for_all_seeds() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    create(&store, "t");
    fill(&store, "t", 0, 500);
    store.close().unwrap();
    let mut bytes = Vec::new();
    for seed in [1, 2, u64::MAX] {
        let copy = disk.killed();
        let seeded = OpenOptions {
            seed: Some(seed),
            ..options()
        };
        let store = Store::open_disk(Arc::new(copy.clone()), &seeded).unwrap();
        let index = store.checkpoint().unwrap();
        bytes.push(
            copy.content(&format!("snapshots/{:020}.snap", index.0))
                .unwrap(),
        );
    }
    assert!(bytes[0] == bytes[1] && bytes[1] == bytes[2]);
}

#[test]
fn snapshots_are_written_as_the_log_grows() {
    let gate = Gate::new(SimDisk::new());
    let often = OpenOptions {
        snapshot_log_bytes: 20_000,
        ..options()
    };
    let store = Store::open_disk(gate.disk(), &often).unwrap();
    create(&store, "t");
    fill(&store, "t", 0, 1_000);
    let before = state(&store);
    store.close().unwrap();
    assert!(
        gate.count(Op::Rename, "snapshots/") >= 1,
        "about 150 KB of log"
    );
    let store = open(gate.disk());
    assert!(store.report().snapshot.is_some());
    assert!(store.report().replayed_intentions < 1_001);
    assert_eq!(state(&store), before);
    // The count towards the next snapshot continues after a kill.
    let log = store.report().replayed_intentions;
    drop(store);
    let store = Store::open_disk(gate.disk(), &often).unwrap();
    fill(&store, "t", 0, 250);
    store.close().unwrap();
    let store = open(gate.disk());
    assert!(store.report().replayed_intentions < log + 250);
}

#[test]
fn a_due_checkpoint_is_written_after_the_current_one() {
    const DUE: u64 = 200_000;
    let gate = Gate::new(SimDisk::new());
    let often = OpenOptions {
        snapshot_log_bytes: DUE,
        ..options()
    };
    let store = Store::open_disk(gate.disk(), &often).unwrap();
    create(&store, "t");
    let snapshots = || store.stats().snapshots;
    gate.rule(Op::Rename, "snapshots/", Rule::HoldOne);
    fill(&store, "t", 0, 2_000);
    gate.wait_held();
    // The log is long enough for the next snapshot, which cannot begin yet.
    fill(&store, "t", 2_000, 4_000);
    assert_eq!(snapshots(), 0);
    gate.release();
    // The next snapshot begins at a write after the first one has ended, long before the
    // log has grown by `DUE` again.
    let until = Instant::now() + PATIENCE;
    let mut more = 0;
    while snapshots() < 2 {
        assert!(Instant::now() < until, "the second snapshot is not written");
        if more < 300 {
            fill(&store, "t", 4_000 + more, 4_001 + more);
            more += 1;
        }
        std::thread::yield_now();
    }
    let written = more * 512;
    assert!(written < DUE);
    assert_eq!(snapshots(), 2);
}

/// Writes records of 10 MB in all: more than a purge reads back at once.
fn put_long(store: &Store) {
    let value = vec![7; 900_000];
    for _ in 0..12 {
        execute(store, &[put("t", b"k", &value)]);
    }
}

/// Returns the size of the log files in bytes.
fn log_bytes(disk: &SimDisk) -> u64 {
    let paths = disk.files().into_iter();
    let log = paths.filter(|path| path.starts_with("log/"));
    log.map(|path| {
        disk.content(&path)
            .map_or(0, |content| content.len() as u64)
    })
    .sum()
}

#[test]
fn the_log_is_bounded_while_the_store_is_open() {
    const SEGMENT: u64 = 32 << 10;
    const SNAPSHOT: u64 = 64 << 10;
    const KEEP: u64 = 96 << 10;
    /// Upper bound in bytes of the writes of one call. A batch with one record of 100 bytes
    /// uses one sector; a few more share a sector.
    const STEP: u64 = 40 * 512;
    let bounded = OpenOptions {
        log_segment_bytes: SEGMENT,
        snapshot_log_bytes: SNAPSHOT,
        log_keep_bytes: Some(KEEP),
        ..options()
    };
    let disk = SimDisk::new();
    let store = Store::open_disk(Arc::new(disk.clone()), &bounded).unwrap();
    create(&store, "t");
    // Entries since the older snapshot, the segment that begins before them, and the
    // segment with reserved space. If more must be retained, that amount, rounded up.
    let bound = (2 * (SNAPSHOT + STEP)).max(KEEP) + 3 * SEGMENT;
    let mut most = 0;
    for part in 0..200 {
        fill(&store, "t", part * 40, part * 40 + 40);
        // A due snapshot begins before the sync returns, and ends before `retain` does.
        store.sync().unwrap();
        store.retain(None).unwrap();
        let bytes = log_bytes(&disk);
        assert!(bytes <= bound, "{bytes} of {bound} after {part} parts");
        most = most.max(bytes);
    }
    assert!(most >= KEEP, "{most}: less than must be retained");
    let stats = store.stats();
    assert!(stats.snapshots > 10, "{stats:?}");
    assert!(0 < stats.purged_index && stats.purged_index < stats.applied_index);
    let (wanted, digest) = (state(&store), store.digest());
    store.close().unwrap();
    let store = Store::open_disk(Arc::new(disk), &bounded).unwrap();
    assert_eq!((state(&store), store.digest()), (wanted, digest));
    assert_eq!(store.stats().purged_index, stats.purged_index);
}

#[test]
fn an_unreadable_block_prevents_a_purge_of_the_log() {
    let bounded = OpenOptions {
        snapshot_log_bytes: u64::MAX,
        log_keep_bytes: Some(0),
        ..options()
    };
    let disk = SimDisk::new();
    let store = Store::open_disk(Arc::new(disk.clone()), &bounded).unwrap();
    create(&store, "t");
    fill(&store, "t", 0, 1_000);
    store.checkpoint().unwrap();
    disk.flip("topics/00000000/0000000001.seg", 200, 3);
    fill(&store, "t", 1_000, 1_100);
    store.checkpoint().unwrap();
    assert_eq!(store.stats().purged_index, 0);
    let (keys, digest) = (store.topic("t").unwrap().keys, store.digest());
    store.close().unwrap();
    // The log contains all records of the block.
    let store = Store::open_disk(Arc::new(disk), &bounded).unwrap();
    assert_eq!(
        (store.topic("t").unwrap().keys, store.digest()),
        (keys, digest)
    );
    assert_eq!(records(&store, "t").len(), 1_101);
}

#[test]
fn the_first_purge_after_an_open_does_not_delay_other_maintenance() {
    let bounded = OpenOptions {
        snapshot_log_bytes: u64::MAX,
        log_keep_bytes: Some(0),
        ..options()
    };
    let disk = SimDisk::new();
    let store = Store::open_disk(Arc::new(disk.clone()), &bounded).unwrap();
    create(&store, "t");
    put_long(&store);
    store.checkpoint().unwrap();
    store.close().unwrap();
    let gate = Gate::new(disk);
    let store = Store::open_disk(gate.disk(), &bounded).unwrap();
    gate.rule(Op::Read, "topics/", Rule::HoldOne);
    execute(&store, &[put("t", b"k", b"v")]);
    // Two snapshots exist now, with segments to purge between them.
    store.checkpoint().unwrap();
    gate.wait_held();
    execute(&store, &[put("t", b"k", b"w")]);
    store.checkpoint().unwrap();
    assert_eq!(
        store.stats().purged_index,
        0,
        "no purge before all blocks were read"
    );
    gate.release();
    let until = Instant::now() + PATIENCE;
    while store.stats().purged_index == 0 {
        assert!(Instant::now() < until, "the log was not purged");
        std::thread::yield_now();
    }
    let (wanted, digest) = (state(&store), store.digest());
    store.close().unwrap();
    let store = Store::open_disk(gate.disk(), &bounded).unwrap();
    assert_eq!((state(&store), store.digest()), (wanted, digest));
}

#[test]
fn the_log_is_purged_although_blocks_are_written_while_others_are_read_back() {
    let bounded = OpenOptions {
        snapshot_log_bytes: u64::MAX,
        log_keep_bytes: Some(0),
        ..options()
    };
    let gate = Gate::new(SimDisk::new());
    let store = Store::open_disk(gate.disk(), &bounded).unwrap();
    create(&store, "t");
    put_long(&store);
    store.checkpoint().unwrap();
    gate.rule(Op::Read, "topics/", Rule::HoldOne);
    execute(&store, &[put("t", b"k", b"v")]);
    // Two snapshots exist now, with segments to purge between them.
    store.checkpoint().unwrap();
    gate.wait_held();
    put_long(&store);
    store.checkpoint().unwrap();
    gate.release();
    let until = Instant::now() + PATIENCE;
    while store.stats().purged_index == 0 {
        assert!(Instant::now() < until, "the log was not purged");
        std::thread::yield_now();
    }
}

/// Returns a store whose background snapshot is held at the sync of its topics.
fn held_checkpoint(disk: &SimDisk) -> (Gate, Arc<Store>) {
    let gate = Gate::new(disk.clone());
    let often = OpenOptions {
        snapshot_log_bytes: 20_000,
        ..options()
    };
    let store = Store::open_disk(gate.disk(), &often).unwrap();
    create_with(&store, "t", &latest());
    fill(&store, "t", 0, 50);
    gate.rule(Op::Sync, "topics/", Rule::Hold);
    fill(&store, "t", 50, 250);
    gate.wait_held();
    (gate, Arc::new(store))
}

#[test]
fn a_drop_waits_for_the_checkpoint_in_progress() {
    let disk = SimDisk::new();
    let (gate, store) = held_checkpoint(&disk);
    let before = state(&store);
    let dropped = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&dropped);
    gate.observe(move |op, path| {
        assert!(!seen.load(Ordering::SeqCst), "{op:?} {path} after the drop");
    });
    let dropper = std::thread::spawn(move || {
        drop(store);
        dropped.store(true, Ordering::SeqCst);
    });
    gate.release();
    dropper.join().unwrap();
    gate.observe(|_, _| {});
    let store = open(gate.disk());
    assert!(store.report().snapshot.is_some());
    assert_eq!(state(&store), before);
}

#[test]
fn a_checkpoint_that_became_due_during_another_needs_no_further_write() {
    let disk = SimDisk::new();
    let (gate, store) = held_checkpoint(&disk);
    let before = store.stats().snapshots;
    fill(&store, "t", 250, 600);
    gate.release();
    let until = Instant::now() + PATIENCE;
    while store.stats().snapshots < before + 2 {
        assert!(Instant::now() < until, "the second snapshot is not written");
        std::thread::yield_now();
    }
}

#[test]
fn maintenance_waits_for_the_checkpoint_in_progress() {
    let disk = SimDisk::new();
    let (gate, store) = held_checkpoint(&disk);
    let (keys, last) = (keys(&store, "t"), store.topic("t").unwrap().last);
    let others: Vec<_> = (0..3)
        .map(|n| {
            let store = Arc::clone(&store);
            std::thread::spawn(move || match n {
                0 => drop(store.compact_topic("t").unwrap()),
                1 => drop(store.compact_log().unwrap()),
                _ => drop(store.checkpoint().unwrap()),
            })
        })
        .collect();
    // Commits do not wait for the snapshot.
    let commit = execute(&store, &[put("t", b"more", b"v")])[0].clone();
    assert_eq!(commit.first.0, last.0 + 1);
    gate.release();
    for other in others {
        other.join().unwrap();
    }
    for seed in 0..4 {
        let store = open(Arc::new(disk.power_cut(seed)));
        let found = crate::world::keys(&store, "t");
        assert_eq!(found.len(), keys.len() + 1);
        assert!(keys.iter().all(|(key, value)| found[key] == *value));
    }
}

#[test]
fn a_purged_log_leaves_everything_readable() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    create(&store, "t");
    for part in 0..8 {
        // Several batches, so that the log has several segments.
        fill(&store, "t", part * 100, (part + 1) * 100);
    }
    let before = (state(&store), store.digest(), store.applied());
    let report = store.compact_log().unwrap();
    assert!(report.log_bytes_after < report.log_bytes_before / 2);
    let again = store.compact_log().unwrap();
    assert_eq!(again.index, report.index);
    store.close().unwrap();
    for _ in 0..2 {
        let store = open(Arc::new(disk.clone()));
        assert_eq!(store.report().replayed_entries, 0);
        assert_eq!((state(&store), store.digest(), store.applied()), before);
    }
    let store = open(Arc::new(disk.clone()));
    fill(&store, "t", 800, 900);
    let after = state(&store);
    assert_eq!(
        after["t"].last,
        before.0["t"].last + 100,
        "offsets continue"
    );
    drop(store);
    assert_eq!(state(&open(Arc::new(disk))), after);
}

#[test]
fn compaction_keeps_the_last_record_of_each_key_and_every_offset() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    create_with(&store, "t", &latest());
    let mut draw = SplitMix(3);
    for round in 0..100_u64 {
        let keys: Vec<String> = (0..20).map(|_| format!("k{}", draw.below(60))).collect();
        let values: Vec<[u8; 8]> = (0..20).map(|n| (round * 20 + n).to_be_bytes()).collect();
        let call: Vec<_> = keys
            .iter()
            .zip(&values)
            .map(|(key, value)| match draw.below(10) {
                0 => delete("t", key.as_bytes()),
                1 => put("t", b"", value),
                _ => put("t", key.as_bytes(), value),
            })
            .collect();
        execute(&store, &call);
    }
    let (before, key_values) = (records(&store, "t"), keys(&store, "t"));
    let report = store.compact_topic("t").unwrap();
    let after = records(&store, "t");
    assert_eq!(report.records_before, before.len() as u64);
    assert_eq!(report.records_after, after.len() as u64);
    assert!(report.bytes_after < report.bytes_before / 2);
    let mut newest: BTreeMap<&[u8], u64> = BTreeMap::new();
    for record in &before {
        newest.insert(&record.key, record.offset);
    }
    let retained: Vec<_> = before
        .iter()
        .filter(|r| r.key.is_empty() || newest[r.key.as_slice()] == r.offset)
        .cloned()
        .collect();
    assert_eq!(
        after, retained,
        "last of each key, records without key, tombstones"
    );
    assert_eq!(keys(&store, "t"), key_values);
    // A listener that stores only the last record of each key has an equal result.
    let fold = |records: &[crate::world::Rec]| {
        let mut map = BTreeMap::new();
        for record in records.iter().filter(|r| !r.key.is_empty()) {
            match record.kind {
                RecordKind::Put => map.insert(record.key.clone(), record.value.clone()),
                _ => map.remove(&record.key),
            };
        }
        map
    };
    assert_eq!(fold(&before), fold(&after));
    let second = store.compact_topic("t").unwrap();
    assert_eq!(second.records_after, report.records_after);
    execute(&store, &[put("t", b"k1", b"last")]);
    let last = records(&store, "t").last().unwrap().offset;
    assert_eq!(last, before.len() as u64 + 1);
    let wanted = state(&store);
    drop(store);
    assert_eq!(state(&open(Arc::new(disk.power_cut(1)))), wanted);
}

#[test]
fn a_compaction_removes_snapshots_that_list_removed_records() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    create_with(&store, "t", &latest());
    fill(&store, "t", 0, 100);
    store.checkpoint().unwrap();
    fill(&store, "t", 100, 200);
    store.compact_topic("t").unwrap();
    let keys_before = keys(&store, "t");
    store.close().unwrap();
    let files = disk.files();
    let snapshots: Vec<&String> = files.iter().filter(|f| f.contains(".snap")).collect();
    assert_eq!(snapshots.len(), 1, "{snapshots:?}");
    disk.flip(snapshots[0], 600, 1);
    let store = open(Arc::new(disk));
    assert_eq!(store.report().set_aside.len(), 1);
    assert_eq!(keys(&store, "t"), keys_before, "derived from the whole log");
}

#[test]
fn a_segment_number_is_never_used_twice() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    create(&store, "t");
    let value = vec![5; 20_000];
    for _ in 0..30 {
        execute(&store, &[put("t", b"k", &value)]);
    }
    let first = "topics/00000000/0000000001.seg".to_owned();
    assert!(disk.files().contains(&first), "enough for a write");
    let before = records(&store, "t");
    // After the kill, no snapshot lists that file, and the replay writes another one.
    let left = disk.killed();
    drop(store);
    let store = open(Arc::new(left.clone()));
    assert_eq!(records(&store, "t"), before);
    store.checkpoint().unwrap();
    let files = left.files();
    assert!(!files.contains(&first), "{files:?}");
    assert!(
        files.contains(&"topics/00000000/0000000002.seg".to_owned()),
        "{files:?}"
    );
    drop(store);
    assert_eq!(records(&open(Arc::new(left.power_cut(1))), "t"), before);
}

/// Ten years in milliseconds: no time stamp is that old.
const YEARS_MS: u64 = 10 * 365 * 24 * 60 * 60 * 1000;

#[test]
fn lag_and_tombstone_ttl_retain_recent_records() {
    let store = open(Arc::new(SimDisk::new()));
    let mut young = latest();
    young.compaction_lag_ms = Some(YEARS_MS);
    create_with(&store, "lag", &young);
    let mut short = latest();
    short.tombstone_ttl_ms = Some(0);
    create_with(&store, "ttl", &short);
    let mut long = latest();
    long.tombstone_ttl_ms = Some(YEARS_MS);
    create_with(&store, "long", &long);
    for topic in ["lag", "ttl", "long"] {
        for _ in 0..50 {
            execute(&store, &[put(topic, b"k", b"v"), put(topic, b"gone", b"v")]);
        }
        execute(&store, &[delete(topic, b"gone")]);
    }
    execute(&store, &[Intention::new("lag", Operation::Destroy)]);
    create_with(&store, "lag", &young);
    let offsets = |topic: &str| -> Vec<u64> {
        store.compact_topic(topic).unwrap();
        records(&store, topic).iter().map(|r| r.offset).collect()
    };
    assert_eq!(
        offsets("lag").len(),
        104,
        "recent records of an earlier incarnation are retained"
    );
    assert_eq!(offsets("ttl"), [1, 100]);
    assert_eq!(offsets("long"), [1, 100, 102]);
}

#[test]
fn records_of_earlier_incarnations_are_removed_and_offsets_never_restart() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    create_with(&store, "t", &latest());
    fill(&store, "t", 0, 100);
    execute(&store, &[Intention::new("t", Operation::Destroy)]);
    create_with(&store, "t", &latest());
    let report = store.compact_topic("t").unwrap();
    assert_eq!((report.records_before, report.records_after), (103, 1));
    let only = records(&store, "t");
    assert_eq!((only[0].offset, only[0].kind), (103, RecordKind::Create));
    execute(&store, &[Intention::new("t", Operation::Destroy)]);
    assert!(store.compact_topic("t").is_err(), "the topic was destroyed");
    let wanted = state(&store);
    store.compact_log().unwrap();
    store.close().unwrap();
    let store = open(Arc::new(disk));
    assert_eq!(state(&store), wanted);
    create(&store, "t");
    assert_eq!(store.topic("t").unwrap().last.0, 105);
    assert!(matches!(
        store.compact_topic("t"),
        Err(StoreError::CompactionOff { .. })
    ));
}

#[test]
fn a_transaction_has_its_end_flag_after_a_compaction() {
    let store = open(Arc::new(SimDisk::new()));
    create_with(&store, "t", &latest());
    let step = |key: &'static [u8]| TxnOp::Put {
        key,
        value: b"v",
        meta: b"",
    };
    let ops = [step(b"a"), step(b"b"), step(b"c")];
    execute(&store, &[Intention::new("t", Operation::Txn { ops: &ops })]);
    execute(&store, &[put("t", b"c", b"newer")]);
    store.compact_topic("t").unwrap();
    let found = records(&store, "t");
    let of_txn: Vec<_> = found.iter().filter(|r| r.intention == 2).collect();
    assert!(of_txn.len() >= 2);
    let ends: Vec<bool> = of_txn.iter().map(|r| r.flags & 1 != 0).collect();
    assert_eq!(
        ends.iter().filter(|end| **end).count(),
        1,
        "one end flag: {ends:?}"
    );
    assert!(ends[ends.len() - 1], "the last record has the end flag");
}

#[test]
fn a_changed_option_applies_to_the_next_compaction() {
    let store = open(Arc::new(SimDisk::new()));
    create(&store, "t");
    fill(&store, "t", 0, 100);
    assert!(matches!(
        store.compact_topic("t"),
        Err(StoreError::CompactionOff { .. })
    ));
    let options = latest();
    execute(
        &store,
        &[Intention::new("t", Operation::Alter { options: &options })],
    );
    let report = store.compact_topic("t").unwrap();
    assert_eq!(report.records_after, 42, "CREATE, ALTER and forty keys");
    let plain = TopicOptions::default();
    execute(
        &store,
        &[Intention::new("t", Operation::Alter { options: &plain })],
    );
    assert!(store.compact_topic("t").is_err());
}

fn real(dir: &Path) -> Store {
    Store::open(dir, &options()).unwrap()
}

#[test]
fn a_backup_during_writes_is_a_prefix_that_accepts_writes() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(real(&dir.path().join("store")));
    create(&store, "t");
    let stop = Arc::new(AtomicBool::new(false));
    let started = Arc::new(Barrier::new(6));
    let writers: Vec<_> = (1..=5_u8)
        .map(|writer| {
            let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
            let started = Arc::clone(&started);
            std::thread::spawn(move || {
                let client = ClientId([writer; 16]);
                let mut nonce = 1_u64;
                while !stop.load(Ordering::SeqCst) {
                    execute(
                        &store,
                        &[put("t", &[writer], &nonce.to_be_bytes()).under(client, nonce)],
                    );
                    if nonce == 1 {
                        started.wait();
                    }
                    nonce += 1;
                }
            })
        })
        .collect();
    started.wait();
    let mut copies = Vec::new();
    for n in 0..3 {
        // The name has a dot: the temporary copy must not replace another directory. It may end
        // with a separator.
        let end = if n == 0 { "/" } else { "" };
        let target = dir.path().join(format!("copy.{n}{end}"));
        let other = dir.path().join("copy.partial");
        std::fs::create_dir_all(&other).unwrap();
        std::fs::write(other.join("mine"), b"stays").unwrap();
        let report = store.backup(&target).unwrap();
        assert_eq!(std::fs::read(other.join("mine")).unwrap(), b"stays");
        assert!(report.files >= 2 && report.bytes > 0);
        copies.push(target);
    }
    stop.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.join().unwrap();
    }
    let all = records(&store, "t");
    for target in copies {
        assert!(weir_store::verify(&target).unwrap().is_clean());
        let copy = real(&target);
        let found = records(&copy, "t");
        assert!(found.len() > 1 && found == all[..found.len()], "a prefix");
        for writer in 1..=5_u8 {
            let client = ClientId([writer; 16]);
            let count = found.iter().filter(|r| r.client == client).count() as u64;
            assert_eq!(
                copy.last_nonce(client),
                count,
                "the backup has the sessions"
            );
        }
        execute(&copy, &[put("t", b"new", b"v")]);
        copy.compact_log().unwrap();
        let wanted = state(&copy);
        copy.close().unwrap();
        assert_eq!(state(&real(&target)), wanted);
        assert!(matches!(
            store.backup(&target),
            Err(StoreError::NotEmpty { .. })
        ));
    }
    // A backup that was killed in its last step does not prevent another one.
    let target = dir.path().join("again");
    let id = ClientId(store.identity().store_id);
    let leftover = dir.path().join(format!("again.partial-{id}"));
    store.backup(&leftover).unwrap();
    assert!(leftover.join("weir.id").exists());
    store.backup(&target).unwrap();
    assert!(!leftover.exists());
    assert_eq!(records(&real(&target), "t"), all);
    let empty = dir.path().join("empty.partial");
    std::fs::create_dir(&empty).unwrap();
    store.backup(&empty).unwrap();
    assert_eq!(records(&real(&empty), "t"), all);
}

#[test]
fn keys_in_order_follow_every_change() {
    let store = open(Arc::new(SimDisk::new()));
    create(&store, "t");
    let mut model: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let mut draw = SplitMix(9);
    for round in 0..400_u64 {
        let key = vec![draw.below(4) as u8 * 60; 1 + draw.below(5) as usize];
        if draw.below(4) == 0 {
            execute(&store, &[delete("t", &key)]);
            model.remove(&key);
        } else {
            let commit = execute(&store, &[put("t", &key, b"v")])[0].clone();
            model.insert(key, commit.first.0);
        }
        if round % 7 != 0 {
            continue;
        }
        let prefix = vec![draw.below(4) as u8 * 60; draw.below(3) as usize];
        let after = vec![draw.below(4) as u8 * 60; 1 + draw.below(4) as usize];
        let limit = 1 + draw.below(6) as usize;
        let found = store.scan("t", &prefix, Some(&after), limit).unwrap();
        let wanted: Vec<(Vec<u8>, u64)> = model
            .iter()
            .filter(|(key, _)| key.starts_with(&prefix) && **key > after)
            .take(limit)
            .map(|(key, offset)| (key.clone(), *offset))
            .collect();
        let found: Vec<(Vec<u8>, u64)> = found
            .into_iter()
            .map(|entry| (entry.key.into_vec(), entry.offset.0))
            .collect();
        assert_eq!(found, wanted);
    }
    let entry = store.scan("t", b"", None, 1).unwrap().remove(0);
    assert!(store.value("t", &entry).unwrap().is_some());
    execute(&store, &[put("t", &entry.key, b"newer")]);
    execute(&store, &[Intention::new("t", Operation::Destroy)]);
    assert!(store.scan("t", b"", None, 10).unwrap().is_empty());
    create(&store, "t");
    execute(&store, &[put("t", b"k", b"second")]);
    assert_eq!(store.scan("t", b"", None, 10).unwrap().len(), 1);
}

#[test]
fn reads_with_extreme_offsets_and_nonces_find_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FileDisk::open(dir.path()).unwrap();
    let store = open(Arc::new(disk));
    create(&store, "t");
    execute(&store, &[put("t", b"k", b"v").under(CLIENT, 1)]);
    let mut reader = store.read("t", ConsequenceOffset(u64::MAX)).unwrap();
    assert!(reader.next_page().unwrap().is_none());
    assert!(!reader.wait(Some(std::time::Instant::now())));
    reader.seek(ConsequenceOffset(u64::MAX));
    assert!(reader.next_page().unwrap().is_none());
    let odd = weir_store::KeyEntry {
        key: Box::from(&b"k"[..]),
        offset: ConsequenceOffset::ZERO,
    };
    assert!(store.value("t", &odd).unwrap().is_none());
    assert_eq!(store.last_nonce(ClientId([9; 16])), 0);
    assert!(store.outcome(CLIENT, 2).is_none());
    assert!(store.outcome(CLIENT, 0).is_none());
    assert!(store.scan("t", b"", None, 0).unwrap().is_empty());
}
