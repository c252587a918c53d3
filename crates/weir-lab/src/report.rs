//! The report: first claims, then the set-up, figures and circumstances. The text is printed in a terminal
//! and stored as `report.md`. `report.html` adds plots, and `figures.csv` has the figures of each
//! block.
//!
//! Invariant: a report depends only on its result set, byte for byte.

mod cell;
mod checks;
pub mod html;
pub mod plot;
mod prose;
mod table;

use std::fmt::Write;

use crate::claim::{BLOCKS_MIN, Decision, Verdict};
use crate::experiment::Experiment;
use crate::experiment::matrix::TWIN;
use crate::fingerprint::Fingerprint;
use crate::results::{Block, Plan};
use crate::summary::Summary;

pub(crate) use cell::cell;
pub use table::Table;

/// A piece of a section.
#[derive(Debug)]
pub enum Part {
    /// A paragraph; `**` and backticks mark up words.
    Text(String),
    /// Points of a list.
    List(Vec<String>),
    /// A table.
    Table(Table),
}

/// A part of the report under its own heading.
#[derive(Debug)]
pub struct Section {
    heading: String,
    parts: Vec<Part>,
}

impl Section {
    fn new(heading: &str, parts: Vec<Part>) -> Section {
        Section {
            heading: heading.to_owned(),
            parts,
        }
    }

    fn markdown(&self) -> String {
        let mut text = format!("## {}\n\n", self.heading);
        for part in &self.parts {
            // Writing to a string cannot fail.
            let _ = match part {
                Part::Text(words) => writeln!(text, "{words}\n"),
                Part::List(points) => {
                    let points = points.iter().map(|point| format!("- {point}\n"));
                    writeln!(text, "{}", points.collect::<String>())
                }
                Part::Table(table) => writeln!(text, "{}", table.render()),
            };
        }
        text
    }
}

/// Text of the report.
pub fn markdown(
    experiment: &Experiment,
    plan: &Plan,
    blocks: &[Block],
    summary: &Summary,
    fingerprint: &Fingerprint,
) -> String {
    let header = &experiment.header;
    let mut text = format!("# {}\n\n{}\n\n", header.title, header.question);
    let _ = writeln!(text, "{}\n", circumstances(plan, blocks, summary));
    for section in sections(experiment, plan, blocks, summary, fingerprint) {
        text.push_str(&section.markdown());
    }
    // One line feed ends the text.
    text.pop();
    text
}

/// The sections in order; sections without content are omitted.
fn sections(
    experiment: &Experiment,
    plan: &Plan,
    blocks: &[Block],
    summary: &Summary,
    fingerprint: &Fingerprint,
) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    sections.extend(claims(summary));
    sections.extend(checks::study(experiment, summary));
    sections.extend(prose::losses(experiment, summary));
    sections.extend(prose::setup(experiment));
    sections.extend(gaps(plan));
    sections.extend(prose::empty_cells(experiment, plan));
    sections.extend(failures(plan, blocks));
    sections.extend(checks::impossible(summary));
    for metric in &experiment.header.show {
        sections.extend(medians(summary, metric));
    }
    sections.push(details(experiment, summary));
    sections.extend(checks::queues(summary));
    sections.extend(allocations(plan));
    sections.extend(checks::drifts(summary));
    sections.push(block_table(blocks));
    sections.push(machine(fingerprint));
    sections.push(repetition(experiment, plan));
    sections
}

/// The command that repeats the run.
fn repetition(experiment: &Experiment, plan: &Plan) -> Section {
    let verb = match experiment.header.name.as_str() {
        "noise" => "noise".to_owned(),
        "equal-work" => "noise --false-alarms".to_owned(),
        name => format!("run {name}"),
    };
    let command = format!(
        "`weir-lab {verb} --seed {} --blocks {}{}{}{}`",
        plan.seed,
        plan.blocks,
        if plan.quick { " --quick" } else { "" },
        if plan.site { " --site URL" } else { "" },
        if plan.only.is_empty() {
            String::new()
        } else {
            format!(" --only {}", plan.only.join(","))
        },
    );
    Section::new("How to repeat this run", vec![Part::Text(command)])
}

fn circumstances(plan: &Plan, blocks: &[Block], summary: &Summary) -> String {
    let mut text = format!(
        "{} blocks of {} planned, {} samples of each cell a block, seed {}; {} left out as disturbed.",
        summary.blocks, summary.planned, plan.samples, plan.seed, summary.disturbed
    );
    let has_twin = plan.cells.iter().any(|cell| cell.contender.ends_with(TWIN));
    let noise = 100.0 * summary.noise_floor;
    // Writing to a string cannot fail.
    let _ = if has_twin {
        write!(
            text,
            " Two copies of one contender (twins) differ by at most {noise:.1} % in 95 % of their pairs."
        )
    } else {
        write!(
            text,
            " No contender has a twin, so the noise floor is assumed to be {noise:.1} %."
        )
    };
    let highest = blocks
        .iter()
        .map(|block| block.head.shares.foreign)
        .fold(0.0, f64::max);
    let _ = write!(
        text,
        " Other work took up to {:.0} % of the measured CPUs (the limit of a block is {:.0} %), so percentiles of samples above p{:.0} can show that work.",
        100.0 * highest,
        100.0 * plan.foreign_max,
        100.0 * (1.0 - highest)
    );
    if plan.quick {
        text.push_str(
            " **Quick run: it shows that everything works; its figures decide nothing.**",
        );
    }
    if plan.site {
        text.push_str(" It read a site whose address is not stored.");
    }
    text
}

/// The parts of a full run that this run lacks.
fn gaps(plan: &Plan) -> Option<Section> {
    let absent = plan.absent.iter().map(|absent| {
        format!(
            "**{}** was left out: its program was missing. It needs {}.",
            absent.contender, absent.needs
        )
    });
    let cut = plan.cut.iter().map(|cut| {
        format!(
            "A quick run had time for the first {} of {} cells.",
            cut.checked, cut.of
        )
    });
    let lines: Vec<String> = absent.chain(cut).collect();
    (!lines.is_empty()).then(|| Section::new("Gaps", vec![Part::List(lines)]))
}

/// The contenders that failed: at which block and workload, and the error.
fn failures(plan: &Plan, blocks: &[Block]) -> Option<Section> {
    let checked = plan
        .failed
        .iter()
        .map(|failure| ("check".to_owned(), failure));
    let measured = blocks.iter().flat_map(|block| {
        let number = (block.head.block + 1).to_string();
        block.head.failed.iter().map(move |f| (number.clone(), f))
    });
    let mut table = Table::new(&["contender", "block", "workload", "what happened"]);
    for (block, failure) in checked.chain(measured) {
        table.row(vec![
            failure.contender.clone(),
            block,
            failure.workload.clone(),
            // A table cell is one line and must not contain a bar character.
            failure.what.replace(['\n', '|'], " "),
        ]);
    }
    if table.rows.len() == 1 {
        return None;
    }
    let note = "A block has no figure of a contender that failed in it.".to_owned();
    let parts = vec![Part::Table(table), Part::Text(note)];
    Some(Section::new("Failures", parts))
}

fn claims(summary: &Summary) -> Option<Section> {
    if summary.claims.is_empty() {
        return None;
    }
    let mut table = Table::new(&[
        "claim",
        "at",
        "figure [95 % interval]",
        "limit",
        "n",
        "p",
        "verdict",
        "in words",
    ]);
    // Of the claims about equal contenders, only false alarms are listed.
    let is_listed = |claim: &&Decision| !claim.equal || claim.verdict == Verdict::Holds;
    for claim in summary.claims.iter().filter(is_listed) {
        let side = if claim.at_most { "<=" } else { ">=" };
        table.row(vec![
            format!("{} ({})", claim.text, claim.compared),
            claim.workload.clone(),
            figure(claim),
            format!("{side} {}", amount(claim, claim.bar)),
            claim.figures.len().to_string(),
            claim.p.map_or("-".to_owned(), |p| format!("{p:.4}")),
            claim.verdict.word().to_owned(),
            in_words(claim, summary.noise_floor) + &blocks_needed(claim),
        ]);
    }
    let note = "The figure is the median over the blocks of a ratio within each block, or of a value. p is that of Wilcoxon's signed rank test against the limit, not corrected for the number of claims. The verdict compares the interval, and the figures of 80 % of the blocks, with the limit. The words compare a ratio with 1, and state a difference only if the whole interval is outside the noise floor.".to_owned();
    let mut parts = Vec::new();
    parts.extend(verdicts(summary).map(Part::Text));
    parts.extend(
        summary
            .false_alarms
            .map(checks::false_alarms)
            .map(Part::Text),
    );
    if table.rows.len() > 1 {
        parts.extend([Part::Table(table), Part::Text(note)]);
    }
    Some(Section::new("Claims", parts))
}

/// The number of blocks that would probably decide the claim.
fn blocks_needed(claim: &Decision) -> String {
    let blocks = claim.blocks_needed;
    blocks.map_or(String::new(), |blocks| {
        format!("; about {blocks} blocks would decide")
    })
}

/// The number of verdicts of each kind; `None` if all claims are about equal contenders.
fn verdicts(summary: &Summary) -> Option<String> {
    let claims = || summary.claims.iter().filter(|claim| !claim.equal);
    claims().next()?;
    let kinds = [
        Verdict::Holds,
        Verdict::DoesNotHold,
        Verdict::CannotTell,
        Verdict::NotMeasured,
    ];
    let counts = kinds.map(|kind| {
        let count = claims().filter(|claim| claim.verdict == kind).count();
        format!("{} {count}", kind.word())
    });
    let counts = counts.join(", ");
    Some(format!(
        "Verdicts, one for each claim and workload: {counts}."
    ))
}

/// The meaning of the figure of a claim without its limit. A ratio within the noise floor, or of
/// few blocks, does not show a difference.
fn in_words(claim: &Decision, noise_floor: f64) -> String {
    let Some(interval) = claim.interval else {
        return Verdict::NotMeasured.word().to_owned();
    };
    let confidence = |low: f64, high: f64| {
        format!(
            "95 % interval {} to {}",
            amount(claim, low),
            amount(claim, high)
        )
    };
    let measured = confidence(interval.low, interval.high);
    if claim.figures.len() < BLOCKS_MIN {
        return format!("too few blocks to decide ({measured})");
    }
    if !claim.ratio {
        return format!("{}, {measured}", amount(claim, interval.centre));
    }
    let time = matches!(
        claim.metric.as_str(),
        "wall" | "wall_total" | "cpu" | "cpu_total"
    );
    let (less, more) = if time {
        ("less time", "more time")
    } else {
        ("less", "more")
    };
    if interval.low > 0.0 && interval.high < 1.0 - noise_floor {
        let by = amount(claim, 1.0 / interval.centre);
        let range = confidence(1.0 / interval.high, 1.0 / interval.low);
        return format!("{less} by {by}, {range}");
    }
    if interval.low > 1.0 + noise_floor {
        return format!("{more} by {}, {measured}", amount(claim, interval.centre));
    }
    if interval.low > 1.0 || interval.high < 1.0 {
        let noise = 100.0 * noise_floor;
        return format!(
            "the noise floor of {noise:.1} % could explain the difference ({measured})"
        );
    }
    format!("cannot tell apart ({measured})")
}

fn figure(claim: &Decision) -> String {
    claim.interval.map_or("-".to_owned(), |interval| {
        format!(
            "{} [{}, {}]",
            amount(claim, interval.centre),
            amount(claim, interval.low),
            amount(claim, interval.high)
        )
    })
}

fn amount(claim: &Decision, value: f64) -> String {
    if claim.ratio {
        format!("{}x", significant(value))
    } else {
        with_unit(&claim.metric, value)
    }
}

fn medians(summary: &Summary, metric: &str) -> Option<Section> {
    let rows = || summary.rows.iter().filter(|row| row.metric == metric);
    let mut contenders: Vec<&str> = Vec::new();
    let mut workloads: Vec<&str> = Vec::new();
    for row in rows() {
        if !contenders.contains(&row.contender.as_str()) {
            contenders.push(&row.contender);
        }
        if !workloads.contains(&row.workload.as_str()) {
            workloads.push(&row.workload);
        }
    }
    if workloads.is_empty() {
        return None;
    }
    let mut table = Table::new(&[&["workload"], contenders.as_slice()].concat());
    for workload in workloads {
        let mut cells = vec![workload.to_owned()];
        for contender in &contenders {
            let row = rows().find(|row| row.contender == *contender && row.workload == workload);
            cells.push(row.map_or(String::new(), |row| {
                checks::bounded(row, with_unit(metric, row.blocks.median))
            }));
        }
        table.row(cells);
    }
    let heading = format!("Medians of `{metric}`");
    let mut parts = vec![Part::Table(table)];
    parts.extend(checks::bounds(rows()));
    Some(Section::new(&heading, parts))
}

fn details(experiment: &Experiment, summary: &Summary) -> Section {
    let mut table = Table::new(&[
        "workload",
        "loop",
        "contender",
        "metric",
        "median",
        "MAD",
        "min",
        "max",
        "blocks",
        "outliers",
        "p90 of samples",
        "p99",
        "samples",
    ]);
    for row in &summary.rows {
        let unit = |value| with_unit(&row.metric, value);
        let of_samples = |pick: fn(&crate::stats::Spread) -> f64| {
            row.samples
                .as_ref()
                .map_or("-".to_owned(), |spread| unit(pick(spread)))
        };
        table.row(vec![
            row.workload.clone(),
            experiment.load_of(&row.workload).word().to_owned(),
            row.contender.clone(),
            row.metric.clone(),
            checks::bounded(row, unit(row.blocks.median)),
            unit(row.blocks.mad),
            unit(row.blocks.min),
            unit(row.blocks.max),
            row.blocks.n.to_string(),
            row.outliers.to_string(),
            of_samples(|spread| spread.p90),
            of_samples(|spread| spread.p99),
            row.samples.map_or(0, |spread| spread.n).to_string(),
        ]);
    }
    let note = "In a closed loop, each caller waits for an answer before its next request, so latencies are those of a \
                queue. In an open loop, requests are sent at their times, and a latency counts from the time the \
                request was due. MAD is the median absolute deviation of the figures of the blocks. An outlier \
                is the figure of a block more than three interquartile ranges outside of the quartiles; it is not removed.";
    let parts = vec![Part::Text(note.to_owned()), Part::Table(table)];
    Section::new("Figures", parts)
}

fn allocations(plan: &Plan) -> Option<Section> {
    if plan.cells.iter().all(|cell| cell.answer.allocations == 0) {
        return None;
    }
    let mut table = Table::new(&["workload", "contender", "allocations", "bytes"]);
    for cell in plan.cells.iter().filter(|cell| cell.answer.allocations > 0) {
        table.row(vec![
            cell.workload.clone(),
            cell.contender.clone(),
            cell.answer.allocations.to_string(),
            cell.answer.allocated_bytes.to_string(),
        ]);
    }
    let note = "The other contenders allocate nothing.".to_owned();
    let parts = vec![Part::Text(note), Part::Table(table)];
    Some(Section::new("Allocations of one iteration", parts))
}

fn block_table(blocks: &[Block]) -> Section {
    let mut table = Table::new(&[
        "block",
        "foreign CPU",
        "steal",
        "idle",
        "loop before",
        "after",
        "copy before",
        "after",
        "",
    ]);
    for Block { head, .. } in blocks {
        table.row(vec![
            (head.block + 1).to_string(),
            format!("{:.1} %", 100.0 * head.shares.foreign),
            format!("{:.1} %", 100.0 * head.shares.steal),
            format!("{:.1} %", 100.0 * head.shares.idle),
            format!("{:.2} ms", head.before.integer_ms),
            format!("{:.2} ms", head.after.integer_ms),
            format!("{:.2} ms", head.before.copy_ms),
            format!("{:.2} ms", head.after.copy_ms),
            match (head.disturbed, head.attempt) {
                (true, _) if head.shares.clock_set => "disturbed: the clock was set".to_owned(),
                (true, _) => "disturbed".to_owned(),
                (false, 1) => String::new(),
                (false, _) => "repeated".to_owned(),
            },
        ]);
    }
    let note = "Foreign CPU is the time of other processes on the measured CPUs. The canary is fixed work, \
                timed before and after each block: an integer loop and a copy of 32 MiB. If its time changes, so did \
                the speed of the machine.";
    let parts = vec![Part::Text(note.to_owned()), Part::Table(table)];
    Section::new("Blocks and canary", parts)
}

fn machine(fingerprint: &Fingerprint) -> Section {
    let mut table = Table::new(&["what", "value"]);
    for (name, value) in fingerprint.stable.iter().chain(&fingerprint.moment) {
        table.row(vec![name.clone(), value.clone()]);
    }
    let hash = format!("fingerprint {}", fingerprint.hash());
    let parts = vec![Part::Table(table), Part::Text(hash)];
    Section::new("Circumstances", parts)
}

/// `value` of `metric` with its unit, three significant digits.
pub fn with_unit(metric: &str, value: f64) -> String {
    let scaled = |units: [(&str, f64); 4]| {
        let (unit, scale) = units
            .into_iter()
            .rev()
            .find(|(_, scale)| value.abs() >= *scale)
            .unwrap_or((units[0].0, 1.0));
        format!("{} {unit}", significant(value / scale))
    };
    match metric {
        "wall" | "cpu" | "wall_total" | "cpu_total" => {
            scaled([("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)])
        }
        "max_rss" | "rss" | "rss_peak" | "rss_before" | "allocated_bytes" | "file_bytes" => {
            scaled([("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9)])
        }
        _ => significant(value),
    }
}

/// Three significant digits without an exponent.
pub fn significant(value: f64) -> String {
    let size = value.abs();
    let places = match size {
        _ if size == 0.0 || size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ if size >= 0.1 => 3,
        _ if size >= 0.01 => 4,
        _ => 5,
    };
    format!("{value:.places$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::bootstrap::Interval;

    /// A claim that a ratio of times is at most 1, with this interval.
    fn ratio(low: f64, centre: f64, high: f64) -> Decision {
        Decision {
            text: "a claim".to_owned(),
            compared: "a / b".to_owned(),
            workload: "w".to_owned(),
            ratio: true,
            metric: "wall".to_owned(),
            bar: 1.0,
            at_most: true,
            figures: vec![centre; BLOCKS_MIN],
            interval: Some(Interval { centre, low, high }),
            p: None,
            verdict: Verdict::CannotTell,
            blocks_needed: None,
            equal: false,
        }
    }

    #[test]
    fn words_state_a_difference_only_outside_the_noise_floor() {
        for (low, centre, high, words) in [
            (0.5, 0.5, 0.5, "less time by 2.00x, "),
            (1.3, 1.4, 1.5, "more time by 1.40x, "),
            (1.02, 1.09, 1.17, "the noise floor of 21.6 % could explain "),
            (0.85, 0.9, 0.95, "the noise floor of 21.6 % could explain "),
            (0.9, 1.0, 1.1, "cannot tell apart ("),
        ] {
            let found = in_words(&ratio(low, centre, high), 0.216);
            assert!(found.starts_with(words), "{found}");
        }
    }

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        for (metric, value, text) in [
            ("wall", 41.234, "41.2 ns"),
            ("cpu", 1_234.0, "1.23 us"),
            ("wall_total", 2.5e9, "2.50 s"),
            ("max_rss", 150e6, "150 MB"),
            ("syncs", 12.0, "12.0"),
            ("wall", 0.0, "0 ns"),
        ] {
            assert_eq!(with_unit(metric, value), text);
        }
    }
}
