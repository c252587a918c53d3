//! `weir status`: the current state of a store and its server.

use std::borrow::Cow;
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use weir::{BudgetStatus, ErrorCode, Store, Weir};

use crate::bytes::hex;
use crate::caller::Caller;
use crate::disk;
use crate::output::{Cell, Field, Shape, field, wide};
use crate::place::{self, Access, Location};
use crate::report::FailureContext;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Works on a directory and at a server, where it needs the right `admin`. Fields of a server are null
for a directory that this process opens.

Examples:
  weir put orders x && weir status
  weir status -o json --columns durability,writable,cause")]
pub(crate) struct StatusArgs {}

/// Fields of a status.
pub(crate) const FIELDS: &[Field] = &[
    field("at", "text", "place of the store"),
    field(
        "durability",
        "text",
        "when a write is acknowledged: group, each, interval or memory",
    ),
    field("synced", "bool", "whether an acknowledged write is synced"),
    field(
        "writable",
        "bool",
        "whether the store accepts writes (in a cluster: whether the node knows a leader), null: it is \
         open for reading only",
    ),
    field(
        "cause",
        "text",
        "why the store rejects writes, null: it accepts them",
    ),
    field(
        "checkpoint_failure",
        "text",
        "why the last checkpoint failed, null: it succeeded",
    ),
    field(
        "node",
        "number",
        "number of the node in its cluster, null: the store is not in a cluster",
    ),
    field(
        "role",
        "text",
        "role of the node, as `weir cluster status` shows it",
    ),
    field(
        "leader",
        "number",
        "number of the leader that the node knows",
    ),
    field("topics", "number", "existing topics"),
    field("sessions", "number", "sessions whose nonces are stored"),
    field("applied", "number", "newest log entry that is applied"),
    field("durable", "number", "newest log entry that is synced"),
    field("log_bytes", "number", "bytes of the log's files"),
    field(
        "data_bytes",
        "number",
        "bytes of all files, null: at a server",
    ),
    field("file_system", "text", "kind of file system, null: unknown"),
    field(
        "volatile",
        "text",
        "kind of file system if a power cut may lose synced data, otherwise null",
    ),
    field("free_bytes", "number", "free bytes of the file system"),
    wide("total_bytes", "number", "size of the file system"),
    wide("log_first", "number", "oldest log entry that is retained"),
    wide(
        "idempotency_keys",
        "number",
        "idempotency keys that are stored",
    ),
    wide(
        "snapshots",
        "number",
        "snapshots written since the store was opened",
    ),
    wide(
        "syncs",
        "number",
        "syncs of the log since the store was opened",
    ),
    wide(
        "sync_us_mean",
        "number",
        "mean time of a sync, null: no sync yet",
    ),
    wide(
        "damage",
        "number",
        "places of damage that were found since the store was opened",
    ),
    wide("store", "text", "id of the store"),
    field(
        "time",
        "time",
        "the store's time, which stamps records and ends leases",
    ),
    field("clock", "time", "the clock of the machine"),
    wide("version", "text", "version of the server"),
    wide("ready", "bool", "whether the server should get requests"),
    wide("uptime_ms", "number", "time since the server was started"),
    wide(
        "connections",
        "number",
        "open connections of the server, on all ports",
    ),
    wide(
        "connections_max",
        "number",
        "connections that the server's limit of open files allows",
    ),
    wide(
        "resident_bytes",
        "number",
        "memory that the server uses, null: unknown",
    ),
    wide(
        "memory_max",
        "number",
        "memory that the server may use, null: unknown",
    ),
    wide(
        "budgets",
        "list",
        "memory budgets of the server: name, bytes in use, maximum bytes",
    ),
];

/// Runs `weir status`.
pub(crate) fn run(caller: &Caller, _args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let weir = place::open(caller, Access::Read)?;
    let failed = || "cannot read the status".to_owned();
    let durability = weir.durability().failed(failed)?;
    let status = weir.status().failed(failed)?;
    let id = hex(&weir.store_id().failed(failed)?);
    let count = |n: Option<u64>| n.map_or(Cell::Nothing, Cell::Count);
    let size = |n: Option<u64>| n.map_or(Cell::Nothing, Cell::Size);
    let text = |text: Option<String>| text.map_or(Cell::Nothing, |text| Cell::Text(text.into()));
    let read_only = weir.local().is_some_and(Store::is_read_only);
    let (counts, server) = (status.stats, status.server.as_ref());
    let cluster = server.and_then(|server| server.cluster.as_ref());
    let leaderless = cluster.filter(|cluster| cluster.leader.is_none());
    let no_leader = leaderless.map(|_| ErrorCode::NoLeader.sentence().to_owned());
    let cause = status.poison_cause.or(no_leader);
    out.row(&[
        Cell::Text(Cow::Borrowed(&caller.settings.at.value)),
        Cell::Text(durability.name().into()),
        Cell::Flag(durability.is_synced()),
        if read_only {
            Cell::Nothing
        } else {
            Cell::Flag(cause.is_none())
        },
        text(cause),
        text(status.checkpoint_failure),
        count(cluster.map(|cluster| cluster.node)),
        text(cluster.map(|cluster| cluster.role.clone())),
        count(cluster.and_then(|cluster| cluster.leader)),
        Cell::Count(status.topics),
        Cell::Count(status.sessions),
        Cell::Count(counts.applied_index),
        Cell::Count(counts.durable_index),
        Cell::Size(counts.log_bytes),
        size(data_bytes(caller, &weir)?),
        text(status.file_system),
        text(status.volatile),
        size(status.free_bytes),
        size(status.total_bytes),
        Cell::Count(status.log_first_index),
        Cell::Count(status.idempotency_keys),
        Cell::Count(counts.snapshots),
        Cell::Count(counts.syncs),
        count((counts.sync_ns / 1000).checked_div(counts.syncs)),
        Cell::Count(counts.damage),
        Cell::Text(id.into()),
        Cell::Time(status.time_ms),
        Cell::Time(server.map_or_else(now_ms, |server| server.clock_ms)),
        text(server.map(|server| server.version.clone())),
        server.map_or(Cell::Nothing, |server| Cell::Flag(server.ready)),
        count(server.map(|server| server.uptime_ms)),
        count(server.map(|server| server.connections_http + server.connections_native)),
        count(server.map(|server| server.connections_max)),
        size(server.and_then(|server| server.resident_bytes)),
        size(server.and_then(|server| server.memory_max)),
        server.map_or(Cell::Nothing, |server| {
            Cell::Many(vec![
                budget("writes", server.writes),
                budget("costly_writes", server.costly_writes),
                budget("bodies", server.bodies),
                budget("answers", server.answers),
            ])
        }),
    ])?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// A budget as JSON and as text.
fn budget(name: &str, budget: BudgetStatus) -> (String, String) {
    let BudgetStatus {
        bytes, max_bytes, ..
    } = budget;
    (
        format!("{{\"name\":\"{name}\",\"bytes\":{bytes},\"max_bytes\":{max_bytes}}}"),
        format!("{name} {bytes} of {max_bytes}"),
    )
}

/// Bytes of all files of a store that this process has open.
fn data_bytes(caller: &Caller, weir: &Weir) -> anyhow::Result<Option<u64>> {
    let Location::Directory(at) = place::location(caller)? else {
        return Ok(None);
    };
    let is_local = weir.local().is_some();
    Ok(is_local.then(|| disk::bytes_below(Path::new(at))))
}

fn now_ms() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    time.map_or(0, |time| {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    })
}
