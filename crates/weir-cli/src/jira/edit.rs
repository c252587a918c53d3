//! `weir jira set`, `move`, `comment`, `create` and the other changes. They queue operations, and
//! send nothing.

use std::borrow::Cow;
use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use weir::ErrorCode;
use weir_jira::op::{Op, State};
use weir_jira::outbox::{EditBase, Outbox};

use super::{failed, now_ms, replica, select_site};
use crate::caller::Caller;
use crate::confirm::confirm;
use crate::output::{Cell, Field, Shape, field, wide};
use crate::place::Access;
use crate::report::{Failure, FailureContext, note};
use crate::settings;

/// Maximum bytes of a text from a file or standard input.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// Fields of an operation.
pub(super) const FIELDS: &[Field] = &[
    field("number", "number", "number of the operation in the outbox"),
    field(
        "issue",
        "text",
        "key of the issue; contains + until the issue is created",
    ),
    field("kind", "text", "kind of change"),
    field(
        "state",
        "text",
        "queued, sending, unknown, conflict, rejected or sent",
    ),
    field("what", "text", "what the operation changes"),
    field(
        "problem",
        "text",
        "why the operation was not executed; null: no problem",
    ),
    wide("conflicts", "number", "fields in conflict"),
    wide(
        "attempts",
        "number",
        "number of times that the operation was sent",
    ),
    wide(
        "created",
        "time",
        "when the operation was created, RFC 3339 UTC",
    ),
    wide(
        "op",
        "text",
        "id of the operation, which the site stores too",
    ),
];

/// An operation as a row.
pub(super) fn row(op: &Op) -> [Cell<'_>; 10] {
    let text = |text| Cell::Text(Cow::Borrowed(text));
    let problem = op.problem.as_deref();
    [
        Cell::Count(op.number),
        text(&op.key),
        text(op.action.name()),
        text(op.state.name()),
        Cell::Text(Cow::Owned(op.what())),
        problem.map_or(Cell::Nothing, text),
        Cell::Count(u64::try_from(op.conflicts.len()).unwrap_or(u64::MAX)),
        Cell::Count(op.attempts.into()),
        u64::try_from(op.created_ms).map_or(Cell::Nothing, Cell::Time),
        text(&op.id),
    ]
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
FIELD is the id or name of a field; `weir jira fields KEY` lists them. Values:
  FIELD=VALUE        the new value; rich text is org
  FIELD=             empties the field
  FIELD=@FILE        reads the value from a file, FIELD=@- from standard input
  FIELD=A,B          sets all items of a list
  FIELD=+A,-B        adds and removes items of a list
The edit is stored in the outbox; `weir jira push` sends it.

Examples:
  weir jira set AA-1 summary='A better summary' priority=High due=2030-01-31
  weir jira set AA-1 labels=+red,-blue description=@text.org")]
pub(super) struct EditArgs {
    /// Key of the issue
    key: String,
    /// Fields with their new values
    #[arg(required = true, value_name = "FIELD=VALUE", value_parser = assignment)]
    fields: Vec<(String, String)>,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  weir jira move AA-1 'In Progress'
  weir jira move AA-1 Done resolution=Fixed --comment 'Shipped.'")]
pub(super) struct MoveArgs {
    /// Key of the issue
    key: String,
    /// New status
    status: String,
    /// Fields to set in the transition
    #[arg(value_name = "FIELD=VALUE", value_parser = assignment)]
    fields: Vec<(String, String)>,
    /// Comment to add, as org text
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  weir jira assign AA-1 me
  weir jira assign AA-1 none")]
pub(super) struct AssignArgs {
    /// Key of the issue
    key: String,
    /// Assignee: `me`, `none`, a name, an e-mail address or an account id
    who: String,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  weir jira label AA-1 red green
  weir jira label AA-1 --remove blue")]
pub(super) struct LabelArgs {
    /// Key of the issue
    key: String,
    /// Labels to add
    #[arg(required_unless_present = "remove")]
    labels: Vec<String>,
    /// Labels to remove
    #[arg(long, value_delimiter = ',', value_name = "LABEL")]
    remove: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  weir jira watch-issue AA-1
  weir jira watch-issue AA-1 --off")]
pub(super) struct WatchIssueArgs {
    /// Key of the issue
    key: String,
    /// Stop watching
    #[arg(long)]
    off: bool,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  weir jira link AA-1 blocks AA-2
  weir jira link AA-1 'is blocked by' AA-2 --remove")]
pub(super) struct LinkArgs {
    /// Key of the issue
    key: String,
    /// Phrase of the link in Jira, such as `blocks` or `is blocked by`
    phrase: String,
    /// Key of the other issue
    other: String,
    /// Remove the link
    #[arg(long)]
    remove: bool,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
The text is org. Without TEXT and --file, it is read from standard input.

Examples:
  weir jira comment AA-1 'I see it too.'
  weir jira comment AA-1 --edit 10023 'I saw it *twice*.'
  weir jira comment AA-1 --delete 10023")]
pub(super) struct CommentArgs {
    /// Key of the issue
    key: String,
    /// Text of the comment
    #[arg(conflicts_with = "delete")]
    text: Option<String>,
    /// Read the text from a file; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "delete"])]
    file: Option<String>,
    /// Replace the text of the comment with this id
    #[arg(long, value_name = "ID", conflicts_with = "delete")]
    edit: Option<String>,
    /// Delete the comment with this id
    #[arg(long, value_name = "ID")]
    delete: Option<String>,
    /// With --delete: do not ask for confirmation
    #[arg(short, long, requires = "delete", conflicts_with_all = ["text", "file", "edit"])]
    yes: bool,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  weir jira worklog AA-1 90m --comment 'Looked for it.'
  weir jira worklog AA-1 2h --edit 10042
  weir jira worklog AA-1 --delete 10042
  weir jira worklog AA-1 2h --started '2026-11-23 09:00'")]
pub(super) struct WorklogArgs {
    /// Key of the issue
    key: String,
    /// Time spent, such as 90m; optional with --edit
    #[arg(value_parser = settings::duration, value_name = "TIME",
        required_unless_present_any = ["edit", "delete"], conflicts_with = "delete")]
    spent: Option<Duration>,
    /// Start of the work, `YYYY-MM-DD HH:MM` in the time zone of the account [else TIME ago]
    #[arg(long, value_name = "TIME")]
    started: Option<String>,
    /// Description of the work, as org text
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
    /// Change the worklog with this id; parts that are not given keep their values
    #[arg(long, value_name = "ID", conflicts_with = "delete")]
    edit: Option<String>,
    /// Delete the worklog with this id
    #[arg(long, value_name = "ID", conflicts_with_all = ["started", "comment"])]
    delete: Option<String>,
    /// With --delete: do not ask for confirmation
    #[arg(short, long, requires = "delete", conflicts_with_all = ["spent", "edit"])]
    yes: bool,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Until the issue exists at the site, its key contains a +. All commands accept this key, also later.

Examples:
  weir jira create AA Bug 'Login is slow' priority=High assignee=me
  weir jira create AA Subtask 'Measure it' --parent AA-1")]
pub(super) struct CreateArgs {
    /// Key of the project
    project: String,
    /// Type of the issue
    #[arg(value_name = "TYPE")]
    kind: String,
    /// Summary of the issue
    summary: String,
    /// Values of other fields
    #[arg(value_name = "FIELD=VALUE", value_parser = assignment)]
    fields: Vec<(String, String)>,
    /// Key of the parent issue; the new issue becomes its subtask
    #[arg(long, value_name = "KEY")]
    parent: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
The copy is linked to the issue if the site has the link type `Cloners`.

Examples:
  weir jira clone AA-1
  weir jira clone AA-1 summary='The same on a phone'")]
pub(super) struct CloneArgs {
    /// Key of the issue
    key: String,
    /// Fields with other values in the copy
    #[arg(value_name = "FIELD=VALUE", value_parser = assignment)]
    fields: Vec<(String, String)>,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  weir jira rm AA-1
  weir jira rm AA-1 --subtasks --yes")]
pub(super) struct DeleteArgs {
    /// Key of the issue
    key: String,
    /// Delete the subtasks of the issue too
    #[arg(long)]
    subtasks: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

/// A change of an issue.
#[derive(Debug)]
pub(super) enum Change<'a> {
    Edit(&'a EditArgs),
    Move(&'a MoveArgs),
    Assign(&'a AssignArgs),
    Label(&'a LabelArgs),
    Watch(&'a WatchIssueArgs),
    Link(&'a LinkArgs),
    Comment(&'a CommentArgs),
    Worklog(&'a WorklogArgs),
    Create(&'a CreateArgs),
    Clone(&'a CloneArgs),
    Delete(&'a DeleteArgs),
}

/// Parses `FIELD=VALUE`.
pub(super) fn assignment(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("there is no `=` between field and value")?;
    if name.trim().is_empty() {
        return Err("there is no field before `=`".to_owned());
    }
    Ok((name.trim().to_owned(), value.to_owned()))
}

/// Queues a change, and prints the operation.
pub(super) fn change(
    caller: &Caller,
    named: Option<&str>,
    change: &Change<'_>,
) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let what = what(change);
    let (name, _) = select_site(named)?;
    // Reading a text or an answer can take minutes. A pull meanwhile must not become the base, and
    // must not wait for the store.
    let base = match edited(change) {
        Some(key) => {
            let replica = replica(caller, Access::Read, &name)?;
            let base = Outbox::new(&replica, now_ms()).edit_base(key);
            Some(base.map_err(|error| failed(&what, &error))?)
        }
        None => None,
    };
    let texts = texts(change)?;
    let replica = replica(caller, Access::Write, &name)?;
    let outbox = Outbox::new(&replica, now_ms());
    let op = match &base {
        Some(base) => queue_edit(&outbox, change, &texts, base),
        None => queue(&outbox, change, &texts),
    };
    let op = op.map_err(|error| failed(&what, &error))?;
    out.row(&row(&op))?;
    out.finish()?;
    if op.state == State::Queued {
        note(
            caller.quiet,
            "the change is queued; `weir jira push` sends it",
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// The issue of a change that reads a text, or asks the user, before it is queued.
fn edited<'a>(change: &Change<'a>) -> Option<&'a str> {
    match change {
        Change::Edit(args) if args.fields.iter().any(|(_, value)| value.starts_with('@')) => {
            Some(&args.key)
        }
        Change::Comment(args) if args.edit.is_some() && args.text.is_none() => Some(&args.key),
        Change::Comment(CommentArgs { key, .. })
        | Change::Worklog(WorklogArgs { key, .. })
        | Change::Delete(DeleteArgs { key, .. })
            if unconfirmed(change).is_some() =>
        {
            Some(key)
        }
        _ => None,
    }
}

/// The kind and the name of the object that a change deletes, if the user must confirm it.
fn unconfirmed<'a>(change: &Change<'a>) -> Option<(&'static str, &'a str)> {
    match change {
        Change::Comment(args) if !args.yes => Some(("comment", args.delete.as_deref()?)),
        Change::Worklog(args) if !args.yes => Some(("worklog", args.delete.as_deref()?)),
        Change::Delete(args) if !args.yes => Some(("issue", args.key.as_str())),
        _ => None,
    }
}

fn what(change: &Change<'_>) -> String {
    match change {
        Change::Edit(args) => format!("cannot edit {}", args.key),
        Change::Move(args) => format!("cannot move {}", args.key),
        Change::Assign(args) => format!("cannot assign {}", args.key),
        Change::Label(args) => format!("cannot label {}", args.key),
        Change::Watch(args) => format!("cannot watch {}", args.key),
        Change::Link(args) => format!("cannot link {}", args.key),
        Change::Comment(args) => format!("cannot comment on {}", args.key),
        Change::Worklog(args) => format!("cannot change the worklogs of {}", args.key),
        Change::Create(args) => format!("cannot create an issue in {}", args.project),
        Change::Clone(args) => format!("cannot clone {}", args.key),
        Change::Delete(args) => format!("cannot delete {}", args.key),
    }
}

/// The assignments of a change, with texts read from files; or the one text of a comment. Asks the
/// user to confirm a deletion.
fn texts(change: &Change<'_>) -> anyhow::Result<Vec<(String, String)>> {
    if let Some((noun, name)) = unconfirmed(change) {
        confirm(noun, name)?;
    }
    let fields = match change {
        Change::Edit(args) => &args.fields,
        Change::Move(args) => &args.fields,
        Change::Create(args) => &args.fields,
        Change::Clone(args) => &args.fields,
        Change::Comment(args) if args.delete.is_none() => {
            let text = match (&args.text, &args.file) {
                (Some(text), _) => text.clone(),
                (None, file) => read(file.as_deref().unwrap_or("-"))?,
            };
            return Ok(vec![(String::new(), text)]);
        }
        _ => return Ok(Vec::new()),
    };
    let whole = |(name, value): &(String, String)| match value.strip_prefix('@') {
        Some(path) => Ok((name.clone(), read(path)?)),
        None => Ok((name.clone(), value.clone())),
    };
    fields.iter().map(whole).collect()
}

/// The text of a file; `-` is standard input.
fn read(path: &str) -> anyhow::Result<String> {
    let what = || format!("cannot read the text from {path}");
    let mut text = String::new();
    let count = if path == "-" {
        std::io::stdin()
            .take(TEXT_BYTES_MAX + 1)
            .read_to_string(&mut text)
    } else {
        let file = std::fs::File::open(path).failed(what)?;
        file.take(TEXT_BYTES_MAX + 1).read_to_string(&mut text)
    };
    let count = count.failed(what)?;
    if u64::try_from(count).unwrap_or(u64::MAX) > TEXT_BYTES_MAX {
        let failure = Failure::new(ErrorCode::BadOption, what());
        return Err(failure.because("the text has more than 1 MiB").into());
    }
    Ok(text)
}

/// Queues a change of the version `base`.
fn queue_edit(
    outbox: &Outbox<'_>,
    change: &Change<'_>,
    texts: &[(String, String)],
    base: &EditBase,
) -> weir_jira::Result<Op> {
    match change {
        Change::Edit(args) => outbox.edit_from(&args.key, base, texts),
        Change::Comment(CommentArgs {
            key,
            edit: Some(id),
            ..
        }) => {
            let text = texts.first().map_or("", |(_, text)| text);
            outbox.edit_comment_from(key, base, id, text)
        }
        Change::Comment(CommentArgs {
            key,
            delete: Some(id),
            ..
        }) => outbox.delete_comment_from(key, base, id),
        Change::Worklog(WorklogArgs {
            key,
            delete: Some(id),
            ..
        }) => outbox.delete_worklog_from(key, base, id),
        Change::Delete(args) => outbox.delete_from(&args.key, base, args.subtasks),
        _ => queue(outbox, change, texts),
    }
}

fn queue(
    outbox: &Outbox<'_>,
    change: &Change<'_>,
    texts: &[(String, String)],
) -> weir_jira::Result<Op> {
    match change {
        Change::Edit(args) => outbox.edit(&args.key, texts),
        Change::Move(args) => {
            outbox.transition(&args.key, &args.status, texts, args.comment.as_deref())
        }
        Change::Assign(args) => outbox.assign(&args.key, &args.who),
        Change::Label(args) => outbox.label(&args.key, &args.labels, &args.remove),
        Change::Watch(args) => outbox.watch(&args.key, !args.off),
        Change::Link(args) => outbox.link(&args.key, &args.phrase, &args.other, args.remove),
        Change::Comment(args) => {
            let text = texts.first().map_or("", |(_, text)| text);
            match (&args.edit, &args.delete) {
                (_, Some(id)) => outbox.delete_comment(&args.key, id),
                (Some(id), None) => outbox.edit_comment(&args.key, id, text),
                (None, None) => outbox.comment(&args.key, text),
            }
        }
        Change::Worklog(args) => {
            let started = args.started.as_ref().map(|text| outbox.parse_time(text));
            let started = started.transpose()?;
            let comment = args.comment.as_deref();
            let seconds = args.spent.map(|spent| spent.as_secs());
            match (&args.edit, &args.delete) {
                (_, Some(id)) => outbox.delete_worklog(&args.key, id),
                (Some(id), None) => outbox.edit_worklog(&args.key, id, seconds, started, comment),
                (None, None) => {
                    let spent = args.spent.unwrap_or_default();
                    let ms = i64::try_from(spent.as_millis()).unwrap_or(i64::MAX);
                    let started = started.unwrap_or(now_ms().saturating_sub(ms));
                    let text = comment.unwrap_or_default();
                    outbox.worklog(&args.key, spent.as_secs(), started, text)
                }
            }
        }
        Change::Create(args) => {
            let parent = args.parent.as_deref();
            outbox.create(&args.project, &args.kind, &args.summary, texts, parent)
        }
        Change::Clone(args) => outbox.clone_issue(&args.key, texts),
        Change::Delete(args) => outbox.delete(&args.key, args.subtasks),
    }
}
