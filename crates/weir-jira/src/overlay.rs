//! Applies pending operations to issues of the replica, so that an edit is visible before its push.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use weir::{ConsequenceOffset, ReadFrom, WeirError};

use crate::error::Result;
use crate::op::{self, Action, Op, SetEdit, State};
use crate::replica::Replica;
use crate::stored_ops::StoredOps;
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

/// Topic of the outbox.
const TOPIC: &str = "outbox";

impl StoredOps {
    fn refresh(&mut self, replica: &Replica) -> Result<()> {
        let topic = replica.topic(TOPIC)?;
        let Some(info) = topic.try_info()? else {
            *self = Self::default();
            return Ok(());
        };
        if self.offset == 0 {
            return self.read_all(replica, info.last.0);
        }
        if self.offset == info.last.0 {
            return Ok(());
        }
        let (mut changed, mut offset) = (BTreeSet::new(), self.offset);
        for page in topic.pages(ReadFrom::After(ConsequenceOffset(self.offset)))? {
            let page = page.map_err(WeirError::from)?;
            for record in &page {
                let record = record.map_err(WeirError::from)?;
                if record.key.is_empty() {
                    // The topic was created again.
                    return self.read_all(replica, info.last.0);
                }
                offset = record.offset.0;
                changed.insert(String::from_utf8_lossy(record.key).into_owned());
            }
        }
        for key in changed {
            let number = key.strip_prefix("op.");
            let Some(number) = number.and_then(|text| text.parse::<u64>().ok()) else {
                continue;
            };
            match replica.read(TOPIC, &key)? {
                Some(op) => self.by_number.insert(number, op),
                None => self.by_number.remove(&number),
            };
        }
        self.offset = offset;
        Ok(())
    }

    /// Reads all operations, at least up to the record at offset `last`.
    fn read_all(&mut self, replica: &Replica, last: u64) -> Result<()> {
        let mut by_number = BTreeMap::new();
        for (_, value) in replica.values(TOPIC, "op.")? {
            let op: Op = serde_json::from_value(value)?;
            by_number.insert(op.number, op);
        }
        *self = Self {
            offset: last,
            by_number,
        };
        Ok(())
    }

    /// The operations of the issue with this name: a key, an id or a temporary key, in capital
    /// letters.
    fn of_issue(&self, replica: &Replica, name: &str) -> Result<Vec<Op>> {
        let created = |op: &Op| {
            let created = op.created.as_ref()?;
            let is_named = created.key == name || created.id == name;
            let is_creation = matches!(op.action, Action::Create { .. });
            (is_creation && is_named).then(|| created.id.clone())
        };
        let id = if let Some(location) = replica.locate(name)? {
            location.id
        } else {
            // The site has created the issue, and the replica lacks it.
            let mut ids = self.by_number.values().filter_map(created);
            ids.next().unwrap_or_else(|| name.to_owned())
        };
        let mut own = Vec::new();
        for op in self.by_number.values() {
            let mut is_own = op.issue == name || op.issue == id;
            if !is_own && op.issue.contains('+') {
                let location = replica.locate(&op.issue)?;
                is_own = location.is_some_and(|location| location.id == id);
            }
            if is_own {
                own.push(op.clone());
            }
        }
        Ok(own)
    }
}

/// The operations in the outbox of a replica, in the order of their creation.
pub fn ops(replica: &Replica) -> Result<Vec<Op>> {
    let mut stored = replica.stored_ops();
    stored.refresh(replica)?;
    let all: Vec<Op> = stored.by_number.values().cloned().collect();
    drop(stored);
    all.into_iter().map(|op| with_ids(replica, op)).collect()
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
        Self::with(replica, listing(replica)?)
    }

    /// Reads the operations of one issue, by its key, id or temporary key, as [`load`](Self::load).
    /// If an operation of any issue is stuck, reads the whole outbox, because others may wait for
    /// it.
    pub fn load_issue(replica: &Replica, key: &str) -> Result<Self> {
        let mut stored = replica.stored_ops();
        stored.refresh(replica)?;
        if stored.by_number.values().any(|op| op.state.is_stuck()) {
            drop(stored);
            return Self::load(replica);
        }
        let own = stored.of_issue(replica, &key.to_uppercase())?;
        drop(stored);
        let own: Result<Vec<Op>> = own.into_iter().map(|op| with_ids(replica, op)).collect();
        Self::with(replica, own?)
    }

    fn with(replica: &Replica, all: Vec<Op>) -> Result<Self> {
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

    /// Ids and temporary keys of the issues that can differ between this overlay and `newer`.
    pub(crate) fn changed_issues(&self, newer: &Self) -> BTreeSet<String> {
        let common_is_equal = self.me == newer.me
            && self.projects == newer.projects
            && self.replicated == newer.replicated
            && self.statuses == newer.statuses;
        let all = self.ops.keys().chain(newer.ops.keys());
        let changed = all.filter(|id| !common_is_equal || self.of_issue(id) != newer.of_issue(id));
        changed.cloned().collect()
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
