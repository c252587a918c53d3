//! The counters of a server. Names and meanings: docs/operating/metrics.md.
//!
//! Labels come only from tables of this crate, so clients cannot increase the number of series.
//! That number is bounded by the resources with their methods, times the statuses.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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

    /// Adds one until the result is dropped: also a future that is dropped before its end is
    /// counted correctly.
    pub(crate) fn count_one(&self) -> Counted<'_> {
        self.add(1);
        Counted(self)
    }
}

/// One, which is subtracted from its gauge at the end.
#[derive(Debug)]
pub(crate) struct Counted<'a>(&'a Gauge);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.sub(1);
    }
}

/// Statuses of responses; the last entry is for any other.
const STATUSES: [u16; 36] = [
    200, 201, 202, 204, 206, 304, 400, 401, 403, 404, 405, 406, 408, 409, 410, 412, 413, 414, 415,
    416, 417, 421, 422, 428, 429, 431, 500, 501, 502, 503, 504, 505, 507, 307, 411, 0,
];
/// Methods of requests; the last entry is for any other.
const METHODS: [&str; 8] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "OTHER",
];
/// Upper bounds of the latency buckets, in microseconds.
const BUCKETS_US: [u64; 12] = [
    50, 100, 250, 500, 1000, 2500, 5000, 10_000, 50_000, 250_000, 1_000_000, 10_000_000,
];
/// The deadlines whose misses are counted.
const TIMEOUTS: [&str; 4] = ["head", "body", "write", "store"];

#[derive(Debug, Default)]
struct Latencies {
    buckets: [Gauge; BUCKETS_US.len() + 1],
    sum_us: Gauge,
}

/// All counters of a server.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// Open connections of the HTTP port.
    pub(crate) http_connections: Gauge,
    /// Connections that were refused because there were too many.
    pub(crate) http_refused: Gauge,
    /// Open connections of the native port and of the Unix socket.
    pub(crate) native_connections: Gauge,
    /// Connections of the native port and the Unix socket that were refused because there were too
    /// many.
    pub(crate) native_refused: Gauge,
    /// Connections that were evicted before a request on them passed its checks.
    pub(crate) evicted: Gauge,
    /// Server-sent event streams.
    pub(crate) tails: Gauge,
    /// Requests that wait for a record.
    pub(crate) waiting_polls: Gauge,
    /// Labels of requests.
    routes: Vec<&'static str>,
    requests: Vec<Gauge>,
    times: Vec<Latencies>,
    timeouts: [Gauge; TIMEOUTS.len()],
    bad_heads: [Gauge; STATUSES.len()],
}

impl Metrics {
    /// Creates counters for these routes.
    pub(crate) fn new(routes: Vec<&'static str>) -> Self {
        let mut requests = Vec::new();
        requests.resize_with(
            routes.len() * METHODS.len() * STATUSES.len(),
            Gauge::default,
        );
        let mut times = Vec::new();
        times.resize_with(routes.len(), Latencies::default);
        Self {
            routes,
            http_connections: Gauge::default(),
            http_refused: Gauge::default(),
            native_connections: Gauge::default(),
            native_refused: Gauge::default(),
            evicted: Gauge::default(),
            tails: Gauge::default(),
            waiting_polls: Gauge::default(),
            requests,
            times,
            timeouts: Default::default(),
            bad_heads: [const { Gauge(AtomicU64::new(0)) }; STATUSES.len()],
        }
    }
}

fn status_at(status: u16) -> usize {
    STATUSES
        .iter()
        .position(|one| *one == status)
        .unwrap_or(STATUSES.len() - 1)
}

impl Metrics {
    /// Counts a request with a response; `route` is the index of its label.
    pub(crate) fn request(&self, route: usize, method: &str, status: u16, elapsed: Duration) {
        let method = METHODS.iter().position(|one| *one == method);
        let method = method.unwrap_or(METHODS.len() - 1);
        let at = (route * METHODS.len() + method) * STATUSES.len() + status_at(status);
        if let Some(count) = self.requests.get(at) {
            count.add(1);
        }
        let us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        if let Some(times) = self.times.get(route) {
            let at = BUCKETS_US.partition_point(|bound| *bound < us);
            if let Some(bucket) = times.buckets.get(at) {
                bucket.add(1);
            }
            times.sum_us.add(us);
        }
    }

    /// Counts a head that was refused before it became a request.
    pub(crate) fn refused(&self, status: u16) {
        if let Some(count) = self.bad_heads.get(status_at(status)) {
            count.add(1);
        }
    }

    /// Counts a missed deadline.
    pub(crate) fn timeout(&self, kind: &str) {
        let at = TIMEOUTS.iter().position(|one| *one == kind);
        if let Some(count) = at.and_then(|at| self.timeouts.get(at)) {
            count.add(1);
        }
    }

    /// Writes the counters of both ports.
    pub(crate) fn write(&self, page: &mut Page) {
        page.counter(
            "weir_http_requests",
            "Requests by resource, method and status",
        );
        for (resource, route) in self.routes.iter().enumerate() {
            for (at, method) in METHODS.iter().enumerate() {
                for (column, status) in STATUSES.iter().enumerate() {
                    let index = (resource * METHODS.len() + at) * STATUSES.len() + column;
                    let count = self.requests.get(index).map_or(0, Gauge::get);
                    if count > 0 {
                        let labels = format!(
                            "{{route=\"{route}\",method=\"{method}\",status=\"{status}\"}}"
                        );
                        page.sample("weir_http_requests_total", &labels, count);
                    }
                }
            }
        }
        page.family(
            "weir_http_request_seconds",
            "histogram",
            "Time from the head of a request to its response",
        );
        for (route, times) in self.routes.iter().zip(&self.times) {
            let counts: Vec<u64> = times.buckets.iter().map(Gauge::get).collect();
            let total: u64 = counts.iter().sum();
            if total == 0 {
                continue;
            }
            let mut sum = 0;
            for (count, bound) in counts.iter().zip(BUCKETS_US) {
                sum += count;
                let le = seconds(bound);
                page.sample(
                    "weir_http_request_seconds_bucket",
                    &format!("{{route=\"{route}\",le=\"{le}\"}}"),
                    sum,
                );
            }
            page.sample(
                "weir_http_request_seconds_bucket",
                &format!("{{route=\"{route}\",le=\"+Inf\"}}"),
                total,
            );
            page.line(
                "weir_http_request_seconds_sum",
                &format!("{{route=\"{route}\"}}"),
                &seconds(times.sum_us.get()),
            );
            page.sample(
                "weir_http_request_seconds_count",
                &format!("{{route=\"{route}\"}}"),
                total,
            );
        }
        page.counter(
            "weir_http_parse_errors",
            "Refused heads of requests, by status",
        );
        for (status, count) in STATUSES.iter().zip(&self.bad_heads) {
            if count.get() > 0 {
                page.sample(
                    "weir_http_parse_errors_total",
                    &format!("{{status=\"{status}\"}}"),
                    count.get(),
                );
            }
        }
        page.counter(
            "weir_http_timeouts",
            "Connections and requests that took too long",
        );
        for (kind, count) in TIMEOUTS.iter().zip(&self.timeouts) {
            page.sample(
                "weir_http_timeouts_total",
                &format!("{{kind=\"{kind}\"}}"),
                count.get(),
            );
        }
        page.counter(
            "weir_http_refused",
            "Connections refused because there were too many",
        );
        page.sample("weir_http_refused_total", "", self.http_refused.get());
        page.family("weir_http_connections", "gauge", "Open connections");
        page.sample("weir_http_connections", "", self.http_connections.get());
        self.native(page);
        page.counter(
            "weir_connections_evicted",
            "Connections closed for newer ones before they were authenticated",
        );
        page.sample("weir_connections_evicted_total", "", self.evicted.get());
        page.family("weir_http_tails", "gauge", "Requests that follow a topic");
        page.sample("weir_http_tails", "{kind=\"sse\"}", self.tails.get());
        page.sample(
            "weir_http_tails",
            "{kind=\"long-poll\"}",
            self.waiting_polls.get(),
        );
    }

    fn native(&self, page: &mut Page) {
        page.counter(
            "weir_native_refused",
            "Native connections refused because there were too many",
        );
        page.sample("weir_native_refused_total", "", self.native_refused.get());
        page.family(
            "weir_native_connections",
            "gauge",
            "Open native connections",
        );
        page.sample("weir_native_connections", "", self.native_connections.get());
    }
}

/// Formats microseconds as a decimal number of seconds.
pub(crate) fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

/// The text of the metrics.
pub(crate) struct Page {
    pub(crate) text: String,
    /// Whether the format is `OpenMetrics` 1.0; otherwise it is Prometheus 0.0.4.
    pub(crate) open: bool,
}

impl Page {
    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to memory cannot fail.
        let _ = write!(self.text, "# HELP {name} {help}.\n# TYPE {name} {kind}\n");
    }

    /// Starts a counter. The family name lacks the suffix `_total` in `OpenMetrics`, and has it in
    /// Prometheus.
    pub(crate) fn counter(&mut self, name: &str, help: &str) {
        let suffix = if self.open { "" } else { "_total" };
        self.family(&format!("{name}{suffix}"), "counter", help);
    }

    pub(crate) fn sample(&mut self, name: &str, labels: &str, value: u64) {
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }

    pub(crate) fn line(&mut self, name: &str, labels: &str, value: &str) {
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }
}
