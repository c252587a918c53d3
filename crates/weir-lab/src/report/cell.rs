//! Prints one cell in a terminal: its blocks, percentiles and histogram.

use std::fmt::Write;

use super::{Table, with_unit};
use crate::figures::Figures;
use crate::results::{Block, Plan};
use crate::stats::{median, percentile_of_sorted, sorted};

/// Number of bars of the histogram.
const BARS: u32 = 20;
/// Length of the longest bar.
const LONGEST: usize = 50;

/// The text for `cell` of `plan`; `None` if no sample has `metric`. `shown` are the metrics of the
/// experiment.
pub(crate) fn cell(
    plan: &Plan,
    blocks: &[Block],
    shown: &[String],
    cell: usize,
    metric: &str,
) -> Option<String> {
    let planned = plan.cells.get(cell)?;
    let figures = |blocks: &[Block]| {
        let mut figures = Figures::new(plan, blocks);
        figures.remove_impossible(shown);
        figures
    };
    let samples = sorted(&figures(blocks).samples_of(cell, metric, blocks));
    let (low, high) = (*samples.first()?, *samples.last()?);
    let mut text = format!(
        "{} at {}: {metric} of {} samples in undisturbed blocks\n\n",
        planned.contender,
        planned.workload,
        samples.len()
    );
    let mut percentiles = Table::new(&["min", "p50", "p90", "p99", "p99.9", "max"]);
    let rank = |share| percentile_of_sorted(&samples, share);
    let shares = [
        Some(low),
        median(&samples),
        rank(0.9),
        rank(0.99),
        rank(0.999),
        Some(high),
    ];
    let shares = shares.into_iter().flatten();
    percentiles.row(shares.map(|value| with_unit(metric, value)).collect());
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}", percentiles.render());
    let width = (high - low) / f64::from(BARS);
    let mut rest = samples.as_slice();
    let mut bars: Vec<(f64, usize)> = Vec::new();
    for bar in 1..=BARS {
        let end = if bar == BARS {
            high
        } else {
            low + width * f64::from(bar)
        };
        let within = rest.partition_point(|value| *value <= end);
        bars.push((end, within));
        rest = &rest[within..];
    }
    let most = bars.iter().map(|(_, n)| *n).max()?;
    for (end, n) in bars {
        let length = (n * LONGEST).div_ceil(most.max(1));
        let end = with_unit(metric, end);
        let _ = writeln!(text, "<= {end:>10} {n:>7} {}", "#".repeat(length));
    }
    let mut table = Table::new(&["block", "figure", "foreign CPU", ""]);
    for block in blocks {
        let figure = figures(std::slice::from_ref(block)).of_cell(cell, metric);
        let figure = figure.first().map(|figure| with_unit(metric, *figure));
        let disturbed = if block.head.disturbed {
            "disturbed"
        } else {
            ""
        };
        table.row(vec![
            (block.head.block + 1).to_string(),
            figure.unwrap_or_else(|| "-".to_owned()),
            format!("{:.1} %", 100.0 * block.head.shares.foreign),
            disturbed.to_owned(),
        ]);
    }
    let _ = write!(text, "\n{}", table.render());
    Some(text)
}
