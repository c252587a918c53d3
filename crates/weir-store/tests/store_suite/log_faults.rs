//! Failures of the disk: syncs, writes, reads, and no space.

use crate::disks::{EMFILE, Gate, Op, Rule};
use crate::log_sim::{
    ID, SplitMix, Step, check_recovered, entries, open, options, payload, register_payloads, run,
    scale, script,
};
use weir_core::ErrorCode;
use weir_store::disk::{SimDisk, SimFailure, SimOp};
use weir_store::error::{IoVerb, Retry, StoreError};
use weir_store::log::{Log, LogIndex};

fn log() -> (SimDisk, Log) {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, &options()).unwrap();
    (disk, log)
}

fn is_poisoned(result: &Result<(), StoreError>) -> bool {
    matches!(result, Err(StoreError::Poisoned { .. }))
}

/// Returns whether the stored cause is a failed sync of the log.
fn is_failed_sync(error: &StoreError) -> bool {
    let StoreError::Io { subject, verb, .. } = error.root() else {
        return false;
    };
    subject.starts_with("log/") && *verb == IoVerb::Sync
}

#[test]
fn a_failed_write_is_reported_with_its_position_and_error_number() {
    let (disk, mut log) = log();
    log.append(1, 1, &[b"one"]).unwrap();
    disk.fail(SimOp::Write, 1, SimFailure::Io);
    let first = log.append(1, 1, &[b"two"]).unwrap_err();
    for error in [first, log.append(1, 1, &[b"three"]).unwrap_err()] {
        let StoreError::Io {
            subject,
            offset,
            verb,
            source,
        } = error.root()
        else {
            panic!("{error}");
        };
        assert!(subject.starts_with("log/0"), "{subject}");
        assert!(offset.is_some_and(|offset| offset >= 4096 && offset % 512 == 0));
        assert_eq!((*verb, source.raw_os_error()), (IoVerb::Write, Some(5)));
        let text = error.to_string();
        assert!(
            text.contains("cannot write log/0") && text.contains(" at byte "),
            "{text}"
        );
    }
}

#[test]
fn a_failed_sync_poisons_the_log_and_reads_continue() {
    let (disk, mut log) = log();
    log.append(1, 1, &[b"durable"]).unwrap();
    log.sync().unwrap();
    log.append(1, 1, &[b"in doubt"]).unwrap();
    disk.fail(SimOp::Sync, 1, SimFailure::Io);
    let error = log.sync().unwrap_err();
    assert_eq!(error.retry(), Retry::Reopen);
    assert!(is_failed_sync(&error));
    assert_eq!(log.durable_index(), LogIndex(1));
    let syncs = disk.counts().syncs;
    assert!(is_poisoned(&log.sync()) && is_poisoned(&log.seal()));
    assert!(is_poisoned(&log.truncate_after(LogIndex(1))));
    assert!(is_poisoned(&log.purge_through(LogIndex(1))));
    assert!(is_poisoned(&log.reset(LogIndex(9), 1)));
    assert!(is_poisoned(&log.append(1, 1, &[b"no"]).map(drop)));
    assert_eq!(
        disk.counts().syncs,
        syncs,
        "a failed sync is never repeated"
    );
    let mut reader = log.reader(LogIndex(1));
    assert_eq!(
        &*reader.next(LogIndex(2)).unwrap().unwrap().payload,
        b"durable"
    );
    assert!(is_poisoned(&log.close()));
}

#[test]
fn the_log_after_a_failed_sync_and_a_reopen_is_durable() {
    // The cache has the entries, but the disk has lost them. Another sync of these pages
    // would report success.
    for fail in 1..=4 {
        for seed in 0..20 {
            let (disk, mut log) = log();
            let mut written = 0;
            disk.fail(SimOp::Sync, fail, SimFailure::Io);
            while log.append(1, 1, &[&payload(written * 31)]).is_ok() {
                written += 1;
                if written % 3 == 0 && log.sync().is_err() {
                    break;
                }
            }
            drop(log);
            let again = disk.killed();
            let (log, recovery) = open(&again, &options()).unwrap();
            let last = log.last_index();
            assert_eq!(last.0, written);
            assert!(recovery.copied_entries > 0);
            drop(log);
            let (log, _) = open(&again.power_cut(seed), &options()).unwrap();
            assert_eq!(log.last_index(), last, "fail {fail} seed {seed}");
        }
    }
}

#[test]
fn a_mark_whose_sync_failed_is_written_again_by_the_next_open() {
    for clean in [false, true] {
        for seed in 0..10 {
            let (disk, mut log) = log();
            log.append(1, 1, &[b"one"]).unwrap();
            log.sync().unwrap();
            // Only the mark is not synced yet.
            disk.fail(SimOp::Sync, 1, SimFailure::Io);
            let failed = if clean { log.close() } else { log.seal() };
            assert!(failed.is_err_and(|error| is_failed_sync(&error)));
            // The cache has the mark, but the disk does not.
            let again = disk.killed();
            let (mut log, recovery) = open(&again, &options()).unwrap();
            assert_eq!((recovery.clean, recovery.repaired), (clean, false));
            log.append(1, 1, &[b"two"]).unwrap();
            log.sync().unwrap();
            log.seal().unwrap();
            let (log, _) = open(&again.power_cut(seed), &options()).unwrap();
            assert_eq!(log.last_index(), LogIndex(2));
        }
    }
}

#[test]
fn every_failing_operation_returns_an_error_and_the_log_reopens() {
    let kinds = [
        (SimOp::Write, SimFailure::Io),
        (SimOp::Write, SimFailure::Short),
        (SimOp::Write, SimFailure::Full),
        (SimOp::Sync, SimFailure::Io),
        (SimOp::SyncDir, SimFailure::Io),
        (SimOp::Resize, SimFailure::Full),
        (SimOp::Resize, SimFailure::Io),
        (SimOp::Create, SimFailure::Full),
        (SimOp::Rename, SimFailure::Io),
        (SimOp::Remove, SimFailure::Io),
        (SimOp::Read, SimFailure::Io),
    ];
    let mut failed = 0;
    for seed in 0..3 * scale() {
        let mut steps = script(seed + 500, 60);
        steps.retain(|step| !matches!(step, Step::Kill));
        register_payloads(&mut steps);
        for (op, failure) in kinds {
            for nth in (1..).step_by(if op == SimOp::Write { 3 } else { 1 }) {
                let disk = SimDisk::new();
                disk.fail(op, nth, failure);
                let trace = run(&disk, &steps, &options());
                if trace.complete {
                    // A smaller file may have avoided the full disk.
                    if nth > 200 || disk.counts().ops < nth {
                        break;
                    }
                    let complete = run(&SimDisk::new(), &steps, &options()).complete;
                    assert!(complete);
                    break;
                }
                failed += 1;
                let what = format!("seed {seed} {op:?} {failure:?} {nth}");
                // The process restarts; the machine restarts only after a power cut.
                for crashed in [disk.killed(), disk.power_cut(nth)] {
                    let (log, _) =
                        open(&crashed, &options()).unwrap_or_else(|e| panic!("{what}: {e}"));
                    check_recovered(&log, &trace).unwrap_or_else(|error| panic!("{what}: {error}"));
                    let before = entries(&log);
                    drop(log);
                    let (log, _) = open(&crashed.power_cut(nth), &options()).unwrap();
                    assert_eq!(entries(&log), before, "{what}");
                }
            }
        }
    }
    assert!(failed > 200, "{failed}");
}

#[test]
fn a_full_disk_is_reported_before_a_write_and_writes_resume() {
    let (disk, mut log) = log();
    let mut settings = options();
    settings.reserve_bytes = 16 << 10;
    drop(log);
    (log, _) = open(&disk, &settings).unwrap();
    disk.set_capacity(64 << 10);
    let bytes = [7; 700];
    let refused = loop {
        let ops = disk.counts().ops;
        let before = (log.last_index(), log.sequence_and_epoch());
        match log.append(1, 1, &[&bytes]) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(before, (log.last_index(), log.sequence_and_epoch()));
                assert_eq!(ops, disk.counts().ops, "no operation was tried");
                break error;
            }
        }
    };
    assert!(matches!(refused, StoreError::DiskFull { .. }) && refused.retry() == Retry::Later);
    log.sync().unwrap();
    let last = log.last_index();
    assert!(last.0 > 10);
    // Reading, purging and a clean stop work while the disk is full.
    assert!(log.reader(LogIndex(1)).next(last).unwrap().is_some());
    assert!(log.append(1, 1, &[&bytes]).is_err());
    drop(log);
    let (mut log, _) = open(&disk.power_cut(3), &settings).unwrap();
    assert_eq!(log.last_index(), last);
    log.purge_through(last).unwrap();
    log.append(1, 1, &[&bytes]).unwrap();
    log.close().unwrap();
    disk.set_capacity(u64::MAX);
    let (mut log, _) = open(&disk, &settings).unwrap();
    log.append(1, 1, &[&bytes]).unwrap();
}

#[test]
fn a_reset_that_cannot_write_the_start_file_accepts_no_entry() {
    let (disk, mut log) = log();
    log.append(1, 1, &[b"old"]).unwrap();
    log.sync().unwrap();
    // The first new file is the segment of the reset, the second is the start file.
    disk.fail(SimOp::Create, 2, SimFailure::Io);
    assert!(log.reset(LogIndex(1000), 9).is_err());
    assert!(is_poisoned(&log.append(1, 1, &[b"lost"]).map(drop)));
    drop(log);
    let (log, _) = open(&disk.killed(), &options()).unwrap();
    assert_eq!((log.first_index().0, log.last_index().0), (1000, 999));
}

#[test]
fn a_repair_without_descriptors_keeps_the_segment_that_it_replaces() {
    let (disk, mut log) = log();
    while log.stats().segments < 2 {
        log.append(1, 1, &[&[7; 3000]]).unwrap();
    }
    // Its only entry is acknowledged, but no later batch proves it.
    log.sync().unwrap();
    let last = log.last_index();
    drop(log);
    for lacking in [Op::Create, Op::Open, Op::SyncDir] {
        let disk = disk.killed();
        let gate = Gate::new(disk.clone());
        let rule = Rule::Fail(EMFILE);
        if lacking == Op::Create {
            gate.rule(lacking, "log", rule);
        } else {
            // The repair has its new file open.
            let rules = gate.clone();
            gate.observe(move |op, _| {
                if op == Op::Create {
                    rules.rule(lacking, "log", rule);
                }
            });
        }
        let failed = Log::open(gate.disk(), ID, options()).map(drop).unwrap_err();
        assert_eq!(failed.code(), ErrorCode::TooFewDescriptors, "{lacking:?}");
        for seed in 0..4 {
            let (log, _) = open(&disk.power_cut(seed), &options()).unwrap();
            assert_eq!(log.last_index(), last, "{lacking:?} seed {seed}");
        }
        let (log, _) = open(&disk, &options()).unwrap();
        assert_eq!(log.last_index(), last, "{lacking:?}");
    }
}

#[test]
fn a_segment_that_cannot_be_created_changes_nothing() {
    let (disk, mut log) = log();
    disk.fail(SimOp::Create, 1, SimFailure::Io);
    let mut refused = 0;
    for _ in 0..40 {
        let before = log.last_index();
        if let Err(error) = log.append(1, 1, &[&[7; 700]]) {
            assert!(matches!(error, StoreError::Io { .. }));
            assert_eq!(log.last_index(), before);
            refused += 1;
        }
    }
    assert_eq!((refused, log.last_index()), (1, LogIndex(39)));
    log.close().unwrap();
    assert!(open(&disk.power_cut(1), &options()).unwrap().1.clean);
}

#[test]
fn a_full_disk_can_be_opened_stopped_and_opened_again() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk, &options()).unwrap();
    while log.sequence_and_epoch().0 < 60 {
        log.append(1, 1, &[b"x"]).unwrap();
    }
    log.sync().unwrap();
    let used: usize = disk
        .files()
        .iter()
        .map(|file| disk.content(file).unwrap().len())
        .sum();
    disk.set_capacity(used as u64);
    while log.append(1, 1, &[b"x"]).is_ok() {}
    log.sync().unwrap();
    let last = log.last_index();
    log.close().unwrap();
    for _ in 0..2 {
        let (log, recovery) = open(&disk, &options()).unwrap();
        assert!(recovery.clean);
        assert_eq!(log.last_index(), last);
        log.close().unwrap();
    }
}

#[test]
fn a_read_error_fails_only_that_read() {
    let (disk, mut log) = log();
    for number in 0..3 {
        log.append(1, 1, &[&payload(number)]).unwrap();
    }
    let mut reader = log.reader(LogIndex(1));
    disk.fail(SimOp::Read, 1, SimFailure::Io);
    assert!(matches!(
        reader.next(LogIndex(3)),
        Err(StoreError::Io { .. })
    ));
    assert_eq!(
        reader.next(LogIndex(3)).unwrap().unwrap().index,
        LogIndex(1)
    );
    log.append(1, 1, &[b"more"]).unwrap();
    log.sync().unwrap();
}

#[test]
fn background_syncs_leave_a_prefix() {
    let mut settings = options();
    settings.sync_on_roll = false;
    settings.zero_ahead_bytes = 0;
    for seed in 0..200 * scale() {
        let mut draw = SplitMix(seed);
        let disk = SimDisk::new();
        let (mut log, _) = open(&disk, &settings).unwrap();
        let mut written = Vec::new();
        let mut certain = 0;
        for _ in 0..40 + draw.below(120) {
            let mut step = [Step::Append(draw.next())];
            register_payloads(&mut step);
            let [Step::Append(number)] = step else {
                unreachable!()
            };
            log.append(1, 1, &[&payload(number)]).unwrap();
            written.push((log.last_index().0, 1, number));
            if draw.below(60) == 0 {
                log.sync().unwrap();
                certain = written.len();
            }
        }
        let left = disk.power_cut(draw.next());
        let (log, _) = open(&left, &settings).unwrap_or_else(|error| panic!("{seed}: {error}"));
        let found = entries(&log);
        assert!(found.len() >= certain, "seed {seed}");
        assert_eq!(found, written[..found.len()], "seed {seed}");
    }
}

#[test]
fn refused_calls_change_nothing() {
    let (disk, mut log) = log();
    for _ in 0..5 {
        log.append(3, 1, &[b"x"]).unwrap();
    }
    log.sync().unwrap();
    let ops = disk.counts().ops;
    assert!(matches!(
        log.append(2, 1, &[b"x"]),
        Err(StoreError::IndexOutOfRange { .. })
    ));
    assert!(matches!(
        log.truncate_after(LogIndex(6)),
        Err(StoreError::IndexOutOfRange { .. })
    ));
    assert!(matches!(
        log.purge_through(LogIndex(6)),
        Err(StoreError::IndexOutOfRange { .. })
    ));
    log.purge_through(LogIndex(3)).unwrap();
    assert!(matches!(
        log.truncate_after(LogIndex(2)),
        Err(StoreError::IndexOutOfRange { .. })
    ));
    assert!(matches!(
        log.purge_through(LogIndex(2)),
        Err(StoreError::IndexOutOfRange { .. })
    ));
    assert!(matches!(
        log.reset(LogIndex(0), 3),
        Err(StoreError::IndexOutOfRange { .. })
    ));
    log.append(3, 1, &[b"x"]).unwrap();
    assert!(matches!(
        log.purge_through(LogIndex(6)),
        Err(StoreError::IndexOutOfRange { .. })
    ));
    assert!(disk.counts().ops > ops);
    assert_eq!(
        (log.first_index(), log.last_index()),
        (LogIndex(4), LogIndex(6))
    );
}
