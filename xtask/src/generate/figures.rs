//! Generates the tables of figures in pages from the records of the lab.
//!
//! `lab/figures.md` is the template. It has a section with a table for each page. The heading of a
//! section is the path of the page. Tables have references in braces:
//! - `{EXPERIMENT: COMPARED | WORKLOAD}` is a claim of the record: median and 95 % interval.
//! - `{EXPERIMENT: CONTENDER@WORKLOAD:METRIC}` is a claim or, if there is none, the median of a row.
//! - `{record EXPERIMENT}` is the command and a link to the report.
//!
//! Invariants:
//! - Each figure comes from the newest committed record of its experiment.
//! - A reference that the record does not contain is an error.
//! - A figure that was not measured is printed as such.

use crate::tree;
use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The template of the tables.
const TEMPLATE: &str = "lab/figures.md";
/// The page that links to the newest record of every experiment.
const README: &str = "README.md";
/// The lines around the table in a page.
const MARKS: (&str, &str) = ("<!-- figures: begin -->\n", "<!-- figures: end -->\n");

/// Generates the pages: the path of each, and its text with the current table.
pub(super) fn generate() -> anyhow::Result<Vec<(String, String)>> {
    let template = tree::text(TEMPLATE)?;
    let sections = template.split("\n## ").skip(1);
    let pages = sections.map(|section| {
        let (page, table) = page_and_table(section)?;
        let text = with_table(page, table).with_context(|| page.to_owned())?;
        Ok((page.to_owned(), text))
    });
    pages.collect()
}

/// The path of a page and the template of its table, in a section of the template.
fn page_and_table(section: &str) -> anyhow::Result<(&str, &str)> {
    let (page, rest) = section.split_once('\n').context("a heading without text")?;
    let missing = || format!("{TEMPLATE}: {page} has no table");
    let start = rest.find('|').with_context(missing)?;
    Ok((page, &rest[start..]))
}

/// The text of the page with its current table.
fn with_table(page: &str, template: &str) -> anyhow::Result<String> {
    let text = tree::text(page)?;
    let (head, rest) = text
        .split_once(MARKS.0)
        .context("the page has no place for figures")?;
    let (_, tail) = rest
        .split_once(MARKS.1)
        .context("the page has no end of figures")?;
    let mut records = Records {
        up: "../".repeat(page.matches('/').count()),
        read: BTreeMap::new(),
    };
    let table = fill_template(template, &mut |reference| records.figure(reference))?;
    let machines = records.machines()?;
    // The README links to all records.
    let others = if page == README {
        records.others(&tree::files()?)
    } else {
        String::new()
    };
    Ok(format!(
        "{head}{}\n{table}\n{machines}{others}\n\n{}{tail}",
        MARKS.0, MARKS.1
    ))
}

/// The template with each reference replaced.
fn fill_template(
    template: &str,
    figure: &mut dyn FnMut(&str) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (reference, after) = after
            .split_once('}')
            .with_context(|| format!("{TEMPLATE}: an open brace has no end"))?;
        text.push_str(before);
        text.push_str(&figure(reference).with_context(|| format!("{TEMPLATE}: {{{reference}}}"))?);
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

/// The newest record of each experiment that a page references.
struct Records {
    /// The path of the root, relative to the page: empty, or dots that end in a slash.
    up: String,
    read: BTreeMap<String, Record>,
}

/// One record.
struct Record {
    /// The folder of the record, relative to the root.
    folder: String,
    summary: Value,
}

impl Records {
    fn figure(&mut self, reference: &str) -> anyhow::Result<String> {
        if let Some(experiment) = reference.strip_prefix("record ") {
            let folder = self.record(experiment)?.folder.clone();
            return Ok(format!(
                "[`make lab LAB={experiment}`]({}{folder}/report.md)",
                self.up
            ));
        }
        let (experiment, asked) = reference
            .split_once(": ")
            .context("expected `EXPERIMENT: FIGURE` or `record EXPERIMENT`")?;
        figure(&self.record(experiment)?.summary, asked)
    }

    fn record(&mut self, experiment: &str) -> anyhow::Result<&Record> {
        if !self.read.contains_key(experiment) {
            let path = newest(tree::files()?, experiment)
                .with_context(|| format!("no record of {experiment}"))?;
            let summary: Value = serde_json::from_str(&tree::text(&path)?)
                .with_context(|| format!("{path} is not JSON"))?;
            ensure!(
                summary["quick"] == Value::Bool(false),
                "{path} is of a quick run"
            );
            let folder = path.trim_end_matches("/summary.json").to_owned();
            self.read
                .insert(experiment.to_owned(), Record { folder, summary });
        }
        self.read
            .get(experiment)
            .context("a record that was just read")
    }

    /// A paragraph with links to the newest records of the experiments that the table does not
    /// reference; empty if there are none.
    fn others(&self, files: &[String]) -> String {
        let names: BTreeSet<&str> = files
            .iter()
            .filter_map(|path| experiment_of(path))
            .collect();
        let others = names
            .into_iter()
            .filter(|name| !self.read.contains_key(*name));
        let links: Vec<String> = others
            .filter_map(|name| {
                let path = newest(files.iter().cloned(), name)?;
                let folder = path.trim_end_matches("/summary.json");
                Some(format!("[`{name}`]({}{folder}/report.md)", self.up))
            })
            .collect();
        if links.is_empty() {
            return String::new();
        }
        format!("\n\nRecords without a row: {}.", links.join(", "))
    }

    /// A sentence with the machines and dates of the records.
    fn machines(&self) -> anyhow::Result<String> {
        let mut dates: BTreeMap<(String, String), u64> = BTreeMap::new();
        for record in self.read.values() {
            let mut parts = record.folder.split('/').skip(2);
            let (Some(machine), Some(date)) = (parts.next(), parts.next()) else {
                bail!("{} is not a folder of a record", record.folder);
            };
            let blocks = record.summary["blocks"].as_u64().unwrap_or(0);
            let least = dates
                .entry((machine.to_owned(), date.to_owned()))
                .or_insert(blocks);
            *least = blocks.min(*least);
        }
        let origins: Vec<String> = dates
            .iter()
            .map(|((machine, date), blocks)| {
                format!("{machine} on {date} ({blocks} blocks or more)")
            })
            .collect();
        Ok(format!(
            "Medians over interleaved blocks with 95 % intervals: {}. A figure without\nan interval \
             is the median of a row. `cargo xtask gen` generates this table from the records in\n\
             [lab/record]({}lab/record).",
            origins.join("; "),
            self.up
        ))
    }
}

/// The experiment of a record, from the path of its summary.
fn experiment_of(path: &str) -> Option<&str> {
    let folder = path
        .strip_prefix("lab/record/")?
        .strip_suffix("/summary.json")?;
    folder.rsplit('/').next()
}

/// The summary of the newest record of an experiment, of any machine. Paths have the form
/// `lab/record/MACHINE/DATE/EXPERIMENT/summary.json`.
fn newest(files: impl IntoIterator<Item = String>, experiment: &str) -> Option<String> {
    let end = format!("/{experiment}/summary.json");
    files
        .into_iter()
        .filter(|path| path.starts_with("lab/record/") && path.ends_with(&end))
        .max_by_key(|path| path.split('/').nth(3).map(str::to_owned))
}

/// Formats the figure that `asked` references.
fn figure(summary: &Value, asked: &str) -> anyhow::Result<String> {
    let (compared, workload) = asked.split_once(" | ").unwrap_or((asked, ""));
    let claims = summary["claims"].as_array().context("no claims")?;
    let claim = claims
        .iter()
        .find(|claim| claim["compared"] == compared && claim["workload"] == workload);
    if let Some(claim) = claim {
        return in_words(claim);
    }
    let (contender, rest) = compared
        .split_once('@')
        .context("no such claim, and no row is named (CONTENDER@WORKLOAD:METRIC)")?;
    let (workload, metric) = rest.split_once(':').context("a row wants its metric")?;
    let rows = summary["rows"].as_array().context("no rows")?;
    let row = rows
        .iter()
        .find(|row| {
            row["contender"] == contender && row["workload"] == workload && row["metric"] == metric
        })
        .context("no such row")?;
    let median = row["blocks"]["median"].as_f64().context("no median")?;
    Ok(quantity(median, metric))
}

/// Formats median and interval of a claim.
fn in_words(claim: &Value) -> anyhow::Result<String> {
    let metric = claim["metric"].as_str().context("no metric")?;
    let interval = &claim["interval"];
    if interval.is_null() {
        return Ok("not measured".to_owned());
    }
    let part = |name: &str| interval[name].as_f64().context("half an interval");
    let (centre, low, high) = (part("centre")?, part("low")?, part("high")?);
    if claim["ratio"] == Value::Bool(true) {
        return Ok(format!(
            "{}x [{}, {}]",
            short(centre),
            short(low),
            short(high)
        ));
    }
    let (unit, divisor) = unit(centre, metric);
    Ok(format!(
        "{}{unit} [{}, {}]",
        short(centre / divisor),
        short(low / divisor),
        short(high / divisor)
    ))
}

fn quantity(value: f64, metric: &str) -> String {
    let (unit, divisor) = unit(value, metric);
    format!("{}{unit}", short(value / divisor))
}

/// The unit for a value of the metric, and its size in the metric's own unit.
fn unit(value: f64, metric: &str) -> (&'static str, f64) {
    let scaled = |steps: &[(&'static str, f64)]| {
        let fits = steps.iter().rev().find(|(_, size)| value.abs() >= *size);
        *fits.or(steps.first()).unwrap_or(&("", 1.0))
    };
    let time = [(" ns", 1.0), (" us", 1e3), (" ms", 1e6), (" s", 1e9)];
    match metric {
        "wall" | "cpu" | "wall_total" | "worst" | "p50" | "p99" | "cpu_per_kib" => scaled(&time),
        "server_us" | "p99_us" => scaled(&[(" ns", 1e-3), (" us", 1.0), (" ms", 1e3)]),
        "worst_ms" => (" ms", 1.0),
        "rss" | "server_rss" | "bytes_each" | "bytes_per_topic" | "peak" => {
            scaled(&[(" B", 1.0), (" kB", 1e3), (" MB", 1e6), (" GB", 1e9)])
        }
        _ => ("", 1.0),
    }
}

/// Three significant digits, or all digits before the point.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        large if large >= 100.0 => 0,
        large if large >= 10.0 => 1,
        large if large >= 0.1 => 2,
        large if large >= 0.01 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::{Record, Records, figure, fill_template, newest, page_and_table};
    use serde_json::{Value, json};

    #[test]
    fn a_figure_is_that_of_the_record() {
        let summary = json!({
            "claims": [
                {"compared": "a / b", "workload": "w", "metric": "wall", "ratio": true,
                 "interval": {"centre": 1.3131, "low": 1.2433, "high": 1.4389}},
                {"compared": "a - b", "workload": "", "metric": "cpu", "ratio": false,
                 "interval": {"centre": 1_162.5, "low": 990.0, "high": 1_209.0}},
                {"compared": "a / c", "workload": "w", "metric": "wall", "ratio": true,
                 "interval": null},
            ],
            "rows": [
                {"contender": "a", "workload": "w", "metric": "rss",
                 "blocks": {"median": 61_810_688.0}},
            ],
        });
        assert_eq!(figure(&summary, "a / b | w").unwrap(), "1.31x [1.24, 1.44]");
        assert_eq!(figure(&summary, "a - b").unwrap(), "1.16 us [0.99, 1.21]");
        assert_eq!(figure(&summary, "a / c | w").unwrap(), "not measured");
        assert_eq!(figure(&summary, "a@w:rss").unwrap(), "61.8 MB");
        assert!(figure(&summary, "a / b | other").is_err());
        assert!(figure(&summary, "a@w:wall").is_err());
    }

    #[test]
    fn the_newest_record_is_that_of_the_last_date_on_any_machine() {
        let path = |place: &str| format!("lab/record/{place}/summary.json");
        let files = [
            "a-2cpu/2026-11-20/x",
            "a-2cpu/2026-11-27/x",
            "b-2cpu/2026-11-24/x",
            "b-2cpu/2026-11-28/y",
        ];
        let found = newest(files.map(path), "x");
        assert_eq!(found, Some(path("a-2cpu/2026-11-27/x")));
        assert_eq!(newest(files.map(path), "z"), None);
    }

    #[test]
    fn records_without_a_row_are_linked() {
        let record = Record {
            folder: "lab/record/a/2026-11-20/x".to_owned(),
            summary: Value::Null,
        };
        let records = Records {
            up: String::new(),
            read: [("x".to_owned(), record)].into(),
        };
        let files = ["a/2026-11-20/x", "a/2026-11-20/y", "b/2026-11-27/y"];
        let mut files = files
            .map(|place| format!("lab/record/{place}/summary.json"))
            .to_vec();
        let text = "\n\nRecords without a row: [`y`](lab/record/b/2026-11-27/y/report.md).";
        assert_eq!(records.others(&files), text);
        files.truncate(1);
        assert_eq!(records.others(&files), "");
    }

    #[test]
    fn a_section_has_a_page_and_a_table() {
        let section = "crates/a/README.md\n\n| a |\n|---|\n| {e: x} |\n";
        let table = "| a |\n|---|\n| {e: x} |\n";
        assert_eq!(
            page_and_table(section).unwrap(),
            ("crates/a/README.md", table)
        );
        assert!(page_and_table("README.md\n\nno table\n").is_err());
    }

    #[test]
    fn a_reference_without_figure_names_itself() {
        let mut none = |_: &str| anyhow::bail!("nothing");
        let error = fill_template("a {e: x} b", &mut none).unwrap_err();
        assert!(format!("{error:#}").contains("{e: x}"));
        assert!(fill_template("a {e: x", &mut none).is_err());
    }
}
