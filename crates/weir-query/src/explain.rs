//! Describes the plan of a query before the query reads data.

use std::fmt;

use crate::engine::Query;
use crate::options::Mode;
use crate::plan::{Column, Function, Select};

/// The plan of a query, as text for users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explain {
    /// Order of the results.
    pub mode: Mode,
    /// Whether results are returned before all pages have arrived.
    pub streaming: bool,
    /// Paths that the scan of a page finds.
    pub paths: Vec<String>,
    /// Properties of records that the query reads.
    pub properties: Vec<String>,
    /// Number of name steps of the deepest path.
    pub depth: usize,
    /// Values that are decoded, in addition to the names on the paths.
    pub decoded: Vec<String>,
    /// Data that the query must store, and the bound of each.
    pub holds: Vec<String>,
    /// The reason why the query has no resume token; `None` if it has one.
    pub no_token: Option<&'static str>,
}

impl Query {
    /// Returns the plan of the query for its current sources. Needs no data.
    #[must_use]
    pub fn explain(&self) -> Explain {
        let plan = &self.plan;
        let mode = self.planned_mode();
        let unordered_groups = !plan.group.is_empty() && !plan.groups_in_order();
        let whole = plan.constructs_results() && plan.group.is_empty();
        let mut decoded = Vec::new();
        for key in &plan.keys {
            if let Column::Path(path) = key.column {
                decoded.extend(plan.paths.get(path).map(|path| format!("order key {path}")));
            }
        }
        for named in &plan.aggregates {
            if let Some(path) = named.what.path
                && named.what.function != Function::Count
            {
                decoded.extend(
                    plan.paths
                        .get(path)
                        .map(|path| format!("aggregated {path}")),
                );
            }
        }
        if plan.distinct && !plan.constructs_results() {
            decoded.push(match plan.select {
                Select::Path(path) => {
                    let path = plan.paths.get(path).map(ToString::to_string);
                    format!("distinct {}, walked", path.unwrap_or_default())
                }
                Select::Columns => "distinct values, walked".to_owned(),
                _ => "distinct items, walked".to_owned(),
            });
        }
        if let Some(filter) = &plan.filter {
            decoded.push(if filter.walks() {
                "where, walks items".to_owned()
            } else {
                "where".to_owned()
            });
        }
        Explain {
            mode,
            streaming: mode != Mode::Sort && !unordered_groups && !whole,
            paths: plan.paths.iter().map(ToString::to_string).collect(),
            properties: plan.metas.clone(),
            depth: plan
                .paths
                .iter()
                .map(|p| p.steps().len())
                .max()
                .unwrap_or(0),
            decoded,
            holds: self.holds(mode, unordered_groups),
            no_token: self.token_refusal(),
        }
    }

    fn holds(&self, mode: Mode, unordered_groups: bool) -> Vec<String> {
        let (plan, budgets) = (&self.plan, &self.budgets);
        let mut holds = vec![format!("pages: {} bytes", budgets.buffer_bytes_max)];
        if mode == Mode::Sort {
            holds.push(match plan.limit {
                Some(limit) if !plan.constructs_results() && !plan.distinct => format!(
                    "sort: pages of {} items, at most {} bytes",
                    limit.saturating_add(plan.offset),
                    budgets.sort_bytes_max
                ),
                _ => format!("sort: all pages, at most {} bytes", budgets.sort_bytes_max),
            });
        }
        if unordered_groups {
            holds.push(format!("groups: {}", budgets.groups_max));
        }
        if plan.distinct && !plan.constructs_results() && !plan.distinct_in_order() {
            holds.push(format!(
                "distinct values: {}, 16 bytes each",
                budgets.distinct_max
            ));
        }
        holds
    }
}

impl fmt::Display for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |items: &[String]| {
            if items.is_empty() {
                "nothing".to_owned()
            } else {
                items.join("; ")
            }
        };
        writeln!(f, "mode        {}", self.mode.name())?;
        let streaming = if self.streaming {
            "before all pages have arrived"
        } else {
            "after all pages have arrived"
        };
        writeln!(f, "results     {streaming}")?;
        writeln!(f, "scanned     {}", list(&self.paths))?;
        writeln!(f, "properties  {}", list(&self.properties))?;
        writeln!(f, "decoded     {}", list(&self.decoded))?;
        writeln!(f, "held        {}", list(&self.holds))?;
        match self.no_token {
            None => writeln!(f, "resumable   yes"),
            Some(why) => writeln!(f, "resumable   no: {why}"),
        }
    }
}
