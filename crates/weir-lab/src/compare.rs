//! Compares two result sets of one experiment, cell by cell: the figures of the blocks of both
//! sets.
//!
//! The sets were measured at different times, so the blocks are not pairs. The ratio is the shift
//! of the logarithms by Hodges and Lehmann. The test is that of Mann and Whitney, corrected for the
//! number of cells (Holm). Only the first metric that the experiment shows can decide; the others
//! are only shown.
//!
//! Invariant: a difference that the twins of either set also show does not decide.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use crate::claim::BLOCKS_MIN;
use crate::error::{LabError, Result};
use crate::experiment::{Expect, Experiment};
use crate::figures::Figures;
use crate::fingerprint::Fingerprint;
use crate::report::{Table, significant, with_unit};
use crate::results::{Plan, ResultSet, SCHEMA};
use crate::stats::mann_whitney::{holm, shift};
use crate::stats::median;

/// Corrected p below which two lists differ.
const SIGNIFICANT: f64 = 0.05;
/// Metrics that the lab measures itself. Of each, less is better.
const COSTS: [&str; 7] = [
    "wall",
    "cpu",
    "wall_total",
    "cpu_total",
    "allocations",
    "allocated_bytes",
    "max_rss",
];
/// Parts of a fingerprint that describe the builds, not the machine.
const OF_BUILDS: [&str; 3] = ["contender ", "program ", "lab"];

/// The change of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Worse, by more than noise.
    Regressed,
    /// Better, by more than noise.
    Improved,
    /// The whole interval is within the noise floor.
    Equal,
    /// The interval shows neither a change nor equality.
    CannotTell,
    /// A figure is missing, or has no ratio because it is at most zero.
    NotComparable,
}

impl Change {
    const ALL: [Change; 5] = [
        Change::Regressed,
        Change::Improved,
        Change::Equal,
        Change::CannotTell,
        Change::NotComparable,
    ];

    /// The word for the change in a table.
    pub fn word(self) -> &'static str {
        match self {
            Change::Regressed => "REGRESSED",
            Change::Improved => "improved",
            Change::Equal => "equal",
            Change::CannotTell => "cannot tell",
            Change::NotComparable => "not comparable",
        }
    }
}

/// One cell and metric of both sets.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the workload.
    pub workload: String,
    /// Name of the contender.
    pub contender: String,
    /// The metric.
    pub metric: String,
    /// Whether this metric can decide.
    pub primary: bool,
    /// Median over the blocks of the old set.
    pub old: Option<f64>,
    /// Median over the blocks of the new set.
    pub new: Option<f64>,
    /// New by old: centre, and both ends of the 95 % interval.
    pub ratio: Option<[f64; 3]>,
    /// p of the test of Mann and Whitney, corrected over the cells of the metric.
    pub p: Option<f64>,
    /// The change.
    pub change: Change,
}

/// Two result sets, compared.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Name of the experiment.
    pub experiment: String,
    /// Half-width of the band in which differences are noise, as a share.
    pub noise_floor: f64,
    /// Parts of the machine that differ, with both values.
    pub machine: Vec<String>,
    /// Cells of the old set only.
    pub missing: Vec<String>,
    /// Cells of the new set only.
    pub added: Vec<String>,
    /// The cells of both, greatest effect first.
    pub rows: Vec<Row>,
}

struct Side {
    experiment: Experiment,
    plan: Plan,
    fingerprint: Fingerprint,
    figures: Figures,
}

impl Side {
    fn read(dir: &Path) -> Result<Side> {
        let set = ResultSet::open(dir)?;
        let plan: Plan = set.read_json("plan.json")?;
        let blocks = set.read_blocks(&plan)?;
        let experiment = Experiment::read(&set.path("experiment.toml"))?;
        let mut figures = Figures::new(&plan, &blocks);
        figures.remove_impossible(&experiment.header.show);
        Ok(Side {
            experiment,
            fingerprint: set.read_json("fingerprint.json")?,
            plan,
            figures,
        })
    }

    /// The cells by name.
    fn cells(&self) -> BTreeMap<(&str, &str), usize> {
        let cells = self.plan.cells.iter().enumerate();
        cells
            .map(|(number, cell)| ((cell.workload.as_str(), cell.contender.as_str()), number))
            .collect()
    }

    fn machine(&self) -> BTreeMap<&str, &str> {
        let stable = self.fingerprint.stable.iter();
        stable
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .filter(|(name, _)| !OF_BUILDS.iter().any(|front| name.starts_with(front)))
            .collect()
    }

    /// Whether a larger figure of `metric` is better, according to the claims. A claim that one
    /// contender takes longer than another is no reason to prefer longer times.
    fn larger_is_better(&self, metric: &str) -> bool {
        let mut claims = self.experiment.claims.iter();
        !COSTS.contains(&metric)
            && claims.any(|claim| claim.metric == metric && claim.expect == Expect::Higher)
    }
}

/// Compares the result sets `old` and `new`. Sets of different machines need `across`.
pub fn compare(old: &Path, new: &Path, across: bool) -> Result<Comparison> {
    let usage = |what: String| LabError::Usage { what };
    let (old, new) = (Side::read(old)?, Side::read(new)?);
    let name = &new.experiment.header.name;
    if *name != old.experiment.header.name {
        let other = &old.experiment.header.name;
        return Err(usage(format!(
            "one set is of `{other}`, the other of `{name}`"
        )));
    }
    let machine = differences(&old.machine(), &new.machine());
    if !machine.is_empty() && !across {
        let differ = machine.join("; ");
        return Err(usage(format!(
            "the machines differ ({differ}); --across compares them"
        )));
    }
    let (before, now) = (old.cells(), new.cells());
    let only = |these: &BTreeMap<(&str, &str), usize>, those: &BTreeMap<(&str, &str), usize>| {
        let gone = these.keys().filter(|cell| !those.contains_key(*cell));
        gone.map(|(workload, contender)| format!("{contender}@{workload}"))
            .collect()
    };
    let noise_floor = old.figures.noise_floor().max(new.figures.noise_floor());
    let mut rows: Vec<Row> = Vec::new();
    for (place, metric) in new.experiment.header.show.iter().enumerate() {
        let both = now.iter().filter_map(|(cell, number)| {
            let other = before.get(cell)?;
            let (a, b) = (
                old.figures.of_cell(*other, metric),
                new.figures.of_cell(*number, metric),
            );
            Some(row(*cell, metric, place == 0, &a, &b))
        });
        let mut of_metric: Vec<(Row, bool)> = both.collect();
        let p: Vec<f64> = of_metric.iter().filter_map(|(row, _)| row.p).collect();
        let mut corrected = holm(&p).into_iter();
        for (row, enough) in &mut of_metric {
            if row.p.is_some() {
                row.p = corrected.next();
            }
            row.change = change(row, *enough, noise_floor, new.larger_is_better(metric));
        }
        rows.extend(of_metric.into_iter().map(|(row, _)| row));
    }
    let effect = |row: &Row| row.ratio.map_or(-1.0, |[centre, ..]| centre.ln().abs());
    rows.sort_by(|a, b| {
        b.primary
            .cmp(&a.primary)
            .then(effect(b).total_cmp(&effect(a)))
    });
    Ok(Comparison {
        schema: SCHEMA,
        experiment: name.clone(),
        noise_floor,
        machine,
        missing: only(&before, &now),
        added: only(&now, &before),
        rows,
    })
}

fn differences(old: &BTreeMap<&str, &str>, new: &BTreeMap<&str, &str>) -> Vec<String> {
    let mut names: Vec<&str> = old.keys().chain(new.keys()).copied().collect();
    names.sort_unstable();
    names.dedup();
    let value = |of: &BTreeMap<&str, &str>, name: &str| {
        of.get(name).map_or("not known", |value| *value).to_owned()
    };
    names
        .into_iter()
        .filter(|name| old.get(name) != new.get(name))
        .map(|name| format!("{name}: {} and {}", value(old, name), value(new, name)))
        .collect()
}

/// The row of a cell without a decision, and whether the cell has enough blocks for a decision.
fn row(cell: (&str, &str), metric: &str, primary: bool, old: &[f64], new: &[f64]) -> (Row, bool) {
    let logs = |values: &[f64]| {
        let logs = values.iter().map(|v| (*v > 0.0).then(|| v.ln()));
        logs.collect::<Option<Vec<f64>>>()
    };
    let shift = logs(old)
        .zip(logs(new))
        .and_then(|(old, new)| shift(&old, &new));
    let row = Row {
        workload: cell.0.to_owned(),
        contender: cell.1.to_owned(),
        metric: metric.to_owned(),
        primary,
        old: median(old),
        new: median(new),
        ratio: shift.map(|by| [by.centre.exp(), by.low.exp(), by.high.exp()]),
        p: shift.map(|by| by.p),
        change: Change::NotComparable,
    };
    (row, old.len().min(new.len()) >= BLOCKS_MIN)
}

fn change(row: &Row, enough: bool, noise: f64, larger_is_better: bool) -> Change {
    let (Some([_, low, high]), Some(p)) = (row.ratio, row.p) else {
        return Change::NotComparable;
    };
    let (less, more) = if larger_is_better {
        (Change::Regressed, Change::Improved)
    } else {
        (Change::Improved, Change::Regressed)
    };
    let (floor, ceiling) = (1.0 - noise, 1.0 + noise);
    match (enough, p < SIGNIFICANT) {
        (true, true) if high < floor => less,
        (true, true) if low > ceiling => more,
        (true, _) if low >= floor && high <= ceiling => Change::Equal,
        _ => Change::CannotTell,
    }
}

impl Comparison {
    /// Number of cells of the primary metric with this `change`.
    pub fn count(&self, change: Change) -> usize {
        let rows = self.rows.iter().filter(|row| row.primary);
        rows.filter(|row| row.change == change).count()
    }

    /// The comparison as Markdown; the last line sums it up.
    pub fn markdown(&self) -> String {
        let mut table = Table::new(&[
            "workload",
            "contender",
            "metric",
            "old",
            "new",
            "new / old [95 % interval]",
            "p",
            "change",
        ]);
        for row in &self.rows {
            let figure = |value: Option<f64>| {
                value.map_or("-".to_owned(), |value| with_unit(&row.metric, value))
            };
            let ratio = row.ratio.map(|ends| ends.map(significant));
            let ratio = ratio.map(|[centre, low, high]| format!("{centre}x [{low}, {high}]"));
            let kind = if row.primary { "" } else { " (not decisive)" };
            table.row(vec![
                row.workload.clone(),
                row.contender.clone(),
                row.metric.clone(),
                figure(row.old),
                figure(row.new),
                ratio.unwrap_or_else(|| "-".to_owned()),
                row.p.map_or("-".to_owned(), |p| format!("{p:.4}")),
                format!("{}{kind}", row.change.word()),
            ]);
        }
        let mut text = format!(
            "# {}, compared\n\nDifferences within {:.1} % are noise.\n\n{}\n",
            self.experiment,
            100.0 * self.noise_floor,
            table.render()
        );
        for (what, names) in [
            ("The machines differ in", &self.machine),
            ("Only the old set has", &self.missing),
            ("Only the new set has", &self.added),
        ] {
            if !names.is_empty() {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{what}: {}.\n", names.join(", "));
            }
        }
        let counts = Change::ALL.map(|change| format!("{} {}", self.count(change), change.word()));
        text + &counts.join(", ") + "\n"
    }
}
