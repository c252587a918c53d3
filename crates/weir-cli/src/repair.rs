//! `weir repair`: creates a new store from the readable part of a damaged one.
//!
//! Invariants:
//! - The damaged store is only read.
//! - The report contains all known losses.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use weir::{MissingRange, SalvageReport, SalvagedTopic, StoreError};

use crate::bytes::json_string;
use crate::caller::Caller;
use crate::output::{Cell, Field, Shape, field};
use crate::place;
use crate::report::{Failure, counted, note};
use crate::target;
use crate::verify;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Reads the damaged store of --at and writes a new store to TARGET. The damaged store is not changed,
and no process may have it open. The new store always has a state that the damaged store had. Log
entries after the first damage of the log are lost. If the log was purged, the records in damaged
blocks of topics are lost too.

Exit codes:
  0   nothing is lost
  1   the new store was written (with --dry-run: would be), and something is lost
  65  no store can be written
`weir help exit` lists the others.

Examples:
  weir put orders x && weir repair --dry-run
  weir put orders x && weir repair ./repaired && weir verify ./repaired -o json")]
pub(crate) struct RepairArgs {
    /// Target directory; it must be new or empty
    #[arg(required_unless_present = "dry_run")]
    target: Option<PathBuf>,
    /// Report what can be kept and what is lost, and write nothing
    #[arg(long)]
    dry_run: bool,
}

/// Fields of a repair.
pub(crate) const FIELDS: &[Field] = &[
    field(
        "target",
        "text",
        "directory of the new store, null: dry run",
    ),
    field("complete", "bool", "whether nothing is lost"),
    field(
        "index",
        "number",
        "index of the newest log entry in the new store",
    ),
    field(
        "applied",
        "number",
        "newest intention in the new store; later ones are lost",
    ),
    field("digest", "text", "digest of the state of the new store"),
    field(
        "log_complete",
        "bool",
        "whether the log was readable to its end",
    ),
    field(
        "topics",
        "list",
        "per topic: first and last offset in the new store, and ranges of offsets that are lost",
    ),
    field(
        "findings",
        "list",
        "damage in the old store: severity, file, byte position, description",
    ),
];

/// Runs `weir repair`.
pub(crate) fn run(caller: &Caller, args: &RepairArgs) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let source = PathBuf::from(place::directory(
        caller,
        "weir repair",
        "stop the server, then run the command on its machine with `--at DIR`",
    )?);
    let target = args.target.as_deref().filter(|_| !args.dry_run);
    let target = target.map(|target| target::check(target, &source));
    let target = target.transpose()?;
    let report = match &target {
        Some(target) => weir::salvage(&source, target),
        None => weir::salvage_dry_run(&source),
    };
    let report = report.map_err(|error| {
        let what = format!("cannot repair the store in {}", source.display());
        let failure = Failure::store(what, &error).tool();
        match error {
            StoreError::Damage { .. } => failure.advise("restore from a backup"),
            _ => failure,
        }
    })?;
    let findings = report.findings.iter();
    let findings = findings.map(|found| (verify::json(found), verify::line(found)));
    out.row(&[
        target.map_or(Cell::Nothing, |target| {
            Cell::Text(target.display().to_string().into())
        }),
        Cell::Flag(report.is_complete()),
        Cell::Count(report.index.0),
        Cell::Count(report.applied.0),
        Cell::Text(report.digest.to_string().into()),
        Cell::Flag(report.log_complete),
        Cell::Many(topics(&report)),
        Cell::Many(findings.collect()),
    ])?;
    out.finish()?;
    if report.is_complete() {
        return Ok(ExitCode::SUCCESS);
    }
    let loses = if args.dry_run { "would lose" } else { "loses" };
    let what = losses(&report);
    note(false, &format!("the new store {loses} {what}"));
    Ok(ExitCode::FAILURE)
}

/// Describes the losses.
fn losses(report: &SalvageReport) -> String {
    let mut parts = Vec::new();
    if !report.log_complete {
        let applied = report.applied;
        parts.push(format!("every write after intention {applied}"));
    }
    let topics = report.lost.iter().chain(&report.lost_later);
    let topics: BTreeSet<&str> = topics.map(|lost| lost.topic.as_str()).collect();
    if !topics.is_empty() {
        let topics = counted(topics.len() as u64, "topic", "topics");
        parts.push(format!("records of {topics}"));
    }
    parts.join(" and ")
}

/// Each topic as JSON and as a line.
fn topics(report: &SalvageReport) -> Vec<(String, String)> {
    let all = || report.lost.iter().chain(&report.lost_later);
    let known: BTreeSet<&str> = report.kept.iter().map(|kept| &*kept.topic).collect();
    let missing: BTreeSet<&str> = all()
        .map(|lost| &*lost.topic)
        .filter(|name| !known.contains(name))
        .collect();
    let missing = missing.into_iter().map(|name| SalvagedTopic {
        topic: name.to_owned(),
        first: 0,
        last: 0,
    });
    let kept = report.kept.iter().cloned().chain(missing);
    kept.map(|kept| {
        let lost: Vec<&MissingRange> = all().filter(|lost| lost.topic == kept.topic).collect();
        (json(&kept, &lost), line(&kept, &lost))
    })
    .collect()
}

fn json(kept: &SalvagedTopic, lost: &[&MissingRange]) -> String {
    let ranges = lost
        .iter()
        .map(|lost| format!("[{},{}]", lost.first, lost.last));
    format!(
        "{{\"topic\":{},\"first\":{},\"last\":{},\"lost\":[{}]}}",
        json_string(&kept.topic),
        kept.first,
        kept.last,
        ranges.collect::<Vec<_>>().join(",")
    )
}

fn line(kept: &SalvagedTopic, lost: &[&MissingRange]) -> String {
    let SalvagedTopic { topic, first, last } = kept;
    let mut line = match first {
        0 => format!("{topic}: retains no record"),
        _ => format!("{topic}: retains {first} to {last}"),
    };
    for lost in lost {
        // Writing to a string cannot fail.
        let _ = write!(line, ", loses {} to {}", lost.first, lost.last);
    }
    line
}
