//! `weir jira ls`, `show` and `search`: read the replica without a request.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;
use weir_jira::offline::UnknownValue;
use weir_jira::op::Op;
use weir_jira::outbox::Outbox;
use weir_jira::replica::Replica;
use weir_jira::{JiraError, meta, offline, rich, site_query, time};

use super::{client, failed, now_ms, replica, select_site};
use crate::caller::Caller;
use crate::output::{Cell, Field, Format, Shape, field, wide};
use crate::place::Access;
use crate::report;

/// Fields of an issue in a list.
pub(super) const FIELDS: &[Field] = &[
    field("key", "text", "key of the issue"),
    field("type", "text", "type of the issue"),
    field("status", "text", "status of the issue"),
    field("assignee", "text", "name of the assignee, null: nobody"),
    field(
        "updated",
        "time",
        "when the issue changed last, RFC 3339 UTC",
    ),
    field(
        "pending",
        "number",
        "changes that were not sent to the site yet",
    ),
    field("summary", "text", "summary of the issue"),
    wide("labels", "text", "labels, separated by spaces"),
    wide("priority", "text", "priority of the issue"),
    wide("url", "text", "address of the issue in a browser"),
    wide("id", "text", "id of the issue"),
    wide("project", "text", "key of the project"),
    wide(
        "category",
        "text",
        "category of the status: new, indeterminate or done",
    ),
    wide("parent", "text", "key of the parent issue, null: none"),
    wide(
        "created",
        "time",
        "when the issue was created, RFC 3339 UTC",
    ),
    wide("due", "text", "due date YYYY-MM-DD, null: none"),
];

#[derive(Debug, Args)]
#[command(after_long_help = "\
JQL is in the subset that `weir help guide jira` describes. Without JQL, all issues are listed. No
request is sent to the site.

--ask sends any JQL to the site. The site returns ids, and the issues are read from the replica. If
the site cannot be reached, the last answer to the same query is used.

Examples:
  weir jira ls
  weir jira ls 'assignee = currentUser() AND status != Done ORDER BY updated DESC'
  weir jira ls --filter 'Open bugs'
  weir jira ls --ask 'project = AA ORDER BY key'")]
pub(super) struct ListArgs {
    /// Query in JQL [else all issues]
    jql: Option<String>,
    /// Use the query of this favourite filter of the account, as of the last pull
    #[arg(long, conflicts_with = "jql", value_name = "NAME")]
    filter: Option<String>,
    /// Send the query to the site
    #[arg(long, requires = "jql")]
    ask: bool,
    /// Maximum number of rows
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Prints the issue as org text. -o json prints it as Jira sent it. Both include the changes that were
not sent to the site yet; in JSON, `pending` lists them. The old key of a moved issue is accepted.

Examples:
  weir jira show AA-1
  weir jira show AA-1 -o json")]
pub(super) struct ShowArgs {
    /// Key of the issue
    key: String,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Finds issues that contain all words: each one begins a word of the summary, description or comments.

Examples:
  weir jira search login slow
  weir jira search 'überw' --limit 5")]
pub(super) struct SearchArgs {
    /// Words, or beginnings of words
    #[arg(required = true)]
    words: Vec<String>,
    /// Maximum number of rows
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// Runs `weir jira ls`.
pub(super) fn list(
    caller: &Caller,
    named: Option<&str>,
    args: &ListArgs,
) -> anyhow::Result<ExitCode> {
    let jql = args.jql.as_deref().unwrap_or_default();
    if args.ask {
        let (name, site) = select_site(named)?;
        let client = client(caller, &name, &site)?;
        return print(caller, named, Access::Write, args.limit, |replica| {
            let now = now_ms();
            let answer = site_query::fetch_or_cached(&client, replica, jql, now)?;
            if answer.at_ms != now {
                let at = time::format(answer.at_ms);
                let text = format!("the site is not reachable; this result is from {at}");
                report::note(caller.quiet, &text);
            }
            site_query::issues(replica, &answer)
        });
    }
    print(caller, named, Access::Read, args.limit, |replica| {
        let Some(filter) = &args.filter else {
            return select(caller, replica, jql);
        };
        let filters = meta::filters(replica)?;
        let found = filters.iter().find(|(name, _)| name == filter);
        let (_, jql) = found.ok_or_else(|| JiraError::UnknownFilter {
            name: filter.clone(),
            known: filters.iter().map(|(name, _)| name.clone()).collect(),
        })?;
        select(caller, replica, jql)
    })
}

/// The issues that a query selects. Prints a note for each value that nothing in the replica has.
fn select(caller: &Caller, replica: &Replica, jql: &str) -> weir_jira::Result<Vec<Value>> {
    let found = offline::select(replica, jql, now_ms())?;
    for UnknownValue { field, value } in offline::unknown_values(replica, jql, &found)? {
        let text = match field.as_str() {
            "assignee" | "reporter" | "creator" => {
                format!("note: no issue has the {field} {value:?}; currentUser() is your account")
            }
            _ => format!("note: no issue has the {field} {value:?}"),
        };
        report::note(caller.quiet, &text);
    }
    Ok(found)
}

/// Runs `weir jira search`.
pub(super) fn search(
    caller: &Caller,
    named: Option<&str>,
    args: &SearchArgs,
) -> anyhow::Result<ExitCode> {
    let words = args.words.join(" ");
    print(caller, named, Access::Read, args.limit, |replica| {
        offline::search(replica, &words, now_ms())
    })
}

fn print(
    caller: &Caller,
    named: Option<&str>,
    access: Access,
    limit: Option<usize>,
    find: impl FnOnce(&Replica) -> weir_jira::Result<Vec<Value>>,
) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::List, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let (name, site) = select_site(named)?;
    let replica = replica(caller, access, &name)?;
    let found = find(&replica).map_err(|error| {
        let failure = failed("cannot list issues", &error);
        match error {
            JiraError::Jql(_) => failure.advise("`--ask` sends the query to the site"),
            _ => failure,
        }
    })?;
    for issue in found.iter().take(limit.unwrap_or(usize::MAX)) {
        let fields = &issue["fields"];
        let key = issue["key"].as_str().unwrap_or_default();
        let updated = fields["updated"].as_str().and_then(time::parse);
        let labels = fields["labels"].as_array().into_iter().flatten();
        let labels: Vec<&str> = labels.filter_map(Value::as_str).collect();
        let moment = |ms: Option<i64>| {
            let ms = ms.and_then(|ms| u64::try_from(ms).ok());
            ms.map_or(Cell::Nothing, Cell::Time)
        };
        let created = fields["created"].as_str().and_then(time::parse);
        let pending = issue["pending"].as_array().map_or(0, Vec::len);
        out.row(&[
            Cell::Text(Cow::Borrowed(key)),
            shown(&fields["issuetype"]["name"]),
            shown(&fields["status"]["name"]),
            shown(&fields["assignee"]["displayName"]),
            moment(updated),
            Cell::Count(u64::try_from(pending).unwrap_or(u64::MAX)),
            shown(&fields["summary"]),
            Cell::Text(Cow::Owned(labels.join(" "))),
            shown(&fields["priority"]["name"]),
            Cell::Text(Cow::Owned(site.browse_url(key))),
            shown(&issue["id"]),
            shown(&fields["project"]["key"]),
            shown(&fields["status"]["statusCategory"]["key"]),
            shown(&fields["parent"]["key"]),
            moment(created),
            shown(&fields["duedate"]),
        ])?;
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn shown(value: &Value) -> Cell<'_> {
    value
        .as_str()
        .map_or(Cell::Nothing, |text| Cell::Text(Cow::Borrowed(text)))
}

/// Runs `weir jira show`.
pub(super) fn show(
    caller: &Caller,
    named: Option<&str>,
    args: &ShowArgs,
) -> anyhow::Result<ExitCode> {
    let what = format!("cannot show {}", args.key);
    let (name, site) = select_site(named)?;
    let replica = replica(caller, Access::Read, &name)?;
    let issue = Outbox::new(&replica, now_ms()).show(&args.key);
    let issue = issue.map_err(|error| failed(&what, &error))?;
    let text = if matches!(
        caller.style.format,
        Some(Format::Json | Format::Jsonl | Format::Raw)
    ) {
        format!("{issue}\n")
    } else {
        let key = issue["key"].as_str().unwrap_or_default();
        org(&issue, &site.browse_url(key))
    };
    report::stdout(std::io::Write::write_all(
        &mut std::io::stdout(),
        text.as_bytes(),
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// An issue with its comments as org text.
fn org(issue: &Value, url: &str) -> String {
    let fields = &issue["fields"];
    let word = |value: &Value| one_line(value.as_str().unwrap_or("-"));
    let mut text = format!("* {} {}\n", word(&issue["key"]), word(&fields["summary"]));
    text.push_str(":PROPERTIES:\n");
    for (name, value) in [
        ("TYPE", &fields["issuetype"]["name"]),
        ("STATUS", &fields["status"]["name"]),
        ("ASSIGNEE", &fields["assignee"]["displayName"]),
        ("PRIORITY", &fields["priority"]["name"]),
        ("UPDATED", &fields["updated"]),
    ] {
        _ = writeln!(text, ":{name}: {}", word(value));
    }
    _ = writeln!(text, ":URL: {url}");
    for op in issue["pending"].as_array().into_iter().flatten() {
        if let Ok(op) = serde_json::from_value::<Op>(op.clone()) {
            let (state, problem) = (op.state.name(), op.problem.as_deref().unwrap_or_default());
            let line = format!("● {} {state} {}  {problem}", op.number, op.what());
            _ = writeln!(text, ":PENDING: {}", one_line(line.trim_end()));
        }
    }
    text.push_str(":END:\n");
    text.push_str(&rich::shown(&fields["description"], 1));
    let comments = fields["comment"]["comments"].as_array();
    for comment in comments.into_iter().flatten() {
        let author = word(&comment["author"]["displayName"]);
        _ = writeln!(text, "** {author}, {}", word(&comment["created"]));
        text.push_str(&rich::shown(&comment["body"], 2));
    }
    text
}

/// A line of org text. `%%(` gets a space, because the agenda of Emacs would evaluate a Lisp form
/// after `%%`.
fn one_line(text: &str) -> String {
    let line = crate::bytes::printable(text.as_bytes());
    line.replace("%%(", "%% (")
}
