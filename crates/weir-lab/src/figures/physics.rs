//! Compares the figures of a row with each other: CPU time with the CPUs of the machine, the load
//! client with the server, and a latency with the length of its queue.
//!
//! Invariant: a row that used more CPUs than the machine has is removed, so it is never printed.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Figures;
use crate::stats::median;

/// Share by which CPU time may exceed the CPUs of the machine, because it has another clock.
const CLOCK_ERROR: f64 = 0.05;
/// Share of a CPU from which a load client or a server counts as busy.
const BUSY: f64 = 0.95;
/// Maximum relative difference of a latency from the waiting time of its queue.
const QUEUE_ERROR: f64 = 0.10;

/// A row of one block with more CPU time than the machine has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Impossible {
    /// Number of the block.
    pub block: usize,
    /// Name of the contender.
    pub contender: String,
    /// Name of the workload.
    pub workload: String,
    /// CPUs that it used on average.
    pub used: f64,
    /// CPUs that the run could use.
    pub cpus: usize,
}

/// A closed loop and Little's law: connections divided by the rate is the mean time of a request,
/// for a quick server and for a slow one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Queue {
    /// Name of the contender.
    pub contender: String,
    /// Name of the workload.
    pub workload: String,
    /// Connections of the load client.
    pub connections: f64,
    /// Connections divided by the rate, microseconds.
    pub expected_us: f64,
    /// Measured median latency, microseconds.
    pub p50_us: f64,
    /// Whether the two agree, so that the latency is the waiting time of a queue.
    pub queueing: bool,
}

impl Figures {
    /// Removes the rows with more CPU time than the machine has, and returns them. `shown` are the
    /// metrics of the tables. Sets of older labs do not have the number of CPUs; they keep all rows.
    #[allow(clippy::cast_precision_loss)] // a number of CPUs
    pub fn remove_impossible(&mut self, shown: &[String]) -> Vec<Impossible> {
        let Some(cpus) = self.plan.cpus else {
            return Vec::new();
        };
        let is_shown = |metric: &str| shown.iter().any(|name| name == metric);
        let both = is_shown("wall") && is_shown("cpu");
        let limit = cpus as f64 * (1.0 + CLOCK_ERROR);
        let mut found = Vec::new();
        for (block, figures) in self.numbers.iter().zip(&mut self.blocks) {
            for (number, cell) in self.plan.cells.iter().enumerate() {
                let used = cpus_used(figures, number, both);
                let Some(used) = used.filter(|used| *used > limit) else {
                    continue;
                };
                figures.retain(|(of, _), _| *of != number);
                found.push(Impossible {
                    block: *block,
                    contender: cell.contender.clone(),
                    workload: cell.workload.clone(),
                    used,
                    cpus,
                });
            }
        }
        self.noise_floor = self.measure_noise();
        found
    }

    /// Whether the load client of `cell` was busy while its server was not.
    pub fn is_client_limit(&self, cell: usize) -> bool {
        let middle = |metric: &str| median(&self.of_cell(cell, metric));
        let client = middle("client_share").is_some_and(|share| share > BUSY);
        let server = middle("rate").zip(middle("server_us"));
        client && server.is_some_and(|(rate, server_us)| rate * server_us / 1e6 < BUSY)
    }

    /// Compares the median latency of `cell` with that of a queue of `connections`.
    pub fn queue(&self, cell: usize, connections: f64) -> Option<Queue> {
        let planned = self.plan.cells.get(cell)?;
        let middle = |metric: &str| median(&self.of_cell(cell, metric));
        let (rate, p50_us) = (middle("rate")?, middle("p50_us")?);
        let expected_us = connections * 1e6 / rate;
        Some(Queue {
            contender: planned.contender.clone(),
            workload: planned.workload.clone(),
            connections,
            expected_us,
            p50_us,
            queueing: (p50_us / expected_us - 1.0).abs() <= QUEUE_ERROR,
        })
    }
}

/// CPUs that the row of `cell` used on average: by its rate and the CPU time of a request, or, if
/// `both` are shown, by its CPU time and its wall time.
fn cpus_used(block: &BTreeMap<(usize, String), f64>, cell: usize, both: bool) -> Option<f64> {
    let value = |metric: &str| block.get(&(cell, metric.to_owned())).copied();
    if let Some((rate, server_us)) = value("rate").zip(value("server_us")) {
        return Some(rate * server_us / 1e6 + value("client_share").unwrap_or(0.0));
    }
    if !both {
        return None;
    }
    Some(value("cpu")? / value("wall")?)
}
