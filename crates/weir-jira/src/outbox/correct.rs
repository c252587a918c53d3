//! Corrections of operations that were not sent, or that the site rejected.

use serde::Serialize;
use serde_json::Value;

use super::{Outbox, RACES_MAX, comment_body, plain_value, read, write};
use crate::error::{JiraError, Result};
use crate::meta::{self, FieldInfo, FieldKind};
use crate::op::{self, Action, Op, SetEdit, State};
use crate::overlay;
use crate::values::{self, ParsedValue};

/// A value of an operation that the user can correct.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OpText {
    /// Id of the field. It is `comment` for the text of a comment or worklog, `watch` for a
    /// watcher, `link` for the phrase of a link, and `issue` for the other issue of the link.
    pub field: String,
    /// The value as text: rich text as org, changes of a list as `+a,-b`.
    pub text: String,
    /// The possible values; empty: any.
    pub allowed: Vec<String>,
}

impl OpText {
    fn any(field: &str, text: String) -> Self {
        Self {
            field: field.to_owned(),
            text,
            allowed: Vec::new(),
        }
    }
}

impl Outbox<'_> {
    /// The values of an operation that [`correct`](Self::correct) can change.
    pub fn texts(&self, op: &Op) -> Result<Vec<OpText>> {
        let known = match self.fields_of_op(op) {
            Err(JiraError::UnknownIssue(_)) => Vec::new(),
            known => known?.1,
        };
        let one = |field: &String, value: &Value| {
            let mut text = OpText::any(field, op::text(value));
            let info = known.iter().find(|info| info.id == *field);
            let info = info.filter(|info| !matches!(info.kind, FieldKind::List(_)));
            text.allowed = info.map_or_else(Vec::new, |info| info.allowed.clone());
            text
        };
        let comment = |value: &Value| vec![OpText::any("comment", op::text(value))];
        Ok(match &op.action {
            Action::Create { fields, .. } | Action::Transition { fields, .. } => fields
                .iter()
                .map(|(field, value)| one(field, value))
                .collect(),
            Action::Edit { fields, sets } => {
                let fields = fields.iter().map(|(field, edit)| one(field, &edit.mine));
                let sets = sets
                    .iter()
                    .map(|(field, edit)| OpText::any(field, steps(edit)));
                fields.chain(sets).collect()
            }
            Action::CommentAdd { body } => comment(body),
            Action::CommentEdit { mine, .. } => comment(mine),
            Action::WorklogAdd { comment: text, .. } => comment(text),
            Action::WorklogEdit { mine, .. } => comment(&mine.comment),
            Action::Watch { on } => vec![OpText {
                field: "watch".to_owned(),
                text: if *on { "on" } else { "off" }.to_owned(),
                allowed: vec!["on".to_owned(), "off".to_owned()],
            }],
            Action::Link { .. } => self.link_texts(op)?,
            _ => Vec::new(),
        })
    }

    /// Corrects a text of an operation that was not sent, or that the site rejected, and queues the
    /// operation again. `field` is a field of [`texts`](Self::texts), and `before` is the text that
    /// the user has edited. The operation keeps its base, so a change of another user still
    /// conflicts.
    ///
    /// # Errors
    /// `Change` if the state or the text of the operation changed meanwhile, or if the new text
    /// leaves nothing to send; `Field` if the field cannot have this text.
    pub fn correct(&self, name: &str, field: &str, before: &str, text: &str) -> Result<Op> {
        for _ in 0..RACES_MAX {
            let number = self.find(name)?.number;
            let unknown = || JiraError::UnknownOp(name.to_owned());
            let (mut op, found) = read(self.replica, number)?.ok_or_else(unknown)?;
            if !matches!(op.state, State::Queued | State::Rejected) {
                let state = op.state.name();
                let text =
                    format!("operation {number} is in state {state}: it cannot be corrected");
                return Err(JiraError::Change(text));
            }
            let adds = matches!(
                op.action,
                Action::Create { .. } | Action::CommentAdd { .. } | Action::WorklogAdd { .. }
            );
            if adds && op.may_be_executed() {
                let text = "the site may have executed it: send it again, then correct it";
                return Err(JiraError::Change(text.to_owned()));
            }
            let mut texts = self.texts(&op)?.into_iter();
            if !texts.any(|part| part.field == field && part.text == before) {
                let text = format!(
                    "{field} of operation {number} was changed meanwhile: read it again, then \
                     correct it"
                );
                return Err(JiraError::Change(text));
            }
            self.set_text(&mut op, field, text)?;
            op.state = State::Queued;
            op.problem = None;
            op.not_before_ms = 0;
            if write(self.replica, &op, found)? {
                return Ok(op);
            }
        }
        Err(JiraError::Busy)
    }

    /// Replaces one of the texts of an operation.
    fn set_text(&self, op: &mut Op, field: &str, text: &str) -> Result<()> {
        match &mut op.action {
            Action::CommentAdd { body } => *body = comment_body(text, body)?,
            Action::CommentEdit { mine, .. } => *mine = comment_body(text, mine)?,
            Action::WorklogAdd { comment, .. } => {
                *comment = values::rich(text, comment).map_err(JiraError::Change)?;
            }
            Action::WorklogEdit { mine, .. } => {
                mine.comment = values::rich(text, &mine.comment).map_err(JiraError::Change)?;
            }
            Action::Watch { on } => *on = is_on(text)?,
            Action::Link { .. } => op.action = self.corrected_link(op, field, text)?,
            _ => self.set_field(op, field, text)?,
        }
        let unchanged = match &op.action {
            Action::Edit { fields, sets } => {
                let is_base = |edit: &op::FieldEdit| op::same(&edit.base, &edit.mine);
                fields.get(field).is_some_and(is_base)
                    || sets.get(field).is_some_and(SetEdit::is_empty)
            }
            Action::CommentEdit { base, mine, .. } => op::same(base, mine),
            Action::WorklogEdit { base, mine, .. } => mine.is_same(base),
            _ => false,
        };
        if unchanged {
            let text = "this is the value before the change: drop the change instead".to_owned();
            return Err(JiraError::Change(text));
        }
        Ok(())
    }

    /// Replaces the value of a field of a creation, an edit or a transition. A field that gets its
    /// value from before the edit is removed from the edit, unless it is the only one.
    fn set_field(&self, op: &mut Op, field: &str, text: &str) -> Result<()> {
        let (issue, known) = self.fields_of_op(op)?;
        match &mut op.action {
            Action::Create { fields, .. } | Action::Transition { fields, .. } => {
                let before = fields.get(field).unwrap_or(&Value::Null);
                let value = self.corrected(&known, field, text, before)?;
                fields.insert(field.to_owned(), value);
            }
            Action::Edit { fields, sets } => {
                let has_others = fields.len() + sets.len() > 1;
                if let Some(edit) = fields.get_mut(field) {
                    edit.mine = self.corrected(&known, field, text, &edit.mine)?;
                    if has_others && op::same(&edit.base, &edit.mine) {
                        fields.remove(field);
                    }
                } else if let Some(edit) = sets.get_mut(field) {
                    let shown = &issue["fields"][field];
                    *edit = self.corrected_list(&known, field, text, edit, shown)?;
                    if has_others && edit.is_empty() {
                        sets.remove(field);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The issue of an operation with all operations applied, and the fields that it can have.
    fn fields_of_op(&self, op: &Op) -> Result<(Value, Vec<FieldInfo>)> {
        let mut issue = self.show(&op.issue)?;
        let mut known = Vec::new();
        if let Action::Transition { to, from, .. } = &op.action {
            // The status after the transition has other transitions.
            issue["fields"]["status"] = from.clone();
            known = meta::transition_fields_of(self.replica, &issue, to)?;
        }
        known.extend(meta::fields_of(self.replica, &issue)?);
        Ok((issue, known))
    }

    /// Parses a text as the value of a field that replaces `before`.
    fn corrected(
        &self,
        known: &[FieldInfo],
        field: &str,
        text: &str,
        before: &Value,
    ) -> Result<Value> {
        let info = meta::field(known, field)?;
        let add = before.as_array().cloned().unwrap_or_default();
        let items = SetEdit {
            add,
            ..SetEdit::default()
        };
        let parsed = values::parse_corrected(self.replica, info, text, before, &items)?;
        Ok(plain_value(parsed, before))
    }

    /// Parses a text as the change of a list that replaces the change `queued`. `shown` is the list
    /// after `queued`.
    fn corrected_list(
        &self,
        known: &[FieldInfo],
        field: &str,
        text: &str,
        queued: &SetEdit,
        shown: &Value,
    ) -> Result<SetEdit> {
        let info = meta::field(known, field)?;
        let mut before = shown.clone();
        let undo = SetEdit {
            add: queued.remove.clone(),
            remove: queued.add.clone(),
        };
        overlay::apply_set(&mut before, &undo);
        // An empty text would remove all items.
        if text.trim().is_empty() {
            return Ok(SetEdit::default());
        }
        match values::parse_corrected(self.replica, info, text, &before, queued)? {
            ParsedValue::Set(edit) => Ok(edit),
            ParsedValue::Single(_) => {
                let text = format!("{field} is no longer a list: drop the change instead");
                Err(JiraError::Change(text))
            }
        }
    }

    /// The phrase of a link as the issue of the operation shows it, and the key of the other issue.
    fn link_texts(&self, op: &Op) -> Result<Vec<OpText>> {
        let Some((phrase, other)) = self.link_parts(op)? else {
            return Ok(Vec::new());
        };
        let key = match self.show(&other) {
            Err(JiraError::UnknownIssue(_)) => other,
            issue => op::text(&issue?["key"]),
        };
        let link = OpText {
            field: "link".to_owned(),
            text: phrase,
            allowed: meta::link_phrases(self.replica)?,
        };
        Ok(vec![link, OpText::any("issue", key)])
    }

    /// The phrase of a link, and the id of the other issue; `None` for another operation.
    fn link_parts(&self, op: &Op) -> Result<Option<(String, String)>> {
        let Action::Link {
            name,
            inward,
            outward,
            ..
        } = &op.action
        else {
            return Ok(None);
        };
        let (end, other) = if *inward == op.issue {
            ("outward", outward)
        } else {
            ("inward", inward)
        };
        let types = meta::link_types(self.replica)?;
        let kind = types.iter().find(|kind| kind["name"] == **name);
        let phrase = kind.and_then(|kind| kind[end].as_str());
        Ok(Some((phrase.unwrap_or(name).to_owned(), other.clone())))
    }

    /// The link of an operation with another phrase, or to another issue.
    fn corrected_link(&self, op: &Op, field: &str, text: &str) -> Result<Action> {
        let (Some((phrase, other)), Action::Link { remove, .. }) =
            (self.link_parts(op)?, &op.action)
        else {
            return Ok(op.action.clone());
        };
        if field == "link" {
            return self.link_action(&op.issue, text, other, *remove);
        }
        let other = self.find_target(text.trim())?;
        self.link_action(&op.issue, &phrase, other.id, *remove)
    }
}

/// Changes of a list as the user writes them.
fn steps(edit: &SetEdit) -> String {
    let add = edit.add.iter().map(|item| format!("+{}", op::text(item)));
    let gone = edit
        .remove
        .iter()
        .map(|item| format!("-{}", op::text(item)));
    add.chain(gone).collect::<Vec<_>>().join(",")
}

/// Whether the text of a watcher means that it is added.
fn is_on(text: &str) -> Result<bool> {
    match text.trim() {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(JiraError::Field {
            field: "watch".to_owned(),
            what: format!("{other:?} is not possible; choose from on, off"),
        }),
    }
}
