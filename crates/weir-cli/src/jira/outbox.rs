//! `weir jira push`, `outbox`, `resolve` and `fields`: send and inspect queued changes.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use weir::ErrorCode;
use weir_jira::client::Client;
use weir_jira::meta;
use weir_jira::op::{self, Op};
use weir_jira::outbox::{Choice, Outbox};
use weir_jira::push::{self, PushOptions, PushReport};
use weir_jira::replica::Replica;

use super::edit::{FIELDS, row};
use super::{client, failed, now_ms, replica, select_site};
use crate::caller::Caller;
use crate::output::{Cell, Field, Format, Shape, field};
use crate::place::Access;
use crate::report::{self, Failure, note};

/// Fields of a push.
const PUSHED: &[Field] = &[
    field("requests", "number", "requests sent"),
    field("sent", "number", "operations that were executed"),
    field(
        "already",
        "number",
        "operations that the site had already executed",
    ),
    field("merged", "number", "texts merged with changes by others"),
    field("conflicts", "number", "operations in conflict"),
    field("rejected", "number", "operations that the site rejected"),
    field("unknown", "number", "operations whose outcome is unknown"),
    field(
        "waiting",
        "number",
        "operations that wait for another operation, or for a retry",
    ),
    field(
        "overwritten",
        "number",
        "changes by others that were overwritten between read and write",
    ),
];

/// Fields of an editable field.
pub(super) const KINDS: &[Field] = &[
    field("id", "text", "id of the field"),
    field("name", "text", "name of the field"),
    field("kind", "text", "kind of the values"),
    field("required", "flag", "whether the field must have a value"),
    field(
        "allowed",
        "text",
        "accepted values, separated by commas; null: any",
    ),
];

#[derive(Debug, Args)]
#[command(after_long_help = "\
The operations of an issue are sent in order. An operation that is in conflict or rejected remains in
the outbox with its reason, and the exit code is 1; use `weir jira resolve`. After a lost connection,
the push first checks whether the site executed the operation, so that no change is lost or repeated.

Examples:
  weir jira push
  weir jira push -o json")]
pub(super) struct PushArgs {}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  weir jira outbox
  weir jira outbox 7 -o json")]
pub(super) struct OutboxArgs {
    /// Number or id of one operation, to show all its values
    op: Option<String>,
}

/// The decision of the user.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Decision {
    /// Your value replaces the value of the site
    Mine,
    /// The value of the site remains
    Theirs,
    /// Send a rejected change again, unchanged
    Retry,
    /// Discard the change without sending it
    Drop,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  weir jira resolve 7 mine
  weir jira resolve 7 mine --field summary --value 'Both of us'
  weir jira resolve 7 drop")]
pub(super) struct ResolveArgs {
    /// Number or id of the operation
    op: String,
    /// Decision about the operation
    decision: Decision,
    /// Field in conflict [else all fields in conflict]
    #[arg(long, value_name = "FIELD")]
    field: Option<String>,
    /// Value that replaces both values; needs `mine` and --field
    #[arg(long, value_name = "VALUE")]
    value: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Prints the fields as the site described them last. Without --ask, no request is sent.

Examples:
  weir jira fields AA-1
  weir jira fields AA-1 --ask")]
pub(super) struct FieldsArgs {
    /// Key of the issue
    key: String,
    /// Ask the site which fields can be edited now
    #[arg(long)]
    ask: bool,
}

/// Runs `weir jira push`.
pub(super) fn push(caller: &Caller, named: Option<&str>, _: &PushArgs) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, PUSHED)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let (name, site) = select_site(named)?;
    let client = client(caller, &name, &site)?;
    let replica = replica(caller, Access::Write, &name)?;
    let report = send(caller, &client, &replica);
    let report = report.map_err(|error| failed(&format!("cannot push to {name}"), &error))?;
    let counts = [
        report.requests,
        report.sent,
        report.already,
        report.merged,
        report.conflicts,
        report.rejected,
        report.unknown,
        report.waiting,
        report.overwritten,
    ];
    out.row(&counts.map(Cell::Count))?;
    out.finish()?;
    if report.conflicts + report.rejected > 0 {
        let advice = "list the operations with `weir jira outbox`, then use `weir jira resolve`";
        let text = format!(
            "{} operations need a decision",
            report.conflicts + report.rejected
        );
        let failure = Failure::new(ErrorCode::Conflict, "some operations were not pushed");
        return Err(failure.because(text).advise(advice).into());
    }
    Ok(ExitCode::SUCCESS)
}

/// Pushes the outbox, and prints warnings for the user.
pub(super) fn send(
    caller: &Caller,
    client: &Client,
    replica: &Replica,
) -> weir_jira::Result<PushReport> {
    let report = push::push(client, replica, &PushOptions { now_ms: now_ms() })?;
    for message in &report.messages {
        note(caller.quiet, message);
    }
    Ok(report)
}

/// Runs `weir jira outbox`.
pub(super) fn list(
    caller: &Caller,
    named: Option<&str>,
    args: &OutboxArgs,
) -> anyhow::Result<ExitCode> {
    let shape = if args.op.is_some() {
        Shape::One
    } else {
        Shape::List
    };
    let Some(mut out) = caller.style.open(shape, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let (name, _) = select_site(named)?;
    let replica = replica(caller, Access::Read, &name)?;
    let outbox = Outbox::new(&replica, now_ms());
    let Some(wanted) = &args.op else {
        let ops = outbox.listing();
        for op in ops.map_err(|error| failed("cannot list the outbox", &error))? {
            out.row(&row(&op))?;
        }
        out.finish()?;
        return Ok(ExitCode::SUCCESS);
    };
    let op = outbox.find(wanted);
    let op = op.map_err(|error| failed(&format!("cannot show operation {wanted}"), &error))?;
    if matches!(caller.style.format, Some(Format::Json | Format::Jsonl)) {
        let text = format!("{}\n", serde_json::to_string(&op)?);
        report::stdout(std::io::Write::write_all(
            &mut std::io::stdout(),
            text.as_bytes(),
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    out.row(&row(&op))?;
    out.finish()?;
    conflicts(&op)
}

/// Prints the three values of each conflict.
fn conflicts(op: &Op) -> anyhow::Result<ExitCode> {
    let mut text = String::new();
    for part in &op.conflicts {
        let shown = |value| crate::bytes::printable(op::shown(value).as_bytes());
        let (base, mine, theirs) = (shown(&part.base), shown(&part.mine), shown(&part.theirs));
        _ = writeln!(text, "\n{}\n  base    {base}\n  mine    {mine}", part.field);
        _ = writeln!(text, "  theirs  {theirs}");
    }
    report::stdout(std::io::Write::write_all(
        &mut std::io::stdout(),
        text.as_bytes(),
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `weir jira resolve`.
pub(super) fn resolve(
    caller: &Caller,
    named: Option<&str>,
    args: &ResolveArgs,
) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::List, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let (name, _) = select_site(named)?;
    let replica = replica(caller, Access::Write, &name)?;
    let outbox = Outbox::new(&replica, now_ms());
    let choice = match args.decision {
        Decision::Mine => Choice::Mine,
        Decision::Theirs => Choice::Theirs,
        Decision::Retry => Choice::Retry,
        Decision::Drop => Choice::Drop,
    };
    let done = outbox.resolve(
        &args.op,
        choice,
        args.field.as_deref(),
        args.value.as_deref(),
    );
    let done = done.map_err(|error| failed(&format!("cannot resolve {}", args.op), &error))?;
    match &done {
        Some(op) => out.row(&row(op))?,
        None => note(
            caller.quiet,
            &format!("operation {} is removed from the outbox", args.op),
        ),
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `weir jira fields`.
pub(super) fn fields(
    caller: &Caller,
    named: Option<&str>,
    args: &FieldsArgs,
) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::List, KINDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let what = format!("cannot list the fields of {}", args.key);
    let (name, site) = select_site(named)?;
    let access = if args.ask {
        Access::Write
    } else {
        Access::Read
    };
    let replica = replica(caller, access, &name)?;
    if args.ask {
        let client = client(caller, &name, &site)?;
        let fetched = meta::fetch_issue(&client, &replica, &args.key);
        fetched.map_err(|error| failed(&what, &error))?;
    }
    let found = Outbox::new(&replica, now_ms()).fields(&args.key);
    let found = found.map_err(|error| failed(&what, &error))?;
    for info in &found {
        let text = |text| Cell::Text(Cow::Borrowed(text));
        let allowed = match info.allowed.as_slice() {
            [] => Cell::Nothing,
            values => Cell::Text(Cow::Owned(values.join(","))),
        };
        out.row(&[
            text(&info.id),
            text(&info.name),
            Cell::Text(Cow::Owned(info.kind.name())),
            Cell::Flag(info.required),
            allowed,
        ])?;
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
