//! Renders an issue as the text of a buffer: header fields, description, comments, worklogs, links,
//! history.

use std::fmt::Write as _;

use serde_json::Value;
use weir::{ConsequenceOffset, ReadFrom};
use weir_jira::replica::{Location, Replica};
use weir_jira::rich;

use super::page::Page;
use crate::failure::Failure;

/// Limit on the characters of one text on a page. Jira accepts 32,767; only a faulty site sends a
/// longer text. Emacs 28 blocks for seconds at a line of megabytes.
const TEXT_CHARS_MAX: usize = 100_000;

/// Fields of the header: label, name for edits, pointer into the fields.
const HEADER: &[(&str, &str, &str)] = &[
    ("Summary", "summary", "/summary"),
    ("Status", "status", "/status/name"),
    ("Type", "type", "/issuetype/name"),
    ("Priority", "priority", "/priority/name"),
    ("Assignee", "assignee", "/assignee/displayName"),
    ("Reporter", "reporter", "/reporter/displayName"),
    ("Labels", "labels", "/labels"),
    ("Parent", "parent", "/parent/key"),
    ("Due", "due", "/duedate"),
    ("Resolution", "resolution", "/resolution/name"),
    ("Created", "", "/created"),
    ("Updated", "", "/updated"),
];

/// Limit on the characters of a value in the history.
const HISTORY_CHARS_MAX: usize = 200;

/// The parts of an issue that a page shows.
pub(crate) struct IssueView<'a> {
    pub(crate) issue: &'a Value,
    pub(crate) comments: &'a [Value],
    pub(crate) worklogs: &'a [Value],
    /// Operations of the outbox.
    pub(crate) pending: &'a [Value],
    pub(crate) url: &'a str,
}

/// One line without control characters.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// The display text of a field value.
fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => plain(text),
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Null => String::new(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(value_text).collect();
            items.join(" ")
        }
        Value::Object(fields) => {
            if fields.get("type").is_some_and(|kind| kind == "doc") {
                return plain(weir_jira::jql::plain_text(value).trim());
            }
            let name = ["displayName", "name", "value", "key", "total"]
                .iter()
                .find_map(|name| fields.get(*name));
            name.map_or_else(|| "…".to_owned(), value_text)
        }
    }
}

/// Rich text for a page under a headline with `stars` stars. A long text is cut, and ends with the
/// number of missing characters.
fn rich_text(value: &Value, stars: usize) -> String {
    let (mut text, left) = rich::shown_up_to(value, stars, TEXT_CHARS_MAX);
    if left > 0 {
        _ = writeln!(
            text,
            "\n({left} more characters are not shown here; the site shows them)"
        );
    }
    text
}

impl IssueView<'_> {
    /// The page of the issue. Calls `may_continue` before each part; `false` ends the call.
    ///
    /// # Errors
    /// A quit if `may_continue` returned `false`.
    pub(crate) fn page(&self, may_continue: &mut dyn FnMut() -> bool) -> Result<Page, Failure> {
        let mut check = || may_continue().then_some(()).ok_or_else(Failure::quit);
        let mut page = Page::default();
        let fields = &self.issue["fields"];
        let key = value_text(&self.issue["key"]);
        page.face("key", &key);
        page.add("  ");
        page.face("title", &value_text(&fields["summary"]));
        page.add("\n");
        page.run("link", self.url, self.url);
        page.add("\n\n");
        for op in self.pending {
            let start = page.position();
            let (state, what) = (value_text(&op["state"]), value_text(&op["what"]));
            page.face("dim", &format!("● {state}  {what}"));
            let problem = value_text(&op["problem"]);
            if !problem.is_empty() {
                page.add(&format!("  {problem}"));
            }
            page.mark(start, "op", &value_text(&op["number"]));
            page.add("\n");
        }
        for (label, name, pointer) in HEADER {
            let value = fields.pointer(pointer).unwrap_or(&Value::Null);
            let start = page.position();
            page.face("label", &format!("{label:<12}"));
            page.add(&value_text(value));
            if !name.is_empty() {
                page.mark(start, "field", name);
            }
            page.add("\n");
        }
        let start = page.position();
        section(&mut page, "Description", None);
        check()?;
        page.add(&rich_text(&fields["description"], 1));
        page.mark(start, "field", "description");
        section(&mut page, "Comments", Some(self.comments.len()));
        for comment in self.comments {
            check()?;
            comment_or_worklog(&mut page, comment, "comment", "body", "created");
        }
        if !self.worklogs.is_empty() {
            section(&mut page, "Worklogs", Some(self.worklogs.len()));
            for worklog in self.worklogs {
                check()?;
                comment_or_worklog(&mut page, worklog, "worklog", "comment", "started");
            }
        }
        links(&mut page, fields);
        Ok(page)
    }
}

/// Adds a comment or worklog to a page.
fn comment_or_worklog(page: &mut Page, part: &Value, kind: &'static str, body: &str, time: &str) {
    let start = page.position();
    let author = value_text(&part["author"]["displayName"]);
    let spent = part["timeSpentSeconds"].as_u64().unwrap_or(0);
    let spent = match (spent / 3600, spent % 3600 / 60) {
        (0, 0) => String::new(),
        (0, minutes) => format!(", {minutes}m"),
        (hours, minutes) => format!(", {hours}h {minutes}m"),
    };
    let title = format!("** {author}, {}{spent}", value_text(&part[time]));
    page.face("heading", &title);
    page.add("\n");
    page.add(&rich_text(&part[body], 2));
    page.mark(start, kind, &value_text(&part["id"]));
}

fn section(page: &mut Page, title: &str, count: Option<usize>) {
    page.add("\n");
    let title = count.map_or_else(
        || format!("* {title}"),
        |count| format!("* {title} ({count})"),
    );
    page.face("heading", &title);
    page.add("\n");
}

/// Subtasks and links; each can be visited.
fn links(page: &mut Page, fields: &Value) {
    let mut rows: Vec<(String, String, String)> = Vec::new();
    let row = |phrase: &str, other: &Value| {
        let key = value_text(&other["key"]);
        let summary = value_text(&other["fields"]["summary"]);
        (phrase.to_owned(), key, summary)
    };
    for subtask in fields["subtasks"].as_array().into_iter().flatten() {
        rows.push(row("subtask", subtask));
    }
    for link in fields["issuelinks"].as_array().into_iter().flatten() {
        for side in ["outward", "inward"] {
            let other = &link[format!("{side}Issue")];
            if !other.is_null() {
                rows.push(row(&value_text(&link["type"][side]), other));
            }
        }
    }
    if rows.is_empty() {
        return;
    }
    section(page, "Links", Some(rows.len()));
    for (phrase, key, summary) in rows {
        let start = page.position();
        page.add(&format!("{phrase}  "));
        page.face("key", &key);
        page.add(&format!("  {summary}"));
        page.mark(start, "issue", &key);
        page.add("\n");
    }
}

/// The changes of each stored version of an issue, the newest first: `time_ms`, `offset`, and
/// `changes` of `field`, `from` and `to`. Reads the whole topic of the project, so it must run on a
/// task.
pub(crate) fn history(
    replica: &Replica,
    location: &Location,
    may_continue: &mut dyn FnMut() -> bool,
) -> Result<Value, Failure> {
    let topic = replica.topic(&format!("issues.{}", location.project))?;
    let mut reader = topic.reader(ReadFrom::After(ConsequenceOffset(0)))?;
    let mut versions: Vec<Value> = Vec::new();
    let mut before: Option<Value> = None;
    while let Some(page) = reader.next_page()? {
        for record in &page {
            let record = record.map_err(Failure::from)?;
            if !may_continue() {
                return Err(Failure::cancelled());
            }
            if record.key != location.id.as_bytes() || record.value.is_empty() {
                continue;
            }
            let Ok(issue) = serde_json::from_slice::<Value>(record.value) else {
                continue;
            };
            let changes = match &before {
                None => Vec::new(),
                Some(before) => changes(&before["fields"], &issue["fields"]),
            };
            versions.push(serde_json::json!({
                "time-ms": record.time_ms,
                "offset": record.offset.0,
                "updated": issue["fields"]["updated"],
                "changes": changes,
            }));
            before = Some(issue);
        }
    }
    versions.reverse();
    Ok(versions.into())
}

/// The version of an issue that the topic of its project has at `offset`.
pub(crate) fn version(
    replica: &Replica,
    location: &Location,
    offset: u64,
) -> Result<Option<Value>, Failure> {
    let topic = replica.topic(&format!("issues.{}", location.project))?;
    let before = ConsequenceOffset(offset.saturating_sub(1));
    let mut reader = topic.reader(ReadFrom::After(before))?;
    let Some(page) = reader.next_page()? else {
        return Ok(None);
    };
    for record in &page {
        let record = record.map_err(Failure::from)?;
        if record.offset.0 == offset && record.key == location.id.as_bytes() {
            return Ok(serde_json::from_slice(record.value).ok());
        }
    }
    Ok(None)
}

fn changes(before: &Value, after: &Value) -> Vec<Value> {
    let empty = serde_json::Map::new();
    let before = before.as_object().unwrap_or(&empty);
    let after = after.as_object().unwrap_or(&empty);
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    let short = |value: Option<&Value>| -> String {
        let text = value.map(value_text).unwrap_or_default();
        text.chars().take(HISTORY_CHARS_MAX).collect()
    };
    names
        .into_iter()
        .filter(|name| *name != "updated" && before.get(*name) != after.get(*name))
        .map(|name| {
            let (from, to) = (short(before.get(name)), short(after.get(name)));
            serde_json::json!({"field": name, "from": from, "to": to})
        })
        .collect()
}
