//! Metrics of a node of a cluster; a standalone server has none of them.

use crate::metrics::{Page, seconds};
use crate::shared::Shared;

/// All roles; each one has a series.
const ROLES: [&str; 7] = [
    "leader",
    "follower",
    "candidate",
    "learner",
    "full",
    "removed",
    "ended",
];

/// Writes the role and positions of this node.
pub(super) fn cluster(page: &mut Page, shared: &Shared) {
    let Some(node) = &shared.cluster else { return };
    let gauges = node.gauges();
    if let Some(ms) = node.certificate_expires_ms() {
        let name = "weir_cluster_certificate_expires_seconds";
        page.family(
            name,
            "gauge",
            "Time at which the certificate of this node for its peers expires, since 1970",
        );
        page.sample(name, "", ms / 1_000);
    }
    page.family(
        "weir_cluster_role",
        "gauge",
        "1 for the role of this node; `full` lacks space, `removed` must be stopped, `ended` must be restarted",
    );
    for role in ROLES {
        let labels = format!("{{role=\"{role}\"}}");
        page.sample("weir_cluster_role", &labels, u64::from(role == gauges.role));
    }
    let is_synced = shared.store.durability().is_synced();
    for (name, help, value) in [
        ("weir_cluster_term", "Term of this node", gauges.term),
        (
            "weir_cluster_leader",
            "Number of the leader that this node knows; 0: none",
            gauges.leader,
        ),
        (
            "weir_cluster_members",
            "Members that this node knows, voters and learners",
            gauges.members,
        ),
        (
            "weir_cluster_committed_index",
            "Newest log entry that this node knows to be committed",
            gauges.committed,
        ),
        (
            "weir_cluster_synced",
            "0 if a power cut of all nodes loses acknowledged writes (`interval`, `memory`)",
            u64::from(is_synced),
        ),
        (
            "weir_cluster_diverged",
            "1 if the state of this node was found to differ from the state of a leader",
            u64::from(gauges.diverged),
        ),
    ] {
        page.family(name, "gauge", help);
        page.sample(name, "", value);
    }
    let help = "How often this node replaced its state with the state of a leader";
    page.counter("weir_cluster_repairs", help);
    page.sample("weir_cluster_repairs_total", "", gauges.repairs);
    let name = "weir_cluster_clock_ahead_seconds";
    let help = "Time by which the wall clock is ahead of the clocks of a majority";
    page.family(name, "gauge", help);
    page.line(
        name,
        "",
        &seconds(gauges.clock_ahead_ms.saturating_mul(1000)),
    );
    if let Some(contact) = gauges.contact {
        let name = "weir_cluster_contact_seconds";
        page.family(
            name,
            "gauge",
            "Time since the last contact with a leader; on the leader, with a majority",
        );
        let us = u64::try_from(contact.as_micros()).unwrap_or(u64::MAX);
        page.line(name, "", &seconds(us));
    }
}
