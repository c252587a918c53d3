//! Power cuts at every operation, at random, during recovery, and with a disk whose sync
//! does not persist. No acknowledged entry is lost, and a torn end is repaired.

use crate::log_sim::{
    SplitMix, Step, Trace, check_recovered, entries, open, options, payload, register_payloads,
    run, scale, script,
};
use weir_store::disk::SimDisk;
use weir_store::log::LogOptions;

/// Opens the disk after a cut and compares its content. After one more cut, opens it again:
/// the second recovery must find nothing to repair.
fn check(disk: &SimDisk, trace: &Trace, options: &LogOptions, what: &str) {
    let (log, first) = open(disk, options).unwrap_or_else(|error| panic!("{what}: {error}"));
    check_recovered(&log, trace).unwrap_or_else(|error| panic!("{what}: {error}, {first:?}"));
    let before = entries(&log);
    drop(log);
    let again = disk.power_cut(7);
    let (log, second) = open(&again, options).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(entries(&log), before, "{what}");
    assert!(
        second.cuts.is_empty() && !second.repaired && second.copied_entries == 0,
        "{what}: {second:?} after {first:?}"
    );
}

/// Counts the operations of a script, and cuts the power at each of them.
fn cut_everywhere(seed: u64, len: u64, images: u64) -> u64 {
    let mut steps = script(seed, len);
    register_payloads(&mut steps);
    let options = options();
    let complete = SimDisk::new();
    let trace = run(&complete, &steps, &options);
    assert!(trace.complete, "seed {seed}");
    let ops = complete.counts().ops;
    for op in 1..=ops {
        let disk = SimDisk::new();
        disk.cut_at(op);
        let trace = run(&disk, &steps, &options);
        assert!(disk.is_off() && !trace.complete);
        for image in 0..images {
            let crashed = disk.power_cut(image * 1_000_003 + op);
            check(
                &crashed,
                &trace,
                &options,
                &format!("seed {seed} op {op} image {image}"),
            );
        }
    }
    ops
}

#[test]
fn nothing_acknowledged_is_lost_at_any_operation() {
    let mut ops = 0;
    for seed in 0..8 * scale() {
        ops += cut_everywhere(seed, 60, 3);
    }
    assert!(ops > 500, "the scripts do too little: {ops}");
}

#[test]
fn a_cut_during_recovery_changes_nothing() {
    for seed in 100..100 + 6 * scale() {
        let mut steps = script(seed, 50);
        steps.extend([Step::Append(1), Step::Append(2), Step::Append(3)]);
        register_payloads(&mut steps);
        let options = options();
        let complete = SimDisk::new();
        run(&complete, &steps, &options);
        let ops = complete.counts().ops;
        for op in (ops.saturating_sub(40)..=ops).step_by(3) {
            let disk = SimDisk::new();
            disk.cut_at(op);
            let trace = run(&disk, &steps, &options);
            let crashed = disk.power_cut(seed * 1000 + op);
            let recovery = {
                let probe = crashed.killed();
                open(&probe, &options).unwrap();
                probe.counts().ops
            };
            for at in 1..=recovery {
                let half = crashed.killed();
                half.cut_at(at);
                assert!(open(&half, &options).is_err());
                for image in 0..3 {
                    let again = half.power_cut(at * 17 + image);
                    let what = format!("seed {seed} op {op} recovery op {at} image {image}");
                    check(&again, &trace, &options, &what);
                }
            }
        }
    }
}

#[test]
fn random_cuts_with_several_batches_in_flight() {
    let options = options();
    let mut torn = 0;
    let mut copied = 0;
    for seed in 0..2_500 * scale() {
        let mut draw = SplitMix(seed);
        let len = 5 + draw.below(40);
        let mut steps = script(seed + 1_000_000, len);
        for _ in 0..=draw.below(6) {
            steps.push(Step::Append(draw.next()));
        }
        register_payloads(&mut steps);
        let disk = SimDisk::new();
        let trace = run(&disk, &steps, &options);
        assert!(trace.complete, "seed {seed}");
        let crashed = disk.power_cut(draw.next());
        let what = format!("seed {seed}");
        check(&crashed.killed(), &trace, &options, &what);
        let (_, recovery) = open(&crashed, &options).unwrap();
        torn += u64::from(!recovery.cuts.is_empty());
        copied += recovery.copied_entries;
    }
    assert!(
        torn > 200 && copied > 200,
        "the scripts do too little: {torn} torn, {copied} copied"
    );
}

#[test]
fn a_kill_anywhere_and_a_power_cut_later_lose_nothing() {
    // The process is killed between a rename and the sync of the directory. The next process
    // reads the new name and appends; then the power fails.
    for seed in 40..40 + 4 * scale() {
        let mut steps = script(seed, 50);
        register_payloads(&mut steps);
        let options = options();
        let complete = SimDisk::new();
        run(&complete, &steps, &options);
        for op in 1..=complete.counts().ops {
            let disk = SimDisk::new();
            disk.cut_at(op);
            run(&disk, &steps, &options);
            let second = disk.killed();
            let what = format!("seed {seed} op {op}");
            let (mut log, _) = open(&second, &options).unwrap_or_else(|e| panic!("{what}: {e}"));
            let mut step = [Step::Append(9)];
            register_payloads(&mut step);
            let [Step::Append(number)] = step else {
                unreachable!()
            };
            log.append(1000, 1, &[&payload(number)]).unwrap();
            log.sync().unwrap();
            let expected = entries(&log);
            drop(log);
            for image in 0..3 {
                let crashed = second.power_cut(image * 31 + op);
                let (log, _) = open(&crashed, &options).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert_eq!(entries(&log), expected, "{what} image {image}");
            }
        }
    }
}

#[test]
fn several_runs_with_a_cut_in_each() {
    for seed in 0..200 * scale() {
        let mut draw = SplitMix(seed + 77);
        let options = options();
        let mut disk = SimDisk::new();
        let mut expected: Vec<(u64, u64, u64)> = Vec::new();
        let mut certain = 0;
        // The batch that each pair of sequence and epoch has identified.
        let mut batches = std::collections::BTreeMap::new();
        for run in 0..6 {
            let (mut log, _) =
                open(&disk, &options).unwrap_or_else(|e| panic!("seed {seed} run {run}: {e}"));
            let found = entries(&log);
            assert!(found.len() >= certain, "seed {seed} run {run}");
            assert_eq!(found, expected[..found.len()], "seed {seed} run {run}");
            expected = found;
            certain = expected.len();
            for _ in 0..draw.below(25) {
                let mut step = [Step::Append(draw.next())];
                register_payloads(&mut step);
                let [Step::Append(number)] = step else {
                    unreachable!()
                };
                let index = log.append(run, 1, &[&payload(number)]).unwrap();
                expected.push((index.0, run, number));
                if draw.below(3) == 0 {
                    log.sync().unwrap();
                    certain = expected.len();
                }
                if draw.below(12) == 0 {
                    log.seal().unwrap();
                    certain = expected.len();
                }
            }
            let mut reader = log.reader(log.first_index());
            while let Some(entry) = reader.next(log.last_index()).unwrap() {
                let is = (entry.index, entry.payload_crc);
                let was = *batches.entry((entry.sequence, entry.epoch)).or_insert(is);
                assert_eq!(was, is, "seed {seed} run {run}");
            }
            disk = disk.power_cut(draw.next());
        }
    }
}
