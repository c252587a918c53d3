//! Power cuts at every operation, at random, during recovery, and with a disk whose sync
//! does not persist. No acknowledged entry is lost, and a torn end is repaired.

use crate::log_sim::{
    Draw, Step, Trace, allowed, entries, know, open, options, payload, run, scale, script,
};
use weir_store::disk::SimDisk;
use weir_store::log::LogOptions;

/// Opens the disk after a cut and compares its content. Opens it again after one more cut:
/// the second recovery finds nothing to do.
fn check(disk: &SimDisk, trace: &Trace, options: &LogOptions, what: &str) {
    let (log, first) = open(disk, options).unwrap_or_else(|error| panic!("{what}: {error}"));
    allowed(&log, trace).unwrap_or_else(|error| panic!("{what}: {error}, {first:?}"));
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
    know(&mut steps);
    let options = options();
    let whole = SimDisk::new();
    let trace = run(&whole, &steps, &options);
    assert!(trace.complete, "seed {seed}");
    let ops = whole.counts().ops;
    for op in 1..=ops {
        let disk = SimDisk::new();
        disk.cut_at(op);
        let trace = run(&disk, &steps, &options);
        assert!(disk.is_off() && !trace.complete);
        for image in 0..images {
            let left = disk.power_cut(image * 1_000_003 + op);
            check(
                &left,
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
        know(&mut steps);
        let options = options();
        let whole = SimDisk::new();
        run(&whole, &steps, &options);
        let ops = whole.counts().ops;
        for op in (ops.saturating_sub(40)..=ops).step_by(3) {
            let disk = SimDisk::new();
            disk.cut_at(op);
            let trace = run(&disk, &steps, &options);
            let left = disk.power_cut(seed * 1000 + op);
            let recovery = {
                let probe = left.killed();
                open(&probe, &options).unwrap();
                probe.counts().ops
            };
            for at in 1..=recovery {
                let half = left.killed();
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
        let mut draw = Draw(seed);
        let len = 5 + draw.below(40);
        let mut steps = script(seed + 1_000_000, len);
        for _ in 0..=draw.below(6) {
            steps.push(Step::Append(draw.next()));
        }
        know(&mut steps);
        let disk = SimDisk::new();
        let trace = run(&disk, &steps, &options);
        assert!(trace.complete, "seed {seed}");
        let left = disk.power_cut(draw.next());
        let what = format!("seed {seed}");
        check(&left.killed(), &trace, &options, &what);
        let (_, recovery) = open(&left, &options).unwrap();
        torn += u64::from(!recovery.cuts.is_empty());
        copied += recovery.copied_entries;
    }
    assert!(
        torn > 200 && copied > 200,
        "too tame: {torn} torn, {copied} copied"
    );
}

#[test]
fn a_kill_anywhere_and_a_power_cut_later_lose_nothing() {
    // The process dies between a rename and the sync of its directory. The next process
    // sees the new name and appends; then the power fails.
    for seed in 40..40 + 4 * scale() {
        let mut steps = script(seed, 50);
        know(&mut steps);
        let options = options();
        let whole = SimDisk::new();
        run(&whole, &steps, &options);
        for op in 1..=whole.counts().ops {
            let disk = SimDisk::new();
            disk.cut_at(op);
            run(&disk, &steps, &options);
            let second = disk.killed();
            let what = format!("seed {seed} op {op}");
            let (mut log, _) = open(&second, &options).unwrap_or_else(|e| panic!("{what}: {e}"));
            let mut step = [Step::Append(9)];
            know(&mut step);
            let [Step::Append(number)] = step else {
                unreachable!()
            };
            log.append(1000, 1, &[&payload(number)]).unwrap();
            log.sync().unwrap();
            let expected = entries(&log);
            drop(log);
            for image in 0..3 {
                let left = second.power_cut(image * 31 + op);
                let (log, _) = open(&left, &options).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert_eq!(entries(&log), expected, "{what} image {image}");
            }
        }
    }
}

#[test]
fn several_lives_with_a_cut_in_each() {
    for seed in 0..200 * scale() {
        let mut draw = Draw(seed + 77);
        let options = options();
        let mut disk = SimDisk::new();
        let mut expected: Vec<(u64, u64, u64)> = Vec::new();
        let mut certain = 0;
        // The batch that each pair of sequence and epoch has identified.
        let mut places = std::collections::BTreeMap::new();
        for life in 0..6 {
            let (mut log, _) =
                open(&disk, &options).unwrap_or_else(|e| panic!("seed {seed} life {life}: {e}"));
            let found = entries(&log);
            assert!(found.len() >= certain, "seed {seed} life {life}");
            assert_eq!(found, expected[..found.len()], "seed {seed} life {life}");
            expected = found;
            certain = expected.len();
            for _ in 0..draw.below(25) {
                let mut step = [Step::Append(draw.next())];
                know(&mut step);
                let [Step::Append(number)] = step else {
                    unreachable!()
                };
                let index = log.append(life, 1, &[&payload(number)]).unwrap();
                expected.push((index.0, life, number));
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
                let was = *places.entry((entry.sequence, entry.epoch)).or_insert(is);
                assert_eq!(was, is, "seed {seed} life {life}");
            }
            disk = disk.power_cut(draw.next());
        }
    }
}
