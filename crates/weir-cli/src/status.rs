//! `weir status`: what holds for a store at this moment.

use std::borrow::Cow;
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use weir::Weir;

use crate::bytes::hex;
use crate::caller::Caller;
use crate::disk;
use crate::output::{Cell, Field, Shape, field, wide};
use crate::place::{self, Access, Where};
use crate::report::Because;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Of a server, or of a directory that another process serves, the fields about files are null.

Examples:
  weir put orders x && weir status
  weir status -o json --columns durability,writable,cause")]
pub(crate) struct StatusArgs {}

/// Fields of a status.
pub(crate) const FIELDS: &[Field] = &[
    field("at", "text", "where the store is"),
    field(
        "durability",
        "text",
        "when a write is answered: group, each, interval or memory",
    ),
    field(
        "synced",
        "bool",
        "whether an answer means that the write is synced",
    ),
    field(
        "writable",
        "bool",
        "whether the store takes writes, null: not known here",
    ),
    field(
        "cause",
        "text",
        "why it takes no writes, null: it does, or not known here",
    ),
    field("topics", "number", "topics that are live"),
    field(
        "sessions",
        "number",
        "sessions whose nonces are kept, null: not known here",
    ),
    field("applied", "number", "newest log entry that is applied"),
    field("durable", "number", "newest log entry that is synced"),
    field(
        "log_bytes",
        "number",
        "bytes of the log's files, null: not known here",
    ),
    field(
        "data_bytes",
        "number",
        "bytes of all files, null: not known here",
    ),
    field(
        "file_system",
        "text",
        "kind of file system, null: not known here",
    ),
    field(
        "free_bytes",
        "number",
        "bytes that may still be written there",
    ),
    wide("total_bytes", "number", "size of the file system"),
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
        "mean time of one, null: there was none",
    ),
    wide("store", "text", "id of the store"),
    field("time", "time", "when this was asked"),
];

/// Carries out `weir status`.
pub(crate) fn run(caller: &Caller, _args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let weir = place::open(caller, Access::Read)?;
    let failed = || "cannot ask for the status".to_owned();
    let durability = weir.durability().failed(failed)?;
    let stats = weir.stats().failed(failed)?;
    let topics = weir.topics(false).failed(failed)?.len();
    let id = hex(&weir.store_id().failed(failed)?);
    let count = |n: Option<u64>| n.map_or(Cell::Nothing, Cell::Count);
    let size = |n: Option<u64>| n.map_or(Cell::Nothing, Cell::Size);
    let text = |text: Option<String>| text.map_or(Cell::Nothing, |text| Cell::Text(text.into()));
    let cause = cause(&weir);
    let files = files(caller, &weir)?;
    let sessions = weir.local().map(|store| store.sessions().0 as u64);
    let space = files.as_ref().map(|files| files.space);
    out.row(&[
        Cell::Text(Cow::Borrowed(&caller.settings.at.value)),
        Cell::Text(durability.name().into()),
        Cell::Flag(durability.is_synced()),
        weir.local()
            .map_or(Cell::Nothing, |_| Cell::Flag(cause.is_none())),
        text(cause),
        Cell::Count(topics as u64),
        count(sessions),
        Cell::Count(stats.applied_index),
        Cell::Count(stats.durable_index),
        size(files.as_ref().map(|files| files.log_bytes)),
        size(files.as_ref().map(|files| files.data_bytes)),
        text(files.as_ref().map(|files| files.file_system.to_owned())),
        size(space.map(|space| space.free_bytes)),
        size(space.map(|space| space.total_bytes)),
        Cell::Count(stats.snapshots),
        Cell::Count(stats.syncs),
        count((stats.sync_ns / 1000).checked_div(stats.syncs)),
        Cell::Text(id.into()),
        Cell::Time(now_ms()),
    ])?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Why the store takes no writes.
fn cause(weir: &Weir) -> Option<String> {
    Some(weir.local()?.poison_cause()?.to_string())
}

/// What only who has the files can tell.
struct Files {
    log_bytes: u64,
    data_bytes: u64,
    file_system: &'static str,
    space: disk::Space,
}

fn files(caller: &Caller, weir: &Weir) -> anyhow::Result<Option<Files>> {
    let Where::Directory(at) = place::place(caller)? else {
        return Ok(None);
    };
    if weir.local().is_none() {
        return Ok(None);
    }
    let at = Path::new(at);
    let found = weir::file_system(at).and_then(|system| Ok((system.name, disk::space(at)?)));
    let (file_system, space) =
        found.failed(|| format!("cannot ask about the disk of {}", at.display()))?;
    Ok(Some(Files {
        log_bytes: disk::bytes_below(&at.join("log")),
        data_bytes: disk::bytes_below(at),
        file_system,
        space,
    }))
}

fn now_ms() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    time.map_or(0, |time| {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    })
}
