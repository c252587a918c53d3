//! Operations of the outbox: local changes that were not executed at the site yet.
//!
//! Invariant: an operation contains everything that its push needs; a push reads no other state
//! than that of the site.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::time;

/// Key of the entity property that identifies a created object after an unknown outcome.
pub const MARKER: &str = "weir.op";

/// A change that waits for its push.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Op {
    /// Number in the outbox; later operations have higher numbers.
    pub number: u64,
    /// UUID. The site stores it as a property of the created object.
    pub id: String,
    /// Id of the issue at the site, or its temporary key.
    pub issue: String,
    /// Key of the issue, for people.
    pub key: String,
    /// Time of the change, in milliseconds since 1970-01-01 UTC.
    pub created_ms: i64,
    /// The state of its push.
    pub state: State,
    /// Number of times that it was sent.
    #[serde(default)]
    pub attempts: u32,
    /// Time of the last attempt by the clock of the site, in milliseconds; `None` after the site
    /// reported that it did not execute the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_ms: Option<i64>,
    /// The earliest time of the next attempt, in milliseconds; 0: at any time.
    #[serde(default)]
    pub not_before_ms: i64,
    /// Time at which the pause before that attempt began, in milliseconds.
    #[serde(default)]
    pub paused_ms: i64,
    /// Number of the transition that must be executed first, for its comment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Why the operation is still in the outbox, for people.
    #[serde(default)]
    pub problem: Option<String>,
    /// Fields that another user has changed to another value.
    #[serde(default)]
    pub conflicts: Vec<FieldConflict>,
    /// The object that it created at the site; only in state `sent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Created>,
    /// The change.
    pub action: Action,
}

/// An issue, comment or worklog that an operation created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Created {
    /// Id at the site.
    pub id: String,
    /// Key of an issue; empty for a comment or worklog.
    #[serde(default)]
    pub key: String,
}

/// The state of the push of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Not sent yet.
    Queued,
    /// Being sent; after a crash it may have been executed.
    Sending,
    /// Sent without an answer: it may have been executed.
    Unknown,
    /// Another user has changed the same value: the user must decide.
    Conflict,
    /// The site rejected it: the user must change or drop it.
    Rejected,
    /// Executed by the site. It leaves the outbox when the replica has the new version of the
    /// issue.
    Sent,
}

impl State {
    /// The name in records and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Sending => "sending",
            Self::Unknown => "unknown",
            Self::Conflict => "conflict",
            Self::Rejected => "rejected",
            Self::Sent => "sent",
        }
    }

    /// Whether only a decision of the user can resume it.
    pub fn is_stuck(self) -> bool {
        matches!(self, Self::Conflict | Self::Rejected)
    }
}

/// A value before an edit and after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldEdit {
    /// The value before the edit.
    pub base: Value,
    /// The value after the edit.
    pub mine: Value,
    /// Whether `base` is a guess: the replica did not have the issue yet, so values that the site
    /// assigned to the new issue were unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unread: bool,
}

/// Items that an edit adds to a list and removes from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SetEdit {
    /// Items to add.
    pub add: Vec<Value>,
    /// Items to remove.
    pub remove: Vec<Value>,
}

impl SetEdit {
    /// Whether the list stays as it is.
    pub fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }
}

/// A field that two users changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldConflict {
    /// Id of the field; `comment:ID` for a comment, `worklog:ID` for a worklog, `status` for a
    /// transition, `updated` for a deletion.
    pub field: String,
    /// The value before the edit.
    pub base: Value,
    /// The value of the edit.
    pub mine: Value,
    /// The value at the site.
    pub theirs: Value,
}

impl FieldConflict {
    /// The documents at the site, of the edit, and before the edit; `empty` for an empty value.
    /// `None` if the values are not rich text.
    pub(crate) fn documents<'v>(&'v self, empty: &'v Value) -> Option<[&'v Value; 3]> {
        let values = [&self.theirs, &self.mine, &self.base];
        let is_rich = values
            .iter()
            .all(|value| value.is_null() || is_document(value));
        let is_empty = values.iter().all(|value| value.is_null());
        (is_rich && !is_empty)
            .then(|| values.map(|value| if value.is_null() { empty } else { value }))
    }

    /// The texts at the site, of the edit, and before the edit, whose references have common
    /// numbers. `None` if the values are not rich text, or not valid.
    fn rich_texts(&self) -> Option<[String; 3]> {
        let empty = weir_adf::empty();
        let documents = self.documents(&empty)?;
        let texts = weir_adf::to_org_all(&documents, &weir_adf::Options::default());
        texts.ok()?.try_into().ok()
    }
}

/// The part of a worklog that can be changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Time spent, in seconds.
    #[serde(rename = "timeSpentSeconds")]
    pub seconds: u64,
    /// When the work began, as Jira writes times.
    pub started: String,
    /// Rich text (ADF), or null.
    #[serde(default)]
    pub comment: Value,
}

impl Work {
    /// The changeable part of a worklog that Jira sent.
    pub fn of(worklog: &Value) -> Self {
        Self {
            seconds: worklog["timeSpentSeconds"].as_u64().unwrap_or(0),
            started: worklog["started"].as_str().unwrap_or_default().to_owned(),
            comment: worklog["comment"].clone(),
        }
    }

    /// Whether both are equal; a time can be written in several zones.
    pub fn is_same(&self, other: &Self) -> bool {
        let began = |work: &Self| time::parse(&work.started);
        self.seconds == other.seconds
            && (self.started == other.started || began(self) == began(other))
            && same(&self.comment, &other.comment)
    }

    /// The JSON for a request.
    pub fn wire(&self) -> Value {
        // Without a comment in the request, the site would keep the old one.
        let comment = match &self.comment {
            Value::Null => weir_adf::empty(),
            comment => comment.clone(),
        };
        json!({"timeSpentSeconds": self.seconds, "started": self.started, "comment": comment})
    }

    /// One line for people: the time spent, the start of the work, and the comment.
    pub fn shown(&self) -> Value {
        let (minutes, comment) = (self.seconds / 60, shown(&self.comment));
        format!("{minutes} min, {} {comment}", self.started)
            .trim_end()
            .into()
    }
}

/// A change of an issue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Action {
    /// Creates an issue.
    Create {
        /// Key of the project.
        project: String,
        /// Fields, including `issuetype` and `summary`.
        fields: Map<String, Value>,
    },
    /// Sets fields, and adds to lists or removes from them.
    Edit {
        /// Fields by id.
        #[serde(default)]
        fields: BTreeMap<String, FieldEdit>,
        /// Lists by id of their field.
        #[serde(default)]
        sets: BTreeMap<String, SetEdit>,
    },
    /// Moves an issue to another status.
    Transition {
        /// Name of the status, or of the transition.
        to: String,
        /// The status before the transition.
        from: Value,
        /// Fields that the transition sets.
        #[serde(default)]
        fields: Map<String, Value>,
    },
    /// Adds a comment.
    CommentAdd {
        /// Rich text (ADF).
        body: Value,
    },
    /// Changes the text of a comment.
    CommentEdit {
        /// Id of the comment.
        comment: String,
        /// The text before the edit.
        base: Value,
        /// The text after the edit.
        mine: Value,
    },
    /// Deletes a comment.
    CommentDelete {
        /// Id of the comment.
        comment: String,
        /// The text that was deleted.
        base: Value,
    },
    /// Adds a worklog.
    WorklogAdd {
        /// Time spent, in seconds.
        seconds: u64,
        /// When the work began, as Jira writes times.
        started: String,
        /// Rich text (ADF), or null.
        comment: Value,
    },
    /// Changes a worklog.
    WorklogEdit {
        /// Id of the worklog.
        worklog: String,
        /// The worklog before the edit.
        base: Work,
        /// The worklog after the edit.
        mine: Work,
    },
    /// Deletes a worklog.
    WorklogDelete {
        /// Id of the worklog.
        worklog: String,
        /// The worklog that was deleted.
        base: Work,
    },
    /// Starts or stops watching the issue.
    Watch {
        /// Whether to watch.
        on: bool,
    },
    /// Links two issues, or removes their link.
    Link {
        /// Name of the type.
        #[serde(rename = "type")]
        name: String,
        /// Id or temporary key of the issue at the inward end.
        inward: String,
        /// Id or temporary key of the issue at the outward end.
        outward: String,
        /// Whether the link is removed.
        #[serde(default)]
        remove: bool,
    },
    /// Deletes the issue.
    Delete {
        /// Whether its subtasks are deleted too.
        subtasks: bool,
        /// The time of the last change (`updated`) of the version that the user deleted, as Jira
        /// writes times; null: the replica did not have the issue.
        #[serde(default)]
        base: Value,
        /// Whether earlier operations of the outbox change the issue, and thereby that time.
        #[serde(default)]
        after_own: bool,
    },
}

impl Action {
    /// The name in records and output.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Edit { .. } => "edit",
            Self::Transition { .. } => "transition",
            Self::CommentAdd { .. } => "comment_add",
            Self::CommentEdit { .. } => "comment_edit",
            Self::CommentDelete { .. } => "comment_delete",
            Self::WorklogAdd { .. } => "worklog_add",
            Self::WorklogEdit { .. } => "worklog_edit",
            Self::WorklogDelete { .. } => "worklog_delete",
            Self::Watch { .. } => "watch",
            Self::Link { .. } => "link",
            Self::Delete { .. } => "delete",
        }
    }

    /// The values of fields that the change sends; of a list, its items.
    fn values(&self) -> Vec<&Value> {
        let values: Vec<&Value> = match self {
            Self::Create { fields, .. } | Self::Transition { fields, .. } => {
                fields.values().collect()
            }
            Self::Edit { fields, sets } => {
                let edits = fields.values().map(|edit| &edit.mine);
                let items = sets
                    .values()
                    .flat_map(|edit| edit.add.iter().chain(&edit.remove));
                edits.chain(items).collect()
            }
            _ => Vec::new(),
        };
        values.into_iter().flat_map(items).collect()
    }

    /// The values of fields that the change sends, and those that it compares with the site; of a
    /// list, its items.
    pub(crate) fn values_mut(&mut self) -> Vec<&mut Value> {
        let values: Vec<&mut Value> = match self {
            Self::Create { fields, .. } | Self::Transition { fields, .. } => {
                fields.values_mut().collect()
            }
            Self::Edit { fields, sets } => {
                let edits = fields
                    .values_mut()
                    .flat_map(|edit| [&mut edit.base, &mut edit.mine]);
                let items = sets
                    .values_mut()
                    .flat_map(|edit| edit.add.iter_mut().chain(&mut edit.remove));
                edits.chain(items).collect()
            }
            _ => Vec::new(),
        };
        values.into_iter().flat_map(items_mut).collect()
    }

    /// What the change affects; `*`: everything. Two operations conflict if their lists share an
    /// entry; then the later one waits.
    pub fn touches(&self) -> Vec<String> {
        match self {
            Self::Create { .. } | Self::Delete { .. } => vec!["*".to_owned()],
            Self::Edit { fields, sets } => fields.keys().chain(sets.keys()).cloned().collect(),
            Self::Transition { fields, .. } => {
                let own = std::iter::once("status".to_owned());
                own.chain(fields.keys().cloned()).collect()
            }
            Self::CommentAdd { .. } | Self::WorklogAdd { .. } => Vec::new(),
            Self::CommentEdit { comment, .. } | Self::CommentDelete { comment, .. } => {
                vec![format!("comment:{comment}")]
            }
            Self::WorklogEdit { worklog, .. } | Self::WorklogDelete { worklog, .. } => {
                vec![format!("worklog:{worklog}")]
            }
            Self::Watch { .. } => vec!["watches".to_owned()],
            Self::Link { .. } => vec!["issuelinks".to_owned()],
        }
    }

    /// The parts of [`touches`](Self::touches) whose values the change replaces. A list keeps the
    /// items that other users add or remove.
    pub(crate) fn replaces(&self) -> Vec<String> {
        match self {
            Self::Edit { fields, .. } => fields.keys().cloned().collect(),
            _ => self.touches(),
        }
    }

    /// Whether two changes of an issue affect a common part of it.
    pub(crate) fn conflicts_with(&self, other: &Self) -> bool {
        let (own, other) = (self.touches(), other.touches());
        let all = |list: &[String]| list.iter().any(|name| name == "*");
        all(&own) || all(&other) || own.iter().any(|name| other.contains(name))
    }
}

/// The operations that wait for a stuck operation, directly or through others: the number of each,
/// with the number of the operation that it waits for. `all` are the operations of an outbox.
pub(crate) fn waiting_for_stuck(all: &[Op]) -> BTreeMap<u64, u64> {
    let unsent = all.iter().filter(|op| op.state != State::Sent);
    let (stuck, mut rest): (Vec<&Op>, Vec<&Op>) = unsent.partition(|op| op.state.is_stuck());
    let mut blocked = VecDeque::from(stuck);
    let mut waiting = BTreeMap::new();
    while let Some(op) = blocked.pop_front() {
        rest.retain(|other| {
            let waits = op.precedes(other, true);
            if waits {
                waiting.insert(other.number, op.number);
                blocked.push_back(*other);
            }
            !waits
        });
    }
    waiting
}

impl Op {
    /// Key in the topic; keys sort by number.
    pub fn record_key(number: u64) -> String {
        format!("op.{number:012}")
    }

    /// Whether the operation waits for the time of its next attempt. A clock that was set back to
    /// before the pause ends it: otherwise the pause could last for years.
    pub(crate) fn is_paused(&self, now_ms: i64) -> bool {
        (self.paused_ms..self.not_before_ms).contains(&now_ms)
    }

    /// Whether the site may have executed the operation: it was sent, and the site did not report
    /// that it was not executed.
    pub(crate) fn may_be_executed(&self) -> bool {
        self.sent_ms.is_some() || matches!(self.state, State::Sending | State::Unknown)
    }

    /// Whether `other` must wait for this operation. `is_blocked`: a decision of the user must
    /// precede this operation, because it is stuck or waits for a stuck one.
    pub fn precedes(&self, other: &Self, is_blocked: bool) -> bool {
        if self.number == other.number || self.state == State::Sent {
            return false;
        }
        if other.after == Some(self.number) {
            return true;
        }
        let refers = other.refers_to(&self.issue);
        // An issue is created before each operation that names it. A correction or a merged edit
        // can name an issue whose creation has a higher number.
        if refers && matches!(self.action, Action::Create { .. }) {
            return true;
        }
        let is_related = refers || self.issue == other.issue;
        if !is_related || self.number > other.number {
            return false;
        }
        // An operation that can be sent without the user keeps the order of its issue. A blocked
        // operation lets unrelated ones pass.
        !is_blocked || self.action.conflicts_with(&other.action)
    }

    /// Ids of the issues at the site that the operation changes.
    pub fn issues(&self) -> Vec<String> {
        match (&self.action, &self.created) {
            (Action::Create { .. }, Some(created)) => vec![created.id.clone()],
            (
                Action::Link {
                    inward, outward, ..
                },
                _,
            ) => vec![inward.clone(), outward.clone()],
            _ => vec![self.issue.clone()],
        }
    }

    /// The names of issues in the operation that may be temporary keys, except those in the values
    /// of fields. A creation keeps its own name until it is executed.
    pub(crate) fn names_mut(&mut self) -> Vec<&mut String> {
        match &mut self.action {
            Action::Create { .. } if self.created.is_none() => Vec::new(),
            Action::Link {
                inward, outward, ..
            } => vec![&mut self.issue, inward, outward],
            _ => vec![&mut self.issue],
        }
    }

    /// Temporary keys of the issues that must be created before the operation is sent.
    pub(crate) fn temporary_keys(&self) -> Vec<&str> {
        let mut names: Vec<&str> = match &self.action {
            Action::Create { .. } => Vec::new(),
            Action::Link {
                inward, outward, ..
            } => vec![self.issue.as_str(), inward.as_str(), outward.as_str()],
            _ => vec![self.issue.as_str()],
        };
        names.retain(|name| name.contains('+'));
        names.extend(self.action.values().into_iter().filter_map(temporary_key));
        names
    }

    /// Whether the change names this issue, apart from its own.
    fn refers_to(&self, issue: &str) -> bool {
        match &self.action {
            Action::Link {
                inward, outward, ..
            } => inward == issue || outward == issue,
            action => action
                .values()
                .into_iter()
                .any(|value| temporary_key(value) == Some(issue)),
        }
    }

    /// One line for people: the effect of the operation.
    pub fn what(&self) -> String {
        match &self.action {
            Action::Create { project, fields } => {
                let summary = fields.get("summary").and_then(Value::as_str);
                format!("create in {project}: {}", summary.unwrap_or_default())
            }
            Action::Edit { fields, sets } => {
                let set =
                    |(name, edit): (&String, &FieldEdit)| format!("{name}: {}", shown(&edit.mine));
                let list = |(name, edit): (&String, &SetEdit)| {
                    let add = edit.add.iter().map(|item| format!("+{}", shown(item)));
                    let gone = edit.remove.iter().map(|item| format!("-{}", shown(item)));
                    format!("{name}: {}", add.chain(gone).collect::<Vec<_>>().join(" "))
                };
                let parts = fields.iter().map(set).chain(sets.iter().map(list));
                parts.collect::<Vec<_>>().join("; ")
            }
            Action::Transition { to, .. } => format!("status: {to}"),
            Action::CommentAdd { body } => format!("comment: {}", shown(body)),
            Action::CommentEdit { comment, mine, .. } => {
                format!("comment {comment}: {}", shown(mine))
            }
            Action::CommentDelete { comment, .. } => format!("delete comment {comment}"),
            Action::WorklogAdd { seconds, .. } => format!("worklog: {} min", seconds / 60),
            Action::WorklogEdit { worklog, mine, .. } => {
                format!("worklog {worklog}: {}", text(&mine.shown()))
            }
            Action::WorklogDelete { worklog, .. } => format!("delete worklog {worklog}"),
            Action::Watch { on: true } => "watch".to_owned(),
            Action::Watch { on: false } => "stop watching".to_owned(),
            Action::Link {
                name,
                inward,
                outward,
                remove,
            } => {
                let verb = if *remove { "remove link" } else { "link" };
                format!("{verb} {name}: {inward} -> {outward}")
            }
            Action::Delete { .. } => "delete".to_owned(),
        }
    }

    /// The properties of the created object.
    pub fn properties(&self) -> Value {
        json!([{"key": MARKER, "value": {"id": self.id}}])
    }

    /// The three texts of a conflict for a manual merge: base, local, remote. Rich text is returned
    /// as org. A merged text can combine references of all three.
    pub fn conflict_texts(&self, field: &str) -> Option<[String; 3]> {
        let found = self.conflicts.iter().find(|part| part.field == field)?;
        Some(match found.rich_texts() {
            Some([theirs, mine, base]) => [base, mine, theirs],
            None => [&found.base, &found.mine, &found.theirs].map(text),
        })
    }
}

/// Limit on the characters of a value that is shown in one line.
const SHOWN_CHARS_MAX: usize = 60;

/// A value in one line, for people.
pub fn shown(value: &Value) -> String {
    let text = text(value);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= SHOWN_CHARS_MAX {
        return line;
    }
    let short: String = line.chars().take(SHOWN_CHARS_MAX - 1).collect();
    format!("{short}…")
}

/// A value as text: rich text as org, an object as its name.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(","),
        Value::Object(object) if is_document(value) => {
            match weir_adf::to_org(value, &weir_adf::Options::default()) {
                Ok(org) => org.text,
                Err(_) => crate::jql::plain_text(&Value::Object(object.clone())),
            }
        }
        Value::Object(object) if object.contains_key("timeSpentSeconds") => {
            text(&Work::of(value).shown())
        }
        Value::Object(object) => {
            let names = ["displayName", "name", "value", "key", "accountId", "id"];
            let found = names.iter().find_map(|name| object.get(*name)?.as_str());
            found.map_or_else(|| value.to_string(), str::to_owned)
        }
        other => other.to_string(),
    }
}

/// The items of a list and of the lists in it; any other value is its only item.
fn items(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(list) => list.iter().flat_map(items).collect(),
        _ => vec![value],
    }
}

/// Like [`items`], mutable.
fn items_mut(value: &mut Value) -> Vec<&mut Value> {
    match value {
        Value::Array(list) => list.iter_mut().flat_map(items_mut).collect(),
        _ => vec![value],
    }
}

/// The temporary key in a value that names an issue.
pub(crate) fn temporary_key(value: &Value) -> Option<&str> {
    value["key"].as_str().filter(|key| key.contains('+'))
}

/// Whether a value is rich text.
pub fn is_document(value: &Value) -> bool {
    value["type"] == "doc"
}

/// The keys that identify a person, an option or another named object in requests.
const IDENTITIES: &[&str] = &["accountId", "id", "key", "value", "name"];

/// A value for a request: of an object with an identity, only the identity.
pub fn wire(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(wire).collect(),
        Value::Object(object) if !is_document(value) => {
            let identity = IDENTITIES.iter().find(|name| object.contains_key(**name));
            match identity {
                Some(name) => json!({*name: object[*name]}),
                None => value.clone(),
            }
        }
        _ => value.clone(),
    }
}

/// Whether two values of a field are equal in meaning.
pub fn same(a: &Value, b: &Value) -> bool {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(object) if is_document(value) => object
            .get("content")
            .and_then(Value::as_array)
            .is_none_or(Vec::is_empty),
        _ => false,
    };
    if a == b || (empty(a) && empty(b)) {
        return true;
    }
    match (a, b) {
        (Value::Array(one), Value::Array(two)) => {
            let within = |list: &[Value], item: &Value| list.iter().any(|other| same(other, item));
            one.len() == two.len() && one.iter().all(|item| within(two, item))
        }
        (Value::Object(one), Value::Object(two)) if !is_document(a) && !is_document(b) => {
            let shared = IDENTITIES
                .iter()
                .find(|name| one.contains_key(**name) && two.contains_key(**name));
            shared.is_some_and(|name| one[*name] == two[*name])
        }
        (Value::Number(one), Value::Number(two)) => one.as_f64() == two.as_f64(),
        // A time can be written in several zones.
        (Value::String(one), Value::String(two)) => {
            let at = time::parse(one);
            at.is_some() && at == time::parse(two)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_keys_in_lists_are_found() {
        let fields: Map<String, Value> = [(
            "customfield_1".to_owned(),
            json!([{"key": "AA-1"}, {"key": "AA+1"}, [{"key": "AA+2"}], "AA+3"]),
        )]
        .into_iter()
        .collect();
        let edited = fields.iter().map(|(name, value)| {
            let edit = FieldEdit {
                base: Value::Null,
                mine: value.clone(),
                unread: false,
            };
            (name.clone(), edit)
        });
        for mut action in [
            Action::Edit {
                fields: edited.collect(),
                sets: BTreeMap::new(),
            },
            Action::Create {
                project: "AA".to_owned(),
                fields: fields.clone(),
            },
            Action::Transition {
                to: "Done".to_owned(),
                from: Value::Null,
                fields: fields.clone(),
            },
        ] {
            let found: Vec<&str> = action
                .values()
                .into_iter()
                .filter_map(temporary_key)
                .collect();
            assert_eq!(found, ["AA+1", "AA+2"]);
            let id = json!({"id": "10001"});
            for value in action.values_mut() {
                *value = id.clone();
            }
            assert_eq!(action.values(), [&id; 4]);
        }
    }
}
