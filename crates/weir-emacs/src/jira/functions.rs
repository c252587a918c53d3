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
use weir_jira::access::{Site as Settings, TokenStore};
use weir_jira::index::Row;
use weir_jira::outbox::{EditBase, Outbox};

use super::edits;
use super::page::Page;
use super::set::{IssueSet, Step};
use super::shown::{self, IssueView};
use super::table::{self, Column, Layout};
use super::{Login, Site, now_ms};
use crate::answer::{Answer, json, list, or_signal};
use crate::failure::Failure;
use crate::quit::QuitCheck;
use crate::threads::locked;
use crate::{text, work};

/// Limit on the depth of an issue in a tree.
const DEPTH_MAX: usize = 32;
/// Limit on the rows that a refresh inserts; beyond it, the whole list is replaced.
const INSERTED_MAX: usize = 250;

/// Returns the names of the sites whose settings are in FOLDER.
#[defun(name = "-jira-sites")]
fn sites<'e>(env: &'e Env, folder: Value<'e>) -> Result<Value<'e>> {
    let names = Settings::names(&PathBuf::from(text::text(folder)?));
    let names = or_signal(env, names.map_err(Failure::from))?;
    json(env, &names.into())
}

/// Tests the rights of an account at SITE-URL and stores the settings in FOLDER. API-URL, EMAIL,
/// TOKEN and EXPIRES may be nil, PROJECTS is a list of keys. KEEP is nil, or the storage of the
/// token: file (of mode 0600) or keyring. Returns the number of the operation.
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
    let keep = text::maybe(keep)?;
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
            token_store: match keep.as_deref() {
                Some("keyring") => TokenStore::Keyring,
                _ => TokenStore::File,
            },
            ..Settings::default()
        },
        token: text::maybe(token)?,
        keep: keep.is_some(),
    };
    let started = work::task("weir-jira-login", move |_| login.run().map(Answer::Json));
    or_signal(env, started)
}

/// Opens the replica of the site NAME, whose settings are in FOLDER, in the store in DIRECTORY.
/// Returns the number of the operation.
#[defun(name = "-jira-open")]
fn open(env: &Env, directory: Value<'_>, folder: Value<'_>, name: Value<'_>) -> Result<u64> {
    let directory = PathBuf::from(text::text(directory)?);
    let folder = PathBuf::from(text::text(folder)?);
    let name = text::text(name)?;
    let started = work::task("weir-jira-open", move |_| {
        let site = Site::open(&directory, &folder, &name)?;
        Ok(Answer::Handle(Box::new(site)))
    });
    or_signal(env, started)
}

/// Closes the site JIRA, and the store with its last site. Returns the number of the operation.
#[defun(name = "-jira-close")]
fn close(env: &Env, jira: &Site) -> Result<u64> {
    let close = jira.close();
    let started = work::task("weir-jira-close", move |_| {
        close().map(|()| Answer::Nothing)
    });
    or_signal(env, started)
}

/// Returns t if the outbox of JIRA has operations.
#[defun(name = "-jira-has-operations")]
fn has_operations(jira: &Site) -> Result<bool> {
    Ok(locked(&jira.shared.index).has_operations())
}

/// Returns the stored data about the site JIRA, as a property list.
#[defun(name = "-jira-about")]
fn about<'e>(env: &'e Env, jira: &Site) -> Result<Value<'e>> {
    let about = or_signal(env, jira.about())?;
    json(env, &about)
}

/// Pulls the changes of the site JIRA with TOKEN (nil: the stored token). With CENSUS it also
/// searches for deletions. CONFIRM permits the removal of more than a fifth of a project. PURGE
/// permits the removal of issues whose projects are no longer visible. Returns the number of the
/// operation; its parts have the number of issues stored so far.
#[defun(name = "-jira-pull")]
fn pull(
    env: &Env,
    jira: &Site,
    token: Value<'_>,
    census: Value<'_>,
    confirm: Value<'_>,
    purge: Value<'_>,
) -> Result<u64> {
    let client = text::maybe(token).map(|token| jira.client(token))?;
    let mut options = jira.pull_options(census.is_not_nil(), confirm.is_not_nil());
    options.purge_lost = purge.is_not_nil();
    let shared = Arc::clone(&jira.shared);
    let started = work::task("weir-jira-pull", move |parts| {
        let report = |stored| {
            parts.send(Answer::Json(json!({"stored": stored})));
        };
        shared.pull(&client()?, &options, report).map(Answer::Json)
    });
    or_signal(env, started)
}

/// Returns the issues of JIRA that JQL selects, as a set.
#[defun(user_ptr, name = "-jira-list")]
fn select(env: &Env, jira: &Site, jql: Value<'_>) -> Result<IssueSet> {
    let jql = text::text(jql)?;
    let index = locked(&jira.shared.index);
    let found = index
        .select(&jql, now_ms(), usize::MAX)
        .map_err(Failure::from);
    let rows = or_signal(env, found)?.into_iter();
    Ok(rows.map(|row| row.id.as_str()).collect())
}

/// Returns at most LIMIT issues of JIRA that contain all WORDS, as a set.
#[defun(user_ptr, name = "-jira-search")]
fn search(jira: &Site, words: Value<'_>, limit: usize) -> Result<IssueSet> {
    let words = text::text(words)?;
    let index = locked(&jira.shared.index);
    let rows = index.search(&words, limit).into_iter();
    Ok(rows.map(|row| row.id.as_str()).collect())
}

/// Returns the issues of JIRA that JQL selects as a set in the order of a tree: children after
/// their parents.
#[defun(user_ptr, name = "-jira-tree")]
fn tree(env: &Env, jira: &Site, jql: Value<'_>) -> Result<IssueSet> {
    let jql = text::text(jql)?;
    let index = locked(&jira.shared.index);
    let found = index
        .select(&jql, now_ms(), usize::MAX)
        .map_err(Failure::from);
    let rows = or_signal(env, found)?;
    let shown: BTreeSet<&str> = rows.iter().map(|row| row.key.as_str()).collect();
    let mut children: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in &rows {
        let parent = Some(row.parent.as_str()).filter(|parent| shown.contains(parent));
        children
            .entry(parent.unwrap_or_default())
            .or_default()
            .push(row);
    }
    let (mut issues, mut seen) = (IssueSet::default(), BTreeSet::new());
    let mut stack: Vec<(&Row, usize)> = Vec::new();
    let roots = children.get("").into_iter().flatten().rev();
    stack.extend(roots.map(|row| (*row, 0)));
    // Issues that are each other's parents are not below a root.
    let mut rest = rows.iter();
    loop {
        let Some((row, depth)) = stack.pop() else {
            match rest.find(|row| !seen.contains(row.key.as_str())) {
                Some(row) => stack.push((row, 0)),
                None => break,
            }
            continue;
        };
        if !seen.insert(row.key.as_str()) {
            continue;
        }
        issues.push(&row.id, depth);
        let below = children.get(row.key.as_str()).into_iter().flatten().rev();
        stack.extend(below.map(|child| (*child, (depth + 1).min(DEPTH_MAX))));
    }
    Ok(issues)
}

/// Returns the issues of SET whose projects are visible to the account of JIRA, as a set.
#[defun(user_ptr, name = "-jira-visible")]
fn visible(env: &Env, jira: &Site, set: &IssueSet) -> Result<IssueSet> {
    let found = jira.shared.replica.projects().map_err(Failure::from);
    let found = or_signal(env, found)?;
    let lost = found.iter().filter(|(_, value)| value["visible"] != true);
    let lost: BTreeSet<&str> = lost
        .filter_map(|(_, value)| value["project"]["key"].as_str())
        .collect();
    let index = locked(&jira.shared.index);
    let seen = |id: &str| {
        let row = index.row(id);
        row.is_some_and(|row| !lost.contains(row.project.as_str()))
    };
    let mut issues = IssueSet::default();
    for (id, depth) in set.iter().filter(|(id, _)| seen(id)) {
        issues.push(id, depth);
    }
    Ok(issues)
}

/// Returns the number of issues in SET.
#[defun(name = "-jira-size")]
fn size(set: &IssueSet) -> Result<usize> {
    Ok(set.len())
}

/// Returns the keys of the issues of JIRA in SET after the first FROM, at most LIMIT.
#[defun(name = "-jira-keys")]
fn keys<'e>(
    env: &'e Env,
    jira: &Site,
    set: &IssueSet,
    from: usize,
    limit: usize,
) -> Result<Value<'e>> {
    let index = locked(&jira.shared.index);
    let issues = set.iter().skip(from).take(limit);
    let rows = issues.filter_map(|(id, _)| index.row(id));
    let keys: Result<Vec<_>> = rows.map(|row| row.key.as_str().into_lisp(env)).collect();
    list(env, &keys?)
}

/// Returns (TEXT . RUNS) for at most LIMIT issues of JIRA in SET after the first FROM. COLUMNS is a
/// list of (NAME . WIDTH), a width of 0 for the rest of the line.
#[defun(name = "-jira-rows")]
fn rows<'e>(
    env: &'e Env,
    jira: &Site,
    set: &mut IssueSet,
    from: usize,
    limit: usize,
    columns: Value<'e>,
) -> Result<Value<'e>> {
    let layout = Layout::new(columns_of(columns)?, now_ms());
    let (mut page, mut states) = (Page::default(), Vec::new());
    let index = locked(&jira.shared.index);
    for (id, depth) in set.iter().skip(from).take(limit) {
        let found = index.hashed_row(id);
        if let Some((row, _)) = found {
            layout.line(&mut page, row, depth);
        }
        states.push(found.map(|(row, hash)| layout.state(row, hash, depth)));
    }
    drop(index);
    set.show(from, &states);
    page.into_value(env)
}

/// Returns the steps that turn the rows of OLD in a buffer into those of the first LIMIT issues of
/// JIRA in NEW, as a list. A positive number keeps this number of rows, a negative number deletes
/// rows, and (TEXT . RUNS) are rows to insert. Returns t if more than 250 rows would be inserted.
/// COLUMNS is as for `weir--jira-rows`.
#[defun(name = "-jira-changes")]
fn changes<'e>(
    env: &'e Env,
    jira: &Site,
    old: &IssueSet,
    new: &mut IssueSet,
    limit: usize,
    columns: Value<'e>,
) -> Result<Value<'e>> {
    let layout = Layout::new(columns_of(columns)?, now_ms());
    let index = locked(&jira.shared.index);
    let state = |(id, depth): (&str, usize)| {
        let (row, hash) = index.hashed_row(id)?;
        Some(layout.state(row, hash, depth))
    };
    let states: Vec<_> = new.iter().take(limit).map(state).collect();
    new.show(0, &states);
    let steps = old.steps_to(new);
    let inserted = steps.iter().map(|step| step.lines().len()).sum::<usize>();
    if inserted > INSERTED_MAX {
        return true.into_lisp(env);
    }
    let mut pages = Vec::new();
    for step in &steps {
        let mut page = Page::default();
        for line in step.lines() {
            if let Some(row) = index.row(line.id) {
                layout.line(&mut page, row, line.depth);
            }
        }
        pages.push(page);
    }
    drop(index);
    let value = |(step, page): (&Step<'_>, Page)| match step {
        Step::Keep(count) => count.into_lisp(env),
        Step::Delete(count) => (-i64::try_from(*count)?).into_lisp(env),
        Step::Insert(_) => page.into_value(env),
    };
    let values: Result<Vec<_>> = steps.iter().zip(pages).map(value).collect();
    list(env, &values?)
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

/// Returns the list columns of the issue KEY of JIRA, as a property list; nil if there is no such
/// issue.
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
    let mut quit = QuitCheck::new(env);
    let page = or_signal(env, shown_page(jira, &key, &mut || quit.may_continue()))?;
    page.into_value(env)
}

fn shown_page(
    jira: &Site,
    key: &str,
    may_continue: &mut dyn FnMut() -> bool,
) -> std::result::Result<Page, Failure> {
    let replica = &jira.shared.replica;
    let outbox = Outbox::new(replica, now_ms());
    let issue = outbox.show(key)?;
    let pending = edits::ops(replica, Some(key))?;
    let comments = issue["fields"]["comment"]["comments"].as_array();
    let worklogs = issue["fields"]["worklog"]["worklogs"].as_array();
    let view = IssueView {
        issue: &issue,
        comments: comments.map_or(&[], Vec::as_slice),
        worklogs: worklogs.map_or(&[], Vec::as_slice),
        pending: pending.as_array().map_or(&[], Vec::as_slice),
        url: &jira.settings.browse_url(key),
    };
    view.page(may_continue)
}

/// Reads the changes between the stored versions of the issue KEY of JIRA. Returns the number of
/// the operation.
#[defun(name = "-jira-history")]
fn history(env: &Env, jira: &Site, key: Value<'_>) -> Result<u64> {
    let key = text::text(key)?;
    let shared = Arc::clone(&jira.shared);
    let started = work::task("weir-jira-history", move |parts| {
        let unknown = || Failure::new("weir-not-found", format!("the replica has no issue {key}"));
        let location = shared.replica.locate(&key)?.ok_or_else(unknown)?;
        let versions = shown::history(&shared.replica, &location, &mut || {
            !parts.cancel.is_requested()
        })?;
        Ok(Answer::Json(versions))
    });
    or_signal(env, started)
}

/// Reads the text of the issue KEY of JIRA in the version that the replica stored at OFFSET. With
/// OFFSET nil, reads the current version with pending changes. Omits comments. Returns the number
/// of the operation.
#[defun(name = "-jira-version")]
fn version(env: &Env, jira: &Site, key: Value<'_>, offset: Option<u64>) -> Result<u64> {
    let key = text::text(key)?;
    let url = jira.settings.browse_url(&key);
    let shared = Arc::clone(&jira.shared);
    let started = work::task("weir-jira-version", move |parts| {
        let unknown = || Failure::new("weir-not-found", format!("the replica has no issue {key}"));
        let issue = match offset {
            None => Outbox::new(&shared.replica, now_ms()).show(&key)?,
            Some(offset) => {
                let location = shared.replica.locate(&key)?.ok_or_else(unknown)?;
                shown::version(&shared.replica, &location, offset)?.ok_or_else(unknown)?
            }
        };
        let view = IssueView {
            issue: &issue,
            comments: &[],
            worklogs: &[],
            pending: &[],
            url: &url,
        };
        let page = view.page(&mut || !parts.cancel.is_requested())?;
        Ok(Answer::Bytes(Some(page.text.into_bytes())))
    });
    or_signal(env, started)
}

/// Requests the rights of the account at the site of JIRA; TOKEN is as for a pull. Returns the
/// number of the operation.
#[defun(name = "-jira-rights")]
fn rights(env: &Env, jira: &Site, token: Value<'_>) -> Result<u64> {
    let client = jira.client(text::maybe(token)?);
    let started = work::task("weir-jira-rights", move |_| {
        let rights = weir_jira::access::rights(&client()?)?;
        let right = |right: &weir_jira::access::Right| json!({"name": right.name, "purpose": right.purpose, "granted": right.granted});
        Ok(Answer::Json(rights.iter().map(right).collect()))
    });
    or_signal(env, started)
}

/// Returns the projects of JIRA as property lists with the counts of their issues.
#[defun(name = "-jira-projects")]
fn projects<'e>(env: &'e Env, jira: &Site) -> Result<Value<'e>> {
    let found = jira.shared.replica.projects().map_err(Failure::from);
    let found = or_signal(env, found)?;
    let index = locked(&jira.shared.index);
    let rows = or_signal(
        env,
        index
            .select("", now_ms(), usize::MAX)
            .map_err(Failure::from),
    )?;
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

/// Returns the issues of JIRA in SET as FORMAT: csv, json, org or md.
#[defun(name = "-jira-export")]
fn export(env: &Env, jira: &Site, set: &IssueSet, format: Value<'_>) -> Result<String> {
    let format = text::text(format)?;
    let index = locked(&jira.shared.index);
    let rows: Vec<_> = set.iter().filter_map(|(id, _)| index.row(id)).collect();
    let unknown = || Failure::new("weir-usage", format!("no export as {format}"));
    or_signal(env, table::export(&rows, &format).ok_or_else(unknown))
}

/// Queues the change VERB of an issue of JIRA with WORDS, a list of strings. BASE is the value of
/// `weir--jira-edit-base` at the start of the edit, or nil for the current version. Returns the
/// number of the operation, whose value is the operation of the outbox. If the rows in memory could
/// not be updated, the value also has the reason in :stale: the change is durable, and lists do not
/// show it yet.
#[defun(name = "-jira-change")]
fn change(
    env: &Env,
    jira: &Site,
    verb: Value<'_>,
    words: Value<'_>,
    base: Value<'_>,
) -> Result<u64> {
    let (verb, words) = (text::text(verb)?, text::list(words)?);
    let base = base.is_not_nil().then(|| base.into_ref::<EditBase>());
    let base = base.transpose()?.map(|base| base.clone());
    let shared = Arc::clone(&jira.shared);
    let queued = work::write(move || {
        shared.check_writable()?;
        let op = edits::queue(&shared.replica, &verb, &words, base.as_ref())?;
        Ok(Answer::Json(shared.refreshed(op)))
    });
    or_signal(env, queued)
}

/// Sends the query JQL to the site JIRA with TOKEN (nil: the stored token). Returns the number of
/// the operation, whose value has the ids and the time of the answer. If the site cannot be
/// reached, these are those of the last answer.
#[defun(name = "-jira-ask")]
fn ask(env: &Env, jira: &Site, token: Value<'_>, jql: Value<'_>) -> Result<u64> {
    let client = text::maybe(token).map(|token| jira.client(token))?;
    let jql = text::text(jql)?;
    let shared = Arc::clone(&jira.shared);
    let started = work::task("weir-jira-ask", move |_| {
        let now = now_ms();
        let answer =
            weir_jira::site_query::fetch_or_cached(&client()?, &shared.replica, &jql, now)?;
        let minutes = (now - answer.at_ms) / 60_000;
        let fresh = answer.at_ms == now;
        Ok(Answer::Json(
            json!({"ids": answer.ids, "fresh": fresh, "minutes": minutes}),
        ))
    });
    or_signal(env, started)
}

/// Returns the issues with these IDS, a list, as a set.
#[defun(user_ptr, name = "-jira-set")]
fn set_of(_env: &Env, ids: Value<'_>) -> Result<IssueSet> {
    Ok(text::list(ids)?.iter().map(String::as_str).collect())
}

/// Sends the change VERB of a project of JIRA with TOKEN (nil: the stored token). VERB is create
/// with the WORDS KEY NAME TYPE LEAD, edit with KEY and fields with their values, or delete with
/// KEY. Returns the number of the operation.
#[defun(name = "-jira-project")]
fn project(
    env: &Env,
    jira: &Site,
    token: Value<'_>,
    verb: Value<'_>,
    words: Value<'_>,
) -> Result<u64> {
    let client = text::maybe(token).map(|token| jira.client(token))?;
    let (verb, words) = (text::text(verb)?, text::list(words)?);
    let shared = Arc::clone(&jira.shared);
    let started = work::task("weir-jira-project", move |_| {
        edits::project(&client()?, &shared.replica, &verb, &words).map(Answer::Json)
    });
    or_signal(env, started)
}

/// Applies a decision to the operation OP of the outbox of JIRA. CHOICE is mine, theirs, retry or
/// drop. FIELD is the field, or nil for all. VALUE is the new value, or nil for the current one.
/// Returns the number of the operation, whose value can have :stale as that of `weir--jira-change`.
#[defun(name = "-jira-resolve")]
fn resolve(
    env: &Env,
    jira: &Site,
    op: Value<'_>,
    choice: Value<'_>,
    field: Value<'_>,
    value: Value<'_>,
) -> Result<u64> {
    let (op, choice) = (text::text(op)?, text::text(choice)?);
    let (field, value) = (text::maybe(field)?, text::maybe(value)?);
    let shared = Arc::clone(&jira.shared);
    let queued = work::write(move || {
        shared.check_writable()?;
        let (field, value) = (field.as_deref(), value.as_deref());
        let left = edits::resolve(&shared.replica, &op, &choice, field, value)?;
        Ok(Answer::Json(shared.refreshed(left)))
    });
    or_signal(env, queued)
}

/// Sends the outbox of JIRA with TOKEN (nil: the stored token), then pulls. Returns the number of
/// the operation.
#[defun(name = "-jira-push")]
fn push(env: &Env, jira: &Site, token: Value<'_>) -> Result<u64> {
    let client = text::maybe(token).map(|token| jira.client(token))?;
    let options = jira.pull_options(false, false);
    let shared = Arc::clone(&jira.shared);
    let started = work::task("weir-jira-push", move |_| {
        shared.push(&client()?, &options).map(Answer::Json)
    });
    or_signal(env, started)
}

/// Returns the operations of the outbox of JIRA as property lists: those of the issue KEY, or all
/// if KEY is nil.
#[defun(name = "-jira-outbox")]
fn outbox<'e>(env: &'e Env, jira: &Site, key: Value<'e>) -> Result<Value<'e>> {
    let key = text::maybe(key)?;
    let ops = or_signal(env, edits::ops(&jira.shared.replica, key.as_deref()))?;
    json(env, &ops)
}

/// Returns the texts (BASE MINE THEIRS) of the conflict about FIELD of the operation OP of JIRA.
#[defun(name = "-jira-conflict")]
fn conflict<'e>(env: &'e Env, jira: &Site, op: Value<'e>, field: Value<'e>) -> Result<Value<'e>> {
    let (op, field) = (text::text(op)?, text::text(field)?);
    let texts = or_signal(env, edits::conflict(&jira.shared.replica, &op, &field))?;
    json(env, &texts)
}

/// Returns the candidates for completion of the kind WHAT for KEY of JIRA. WHAT is fields,
/// transitions, people, phrases, types, required (KEY: project, line break, type), screen (KEY:
/// issue, line break, status), worklog (KEY: issue, line break, id), texts (KEY: number of an
/// operation), or filters.
#[defun(name = "-jira-offered")]
fn completions<'e>(
    env: &'e Env,
    jira: &Site,
    what: Value<'e>,
    key: Value<'e>,
) -> Result<Value<'e>> {
    let (what, key) = (text::text(what)?, text::text(key)?);
    let offered = or_signal(env, edits::completions(&jira.shared.replica, &what, &key))?;
    json(env, &offered)
}

/// Returns the current version of the issue KEY of JIRA, for `weir--jira-text` and
/// `weir--jira-change`.
#[defun(user_ptr, name = "-jira-edit-base")]
fn edit_base(env: &Env, jira: &Site, key: Value<'_>) -> Result<EditBase> {
    let key = text::text(key)?;
    let base = Outbox::new(&jira.shared.replica, now_ms()).edit_base(&key);
    or_signal(env, base.map_err(Failure::from))
}

/// Returns the text of FIELD in BASE; with COMMENT, an id, the text of that comment.
#[defun(name = "-jira-text")]
fn base_text(env: &Env, base: &EditBase, field: Value<'_>, comment: Value<'_>) -> Result<String> {
    match text::maybe(comment)? {
        Some(comment) => or_signal(env, base.comment(&comment).map_err(Failure::from)),
        None => Ok(base.text(&text::text(field)?)),
    }
}
