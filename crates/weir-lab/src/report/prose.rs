//! Sections whose words come from the experiment file: the set-up, the cells that were not measured,
//! and the reasons of losses.

use super::{Part, Section};
use crate::claim::Verdict;
use crate::experiment::{ClaimSpec, ContenderSpec, Experiment};
use crate::results::Plan;
use crate::summary::Summary;

/// Indentation of a point of a list in the first comment of an experiment file.
const POINT: usize = 2;

/// The first comment of the experiment file. A line that is indented by [`POINT`] spaces is a point of a
/// list: a name, two or more spaces, and a description. Lines with more spaces continue it.
pub(super) fn setup(experiment: &Experiment) -> Option<Section> {
    let mut parts: Vec<Part> = Vec::new();
    let mut is_new = true;
    for line in experiment.setup.lines() {
        let words = line.trim();
        if words.is_empty() {
            is_new = true;
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        match parts.last_mut().filter(|_| !is_new) {
            Some(Part::Text(text)) if indent == 0 => {
                text.push(' ');
                text.push_str(words);
            }
            Some(Part::List(points)) if indent == POINT => points.push(point(words)),
            Some(Part::List(points)) if indent > POINT => {
                if let Some(last) = points.last_mut() {
                    last.push(' ');
                    last.push_str(words);
                }
            }
            _ if indent == 0 => parts.push(Part::Text(words.to_owned())),
            _ => parts.push(Part::List(vec![point(words)])),
        }
        is_new = false;
    }
    (!parts.is_empty()).then(|| Section::new("Setup", parts))
}

/// The text of a point: a bold name, and its description.
fn point(line: &str) -> String {
    line.split_once("  ").map_or_else(
        || line.to_owned(),
        |(name, what)| format!("**{name}**: {}", what.trim_start()),
    )
}

/// Why cells of the tables are empty, for each contender of the run.
pub(super) fn empty_cells(experiment: &Experiment, plan: &Plan) -> Option<Section> {
    if plan.quick {
        return None;
    }
    let mut workloads: Vec<&str> = Vec::new();
    for cell in &plan.cells {
        if !workloads.contains(&cell.workload.as_str()) {
            workloads.push(&cell.workload);
        }
    }
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    for contender in &experiment.contenders {
        for reason in reasons_of(experiment, plan, &workloads, contender) {
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, names)) => names.push(contender.name.as_str()),
                None => reasons.push((reason, vec![contender.name.as_str()])),
            }
        }
    }
    if reasons.is_empty() {
        return None;
    }
    let points = reasons
        .into_iter()
        .map(|(reason, names)| format!("**{}**: {reason}", names.join(", ")));
    let parts = vec![Part::List(points.collect())];
    Some(Section::new("Empty cells", parts))
}

/// Why the run has no cell of `contender` at some of `workloads`; empty if it has all cells, or none.
fn reasons_of(
    experiment: &Experiment,
    plan: &Plan,
    workloads: &[&str],
    contender: &ContenderSpec,
) -> Vec<String> {
    let name = contender.name.as_str();
    let mut cells = plan.cells.iter().filter(|cell| cell.contender == name);
    if cells.next().is_none() {
        return Vec::new();
    }
    let is_measured = |workload: &str| {
        let mut cells = plan.cells.iter();
        cells.any(|cell| cell.contender == name && cell.workload == workload)
    };
    let mut is_narrow = false;
    let mut skipped: Vec<(String, Vec<&str>)> = Vec::new();
    for &workload in workloads.iter().filter(|workload| !is_measured(workload)) {
        if !contender.takes_part(workload) {
            is_narrow = true;
            continue;
        }
        let skip = experiment.skip_of(name, workload);
        let syntax = contender.syntax.as_ref();
        let reason = skip.map(|skip| skip.reason.clone()).or_else(|| {
            syntax.map(|syntax| format!("there is no input in its syntax, `{syntax}`"))
        });
        let Some(reason) = reason else { continue };
        match skipped.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, at)) => at.push(workload),
            None => skipped.push((reason, vec![workload])),
        }
    }
    let mut reasons = Vec::new();
    if is_narrow {
        let scope = contender.scope.as_ref();
        let why = scope.map_or(String::new(), |scope| format!(" ({scope})"));
        let only = listed(contender.workloads.iter().map(String::as_str));
        reasons.push(format!("measured only at {only}{why}"));
    }
    let skipped = skipped.into_iter();
    reasons
        .extend(skipped.map(|(reason, at)| format!("not measured at {} ({reason})", listed(at))));
    reasons
}

/// The names as code, separated by commas.
fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// The claims that do not hold, with the reasons of the experiment file; also those that could not be
/// decided, if the file has a reason.
pub(super) fn losses(experiment: &Experiment, summary: &Summary) -> Option<Section> {
    let is_lost = |claim: &&ClaimSpec| {
        let mut made = summary.claims.iter().filter(|made| made.text == claim.text);
        made.any(|made| match made.verdict {
            Verdict::DoesNotHold => true,
            Verdict::CannotTell => claim.loss.is_some(),
            Verdict::Holds | Verdict::NotMeasured => false,
        })
    };
    let claims = experiment.claims.iter();
    let lost = claims.filter(|claim| !claim.equal && !claim.study && is_lost(claim));
    let points = lost.map(|claim| {
        let why = claim.loss.as_deref().unwrap_or("not explained");
        let words: Vec<&str> = why.split_whitespace().collect();
        format!("**{}**: {}", claim.text, words.join(" "))
    });
    let points: Vec<String> = points.collect();
    if points.is_empty() {
        return None;
    }
    let note = "Why claims do not hold, or cannot be decided:".to_owned();
    let parts = vec![Part::Text(note), Part::List(points)];
    Some(Section::new("Losses", parts))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::path::Path;

    const TEXT: &str = r#"# What does it cost?
# A second line.
#
#   ours, theirs  two names,
#                 and a longer description
#   plain
# `wall` is one item.
[experiment]
name = "t"
title = "t"
question = "?"
mode = "inproc"
[[contender]]
name = "ours"
builtin = "spin"
syntax = "x"
[[contender]]
name = "nginx"
builtin = "spin"
syntax = "x"
workloads = ["get-*"]
scope = "it has no POST"
[[contender]]
name = "apache"
builtin = "spin"
syntax = "x"
workloads = ["get-*"]
scope = "it has no POST"
[[contender]]
name = "compact"
builtin = "spin"
syntax = "y"
[[contender]]
name = "absent"
builtin = "spin"
workloads = ["post"]
[[workload]]
name = "get-1"
[[workload]]
name = "get-2"
files = { x = "one.x" }
[[workload]]
name = "post"
[[skip]]
contender = "compact"
workload = "post"
reason = "too slow"
"#;

    fn experiment() -> Experiment {
        Experiment::parse(TEXT, Path::new("t.toml")).unwrap()
    }

    /// A plan with a cell of each contender at each of its workloads.
    fn plan(cells: &[(&str, &[&str])]) -> Plan {
        let cells = cells.iter().flat_map(|(contender, workloads)| {
            workloads.iter().map(move |workload| {
                serde_json::json!({
                    "contender": contender, "workload": workload,
                    "items": 1, "iterations": 1, "samples": 1,
                    "answer": {"content": 1, "touch": 1, "allocations": 0, "allocated_bytes": 0},
                })
            })
        });
        let cells: Vec<serde_json::Value> = cells.collect();
        serde_json::from_value(serde_json::json!({
            "schema": 1, "seed": 1, "blocks": 1, "samples": 1, "quick": false,
            "foreign_max": 1.0, "only": [], "fingerprint": "", "cells": cells,
        }))
        .unwrap()
    }

    #[test]
    fn the_first_comment_is_the_setup() {
        let text = setup(&experiment()).unwrap().markdown();
        let expected = "## Setup\n\nWhat does it cost? A second line.\n\n\
                        - **ours, theirs**: two names, and a longer description\n- plain\n\n\
                        `wall` is one item.\n\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn each_empty_cell_has_its_reason() {
        let plan = plan(&[
            ("ours", &["get-1", "get-2", "post"]),
            ("nginx", &["get-1", "get-2"]),
            ("apache", &["get-1", "get-2"]),
            ("compact", &["get-1"]),
        ]);
        let text = empty_cells(&experiment(), &plan).unwrap().markdown();
        let expected = "## Empty cells\n\n\
                        - **nginx, apache**: measured only at `get-*` (it has no POST)\n\
                        - **compact**: not measured at `get-2` (there is no input in its syntax, `y`)\n\
                        - **compact**: not measured at `post` (too slow)\n\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_full_table_has_no_reasons() {
        let plan = plan(&[("ours", &["get-1", "get-2", "post"])]);
        assert!(empty_cells(&experiment(), &plan).is_none());
    }
}
