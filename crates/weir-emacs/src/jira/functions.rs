//! The functions of Jira. Each name gets the prefix `weir--`.
#![allow(unsafe_code, reason = "the macro registers functions by initialisers")]
#![allow(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "the macro converts arguments into owned values and wants a Result"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use emacs::{Env, FromLisp, IntoLisp, Result, Value, defun};
use serde_json::json;
use weir_jira::access::Site as Settings;

use super::page::Page;
use super::shown::{self, Shown};
use super::table::{self, Column};
use super::{Login, Site, now_ms};
use crate::answer::{Answer, json, lisp, list};
use crate::failure::Failure;
use crate::threads::locked;
use crate::{text, work};

/// Deepest issue of a tree.
const DEPTH_MAX: usize = 32;

/// Issues in the order of a list, by key, each with its depth.
struct IssueSet {
    keys: Vec<(String, usize)>,
}

/// Returns the names of the sites whose settings are in FOLDER.
#[defun(name = "-jira-sites")]
fn sites<'e>(env: &'e Env, folder: Value<'e>) -> Result<Value<'e>> {
    let names = Settings::names(&PathBuf::from(text::text(folder)?));
    json(env, &names.into())
}

/// Tests the rights of an account at SITE-URL and keeps the settings in FOLDER. API-URL, EMAIL, TOKEN
/// and EXPIRES may be nil, PROJECTS is a list of keys. With KEEP the token is kept in a file of mode
/// 0600. Returns the number of the operation.
#[defun(name = "-jira-login")]
#[allow(clippy::too_many_arguments, reason = "Lisp has keywords for them")]
fn login(
    env: &Env,
    folder: Value<'_>,
    site_url: Value<'_>,
    api_url: Value<'_>,
    email: Value<'_>,
    token: Value<'_>,
    expires: Value<'_>,
    projects: Value<'_>,
    keep: Value<'_>,
) -> Result<u64> {
    let site_url = text::text(site_url)?.trim_end_matches('/').to_owned();
    let api_url = text::maybe(api_url)?.unwrap_or_else(|| site_url.clone());
    let login = Login {
        folder: PathBuf::from(text::text(folder)?),
        settings: Settings {
            site_url,
            api_url: api_url.trim_end_matches('/').to_owned(),
            email: text::maybe(email)?.unwrap_or_default(),
            expires: text::maybe(expires)?,
            projects: text::list(projects)?,
        },
        token: text::maybe(token)?,
        keep: keep.is_not_nil(),
    };
    let started = work::task("weir-jira-login", move |_| login.run().map(Answer::Json));
    lisp(env, started)
}

/// Opens the replica of the site NAME, whose settings are in FOLDER, in the store in DIRECTORY. Returns
/// the number of the operation.
#[defun(name = "-jira-open")]
fn open(env: &Env, directory: Value<'_>, folder: Value<'_>, name: Value<'_>) -> Result<u64> {
    let directory = PathBuf::from(text::text(directory)?);
    let folder = PathBuf::from(text::text(folder)?);
    let name = text::text(name)?;
    let started = work::task("weir-jira-open", move |_| {
        let site = Site::open(&directory, &folder, &name)?;
        Ok(Answer::Handle(Box::new(site)))
    });
    lisp(env, started)
}

/// Closes the store of JIRA. Returns t if it was open.
#[defun(name = "-jira-close")]
fn close(env: &Env, jira: &Site) -> Result<bool> {
    lisp(env, jira.close())
}

/// Returns what is known of the site JIRA, as a property list.
#[defun(name = "-jira-about")]
fn about<'e>(env: &'e Env, jira: &Site) -> Result<Value<'e>> {
    let about = lisp(env, jira.about())?;
    json(env, &about)
}

/// Pulls what changed at the site JIRA with TOKEN (nil: that of its file). With CENSUS it looks for
/// deletions, which CONFIRM allows for more than a fifth of a project. Returns the number of the
/// operation.
#[defun(name = "-jira-pull")]
fn pull(
    env: &Env,
    jira: &Site,
    token: Value<'_>,
    census: Value<'_>,
    confirm: Value<'_>,
) -> Result<u64> {
    let client = text::maybe(token).map(|token| jira.client(token))?;
    let client = lisp(env, client)?;
    let options = jira.pull_options(census.is_not_nil(), confirm.is_not_nil());
    let shared = Arc::clone(&jira.shared);
    let started = work::task("weir-jira-pull", move |_| {
        shared.pull(&client, &options).map(Answer::Json)
    });
    lisp(env, started)
}

/// Returns the issues of JIRA that JQL selects, as a set.
#[defun(user_ptr, name = "-jira-list")]
fn select(env: &Env, jira: &Site, jql: Value<'_>) -> Result<IssueSet> {
    let jql = text::text(jql)?;
    let index = locked(&jira.shared.index);
    let found = index.select(&jql, now_ms()).map_err(Failure::from);
    let rows = lisp(env, found)?;
    let keys = rows.into_iter().map(|row| (row.key.clone(), 0)).collect();
    Ok(IssueSet { keys })
}

/// Returns at most LIMIT issues of JIRA in which all WORDS occur as a set.
#[defun(user_ptr, name = "-jira-search")]
fn search(env: &Env, jira: &Site, words: Value<'_>, limit: usize) -> Result<IssueSet> {
    let words = text::text(words)?;
    let index = locked(&jira.shared.index);
    let found = index.search(&words, now_ms()).map_err(Failure::from);
    let rows = lisp(env, found)?.into_iter().take(limit);
    let keys = rows.map(|row| (row.key.clone(), 0)).collect();
    Ok(IssueSet { keys })
}

/// Returns the issues of JIRA that JQL selects as a set in the order of a tree: children after their
/// parents.
#[defun(user_ptr, name = "-jira-tree")]
fn tree(env: &Env, jira: &Site, jql: Value<'_>) -> Result<IssueSet> {
    let jql = text::text(jql)?;
    let index = locked(&jira.shared.index);
    let found = index.select(&jql, now_ms()).map_err(Failure::from);
    let rows = lisp(env, found)?;
    let shown: BTreeSet<&str> = rows.iter().map(|row| row.key.as_str()).collect();
    let mut children: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in &rows {
        let parent = Some(row.parent.as_str()).filter(|parent| shown.contains(parent));
        children
            .entry(parent.unwrap_or_default())
            .or_default()
            .push(&row.key);
    }
    let (mut keys, mut seen) = (Vec::new(), BTreeSet::new());
    let mut stack: Vec<(&str, usize)> = Vec::new();
    let roots = children.get("").into_iter().flatten().rev();
    stack.extend(roots.map(|key| (*key, 0)));
    // Issues that are each other's parents are under no root.
    let mut rest = rows.iter().map(|row| row.key.as_str());
    loop {
        let Some((key, depth)) = stack.pop() else {
            match rest.find(|key| !seen.contains(key)) {
                Some(key) => stack.push((key, 0)),
                None => break,
            }
            continue;
        };
        if !seen.insert(key) {
            continue;
        }
        keys.push((key.to_owned(), depth));
        let below = children.get(key).into_iter().flatten().rev();
        stack.extend(below.map(|child| (*child, (depth + 1).min(DEPTH_MAX))));
    }
    Ok(IssueSet { keys })
}

/// Returns the number of issues in SET.
#[defun(name = "-jira-size")]
fn size(set: &IssueSet) -> Result<usize> {
    Ok(set.keys.len())
}

/// Returns the keys in SET after the first FROM, at most LIMIT.
#[defun(name = "-jira-keys")]
fn keys<'e>(env: &'e Env, set: &IssueSet, from: usize, limit: usize) -> Result<Value<'e>> {
    let keys = set.keys.iter().skip(from).take(limit);
    let keys: Result<Vec<_>> = keys.map(|(key, _)| key.as_str().into_lisp(env)).collect();
    list(env, &keys?)
}

/// Returns (TEXT . RUNS) for at most LIMIT issues of JIRA in SET after the first FROM. COLUMNS is a list
/// of (NAME . WIDTH), a width of 0 for the rest of the line.
#[defun(name = "-jira-rows")]
fn rows<'e>(
    env: &'e Env,
    jira: &Site,
    set: &IssueSet,
    from: usize,
    limit: usize,
    columns: Value<'e>,
) -> Result<Value<'e>> {
    let columns = columns_of(columns)?;
    let (mut page, now) = (Page::default(), now_ms());
    let index = locked(&jira.shared.index);
    for (key, depth) in set.keys.iter().skip(from).take(limit) {
        if let Some(row) = index.row(key) {
            table::line(&mut page, row, &columns, *depth, now);
        }
    }
    drop(index);
    page.into_value(env)
}

fn columns_of(value: Value<'_>) -> Result<Vec<Column>> {
    let mut columns = Vec::new();
    let mut rest = value;
    while rest.is_not_nil() {
        let column: Value<'_> = rest.car()?;
        columns.push(Column {
            name: text::text(column.car()?)?,
            width: usize::from_lisp(column.cdr()?)?,
        });
        rest = rest.cdr()?;
    }
    Ok(columns)
}

/// Returns what a list shows of the issue KEY of JIRA, as a property list; nil if there is none.
#[defun(name = "-jira-row")]
fn row<'e>(env: &'e Env, jira: &Site, key: Value<'e>) -> Result<Value<'e>> {
    let key = text::text(key)?;
    let index = locked(&jira.shared.index);
    let found = index.row(&key).map_or(serde_json::Value::Null, |row| {
        json!({
            "key": row.key, "id": row.id, "type": row.kind, "summary": row.summary,
            "status": row.status, "category": row.category, "assignee": row.assignee,
            "priority": row.priority, "labels": row.labels, "parent": row.parent,
            "project": row.project, "due": row.due, "pending": row.pending,
        })
    });
    drop(index);
    json(env, &found)
}

/// Returns (TEXT . RUNS) for the issue KEY of JIRA.
#[defun(name = "-jira-issue")]
fn issue<'e>(env: &'e Env, jira: &Site, key: Value<'e>) -> Result<Value<'e>> {
    let key = text::text(key)?;
    let page = lisp(env, shown_page(jira, &key))?;
    page.into_value(env)
}

fn shown_page(jira: &Site, key: &str) -> std::result::Result<Page, Failure> {
    let replica = &jira.shared.replica;
    let issue = replica.issue(key)?;
    let (mut comments, mut worklogs) = (Vec::new(), Vec::new());
    if let Some(location) = replica.locate(key)? {
        comments = replica.comments(&location)?;
        let topic = format!("worklogs.{}", location.project);
        let found = replica.values(&topic, &format!("{}.", location.id))?;
        worklogs.extend(found.into_iter().map(|(_, worklog)| worklog));
    }
    let shown = Shown {
        issue: &issue,
        comments: &comments,
        worklogs: &worklogs,
        url: &jira.settings.browse_url(key),
    };
    Ok(shown.page())
}

/// Reads what the stored versions of the issue KEY of JIRA changed. Returns the number of the operation.
#[defun(name = "-jira-history")]
fn history(env: &Env, jira: &Site, key: Value<'_>) -> Result<u64> {
    let key = text::text(key)?;
    let shared = Arc::clone(&jira.shared);
    let started = work::task("weir-jira-history", move |parts| {
        let unknown = || Failure::new("weir-not-found", format!("the replica has no issue {key}"));
        let location = shared.replica.locate(&key)?.ok_or_else(unknown)?;
        let versions = shown::history(&shared.replica, &location, &mut || !parts.cancel.asked())?;
        Ok(Answer::Json(versions))
    });
    lisp(env, started)
}

/// Returns the projects of JIRA as property lists with the counts of their issues.
#[defun(name = "-jira-projects")]
fn projects<'e>(env: &'e Env, jira: &Site) -> Result<Value<'e>> {
    let found = jira.shared.replica.projects().map_err(Failure::from);
    let found = lisp(env, found)?;
    let index = locked(&jira.shared.index);
    let rows = lisp(env, index.select("", now_ms()).map_err(Failure::from))?;
    let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for row in rows {
        let count = counts.entry(&row.project).or_default();
        count.0 += 1;
        count.1 += u64::from(row.category != "done");
    }
    let project = |value: &serde_json::Value| {
        let key = value["project"]["key"].as_str().unwrap_or_default();
        let (all, open) = counts.get(key).copied().unwrap_or_default();
        json!({
            "key": key, "name": value["project"]["name"], "visible": value["visible"],
            "issues": all, "open": open,
        })
    };
    let found: Vec<_> = found.iter().map(|(_, value)| project(value)).collect();
    drop(counts);
    drop(index);
    json(env, &found.into())
}

/// Returns the issues of JIRA in SET as FORMAT: csv, org or md.
#[defun(name = "-jira-export")]
fn export(env: &Env, jira: &Site, set: &IssueSet, format: Value<'_>) -> Result<String> {
    let format = text::text(format)?;
    let index = locked(&jira.shared.index);
    let rows: Vec<_> = set
        .keys
        .iter()
        .filter_map(|(key, _)| index.row(key))
        .collect();
    let unknown = || Failure::new("weir-usage", format!("no export as {format}"));
    lisp(env, table::export(&rows, &format).ok_or_else(unknown))
}
