//! Renders the plots of a report as SVG: figures of each block, ratios with intervals, curves of
//! percentiles, and lines over a parameter.
//!
//! Invariants: equal figures give equal bytes. Text has the colour of the page, so a plot is
//! readable in light and dark. A plot also describes its figures in words, for readers who cannot
//! see it.

use std::fmt::Write;

use super::{amount, significant, with_unit};
use crate::claim::Decision;

/// Width of every plot, in its own units.
const WIDTH: f64 = 880.0;
/// Where names end and the plot area begins.
const LEFT: f64 = 260.0;
/// Right end of the plot area.
const RIGHT: f64 = 850.0;
/// Height of a row.
const ROW: f64 = 22.0;
/// Height of the plot area of a curve.
const TALL: f64 = 260.0;
/// An axis is logarithmic if its largest value is above its smallest value times this.
const LOG_FROM: f64 = 20.0;
/// The colours of Okabe and Ito, without those that are invisible on white or black.
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999",
];

/// A named list of values.
#[derive(Clone, Debug)]
pub struct Series {
    /// The name, usually of a contender.
    pub name: String,
    /// The values.
    pub values: Vec<f64>,
}

/// A figure with its range at one value of a parameter.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Value of the parameter.
    pub at: f64,
    /// Smallest, median, largest.
    pub range: [f64; 3],
}

/// A scale from values to positions.
struct Axis {
    log: bool,
    low: f64,
    high: f64,
    start: f64,
    end: f64,
}

impl Axis {
    /// Covers `values`; starts at zero unless it is logarithmic.
    fn over(values: impl Iterator<Item = f64>, start: f64, end: f64) -> Axis {
        let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let log = low > 0.0 && high / low > LOG_FROM;
        let high = if high > 0.0 { high * 1.05 } else { 1.0 };
        let low = if log { low / 1.1 } else { low.min(0.0) };
        Axis {
            log,
            low,
            high,
            start,
            end,
        }
    }

    fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.start + share * (self.end - self.start)
    }

    /// Round values to label.
    fn ticks(&self) -> Vec<f64> {
        let steps: &[f64] = &[1.0, 2.0, 5.0];
        let mut ticks = Vec::new();
        if self.log {
            let decades = (self.high / self.low).log10();
            let steps = if decades > 4.0 { &steps[..1] } else { steps };
            let mut decade = 10.0_f64.powf(self.low.log10().floor());
            while decade <= self.high {
                ticks.extend(steps.iter().map(|step| step * decade));
                decade *= 10.0;
            }
        } else {
            let span = self.high - self.low;
            let decade = 10.0_f64.powf(span.log10().floor());
            let fits = |step: &&f64| span / (*step * decade / 5.0) <= 8.0;
            let step = steps.iter().find(fits).unwrap_or(&10.0) * decade / 5.0;
            let mut tick = (self.low / step).ceil() * step;
            while tick <= self.high {
                ticks.push(tick);
                tick += step;
            }
        }
        ticks.retain(|tick| *tick >= self.low && *tick <= self.high);
        ticks
    }
}

/// Escapes text for SVG and HTML.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

/// An SVG of `height` with `body`, the heading `title` and the description `words`.
fn svg(height: f64, title: &str, words: &str, body: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\" aria-label=\"{}\">\n<text class=\"t\" x=\"0\" y=\"16\">{}</text>\n{body}</svg>\n",
        escape(words),
        escape(title)
    )
}

fn text(x: f64, y: f64, anchor: &str, words: &str) -> String {
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>\n",
        escape(words)
    )
}

fn line(from: (f64, f64), to: (f64, f64), class: &str) -> String {
    let ((x1, y1), (x2, y2)) = (from, to);
    format!(
        "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n"
    )
}

/// The grid lines of a horizontal axis from `top` to `bottom`, and the labels below them.
fn x_grid(axis: &Axis, top: f64, bottom: f64, label: impl Fn(f64) -> String) -> String {
    let mut body = String::new();
    for tick in axis.ticks() {
        let x = axis.at(tick);
        body += &line((x, top), (x, bottom), "g");
        body += &text(x, bottom + 16.0, "middle", &label(tick));
    }
    body
}

/// The grid and labels of a vertical axis.
fn y_grid(axis: &Axis, label: impl Fn(f64) -> String) -> String {
    let mut body = String::new();
    for tick in axis.ticks() {
        let y = axis.at(tick);
        body += &line((LEFT, y), (RIGHT, y), "g");
        body += &text(LEFT - 8.0, y + 4.0, "end", &label(tick));
    }
    body
}

/// The names of `series` in their colours, at the left of a curve.
fn names<'a>(series: impl Iterator<Item = &'a str>) -> String {
    let (mut body, mut y) = (String::new(), 44.0);
    for (number, name) in series.enumerate() {
        let paint = colour(number);
        // Writing to a string cannot fail.
        let _ = writeln!(
            body,
            "<rect x=\"0\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{paint}\"/>",
            y - 9.0
        );
        body += &text(16.0, y, "start", name);
        y += 18.0;
    }
    body
}

fn kind(axis: &Axis) -> &'static str {
    if axis.log { ", logarithmic axis" } else { "" }
}

/// The figure of each contender at one workload in every block as a dot, and its median as a line.
pub fn runs(metric: &str, workload: &str, series: &[(Series, f64)]) -> String {
    let all = || series.iter().flat_map(|(series, _)| series.values.iter());
    let axis = Axis::over(all().copied(), LEFT, RIGHT);
    let (mut body, mut parts, mut y) = (String::new(), Vec::new(), 40.0);
    for (number, (series, median)) in series.iter().enumerate() {
        let paint = colour(number);
        body += &text(LEFT - 8.0, y + 4.0, "end", &series.name);
        for value in &series.values {
            let x = axis.at(*value);
            let _ = writeln!(
                body,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{paint}\" fill-opacity=\"0.55\"/>"
            );
        }
        let x = axis.at(*median);
        body += &line((x, y - 8.0), (x, y + 8.0), "m");
        parts.push(format!("{} {}", series.name, with_unit(metric, *median)));
        y += ROW;
    }
    let grid = x_grid(&axis, 26.0, y - 8.0, |tick| with_unit(metric, tick));
    let title = format!("{workload}: {metric} of each block{}", kind(&axis));
    let words = format!("Medians of {metric} at {workload}: {}", parts.join(", "));
    svg(y + 16.0, &title, &words, &(grid + &body))
}

/// Ratios with their intervals, a line at 1, and the limit of each.
pub fn forest(claims: &[&Decision]) -> String {
    let ends = claims
        .iter()
        .filter_map(|claim| claim.interval.map(|i| [i.low, i.high, claim.bar]));
    // Ratios are compared as factors, so their axis is always logarithmic.
    let (low, high) = ends
        .flatten()
        .filter(|end| *end > 0.0)
        .fold((1.0_f64, 1.0_f64), |(low, high), end| {
            (low.min(end), high.max(end))
        });
    let axis = Axis {
        log: true,
        low: low / 1.1,
        high: high * 1.1,
        start: LEFT,
        end: RIGHT,
    };
    let (mut body, mut parts, mut y) = (String::new(), Vec::new(), 40.0);
    for claim in claims {
        let Some(interval) = claim.interval else {
            continue;
        };
        let place = |value: f64| axis.at(value.max(axis.low));
        let at = if claim.workload.is_empty() {
            String::new()
        } else {
            format!(" at {}", claim.workload)
        };
        let name = format!("{}{at}", claim.compared);
        body += &text(0.0, y + 4.0, "start", &name);
        y += ROW * 0.8;
        body += &line((place(interval.low), y), (place(interval.high), y), "i");
        let x = place(interval.centre);
        let _ = writeln!(
            body,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{}\"/>",
            COLOURS[0]
        );
        let limit = place(claim.bar);
        body += &line((limit, y - 8.0), (limit, y + 8.0), "b");
        body += &text(LEFT - 8.0, y + 4.0, "end", claim.verdict.word());
        parts.push(format!(
            "{name} {} from {} to {}, {}",
            amount(claim, interval.centre),
            amount(claim, interval.low),
            amount(claim, interval.high),
            claim.verdict.word()
        ));
        y += ROW * 1.2;
    }
    let mut grid = x_grid(&axis, 26.0, y - 8.0, |tick| {
        format!("{}x", significant(tick))
    });
    let one = axis.at(1.0);
    grid += &line((one, 26.0), (one, y - 8.0), "m");
    let title = "Ratios with 95 % intervals; the dashed mark is the limit of the claim";
    svg(y + 16.0, title, &parts.join("; "), &(grid + &body))
}

/// The samples of each series over the share of samples above them, on a logarithmic axis.
pub fn percentiles(metric: &str, workload: &str, series: &[Series]) -> String {
    let all = || series.iter().flat_map(|series| series.values.iter());
    let vertical = Axis::over(all().copied(), 30.0 + TALL, 30.0);
    let most = series.iter().map(|series| series.values.len()).max();
    let most = count(most.unwrap_or(1).max(10));
    let shares = Axis {
        log: true,
        low: 1.0,
        high: most,
        start: LEFT,
        end: RIGHT,
    };
    let mut body = y_grid(&vertical, |tick| with_unit(metric, tick));
    for (share, name) in [
        (2.0, "p50"),
        (10.0, "p90"),
        (100.0, "p99"),
        (1_000.0, "p99.9"),
    ] {
        if share <= most {
            let x = shares.at(share);
            body += &line((x, 30.0), (x, 30.0 + TALL), "g");
            body += &text(x, 46.0 + TALL, "middle", name);
        }
    }
    for (number, series) in series.iter().enumerate() {
        let ordered = crate::stats::sorted(&series.values);
        let n = count(ordered.len());
        let points = ordered.iter().enumerate().map(|(rank, value)| {
            let above = n / (n - count(rank));
            format!("{:.1},{:.1}", shares.at(above), vertical.at(*value))
        });
        body += &path(&points.collect::<Vec<_>>(), number);
    }
    body += &names(series.iter().map(|series| series.name.as_str()));
    let title = format!(
        "{workload}: {metric} of samples by percentile{}",
        kind(&vertical)
    );
    svg(TALL + 56.0, &title, &title, &body)
}

/// Figures over a parameter: medians as a line, and the range from smallest to largest as a band.
pub fn lines(metric: &str, parameter: &str, series: &[(String, Vec<Point>)]) -> String {
    let all = || series.iter().flat_map(|(_, points)| points.iter());
    let vertical = Axis::over(all().flat_map(|point| point.range), 30.0 + TALL, 30.0);
    let horizontal = Axis::over(all().map(|point| point.at), LEFT, RIGHT);
    let mut body = y_grid(&vertical, |tick| with_unit(metric, tick));
    body += &x_grid(&horizontal, 30.0, 30.0 + TALL, |tick| format!("{tick}"));
    for (number, (_, points)) in series.iter().enumerate() {
        let place = |point: &Point, which: usize| {
            format!(
                "{:.1},{:.1}",
                horizontal.at(point.at),
                vertical.at(point.range[which])
            )
        };
        let smallest = points.iter().map(|point| place(point, 0));
        let largest = points.iter().rev().map(|point| place(point, 2));
        let band: Vec<String> = smallest.chain(largest).collect();
        let _ = writeln!(
            body,
            "<polygon points=\"{}\" fill=\"{}\" fill-opacity=\"0.2\"/>",
            band.join(" "),
            colour(number)
        );
        let middle: Vec<String> = points.iter().map(|point| place(point, 1)).collect();
        body += &path(&middle, number);
    }
    body += &names(series.iter().map(|(name, _)| name.as_str()));
    let title = format!(
        "{parameter}: {metric}, median and range of the blocks{}",
        kind(&vertical)
    );
    svg(TALL + 56.0, &title, &title, &body)
}

fn path(points: &[String], number: usize) -> String {
    format!(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n",
        points.join(" "),
        colour(number)
    )
}

#[allow(clippy::cast_precision_loss)] // counts of samples are far below 2^53
fn count(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_labels_round_values_within_it() {
        let linear = Axis::over([3.0, 9.5].into_iter(), 0.0, 100.0);
        assert!(!linear.log);
        assert_eq!(linear.ticks(), [0.0, 2.0, 4.0, 6.0, 8.0]);
        let log = Axis::over([1.0, 1_000.0].into_iter(), 0.0, 100.0);
        assert!(log.log);
        assert_eq!(
            log.ticks(),
            [
                1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0
            ]
        );
        assert!(log.at(1.0) > 0.0 && log.at(1_000.0) < 100.0);
    }

    #[test]
    fn figures_without_a_spread_have_an_axis() {
        for values in [vec![0.0], vec![7.0, 7.0], Vec::new()] {
            let axis = Axis::over(values.into_iter(), 0.0, 100.0);
            assert!(axis.at(0.0).is_finite());
            assert!(!axis.ticks().is_empty());
        }
    }

    #[test]
    fn names_are_escaped() {
        let series = Series {
            name: "<a> & \"b\"".to_owned(),
            values: vec![1.0, 2.0],
        };
        let drawn = runs("wall", "w<", &[(series, 1.5)]);
        assert!(drawn.contains("&lt;a&gt; &amp; &quot;b&quot;"), "{drawn}");
        assert!(!drawn.contains("<a>"), "{drawn}");
    }
}
