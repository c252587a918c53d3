//! `weir jira pull` and `weir jira watch`: synchronise the replica with the site.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use weir_jira::JiraError;
use weir_jira::pull::{PullOptions, PullReport, pull_with};

use super::{chosen, client, failed, now_ms, outbox, replica};
use crate::caller::Caller;
use crate::interrupt::Interrupt;
use crate::output::{Cell, Field, Shape, field};
use crate::place::Access;
use crate::progress::ProgressTimer;
use crate::report::{self, FailureContext, note};
use crate::settings;

/// Fields of a pull.
const FIELDS: &[Field] = &[
    field("requests", "number", "requests sent"),
    field("stored", "number", "new or changed issues that were stored"),
    field("unchanged", "number", "issues that were already stored"),
    field(
        "unreadable",
        "number",
        "issues in a form that cannot be read, left out",
    ),
    field(
        "stale",
        "number",
        "outdated versions in answers of the site's index",
    ),
    field("gone", "number", "issues removed: deleted or hidden"),
    field("moved", "number", "issues that moved into another project"),
    field("repaired", "number", "missed issues that the census found"),
    field("restarted", "number", "wrong pages of the server"),
    field("writes", "number", "records written"),
];

#[derive(Debug, Args)]
#[command(after_long_help = "\
A pull without changes sends one request and writes nothing. Once a day it also looks for deletions
(census). What a pull that was cut short has stored stays, and the next one resumes there.

Examples:
  weir jira pull
  weir jira pull --census -o json")]
pub(super) struct PullArgs {
    /// Look for deletions and missed issues now
    #[arg(long)]
    census: bool,
    /// Remove more than a fifth of a project if the site no longer has those issues
    #[arg(long)]
    confirm_removal: bool,
    /// Also remove issues of projects that the account no longer sees, when looking for deletions
    #[arg(long)]
    purge_lost: bool,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
The outbox is pushed before each pull. Each pull that brought something is a row. An error is
reported, and the next time is waited for.

Examples:
  weir jira watch
  weir jira watch --every 5min -o json")]
pub(super) struct WatchArgs {
    /// Time between two pulls
    #[arg(long, default_value = "60s", value_parser = settings::duration, value_name = "TIME")]
    every: Duration,
}

/// Runs `weir jira pull`.
pub(super) fn pull(
    caller: &Caller,
    named: Option<&str>,
    args: &PullArgs,
) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let (name, site) = chosen(named)?;
    let client = client(caller, &name, &site)?;
    let replica = replica(caller, Access::Write, &name)?;
    let options = PullOptions {
        projects: site.projects.clone(),
        census: args.census,
        confirm_removal: args.confirm_removal,
        purge_lost: args.purge_lost,
        now_ms: now_ms(),
        ..PullOptions::default()
    };
    let mut timer = ProgressTimer::new();
    let report = pull_with(&client, &replica, &options, |report| {
        if timer.is_due(false) {
            let stored = report.stored;
            note(
                caller.quiet,
                &format!("pulling {name}: {stored} issues stored"),
            );
        }
    });
    let report = report.map_err(|error| failed(&format!("cannot pull {name}"), &error))?;
    out.row(&row(&report))?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `weir jira watch`.
pub(super) fn watch(
    caller: &Caller,
    named: Option<&str>,
    args: &WatchArgs,
) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::Stream, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let interrupt = Interrupt::new().failed(|| "cannot watch for signals".to_owned())?;
    interrupt
        .watch()
        .failed(|| "cannot watch for signals".to_owned())?;
    let (name, site) = chosen(named)?;
    let client = client(caller, &name, &site)?;
    let replica = replica(caller, Access::Write, &name)?;
    while !interrupt.is_requested() {
        let pushed = outbox::send(caller, &client, &replica);
        let options = PullOptions {
            projects: site.projects.clone(),
            now_ms: now_ms(),
            ..PullOptions::default()
        };
        let pulled = |_| weir_jira::pull::pull(&client, &replica, &options);
        match pushed.and_then(pulled) {
            Ok(report) if report.writes > 0 => {
                out.row(&row(&report))?;
                out.flush()?;
            }
            Ok(_) => {}
            Err(
                error @ (JiraError::Unauthenticated | JiraError::Captcha | JiraError::Store(_)),
            ) => {
                return Err(failed(&format!("cannot synchronize {name}"), &error).into());
            }
            Err(error) => {
                report::print_failure(&failed(&format!("cannot synchronize {name}"), &error));
            }
        }
        let deadline = Instant::now() + args.every;
        while !interrupt.is_requested() && Instant::now() < deadline {
            interrupt.pause(deadline.saturating_duration_since(Instant::now()));
        }
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn row(report: &PullReport) -> [Cell<'static>; 10] {
    [
        report.requests,
        report.stored,
        report.unchanged,
        report.unreadable,
        report.stale,
        report.gone,
        report.moved,
        report.repaired,
        report.restarted,
        report.writes,
    ]
    .map(Cell::Count)
}
