//! Random changes while connections are reset before and after the execution of writes. Each change
//! must be executed exactly once. The variable `OUTBOX_OPERATIONS` sets the number of operations of
//! each seed; `make outbox` runs 10,002 in all.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weir_jira::sim::SimOptions;

use crate::world::{World, small};

/// Default number of operations for each seed.
const OPERATIONS: usize = 100;
const SEEDS: [u64; 3] = [1, 2, 3];
/// Operations between two pushes.
const PUSH_EVERY: usize = 20;

/// A generator of numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(limit).unwrap()).unwrap()
    }
}

/// The expected final state of the site.
#[derive(Default)]
struct Expected {
    /// Marks of comments, worklogs and new issues; each must be at the site once.
    once: Vec<String>,
    summaries: BTreeMap<String, String>,
    /// Expected seconds of changed worklogs, by key of the issue and id.
    worked: BTreeMap<(String, String), u64>,
    /// Labels by their last change: added or removed.
    labels: BTreeMap<(String, String), bool>,
}

fn operate(world: &World, random: &mut Random, number: usize, expected: &mut Expected) {
    let outbox = world.outbox();
    let created: Vec<&String> = expected
        .summaries
        .keys()
        .filter(|key| key.contains('+'))
        .collect();
    let key = if !created.is_empty() && random.below(3) == 0 {
        created[random.below(created.len())].clone()
    } else {
        format!("AA-{}", 1 + random.below(8))
    };
    let mark = format!("mark{number}x");
    match random.below(7) {
        0 => {
            let op = outbox.create("AA", "Task", &mark, &[], None).unwrap();
            expected.summaries.insert(op.key, mark);
        }
        1 => {
            outbox.comment(&key, &mark).unwrap();
            expected.once.push(mark);
        }
        2 => {
            outbox.worklog(&key, 600, world.now(), &mark).unwrap();
            expected.once.push(mark);
        }
        3 => {
            let issue = outbox.show(&key).unwrap();
            let all = issue["fields"]["worklog"]["worklogs"].as_array();
            let ids = all
                .into_iter()
                .flatten()
                .filter_map(|item| item["id"].as_str());
            let ids: Vec<&str> = ids.filter(|id| !id.starts_with('+')).collect();
            if !ids.is_empty() {
                let id = ids[random.below(ids.len())];
                let seconds = 1200 + 60 * u64::try_from(number).unwrap();
                outbox
                    .edit_worklog(&key, id, Some(seconds), None, None)
                    .unwrap();
                expected.worked.insert((key, id.to_owned()), seconds);
            }
        }
        4 => {
            outbox
                .edit(&key, &[("summary".to_owned(), mark.clone())])
                .unwrap();
            expected.summaries.insert(key, mark);
        }
        _ => {
            let (label, add) = (format!("l{}", random.below(4)), random.below(2) == 0);
            let (one, none) = (vec![label.clone()], Vec::new());
            let (plus, minus) = if add { (&one, &none) } else { (&none, &one) };
            // A change without effect is rejected, and changes nothing.
            if outbox.label(&key, plus, minus).is_ok() {
                expected.labels.insert((key, label), add);
            }
        }
    }
}

fn check(world: &World, expected: &Expected, seed: u64) {
    let site = world.site();
    let all = Value::from_iter(site.clone()).to_string();
    let (mut lost, mut doubled) = (0, 0);
    let mut count = |found: usize| {
        lost += usize::from(found == 0);
        doubled += usize::from(found > 1);
    };
    for mark in &expected.once {
        count(all.matches(mark.as_str()).count());
    }
    for key in expected
        .summaries
        .keys()
        .chain(expected.labels.keys().map(|(key, _)| key))
    {
        let name = world.outbox().show(key).unwrap()["key"].clone();
        let summary = expected.summaries.get(key);
        let issue = site.values().find(|issue| issue["key"] == name);
        let Some(issue) = issue else {
            count(0);
            continue;
        };
        if let Some(summary) = summary {
            let found = site
                .values()
                .filter(|issue| issue["fields"]["summary"] == summary.as_str());
            assert_eq!(issue["fields"]["summary"], summary.as_str(), "seed {seed}");
            count(found.count());
        }
    }
    for ((key, id), seconds) in &expected.worked {
        let name = world.outbox().show(key).unwrap()["key"].clone();
        let issue = site.values().find(|issue| issue["key"] == name).unwrap();
        let all = issue["fields"]["worklog"]["worklogs"].as_array().unwrap();
        let found = all.iter().find(|item| item["id"] == id.as_str()).unwrap();
        assert_eq!(
            found["timeSpentSeconds"], *seconds,
            "seed {seed}: {key} {id}"
        );
    }
    for ((key, label), add) in &expected.labels {
        let name = world.outbox().show(key).unwrap()["key"].clone();
        let issue = site.values().find(|issue| issue["key"] == name).unwrap();
        let labels = issue["fields"]["labels"].as_array().unwrap();
        let found = labels
            .iter()
            .filter(|found| **found == label.as_str())
            .count();
        assert_eq!(found, usize::from(*add), "seed {seed}: {key} {label}");
    }
    assert_eq!((lost, doubled), (0, 0), "seed {seed}: lost, doubled");
    let created = site.values().filter(|issue| {
        issue["fields"]["created"].as_str().unwrap() >= "2024-11-28T13:20:00.000+0000"
    });
    let wanted = expected
        .summaries
        .keys()
        .filter(|key| key.contains('+'))
        .count();
    assert_eq!(created.count(), wanted, "seed {seed}: issues created");
}

#[test]
fn resets_lose_and_double_nothing() {
    let count = std::env::var("OUTBOX_OPERATIONS").ok();
    let count = count.map_or(OPERATIONS, |count| count.parse().unwrap());
    for seed in SEEDS {
        let world = World::new(SimOptions {
            search_lag_ms: 60_000,
            ..small()
        });
        world.pull();
        for (at, method) in ["POST", "PUT", "DELETE"].into_iter().enumerate() {
            for (name, chance) in [("reset-before", 80), ("reset-after", 120)] {
                let seed = seed * 10 + u64::try_from(at).unwrap() + chance;
                let rule = json!({"match": {"method": method, "chance": chance, "seed": seed},
                    "fault": {"name": name}});
                world.sim.control("POST", "/_sim/faults", &rule);
            }
        }
        let (mut random, mut expected) = (Random(seed), Expected::default());
        for number in 0..count {
            operate(&world, &mut random, number, &mut expected);
            world.advance(1000);
            if number % PUSH_EVERY == PUSH_EVERY - 1 {
                drop(world.try_push());
            }
        }
        world.push_all();
        check(&world, &expected, seed);
    }
}
