//! `weir verify`: checks every byte of a store.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use weir::{ErrorCode, Finding, Severity, StoreError, VerifyProgress, VerifyReport};

use crate::bytes::json_string;
use crate::caller::Caller;
use crate::output::{Cell, Field, Shape, field};
use crate::place;
use crate::report::{Failure, counted, note};

/// Time between two lines about the progress of a check.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
#[command(after_long_help = "\
Reads all files and changes nothing. A damaged file that the log can rebuild is a finding, but the
store is still sound. Damage in the only copy of data makes the store unsound: the exit code is 65.

Examples:
  weir put orders x && weir verify
  weir put orders x --at ./other && weir verify ./other -o json")]
pub(crate) struct VerifyArgs {
    /// Directory of the store [else that of --at]
    directory: Option<PathBuf>,
}

/// Fields of a check.
pub(crate) const FIELDS: &[Field] = &[
    field(
        "sound",
        "bool",
        "whether the store can be opened without loss of data",
    ),
    field(
        "clean",
        "bool",
        "whether no damage was found, not even in files that the log can rebuild",
    ),
    field("files", "number", "files read"),
    field("bytes", "number", "bytes read"),
    field("entries", "number", "valid log entries"),
    field("records", "number", "records in the segments of topics"),
    field(
        "applied",
        "number",
        "newest intention, null: the state could not be rebuilt",
    ),
    field(
        "digest",
        "text",
        "digest of the state, null: the state could not be rebuilt",
    ),
    field(
        "findings",
        "list",
        "problems, the worst first: severity, file, byte position, description",
    ),
    field(
        "left_out",
        "number",
        "number of findings after the first 1,000, which are not listed",
    ),
];

/// Runs `weir verify`.
pub(crate) fn run(caller: &Caller, args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let at = match &args.directory {
        Some(directory) => directory.as_path(),
        None => Path::new(place::directory(
            caller,
            "weir verify",
            "check one topic with `weir topic verify NAME`, or the files on the server's machine with `--at DIR`",
        )?),
    };
    let report = check(at, caller.quiet)?;
    let findings = report
        .findings
        .iter()
        .map(|found| (json(found), line(found)));
    out.row(&[
        Cell::Flag(report.is_sound()),
        Cell::Flag(report.is_clean()),
        Cell::Count(report.files),
        Cell::Size(report.bytes),
        Cell::Count(report.entries),
        Cell::Count(report.records),
        report
            .applied
            .map_or(Cell::Nothing, |applied| Cell::Count(applied.0)),
        report.digest.map_or(Cell::Nothing, |digest| {
            Cell::Text(Cow::Owned(digest.to_string()))
        }),
        Cell::Many(findings.collect()),
        Cell::Count(report.left_out),
    ])?;
    out.finish()?;
    ensure_sound(at, &report)?;
    if !report.is_clean() {
        note(
            caller.quiet,
            "the next open rebuilds the damaged files from the log",
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks the store in a directory.
pub(crate) fn check(at: &Path, quiet: bool) -> anyhow::Result<VerifyReport> {
    let what = || format!("cannot check the store in {}", at.display());
    let mut next = Instant::now() + PROGRESS_EVERY;
    let mut watch = |progress: VerifyProgress| {
        if Instant::now() >= next {
            next = Instant::now() + PROGRESS_EVERY;
            let (done, total) = (progress.done_bytes >> 20, progress.total_bytes >> 20);
            note(quiet, &format!("checked {done} of about {total} MiB"));
        }
    };
    let report = weir::verify_watched(at, &mut watch);
    Ok(report.map_err(|error| {
        let failure = Failure::store(what(), &error).tool();
        match error {
            // The directory may be an argument, so the advice does not name an option.
            StoreError::Missing { what: "store" } => {
                failure.advise(format!("check the path {}", at.display()))
            }
            _ => failure,
        }
    })?)
}

/// Fails unless the store is sound.
pub(crate) fn ensure_sound(at: &Path, report: &VerifyReport) -> anyhow::Result<()> {
    let worst = report
        .findings
        .iter()
        .filter(|found| found.severity == Severity::Damage);
    let count = worst.clone().count() as u64 + report.left_out;
    match worst.into_iter().next() {
        None => Ok(()),
        Some(first) => {
            let what = format!("the store in {} is damaged", at.display());
            let count = counted(count, "finding", "findings");
            let why = format!("{count}; {}", line(first));
            let failure = Failure::new(ErrorCode::Damaged, what).because(why);
            let advice = "keep a copy of this directory; restore a backup, or list with `weir repair --dry-run` what can be repaired";
            Err(failure.advise(advice).tool().into())
        }
    }
}

fn severity(found: &Finding) -> &'static str {
    match found.severity {
        Severity::Note => "note",
        Severity::Derived => "derived",
        Severity::Damage => "damage",
    }
}

pub(crate) fn json(found: &Finding) -> String {
    format!(
        "{{\"severity\":\"{}\",\"file\":{},\"position\":{},\"what\":{}}}",
        severity(found),
        json_string(&found.file),
        found.position,
        json_string(&found.what),
    )
}

pub(crate) fn line(found: &Finding) -> String {
    let (severity, what) = (severity(found), &found.what);
    format!(
        "{severity} in {} at byte {}: {what}",
        found.file, found.position
    )
}
