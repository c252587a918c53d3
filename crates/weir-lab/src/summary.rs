//! The content of a report: figures by cell and metric, and decided claims.
//!
//! Invariant: disturbed blocks have no figures.

use serde::Serialize;

use crate::claim::{self, Decision};
use crate::experiment::Experiment;
use crate::figures::{Figures, metric_of};
use crate::results::{Block, Plan, SCHEMA};
use crate::stats::Spread;

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
    /// Difference of twins, as a share.
    pub noise_floor: f64,
    /// The decided claims.
    pub claims: Vec<Decision>,
    /// The cells.
    pub rows: Vec<Row>,
}

impl Summary {
    /// Summarises `blocks`.
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
