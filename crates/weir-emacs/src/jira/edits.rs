//! Changes of issues: each becomes an operation of the outbox, durable before its result reaches
//! Lisp.

use serde_json::{Value, json};
use weir_jira::client::Client;
use weir_jira::outbox::{Choice, EditBase, Outbox};
use weir_jira::project::{self, NewProject};
use weir_jira::replica::Replica;

use super::now_ms;
use crate::failure::Failure;

/// Pairs of field and text, from a list in which they alternate.
fn pairs(words: &[String]) -> Vec<(String, String)> {
    let pairs = words.chunks_exact(2);
    pairs
        .filter_map(|pair| Some((pair.first()?.clone(), pair.get(1)?.clone())))
        .collect()
}

fn non_empty(word: &str) -> Option<&str> {
    (!word.is_empty()).then_some(word)
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, Failure> {
    let bad = |_| Failure::new("weir-usage", format!("{word} is not a number"));
    word.parse().map_err(bad)
}

/// Queues the change `verb` with its `words`. `base` is the version that the user edited; without
/// it, the current version. Returns the operation as JSON.
pub(super) fn queue(
    replica: &Replica,
    verb: &str,
    words: &[String],
    base: Option<&EditBase>,
) -> Result<Value, Failure> {
    let outbox = Outbox::new(replica, now_ms());
    let op = match (verb, words) {
        ("edit", [key, fields @ ..]) => match base {
            Some(base) => outbox.edit_from(key, base, &pairs(fields))?,
            None => outbox.edit(key, &pairs(fields))?,
        },
        ("transition", [key, status, comment, fields @ ..]) => {
            outbox.transition(key, status, &pairs(fields), non_empty(comment))?
        }
        ("assign", [key, who]) => match base {
            Some(base) => {
                let assignment = ("assignee".to_owned(), who.clone());
                outbox.edit_from(key, base, &[assignment])?
            }
            None => outbox.assign(key, who)?,
        },
        ("watch", [key, on]) => outbox.watch(key, !on.is_empty())?,
        ("link", [key, phrase, other, remove]) => {
            outbox.link(key, phrase, other, !remove.is_empty())?
        }
        ("comment", [key, text]) => outbox.comment(key, text)?,
        ("edit-comment", [key, comment, text]) => match base {
            Some(base) => outbox.edit_comment_from(key, base, comment, text)?,
            None => outbox.edit_comment(key, comment, text)?,
        },
        ("delete-comment", [key, comment]) => match base {
            Some(base) => outbox.delete_comment_from(key, base, comment)?,
            None => outbox.delete_comment(key, comment)?,
        },
        ("worklog", [key, seconds, started_ms, text]) => {
            outbox.worklog(key, number(seconds)?, number(started_ms)?, text)?
        }
        ("clock", [key, seconds, started_ms]) => {
            let (seconds, started_ms) = (number(seconds)?, number(started_ms)?);
            if outbox.has_worklog(key, seconds, started_ms)? {
                return Ok(json!({"key": key, "logged": true}));
            }
            outbox.worklog(key, seconds, started_ms, "")?
        }
        ("edit-worklog", [key, worklog, seconds, started_ms, text]) => {
            let seconds = non_empty(seconds).map(number).transpose()?;
            let started = non_empty(started_ms).map(number).transpose()?;
            let present = outbox.edit_base(key)?;
            let base = base.unwrap_or(&present);
            outbox.edit_worklog_from(key, base, worklog, seconds, started, Some(text))?
        }
        ("delete-worklog", [key, worklog]) => match base {
            Some(base) => outbox.delete_worklog_from(key, base, worklog)?,
            None => outbox.delete_worklog(key, worklog)?,
        },
        ("create", [project, kind, summary, parent, fields @ ..]) => {
            outbox.create(project, kind, summary, &pairs(fields), non_empty(parent))?
        }
        ("clone", [key, fields @ ..]) => outbox.clone_issue(key, &pairs(fields))?,
        ("correct", [op, field, before, text]) => outbox.correct(op, field, before, text)?,
        ("delete", [key, subtasks]) => match base {
            Some(base) => outbox.delete_from(key, base, !subtasks.is_empty())?,
            None => outbox.delete(key, !subtasks.is_empty())?,
        },
        _ => {
            return Err(Failure::new(
                "weir-usage",
                format!("no such change: {verb}"),
            ));
        }
    };
    Ok(serde_json::to_value(&op).unwrap_or_default())
}

/// Sends the change `verb` of a project with its `words`. Returns the project; null after a
/// deletion.
pub(super) fn project(
    client: &Client,
    replica: &Replica,
    verb: &str,
    words: &[String],
) -> Result<Value, Failure> {
    Ok(match (verb, words) {
        ("create", [key, name, kind, lead]) => {
            let new = NewProject {
                key: key.clone(),
                name: name.clone(),
                kind: kind.clone(),
                lead: lead.clone(),
                ..NewProject::default()
            };
            project::create(client, replica, &new)?
        }
        ("edit", [key, fields @ ..]) => project::edit(client, replica, key, &pairs(fields))?,
        ("delete", [key]) => {
            project::delete(client, replica, key)?;
            Value::Null
        }
        _ => {
            let text = format!("no such change of a project: {verb}");
            return Err(Failure::new("weir-usage", text));
        }
    })
}

/// Applies a decision of the user to an operation. Returns the operation as JSON; null if it left
/// the outbox.
pub(super) fn resolve(
    replica: &Replica,
    op: &str,
    choice: &str,
    field: Option<&str>,
    value: Option<&str>,
) -> Result<Value, Failure> {
    let choice = match choice {
        "mine" => Choice::Mine,
        "theirs" => Choice::Theirs,
        "retry" => Choice::Retry,
        "drop" => Choice::Drop,
        _ => {
            return Err(Failure::new(
                "weir-usage",
                format!("no such choice: {choice}"),
            ));
        }
    };
    let left = Outbox::new(replica, now_ms()).resolve(op, choice, field, value)?;
    Ok(serde_json::to_value(left).unwrap_or_default())
}

/// The operations of the outbox, each with a description in `what`. A value of the site that is in
/// conflict is also in `shown`, as one line.
pub(super) fn ops(replica: &Replica, key: Option<&str>) -> Result<Value, Failure> {
    let outbox = Outbox::new(replica, now_ms());
    let ops = match key {
        Some(key) => outbox.pending_of(key)?,
        None => outbox.listing()?,
    };
    let shown = ops.iter().map(|op| {
        let mut value = serde_json::to_value(op).unwrap_or_default();
        value["what"] = op.what().into();
        value["kind"] = op.action.name().into();
        let parts = value["conflicts"].as_array_mut().into_iter().flatten();
        for (part, conflict) in parts.zip(&op.conflicts) {
            part["shown"] = weir_jira::op::shown(&conflict.theirs).into();
        }
        value
    });
    Ok(Value::Array(shown.collect()))
}

/// The three texts of a conflict: base, local, remote.
pub(super) fn conflict(replica: &Replica, op: &str, field: &str) -> Result<Value, Failure> {
    let op = Outbox::new(replica, now_ms()).find(op)?;
    let texts = op.conflict_texts(field);
    let none = || Failure::new("weir-not-found", format!("{field} has no conflict"));
    let texts = texts.ok_or_else(none)?;
    Ok(serde_json::to_value(texts).unwrap_or_default())
}

/// Candidates for completion. `what` selects them, and determines the meaning of `key`. A line break
/// separates two parts of a key.
///
/// | `what` | candidates | `key` |
/// |---|---|---|
/// | `fields`, `transitions` | editable fields, possible transitions | issue |
/// | `people`, `phrases` | people, phrases of links | not used |
/// | `types` | types of issues | project |
/// | `filters` | favourite filters of the account | not used |
/// | `required` | required fields of a new issue | project, type |
/// | `screen` | fields of a transition | issue, status |
/// | `worklog` | duration, start and text of a worklog | issue, id |
/// | `texts` | values that can be corrected | number of an operation |
pub(super) fn completions(replica: &Replica, what: &str, key: &str) -> Result<Value, Failure> {
    let outbox = Outbox::new(replica, now_ms());
    let value = match what {
        "fields" => serde_json::to_value(outbox.fields(key)?),
        "transitions" => serde_json::to_value(outbox.transitions(key)?),
        "screen" => {
            let (key, to) = key.split_once('\n').unwrap_or((key, ""));
            serde_json::to_value(outbox.transition_fields(key, to)?)
        }
        "required" => {
            let (project, kind) = key.split_once('\n').unwrap_or((key, ""));
            let id = project_id(replica, project)?;
            serde_json::to_value(weir_jira::meta::required(replica, &id, kind)?)
        }
        "filters" => {
            let filters = weir_jira::meta::filters(replica)?.into_iter();
            let one = |(name, jql)| serde_json::json!({"name": name, "jql": jql});
            Ok(filters.map(one).collect())
        }
        "worklog" => {
            let (key, worklog) = key.split_once('\n').unwrap_or((key, ""));
            let (work, text) = outbox.worklog_of(key, worklog)?;
            Ok(serde_json::json!({"seconds": work.seconds, "started": work.started, "text": text}))
        }
        "texts" => serde_json::to_value(outbox.texts(&outbox.find(key)?)?),
        "people" => serde_json::to_value(weir_jira::meta::people(replica)?),
        "phrases" => serde_json::to_value(weir_jira::meta::link_phrases(replica)?),
        "types" => {
            let types = weir_jira::meta::types(replica, &project_id(replica, key)?)?;
            let names = types.iter().map(weir_jira::meta::name_of);
            serde_json::to_value(names.collect::<Vec<_>>())
        }
        _ => {
            return Err(Failure::new(
                "weir-usage",
                format!("there are no completions of the kind {what}"),
            ));
        }
    };
    Ok(value.unwrap_or_default())
}

fn project_id(replica: &Replica, key: &str) -> Result<String, Failure> {
    let mut all = replica.projects()?.into_iter();
    let project = all.find(|(_, value)| value["project"]["key"] == key);
    Ok(project.map(|(id, _)| id).unwrap_or_default())
}
