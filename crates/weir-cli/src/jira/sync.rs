//! `weir jira pull` and `weir jira watch`: synchronise the replica with the site.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use weir_jira::JiraError;
use weir_jira::pull::{PullOptions, PullReport, pull_with};

use super::{client, failed, now_ms, outbox, replica, select_site};
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
    field(
        "unchanged",
        "number",
        "issues that the site sent in the version that was already stored",
    ),
    field(
        "unreadable",
        "number",
        "issues in an unreadable form, which were skipped",
    ),
    field(
        "incomplete",
        "number",
        "issues whose comments or worklogs the site did not send completely",
    ),
    field(
        "stale",
        "number",
        "outdated versions of issues that the index of the site returned",
    ),
    field(
        "gone",
        "number",
        "issues removed because they were deleted or hidden at the site",
    ),
    field("moved", "number", "issues that moved into another project"),
    field(
        "repaired",
        "number",
        "issues that earlier pulls missed and the census found",
    ),
    field(
        "sampled",
        "number",
        "issues that were read again, once a week",
    ),
    field(
        "outdated",
        "number",
        "sampled issues that had changed without a new time of change",
    ),
    field(
        "restarted",
        "number",
        "restarts of a query because of inconsistent pages",
    ),
    field("writes", "number", "records written"),
];

#[derive(Debug, Args)]
#[command(after_long_help = "\
A pull without changes sends one request and writes nothing. Once a day, a pull also runs a census: it
compares the keys of all issues, to find deleted and missed issues. Once a week, the census also
reads a sample of the issues again: 1 % of them, but at least 100 and at most 1,000. If a pull is
interrupted, the issues that it stored remain, and the next pull resumes there.

Examples:
  weir jira pull
  weir jira pull --census -o json")]
pub(super) struct PullArgs {
    /// Run the census now: find deleted and missed issues
    #[arg(long)]
    census: bool,
    /// Allow the census to remove more than a fifth of a project
    #[arg(long)]
    confirm_removal: bool,
    /// In the census, also remove the issues of projects that the account can no longer see
    #[arg(long)]
    purge_lost: bool,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Before each pull, the command pushes the outbox. Each pull that wrote records prints a row. After an
error, the command prints the error and continues after the next --every. It ends if the site rejects
the token, or if the store fails.

Examples:
  weir jira watch
  weir jira watch --every 5m -o json")]
pub(super) struct WatchArgs {
    /// Pause between two pulls
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
    let (name, site) = select_site(named)?;
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
    let interrupt = Interrupt::new().failed(|| "cannot install the signal handlers".to_owned())?;
    interrupt
        .watch()
        .failed(|| "cannot install the signal handlers".to_owned())?;
    let (name, site) = select_site(named)?;
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

fn row(report: &PullReport) -> [Cell<'static>; 13] {
    [
        report.requests,
        report.stored,
        report.unchanged,
        report.unreadable,
        report.incomplete,
        report.stale,
        report.gone,
        report.moved,
        report.repaired,
        report.sampled,
        report.outdated,
        report.restarted,
        report.writes,
    ]
    .map(Cell::Count)
}
