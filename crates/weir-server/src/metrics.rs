//! What is counted. Names and meanings: docs/operating/metrics.md.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that any thread may change.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, n: u64) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// All counts of a server.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Open connections of the HTTP port.
    pub(crate) http_connections: Gauge,
    /// Connections that were refused because there were too many.
    pub(crate) http_refused: Gauge,
}
