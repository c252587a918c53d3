//! `weir compact`: removes data that the store no longer needs.

use std::process::ExitCode;

use clap::Args;

use crate::caller::Caller;
use crate::output::{Cell, Field, Shape, field};
use crate::place::{self, Access};
use crate::report::FailureContext;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Removes records that a newer record of the same key has replaced: in TOPIC, or without TOPIC in each
topic with compaction=latest. Without TOPIC, then writes a snapshot and removes the log before it: the
topic segments become the only copy of those records. Back up the store first if there is no backup.
Offsets do not change; removed records leave gaps.

At a server this needs the right `admin`; TOPIC needs the files of the store.

Examples:
  weir put orders x && weir compact
  weir topic create s compaction=latest && weir put s 1 -k a && weir compact s -o json")]
pub(crate) struct CompactArgs {
    /// Compact only this topic
    topic: Option<String>,
}

/// Fields of the compaction of a store.
pub(crate) const FIELDS: &[Field] = &[
    field(
        "index",
        "number",
        "log entry up to which the log was removed",
    ),
    field("log_bytes_before", "number", "bytes of log before"),
    field("log_bytes_after", "number", "bytes of log afterwards"),
];

/// Fields of the compaction of a topic.
pub(crate) const TOPIC_FIELDS: &[Field] = &[
    field("name", "text", "name of the topic"),
    field("records_before", "number", "records before the compaction"),
    field("records_after", "number", "records after the compaction"),
    field(
        "bytes_before",
        "number",
        "bytes of records before the compaction, as stored",
    ),
    field(
        "bytes_after",
        "number",
        "bytes of records after the compaction",
    ),
];

/// Runs `weir compact`.
pub(crate) fn run(caller: &Caller, args: &CompactArgs) -> anyhow::Result<ExitCode> {
    if let Some(name) = &args.topic {
        return topic(caller, name);
    }
    let Some(mut out) = caller.style.open(Shape::One, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let weir = place::open(caller, Access::Change)?;
    let report = weir.compact();
    let report = report.failed(|| "cannot compact the store".to_owned())?;
    out.row(&[
        Cell::Count(report.index.0),
        Cell::Size(report.log_bytes_before),
        Cell::Size(report.log_bytes_after),
    ])?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn topic(caller: &Caller, name: &str) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, TOPIC_FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let weir = place::open_files(
        caller,
        Access::Change,
        "weir compact TOPIC",
        "`weir compact` without TOPIC works at a server; or stop the server, then run the command \
         on its machine with `--at DIR`",
    )?;
    let failed = || format!("cannot compact {name}");
    weir.topic(name).failed(failed)?;
    let report = weir.store()?.compact_topic(name).failed(failed)?;
    out.row(&[
        Cell::Text(name.into()),
        Cell::Count(report.records_before),
        Cell::Count(report.records_after),
        Cell::Size(report.bytes_before),
        Cell::Size(report.bytes_after),
    ])?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
