//! Applies pending operations to issues of the replica, so that an edit is visible before its push.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::error::Result;
use crate::op::{self, Action, Op, SetEdit, State};
use crate::replica::Replica;
use crate::time;

/// The operations of an outbox by issue.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    ops: BTreeMap<String, Vec<Op>>,
    me: Value,
    /// Projects by key, for issues that are not created yet.
    projects: BTreeMap<String, Value>,
    /// Numbers of creations whose issue the replica has.
    replicated: BTreeSet<u64>,
    statuses: Vec<Value>,
}

/// The operations in the outbox of a replica, in the order of their creation.
pub fn ops(replica: &Replica) -> Result<Vec<Op>> {
    let found = replica.values("outbox", "op.")?.into_iter();
    let found = found.map(|(_, value)| with_ids(replica, serde_json::from_value(value)?));
    found.collect()
}

/// The operations as in [`ops`]. If an operation waits for a stuck one, its `problem` names the
/// operation that it waits for.
pub(crate) fn listing(replica: &Replica) -> Result<Vec<Op>> {
    let mut all = ops(replica)?;
    let waiting = op::waiting_for_stuck(&all);
    for op in &mut all {
        if let Some(number) = waiting.get(&op.number) {
            op.problem = Some(format!("it waits for operation {number}"));
        }
    }
    Ok(all)
}

/// An operation with its temporary keys replaced by ids, for issues that the site has created.
pub(crate) fn with_ids(replica: &Replica, mut op: Op) -> Result<Op> {
    for name in op.names_mut() {
        if name.contains('+')
            && let Some(location) = replica.locate(name)?
        {
            *name = location.id;
        }
    }
    for value in op.action.values_mut() {
        if let Some(key) = op::temporary_key(value)
            && let Some(location) = replica.locate(key)?
        {
            // The replica has no key of an issue that was not read back yet.
            let topic = format!("issues.{}", location.project);
            let issue: Option<Value> = replica.read(&topic, &location.id)?;
            if let Some(issue) = issue {
                value["key"] = issue["key"].clone();
            }
            value["id"] = location.id.into();
        }
    }
    Ok(op)
}

impl Overlay {
    /// Reads the outbox. If an operation waits for a stuck one, its `problem` names the operation
    /// that it waits for.
    pub fn load(replica: &Replica) -> Result<Self> {
        let all = listing(replica)?;
        let mut ops: BTreeMap<String, Vec<Op>> = BTreeMap::new();
        let mut projects = BTreeMap::new();
        let mut replicated = BTreeSet::new();
        for op in all {
            if let Some(created) = &op.created
                && replica.has_issue(&created.id)?
            {
                replicated.insert(op.number);
            }
            ops.entry(op.issue.clone()).or_default().push(op);
        }
        if !ops.is_empty() {
            for (_, found) in replica.projects()? {
                let project = found["project"].clone();
                let key = project["key"].as_str().unwrap_or_default().to_owned();
                projects.insert(key, project);
            }
        }
        let me = replica.read("meta", "myself")?.unwrap_or_default();
        let statuses = replica.read("meta", "statuses")?.unwrap_or_default();
        Ok(Self {
            ops,
            me,
            projects,
            replicated,
            statuses,
        })
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.ops.values().map(Vec::len).sum()
    }

    /// Whether there are no operations.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// The operations of an issue by its id or temporary key.
    pub fn of_issue(&self, id: &str) -> &[Op] {
        self.ops.get(id).map_or(&[], Vec::as_slice)
    }

    /// Ids and temporary keys of the issues with operations.
    pub fn issues(&self) -> impl Iterator<Item = &str> {
        self.ops.keys().map(String::as_str)
    }

    /// Number of operations of an issue that were not executed at the site yet.
    pub fn pending(&self, id: &str) -> usize {
        let own = self.of_issue(id).iter();
        own.filter(|op| op.state != State::Sent).count()
    }

    /// Applies the operations of an issue to it. Adds `pending` beside `fields`, with the
    /// operations that were not executed at the site yet. Returns their number.
    pub fn apply(&self, issue: &mut Value) -> usize {
        let id = issue["id"].as_str().unwrap_or_default().to_owned();
        let own = self.of_issue(&id);
        for op in own {
            self.apply_op(op, issue);
        }
        let pending: Vec<&Op> = own.iter().filter(|op| op.state != State::Sent).collect();
        if !pending.is_empty() {
            issue["pending"] = json!(pending);
        }
        pending.len()
    }

    /// The issues that the replica lacks, with their other operations applied.
    pub fn created(&self) -> Vec<Value> {
        let creates = self.ops.values().flatten();
        let creates = creates.filter(|op| matches!(op.action, Action::Create { .. }));
        let creates = creates.filter(|op| !self.replicated.contains(&op.number));
        creates.map(|op| self.created_issue(op)).collect()
    }

    fn created_issue(&self, create: &Op) -> Value {
        let at = time::format(create.created_ms);
        let mut fields = json!({
            "summary": "", "description": null, "labels": [], "assignee": null, "priority": null,
            "status": {"name": "New", "statusCategory": {"key": "new", "name": "To Do"}},
            "created": at, "updated": at, "reporter": self.me, "creator": self.me,
            "comment": {"comments": [], "total": 0}, "worklog": {"worklogs": [], "total": 0},
        });
        if let (
            Action::Create {
                project,
                fields: given,
            },
            Some(fields),
        ) = (&create.action, fields.as_object_mut())
        {
            fields.extend(given.clone());
            let known = self.projects.get(project).cloned();
            let details = known.unwrap_or_else(|| json!({"key": project}));
            fields.insert("project".to_owned(), details);
        }
        let (id, key) = match &create.created {
            Some(created) => (&created.id, &created.key),
            None => (&create.issue, &create.key),
        };
        let mut issue = json!({"id": id, "key": key, "fields": fields});
        self.apply(&mut issue);
        issue
    }

    fn apply_op(&self, op: &Op, issue: &mut Value) {
        let fields = &mut issue["fields"];
        match &op.action {
            Action::Create { .. }
            | Action::Watch { .. }
            | Action::Delete { .. }
            | Action::Link { .. } => {}
            Action::Edit { fields: own, sets } => {
                for (name, edit) in own {
                    fields[name.as_str()] = edit.mine.clone();
                }
                for (name, edit) in sets {
                    apply_set(&mut fields[name.as_str()], edit);
                }
            }
            Action::Transition {
                to, fields: own, ..
            } => {
                if op::text(&fields["status"]) != *to {
                    let known = self.statuses.iter().find(|status| op::text(status) == *to);
                    fields["status"] = known.cloned().unwrap_or_else(|| json!({"name": to}));
                }
                for (name, value) in own {
                    fields[name.as_str()] = value.clone();
                }
            }
            Action::CommentAdd { body } => {
                let at = time::format(op.created_ms);
                let comment = json!({"id": item_id(op), "author": self.me,
                    "body": body, "created": at, "updated": at});
                push(&mut fields["comment"], "comments", comment);
            }
            Action::CommentEdit { comment, mine, .. } => {
                for item in items(&mut fields["comment"], "comments") {
                    if item["id"] == **comment {
                        item["body"] = mine.clone();
                    }
                }
            }
            Action::CommentDelete { comment, .. } => {
                items(&mut fields["comment"], "comments").retain(|item| item["id"] != **comment);
            }
            Action::WorklogAdd {
                seconds,
                started,
                comment,
            } => {
                let worklog = json!({"id": item_id(op), "author": self.me,
                    "timeSpentSeconds": seconds, "started": started, "comment": comment});
                push(&mut fields["worklog"], "worklogs", worklog);
            }
            Action::WorklogEdit { worklog, mine, .. } => {
                for item in items(&mut fields["worklog"], "worklogs") {
                    if item["id"] == **worklog {
                        item["timeSpentSeconds"] = mine.seconds.into();
                        item["started"] = mine.started.clone().into();
                        item["comment"] = mine.comment.clone();
                    }
                }
            }
            Action::WorklogDelete { worklog, .. } => {
                items(&mut fields["worklog"], "worklogs").retain(|item| item["id"] != **worklog);
            }
        }
    }
}

/// The id of a comment or worklog at the site; before its creation, `+` and the number of the
/// operation.
fn item_id(op: &Op) -> String {
    let created = op.created.as_ref().map(|created| created.id.clone());
    created.unwrap_or_else(|| format!("+{}", op.number))
}

/// Adds items to a list and removes others.
pub(crate) fn apply_set(list: &mut Value, edit: &SetEdit) {
    let mut items: Vec<Value> = list.as_array().cloned().unwrap_or_default();
    items.retain(|item| !edit.remove.iter().any(|gone| op::same(gone, item)));
    for item in &edit.add {
        if !items.iter().any(|other| op::same(other, item)) {
            items.push(item.clone());
        }
    }
    *list = items.into();
}

fn items<'v>(part: &'v mut Value, list: &str) -> &'v mut Vec<Value> {
    if !part[list].is_array() {
        *part = json!({list: [], "total": 0});
    }
    match &mut part[list] {
        Value::Array(items) => items,
        _ => unreachable!("created above"),
    }
}

fn push(part: &mut Value, list: &str, item: Value) {
    let stored = items(part, list);
    if stored.iter().any(|other| other["id"] == item["id"]) {
        return;
    }
    stored.push(item);
    let total = part["total"].as_u64().unwrap_or(0) + 1;
    part["total"] = total.into();
}
