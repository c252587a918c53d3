//! What a result set says: figures by cell and metric, and decided claims.
//!
//! A figure of a cell in a block is the median over its samples there.
//! Metrics: `wall` and `cpu` are nanoseconds a unit of work; `wall_total` and
//! `cpu_total` nanoseconds an iteration; `allocations` and `allocated_bytes`
//! are what the check counted; every other name is what the contender
//! reported, an iteration.
//!
//! What must never happen here: a disturbed block in a figure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::claim::{self, Decision};
use crate::experiment::Experiment;
use crate::experiment::matrix::TWIN;
use crate::experiment::reference::Reference;
use crate::results::{Block, Plan, SCHEMA, Sample};
use crate::stats::{Spread, median, percentile_of_sorted, sorted};

/// Smallest noise floor that is believed.
pub const NOISE_FLOOR_MIN: f64 = 0.01;

/// Figures of a result set by block.
#[derive(Clone, Debug)]
pub struct Figures {
    plan: Plan,
    workloads: Vec<String>,
    cells: BTreeMap<(String, String), usize>,
    blocks: Vec<BTreeMap<(usize, String), f64>>,
    noise_floor: f64,
}

/// A metric of one sample.
#[allow(clippy::cast_precision_loss)] // nanoseconds of hours are below 2^53
fn metric_of(sample: &Sample, items: u64, metric: &str) -> Option<f64> {
    let iterations = sample.n as f64;
    let units = iterations * items as f64;
    Some(match metric {
        "wall" => sample.wall_ns as f64 / units,
        "cpu" => sample.cpu_ns as f64 / units,
        "wall_total" => sample.wall_ns as f64 / iterations,
        "cpu_total" => sample.cpu_ns as f64 / iterations,
        other => sample.extra.get(other)? / iterations,
    })
}

const ALWAYS: [&str; 4] = ["wall", "cpu", "wall_total", "cpu_total"];

impl Figures {
    /// Takes the figures of the undisturbed of `blocks`.
    pub fn new(plan: &Plan, blocks: &[Block]) -> Figures {
        let mut workloads: Vec<String> = Vec::new();
        let mut cells = BTreeMap::new();
        for (number, cell) in plan.cells.iter().enumerate() {
            if workloads.last() != Some(&cell.workload) {
                workloads.push(cell.workload.clone());
            }
            cells.insert((cell.contender.clone(), cell.workload.clone()), number);
        }
        let blocks = blocks
            .iter()
            .filter(|block| !block.head.disturbed)
            .map(|block| block_figures(plan, block))
            .collect();
        let mut figures = Figures {
            plan: plan.clone(),
            workloads,
            cells,
            blocks,
            noise_floor: NOISE_FLOOR_MIN,
        };
        figures.noise_floor = figures.measure_noise();
        figures
    }

    /// Names of the workloads in order.
    pub fn workloads(&self) -> impl Iterator<Item = &String> {
        self.workloads.iter()
    }

    /// Half-width of the band in which twins differ, as a share.
    pub fn noise_floor(&self) -> f64 {
        self.noise_floor
    }

    /// Whether the cell of `reference` at `workload` exists.
    pub fn has(&self, reference: &Reference, workload: &str) -> bool {
        let workload = reference.workload.as_deref().unwrap_or(workload);
        self.cells
            .contains_key(&(reference.contender.clone(), workload.to_owned()))
    }

    /// The figure of `reference` at `workload` in block `block`.
    pub fn value(&self, block: usize, reference: &Reference, workload: &str) -> Option<f64> {
        let workload = reference.workload.as_deref().unwrap_or(workload);
        let cell = *self
            .cells
            .get(&(reference.contender.clone(), workload.to_owned()))?;
        self.blocks
            .get(block)?
            .get(&(cell, reference.metric.clone()))
            .copied()
    }

    /// `each` of every block that has it.
    pub fn per_block(&self, each: impl Fn(usize) -> Option<f64>) -> Vec<f64> {
        (0..self.blocks.len())
            .filter_map(each)
            .filter(|figure| figure.is_finite())
            .collect()
    }

    /// Figures of one cell over the blocks.
    pub fn of_cell(&self, cell: usize, metric: &str) -> Vec<f64> {
        let key = (cell, metric.to_owned());
        self.blocks
            .iter()
            .filter_map(|block| block.get(&key).copied())
            .collect()
    }

    /// 95th percentile of how far twins are apart, never below
    /// [`NOISE_FLOOR_MIN`].
    fn measure_noise(&self) -> f64 {
        let mut distances = Vec::new();
        for (number, cell) in self.plan.cells.iter().enumerate() {
            let Some(name) = cell.contender.strip_suffix(TWIN) else {
                continue;
            };
            let Some(other) = self.cells.get(&(name.to_owned(), cell.workload.clone())) else {
                continue;
            };
            let pairs = self.of_cell(number, "wall");
            for (a, b) in pairs.iter().zip(self.of_cell(*other, "wall")) {
                distances.push((a / b).ln().abs());
            }
        }
        percentile_of_sorted(&sorted(&distances), 0.95)
            .unwrap_or(0.0)
            .max(NOISE_FLOOR_MIN)
    }
}

#[allow(clippy::cast_precision_loss)] // counts of allocations
fn block_figures(plan: &Plan, block: &Block) -> BTreeMap<(usize, String), f64> {
    let mut lists: BTreeMap<(usize, String), Vec<f64>> = BTreeMap::new();
    for sample in &block.samples {
        let Some(cell) = plan.cells.get(sample.cell) else {
            continue;
        };
        let extra: BTreeSet<&str> = sample.extra.keys().map(String::as_str).collect();
        for metric in ALWAYS.into_iter().chain(extra) {
            if let Some(figure) = metric_of(sample, cell.items, metric) {
                lists
                    .entry((sample.cell, metric.to_owned()))
                    .or_default()
                    .push(figure);
            }
        }
    }
    let mut figures: BTreeMap<(usize, String), f64> = lists
        .into_iter()
        .filter_map(|(key, values)| Some((key, median(&values)?)))
        .collect();
    for (number, cell) in plan.cells.iter().enumerate() {
        figures.insert(
            (number, "allocations".into()),
            cell.answer.allocations as f64,
        );
        figures.insert(
            (number, "allocated_bytes".into()),
            cell.answer.allocated_bytes as f64,
        );
    }
    figures
}

/// One row of the table of cells.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the contender.
    pub contender: String,
    /// Name of the workload.
    pub workload: String,
    /// Metric.
    pub metric: String,
    /// Spread of the blocks' figures.
    pub blocks: Spread,
    /// Spread of all samples of the undisturbed blocks.
    pub samples: Option<Spread>,
}

/// Everything a report shows; stored as `summary.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Name of the experiment.
    pub experiment: String,
    /// Blocks measured and undisturbed.
    pub blocks: usize,
    /// Blocks left out as disturbed.
    pub disturbed: usize,
    /// Blocks planned.
    pub planned: usize,
    /// Whether this was a quick run.
    pub quick: bool,
    /// How far twins are apart, as a share.
    pub noise_floor: f64,
    /// The decided claims.
    pub claims: Vec<Decision>,
    /// The cells.
    pub rows: Vec<Row>,
}

impl Summary {
    /// Sums `blocks` up.
    pub fn new(experiment: &Experiment, plan: &Plan, blocks: &[Block]) -> Summary {
        let figures = Figures::new(plan, blocks);
        let mut claims = Vec::new();
        for claim in &experiment.claims {
            claims.extend(claim::decide(claim, &figures, plan.seed));
        }
        let mut rows = Vec::new();
        for metric in &experiment.header.show {
            for (number, cell) in plan.cells.iter().enumerate() {
                let Some(spread) = Spread::of(&figures.of_cell(number, metric)) else {
                    continue;
                };
                let all: Vec<f64> = blocks
                    .iter()
                    .filter(|block| !block.head.disturbed)
                    .flat_map(|block| &block.samples)
                    .filter(|sample| sample.cell == number)
                    .filter_map(|sample| metric_of(sample, cell.items, metric))
                    .collect();
                rows.push(Row {
                    contender: cell.contender.clone(),
                    workload: cell.workload.clone(),
                    metric: metric.clone(),
                    blocks: spread,
                    samples: Spread::of(&all),
                });
            }
        }
        let disturbed = blocks.iter().filter(|block| block.head.disturbed).count();
        Summary {
            schema: SCHEMA,
            experiment: experiment.header.name.clone(),
            blocks: blocks.len() - disturbed,
            disturbed,
            planned: plan.blocks,
            quick: plan.quick,
            noise_floor: figures.noise_floor(),
            claims,
            rows,
        }
    }
}
