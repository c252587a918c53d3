//! How often the lab is right: many whole result sets of made-up samples,
//! with the noise of a real machine and a truth that is known.
#![allow(clippy::unwrap_used)] // a failed set-up is a failed test

use std::path::Path;

use weir_lab::canary::Reading;
use weir_lab::claim::Verdict;
use weir_lab::experiment::Experiment;
use weir_lab::machine::Shares;
use weir_lab::protocol::Answer;
use weir_lab::results::{Block, BlockHead, Plan, PlannedCell, SCHEMA, Sample};
use weir_lab::rng::SplitMix64;
use weir_lab::summary::Summary;

const SETS: u64 = 40;
/// Sets in which both contenders do the same.
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
text = "b has at most 20 ns more"
compare = ["b", "a"]
expect = "lower"
max_more = 20
"#;

/// One measured batch of a contender that takes `ns`: a few per cent of
/// noise, now and then an interruption, and a block that is slow as a whole.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // made-up nanoseconds
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

/// Verdicts of "b is quicker" and "b is slower" when b takes `factor` times
/// as long as a.
fn verdicts(set: u64, factor: f64) -> (Verdict, Verdict) {
    let summary = summary(set, factor);
    (summary.claims[0].verdict, summary.claims[1].verdict)
}

fn summary(set: u64, factor: f64) -> Summary {
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
    Summary::new(&experiment, &plan, &blocks)
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

/// In how many of `sets` b is called quicker, and slower.
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

#[test]
fn five_percent_more_work_is_found_and_never_turned_round() {
    let (quicker, slower) = called(1.05, SETS);
    assert!(
        slower >= 38 && quicker == 0,
        "{slower} and {quicker} of {SETS}"
    );
}

#[test]
fn five_percent_less_work_is_found_and_never_turned_round() {
    let (quicker, slower) = called(0.95, SETS);
    assert!(
        quicker >= 38 && slower == 0,
        "{quicker} and {slower} of {SETS}"
    );
}

#[test]
fn a_disturbed_block_is_in_no_figure() {
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
