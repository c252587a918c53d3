//! Finds figures that rise or fall over the blocks of a run: of the cells and of the canary.
//!
//! A drift of the machine changes all contenders of a block, so it hardly changes a ratio within a
//! block. The report names it, because medians and differences include it.

use serde::Serialize;

use crate::canary::Reading;
use crate::experiment::Experiment;
use crate::figures::Figures;
use crate::results::{Block, Plan};
use crate::stats::mann_whitney::holm;
use crate::stats::trend::trend;

/// Corrected probability below which a trend is a drift.
const P_MAX: f64 = 0.05;

/// A part of the readings of the canary.
type Part = fn(&Reading) -> f64;

/// A figure that rose or fell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Drift {
    /// The cell and the metric, or the part of the canary.
    pub what: String,
    /// Change from the first block to the last, relative to the median.
    pub change: f64,
    /// Probability of such a trend without a drift, corrected for the number of tests.
    pub p: f64,
}

/// The drifts above the noise floor, the largest first. Of the metrics, only the first that is shown
/// is tested.
pub(super) fn find(
    experiment: &Experiment,
    plan: &Plan,
    blocks: &[Block],
    figures: &Figures,
) -> Vec<Drift> {
    let mut series: Vec<(String, Vec<f64>)> = Vec::new();
    if let Some(metric) = experiment.header.show.first() {
        for (number, cell) in plan.cells.iter().enumerate() {
            let name = format!("{}@{}:{metric}", cell.contender, cell.workload);
            series.push((name, figures.of_cell(number, metric)));
        }
    }
    let parts: [(&str, Part); 2] = [
        ("the loop of the canary", |reading| reading.integer_ms),
        ("the copy of the canary", |reading| reading.copy_ms),
    ];
    for (name, part) in parts {
        let readings = blocks.iter().map(|block| &block.head);
        let values = readings.map(|head| f64::midpoint(part(&head.before), part(&head.after)));
        series.push((name.to_owned(), values.collect()));
    }
    let trends = series.into_iter().filter_map(|(what, values)| {
        let trend = trend(&values)?;
        Some(Drift {
            what,
            change: trend.change,
            p: trend.p,
        })
    });
    let mut drifts: Vec<Drift> = trends.collect();
    let p: Vec<f64> = drifts.iter().map(|drift| drift.p).collect();
    for (drift, corrected) in drifts.iter_mut().zip(holm(&p)) {
        drift.p = corrected;
    }
    drifts.retain(|drift| drift.p < P_MAX && drift.change.abs() > figures.noise_floor());
    drifts.sort_by(|a, b| b.change.abs().total_cmp(&a.change.abs()));
    drifts
}
