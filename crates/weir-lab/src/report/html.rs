//! The report as one self-contained page: the sections of the Markdown with plots between them,
//! flame graphs, and the figures as a download.
//!
//! Invariants: the page has no address of another file or site. Text that does not come from the
//! lab is escaped. The page is readable without its script, which sorts tables.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::plot::{self, Point, Series, escape};
use super::{Part, Section, Table, circumstances, sections};
use crate::experiment::Experiment;
use crate::figures::Figures;
use crate::fingerprint::Fingerprint;
use crate::results::{Block, Plan};
use crate::stats::{Spread, median};
use crate::summary::Summary;

/// Minimum number of samples of a cell for a curve of percentiles.
const SAMPLES_MIN: usize = 20;
/// Minimum number of values of a parameter for a line.
const PLACES_MIN: usize = 3;
/// Maximum bytes of flame graphs in a page; further graphs are only named.
const FLAMES_MAX: usize = 3 << 20;

const STYLE: &str = "
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-size: 0.85rem; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid #8886; padding: 0.2rem 0.6rem; text-align: left; vertical-align: top; }
thead th { cursor: pointer; }
svg { width: 100%; height: auto; margin: 1rem 0; }
svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
svg text.t { font-weight: bold; font-size: 13px; }
line.g { stroke: currentColor; stroke-opacity: 0.15; }
line.m { stroke: currentColor; stroke-width: 2; }
line.i { stroke: currentColor; stroke-width: 3; stroke-opacity: 0.6; }
line.b { stroke: #d55e00; stroke-width: 2; stroke-dasharray: 3 2; }
@media print { details > * { display: block; } }
";

const SCRIPT: &str = "
document.querySelectorAll('thead th').forEach(th => th.addEventListener('click', () => {
  const body = th.closest('table').tBodies[0], at = th.cellIndex;
  const up = th.ariaSort !== 'ascending';
  th.parentNode.querySelectorAll('th').forEach(other => other.ariaSort = null);
  th.ariaSort = up ? 'ascending' : 'descending';
  const order = new Intl.Collator('en', { numeric: true }).compare;
  [...body.rows].sort((a, b) => (up ? 1 : -1) * order(a.cells[at].textContent, b.cells[at].textContent))
    .forEach(row => body.append(row));
}));
";

/// The page. `flames` are flame graphs by name, as SVG.
pub fn page(
    experiment: &Experiment,
    plan: &Plan,
    blocks: &[Block],
    summary: &Summary,
    fingerprint: &Fingerprint,
    flames: &[(String, String)],
) -> String {
    let header = &experiment.header;
    let title = escape(&header.title);
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<p>{}</p>\n<p>{}</p>\n",
        escape(&header.question),
        inline(&circumstances(plan, blocks, summary))
    );
    let mut figures = Figures::new(plan, blocks);
    figures.remove_impossible(&header.show);
    for section in sections(experiment, plan, blocks, summary, fingerprint) {
        text += &html(&section);
        if section.heading == "Claims" {
            text += &ratios(summary);
        }
        for metric in &header.show {
            if section.heading == format!("Medians of `{metric}`") {
                text += &plots(metric, plan, blocks, &figures);
            }
        }
    }
    text += &graphs(flames);
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "<h2>Figures as a file</h2>\n<p><a download=\"figures.csv\" href=\"data:text/csv;charset=utf-8,{}\">figures.csv</a>: the figure of each cell and metric in each block.</p>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
        encoded(&csv(experiment, plan, blocks))
    );
    text
}

/// The figures of each block, one a line: block from 1, workload, contender, metric, and the figure
/// in the unit of the metric.
pub fn csv(experiment: &Experiment, plan: &Plan, blocks: &[Block]) -> String {
    let mut text = "block,workload,contender,metric,figure\n".to_owned();
    for block in blocks.iter().filter(|block| !block.head.disturbed) {
        let shown = &experiment.header.show;
        let mut figures = Figures::new(plan, std::slice::from_ref(block));
        figures.remove_impossible(shown);
        for metric in shown {
            for (number, cell) in plan.cells.iter().enumerate() {
                for figure in figures.of_cell(number, metric) {
                    let _ = writeln!(
                        text,
                        "{},{},{},{},{figure}",
                        block.head.block + 1,
                        quoted(&cell.workload),
                        quoted(&cell.contender),
                        quoted(metric)
                    );
                }
            }
        }
    }
    text
}

/// A field of a CSV line (RFC 4180).
pub(crate) fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// `text` as the data of a URL.
fn encoded(text: &str) -> String {
    let mut url = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~,".contains(&byte) {
            url.push(char::from(byte));
        } else {
            let _ = write!(url, "%{byte:02X}");
        }
    }
    url
}

/// Text of a paragraph with its Markdown marks.
fn inline(text: &str) -> String {
    let bold = marked(&escape(text), "**", "b");
    marked(&bold, "`", "code")
}

/// Turns text between two of `mark` into an element; an unpaired mark stays.
fn marked(text: &str, mark: &str, element: &str) -> String {
    let pieces: Vec<&str> = text.split(mark).collect();
    if pieces.len().is_multiple_of(2) {
        return text.to_owned();
    }
    let pieces = pieces.iter().enumerate().map(|(number, piece)| {
        if number.is_multiple_of(2) {
            (*piece).to_owned()
        } else {
            format!("<{element}>{piece}</{element}>")
        }
    });
    pieces.collect()
}

fn html(section: &Section) -> String {
    let mut text = format!("<h2>{}</h2>\n", inline(&section.heading));
    for part in &section.parts {
        // Writing to a string cannot fail.
        let _ = match part {
            Part::Text(words) => writeln!(text, "<p>{}</p>", inline(words)),
            Part::List(points) => {
                let points = points.iter().map(|p| format!("<li>{}</li>\n", inline(p)));
                writeln!(text, "<ul>\n{}</ul>", points.collect::<String>())
            }
            Part::Table(of) => writeln!(text, "{}", table(of)),
        };
    }
    text
}

fn table(table: &Table) -> String {
    let cells = |row: &[String], element: &str| {
        let cells = row
            .iter()
            .map(|cell| format!("<{element}>{}</{}>", escape(cell), &element[..2]));
        cells.collect::<String>()
    };
    let (head, rows) = table
        .rows
        .split_first()
        .map_or((&[][..], &[][..]), |(h, r)| (h, r));
    let rows = rows
        .iter()
        .map(|row| format!("<tr>{}</tr>\n", cells(row, "td")));
    format!(
        "<table>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody>\n</table>\n",
        cells(head, "th scope=\"col\""),
        rows.collect::<String>()
    )
}

/// The plot of all claims that are ratios.
fn ratios(summary: &Summary) -> String {
    let claims = summary.claims.iter();
    let measured: Vec<_> = claims
        .filter(|claim| claim.ratio && !claim.equal)
        .filter(|claim| claim.interval.is_some_and(|interval| interval.low > 0.0))
        .collect();
    if measured.is_empty() {
        return String::new();
    }
    plot::forest(&measured)
}

/// The plots of a metric: lines over parameters, then the figures of each block and percentiles of
/// each workload.
fn plots(metric: &str, plan: &Plan, blocks: &[Block], figures: &Figures) -> String {
    let mut text = String::new();
    for (parameter, series) in parameters(metric, plan, figures) {
        text += &plot::lines(metric, &parameter, &series);
    }
    for workload in figures.workloads() {
        let cells = || {
            let cells = plan.cells.iter().enumerate();
            cells.filter(|(_, cell)| &cell.workload == workload)
        };
        let runs = cells().filter_map(|(number, cell)| {
            let values = figures.of_cell(number, metric);
            let middle = median(&values)?;
            let name = cell.contender.clone();
            Some((Series { name, values }, middle))
        });
        let runs: Vec<(Series, f64)> = runs.collect();
        if runs.is_empty() {
            continue;
        }
        text += &plot::runs(metric, workload, &runs);
        let curves = cells().map(|(number, cell)| Series {
            name: cell.contender.clone(),
            values: figures.samples_of(number, metric, blocks),
        });
        let curves: Vec<Series> = curves
            .filter(|series| series.values.len() >= SAMPLES_MIN)
            .collect();
        if !curves.is_empty() {
            let drawn = plot::percentiles(metric, workload, &curves);
            let _ = write!(
                text,
                "<details><summary>{}: percentiles of {}</summary>\n{drawn}</details>\n",
                escape(workload),
                escape(metric)
            );
        }
    }
    text
}

type Lines = BTreeMap<String, Vec<(String, Vec<Point>)>>;

/// Workloads whose names differ only by the number at their end, with the figures of each contender
/// over that number.
fn parameters(metric: &str, plan: &Plan, figures: &Figures) -> Lines {
    let mut lines: Lines = BTreeMap::new();
    for (number, cell) in plan.cells.iter().enumerate() {
        let stem = cell.workload.trim_end_matches(|c: char| c.is_ascii_digit());
        let Ok(at) = cell.workload[stem.len()..].parse::<u32>() else {
            continue;
        };
        let Some(spread) = Spread::of(&figures.of_cell(number, metric)) else {
            continue;
        };
        let point = Point {
            at: f64::from(at),
            range: [spread.min, spread.median, spread.max],
        };
        let series = lines.entry(format!("{stem}*")).or_default();
        match series.iter_mut().find(|(name, _)| *name == cell.contender) {
            Some((_, points)) => points.push(point),
            None => series.push((cell.contender.clone(), vec![point])),
        }
    }
    for series in lines.values_mut() {
        for (_, points) in series.iter_mut() {
            points.sort_by(|a, b| a.at.total_cmp(&b.at));
        }
        series.retain(|(_, points)| points.len() >= PLACES_MIN);
    }
    lines.retain(|_, series| !series.is_empty());
    lines
}

/// The flame graphs, collapsed.
fn graphs(flames: &[(String, String)]) -> String {
    if flames.is_empty() {
        return String::new();
    }
    let (mut text, mut bytes) = ("<h2>Flame graphs</h2>\n".to_owned(), 0);
    for (name, svg) in flames {
        bytes += svg.len();
        let name = escape(name);
        // An XML declaration is not allowed within a page.
        let svg = svg.find("<svg").and_then(|start| svg.get(start..));
        match svg {
            Some(svg) if bytes <= FLAMES_MAX => {
                let _ = write!(
                    text,
                    "<details><summary>{name}</summary>\n{svg}</details>\n"
                );
            }
            _ => {
                let _ = writeln!(
                    text,
                    "<p>{name} is left out: it is too large or no SVG.</p>"
                );
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_before_it_is_marked() {
        assert_eq!(
            inline("**a<b** and `x`"),
            "<b>a&lt;b</b> and <code>x</code>"
        );
        assert_eq!(inline("2 ** 3"), "2 ** 3");
    }

    #[test]
    fn fields_with_commas_and_quotes_are_one_field() {
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(encoded("a b\n"), "a%20b%0A");
    }
}
