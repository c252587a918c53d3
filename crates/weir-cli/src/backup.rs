//! `weir backup`: copies a store. The copy is a complete store.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;

use crate::caller::Caller;
use crate::output::{Cell, Field, Shape, field};
use crate::place::{self, Access};
use crate::report::Failure;
use crate::serve::node;
use crate::target;

#[derive(Debug, Args)]
#[command(after_long_help = "\
A backup is a store: it can be opened, verified, served and restored. It is complete or does not
exist. No server may have the store open, and it must not be a node of a cluster: for both,
`weir serve --backups DIR` writes a backup on SIGUSR1.

Examples:
  weir put orders x && weir backup ./copy
  weir put orders x && weir backup ./second -o json && weir verify ./second")]
pub(crate) struct BackupArgs {
    /// Target directory; it must be new or empty
    target: PathBuf,
}

/// Fields of a backup.
pub(crate) const FIELDS: &[Field] = &[
    field("target", "text", "directory of the copy"),
    field(
        "index",
        "number",
        "index of the newest log entry in the copy",
    ),
    field("files", "number", "files copied"),
    field("bytes", "number", "bytes copied"),
    field("ms", "number", "duration of the backup in milliseconds"),
];

/// Runs `weir backup`.
pub(crate) fn run(caller: &Caller, args: &BackupArgs) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let started = Instant::now();
    let (verb, instead) = ("weir backup", node::BACKUP_BY_SERVER);
    let at = place::directory(caller, verb, instead)?;
    node::refuse_copy(caller, Path::new(at), format!("cannot back up {at}"))?;
    let weir = place::open_files(caller, Access::Change, verb, instead)?;
    let target = target::check(&args.target, Path::new(at))?;
    let shown = target.display().to_string();
    let report = weir.store()?.backup(&target);
    let report = report
        .map_err(|error| Failure::store(format!("cannot back up into {shown}"), &error).tool())?;
    out.row(&[
        Cell::Text(shown.into()),
        Cell::Count(report.index.0),
        Cell::Count(report.files),
        Cell::Size(report.bytes),
        Cell::Count(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)),
    ])?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
