//! Sections of the report that check other figures: those of a study, rows that cannot be true,
//! queues, and drifts.

use super::{Part, Section, Table, in_words, significant};
use crate::experiment::Experiment;
use crate::summary::{FalseAlarms, Row, Summary};

/// Maximum number of drifts that are listed.
const DRIFTS_MAX: usize = 20;

/// What the study said, and whether its claims hold here.
pub(super) fn study(experiment: &Experiment, summary: &Summary) -> Option<Section> {
    let said = experiment.header.study.as_ref()?;
    let mut table = Table::new(&["claim of the study", "at", "here", "in words"]);
    let claims = experiment.claims.iter().filter(|claim| claim.study);
    for text in claims.map(|claim| &claim.text) {
        for decision in summary.claims.iter().filter(|made| made.text == *text) {
            table.row(vec![
                text.clone(),
                decision.workload.clone(),
                decision.verdict.word().to_owned(),
                in_words(decision, summary.noise_floor),
            ]);
        }
    }
    let mut parts = vec![Part::Text(said.trim().to_owned())];
    if table.rows.len() > 1 {
        parts.push(Part::Table(table));
    }
    Some(Section::new("The study", parts))
}

/// The rows that were removed, because they contradict the number of CPUs.
pub(super) fn impossible(summary: &Summary) -> Option<Section> {
    if summary.impossible.is_empty() {
        return None;
    }
    let mut table = Table::new(&["contender", "block", "workload", "CPUs used", "CPUs"]);
    for row in &summary.impossible {
        table.row(vec![
            row.contender.clone(),
            (row.block + 1).to_string(),
            row.workload.clone(),
            significant(row.used),
            row.cpus.to_string(),
        ]);
    }
    let note = "According to its figures, each of these rows used more CPUs than the run could use: its rate times the \
                CPU time of a request, or its CPU time divided by its wall time. So its figures in this block are \
                wrong, and nothing else in this report includes them.";
    let parts = vec![Part::Text(note.to_owned()), Part::Table(table)];
    Some(Section::new("Impossible rows", parts))
}

/// The closed loops, and whether their latencies are those of a queue.
pub(super) fn queues(summary: &Summary) -> Option<Section> {
    if summary.queues.is_empty() {
        return None;
    }
    let mut table = Table::new(&[
        "workload",
        "contender",
        "connections",
        "connections / rate",
        "p50",
        "",
    ]);
    for queue in &summary.queues {
        let reading = if queue.queueing {
            "queueing, not service"
        } else {
            ""
        };
        table.row(vec![
            queue.workload.clone(),
            queue.contender.clone(),
            significant(queue.connections),
            format!("{} us", significant(queue.expected_us)),
            format!("{} us", significant(queue.p50_us)),
            reading.to_owned(),
        ]);
    }
    let note = "By Little's law, the mean latency of a closed loop is the number of connections divided by the rate, \
                for a quick server and for a slow one. If the median latency differs from it by at most 10 %, the \
                latency shows the queue, not the server.";
    let parts = vec![Part::Text(note.to_owned()), Part::Table(table)];
    Some(Section::new("Queues", parts))
}

/// The figures that rose or fell over the blocks.
pub(super) fn drifts(summary: &Summary) -> Option<Section> {
    if summary.drifts.is_empty() {
        return None;
    }
    let listed = summary.drifts.iter().take(DRIFTS_MAX);
    let mut points: Vec<String> = listed
        .map(|drift| {
            let change = 100.0 * drift.change;
            format!(
                "{}: {change:+.1} % from the first block to the last (p {:.4})",
                drift.what, drift.p
            )
        })
        .collect();
    let more = summary.drifts.len().saturating_sub(DRIFTS_MAX);
    if more > 0 {
        points.push(format!("{more} more"));
    }
    let note = "These figures rose or fell over the blocks by more than the noise floor (Mann and Kendall, p corrected \
                by Holm). A ratio within a block hardly changes with the machine, but a median over the blocks does.";
    let parts = vec![Part::Text(note.to_owned()), Part::List(points)];
    Some(Section::new("Drift", parts))
}

/// A sentence on the claims about equal contenders.
#[allow(clippy::cast_precision_loss)] // counts of comparisons
pub(super) fn false_alarms(found: FalseAlarms) -> String {
    let FalseAlarms {
        comparisons,
        alarms,
    } = found;
    let percent = 100.0 * alarms as f64 / comparisons as f64;
    let verdict = if alarms * 20 <= comparisons {
        "at most 5 %, as required"
    } else {
        "MORE THAN 5 %"
    };
    format!(
        "False alarms: {alarms} of {comparisons} comparisons of a contender with a copy of itself found a difference \
         ({percent:.1} %; {verdict})."
    )
}

/// A note on rows with a bound; `None` if no row has one.
pub(super) fn bounds<'a>(mut rows: impl Iterator<Item = &'a Row>) -> Option<Part> {
    rows.any(|row| row.bound.is_some()).then(|| {
        let note = "In rows with `>=` or `<=`, the load client was the limit: it used more than 95 % of its CPU, and the \
                    server less. The server can be faster than these figures.";
        Part::Text(note.to_owned())
    })
}

/// The text of a figure, with its bound.
pub(super) fn bounded(row: &Row, figure: String) -> String {
    match row.bound {
        Some(bound) => format!("{bound} {figure}"),
        None => figure,
    }
}
