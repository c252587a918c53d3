//! The page of metrics: counters of the server, its store and its groups.

use std::sync::atomic::Ordering;

use weir_store::Stats;

use crate::logs::dropped_lines;
use crate::metrics::{Page, seconds};
use crate::security::Audit;
use crate::shared::Shared;

mod cluster;
mod groups;
mod programs;

/// Renders all metrics as text: `OpenMetrics` 1.0 if `open`, otherwise Prometheus 0.0.4. Reads
/// records of groups, so it must not run on a reactor thread.
pub(crate) fn render(shared: &Shared, open: bool) -> String {
    let mut page = Page {
        text: String::with_capacity(8 << 10),
        open,
    };
    shared.metrics.write(&mut page);
    store(&mut page, shared);
    cluster::cluster(&mut page, shared);
    groups::groups(&mut page, shared);
    groups::sessions(&mut page, shared);
    programs::programs(&mut page, shared);
    connections(&mut page, shared);
    security(&mut page, shared);
    page.counter(
        "weir_log_lines_dropped",
        "Log lines that were dropped because they were not read fast enough",
    );
    page.sample("weir_log_lines_dropped_total", "", dropped_lines());
    page.family("weir_build_info", "gauge", "Version of the server");
    page.sample(
        "weir_build_info",
        &format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")),
        1,
    );
    page.family(
        "weir_ready",
        "gauge",
        "1 while the server is ready for requests",
    );
    page.sample("weir_ready", "", u64::from(shared.is_ready()));
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

fn connections(page: &mut Page, shared: &Shared) {
    for (name, help, count) in [
        (
            "weir_connections_unauthenticated",
            "Open connections on which no request passed its checks yet",
            shared.connections.unauthenticated(),
        ),
        (
            "weir_connections_max",
            "Connections of all TCP ports that the limit of open files and the memory allow",
            shared.descriptors.connections_max,
        ),
    ] {
        page.family(name, "gauge", help);
        page.sample(name, "", count as u64);
    }
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
            "Requests and tokens without a valid identity",
            counts.unauthenticated.load(Ordering::Relaxed),
        ),
        (
            "weir_paused",
            "Requests that exceeded a rate limit",
            counts.paused.load(Ordering::Relaxed),
        ),
        (
            "weir_reloads",
            "Reloads of the files of identities and certificates",
            counts.reloads.load(Ordering::Relaxed),
        ),
        (
            "weir_reloads_failed",
            "Reloads that failed because a file is not valid",
            counts.reloads_failed.load(Ordering::Relaxed),
        ),
        (
            "weir_audit_records",
            "Audit records that were written",
            audit.map_or(0, Audit::written),
        ),
        (
            "weir_audit_lost",
            "Audit records that were dropped",
            audit.map_or(0, Audit::lost),
        ),
    ] {
        page.counter(name, help);
        page.sample(&format!("{name}_total"), "", count);
    }
    page.family(
        "weir_insecure",
        "gauge",
        "1 if a setting allows other machines to connect without this protection",
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
            "Time at which the certificate of the server expires, since 1970",
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
            "Intentions whose stored outcome was returned again",
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
            "Failed writes of files that can be rebuilt",
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
        "1 for the durability level of the store",
    );
    let level = shared.store.durability().name();
    page.sample("weir_durability", &format!("{{level=\"{level}\"}}"), 1);
    files(page, &stats);
}

/// Writes the sizes of files on disk, and the findings of the scrub.
fn files(page: &mut Page, stats: &Stats) {
    for (name, help, count) in [
        (
            "weir_scrubbed_bytes",
            "Bytes that scrubs have read",
            stats.scrubbed_bytes,
        ),
        (
            "weir_scrub_rounds",
            "Completed scrubs of the whole store",
            stats.scrub_rounds,
        ),
    ] {
        page.counter(name, help);
        page.sample(&format!("{name}_total"), "", count);
    }
    page.family("weir_log_bytes", "gauge", "Bytes of the files of the log");
    page.sample("weir_log_bytes", "", stats.log_bytes);
    let help = "Damaged places that scrubs have found";
    page.family("weir_damage", "gauge", help);
    page.sample("weir_damage", "", stats.damage);
}
