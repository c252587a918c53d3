//! Figures of a result set, by block, cell and metric.
//!
//! The figure of a cell in a block is the median over its samples in the block. Metrics: `wall` and
//! `cpu` are nanoseconds for each unit of work. `wall_total` and `cpu_total` are nanoseconds for
//! each iteration. `allocations` and `allocated_bytes` were counted in the check. Every other name
//! is a metric that the contender reported, for each iteration.
//!
//! Invariant: disturbed blocks have no figures.

pub mod physics;

use std::collections::{BTreeMap, BTreeSet};

use crate::experiment::matrix::TWIN;
use crate::experiment::reference::Reference;
use crate::results::{Block, Plan, Sample};
use crate::stats::{median, percentile_of_sorted, sorted};

/// Minimum noise floor.
pub const NOISE_FLOOR_MIN: f64 = 0.01;

/// Figures of a result set by block.
#[derive(Clone, Debug)]
pub struct Figures {
    plan: Plan,
    workloads: Vec<String>,
    cells: BTreeMap<(String, String), usize>,
    /// Numbers of the blocks.
    numbers: Vec<usize>,
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
    /// Computes the figures of the undisturbed `blocks`.
    pub fn new(plan: &Plan, blocks: &[Block]) -> Figures {
        let mut workloads: Vec<String> = Vec::new();
        let mut cells = BTreeMap::new();
        for (number, cell) in plan.cells.iter().enumerate() {
            if workloads.last() != Some(&cell.workload) {
                workloads.push(cell.workload.clone());
            }
            cells.insert((cell.contender.clone(), cell.workload.clone()), number);
        }
        let undisturbed = || blocks.iter().filter(|block| !block.head.disturbed);
        let mut figures = Figures {
            plan: plan.clone(),
            workloads,
            cells,
            numbers: undisturbed().map(|block| block.head.block).collect(),
            blocks: undisturbed()
                .map(|block| block_figures(plan, block))
                .collect(),
            noise_floor: NOISE_FLOOR_MIN,
        };
        figures.noise_floor = figures.measure_noise();
        figures
    }

    /// Names of the workloads in order.
    pub fn workloads(&self) -> impl Iterator<Item = &String> {
        self.workloads.iter()
    }

    /// Half-width of the noise floor (the differences of twins), as a share.
    pub fn noise_floor(&self) -> f64 {
        self.noise_floor
    }

    /// Whether the cell of `reference` at `workload` exists.
    pub fn has(&self, reference: &Reference, workload: &str) -> bool {
        let workload = reference.workload.as_deref().unwrap_or(workload);
        self.cells
            .contains_key(&(reference.contender.clone(), workload.to_owned()))
    }

    /// Whether the contender of `reference` takes no part at `workload`: the run has only other
    /// cells of it. A contender without any cell failed or is absent.
    pub fn is_left_out(&self, reference: &Reference, workload: &str) -> bool {
        let mut cells = self.cells.keys();
        reference.workload.is_none()
            && !self.has(reference, workload)
            && cells.any(|(contender, _)| *contender == reference.contender)
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

    /// The values of `each` for every block that has one.
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

    /// The samples of one cell in the blocks that have a figure of it.
    pub fn samples_of(&self, cell: usize, metric: &str, blocks: &[Block]) -> Vec<f64> {
        let Some(planned) = self.plan.cells.get(cell) else {
            return Vec::new();
        };
        let key = (cell, metric.to_owned());
        let has_figure = |block: &&Block| {
            let mut figures = self.numbers.iter().zip(&self.blocks);
            figures.any(|(number, of)| *number == block.head.block && of.contains_key(&key))
        };
        blocks
            .iter()
            .filter(has_figure)
            .flat_map(|block| &block.samples)
            .filter(|sample| sample.cell == cell)
            .filter_map(|sample| metric_of(sample, planned.items, metric))
            .collect()
    }

    /// 95th percentile of the differences of twins, at least [`NOISE_FLOOR_MIN`].
    fn measure_noise(&self) -> f64 {
        let mut distances = Vec::new();
        for (number, cell) in self.plan.cells.iter().enumerate() {
            let Some(name) = cell.contender.strip_suffix(TWIN) else {
                continue;
            };
            let Some(other) = self.cells.get(&(name.to_owned(), cell.workload.clone())) else {
                continue;
            };
            for block in &self.blocks {
                let wall = |cell: usize| block.get(&(cell, "wall".to_owned()));
                let pair = wall(number).zip(wall(*other));
                distances.extend(pair.map(|(a, b)| (a / b).ln().abs()));
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
