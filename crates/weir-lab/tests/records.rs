//! The committed records: each can be read, and the figures of the newest ones, which the README
//! quotes, follow from their samples.
#![allow(clippy::unwrap_used)] // a failed set-up is a failed test

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_lab::experiment::Experiment;
use weir_lab::fingerprint::Fingerprint;
use weir_lab::results::{Plan, ResultSet};
use weir_lab::summary::Summary;

/// The directories in `dir`, in order of name.
fn directories(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    found.sort();
    found
}

/// The records, by date within a machine.
fn records() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/record");
    let dates = directories(&root)
        .into_iter()
        .flat_map(|machine| directories(&machine));
    dates.flat_map(|date| directories(&date)).collect()
}

/// Whether two numbers of JSON are equal but for rounding; other values must be equal.
fn agree(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * a.abs().max(1.0),
        _ => a == b,
    }
}

#[test]
fn each_record_is_read() {
    let records = records();
    assert!(records.len() > 30, "{}", records.len());
    for record in records {
        let (set, place) = (ResultSet::open(&record).unwrap(), record.display());
        let experiment = Experiment::read(&set.path("experiment.toml")).unwrap();
        let plan: Plan = set.read_json("plan.json").unwrap();
        let _: Fingerprint = set.read_json("fingerprint.json").unwrap();
        let blocks = set.read_blocks(&plan).unwrap();
        let summary: Value = set.read_json("summary.json").unwrap();
        assert_eq!(summary["experiment"], experiment.header.name, "{place}");
        assert_eq!(blocks.len(), plan.blocks, "{place}");
    }
}

#[test]
fn the_figures_of_the_newest_records_follow_from_their_samples() {
    let name = |path: PathBuf| (path.file_name().unwrap().to_owned(), path);
    let mut records = records();
    records.sort_by_key(|record| record.parent().unwrap().file_name().unwrap().to_owned());
    let newest: BTreeMap<_, _> = records.into_iter().map(name).collect();
    for record in newest.into_values() {
        let (set, place) = (ResultSet::open(&record).unwrap(), record.display());
        let experiment = Experiment::read(&set.path("experiment.toml")).unwrap();
        let plan: Plan = set.read_json("plan.json").unwrap();
        let blocks = set.read_blocks(&plan).unwrap();
        let made = Summary::new(&experiment, &plan, &blocks);
        let made = serde_json::to_value(&made).unwrap();
        let stored: Value = set.read_json("summary.json").unwrap();
        for (list, keys, figures) in [
            ("rows", ["contender", "workload", "metric"], "blocks"),
            ("claims", ["text", "compared", "workload"], "interval"),
        ] {
            let made = made[list].as_array().unwrap();
            for row in stored[list].as_array().unwrap() {
                let is_same = |other: &&Value| keys.iter().all(|key| other[key] == row[key]);
                let other = made.iter().find(is_same).unwrap();
                for part in ["median", "min", "max", "centre", "low", "high"] {
                    let (made, stored) = (&other[figures][part], &row[figures][part]);
                    assert!(agree(made, stored), "{place}: {part} of {row}: {made}");
                }
            }
        }
    }
}
