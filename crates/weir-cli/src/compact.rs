//! `weir compact`: a snapshot, and then less log.

use std::process::ExitCode;

use clap::Args;

use crate::caller::Caller;
use crate::output::{Cell, Field, Shape, field};
use crate::place::{self, Access};
use crate::report::Because;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Afterwards the topic segments are the only copy of the records of that part: back up first if
there is no backup. No record of a topic is removed; see `weir topic compact` for that.

Examples:
  weir put orders x && weir compact
  weir put orders x && weir compact -o json")]
pub(crate) struct CompactArgs {}

/// Fields of a compaction.
pub(crate) const FIELDS: &[Field] = &[
    field(
        "index",
        "number",
        "log entry up to which the log was removed",
    ),
    field("log_bytes_before", "number", "bytes of log before"),
    field("log_bytes_after", "number", "bytes of log now"),
];

/// Carries out `weir compact`.
pub(crate) fn run(caller: &Caller, _args: &CompactArgs) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let weir = place::open_files(
        caller,
        Access::Read,
        "weir compact",
        "run it on the machine of the server, with `--at DIR`, while nothing serves it",
    )?;
    let report = weir.store()?.compact_log();
    let report = report.failed(|| "cannot compact the log".to_owned())?;
    out.row(&[
        Cell::Count(report.index.0),
        Cell::Size(report.log_bytes_before),
        Cell::Size(report.log_bytes_after),
    ])?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
