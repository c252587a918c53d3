//! Histories of simulated clusters.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed expectation is what a test is for"
)]

use weir_sim::{
    DiskFault, Planted, Report, Scenario, Violation, run, run_scenario, run_with_disk_fault,
};

/// Histories of an ordinary test run. `WEIR_SIM_SEEDS=FIRST..END` runs others;
/// `WEIR_SIM_TRACE=FILE` writes the events of a history.
const SEEDS: std::ops::Range<u64> = 0..300;

fn seeds() -> std::ops::Range<u64> {
    let Ok(range) = std::env::var("WEIR_SIM_SEEDS") else {
        return SEEDS;
    };
    let (first, end) = range.split_once("..").expect("FIRST..END");
    first.parse().unwrap()..end.parse().unwrap()
}

/// Runs histories on two threads.
fn all(seeds: std::ops::Range<u64>) -> Vec<(u64, Result<Report, Violation>)> {
    let half = |parity: u64| {
        let seeds = seeds.clone().filter(move |seed| seed % 2 == parity);
        std::thread::spawn(move || {
            seeds
                .map(|seed| (seed, run(seed, None)))
                .collect::<Vec<_>>()
        })
    };
    let halves = [half(0), half(1)];
    halves
        .into_iter()
        .flat_map(|half| half.join().unwrap())
        .collect()
}

#[test]
fn no_history_breaks_an_invariant() {
    let seeds = seeds();
    let has_all = seeds.end - seeds.start >= 100;
    let (mut broken, mut seen) = (0, [0; 14]);
    for (seed, result) in all(seeds) {
        match result {
            Ok(report) => {
                let has_both = report.claimed > 0 && report.delivered > 0;
                let counts = [
                    report.acknowledged,
                    report.linear_reads,
                    report.power_cuts,
                    report.partitions,
                    report.bridges_of_five,
                    report.rolling_restarts,
                    report.clock_jumps,
                    report.transfers,
                    if has_both { report.transfers } else { 0 },
                    report.checkpoints,
                    report.installs,
                    report.claimed,
                    report.delivered,
                    report.changes,
                ];
                for (sum, count) in seen.iter_mut().zip(counts) {
                    *sum += count;
                }
            }
            Err(violation) => {
                broken += 1;
                println!(
                    "seed {seed}: {violation}\n  WEIR_SIM_SEEDS={seed}..{} cargo test --package \
                     weir-sim no_history",
                    seed + 1
                );
            }
        }
    }
    let [
        acks,
        reads,
        cuts,
        partitions,
        bridges,
        rolled,
        jumps,
        transfers,
        attached,
        checkpoints,
        installs,
        claimed,
        delivered,
        changes,
    ] = seen;
    println!(
        "{acks} acknowledged, {reads} linear reads, {cuts} power cuts, {partitions} partitions \
         ({bridges} bridges of five nodes), {rolled} rolling restarts, {jumps} jumps of clocks, \
         {transfers} transfers ({attached} with a group and listeners), {checkpoints} checkpoints, \
         {installs} installed snapshots, {claimed} claimed records, {delivered} delivered records, \
         {changes} changes of members"
    );
    assert_eq!(broken, 0, "histories that broke an invariant");
    let is_seen = seen.iter().all(|count| *count > 0);
    assert!(
        is_seen || !has_all,
        "a fault that is simulated never happened"
    );
}

#[test]
fn equal_seeds_give_equal_histories() {
    for seed in 0..5 {
        let first = run(seed, None).unwrap();
        for _ in 0..3 {
            assert_eq!(run(seed, None).unwrap(), first, "seed {seed}");
        }
    }
}

/// Regression test: a leader without peers wrote snapshots without end, so simulated time stopped.
#[test]
fn a_leader_without_peers_is_idle_after_a_snapshot() {
    run(106, None).unwrap();
}

fn all_seeds(scenario: Scenario) {
    for seed in 0..5 {
        let ended = run_scenario(seed, scenario);
        assert_eq!(ended, Ok(()), "seed {seed}");
    }
}

/// Fails without `quorum_loss_probe_interval`.
#[test]
fn a_leader_without_a_majority_stops_its_heartbeats() {
    all_seeds(Scenario::PartialPartition);
}

/// Fails without `removed_leader_step_down`.
#[test]
fn a_leader_that_is_removed_steps_down() {
    all_seeds(Scenario::RemovedLeader);
}

/// Fails without `enable_pre_vote`.
#[test]
fn a_follower_that_returns_does_not_depose_the_leader() {
    all_seeds(Scenario::CutOffFollower);
}

/// Two of five nodes are stopped at a time, in all 30 orders.
#[test]
fn rolling_restarts_in_every_order_keep_acknowledged_writes() {
    all_seeds(Scenario::RollingRestarts);
}

/// The violation of the first seed that finds a planted fault.
fn violation_of(planted: Planted, seeds_max: u64) -> Violation {
    for seed in 0..seeds_max {
        if let Err(violation) = run(seed, Some(planted)) {
            println!("{planted:?}: seed {seed}: {violation}");
            return violation;
        }
    }
    panic!("{planted:?} is not found within {seeds_max} seeds");
}

#[test]
fn a_vote_that_is_not_saved_is_found() {
    violation_of(Planted::VoteNotSaved, 100);
}

#[test]
fn a_skipped_sync_is_found() {
    violation_of(Planted::SyncSkipped, 20);
}

#[test]
fn a_sync_that_is_reported_early_is_found() {
    violation_of(Planted::SyncReportedEarly, 200);
}

#[test]
fn a_leader_that_trusts_its_clock_is_found() {
    assert_eq!(
        violation_of(Planted::LeaderByClock, 100).invariant,
        "a linear read is never stale"
    );
}

#[test]
fn a_truncation_that_keeps_waiters_is_found() {
    violation_of(Planted::TruncationKeepsWaiters, 100);
}

#[test]
fn a_snapshot_without_membership_is_found() {
    violation_of(Planted::SnapshotWithoutMembership, 100);
}

#[test]
fn a_local_read_as_a_linear_one_is_found() {
    assert_eq!(
        violation_of(Planted::LocalRead, 5).invariant,
        "a linear read is never stale"
    );
}

#[test]
fn a_listener_that_resumes_too_early_or_too_late_is_found() {
    for planted in [Planted::ListenerResumesEarly, Planted::ListenerResumesLate] {
        assert_eq!(
            violation_of(planted, 50).invariant,
            "LI1: a listener receives each record once and in order"
        );
    }
}

/// Every kind of read is stale in some history if nodes answer from their own state. The group does
/// not exist in these histories.
#[test]
fn every_kind_of_local_read_is_found() {
    let mut kinds = std::collections::BTreeSet::new();
    for seed in 0..100 {
        if let Err(violation) = run(seed, Some(Planted::LocalRead)) {
            let kind = violation.found.split(' ').next().unwrap().to_owned();
            kinds.insert(kind);
        }
        if kinds.len() == 4 {
            break;
        }
    }
    let kinds: Vec<_> = kinds.iter().map(String::as_str).collect();
    assert_eq!(kinds, ["List", "Page", "Record", "Topic"]);
}

/// How many histories a disk fault of one node breaks, and how many nodes it ends.
fn broken(fault: DiskFault, seeds: u64) -> (usize, u64) {
    let (mut broken, mut excluded) = (0, 0);
    for seed in 0..seeds {
        match run_with_disk_fault(seed, fault) {
            Ok(report) => excluded += report.excluded,
            Err(violation) => {
                broken += 1;
                println!("{fault:?}: seed {seed}: {violation}");
            }
        }
    }
    (broken, excluded)
}

#[test]
fn a_lost_disk_breaks_nothing() {
    assert_eq!(broken(DiskFault::Lost, 20), (0, 20));
}

/// Without incarnations of disks, an empty disk under the old number breaks safety.
#[test]
fn a_lost_disk_without_incarnations_breaks_an_invariant() {
    let (broken, _) = broken(DiskFault::LostUnnoticed, 20);
    assert!(broken > 0);
}

#[test]
fn an_older_copy_of_a_disk_breaks_nothing() {
    let (broken, excluded) = broken(DiskFault::OlderCopy, 20);
    assert_eq!(broken, 0);
    // Some copies lack nothing relevant.
    assert!(excluded > 10, "{excluded} nodes were refused");
}

/// Without the reports of nodes, an older copy of a directory breaks safety.
#[test]
fn an_older_copy_without_reports_breaks_an_invariant() {
    let (broken, _) = broken(DiskFault::OlderCopyUnnoticed, 20);
    assert!(broken > 0);
}

#[test]
fn a_flipped_bit_breaks_nothing() {
    let (broken, excluded) = broken(DiskFault::FlippedBit, 20);
    // Every such node detects the damage, and refuses to open.
    assert_eq!((broken, excluded), (0, 20));
}

/// Without checksums, a flipped bit produces two states from one log.
#[test]
fn a_flipped_bit_without_checksums_breaks_an_invariant() {
    let (broken, _) = broken(DiskFault::FlippedBitUnchecked, 20);
    assert!(broken > 0);
}
