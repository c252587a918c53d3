//! Failures of the disk: syncs, writes, space, names. No acknowledged write is lost, no caller
//! waits forever, and the store continues where possible.

use std::io;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use weir_core::group::GroupSetup;
use weir_core::{ConsequenceOffset, Effect, ErrorCode, GroupMode, GroupStep};
use weir_store::disk::{FileDisk, SimDisk, SimFailure, SimOp};
use weir_store::error::{IoVerb, Retry};
use weir_store::{Durability, OpenOptions, Store, StoreError};

use crate::crash::{Image, Progress, check};
use crate::disks::{EIO, EMFILE, ENFILE, ENOSPC, Gate, Op, PATIENCE, Rule};
use crate::model::{Action, Expected, script, with_intentions};
use crate::world::{
    CLIENT, create, create_with, execute, keys, latest, open, options, outcomes, put, put_many,
    records, state, try_execute,
};

/// Runs a script on a disk with a fault until a call fails. Then the fault ends, and the
/// content of the disk is checked after a kill and after power cuts.
fn check_fault(seed: u64, len: usize, op: SimOp, nth: u64, failure: SimFailure) {
    let (items, actions) = script(seed, len);
    let expected = Expected::compute(items);
    let disk = SimDisk::new();
    disk.fail(op, nth, failure);
    let mut progress = Progress::default();
    let options = options();
    run(&disk, &expected, &actions, &options, &mut progress);
    progress.durable = progress.acknowledged;
    let what = format!("seed {seed}, {failure:?} at {op:?} {nth}");
    let left = [
        (disk.killed(), false),
        (disk.power_cut(nth), true),
        (disk.power_cut(nth + 1_000_003), true),
    ];
    for (disk, power) in left {
        let image = Image {
            disk,
            progress: progress.clone(),
            what: format!("{what}, power cut: {power}"),
            power,
        };
        check(&image, &expected, &actions, &options);
    }
}

fn run(
    disk: &SimDisk,
    expected: &Expected,
    actions: &[Action],
    options: &OpenOptions,
    progress: &mut Progress,
) {
    let again = || Store::open_disk(Arc::new(disk.clone()), options);
    let Ok(mut store) = again() else { return };
    for action in actions {
        match action {
            Action::Calls(calls) => {
                for call in calls {
                    progress.sent = call.end;
                    let items = &expected.items[call.clone()];
                    let sent = with_intentions(items, |i| store.propose(i));
                    let Ok(outcomes) = sent.and_then(weir_store::Proposal::wait) else {
                        return;
                    };
                    assert!(outcomes.iter().all(|outcome| outcome.commit().is_some()));
                    progress.acknowledged = call.end;
                }
            }
            // Maintenance may fail; then the store continues or is poisoned.
            Action::Checkpoint => drop(store.checkpoint()),
            Action::CompactLog => drop(store.compact_log()),
            Action::CompactTopic(name) => {
                progress.compacted.insert(name);
                drop(store.compact_topic(name));
            }
            Action::Sync => drop(store.sync()),
            Action::Reopen | Action::Kill => {
                drop(store);
                match again() {
                    Ok(opened) => store = opened,
                    Err(_) => return,
                }
            }
        }
    }
}

#[test]
fn every_failing_sync_of_a_script_is_survived() {
    for nth in 1..=50 {
        check_fault(70, 16, SimOp::Sync, nth, SimFailure::Io);
    }
    for nth in 1..=25 {
        check_fault(70, 16, SimOp::SyncDir, nth, SimFailure::Io);
    }
}

#[test]
fn every_failing_write_of_a_script_is_survived() {
    for nth in 1..=70 {
        let failure = [SimFailure::Io, SimFailure::Short, SimFailure::Full][nth as usize % 3];
        check_fault(71, 16, SimOp::Write, nth, failure);
    }
}

#[test]
fn every_failing_change_of_names_and_lengths_is_survived() {
    for op in [SimOp::Create, SimOp::Rename, SimOp::Remove, SimOp::Resize] {
        for nth in 1..=12 {
            let failure = [SimFailure::Io, SimFailure::Full][nth as usize % 2];
            check_fault(72, 16, op, nth, failure);
        }
    }
}

#[test]
fn a_failed_sync_is_final_for_the_handle_and_reads_continue() {
    let disk = SimDisk::new();
    let gate = Gate::new(disk.clone());
    let store = open(gate.disk());
    create(&store, "t");
    execute(&store, &[put("t", b"k", b"1").under(CLIENT, 1)]);
    gate.wait_sealed();
    gate.rule(Op::Sync, "log/", Rule::Hold);
    let in_flight = store
        .propose(&[put("t", b"k", b"2").under(CLIENT, 2)])
        .unwrap();
    gate.wait_held();
    let queued = store
        .propose(&[put("t", b"k", b"3").under(CLIENT, 3)])
        .unwrap();
    disk.fail(SimOp::Sync, 1, SimFailure::Io);
    let writes = gate.count(Op::Write, "log/");
    gate.release();
    let first = in_flight.wait();
    let is_sync = |e: &StoreError| {
        matches!(
            e.root(),
            StoreError::Io {
                verb: IoVerb::Sync,
                ..
            }
        )
    };
    assert!(first.as_ref().is_err_and(is_sync), "{first:?}");
    // Only the write that was in progress is in doubt.
    assert!(matches!(first, Err(StoreError::InDoubt { .. })));
    let later = try_execute(&store, &[put("t", b"k", b"4")]).map(drop);
    for refused in [queued.wait().map(drop), later] {
        assert!(refused.as_ref().is_err_and(is_sync), "{refused:?}");
        assert!(matches!(refused, Err(StoreError::Poisoned { .. })));
    }
    let cause = store.poison_cause().expect("the cause is stored");
    assert!(is_sync(&cause), "{cause}");
    for refused in [
        store.sync().err(),
        store.checkpoint().err(),
        store.compact_log().err(),
    ] {
        assert!(
            matches!(refused, Some(StoreError::Poisoned { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(
        gate.count(Op::Write, "log/"),
        writes,
        "nothing is written after the failure"
    );
    assert_eq!(keys(&store, "t")[&b"k"[..]].1, b"1");
    assert_eq!(records(&store, "t").len(), 2);
    assert!(matches!(store.close(), Err(StoreError::Poisoned { .. })));
    // The writes of the failed sync were in the cache and may be lost. Sending them again
    // executes them exactly once.
    for left in [disk.killed(), disk.power_cut(1), disk.power_cut(2)] {
        let store = open(Arc::new(left));
        assert!(store.last_nonce(CLIENT) >= 1);
        for nonce in 1..=3_u64 {
            let value = [b'0' + nonce as u8];
            let outcome =
                outcomes(&store, &[put("t", b"k", &value).under(CLIENT, nonce)])[0].clone();
            assert_eq!(outcome.commit().unwrap().effect, Effect::Valid);
        }
        assert_eq!(records(&store, "t").len(), 4);
    }
}

#[test]
fn a_log_segment_that_cannot_be_created_leaves_no_write_in_doubt() {
    let segment_bytes = 64 << 10;
    let mut codes = Vec::new();
    for op in [Op::Create, Op::Write, Op::Sync, Op::Rename] {
        let disk = SimDisk::new();
        let gate = Gate::new(disk.clone());
        let small = OpenOptions {
            log_segment_bytes: segment_bytes,
            ..options()
        };
        let store = Store::open_disk(gate.disk(), &small).unwrap();
        create(&store, "t");
        let value = vec![7_u8; 1_000];
        // The path of a rename is the new path.
        let path = if op == Op::Rename { "log/" } else { ".log.new" };
        gate.rule(op, path, Rule::Fail(EIO));
        let mut acknowledged = 0;
        let refusal = loop {
            match try_execute(&store, &[put("t", b"k", &value)]) {
                Ok(_) => acknowledged += 1,
                Err(error) => break error,
            }
            assert!(acknowledged * value.len() < 100 * segment_bytes as usize);
        };
        assert!(acknowledged > 0, "{op:?}");
        codes.push((op, refusal.code()));
        drop(store);
        let after = Store::open_disk(Arc::new(disk.killed()), &options()).unwrap();
        assert_eq!(records(&after, "t").len(), acknowledged + 1, "{op:?}");
    }
    // No part of the entry was written, so each result is definite.
    let expected = [
        (Op::Create, ErrorCode::Io),
        (Op::Write, ErrorCode::IoFatal),
        (Op::Sync, ErrorCode::IoFatal),
        (Op::Rename, ErrorCode::IoFatal),
    ];
    assert_eq!(codes, expected);
}

#[test]
fn close_reports_a_failed_last_sync() {
    let disk = SimDisk::new();
    let level = OpenOptions {
        durability: weir_store::Durability::Memory,
        log_segment_bytes: 1 << 20,
        ..options()
    };
    let store = Store::open_disk(Arc::new(disk.clone()), &level).unwrap();
    create(&store, "t");
    execute(&store, &[put("t", b"k", b"v")]);
    disk.fail(SimOp::Sync, 1, SimFailure::Io);
    assert!(store.close().is_err());
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_space_again() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    create(&store, "t");
    let value = vec![7_u8; 1_000];
    let mut nonce = 0;
    disk.set_capacity(17 << 20);
    let refusal = loop {
        match try_execute(&store, &[put("t", b"k", &value).under(CLIENT, nonce + 1)]) {
            Ok(_) => nonce += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refusal, StoreError::DiskFull { .. }), "{refusal}");
    assert!(nonce > 20, "the reserve leaves space for writes");
    let again = try_execute(&store, &[put("t", b"k", &value).under(CLIENT, nonce + 1)]);
    assert!(matches!(again, Err(StoreError::DiskFull { .. })));
    // Several concurrent callers all get the error.
    let calls: Vec<_> = (0..5)
        .map(|_| store.propose(&[put("t", b"k", &value)]).unwrap())
        .collect();
    for call in calls {
        assert!(matches!(call.wait(), Err(StoreError::DiskFull { .. })));
    }
    assert_eq!(
        records(&store, "t").len() as u64,
        nonce + 1,
        "reads continue"
    );
    disk.set_capacity(u64::MAX);
    let outcome = outcomes(&store, &[put("t", b"k", &value).under(CLIENT, nonce + 1)])[0].clone();
    assert!(
        matches!(outcome, weir_core::Outcome::Committed(_)),
        "without a restart"
    );
    let before = state(&store);
    store.close().unwrap();
    assert_eq!(state(&open(Arc::new(disk))), before);
}

#[test]
fn a_store_that_filled_its_disk_opens_and_serves() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    create(&store, "t");
    let value = vec![7_u8; 1_000];
    disk.set_capacity(17 << 20);
    while try_execute(&store, &[put("t", b"k", &value)]).is_ok() {}
    let before = state(&store);
    drop(store);
    for left in [disk.killed(), disk.power_cut(3)] {
        let store = open(Arc::new(left.clone()));
        assert_eq!(state(&store), before);
        left.set_capacity(u64::MAX);
        execute(&store, &[put("t", b"k", &value)]);
    }
}

#[test]
fn compaction_frees_log_space_on_a_full_disk() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    create(&store, "t");
    let value = vec![7_u8; 1_000];
    disk.set_capacity(17 << 20);
    while try_execute(&store, &[put("t", b"k", &value)]).is_ok() {}
    let before = state(&store);
    let report = store.compact_log().unwrap();
    assert!(report.log_bytes_after < report.log_bytes_before);
    execute(&store, &[put("t", b"k", &value)]);
    drop(store);
    let store = open(Arc::new(disk.power_cut(4)));
    assert_eq!(records(&store, "t").len(), before["t"].records.len() + 1);
}

#[test]
fn derived_files_that_cannot_be_written_do_not_stop_writes() {
    let disk = SimDisk::new();
    let gate = Gate::new(disk.clone());
    let store = open(gate.disk());
    create(&store, "t");
    create(&store, "u");
    gate.rule(Op::Write, "topics/", Rule::Fail(ENOSPC));
    let value = vec![1_u8; 10_000];
    for n in 0..60_u32 {
        let topic = if n % 2 == 0 { "t" } else { "u" };
        execute(&store, &[put(topic, &n.to_be_bytes(), &value)]);
    }
    assert!(store.stats().derived_write_errors > 0);
    let is_full = |error: &StoreError| match error {
        StoreError::Io { source, .. } => source.kind() == io::ErrorKind::StorageFull,
        other => matches!(other, StoreError::DiskFull { .. }),
    };
    let failed = store.checkpoint().unwrap_err();
    assert!(is_full(&failed), "{failed}");
    assert!(is_full(&store.compact_log().unwrap_err()));
    assert_eq!(records(&store, "t").len(), 31);
    for n in 0..60_u32 {
        execute(&store, &[put("t", &n.to_be_bytes(), &value)]);
    }
    gate.release();
    gate.rule(Op::Write, "snapshots/", Rule::Fail(ENOSPC));
    assert!(is_full(&store.checkpoint().unwrap_err()));
    gate.release();
    let before = state(&store);
    store.compact_log().unwrap();
    drop(store);
    let store = open(Arc::new(disk.power_cut(11)));
    assert_eq!(store.report().replayed_entries, 0);
    assert_eq!(state(&store), before);
}

#[test]
fn topics_that_cannot_be_written_for_long_make_the_store_read_only() {
    let dir = tempfile::tempdir().unwrap();
    let gate = Gate::new(FileDisk::open(dir.path()).unwrap());
    let large = OpenOptions {
        log_segment_bytes: 64 << 20,
        ..options()
    };
    let store = Store::open_disk(gate.disk(), &large).unwrap();
    create(&store, "t");
    gate.rule(Op::Write, "topics/", Rule::Fail(EIO));
    let value = vec![9_u8; 1 << 20];
    let mut written = 0;
    let refusal = loop {
        match try_execute(&store, &[put("t", b"k", &value)]) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 200, "memory grows without a limit");
    };
    assert!(
        matches!(refusal, StoreError::TopicsUnwritable { .. }),
        "{refusal}"
    );
    assert_eq!(refusal.code(), ErrorCode::ReadOnly);
    assert_eq!(refusal.retry(), Retry::Later);
    let text = refusal.to_string();
    assert!(
        text.contains("topics/") && text.contains("os error 5"),
        "{text}"
    );
    assert!(written > 64, "a short failure must not reject writes");
    let page = store.get("t", b"k").unwrap().unwrap();
    assert_eq!(page.iter().next().unwrap().unwrap().offset.0, written + 1);
    gate.release();
    execute(&store, &[put("t", b"k", b"after")]);
    store.compact_log().unwrap();
    drop(store);
    let store = Store::open_disk(gate.disk(), &large).unwrap();
    assert_eq!(records(&store, "t").len() as u64, written + 2);
}

/// Makes a checkpoint fail by `rule`, removes the rule, then checkpoints and purges the
/// log. All content must survive a power cut.
fn check_repair(op: Op, path: &str, rule: Rule) {
    let disk = SimDisk::new();
    let gate = Gate::new(disk.clone());
    let store = open(gate.disk());
    for topic in ["a", "b", "c"] {
        create(&store, topic);
        for n in 0..40_u32 {
            execute(&store, &[put(topic, &n.to_be_bytes(), &[1; 900])]);
        }
    }
    let before = state(&store);
    gate.rule(op, path, rule);
    let failed = store.checkpoint();
    let failed = failed.expect_err("the checkpoint must fail");
    assert_eq!(store.checkpoint_failure(), Some(failed.to_string()));
    gate.release();
    let poisoned = match store.checkpoint() {
        Ok(_) => false,
        Err(StoreError::Poisoned { .. }) => true,
        Err(other) => panic!("{op:?} {path}: {other}"),
    };
    assert_eq!(store.checkpoint_failure().is_some(), poisoned);
    assert_eq!(store.poison_cause().is_some(), poisoned);
    let purged = store.compact_log();
    assert_eq!(purged.is_err(), poisoned, "{op:?} {path}: {purged:?}");
    for seed in 0..6 {
        let store = open(Arc::new(disk.power_cut(seed)));
        assert_eq!(state(&store), before, "{op:?} {path}");
    }
}

#[test]
fn a_checkpoint_that_fails_midway_leaves_nothing_unsynced() {
    for (op, path, error) in [
        (Op::Write, "topics/00000001", ENOSPC),
        (Op::Write, "topics/00000002", EIO),
        (Op::Create, "topics/00000001", EMFILE),
        (Op::Create, "topics/00000002/", ENOSPC),
        (Op::Sync, "topics/00000000", EIO),
        (Op::Sync, "topics/00000001", EIO),
        (Op::SyncDir, "topics/00000001", EIO),
        (Op::SyncDir, "topics", EIO),
        (Op::Create, "snapshots", ENOSPC),
        (Op::Write, "snapshots/", ENOSPC),
        (Op::Sync, "snapshots/", EIO),
        (Op::Rename, "snapshots/", EIO),
        (Op::SyncDir, "snapshots", EIO),
    ] {
        check_repair(op, path, Rule::Fail(error));
    }
}

#[test]
fn a_checkpoint_that_lacks_descriptors_is_repeated_and_does_not_stop_the_store() {
    for path in ["topics/00000001", "topics", "snapshots"] {
        let disk = SimDisk::new();
        let gate = Gate::new(disk.clone());
        let store = open(gate.disk());
        for topic in ["a", "b"] {
            create(&store, topic);
            execute(&store, &[put(topic, b"k", &[1; 900])]);
        }
        let before = state(&store);
        gate.rule(Op::SyncDir, path, Rule::Fail(EMFILE));
        let failed = store.checkpoint().unwrap_err();
        assert_eq!(
            failed.code(),
            ErrorCode::TooFewDescriptors,
            "{path}: {failed}"
        );
        assert!(!store.is_poisoned(), "{path}");
        gate.release();
        store.compact_log().unwrap();
        for seed in 0..4 {
            let store = open(Arc::new(disk.power_cut(seed)));
            assert_eq!(state(&store), before, "{path}");
        }
    }
}

#[test]
fn a_segment_that_could_not_be_opened_for_its_sync_is_synced_later() {
    let disk = SimDisk::new();
    let gate = Gate::new(disk.clone());
    let store = open(gate.disk());
    let names: Vec<String> = (0..200).map(|n| format!("t{n}")).collect();
    for name in &names {
        create(&store, name);
    }
    let before = state(&store);
    // There are more segments than open files, so the first segments are opened again.
    gate.rule(Op::Open, "topics/00000003", Rule::Fail(EMFILE));
    let failed = store.checkpoint().unwrap_err();
    assert!(
        matches!(
            failed,
            StoreError::Io {
                verb: IoVerb::Open,
                ..
            }
        ),
        "{failed}"
    );
    gate.release();
    store.compact_log().unwrap();
    for seed in 0..4 {
        let store = open(Arc::new(disk.power_cut(seed)));
        assert_eq!(state(&store), before, "seed {seed}");
    }
}

#[test]
fn a_compaction_that_cannot_write_removes_nothing_and_the_store_continues() {
    for (op, path) in [
        (Op::Write, "topics/"),
        (Op::Create, "topics/"),
        (Op::Sync, "topics/"),
        (Op::SyncDir, "topics/"),
        (Op::Write, "snapshots/"),
        (Op::Remove, "topics/"),
    ] {
        let disk = SimDisk::new();
        let gate = Gate::new(disk.clone());
        let store = open(gate.disk());
        create_with(&store, "t", &latest());
        let items = (0..300_u32).map(|n| ((n % 7).to_be_bytes(), [1; 500]));
        put_many(&store, "t", items);
        gate.rule(op, path, Rule::Fail(EIO));
        assert!(store.compact_topic("t").is_err(), "{op:?} {path}");
        gate.release();
        let before = keys(&store, "t");
        let mut continues = true;
        for _ in 0..14 {
            let more = [put("t", b"more", &[2; 500]); 50];
            continues &= try_execute(&store, &more).is_ok();
        }
        assert_eq!(before.len(), 7);
        let wanted = keys(&store, "t");
        drop(store);
        for left in [disk.killed(), disk.power_cut(1), disk.power_cut(2)] {
            let store = open(Arc::new(left));
            let found = keys(&store, "t");
            if continues {
                assert!(found == wanted, "{op:?} {path}");
            } else {
                assert!(before.iter().all(|(key, value)| found[key] == *value));
            }
        }
    }
}

#[test]
fn a_failed_compaction_leaves_no_new_segment() {
    let disk = SimDisk::new();
    let gate = Gate::new(disk.clone());
    let store = open(gate.disk());
    create_with(&store, "t", &latest());
    let items = (0..300_u32).map(|n| ((n % 7).to_be_bytes(), [1; 500]));
    put_many(&store, "t", items);
    store.checkpoint().unwrap();
    let segments = || -> Vec<String> {
        let files = disk.files().into_iter();
        files.filter(|path| path.ends_with(".seg")).collect()
    };
    let before = segments();
    gate.rule(Op::Sync, "topics/", Rule::Fail(ENOSPC));
    for _ in 0..3 {
        assert!(store.compact_topic("t").is_err());
        assert_eq!(segments(), before);
    }
    gate.release();
    store.compact_topic("t").unwrap();
    assert_eq!(keys(&store, "t").len(), 7);
}

#[test]
fn segments_are_removed_after_a_compaction_whose_checkpoint_failed() {
    let disk = SimDisk::new();
    let gate = Gate::new(disk.clone());
    let store = open(gate.disk());
    create_with(&store, "t", &latest());
    let items = (0..300_u32).map(|n| ((n % 7).to_be_bytes(), [1; 500]));
    put_many(&store, "t", items);
    gate.rule(Op::Write, "snapshots/", Rule::Fail(ENOSPC));
    for _ in 0..3 {
        assert!(store.compact_topic("t").is_err());
    }
    gate.release();
    store.compact_topic("t").unwrap();
    let files = disk.files().into_iter();
    assert_eq!(files.filter(|path| path.ends_with(".seg")).count(), 1);
    assert_eq!(keys(&store, "t").len(), 7);
}

#[test]
fn a_key_is_never_found_before_its_record() {
    let gate = Gate::new(SimDisk::new());
    let store = Arc::new(open(gate.disk()));
    create(&store, "a");
    create(&store, "b");
    execute(&store, &[put("b", b"k", b"old")]);
    // One batch with enough data for a write of topic a, and a key of topic b.
    gate.rule(Op::Write, "topics/", Rule::Hold);
    let value = vec![0_u8; 300 << 10];
    let (sender, done) = mpsc::channel();
    let writer = {
        let store = Arc::clone(&store);
        std::thread::spawn(move || {
            execute(&store, &[put("a", b"", &value), put("b", b"k", b"new")]);
            sender.send(()).unwrap();
        })
    };
    gate.wait_held();
    let page = store.get("b", b"k").unwrap().unwrap();
    assert_eq!(page.iter().next().unwrap().unwrap().value, b"new");
    let scanned = store.scan("b", b"", None, 10).unwrap();
    assert!(store.value("b", &scanned[0]).unwrap().is_some());
    done.recv().unwrap();
    gate.release();
    writer.join().unwrap();
}

#[test]
fn more_topics_than_descriptors_are_served() {
    let disk = SimDisk::new();
    let gate = Gate::new(disk.clone());
    let store = open(gate.disk());
    let names: Vec<String> = (0..400).map(|n| format!("t{n}")).collect();
    for name in &names {
        create(&store, name);
    }
    store.checkpoint().unwrap();
    for name in &names {
        execute(&store, &[put(name, b"k", name.as_bytes())]);
    }
    store.compact_log().unwrap();
    let before = state(&store);
    drop(store);
    let store = open(gate.disk());
    assert_eq!(state(&store), before);
    assert!(
        gate.most_open() < 250,
        "{} files open at once",
        gate.most_open()
    );
}

#[test]
fn a_read_error_fails_only_that_read() {
    let gate = Gate::new(SimDisk::new());
    let store = open(gate.disk());
    for topic in ["a", "b"] {
        create(&store, topic);
        for n in 0..100_u32 {
            execute(&store, &[put(topic, &n.to_be_bytes(), &[3; 500])]);
        }
    }
    store.checkpoint().unwrap();
    gate.rule(Op::Read, "topics/00000000", Rule::Fail(EIO));
    let mut reader = store.read("a", ConsequenceOffset::ZERO).unwrap();
    for error in [
        reader.next_page().unwrap_err(),
        store.get("a", &[0; 4]).unwrap_err(),
    ] {
        let StoreError::Io { subject, verb, .. } = &error else {
            panic!("{error}");
        };
        assert!(subject.starts_with("topics/00000000/"), "{subject}");
        assert_eq!(*verb, IoVerb::Read);
    }
    assert_eq!(
        records(&store, "b").len(),
        101,
        "the other topic is readable"
    );
    execute(&store, &[put("a", b"new", b"v")]);
    assert!(store.get("a", b"new").unwrap().is_some());
    gate.release();
    assert!(
        reader.next_page().unwrap().is_some(),
        "the reader continues"
    );
    assert_eq!(records(&store, "a").len(), 102);
    drop(store);
    // A failed read is not damage: the open is refused with the error of the system.
    gate.rule(Op::Read, "snapshots/", Rule::Fail(EIO));
    let refused = Store::open_disk(gate.disk(), &options());
    assert!(matches!(refused, Err(StoreError::Io { .. })));
    gate.release();
    let store = open(gate.disk());
    assert!(store.report().set_aside.is_empty());
    assert_eq!(records(&store, "a").len(), 102);
}

/// Invariant of OV7: without free descriptors, a write waits and does not fail.
#[test]
fn a_write_waits_for_descriptors_and_does_not_fail() {
    for error in [EMFILE, ENFILE] {
        for (op, path) in [
            (Op::Create, "log/"),
            (Op::SyncDir, "log"),
            (Op::Create, "topics/"),
        ] {
            let gate = Gate::new(SimDisk::new());
            let store = open(gate.disk());
            create(&store, "t");
            gate.rule(op, path, Rule::FailTimes(error, 3));
            // Each write is larger than a log segment, so each needs a new one.
            let value = vec![7; 40 << 10];
            for n in 0..3_u32 {
                execute(&store, &[put("t", &n.to_be_bytes(), &value)]);
            }
            assert!(!store.is_poisoned(), "{op:?} of {path}");
            let before = state(&store);
            drop(store);
            assert_eq!(state(&open(gate.disk())), before, "{op:?} of {path}");
        }
    }
}

#[test]
fn a_store_without_descriptors_closes() {
    let gate = Gate::new(SimDisk::new());
    let store = Arc::new(open(gate.disk()));
    create(&store, "t");
    gate.rule(Op::Create, "log/", Rule::Fail(EMFILE));
    let value = vec![7; 40 << 10];
    let proposal = store.propose(&[put("t", b"k", &value)]).unwrap();
    store.shut_down().unwrap();
    let refused = proposal.wait().unwrap_err();
    assert_eq!(refused.code(), ErrorCode::TooFewDescriptors, "{refused}");
}

#[test]
fn a_store_without_descriptors_closes_although_a_cursor_is_deferred() {
    let gate = Gate::new(SimDisk::new());
    let later = OpenOptions {
        cursor_flush: Duration::from_hours(1),
        ..options()
    };
    let store = Arc::new(Store::open_disk(gate.disk(), &later).unwrap());
    create(&store, "t");
    let setup = GroupSetup::new(GroupMode::Exclusive);
    let opened = store.group_step("t", "g", GroupStep::Open(setup)).unwrap();
    assert_eq!(opened.effect, Effect::Valid);
    store
        .move_cursor("t", "g", 0, ConsequenceOffset(1))
        .unwrap();
    gate.rule(Op::Create, "log/", Rule::Fail(EMFILE));
    let value = vec![7; 40 << 10];
    let proposal = store.propose(&[put("t", b"k", &value)]).unwrap();
    let (sender, closed) = mpsc::channel();
    let closing = Arc::clone(&store);
    let thread = std::thread::spawn(move || sender.send(closing.shut_down()));
    let ended = closed.recv_timeout(PATIENCE);
    // A close that waits for a descriptor must not hang the test.
    gate.release();
    thread.join().unwrap().unwrap();
    ended.unwrap().unwrap();
    let refused = proposal.wait().unwrap_err();
    assert_eq!(refused.code(), ErrorCode::TooFewDescriptors, "{refused}");
}

#[test]
fn a_removed_directory_stops_writes_at_levels_that_do_not_wait() {
    let levels = [
        Durability::Interval(Duration::from_millis(20)),
        Durability::Memory,
    ];
    for durability in levels {
        let root = tempfile::tempdir().unwrap();
        let (path, renamed) = (root.path().join("store"), root.path().join("renamed"));
        let level = OpenOptions {
            durability,
            log_segment_bytes: 64 << 20,
            ..options()
        };
        let store = Store::open(&path, &level).unwrap();
        create(&store, "t");
        std::fs::rename(&path, &renamed).unwrap();
        let segments = || std::fs::read_dir(renamed.join("log")).unwrap().count();
        let before = segments();
        let start = Instant::now();
        let mut calls = 0;
        while store.poison_cause().is_none() {
            assert!(start.elapsed() < PATIENCE, "{durability:?}: {calls} calls");
            // At `Interval`, the sync of the first write finds the fault.
            if durability == Durability::Memory || calls == 0 {
                calls += 1;
                drop(try_execute(&store, &[put("t", b"k", b"v")]));
            }
            std::thread::park_timeout(Duration::from_millis(200));
        }
        // Creating a new log segment would have found the fault too.
        assert_eq!(segments(), before, "{durability:?}: {calls} calls");
        let cause = store.poison_cause().unwrap();
        let is_missing_directory = matches!(
            &*cause,
            StoreError::Io {
                verb: IoVerb::Find,
                ..
            }
        );
        assert!(is_missing_directory, "{durability:?}: {cause}");
        let refused = try_execute(&store, &[put("t", b"k", b"v")]);
        assert!(matches!(refused, Err(StoreError::Poisoned { .. })));
    }
}
