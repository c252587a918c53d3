//! Metrics of groups and sessions. The age of the oldest record of a group requires reading the
//! record.

use weir_store::GroupInfo;

use crate::metrics::{Page, seconds};
use crate::shared::Shared;

type Getter = fn(&GroupInfo) -> u64;

/// Maximum number of groups with separate series. Clients choose the names, so a bound is needed.
const GROUPS_MAX: usize = 200;

pub(super) fn groups(page: &mut Page, shared: &Shared) {
    let (infos, count) = shared.store.all_groups(GROUPS_MAX);
    page.family("weir_groups", "gauge", "Groups of all topics");
    page.sample("weir_groups", "", count as u64);
    let left_out = count.saturating_sub(infos.len());
    page.family(
        "weir_groups_left_out",
        "gauge",
        "Groups without separate series",
    );
    page.sample("weir_groups_left_out", "", left_out as u64);
    let now = shared.store.now_ms();
    let groups: Vec<_> = infos
        .into_iter()
        .map(|info| {
            let info = shared.store.with_oldest(info);
            // Names contain no character that needs an escape.
            let labels = format!("{{topic=\"{}\",group=\"{}\"}}", info.topic, info.name);
            (labels, info)
        })
        .collect();
    if groups.is_empty() {
        return;
    }
    let gauges: [(&str, &str, Getter); 3] = [
        ("weir_group_lag", "Records that are not acknowledged", |g| {
            g.lag
        }),
        (
            "weir_group_leased",
            "Records that are leased to members",
            |g| g.leased,
        ),
        (
            "weir_group_unwritten_dead_letters",
            "Dead letters that are not written yet",
            |g| g.unwritten_dead_letters,
        ),
    ];
    for (name, help, read) in gauges {
        page.family(name, "gauge", help);
        for (labels, info) in &groups {
            page.sample(name, labels, read(info));
        }
    }
    let name = "weir_group_oldest_seconds";
    page.family(
        name,
        "gauge",
        "Age of the first record that is not acknowledged",
    );
    for (labels, info) in &groups {
        let age = info.oldest_ms.map_or(0, |then| now.saturating_sub(then));
        page.line(name, labels, &seconds(age.saturating_mul(1000)));
    }
    let counters: [(&str, &str, Getter); 2] = [
        ("weir_group_redeliveries", "Redelivered records", |g| {
            g.redeliveries
        }),
        (
            "weir_group_dead_lettered",
            "Records that became dead letters",
            |g| g.dead_lettered,
        ),
    ];
    for (name, help, read) in counters {
        page.counter(name, help);
        for (labels, info) in &groups {
            page.sample(&format!("{name}_total"), labels, read(info));
        }
    }
}

pub(super) fn sessions(page: &mut Page, shared: &Shared) {
    let (sessions, keys) = shared.store.sessions();
    for (name, help, count) in [
        ("weir_sessions", "Sessions in the store", sessions),
        ("weir_idempotency_keys", "Stored idempotency keys", keys),
    ] {
        page.family(name, "gauge", help);
        page.sample(name, "", count as u64);
    }
}
