//! What is counted. Names and meanings: docs/operating/metrics.md.
//!
//! Labels come from tables of this crate only, so the number of series has a
//! bound that no client can move: resources with their methods, times the
//! statuses that exist.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::http::head::Method;
use crate::resources::route::{self, RESOURCES, Resource};
use crate::security::Audit;
use crate::shared::Shared;

mod groups;

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

/// Statuses that answers have; the last place is for any other.
const STATUSES: [u16; 36] = [
    200, 201, 202, 204, 206, 304, 400, 401, 403, 404, 405, 406, 408, 409, 410, 412, 413, 414, 415,
    416, 417, 421, 422, 428, 429, 431, 500, 501, 502, 503, 504, 505, 507, 307, 411, 0,
];
const METHODS: [Method; 8] = [
    Method::Get,
    Method::Head,
    Method::Post,
    Method::Put,
    Method::Patch,
    Method::Delete,
    Method::Options,
    Method::Other,
];
/// Upper bounds of the buckets of times, microseconds.
const BUCKETS_US: [u64; 12] = [
    50, 100, 250, 500, 1000, 2500, 5000, 10_000, 50_000, 250_000, 1_000_000, 10_000_000,
];
/// What can take too long.
const TIMEOUTS: [&str; 4] = ["head", "body", "write", "store"];

#[derive(Debug, Default)]
struct Times {
    buckets: [Gauge; BUCKETS_US.len() + 1],
    sum_us: Gauge,
}

/// All counts of a server.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// Open connections of the HTTP port.
    pub(crate) http_connections: Gauge,
    /// Connections that were refused because there were too many.
    pub(crate) http_refused: Gauge,
    /// Open connections of the native port, and of the socket.
    pub(crate) native_connections: Gauge,
    /// Those of them that were refused because there were too many.
    pub(crate) native_refused: Gauge,
    /// Connections closed for newer ones before a request on them passed its checks.
    pub(crate) evicted: Gauge,
    /// Server-sent event streams.
    pub(crate) tails: Gauge,
    /// Requests that wait for a record.
    pub(crate) waiting_polls: Gauge,
    requests: Vec<Gauge>,
    times: Vec<Times>,
    timeouts: [Gauge; TIMEOUTS.len()],
    bad_heads: [Gauge; STATUSES.len()],
}

impl Default for Metrics {
    fn default() -> Self {
        let mut requests = Vec::new();
        requests.resize_with(RESOURCES * METHODS.len() * STATUSES.len(), Gauge::default);
        let mut times = Vec::new();
        times.resize_with(RESOURCES, Times::default);
        Self {
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
    /// A request was answered.
    pub(crate) fn request(&self, resource: Resource, method: Method, status: u16, taken: Duration) {
        let known = resource
            .row()
            .is_some_and(|row| row.params(method).is_some());
        let method = if known { method } else { Method::Other };
        let at = (resource as usize * METHODS.len() + method as usize) * STATUSES.len()
            + status_at(status);
        if let Some(count) = self.requests.get(at) {
            count.add(1);
        }
        let us = u64::try_from(taken.as_micros()).unwrap_or(u64::MAX);
        if let Some(times) = self.times.get(resource as usize) {
            let at = BUCKETS_US.partition_point(|bound| *bound < us);
            if let Some(bucket) = times.buckets.get(at) {
                bucket.add(1);
            }
            times.sum_us.add(us);
        }
    }

    /// A head was refused before it was a request.
    pub(crate) fn refused(&self, status: u16) {
        if let Some(count) = self.bad_heads.get(status_at(status)) {
            count.add(1);
        }
    }

    /// Something took too long.
    pub(crate) fn timeout(&self, kind: &str) {
        let at = TIMEOUTS.iter().position(|one| *one == kind);
        if let Some(count) = at.and_then(|at| self.timeouts.get(at)) {
            count.add(1);
        }
    }

    /// All of it as text; reads records, so not for a reactor: `OpenMetrics` 1.0 when `open`, else Prometheus 0.0.4.
    pub(crate) fn render(&self, shared: &Shared, open: bool) -> String {
        let mut page = Page {
            text: String::with_capacity(8 << 10),
            open,
        };
        self.http(&mut page);
        store(&mut page, shared);
        groups::groups(&mut page, shared);
        groups::sessions(&mut page, shared);
        connections(&mut page, shared);
        security(&mut page, shared);
        page.family("weir_build_info", "gauge", "Version of the server");
        page.sample(
            "weir_build_info",
            &format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")),
            1,
        );
        page.family(
            "weir_ready",
            "gauge",
            "1 while the server should get requests",
        );
        page.sample(
            "weir_ready",
            "",
            u64::from(shared.phase() == crate::shared::Phase::Open),
        );
        page.family("weir_uptime_seconds", "gauge", "Time since the start");
        page.sample(
            "weir_uptime_seconds",
            "",
            shared.started.elapsed().as_secs(),
        );
        if open {
            page.text.push_str("# EOF\n");
        }
        page.text
    }

    fn http(&self, page: &mut Page) {
        page.counter(
            "weir_http_requests",
            "Requests by resource, method and status",
        );
        for resource in 0..RESOURCES {
            for (at, method) in METHODS.iter().enumerate() {
                for (place, status) in STATUSES.iter().enumerate() {
                    let index = (resource * METHODS.len() + at) * STATUSES.len() + place;
                    let count = self.requests.get(index).map_or(0, Gauge::get);
                    if count > 0 {
                        let route = label(resource);
                        let labels = format!(
                            "{{route=\"{route}\",method=\"{}\",status=\"{status}\"}}",
                            method.name()
                        );
                        page.sample("weir_http_requests_total", &labels, count);
                    }
                }
            }
        }
        page.family(
            "weir_http_request_seconds",
            "histogram",
            "Time from the head of a request to its answer",
        );
        for (resource, times) in self.times.iter().enumerate() {
            let counts: Vec<u64> = times.buckets.iter().map(Gauge::get).collect();
            let total: u64 = counts.iter().sum();
            if total == 0 {
                continue;
            }
            let route = label(resource);
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
            "Heads that were refused, by status",
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
        page.counter("weir_http_refused", "Connections that found no place");
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
            "Native connections that found no place",
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

fn connections(page: &mut Page, shared: &Shared) {
    for (name, help, count) in [
        (
            "weir_connections_unauthenticated",
            "Open connections on which no request passed its checks yet",
            shared.connections.unauthenticated(),
        ),
        (
            "weir_connections_max",
            "Connections of all TCP ports that the limit of open files allows",
            shared.descriptors.connections_max,
        ),
    ] {
        page.family(name, "gauge", help);
        page.sample(name, "", count as u64);
    }
}

fn label(resource: usize) -> &'static str {
    route::label(resource)
}

/// Microseconds as a decimal number of seconds.
fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

fn security(page: &mut Page, shared: &Shared) {
    let security = &shared.security;
    let counts = security.counts();
    let audit = security.audit();
    for (name, help, count) in [
        (
            "weir_forbidden",
            "Requests whose principal lacks the right",
            counts.forbidden.load(Ordering::Relaxed),
        ),
        (
            "weir_unauthenticated",
            "Requests and tokens of nobody who is known",
            counts.unauthenticated.load(Ordering::Relaxed),
        ),
        (
            "weir_paused",
            "Requests that came too fast",
            counts.paused.load(Ordering::Relaxed),
        ),
        (
            "weir_reloads",
            "Times that identities and certificates were read anew",
            counts.reloads.load(Ordering::Relaxed),
        ),
        (
            "weir_reloads_failed",
            "Times that one of these files was wrong",
            counts.reloads_failed.load(Ordering::Relaxed),
        ),
        (
            "weir_audit_records",
            "Records written to the audit",
            audit.map_or(0, Audit::written),
        ),
        (
            "weir_audit_lost",
            "Records that the audit lacks",
            audit.map_or(0, Audit::lost),
        ),
    ] {
        page.counter(name, help);
        page.sample(&format!("{name}_total"), "", count);
    }
    page.family(
        "weir_insecure",
        "gauge",
        "Whether a flag allows others in without this protection",
    );
    for (what, on) in [
        ("tls", shared.config.insecure_no_tls),
        ("identities", shared.config.insecure_no_auth),
    ] {
        page.sample(
            "weir_insecure",
            &format!("{{missing=\"{what}\"}}"),
            u64::from(on),
        );
    }
    if let Some(ms) = security.certificate_expires_ms() {
        let name = "weir_certificate_expires_seconds";
        page.family(
            name,
            "gauge",
            "When the certificate of the server ends, since 1970",
        );
        page.sample(name, "", ms / 1_000);
    }
}

fn store(page: &mut Page, shared: &Shared) {
    let stats = shared.store.stats();
    page.counter(
        "weir_intentions",
        "Intentions that were executed, by effect",
    );
    for (effect, count) in [
        ("valid", stats.valid),
        ("invalid", stats.invalid),
        ("error", stats.errors),
    ] {
        page.sample(
            "weir_intentions_total",
            &format!("{{effect=\"{effect}\"}}"),
            count,
        );
    }
    for (name, help, count) in [
        (
            "weir_replayed",
            "Intentions that were answered again",
            stats.replayed,
        ),
        (
            "weir_refused",
            "Intentions that were refused when they were applied",
            stats.refused,
        ),
        (
            "weir_commit_batches",
            "Batches that were logged",
            stats.batches,
        ),
        (
            "weir_commit_intentions",
            "Intentions that were logged",
            stats.intentions,
        ),
        ("weir_syncs", "Syncs of the log", stats.syncs),
        (
            "weir_snapshots",
            "Snapshots that were written",
            stats.snapshots,
        ),
        (
            "weir_derived_write_errors",
            "Failed writes of files that can be made again",
            stats.derived_write_errors,
        ),
    ] {
        page.counter(name, help);
        page.sample(&format!("{name}_total"), "", count);
    }
    page.counter("weir_sync_seconds", "Time spent in syncs of the log");
    page.line(
        "weir_sync_seconds_total",
        "",
        &seconds(stats.sync_ns / 1000),
    );
    for (name, help, value) in [
        (
            "weir_log_applied_index",
            "Newest log entry that is applied",
            stats.applied_index,
        ),
        (
            "weir_log_durable_index",
            "Newest log entry that is known to be synced",
            stats.durable_index,
        ),
        (
            "weir_log_purged_index",
            "Newest log entry that was purged",
            stats.purged_index,
        ),
        (
            "weir_log_bytes",
            "Bytes of the files of the log",
            stats.log_bytes,
        ),
        (
            "weir_in_flight_bytes",
            "Bytes of writes that wait for the store",
            shared.admission.bytes() as u64,
        ),
        (
            "weir_store_poisoned",
            "1 after a failed write or sync",
            u64::from(shared.store.is_poisoned()),
        ),
    ] {
        page.family(name, "gauge", help);
        page.sample(name, "", value);
    }
    page.family(
        "weir_durability",
        "gauge",
        "1 for the level at which writes are answered",
    );
    let level = shared.store.durability().name();
    page.sample("weir_durability", &format!("{{level=\"{level}\"}}"), 1);
}

struct Page {
    text: String,
    open: bool,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to memory does not fail.
        let _ = write!(self.text, "# HELP {name} {help}.\n# TYPE {name} {kind}\n");
    }

    /// The family of a counter is named without its suffix in `OpenMetrics`, and
    /// with it before.
    fn counter(&mut self, name: &str, help: &str) {
        let suffix = if self.open { "" } else { "_total" };
        self.family(&format!("{name}{suffix}"), "counter", help);
    }

    fn sample(&mut self, name: &str, labels: &str, value: u64) {
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }

    fn line(&mut self, name: &str, labels: &str, value: &str) {
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }
}
