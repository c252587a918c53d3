//! Decides which request a push sends for an operation, after reading the state of the site.
//!
//! Invariants:
//! - Planning sends no write.
//! - A write that may have been executed, and whose repetition would have an effect, is not planned
//!   again before the site had time to finish it and to show it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use serde_json::{Map, Value, json};

use crate::client::Client;
use crate::error::{JiraError, Result};
use crate::meta;
use crate::op::{
    self, Action, Created, FieldConflict, FieldEdit, MARKER, Op, SetEdit, State, Work,
};
use crate::replica::Replica;
use crate::time::{self, MINUTE_MS};

/// Time after which a write without an answer has either been executed, or never will be.
pub(crate) const WRITE_OVER_MS: i64 = 90_000;
/// Time after which the index of the site shows a new issue.
pub(crate) const INDEX_LAG_MS: i64 = 5 * MINUTE_MS;
/// How long before the first attempt a search for a created object begins.
const LOOK_BACK_MS: i64 = 30 * MINUTE_MS;
/// Limit on the pages of a list.
const PAGES_MAX: usize = 10_000;

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) body: Value,
}

/// The next step of an operation.
#[derive(Debug)]
pub(crate) enum Plan {
    /// The site already has the wanted state. The value is the created object, if any.
    NoOp(Option<Created>),
    /// A write, and the operation that remains after it; `None`: none.
    Send(Request, Option<Box<Op>>),
    /// The user must decide; the operation contains the conflicts.
    Conflict(Box<Op>),
    /// It is not yet known whether the operation was executed. Retry after this time, in
    /// milliseconds of the site clock.
    Wait(i64),
    /// The operation is impossible.
    Reject(String),
}

/// Plans the operations of one push.
#[derive(Debug)]
pub(crate) struct Planner<'a> {
    client: &'a Client,
    replica: &'a Replica,
    /// Time of the site at the start of the push, in milliseconds.
    site_start_ms: i64,
    started: Instant,
    /// Issues that operations of this outbox created, by marker. `None`: not searched yet.
    created: Option<BTreeMap<String, Created>>,
    /// Number of text edits that were merged with edits of other users.
    pub(crate) merged: u64,
    /// Last change of each issue before a write of a field, by id and field. The write may have
    /// overwritten a change of that field by another user after this time.
    pub(crate) seen: BTreeMap<String, BTreeMap<String, i64>>,
}

impl<'a> Planner<'a> {
    pub(crate) fn new(client: &'a Client, replica: &'a Replica, site_start_ms: i64) -> Self {
        Self {
            client,
            replica,
            site_start_ms,
            started: Instant::now(),
            created: None,
            merged: 0,
            seen: BTreeMap::new(),
        }
    }

    /// The time at the site, in milliseconds.
    pub(crate) fn site_now_ms(&self) -> i64 {
        let passed = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(0);
        self.site_start_ms + passed
    }

    /// The id at the site of an issue with this id or temporary key; `None` if it was never
    /// created.
    pub(crate) fn site_id(&self, issue: &str) -> Result<Option<String>> {
        if !issue.contains('+') {
            return Ok(Some(issue.to_owned()));
        }
        let found = self.replica.locate(issue)?;
        Ok(found.map(|location| location.id))
    }

    /// Plans an operation. `all` are the operations of the outbox that the site may have executed.
    pub(crate) fn plan(&mut self, op: &Op, all: &[Op]) -> Result<Plan> {
        for key in op.temporary_keys() {
            if self.site_id(key)?.is_none() {
                return Ok(Plan::Reject(format!("{key} was not created")));
            }
        }
        if let Action::Create { project, fields } = &op.action {
            return self.create(op, project, fields, all);
        }
        let Some(id) = self.site_id(&op.issue)? else {
            return Ok(Plan::Reject(format!("{} was not created", op.key)));
        };
        let plan = match &op.action {
            Action::Create { .. } => unreachable!("planned above"),
            Action::Edit { fields, sets } => self.edit(op, &id, fields, sets),
            Action::Transition { to, from, fields } => self.transition(op, &id, to, from, fields),
            Action::CommentAdd { body } => {
                let body = json!({"body": body, "properties": op.properties()});
                self.add(op, &id, "comment", "comments", body)
            }
            Action::WorklogAdd {
                seconds,
                started,
                comment,
            } => {
                let mut body = json!({"timeSpentSeconds": seconds, "started": started,
                    "properties": op.properties()});
                if !comment.is_null() {
                    body["comment"] = comment.clone();
                }
                self.add(op, &id, "worklog", "worklogs", body)
            }
            Action::CommentEdit {
                comment,
                base,
                mine,
            } => self.comment(op, &id, comment, base, Some(mine)),
            Action::CommentDelete { comment, base } => self.comment(op, &id, comment, base, None),
            Action::WorklogEdit {
                worklog,
                base,
                mine,
            } => self.worklog(op, &id, worklog, base, Some(mine)),
            Action::WorklogDelete { worklog, base } => self.worklog(op, &id, worklog, base, None),
            Action::Watch { on } => self.watch(&id, *on),
            Action::Link {
                name,
                inward,
                outward,
                remove,
            } => self.link(name, inward, outward, *remove),
            Action::Delete {
                subtasks,
                base,
                after_own,
            } => self.delete(op, &id, *subtasks, base, *after_own),
        };
        match plan {
            Err(JiraError::Status {
                status: 403 | 404,
                message,
                ..
            }) => {
                let text = format!("{} cannot be read at the site: {message}", op.key);
                Ok(Plan::Reject(text))
            }
            plan => plan,
        }
    }

    /// Reads fields of an issue, and records for each of them the last change of the issue.
    fn read_issue(&mut self, id: &str, fields: &str) -> Result<Value> {
        let issue: Value = self
            .client
            .get(&format!("issue/{id}?fields={fields},updated"))?;
        let updated = issue["fields"]["updated"].as_str().and_then(time::parse);
        let seen = self.seen.entry(id.to_owned()).or_default();
        for field in fields.split(',') {
            let last = seen.entry(field.to_owned()).or_default();
            *last = updated.unwrap_or(0).max(*last);
        }
        Ok(issue["fields"].clone())
    }

    fn create(
        &mut self,
        op: &Op,
        project: &str,
        fields: &Map<String, Value>,
        all: &[Op],
    ) -> Result<Plan> {
        if op.may_be_executed() {
            if let Some(found) = self.created(all)?.get(&op.id) {
                return Ok(Plan::NoOp(Some(found.clone())));
            }
            let over = op.sent_ms.unwrap_or(op.created_ms) + INDEX_LAG_MS;
            if self.site_now_ms() < over {
                return Ok(Plan::Wait(over));
            }
        }
        let mut body = Map::new();
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
            body.insert(name.clone(), op::wire(value));
        }
        body.insert("project".to_owned(), json!({"key": project}));
        let request = Request {
            method: "POST",
            path: "issue".to_owned(),
            body: json!({"fields": body, "properties": op.properties()}),
        };
        Ok(Plan::Send(request, None))
    }

    /// The issues that operations of this outbox created, as far as the index contains them.
    fn created(&mut self, all: &[Op]) -> Result<&BTreeMap<String, Created>> {
        if self.created.is_none() {
            let open = all.iter().filter(|op| op.may_be_executed());
            let sent = open.filter(|op| matches!(op.action, Action::Create { .. }));
            let first = sent.filter_map(|op| op.sent_ms).min();
            let first = first.unwrap_or(self.site_now_ms()) - LOOK_BACK_MS;
            self.created = Some(self.search_created(first)?);
        }
        Ok(self.created.get_or_insert_default())
    }

    fn search_created(&self, since_ms: i64) -> Result<BTreeMap<String, Created>> {
        let since = since_ms.max(0);
        let jql = format!("creator = currentUser() AND created >= {since} ORDER BY created ASC");
        let mut found = BTreeMap::new();
        let (mut token, mut before) = (None::<String>, Vec::new());
        for _ in 0..PAGES_MAX {
            let mut body = json!({"jql": jql, "fields": ["created"], "maxResults": 100,
                "properties": [MARKER]});
            if let Some(token) = &token {
                body["nextPageToken"] = token.as_str().into();
            }
            let page: Value = self.client.read_by_post("search/jql", &body)?;
            for issue in page["issues"].as_array().into_iter().flatten() {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let marker = text(&issue["properties"][MARKER]["id"]);
                if !marker.is_empty() {
                    let (id, key) = (text(&issue["id"]), text(&issue["key"]));
                    found.insert(marker, Created { id, key });
                }
            }
            let next = page["nextPageToken"].as_str().map(str::to_owned);
            match next {
                None => return Ok(found),
                Some(next) if before.contains(&next) => {
                    return Err(JiraError::Paging("it repeats a page token"));
                }
                Some(next) => {
                    before.push(next.clone());
                    token = Some(next);
                }
            }
        }
        Err(JiraError::Paging("its pages do not end"))
    }

    fn edit(
        &mut self,
        op: &Op,
        id: &str,
        fields: &BTreeMap<String, FieldEdit>,
        sets: &BTreeMap<String, SetEdit>,
    ) -> Result<Plan> {
        let names: Vec<&str> = fields
            .keys()
            .chain(sets.keys())
            .map(String::as_str)
            .collect();
        let site_fields = self.read_issue(id, &names.join(","))?;
        let foreign = if fields.values().any(|edit| edit.unread) {
            self.changes_of_others(id, &Value::Null)?.1
        } else {
            BTreeSet::new()
        };
        let (mut set, mut update) = (Map::new(), Map::new());
        let mut conflicts = Vec::new();
        for (name, edit) in fields {
            let theirs = &site_fields[name.as_str()];
            let mut edit = edit.clone();
            if edit.unread && !foreign.contains(name) {
                // The site assigned this value to the new issue.
                edit.base = theirs.clone();
            }
            match compare(&edit, theirs, op.state != State::Queued) {
                Comparison::NoOp => {}
                Comparison::Mine => {
                    set.insert(name.clone(), op::wire(&edit.mine));
                }
                Comparison::Merged(document) => {
                    self.merged += 1;
                    set.insert(name.clone(), document);
                }
                Comparison::Conflict => conflicts.push(FieldConflict {
                    field: name.clone(),
                    base: edit.base.clone(),
                    mine: edit.mine.clone(),
                    theirs: theirs.clone(),
                }),
            }
        }
        for (name, edit) in sets {
            let items = site_fields[name.as_str()].as_array();
            let items = items.map_or(&[][..], Vec::as_slice);
            let is_at_site = |item: &&Value| items.iter().any(|other| op::same(other, item));
            let add = edit.add.iter().filter(|item| !is_at_site(item));
            let mut steps: Vec<Value> = add.map(|item| json!({"add": op::wire(item)})).collect();
            let remove = edit.remove.iter().filter(is_at_site);
            steps.extend(remove.map(|item| json!({"remove": op::wire(item)})));
            if !steps.is_empty() {
                update.insert(name.clone(), steps.into());
            }
        }
        let rest = (!conflicts.is_empty()).then(|| Box::new(only_conflicts(op, conflicts)));
        if set.is_empty() && update.is_empty() {
            return Ok(rest.map_or(Plan::NoOp(None), Plan::Conflict));
        }
        let request = if update.is_empty() && set.len() == 1 && set.contains_key("assignee") {
            // An assignment needs another right than an edit.
            Request {
                method: "PUT",
                path: format!("issue/{id}/assignee"),
                body: json!({"accountId": set["assignee"]["accountId"]}),
            }
        } else {
            let mut body = Map::new();
            for (name, part) in [("fields", set), ("update", update)] {
                if !part.is_empty() {
                    body.insert(name.to_owned(), part.into());
                }
            }
            Request {
                method: "PUT",
                path: format!("issue/{id}"),
                body: body.into(),
            }
        };
        Ok(Plan::Send(request, rest))
    }

    /// The time of the last change of an issue, and what other users have changed in it after the
    /// time `since`: ids of fields, `comment` and `worklog`. `since` null: since its creation.
    fn changes_of_others(&self, id: &str, since: &Value) -> Result<(Value, BTreeSet<String>)> {
        let me = meta::myself(self.replica)?["accountId"].clone();
        let path = format!("issue/{id}?fields=comment,worklog,updated&expand=changelog");
        let issue: Value = self.client.get(&path)?;
        let since_ms = since.as_str().and_then(time::parse);
        let is_later = |at: &Value| {
            let both = at.as_str().and_then(time::parse).zip(since_ms);
            both.is_none_or(|(at, since)| at > since)
        };
        let is_foreign = |author: &Value, at: &Value| author["accountId"] != me && is_later(at);
        let histories = issue["changelog"]["histories"].as_array();
        let entries = histories.into_iter().flatten();
        let foreign = entries.filter(|entry| is_foreign(&entry["author"], &entry["created"]));
        let items = foreign.flat_map(|entry| entry["items"].as_array().into_iter().flatten());
        // Only fields have an id: a link does not.
        let names = items.filter_map(|item| item["fieldId"].as_str().or(item["field"].as_str()));
        let mut changed: BTreeSet<String> = names.map(str::to_owned).collect();
        for (field, list) in [("comment", "comments"), ("worklog", "worklogs")] {
            let mut parts = issue["fields"][field][list]
                .as_array()
                .into_iter()
                .flatten();
            if parts.any(|part| is_foreign(&part["updateAuthor"], &part["updated"])) {
                changed.insert(field.to_owned());
            }
        }
        Ok((issue["fields"]["updated"].clone(), changed))
    }

    fn transition(
        &mut self,
        op: &Op,
        id: &str,
        to: &str,
        from: &Value,
        fields: &Map<String, Value>,
    ) -> Result<Plan> {
        let mut names = vec!["status", "project", "issuetype"];
        names.extend(fields.keys().map(String::as_str));
        let site_fields = self.read_issue(id, &names.join(","))?;
        let status = &site_fields["status"];
        if meta::name_of(status).eq_ignore_ascii_case(to) {
            return Ok(reached(op, fields, &site_fields));
        }
        let path = format!("issue/{id}/transitions?expand=transitions.fields");
        let found: Value = self.client.get(&path)?;
        meta::store_transitions(self.replica, &json!({"fields": site_fields}), &found)?;
        let all = found["transitions"].as_array().into_iter().flatten();
        let all: Vec<&Value> = all.filter(|one| one["isAvailable"] != false).collect();
        let has_name = |value: &Value| meta::name_of(value).eq_ignore_ascii_case(to);
        let transition = all.iter().find(|one| has_name(&one["to"]));
        let transition = transition.or_else(|| {
            all.iter()
                .find(|one| has_name(&json!({"name": one["name"]})))
        });
        let Some(transition) = transition else {
            let names: Vec<String> = all.iter().map(|one| meta::name_of(&one["to"])).collect();
            let mut rest = op.clone();
            rest.conflicts = vec![FieldConflict {
                field: "status".to_owned(),
                base: from.clone(),
                mine: json!({"name": to}),
                theirs: status.clone(),
            }];
            let now = meta::name_of(status);
            let possible = names.join(", ");
            rest.problem = Some(format!("from {now} only these are possible: {possible}"));
            return Ok(Plan::Conflict(Box::new(rest)));
        };
        let mut body = json!({"transition": {"id": transition["id"]}});
        for (name, value) in fields {
            body["fields"][name.as_str()] = op::wire(value);
        }
        let path = format!("issue/{id}/transitions");
        let method = "POST";
        Ok(Plan::Send(Request { method, path, body }, None))
    }

    /// Adds a comment or worklog: sends it once, and finds it again by its marker.
    fn add(&mut self, op: &Op, id: &str, kind: &str, list: &str, body: Value) -> Result<Plan> {
        if op.may_be_executed() {
            let sent = op.sent_ms.unwrap_or(op.created_ms);
            let added = self.find_added(op, id, kind, list, sent - LOOK_BACK_MS)?;
            if added.is_some() {
                return Ok(Plan::NoOp(added));
            }
            if self.site_now_ms() < sent + WRITE_OVER_MS {
                return Ok(Plan::Wait(sent + WRITE_OVER_MS));
            }
        }
        let path = format!("issue/{id}/{kind}");
        let method = "POST";
        Ok(Plan::Send(Request { method, path, body }, None))
    }

    /// Searches for the comment or worklog that the operation added.
    fn find_added(
        &self,
        op: &Op,
        id: &str,
        kind: &str,
        list: &str,
        since_ms: i64,
    ) -> Result<Option<Created>> {
        let mut start = 0;
        for _ in 0..PAGES_MAX {
            // Worklogs have no order, so all of them are read.
            let path = format!(
                "issue/{id}/{kind}?startAt={start}&maxResults=100&orderBy=-created&expand=properties"
            );
            let page: Value = self.client.get(&path)?;
            let items = page[list].as_array().cloned().unwrap_or_default();
            let own = |item: &&Value| marker_of(item) == Some(op.id.as_str());
            if let Some(item) = items.iter().find(own) {
                return Ok(Some(Created {
                    id: item["id"].as_str().unwrap_or_default().to_owned(),
                    key: String::new(),
                }));
            }
            let created = |item: &Value| time::parse(item["created"].as_str()?);
            let old = |item: &Value| created(item).is_some_and(|at| at < since_ms);
            if items.is_empty() || (kind == "comment" && items.iter().all(old)) {
                return Ok(None);
            }
            start += items.len();
        }
        Err(JiraError::Paging("its pages do not end"))
    }

    /// Fails if the account cannot see an issue. The site answers 404 also for a comment or worklog
    /// that exists in such an issue.
    fn check_visible(&self, id: &str) -> Result<()> {
        let path = format!("issue/{id}?fields=updated");
        self.client.get::<Value>(&path).map(drop)
    }

    /// Whether the account cannot see the project of an issue. The site then answers as if the
    /// issue did not exist.
    fn is_project_hidden(&self, id: &str) -> Result<bool> {
        let location = self.replica.locate(id)?;
        let Some(location) = location.filter(|found| !found.project.is_empty()) else {
            return Ok(false);
        };
        let path = format!("project/{}", location.project);
        match self.client.get::<Value>(&path) {
            Err(JiraError::Status {
                status: 403 | 404, ..
            }) => Ok(true),
            found => found.map(|_| false),
        }
    }

    /// Edits a comment; deletes it if `mine` is `None`.
    fn comment(
        &mut self,
        op: &Op,
        id: &str,
        comment: &str,
        base: &Value,
        mine: Option<&Value>,
    ) -> Result<Plan> {
        let path = format!("issue/{id}/comment/{comment}");
        let site_comment: Value = match self.client.get(&path) {
            Err(JiraError::Status { status: 404, .. }) => {
                self.check_visible(id)?;
                return Ok(match mine {
                    None => Plan::NoOp(None),
                    Some(_) => Plan::Reject(format!("comment {comment} was deleted at the site")),
                });
            }
            found => found?,
        };
        let theirs = &site_comment["body"];
        let edit = FieldEdit {
            base: base.clone(),
            mine: mine.cloned().unwrap_or_default(),
            unread: false,
        };
        let conflict = || {
            let conflicts = vec![FieldConflict {
                field: format!("comment:{comment}"),
                base: edit.base.clone(),
                mine: edit.mine.clone(),
                theirs: theirs.clone(),
            }];
            let mut rest = op.clone();
            rest.conflicts = conflicts;
            rest.problem = Some(format!("changed since this edit began: comment {comment}"));
            Ok(Plan::Conflict(Box::new(rest)))
        };
        let (method, body) = match mine {
            None if op::same(theirs, base) => ("DELETE", Value::Null),
            None => return conflict(),
            Some(_) => match compare(&edit, theirs, op.state != State::Queued) {
                Comparison::NoOp => return Ok(Plan::NoOp(None)),
                Comparison::Mine => ("PUT", json!({"body": edit.mine})),
                Comparison::Merged(document) => {
                    self.merged += 1;
                    ("PUT", json!({"body": document}))
                }
                Comparison::Conflict => return conflict(),
            },
        };
        Ok(Plan::Send(Request { method, path, body }, None))
    }

    /// Changes a worklog; deletes it if `mine` is `None`.
    fn worklog(
        &self,
        op: &Op,
        id: &str,
        worklog: &str,
        base: &Work,
        mine: Option<&Work>,
    ) -> Result<Plan> {
        let path = format!("issue/{id}/worklog/{worklog}");
        let site_worklog: Value = match self.client.get(&path) {
            Err(JiraError::Status { status: 404, .. }) => {
                self.check_visible(id)?;
                return Ok(match mine {
                    None => Plan::NoOp(None),
                    Some(_) => Plan::Reject(format!("worklog {worklog} was deleted at the site")),
                });
            }
            found => found?,
        };
        let theirs = Work::of(&site_worklog);
        if mine.is_some_and(|mine| mine.is_same(&theirs)) {
            return Ok(Plan::NoOp(None));
        }
        if !theirs.is_same(base) {
            let mut rest = op.clone();
            rest.conflicts = vec![FieldConflict {
                field: format!("worklog:{worklog}"),
                base: serde_json::to_value(base)?,
                mine: serde_json::to_value(mine)?,
                theirs: serde_json::to_value(&theirs)?,
            }];
            rest.problem = Some(format!("changed since this edit began: worklog {worklog}"));
            return Ok(Plan::Conflict(Box::new(rest)));
        }
        let (method, body) = match mine {
            Some(mine) => ("PUT", mine.wire()),
            None => ("DELETE", Value::Null),
        };
        Ok(Plan::Send(Request { method, path, body }, None))
    }

    fn watch(&self, id: &str, on: bool) -> Result<Plan> {
        let me = meta::myself(self.replica)?;
        let account = me["accountId"].as_str().unwrap_or_default();
        let path = format!("issue/{id}/watchers");
        let request = if on {
            let body = account.into();
            let method = "POST";
            Request { method, path, body }
        } else {
            Request {
                method: "DELETE",
                path: format!("{path}?accountId={account}"),
                body: Value::Null,
            }
        };
        Ok(Plan::Send(request, None))
    }

    fn link(&mut self, name: &str, inward: &str, outward: &str, remove: bool) -> Result<Plan> {
        let ends = (self.site_id(inward)?, self.site_id(outward)?);
        let (Some(inward), Some(outward)) = ends else {
            return Ok(Plan::Reject(
                "one of the two issues was not created".to_owned(),
            ));
        };
        let site_fields = self.read_issue(&inward, "issuelinks")?;
        let mut links = site_fields["issuelinks"].as_array().into_iter().flatten();
        let found = links.find(|link| {
            link["type"]["name"] == name && link["outwardIssue"]["id"] == outward.as_str()
        });
        let request = match (found, remove) {
            // The site shows no link to an issue of a hidden project.
            (None, true) if self.is_project_hidden(&outward)? => {
                let why = "the project of the other issue cannot be read at the site";
                return Ok(Plan::Reject(why.to_owned()));
            }
            (Some(_), false) | (None, true) => return Ok(Plan::NoOp(None)),
            (None, false) => Request {
                method: "POST",
                path: "issueLink".to_owned(),
                body: json!({"type": {"name": name}, "inwardIssue": {"id": inward},
                    "outwardIssue": {"id": outward}}),
            },
            (Some(link), true) => Request {
                method: "DELETE",
                path: format!("issueLink/{}", link["id"].as_str().unwrap_or_default()),
                body: Value::Null,
            },
        };
        Ok(Plan::Send(request, None))
    }

    /// Deletes an issue if its last change was at the time `base`. With `after_own`, or if `base`
    /// is null, changes of this account are ignored.
    fn delete(
        &mut self,
        op: &Op,
        id: &str,
        subtasks: bool,
        base: &Value,
        after_own: bool,
    ) -> Result<Plan> {
        let site_fields = match self.read_issue(id, "summary") {
            Err(JiraError::Status { status: 404, .. }) => {
                return Ok(if self.is_project_hidden(id)? {
                    let key = &op.key;
                    Plan::Reject(format!("the project of {key} cannot be read at the site"))
                } else {
                    Plan::NoOp(None)
                });
            }
            found => found?,
        };
        if !op::same(&site_fields["updated"], base) {
            let (theirs, changed) = self.changes_of_others(id, base)?;
            let ignores_own = after_own || base.is_null();
            if !changed.is_empty() || !ignores_own {
                let rest = deletion_in_conflict(op, base, theirs, &changed);
                return Ok(Plan::Conflict(Box::new(rest)));
            }
        }
        let request = Request {
            method: "DELETE",
            path: format!("issue/{id}?deleteSubtasks={subtasks}"),
            body: Value::Null,
        };
        Ok(Plan::Send(request, None))
    }
}

/// The deletion of an issue that has changed at the site after the time `base`.
fn deletion_in_conflict(
    op: &Op,
    base: &Value,
    theirs: Value,
    changed_by_others: &BTreeSet<String>,
) -> Op {
    let mut rest = op.clone();
    rest.conflicts = vec![FieldConflict {
        field: "updated".to_owned(),
        base: base.clone(),
        mine: "deleted".into(),
        theirs,
    }];
    let mut problem = "the issue changed after the version that you deleted".to_owned();
    if !changed_by_others.is_empty() {
        let names: Vec<&str> = changed_by_others.iter().map(String::as_str).collect();
        problem = format!("{problem}; others changed {}", names.join(", "));
    }
    rest.problem = Some(problem);
    rest
}

/// The plan of a transition to the status that the issue already has. If another user chose other
/// values of its fields, those of the operation must not be lost silently.
fn reached(op: &Op, fields: &Map<String, Value>, site_fields: &Value) -> Plan {
    // The site can show a text that it has received in another form.
    let sent = op.state != State::Queued;
    let is_equal = |theirs: &Value, mine: &Value| {
        op::same(theirs, mine) || (sent && op::text(theirs) == op::text(mine))
    };
    let differs = |(name, mine): &(&String, &Value)| {
        let theirs = site_fields.get(name.as_str());
        theirs.is_some_and(|theirs| !is_equal(theirs, mine))
    };
    let names = fields.iter().filter(differs).map(|(name, _)| name.as_str());
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        return Plan::NoOp(None);
    }
    let status = op::text(&site_fields["status"]);
    Plan::Reject(format!(
        "the status is {status} already, with other values of {}: drop this change, then edit them",
        names.join(", ")
    ))
}

/// The id of the operation that created a comment or worklog.
fn marker_of(item: &Value) -> Option<&str> {
    let mut properties = item["properties"].as_array()?.iter();
    let own = properties.find(|property| property["key"] == MARKER)?;
    own["value"]["id"].as_str()
}

/// The edit without the fields that are not in conflict.
fn only_conflicts(op: &Op, conflicts: Vec<FieldConflict>) -> Op {
    let mut rest = op.clone();
    if let Action::Edit { fields, sets } = &mut rest.action {
        fields.retain(|name, _| conflicts.iter().any(|part| part.field == *name));
        sets.clear();
    }
    let names: Vec<&str> = conflicts.iter().map(|part| part.field.as_str()).collect();
    rest.problem = Some(format!(
        "changed since this edit began: {}",
        names.join(", ")
    ));
    rest.conflicts = conflicts;
    rest
}

enum Comparison {
    NoOp,
    Mine,
    Merged(Value),
    Conflict,
}

/// Compares an edit with the value at the site. With `sent`, the site may have executed the edit,
/// and may show its text in another form.
fn compare(edit: &FieldEdit, theirs: &Value, sent: bool) -> Comparison {
    if op::same(theirs, &edit.mine) {
        return Comparison::NoOp;
    }
    if op::same(theirs, &edit.base) {
        return Comparison::Mine;
    }
    let rich = [&edit.base, &edit.mine, theirs];
    if !rich
        .iter()
        .all(|value| value.is_null() || op::is_document(value))
        || !rich.iter().any(|value| op::is_document(value))
    {
        return Comparison::Conflict;
    }
    if sent && op::text(theirs) == op::text(&edit.mine) {
        return Comparison::NoOp;
    }
    let document = |value: &Value| {
        if value.is_null() {
            weir_adf::empty()
        } else {
            value.clone()
        }
    };
    let (base, mine, other) = (document(&edit.base), document(&edit.mine), document(theirs));
    match weir_adf::merge(&base, &mine, &other) {
        Ok(merged) if merged.conflicts.is_empty() && merged.document == other => Comparison::NoOp,
        Ok(merged) if merged.conflicts.is_empty() => Comparison::Merged(merged.document),
        _ => Comparison::Conflict,
    }
}
