//! The outbox: local changes of issues, which are durable before a call returns, and pushed later.
//!
//! Invariants:
//! - An operation is in the topic `outbox` before the function that queues it returns.
//! - No function of this module sends a request.
//! - Each operation has a higher number than the one before it: the topic also holds the last
//!   number, and one transaction writes both.

mod correct;

pub use correct::OpText;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::client::Deployment;
use crate::error::{JiraError, Result};
use crate::meta::{self, FieldInfo, FieldKind};
use crate::op::{self, Action, FieldEdit, Op, SetEdit, State, Work};
use crate::overlay::{self, Overlay};
use crate::replica::{Change, Replica};
use crate::time;
use crate::values::{self, ParsedValue};

/// Topic of the outbox.
const TOPIC: &str = "outbox";
/// Key of the record with the last number.
const COUNTER: &str = "counter";
/// Limit on the retries of a write whose record another process has changed.
const RACES_MAX: usize = 100;
/// Fields that a clone copies.
const CLONED: &[&str] = &[
    "issuetype",
    "description",
    "priority",
    "labels",
    "assignee",
    "components",
    "fixVersions",
    "duedate",
    "parent",
];

/// The decision of the user about an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The local value replaces that of the site.
    Mine,
    /// The value of the site remains.
    Theirs,
    /// The operation is sent again unchanged.
    Retry,
    /// The operation is not sent.
    Drop,
}

/// Assignments as the user writes them: pairs of field and text.
pub type Assignments = [(String, String)];

/// The outbox of a replica.
#[derive(Clone, Copy, Debug)]
pub struct Outbox<'a> {
    replica: &'a Replica,
    now_ms: i64,
}

/// The version of an issue at the start of an edit. An edit with this base conflicts with later
/// changes of other users.
#[derive(Clone, Debug)]
pub struct EditBase {
    issue: Value,
    unread: bool,
    /// Whether operations of the outbox changed the issue at that time.
    has_own: bool,
}

impl EditBase {
    /// The value of a field as text: rich text as org.
    pub fn text(&self, field: &str) -> String {
        op::text(&self.issue["fields"][field])
    }

    /// The text of a comment as org.
    ///
    /// # Errors
    /// `Change` if the issue has no such comment.
    pub fn comment(&self, comment: &str) -> Result<String> {
        Ok(op::text(&comment_of(&self.issue, comment)?["body"]))
    }
}

/// The issue of an operation.
struct Target {
    /// Id at the site, or temporary key.
    id: String,
    key: String,
    /// The issue with pending operations applied.
    issue: Value,
    /// Whether the replica lacks the issue.
    unread: bool,
}

impl<'a> Outbox<'a> {
    /// The outbox of a replica. Operations get the time `now_ms`, in milliseconds since 1970-01-01
    /// UTC.
    pub fn new(replica: &'a Replica, now_ms: i64) -> Self {
        Self { replica, now_ms }
    }

    /// All operations, in the order of their creation.
    pub fn ops(&self) -> Result<Vec<Op>> {
        overlay::ops(self.replica)
    }

    /// All operations, in the order of their creation. If an operation waits for a stuck one, its
    /// `problem` names the operation that it waits for.
    pub fn listing(&self) -> Result<Vec<Op>> {
        overlay::listing(self.replica)
    }

    /// Fails with `ReadOnly` at a read-only site.
    fn check_writable(&self) -> Result<()> {
        match self.replica.deployment()? {
            Deployment::Cloud => Ok(()),
            Deployment::DataCenter => Err(JiraError::ReadOnly),
        }
    }

    /// The operation with this number or id, as in [`listing`](Self::listing).
    ///
    /// # Errors
    /// `UnknownOp` if the outbox has no such operation.
    pub fn find(&self, name: &str) -> Result<Op> {
        let number = name.parse::<u64>().ok();
        let mut all = self.listing()?.into_iter();
        let found = all.find(|op| Some(op.number) == number || op.id == name);
        found.ok_or_else(|| JiraError::UnknownOp(name.to_owned()))
    }

    /// The operations of an issue, as in [`listing`](Self::listing).
    pub fn pending_of(&self, key: &str) -> Result<Vec<Op>> {
        let overlay = Overlay::load_issue(self.replica, key)?;
        let target = self.target(&overlay, key)?;
        Ok(overlay.of_issue(&target.id).to_vec())
    }

    /// The issue with pending operations applied.
    ///
    /// # Errors
    /// `UnknownIssue` if neither the replica nor the outbox has the issue.
    pub fn show(&self, key: &str) -> Result<Value> {
        Ok(self.find_target(key)?.issue)
    }

    /// The current version of an issue with pending operations applied, as the base of an edit.
    /// Pass it to [`edit_from`](Self::edit_from) or another function whose name ends with `_from`.
    pub fn edit_base(&self, key: &str) -> Result<EditBase> {
        let overlay = Overlay::load_issue(self.replica, key)?;
        let target = self.target(&overlay, key)?;
        Ok(EditBase {
            has_own: overlay.of_issue(&target.id).iter().any(changes_issue),
            issue: target.issue,
            unread: target.unread,
        })
    }

    /// The fields of an issue that can be set, in the order of their names.
    pub fn fields(&self, key: &str) -> Result<Vec<FieldInfo>> {
        meta::fields_of(self.replica, &self.show(key)?)
    }

    /// Names of the statuses to which an issue can be moved, as far as known: those of the last
    /// answer for its type and status, otherwise all statuses of the site. The current status of
    /// the issue is not one of them.
    pub fn transitions(&self, key: &str) -> Result<Vec<String>> {
        let issue = self.before_transition(key)?;
        let mut names = meta::transitions_of(self.replica, &issue)?;
        let current = meta::name_of(&issue["fields"]["status"]);
        names.retain(|name| !name.eq_ignore_ascii_case(&current));
        Ok(names)
    }

    /// The fields that a transition of an issue to a status sets, as far as known.
    pub fn transition_fields(&self, key: &str, to: &str) -> Result<Vec<FieldInfo>> {
        meta::transition_fields_of(self.replica, &self.show(key)?, to)
    }

    /// The issue of a key. If a transition of the issue is in conflict, the status is that of the
    /// site.
    fn before_transition(&self, key: &str) -> Result<Value> {
        let mut issue = self.show(key)?;
        let pending = self.pending_of(key)?;
        let mut conflicts = pending.iter().flat_map(|op| &op.conflicts);
        if let Some(part) = conflicts.find(|part| part.field == "status") {
            issue["fields"]["status"] = part.theirs.clone();
        }
        Ok(issue)
    }

    fn find_target(&self, key: &str) -> Result<Target> {
        self.target(&Overlay::load_issue(self.replica, key)?, key)
    }

    fn target(&self, overlay: &Overlay, key: &str) -> Result<Target> {
        let unknown = || JiraError::UnknownIssue(key.to_owned());
        let name = key.to_uppercase();
        let location = self.replica.locate(&name)?;
        let stored: Option<Value> = match &location {
            Some(location) => {
                let topic = format!("issues.{}", location.project);
                self.replica.read(&topic, &location.id)?
            }
            None => None,
        };
        let unread = stored.is_none();
        let issue = match (stored, location) {
            (Some(mut issue), Some(location)) => {
                issue["fields"]["comment"]["comments"] = self.replica.comments(&location)?.into();
                issue["fields"]["worklog"]["worklogs"] = self.replica.worklogs(&location)?.into();
                overlay.apply(&mut issue);
                issue
            }
            // The outbox has created the issue, and the replica lacks it.
            (_, location) => {
                let id = location.map_or_else(|| name.clone(), |location| location.id);
                let mut created = overlay.created().into_iter();
                let found = created.find(|issue| issue["key"] == *name || issue["id"] == *id);
                found.ok_or_else(unknown)?
            }
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(Target {
            id: text(&issue["id"]),
            key: text(&issue["key"]),
            issue,
            unread,
        })
    }

    /// The issue of a change, at a site that is not read-only.
    fn writable_target(&self, key: &str) -> Result<Target> {
        self.check_writable()?;
        self.find_target(key)
    }

    /// Sets fields. All assignments become one operation, or part of a queued one.
    ///
    /// # Errors
    /// `Field` names the field with an invalid value; nothing is queued then.
    pub fn edit(&self, key: &str, assignments: &Assignments) -> Result<Op> {
        self.edit_from(key, &self.edit_base(key)?, assignments)
    }

    /// Sets fields as [`edit`](Self::edit) does. `base` is the version that the user edited.
    pub fn edit_from(&self, key: &str, base: &EditBase, assignments: &Assignments) -> Result<Op> {
        let target = self.writable_target(key)?;
        let known = meta::fields_of(self.replica, &target.issue)?;
        let (mut fields, mut sets) = (BTreeMap::new(), BTreeMap::new());
        for (name, text) in assignments {
            let info = meta::field(&known, name)?;
            let before = &base.issue["fields"][info.id.as_str()];
            match values::parse(self.replica, info, text, before)? {
                ParsedValue::Single(mine) if op::same(before, &mine) => {}
                ParsedValue::Single(mine) => {
                    let current = &target.issue["fields"][info.id.as_str()];
                    let edit = FieldEdit {
                        base: before.clone(),
                        mine,
                        // A later value is another edit, not a value that the site assigned.
                        unread: base.unread && op::same(before, current),
                    };
                    fields.insert(info.id.clone(), edit);
                }
                ParsedValue::Set(edit) if edit.is_empty() => {}
                ParsedValue::Set(edit) => {
                    sets.insert(info.id.clone(), edit);
                }
            }
        }
        if fields.is_empty() && sets.is_empty() {
            let text = format!(
                "{} has these values already; nothing was queued",
                target.key
            );
            return Err(JiraError::Change(text));
        }
        self.queue(&target, &Action::Edit { fields, sets })
    }

    /// Assigns an issue: `me`, `none`, an account id, an e-mail address or a name.
    pub fn assign(&self, key: &str, who: &str) -> Result<Op> {
        let who = if who == "none" { "" } else { who };
        self.edit(key, &[("assignee".to_owned(), who.to_owned())])
    }

    /// Adds labels and removes others.
    pub fn label(&self, key: &str, add: &[String], remove: &[String]) -> Result<Op> {
        let add = add.iter().map(|label| format!("+{label}"));
        let steps: Vec<String> = add
            .chain(remove.iter().map(|label| format!("-{label}")))
            .collect();
        self.edit(key, &[("labels".to_owned(), steps.join(","))])
    }

    /// Moves an issue to a status, with fields of the transition and a comment (org). The comment
    /// is sent only after the transition.
    pub fn transition(
        &self,
        key: &str,
        to: &str,
        assignments: &Assignments,
        comment: Option<&str>,
    ) -> Result<Op> {
        let target = self.writable_target(key)?;
        let possible = meta::transitions_of(self.replica, &target.issue)?;
        let to = possible_status(&possible, to)?;
        let mut known = meta::transition_fields_of(self.replica, &target.issue, &to)?;
        known.extend(meta::fields_of(self.replica, &target.issue)?);
        let fields = self.plain_fields(&known, assignments, &target.issue["fields"])?;
        let body = comment
            .map(|text| comment_body(text, &Value::Null))
            .transpose()?;
        let from = target.issue["fields"]["status"].clone();
        let transition = Action::Transition { to, from, fields };
        let Some(body) = body else {
            return self.queue(&target, &transition);
        };
        let (id, key) = (&target.id, &target.key);
        self.append(|number| {
            let action = Action::CommentAdd { body: body.clone() };
            let mut comment = self.new_op(number + 1, id, key, action);
            comment.after = Some(number);
            vec![self.new_op(number, id, key, transition.clone()), comment]
        })
    }

    /// Values of fields of a new issue or a transition; lists are complete.
    fn plain_fields(
        &self,
        known: &[FieldInfo],
        assignments: &Assignments,
        current: &Value,
    ) -> Result<Map<String, Value>> {
        let mut fields = Map::new();
        for (name, text) in assignments {
            let info = meta::field(known, name)?;
            let before = &current[info.id.as_str()];
            let parsed = values::parse(self.replica, info, text, before)?;
            fields.insert(info.id.clone(), plain_value(parsed, before));
        }
        Ok(fields)
    }

    /// Adds a comment, in org.
    pub fn comment(&self, key: &str, text: &str) -> Result<Op> {
        let body = comment_body(text, &Value::Null)?;
        self.queue(&self.writable_target(key)?, &Action::CommentAdd { body })
    }

    /// Changes the text of a comment; `text` is org.
    pub fn edit_comment(&self, key: &str, comment: &str, text: &str) -> Result<Op> {
        self.edit_comment_from(key, &self.edit_base(key)?, comment, text)
    }

    /// Changes the text of a comment; `text` is org. `base` is the version that the user edited.
    pub fn edit_comment_from(
        &self,
        key: &str,
        base: &EditBase,
        comment: &str,
        text: &str,
    ) -> Result<Op> {
        let target = self.writable_target(key)?;
        let base = comment_of(&base.issue, comment)?["body"].clone();
        let mine = comment_body(text, &base)?;
        if op::same(&base, &mine) {
            let text = format!("comment {comment} has this text already; nothing was queued");
            return Err(JiraError::Change(text));
        }
        let comment = comment.to_owned();
        self.queue(
            &target,
            &Action::CommentEdit {
                comment,
                base,
                mine,
            },
        )
    }

    /// Deletes a comment. It conflicts with a change of the comment.
    pub fn delete_comment(&self, key: &str, comment: &str) -> Result<Op> {
        self.delete_comment_from(key, &self.edit_base(key)?, comment)
    }

    /// Deletes a comment as [`delete_comment`](Self::delete_comment) does. `base` is the version that
    /// the user saw.
    pub fn delete_comment_from(&self, key: &str, base: &EditBase, comment: &str) -> Result<Op> {
        let target = self.writable_target(key)?;
        let base = comment_of(&base.issue, comment)?["body"].clone();
        let comment = comment.to_owned();
        self.queue(&target, &Action::CommentDelete { comment, base })
    }

    /// Adds a worklog of `seconds` seconds that began at `started_ms`. Its comment is org; empty:
    /// none.
    pub fn worklog(&self, key: &str, seconds: u64, started_ms: i64, text: &str) -> Result<Op> {
        if seconds < 60 {
            let what = "a worklog is at least one minute".to_owned();
            return Err(JiraError::Change(what));
        }
        let comment = values::rich(text, &Value::Null).map_err(JiraError::Change)?;
        let started = time::format(started_ms);
        let action = Action::WorklogAdd {
            seconds,
            started,
            comment,
        };
        self.queue(&self.writable_target(key)?, &action)
    }

    /// Parses a time as Jira writes it, or `YYYY-MM-DD HH:MM` in the time zone of the account. Returns
    /// milliseconds since 1970-01-01 UTC.
    pub fn parse_time(&self, text: &str) -> Result<i64> {
        let zone = meta::zone(self.replica)?;
        let ms = time::parse(text).or_else(|| time::parse_literal(text, &zone));
        ms.ok_or_else(|| JiraError::Change(format!("{text:?} is not a time `YYYY-MM-DD HH:MM`")))
    }

    /// Whether the account has logged `seconds` seconds from `started_ms`, at the site or in the
    /// outbox.
    pub fn has_worklog(&self, key: &str, seconds: u64, started_ms: i64) -> Result<bool> {
        let overlay = Overlay::load_issue(self.replica, key)?;
        let target = self.target(&overlay, key)?;
        let is_equal =
            |of: &Value, began: &str| *of == seconds && time::parse(began) == Some(started_ms);
        let queued = overlay
            .of_issue(&target.id)
            .iter()
            .any(|op| match &op.action {
                Action::WorklogAdd {
                    seconds, started, ..
                } => is_equal(&json!(seconds), started),
                _ => false,
            });
        let Some(location) = self.replica.locate(&target.id)?.filter(|_| !queued) else {
            return Ok(queued);
        };
        let me = meta::account(self.replica)?;
        let topic = format!("worklogs.{}", location.project);
        let logged = self.replica.values(&topic, &format!("{}.", location.id))?;
        Ok(logged.iter().any(|(_, item)| {
            let began = item["started"].as_str().unwrap_or_default();
            item["author"]["accountId"] == *me && is_equal(&item["timeSpentSeconds"], began)
        }))
    }

    /// Changes the seconds, the start or the comment (org) of a worklog; `None` keeps a value.
    pub fn edit_worklog(
        &self,
        key: &str,
        worklog: &str,
        seconds: Option<u64>,
        started_ms: Option<i64>,
        text: Option<&str>,
    ) -> Result<Op> {
        let base = self.edit_base(key)?;
        self.edit_worklog_from(key, &base, worklog, seconds, started_ms, text)
    }

    /// Changes a worklog as [`edit_worklog`](Self::edit_worklog) does. `base` is the version that
    /// the user edited.
    pub fn edit_worklog_from(
        &self,
        key: &str,
        base: &EditBase,
        worklog: &str,
        seconds: Option<u64>,
        started_ms: Option<i64>,
        text: Option<&str>,
    ) -> Result<Op> {
        let target = self.writable_target(key)?;
        let base = worklog_of(&base.issue, worklog)?;
        let mut mine = base.clone();
        mine.seconds = seconds.unwrap_or(base.seconds);
        if mine.seconds < 60 {
            let what = "a worklog is at least one minute".to_owned();
            return Err(JiraError::Change(what));
        }
        if let Some(ms) = started_ms {
            mine.started = time::format(ms);
        }
        if let Some(text) = text {
            mine.comment = values::rich(text, &base.comment).map_err(JiraError::Change)?;
        }
        if mine.is_same(&base) {
            let text = format!("worklog {worklog} has these values already; nothing was queued");
            return Err(JiraError::Change(text));
        }
        let worklog = worklog.to_owned();
        self.queue(
            &target,
            &Action::WorklogEdit {
                worklog,
                base,
                mine,
            },
        )
    }

    /// Deletes a worklog. It conflicts with a change of the worklog.
    pub fn delete_worklog(&self, key: &str, worklog: &str) -> Result<Op> {
        self.delete_worklog_from(key, &self.edit_base(key)?, worklog)
    }

    /// Deletes a worklog as [`delete_worklog`](Self::delete_worklog) does. `base` is the version that
    /// the user saw.
    pub fn delete_worklog_from(&self, key: &str, base: &EditBase, worklog: &str) -> Result<Op> {
        let target = self.writable_target(key)?;
        let base = worklog_of(&base.issue, worklog)?;
        let worklog = worklog.to_owned();
        self.queue(&target, &Action::WorklogDelete { worklog, base })
    }

    /// The changeable part of a worklog, and its comment as org.
    pub fn worklog_of(&self, key: &str, worklog: &str) -> Result<(Work, String)> {
        let work = worklog_of(&self.show(key)?, worklog)?;
        let text = op::text(&work.comment);
        Ok((work, text))
    }

    /// Starts or stops watching an issue.
    pub fn watch(&self, key: &str, on: bool) -> Result<Op> {
        self.queue(&self.writable_target(key)?, &Action::Watch { on })
    }

    /// Links an issue to another by a phrase such as `blocks` or `is blocked by`, or removes the
    /// link.
    pub fn link(&self, key: &str, phrase: &str, other: &str, remove: bool) -> Result<Op> {
        self.check_writable()?;
        let (target, other) = (self.find_target(key)?, self.find_target(other)?);
        let action = self.link_action(&target.id, phrase, other.id, remove)?;
        self.queue(&target, &action)
    }

    /// The link from the issue with the id `own` to the one with the id `other`.
    fn link_action(&self, own: &str, phrase: &str, other: String, remove: bool) -> Result<Action> {
        if own == other {
            return Err(JiraError::Change(
                "an issue is not linked to itself".to_owned(),
            ));
        }
        let types = meta::link_types(self.replica)?;
        let has_phrase = |kind: &Value, end: &str| {
            kind[end]
                .as_str()
                .is_some_and(|text| text.eq_ignore_ascii_case(phrase))
        };
        let outward = types
            .iter()
            .find(|kind| has_phrase(kind, "outward") || has_phrase(kind, "name"));
        let inward = types.iter().find(|kind| has_phrase(kind, "inward"));
        // The issue at the inward end shows the outward phrase.
        let (kind, inward, outward) = match (outward, inward) {
            (Some(kind), _) => (kind, own.to_owned(), other),
            (None, Some(kind)) => (kind, other, own.to_owned()),
            (None, None) => {
                let phrases = meta::link_phrases(self.replica)?;
                let what = format!(
                    "{phrase:?} is not a link; choose from {}",
                    phrases.join(", ")
                );
                let field = "link".to_owned();
                return Err(JiraError::Field { field, what });
            }
        };
        let name = kind["name"].as_str().unwrap_or_default().to_owned();
        Ok(Action::Link {
            name,
            inward,
            outward,
            remove,
        })
    }

    /// Creates an issue; `parent` is the key of the parent of a subtask. Returns the operation,
    /// whose key identifies the issue until the site has created it.
    pub fn create(
        &self,
        project: &str,
        kind: &str,
        summary: &str,
        assignments: &Assignments,
        parent: Option<&str>,
    ) -> Result<Op> {
        self.check_writable()?;
        let (id, key) = self.project(project)?;
        let types = meta::types(self.replica, &id)?;
        let has_name = |found: &&Value| meta::name_of(found).eq_ignore_ascii_case(kind);
        let issuetype = match types.iter().find(has_name) {
            Some(found) => json!({"id": found["id"], "name": found["name"]}),
            None if types.is_empty() => json!({"name": kind}),
            None => {
                let names: Vec<String> = types.iter().map(meta::name_of).collect();
                let what = format!(
                    "{kind:?} is not a type of {key}; choose from {}",
                    names.join(", ")
                );
                let field = "type".to_owned();
                return Err(JiraError::Field { field, what });
            }
        };
        let known = meta::fields_for(self.replica, &id, kind)?;
        let mut fields = self.plain_fields(&known, assignments, &Value::Null)?;
        let summary = [("summary".to_owned(), summary.to_owned())];
        fields.extend(self.plain_fields(&known, &summary, &Value::Null)?);
        fields.insert("issuetype".to_owned(), issuetype);
        if let Some(parent) = parent {
            let parent = self.writable_target(parent)?;
            fields.insert("parent".to_owned(), json!({"key": parent.key}));
        }
        if !types.is_empty() {
            check_required(&known, &fields)?;
        }
        self.queue_create(&key, &fields, None)
    }

    /// Creates a copy of an issue with the given values changed, and links the two.
    pub fn clone_issue(&self, key: &str, assignments: &Assignments) -> Result<Op> {
        let target = self.writable_target(key)?;
        let known = meta::fields_of(self.replica, &target.issue)?;
        let original = &target.issue["fields"];
        let mut fields = Map::new();
        for name in CLONED {
            if !op::same(&original[*name], &Value::Null) {
                fields.insert((*name).to_owned(), original[*name].clone());
            }
        }
        let summary = original["summary"].as_str().unwrap_or_default();
        let summary: String = format!("CLONE - {summary}").chars().take(255).collect();
        fields.insert("summary".to_owned(), summary.into());
        fields.extend(self.plain_fields(&known, assignments, original)?);
        let project = original["project"]["key"].as_str().unwrap_or_default();
        let types = meta::link_types(self.replica)?;
        let is_linked = types.iter().any(|kind| kind["name"] == "Cloners");
        let cloned = is_linked.then_some(target.id.as_str());
        self.queue_create(project, &fields, cloned)
    }

    /// Deletes an issue at the site. It conflicts with a change of the issue after the version in the
    /// replica.
    pub fn delete(&self, key: &str, subtasks: bool) -> Result<Op> {
        self.delete_from(key, &self.edit_base(key)?, subtasks)
    }

    /// Deletes an issue as [`delete`](Self::delete) does. `base` is the version that the user saw.
    pub fn delete_from(&self, key: &str, base: &EditBase, subtasks: bool) -> Result<Op> {
        let target = self.writable_target(key)?;
        let all = self.ops()?;
        let mut own = all.iter().filter(|op| changes_issue(op));
        let after_own = base.has_own || own.any(|op| op.issues().contains(&target.id));
        let base = if base.unread {
            Value::Null
        } else {
            base.issue["fields"]["updated"].clone()
        };
        let action = Action::Delete {
            subtasks,
            base,
            after_own,
        };
        self.queue(&target, &action)
    }

    fn project(&self, name: &str) -> Result<(String, String)> {
        let projects = self.replica.projects()?;
        let key_of = |value: &Value| {
            value["project"]["key"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let found = projects
            .iter()
            .find(|(id, value)| id == name || key_of(value).eq_ignore_ascii_case(name));
        let Some((id, value)) = found else {
            let known: Vec<String> = projects.iter().map(|(_, value)| key_of(value)).collect();
            return Err(JiraError::Field {
                field: "project".to_owned(),
                what: format!(
                    "{name:?} is not in the replica; there are {}",
                    known.join(", ")
                ),
            });
        };
        Ok((id.clone(), key_of(value)))
    }

    /// Queues the creation of an issue, and its link to the issue `cloned`, if any.
    fn queue_create(
        &self,
        project: &str,
        fields: &Map<String, Value>,
        cloned: Option<&str>,
    ) -> Result<Op> {
        self.append(|number| {
            let key = format!("{project}+{number}");
            let create = Action::Create {
                project: project.to_owned(),
                fields: fields.clone(),
            };
            let link = cloned.map(|cloned| Action::Link {
                name: "Cloners".to_owned(),
                inward: key.clone(),
                outward: cloned.to_owned(),
                remove: false,
            });
            let actions = std::iter::once(create).chain(link);
            let numbered = (number..).zip(actions);
            let ops = numbered.map(|(number, action)| self.new_op(number, &key, &key, action));
            ops.collect()
        })
    }

    /// Queues an operation, or merges it into a queued one.
    fn queue(&self, target: &Target, action: &Action) -> Result<Op> {
        for _ in 0..RACES_MAX {
            if let Some(merged) = self.merged(&target.id, action)? {
                return Ok(merged);
            }
            let new = |number| vec![self.new_op(number, &target.id, &target.key, action.clone())];
            if let Some(op) = self.try_append(new)? {
                return Ok(op);
            }
        }
        Err(JiraError::Busy)
    }

    fn new_op(&self, number: u64, issue: &str, key: &str, action: Action) -> Op {
        Op {
            number,
            id: Uuid::now_v7().to_string(),
            issue: issue.to_owned(),
            key: key.to_owned(),
            created_ms: self.now_ms,
            state: State::Queued,
            attempts: 0,
            sent_ms: None,
            not_before_ms: 0,
            paused_ms: 0,
            after: None,
            problem: None,
            conflicts: Vec::new(),
            created: None,
            action,
        }
    }

    /// Appends operations, and returns the first. `new` returns the operations for the number of the
    /// first one; the others have the numbers after it.
    fn append(&self, new: impl Fn(u64) -> Vec<Op>) -> Result<Op> {
        for _ in 0..RACES_MAX {
            if let Some(op) = self.try_append(&new)? {
                return Ok(op);
            }
        }
        Err(JiraError::Busy)
    }

    /// As [`append`](Self::append), once. Returns `None` if another process has used a number.
    fn try_append(&self, new: impl Fn(u64) -> Vec<Op>) -> Result<Option<Op>> {
        self.check_writable()?;
        let stored = self.replica.get(TOPIC, COUNTER)?;
        let last: u64 = match &stored {
            Some(stored) => serde_json::from_slice(&stored.bytes)?,
            None => 0,
        };
        let ops = new(last + 1);
        let counter = ops.last().map(|op| op.number);
        let mut changes = vec![Change {
            key: COUNTER.to_owned(),
            value: Some(serde_json::to_vec(&counter)?),
            found: stored.map(|stored| stored.offset),
        }];
        for op in &ops {
            changes.push(Change {
                key: Op::record_key(op.number),
                value: Some(serde_json::to_vec(op)?),
                found: None,
            });
        }
        // All operations are in one transaction, unless they are larger than one can be.
        let written = self.replica.apply(TOPIC, &changes)?;
        Ok(ops.into_iter().next().filter(|_| written))
    }

    /// Merges an edit into the last operation of the issue, if that operation is an unsent edit or
    /// creation, and the edit began from its values. Otherwise the edit becomes an operation of its
    /// own, which the push compares with the result of the earlier one. If the last operation waits
    /// for a stuck one, only an edit of one of its fields is merged into it.
    fn merged(&self, issue: &str, action: &Action) -> Result<Option<Op>> {
        let Action::Edit { fields, sets } = action else {
            return Ok(None);
        };
        let all = self.ops()?;
        let last = all.iter().rfind(|op| op.issue == issue);
        let Some(last) = last.filter(|op| op.state == State::Queued) else {
            return Ok(None);
        };
        let waits = op::waiting_for_stuck(&all).contains_key(&last.number);
        if waits && !last.action.conflicts_with(action) {
            return Ok(None);
        }
        let Some((mut op, found)) = read(self.replica, last.number)? else {
            return Ok(None);
        };
        // A creation or edit that the site may have executed must not change.
        if op.state != State::Queued || op.may_be_executed() {
            return Ok(None);
        }
        match &mut op.action {
            Action::Edit {
                fields: queued,
                sets: queued_sets,
            } => {
                let earlier = |name: &String| queued.get(name).map(|edit| &edit.mine);
                if !follows(fields, earlier) {
                    return Ok(None);
                }
                for (name, edit) in fields {
                    let slot = queued.entry(name.clone());
                    slot.and_modify(|old| old.mine = edit.mine.clone())
                        .or_insert_with(|| edit.clone());
                }
                for (name, edit) in sets {
                    let slot = queued_sets.entry(name.clone()).or_default();
                    merge_sets(slot, edit);
                }
            }
            Action::Create { fields: queued, .. } => {
                if !follows(fields, |name| queued.get(name)) {
                    return Ok(None);
                }
                for (name, edit) in fields {
                    queued.insert(name.clone(), edit.mine.clone());
                }
                for (name, edit) in sets {
                    let slot = queued.entry(name.clone()).or_insert(Value::Null);
                    overlay::apply_set(slot, edit);
                }
            }
            _ => return Ok(None),
        }
        let written = write(self.replica, &op, found)?;
        Ok(written.then_some(op))
    }

    /// Applies the decision of the user to an operation, or to one of its fields. Returns the
    /// operation, or `None` if it left the outbox.
    ///
    /// # Errors
    /// `Change` if the decision does not fit the operation, for example for a field without
    /// conflict.
    pub fn resolve(
        &self,
        name: &str,
        choice: Choice,
        field: Option<&str>,
        value: Option<&str>,
    ) -> Result<Option<Op>> {
        for _ in 0..RACES_MAX {
            let number = self.find(name)?.number;
            let unknown = || JiraError::UnknownOp(name.to_owned());
            let (mut op, found) = read(self.replica, number)?.ok_or_else(unknown)?;
            let stays = self.decide(&mut op, choice, field, value)?;
            let written = if stays {
                write(self.replica, &op, found)?
            } else {
                remove(self.replica, &op, found)?
            };
            if written {
                return Ok(stays.then_some(op));
            }
        }
        Err(JiraError::Busy)
    }

    /// Applies a decision to an operation in memory. Returns whether the operation remains.
    fn decide(
        &self,
        op: &mut Op,
        choice: Choice,
        field: Option<&str>,
        value: Option<&str>,
    ) -> Result<bool> {
        if op.state == State::Sent {
            let text = "the site has executed it; the next push or pull removes it from the outbox";
            return Err(JiraError::Change(text.to_owned()));
        }
        match choice {
            Choice::Drop => {
                if matches!(op.state, State::Sending | State::Unknown) {
                    let text = "the site may have executed it: push first, then drop or undo it";
                    return Err(JiraError::Change(text.to_owned()));
                }
                self.check_needed(op)?;
                return Ok(false);
            }
            Choice::Retry => {
                if op.state == State::Conflict {
                    let text = "it is in conflict: choose `mine` or `theirs`".to_owned();
                    return Err(JiraError::Change(text));
                }
                if op.state == State::Rejected {
                    op.state = State::Queued;
                }
                op.not_before_ms = 0;
                return Ok(true);
            }
            Choice::Mine | Choice::Theirs => {}
        }
        let known: Vec<String> = op.conflicts.iter().map(|part| part.field.clone()).collect();
        let chosen: Vec<String> = match field {
            Some(field) => known
                .iter()
                .filter(|name| *name == field)
                .cloned()
                .collect(),
            None => known.clone(),
        };
        if chosen.is_empty() {
            let text = match field {
                Some(field) if !known.is_empty() => {
                    format!("{field} is not in conflict; there are {}", known.join(", "))
                }
                _ => format!("operation {} has no conflict", op.number),
            };
            return Err(JiraError::Change(text));
        }
        let has_no_fields = matches!(
            op.action,
            Action::CommentDelete { .. }
                | Action::Transition { .. }
                | Action::WorklogEdit { .. }
                | Action::WorklogDelete { .. }
                | Action::Delete { .. }
        );
        if choice == Choice::Theirs && has_no_fields {
            self.check_needed(op)?;
            return Ok(false);
        }
        let merged = match value {
            None => None,
            Some(_) if choice == Choice::Theirs || chosen.len() != 1 => {
                let text = "a value needs `mine` and one field".to_owned();
                return Err(JiraError::Change(text));
            }
            Some(text) if chosen[0] == "status" => {
                self.choose_status(op, text)?;
                None
            }
            Some(text) => Some(self.merged_value(op, &chosen[0], text)?),
        };
        for name in &chosen {
            resolve_field(op, name, choice, merged.as_ref());
        }
        op.conflicts.retain(|part| !chosen.contains(&part.field));
        if op.conflicts.is_empty() {
            op.state = State::Queued;
            op.problem = None;
            op.not_before_ms = 0;
        }
        Ok(!has_nothing_to_send(op))
    }

    /// Fails if another operation would be sent without its condition after `op` is dropped: one of
    /// an issue that is not created, or the comment of a transition.
    fn check_needed(&self, op: &Op) -> Result<()> {
        let created = matches!(op.action, Action::Create { .. });
        let needs = |other: &&Op| {
            other.after == Some(op.number) || (created && op.precedes(other, op.state.is_stuck()))
        };
        match self.ops()?.iter().find(needs) {
            None => Ok(()),
            Some(other) => Err(JiraError::Change(format!(
                "operation {} needs {}: drop that one first",
                other.number, op.key
            ))),
        }
    }

    /// Gives a transition in conflict another status. The fields that the transition to that status
    /// sets keep their values.
    fn choose_status(&self, op: &mut Op, text: &str) -> Result<()> {
        let issue = self.before_transition(&op.issue)?;
        let possible = meta::transitions_of(self.replica, &issue)?;
        let status = possible_status(&possible, text)?;
        let known = meta::transition_fields_of(self.replica, &issue, &status)?;
        if let Action::Transition { to, fields, .. } = &mut op.action {
            fields.retain(|name, _| known.iter().any(|info| info.id == *name));
            *to = status;
        }
        Ok(())
    }

    /// A value that the user wrote to resolve a conflict.
    fn merged_value(&self, op: &Op, field: &str, text: &str) -> Result<Value> {
        let conflict = op.conflicts.iter().find(|part| part.field == field);
        let theirs = conflict.map(|part| part.theirs.clone()).unwrap_or_default();
        let empty = weir_adf::empty();
        let documents = conflict.and_then(|part| part.documents(&empty));
        let others = documents.as_ref().map_or(&[][..], |all| &all[1..]);
        if field.starts_with("comment:") {
            let body = values::merged_rich(text, &theirs, others);
            return not_empty(body.map_err(JiraError::Change)?);
        }
        if field.starts_with("worklog:") {
            let text = "choose your worklog or that of the site: they are not merged".to_owned();
            return Err(JiraError::Change(text));
        }
        if matches!(op.action, Action::Delete { .. }) {
            let text = "a deletion has no value: choose `mine` or `theirs` without one".to_owned();
            return Err(JiraError::Change(text));
        }
        let issue = self.show(&op.issue)?;
        let known = meta::fields_of(self.replica, &issue)?;
        let info = meta::field(&known, field)?;
        if info.kind == FieldKind::Rich {
            let field = info.id.clone();
            return values::merged_rich(text, &theirs, others)
                .map_err(|what| JiraError::Field { field, what });
        }
        match values::parse(self.replica, info, text, &theirs)? {
            ParsedValue::Single(value) => Ok(value),
            ParsedValue::Set(_) => Err(JiraError::Change("lists have no conflicts".to_owned())),
        }
    }
}

/// The possible status with this name; any status if the possible ones are unknown.
fn possible_status(possible: &[String], name: &str) -> Result<String> {
    let mut all = possible.iter();
    let found = all.find(|status| status.eq_ignore_ascii_case(name));
    match found {
        Some(status) => Ok(status.clone()),
        None if possible.is_empty() => Ok(name.to_owned()),
        None => {
            let names = possible.join(", ");
            let what = format!("{name:?} is not possible; choose from {names}");
            let field = "status".to_owned();
            Err(JiraError::Field { field, what })
        }
    }
}

/// The value of a field whose value was `before`. The value of a list is the whole list.
fn plain_value(parsed: ParsedValue, before: &Value) -> Value {
    match parsed {
        ParsedValue::Single(value) => value,
        ParsedValue::Set(edit) => {
            let mut list = before.clone();
            overlay::apply_set(&mut list, &edit);
            list
        }
    }
}

/// Checks that no required field is missing.
fn check_required(known: &[FieldInfo], fields: &Map<String, Value>) -> Result<()> {
    let missing = known.iter().find(|info| {
        let given = fields.get(&info.id).is_some_and(|value| !value.is_null());
        info.is_asked_for() && !given
    });
    missing.map_or(Ok(()), |info| {
        let possible = if info.allowed.is_empty() {
            String::new()
        } else {
            format!(": {}", info.allowed.join(", "))
        };
        Err(JiraError::Field {
            field: info.id.clone(),
            what: format!("it is needed for a new issue{possible}"),
        })
    })
}

/// Whether the issue of an operation still exists after it.
fn changes_issue(op: &Op) -> bool {
    !matches!(op.action, Action::Delete { .. })
}

/// Resolves the conflict of one field.
fn resolve_field(op: &mut Op, field: &str, choice: Choice, merged: Option<&Value>) {
    let conflict = op.conflicts.iter().find(|part| part.field == field);
    let theirs = conflict.map(|part| part.theirs.clone()).unwrap_or_default();
    match &mut op.action {
        Action::Edit { fields, .. } => match choice {
            Choice::Mine => {
                if let Some(edit) = fields.get_mut(field) {
                    edit.base = theirs;
                    edit.unread = false;
                    edit.mine = merged.unwrap_or(&edit.mine).clone();
                }
            }
            _ => {
                fields.remove(field);
            }
        },
        Action::CommentEdit { base, mine, .. } => {
            if choice == Choice::Mine {
                *mine = merged.unwrap_or(mine).clone();
            } else {
                *mine = theirs.clone();
            }
            *base = theirs;
        }
        Action::CommentDelete { base, .. } if choice == Choice::Mine => *base = theirs,
        Action::WorklogEdit { base, .. } | Action::WorklogDelete { base, .. } => {
            *base = Work::of(&theirs);
        }
        Action::Transition { from, .. } => *from = theirs,
        Action::Delete {
            base, after_own, ..
        } => {
            *base = theirs;
            *after_own = false;
        }
        _ => {}
    }
}

/// Whether the operation has no change left.
fn has_nothing_to_send(op: &Op) -> bool {
    match &op.action {
        Action::Edit { fields, sets } => fields.is_empty() && sets.is_empty(),
        Action::CommentEdit { base, mine, .. } => base == mine,
        _ => false,
    }
}

/// Whether each edited field began from the value that the earlier operation gives it, or already
/// has that value.
fn follows<'v>(
    fields: &BTreeMap<String, FieldEdit>,
    earlier: impl Fn(&String) -> Option<&'v Value>,
) -> bool {
    fields.iter().all(|(name, edit)| {
        earlier(name).is_none_or(|value| op::same(value, &edit.base) || op::same(value, &edit.mine))
    })
}

/// Merges a later change of a list into an earlier one.
fn merge_sets(earlier: &mut SetEdit, later: &SetEdit) {
    for item in &later.add {
        earlier.remove.retain(|other| !op::same(other, item));
        if !earlier.add.iter().any(|other| op::same(other, item)) {
            earlier.add.push(item.clone());
        }
    }
    for item in &later.remove {
        earlier.add.retain(|other| !op::same(other, item));
        if !earlier.remove.iter().any(|other| op::same(other, item)) {
            earlier.remove.push(item.clone());
        }
    }
}

/// Converts the org text of a comment to rich text that replaces `base`; it cannot be empty.
fn comment_body(text: &str, base: &Value) -> Result<Value> {
    not_empty(values::rich(text, base).map_err(JiraError::Change)?)
}

/// The body of a comment, which cannot be empty.
fn not_empty(body: Value) -> Result<Value> {
    if body.is_null() {
        return Err(JiraError::Change("a comment cannot be empty".to_owned()));
    }
    Ok(body)
}

/// The comment of an issue with this id.
fn comment_of<'v>(issue: &'v Value, comment: &str) -> Result<&'v Value> {
    let all = issue["fields"]["comment"]["comments"].as_array();
    let found = all.into_iter().flatten().find(|item| item["id"] == comment);
    found.ok_or_else(|| {
        let text = format!(
            "{} has no comment {comment} that is at the site",
            op::text(&issue["key"])
        );
        JiraError::Change(text)
    })
}

/// A worklog of an issue that is at the site.
fn worklog_of(issue: &Value, worklog: &str) -> Result<Work> {
    let all = issue["fields"]["worklog"]["worklogs"].as_array();
    let found = all.into_iter().flatten().find(|item| item["id"] == worklog);
    let found = found.filter(|_| !worklog.starts_with('+'));
    found.map(Work::of).ok_or_else(|| {
        let text = format!(
            "{} has no worklog {worklog} that is at the site",
            op::text(&issue["key"])
        );
        JiraError::Change(text)
    })
}

/// A stored operation, with its offset.
pub(crate) fn read(replica: &Replica, number: u64) -> Result<Option<(Op, u64)>> {
    let Some(found) = replica.get(TOPIC, &Op::record_key(number))? else {
        return Ok(None);
    };
    let op = overlay::with_ids(replica, serde_json::from_slice(&found.bytes)?)?;
    Ok(Some((op, found.offset)))
}

/// Removes an operation in state `sent`, after the replica was updated.
pub(crate) fn remove_sent(replica: &Replica, number: u64) -> Result<()> {
    if let Some((op, found)) = read(replica, number)?
        && op.state == State::Sent
    {
        // If the removal fails, another process has removed it.
        remove(replica, &op, found)?;
    }
    Ok(())
}

/// Replaces an operation that was read at offset `found`. Returns `false` if it has changed since.
pub(crate) fn write(replica: &Replica, op: &Op, found: u64) -> Result<bool> {
    let change = Change {
        key: Op::record_key(op.number),
        value: Some(serde_json::to_vec(op)?),
        found: Some(found),
    };
    replica.apply(TOPIC, &[change])
}

/// Removes an operation that was read at offset `found`. Returns `false` if it has changed since.
pub(crate) fn remove(replica: &Replica, op: &Op, found: u64) -> Result<bool> {
    let change = Change {
        key: Op::record_key(op.number),
        value: None,
        found: Some(found),
    };
    replica.apply(TOPIC, &[change])
}
