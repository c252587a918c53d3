//! The content of a report: figures by cell and metric, and decided claims.
//!
//! Invariant: disturbed blocks have no figures.

pub mod drift;

use serde::Serialize;

use crate::claim::{self, Decision, Verdict};
use crate::experiment::{Experiment, Load};
use crate::figures::Figures;
use crate::figures::physics::{Impossible, Queue};
use crate::results::{Block, Plan, PlannedCell, SCHEMA};
use crate::stats::{Spread, outliers};
use drift::Drift;

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
    /// Number of blocks whose figure is an outlier. It is not removed.
    pub outliers: usize,
    /// Spread of all samples of the undisturbed blocks.
    pub samples: Option<Spread>,
    /// If the load client was the limit, how the figure of the server compares with this one: `>=`
    /// for a rate, `<=` for a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<&'static str>,
}

/// How often equal contenders were called different.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FalseAlarms {
    /// Compared pairs, one for each workload.
    pub comparisons: usize,
    /// Pairs for which a claim held.
    pub alarms: usize,
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
    /// Rows of a block that were removed, because they contradict the number of CPUs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub impossible: Vec<Impossible>,
    /// The closed loops.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<Queue>,
    /// Figures that rose or fell over the blocks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drifts: Vec<Drift>,
    /// The result of the claims about equal contenders, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub false_alarms: Option<FalseAlarms>,
}

impl Summary {
    /// Summarises `blocks`.
    pub fn new(experiment: &Experiment, plan: &Plan, blocks: &[Block]) -> Summary {
        let header = &experiment.header;
        let mut figures = Figures::new(plan, blocks);
        let impossible = figures.remove_impossible(&header.show);
        let mut claims = Vec::new();
        for claim in &experiment.claims {
            claims.extend(claim::decide(claim, &figures, plan.seed));
        }
        let mut rows = Vec::new();
        for metric in &header.show {
            for (number, cell) in plan.cells.iter().enumerate() {
                rows.extend(row(experiment, &figures, blocks, (number, cell), metric));
            }
        }
        let cells = plan.cells.iter().enumerate();
        let queues = cells.filter_map(|(number, cell)| {
            let connections = experiment.number_of(&cell.workload, "connections")?;
            let is_closed = experiment.load_of(&cell.workload) == Load::Closed;
            is_closed.then(|| figures.queue(number, connections))?
        });
        let disturbed = blocks.iter().filter(|block| block.head.disturbed).count();
        Summary {
            schema: SCHEMA,
            experiment: header.name.clone(),
            blocks: blocks.len() - disturbed,
            disturbed,
            planned: plan.blocks,
            quick: plan.quick,
            noise_floor: figures.noise_floor(),
            rows,
            impossible,
            queues: queues.collect(),
            drifts: drift::find(experiment, plan, blocks, &figures),
            false_alarms: false_alarms(&claims),
            claims,
        }
    }
}

/// The row of a cell; `None` if it has no figures.
fn row(
    experiment: &Experiment,
    figures: &Figures,
    blocks: &[Block],
    (number, cell): (usize, &PlannedCell),
    metric: &str,
) -> Option<Row> {
    let of_blocks = figures.of_cell(number, metric);
    let is_closed = experiment.load_of(&cell.workload) == Load::Closed;
    let bound = match metric {
        "rate" => Some(">="),
        "wall" | "wall_total" => Some("<="),
        _ => None,
    };
    Some(Row {
        contender: cell.contender.clone(),
        workload: cell.workload.clone(),
        metric: metric.to_owned(),
        blocks: Spread::of(&of_blocks)?,
        outliers: outliers(&of_blocks),
        samples: Spread::of(&figures.samples_of(number, metric, blocks)),
        bound: bound.filter(|_| is_closed && figures.is_client_limit(number)),
    })
}

/// Counts the claims about equal contenders that hold. Claims at one workload are one comparison.
fn false_alarms(claims: &[Decision]) -> Option<FalseAlarms> {
    let mut pairs: Vec<(&str, bool)> = Vec::new();
    let measured = |claim: &&Decision| claim.equal && claim.verdict != Verdict::NotMeasured;
    for claim in claims.iter().filter(measured) {
        let holds = claim.verdict == Verdict::Holds;
        match pairs.iter_mut().find(|(name, _)| *name == claim.workload) {
            Some((_, alarm)) => *alarm |= holds,
            None => pairs.push((claim.workload.as_str(), holds)),
        }
    }
    (!pairs.is_empty()).then(|| FalseAlarms {
        comparisons: pairs.len(),
        alarms: pairs.iter().filter(|(_, alarm)| *alarm).count(),
    })
}
