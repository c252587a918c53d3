//! Measures how often the lab decides correctly: many result sets of synthetic samples, with the
//! noise of a real machine and known true times.
#![allow(clippy::unwrap_used)] // a failed set-up is a failed test

use std::path::Path;

use weir_lab::canary::Reading;
use weir_lab::claim::Verdict;
use weir_lab::compare::{Change, compare};
use weir_lab::experiment::Experiment;
use weir_lab::fingerprint::Fingerprint;
use weir_lab::machine::Shares;
use weir_lab::protocol::Answer;
use weir_lab::results::{Block, BlockHead, Plan, PlannedCell, ResultSet, SCHEMA, Sample};
use weir_lab::rng::SplitMix64;
use weir_lab::stats::bootstrap::median_interval;
use weir_lab::stats::mann_whitney::shift;
use weir_lab::stats::wilcoxon::signed_rank_p;
use weir_lab::summary::Summary;

const SETS: u64 = 40;
/// Number of sets in which both contenders are equal.
const EQUAL_SETS: u64 = 200;
const BLOCKS: usize = 10;
const SAMPLES: usize = 20;

const EXPERIMENT: &str = r#"
[experiment]
name = "t"
title = "t"
question = "?"
mode = "inproc"
twin = "a"
[[contender]]
name = "a"
builtin = "spin"
[[contender]]
name = "b"
builtin = "spin"
[[workload]]
name = "w"
[[claim]]
text = "b is quicker"
compare = ["b", "a"]
expect = "lower"
min_effect = 0.01
[[claim]]
text = "b is slower"
compare = ["b", "a"]
expect = "higher"
min_effect = 0.01
[[claim]]
text = "b takes at most 20 ns more"
compare = ["b", "a"]
expect = "lower"
max_more = 20
"#;

/// One measured batch of a contender that takes `ns`, with a few per cent of noise, rare
/// interruptions, and blocks that are slow as a whole.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // synthetic nanoseconds
fn sample(cell: usize, ns: f64, slow_block: f64, rng: &mut SplitMix64) -> Sample {
    let jitter = 1.0 + 0.03 * rng.unit();
    let interruption = if rng.unit() < 0.05 {
        1.0 + 2.0 * rng.unit()
    } else {
        1.0
    };
    let wall_ns = (ns * 1_000.0 * slow_block * jitter * interruption) as u64;
    Sample {
        cell,
        n: 1_000,
        wall_ns,
        cpu_ns: wall_ns,
        extra: std::collections::BTreeMap::new(),
    }
}

/// Verdicts on "b is quicker" and "b is slower" when b takes `factor` times as long as a.
fn verdicts(set: u64, factor: f64) -> (Verdict, Verdict) {
    let summary = summary(set, factor);
    (summary.claims[0].verdict, summary.claims[1].verdict)
}

fn summary(set: u64, factor: f64) -> Summary {
    let (experiment, plan, blocks) = measured(set, factor);
    Summary::new(&experiment, &plan, &blocks)
}

/// A result set in which b takes `factor` times as long as a.
fn measured(set: u64, factor: f64) -> (Experiment, Plan, Vec<Block>) {
    let experiment = Experiment::parse(EXPERIMENT, Path::new("t.toml")).unwrap();
    let cells = [("a", 1.0), ("b", factor), ("a~twin", 1.0)];
    let plan = Plan {
        schema: SCHEMA,
        seed: set,
        blocks: BLOCKS,
        samples: SAMPLES,
        quick: false,
        foreign_max: 1.0,
        only: Vec::new(),
        fingerprint: String::new(),
        cells: cells
            .iter()
            .map(|(name, _)| PlannedCell {
                contender: (*name).to_owned(),
                workload: "w".to_owned(),
                items: 1,
                iterations: 1_000,
                samples: SAMPLES,
                answer: Answer::default(),
            })
            .collect(),
        absent: Vec::new(),
        failed: Vec::new(),
        cut: None,
        site: false,
        cpus: None,
    };
    let mut rng = SplitMix64::derive(set, "samples");
    let block = |number| {
        let slow_block = 1.0 + 0.2 * rng.unit();
        let mut samples = Vec::new();
        for _ in 0..SAMPLES {
            for (cell, (_, factor)) in cells.iter().enumerate() {
                samples.push(sample(cell, 100.0 * factor, slow_block, &mut rng));
            }
        }
        let head = BlockHead {
            schema: SCHEMA,
            block: number,
            attempt: 1,
            disturbed: false,
            shares: Shares::default(),
            before: Reading::default(),
            after: Reading::default(),
            failed: Vec::new(),
        };
        Block { head, samples }
    };
    let blocks: Vec<Block> = (0..BLOCKS).map(block).collect();
    (experiment, plan, blocks)
}

#[test]
fn the_noise_floor_compares_twins_within_a_block() {
    let (experiment, plan, mut blocks) = measured(1, 1.0);
    let whole = Summary::new(&experiment, &plan, &blocks).noise_floor;
    // The twin failed in the first block.
    if let Some(first) = blocks.first_mut() {
        first.samples.retain(|sample| sample.cell != 2);
    }
    let without = Summary::new(&experiment, &plan, &blocks).noise_floor;
    // Blocks differ by up to a fifth, twins by a few per cent at most.
    assert!(whole < 0.03 && without < 0.03, "{whole} and {without}");
}

#[test]
fn a_difference_is_judged_in_nanoseconds() {
    // a takes 100 ns, up to a fifth more in a slow block.
    let less = summary(1, 1.1);
    assert_eq!(less.claims[2].verdict, Verdict::Holds);
    let middle = less.claims[2].interval.unwrap().centre;
    assert!((8.0..16.0).contains(&middle), "{middle}");
    assert_eq!(
        summary(1, 1.4).claims[2].verdict,
        Verdict::DoesNotHold,
        "forty more"
    );
}

/// The number of `sets` in which b is called quicker, and slower.
fn called(factor: f64, sets: u64) -> (usize, usize) {
    let all: Vec<(Verdict, Verdict)> = (0..sets).map(|set| verdicts(set, factor)).collect();
    let holds = |pick: fn(&(Verdict, Verdict)) -> Verdict| {
        all.iter()
            .filter(|both| pick(both) == Verdict::Holds)
            .count()
    };
    (holds(|both| both.0), holds(|both| both.1))
}

#[test]
fn equal_work_is_called_different_in_at_most_one_set_of_twenty() {
    let (quicker, slower) = called(1.0, EQUAL_SETS);
    assert!(
        quicker + slower <= 10,
        "{quicker} and {slower} of {EQUAL_SETS}"
    );
}

/// A stored result set in which b takes `factor` times as long as a.
fn stored(set: u64, factor: f64) -> tempfile::TempDir {
    let (_, plan, blocks) = measured(set, factor);
    let dir = tempfile::tempdir().unwrap();
    let results = ResultSet::create(dir.path()).unwrap();
    results
        .write("experiment.toml", EXPERIMENT.as_bytes())
        .unwrap();
    results.write_json("plan.json", &plan).unwrap();
    let machine = Fingerprint::default();
    results.write_json("fingerprint.json", &machine).unwrap();
    for block in &blocks {
        results.write_block(block, false).unwrap();
    }
    dir
}

#[test]
fn equal_sets_fail_the_gate_in_at_most_one_of_forty_comparisons() {
    let sets: Vec<_> = (0..=SETS).map(|set| stored(set, 1.0)).collect();
    let regressed = sets.windows(2).filter(|pair| {
        let compared = compare(pair[0].path(), pair[1].path(), false).unwrap();
        compared.count(Change::Regressed) > 0
    });
    let regressed = regressed.count();
    assert!(regressed <= 1, "{regressed} of {SETS}");
}

/// The experiment also claims that b is slower than a.
#[test]
fn a_longer_time_is_a_regression_whatever_the_claims_expect() {
    let (quick, slow) = (stored(1, 1.0), stored(2, 1.5));
    for (old, new, change) in [
        (&quick, &slow, Change::Regressed),
        (&slow, &quick, Change::Improved),
    ] {
        let compared = compare(old.path(), new.path(), false).unwrap();
        let mut rows = compared.rows.iter();
        let row = rows.find(|row| row.contender == "b").unwrap();
        assert_eq!(row.change, change, "{row:?}");
    }
}

const SKIPPING: &str = r#"
[experiment]
name = "t"
title = "t"
question = "?"
mode = "inproc"
[[contender]]
name = "a"
builtin = "spin"
[[contender]]
name = "b"
builtin = "spin"
[[contender]]
name = "c"
builtin = "spin"
[[workload]]
name = "w"
[[workload]]
name = "v"
[[skip]]
contender = "c"
workload = "v"
reason = "too slow"
[[claim]]
text = "b is quicker than both"
compare = ["b", "a", "c"]
expect = "lower"
max_ratio = 1.0
"#;

#[test]
fn a_skipped_contender_does_not_hide_the_result_against_the_others() {
    let experiment = Experiment::parse(SKIPPING, Path::new("t.toml")).unwrap();
    // The third contender is c instead of a twin, and a and b also have a second workload.
    let (_, mut plan, mut blocks) = measured(1, 1.5);
    plan.cells[2].contender = "c".to_owned();
    for cell in 0..2 {
        let workload = "v".to_owned();
        let planned = plan.cells[cell].clone();
        plan.cells.push(PlannedCell {
            workload,
            ..planned
        });
    }
    for block in &mut blocks {
        let again = block.samples.iter().filter(|sample| sample.cell < 2);
        let again: Vec<Sample> = again.cloned().collect();
        let moved = again.into_iter().map(|sample| Sample {
            cell: sample.cell + 3,
            ..sample
        });
        block.samples.extend(moved);
    }
    let claims = Summary::new(&experiment, &plan, &blocks).claims;
    let made: Vec<_> = claims
        .iter()
        .map(|claim| (&*claim.workload, &*claim.compared, claim.verdict))
        .collect();
    let expected = [
        ("w", "b / best of a, c", Verdict::DoesNotHold),
        ("v", "b / a", Verdict::DoesNotHold),
    ];
    assert_eq!(made, expected);
    // A contender without any cell failed or is absent. Then the others do not decide the claim.
    plan.cells[2].contender = "other".to_owned();
    let claims = Summary::new(&experiment, &plan, &blocks).claims;
    let verdicts: Vec<Verdict> = claims.iter().map(|claim| claim.verdict).collect();
    assert_eq!(verdicts, [Verdict::NotMeasured]);
}

#[test]
fn no_figure_includes_a_disturbed_block() {
    let experiment = Experiment::parse(EXPERIMENT, Path::new("t.toml")).unwrap();
    let plan = Plan {
        schema: SCHEMA,
        seed: 1,
        blocks: 2,
        samples: 1,
        quick: false,
        foreign_max: 0.1,
        only: Vec::new(),
        fingerprint: String::new(),
        cells: vec![PlannedCell {
            contender: "a".to_owned(),
            workload: "w".to_owned(),
            items: 1,
            iterations: 1,
            samples: 1,
            answer: Answer::default(),
        }],
        absent: Vec::new(),
        failed: Vec::new(),
        cut: None,
        site: false,
        cpus: None,
    };
    let block = |number, disturbed, wall_ns| Block {
        head: BlockHead {
            schema: SCHEMA,
            block: number,
            attempt: 1,
            disturbed,
            shares: Shares::default(),
            before: Reading::default(),
            after: Reading::default(),
            failed: Vec::new(),
        },
        samples: vec![Sample {
            cell: 0,
            n: 1,
            wall_ns,
            cpu_ns: wall_ns,
            extra: std::collections::BTreeMap::new(),
        }],
    };
    let blocks = [block(0, false, 100), block(1, true, 900)];
    let summary = Summary::new(&experiment, &plan, &blocks);
    assert_eq!((summary.blocks, summary.disturbed), (1, 1));
    assert!((summary.rows[0].blocks.max - 100.0).abs() < 1e-9);
}

/// Random numbers with the mean `shift`.
fn drawn(count: usize, shift: f64, rng: &mut SplitMix64) -> Vec<f64> {
    (0..count).map(|_| rng.unit() - 0.5 + shift).collect()
}

/// The share of `sums` that are at least as far from their mean as `found`.
#[allow(clippy::cast_precision_loss)] // at most a thousand sums
fn share_as_far(sums: &[usize], found: usize) -> f64 {
    let mean = sums.iter().sum::<usize>() as f64 / sums.len() as f64;
    let far = |sum: &usize| (*sum as f64 - mean).abs();
    let beyond = sums.iter().filter(|sum| far(sum) >= far(&found) - 1e-9);
    beyond.count() as f64 / sums.len() as f64
}

/// Ranks of `values` by magnitude, from 1.
fn ranks(values: &[f64]) -> Vec<usize> {
    let below = |value: &f64| values.iter().filter(|v| v.abs() <= value.abs()).count();
    values.iter().map(below).collect()
}

#[test]
fn p_values_equal_an_enumeration_of_all_cases() {
    let mut rng = SplitMix64::new(16);
    for set in 0..1_000 {
        // Pairs: each rank has either sign.
        let differences = drawn(2 + rng.below(7), 0.2, &mut rng);
        let ranks_of = ranks(&differences);
        let sum = |positive: &dyn Fn(usize) -> bool| -> usize {
            let each = ranks_of.iter().enumerate();
            each.filter(|(at, _)| positive(*at)).map(|(_, r)| r).sum()
        };
        let signs = 0..1_usize << differences.len();
        let sums: Vec<usize> = signs.map(|set| sum(&|at| set >> at & 1 == 1)).collect();
        let expected = share_as_far(&sums, sum(&|at| differences[at] > 0.0));
        let p = signed_rank_p(&differences).unwrap();
        assert!((p - expected).abs() < 1e-9, "{set}: {p} for {expected}");

        // Without pairs: the second list can have any of the ranks.
        let (first, second) = (4 + rng.below(2), 4 + rng.below(2));
        let (low, high) = (drawn(first, 0.0, &mut rng), drawn(second, 0.3, &mut rng));
        let shifted = shift(&low, &high).unwrap();
        let all: Vec<f64> = low.iter().chain(&high).map(|value| value + 10.0).collect();
        let ranks_of = ranks(&all);
        let of_second: usize = ranks_of[first..].iter().sum();
        let choices = 0..1_usize << all.len();
        let choices = choices.filter(|set| set.count_ones() as usize == second);
        let sums: Vec<usize> = choices
            .map(|set| {
                (0..all.len())
                    .filter(|at| set >> at & 1 == 1)
                    .map(|at| at + 1)
                    .sum()
            })
            .collect();
        let expected = share_as_far(&sums, of_second);
        assert!(
            (shifted.p - expected).abs() < 1e-9,
            "{set}: {} for {expected}",
            shifted.p
        );
    }
}

#[test]
fn an_interval_contains_the_true_median_in_95_percent_of_sets() {
    let mut rng = SplitMix64::new(95);
    let sets = 1_000;
    let containing = (0..sets).filter(|seed| {
        let interval = median_interval(&drawn(BLOCKS, 0.0, &mut rng), *seed).unwrap();
        interval.low <= 0.0 && 0.0 <= interval.high
    });
    let containing = containing.count();
    assert!((930..=970).contains(&containing), "{containing} of {sets}");
}

#[test]
fn slower_work_is_never_called_quicker() {
    for (factor, least) in [(1.01, 0), (1.02, 0), (1.05, 38), (1.1, 38)] {
        let (quicker, slower) = called(factor, SETS);
        assert_eq!(quicker, 0, "{factor}");
        assert!(slower >= least, "{factor}: {slower} of {SETS}");
        let (quicker, slower) = called(1.0 / factor, SETS);
        assert_eq!(slower, 0, "1 / {factor}");
        assert!(quicker >= least, "1 / {factor}: {quicker} of {SETS}");
    }
}
