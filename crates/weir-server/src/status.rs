//! The status of the server and its store at one moment, for both ports: names and values, as
//! listed in docs/formats/native.md (section 8).
//!
//! Invariant: this module waits neither for the log nor for a budget, so an overloaded server still
//! reports its status.

use weir_protocol::StatusValue;
use weir_store::Store;

use crate::limits::memory;
use crate::security::now_ms;
use crate::shared::Shared;

/// A name and its value.
pub(crate) type Field = (&'static str, StatusValue);

/// Returns the fields of the status, without unknown ones. Accesses the file system, so it must not
/// run on a reactor thread.
pub(crate) fn fields(shared: &Shared) -> Vec<Field> {
    let mut fields = Vec::new();
    of_server(&mut fields, shared);
    of_store(&mut fields, &shared.store);
    fields.extend(shared.cluster.iter().flat_map(|node| node.fields()));
    let memory = shared.admission.limits().memory;
    fields.extend(memory.map(|bytes| ("memory_max", number(bytes))));
    let resident = memory::resident();
    fields.extend(resident.map(|bytes| ("resident_bytes", StatusValue::Number(bytes))));
    for budget in shared.admission.budgets() {
        fields.push((budget.used_name, number(budget.used)));
        fields.push((budget.max_name, number(budget.max)));
    }
    fields
}

fn number(n: usize) -> StatusValue {
    StatusValue::Number(n as u64)
}

fn of_server(fields: &mut Vec<Field>, shared: &Shared) {
    let uptime = u64::try_from(shared.started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let version = env!("CARGO_PKG_VERSION").to_owned();
    fields.extend([
        ("version", StatusValue::Text(version)),
        ("ready", StatusValue::Number(shared.is_ready().into())),
        ("uptime_ms", StatusValue::Number(uptime)),
        ("clock_ms", StatusValue::Number(now_ms())),
    ]);
    let metrics = &shared.metrics;
    for (name, count) in [
        ("connections_http", metrics.http_connections.get()),
        ("connections_native", metrics.native_connections.get()),
    ] {
        fields.push((name, StatusValue::Number(count)));
    }
    fields.extend([
        (
            "connections_unauthenticated",
            number(shared.connections.unauthenticated()),
        ),
        (
            "connections_max",
            number(shared.descriptors.connections_max),
        ),
    ]);
}

fn of_store(fields: &mut Vec<Field>, store: &Store) {
    let text = |text: &str| StatusValue::Text(text.to_owned());
    fields.push(("durability", text(store.durability().name())));
    if let Some(cause) = store.poison_cause() {
        fields.push(("poison_cause", StatusValue::Text(cause.to_string())));
    }
    if let Some(failure) = store.checkpoint_failure() {
        fields.push(("checkpoint_failure", StatusValue::Text(failure)));
    }
    if let Some(kind) = store.volatile() {
        fields.push(("volatile", text(kind)));
    }
    if let Some(space) = store.space() {
        fields.extend([
            ("file_system", text(space.file_system)),
            ("free_bytes", StatusValue::Number(space.free_bytes)),
            ("total_bytes", StatusValue::Number(space.total_bytes)),
        ]);
    }
    let stats = store.stats();
    let (sessions, keys) = store.sessions();
    for (name, count) in [
        ("time_ms", store.now_ms()),
        ("topics", store.topic_count()),
        ("sessions", sessions as u64),
        ("idempotency_keys", keys as u64),
        ("log_first_index", stats.purged_index + 1),
        ("applied_index", stats.applied_index),
        ("durable_index", stats.durable_index),
        ("purged_index", stats.purged_index),
        ("log_bytes", stats.log_bytes),
        ("batches", stats.batches),
        ("intentions", stats.intentions),
        ("syncs", stats.syncs),
        ("sync_ns", stats.sync_ns),
        ("valid", stats.valid),
        ("invalid", stats.invalid),
        ("errors", stats.errors),
        ("replayed", stats.replayed),
        ("refused", stats.refused),
        ("snapshots", stats.snapshots),
        ("derived_write_errors", stats.derived_write_errors),
        ("scrubbed_bytes", stats.scrubbed_bytes),
        ("scrub_rounds", stats.scrub_rounds),
        ("damage", stats.damage),
    ] {
        fields.push((name, StatusValue::Number(count)));
    }
}
