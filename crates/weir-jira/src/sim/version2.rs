//! The simulator as Jira Data Center: version 2 of the interface, read-only.
//!
//! Differences from Cloud: pages by offset with a total; projects as one array; users with `name`
//! and `key` instead of `accountId`; wiki markup instead of documents.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::faults::Fault;
use super::rows::{keep_fields, requested_fields, select};
use super::world::World;
use super::writes::Refusal;
use crate::jql::{self, Condition, Operand, Operator};
use crate::time;
use crate::wire::Request;

/// Limit on the issues of a page, which an administrator can configure.
const PAGE_MAX: usize = 1000;

type Answer = Result<(u16, Value), Refusal>;

/// Answers a request whose answer differs at Data Center; `None` for the others.
pub(super) fn serve(
    world: &World,
    request: &Request,
    path: &[&str],
    fault: Option<&Fault>,
) -> Option<Answer> {
    let absent = || Some(Err((404, "HTTP 404 Not Found".to_owned())));
    match (request.method.as_str(), path) {
        ("GET", ["serverInfo"]) => Some(Ok((
            200,
            json!({"baseUrl": "http://127.0.0.1", "version": "9.12.15", "versionNumbers": [9, 12, 15],
                "deploymentType": "Server", "serverTime": time::format(world.now_ms())}),
        ))),
        ("GET", ["project"]) => {
            let shown = world.projects.iter();
            let shown = shown.filter(|(id, _)| !world.hides(**id));
            Some(Ok((
                200,
                shown.map(|(_, project)| project.clone()).collect(),
            )))
        }
        ("GET" | "POST", ["search"]) => Some(search(world, request, fault)),
        ("GET", ["project" | "users", "search"]) | (_, ["search", ..] | ["issue", "bulkfetch"]) => {
            absent()
        }
        ("GET", _) => None,
        _ => {
            let text = "the simulated Data Center can only be read".to_owned();
            Some(Err((405, text)))
        }
    }
}

fn search(world: &World, request: &Request, fault: Option<&Fault>) -> Answer {
    let given: Value = if request.method == "POST" {
        serde_json::from_slice(&request.body).map_err(|error| (400, error.to_string()))?
    } else {
        let fields = request
            .argument("fields")
            .unwrap_or("*navigable")
            .split(',');
        json!({"jql": request.argument("jql").unwrap_or_default(), "fields": fields.collect::<Vec<_>>(),
            "startAt": request.number("startAt", 0), "maxResults": request.number("maxResults", 50)})
    };
    let number = |name: &str| given[name].as_u64().and_then(|n| usize::try_from(n).ok());
    let rows = select_rows(world, &given)?;
    let start = number("startAt").unwrap_or(0);
    let cap = world.options.page_cap.clamp(1, PAGE_MAX);
    let mut most = number("maxResults").unwrap_or(50).min(cap);
    let mut total = rows.len();
    match fault.map(|fault| fault.name.as_str()) {
        Some("short-page") => most = most.div_ceil(2),
        Some("empty-page") => most = 0,
        Some("shrink-total") => total = total.saturating_sub(1),
        _ => {}
    }
    let rows = rows.iter().skip(start).take(most);
    let mut page: Vec<Value> = rows.map(|row| (**row).clone()).collect();
    if let Some(fault) = fault {
        fault.change_issues(&mut page);
    }
    let names = requested_fields(&given);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for row in &mut page {
        keep_fields(row, &names);
    }
    Ok((
        200,
        json!({"startAt": start, "maxResults": most, "total": total, "issues": page}),
    ))
}

/// The rows of a query, in its order. A query with an unknown field or issue is refused; with
/// `validateQuery` false, the unknown part selects nothing.
fn select_rows(world: &World, given: &Value) -> Result<Vec<Arc<Value>>, Refusal> {
    let validates = given["validateQuery"].as_bool().unwrap_or(true);
    let query = jql::parse(given["jql"].as_str().unwrap_or_default());
    match query.map(|query| query.condition) {
        Ok(Some(condition)) if validates => check_issues(world, &condition)?,
        // The whole query selects nothing: the parser does not return its other parts.
        Err(error) if !validates && error.what.starts_with("field '") => return Ok(Vec::new()),
        _ => {}
    }
    select(world, given)
}

/// Refuses a condition that names an unknown issue.
fn check_issues(world: &World, condition: &Condition) -> Result<(), Refusal> {
    match condition {
        Condition::And(parts) | Condition::Or(parts) => {
            let mut parts = parts.iter();
            parts.try_for_each(|part| check_issues(world, part))
        }
        Condition::Compare {
            field,
            operator: Operator::Equal | Operator::NotEqual,
            values,
        } if matches!(field.as_str(), "id" | "key" | "issue" | "issuekey") => {
            for value in values {
                let Operand::Text(name) = value else { continue };
                if world.find(&name.to_uppercase()).is_none() {
                    let what = format!("'{name}' does not exist for field '{field}'");
                    return Err((400, format!("An issue with key {what}.")));
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Converts a value of version 3 to version 2.
pub(super) fn converted(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(converted).collect(),
        Value::Object(object) if object.get("type").is_some_and(|kind| kind == "doc") => {
            markup(&Value::Object(object)).trim_end().into()
        }
        Value::Object(object) => {
            let mut changed = Map::new();
            for (name, value) in object {
                if name == "accountId" {
                    changed.insert(
                        "key".to_owned(),
                        format!("JIRA{value}").replace('"', "").into(),
                    );
                    changed.insert("name".to_owned(), value);
                } else {
                    changed.insert(name, converted(value));
                }
            }
            Value::Object(changed)
        }
        other => other,
    }
}

/// A document as wiki markup: headings, lists, code and paragraphs; other nodes become their text.
fn markup(node: &Value) -> String {
    let inner = || -> String {
        let content = node["content"].as_array().into_iter().flatten();
        content.map(markup).collect()
    };
    let marked = |name: &str| {
        let marks = node["marks"].as_array().into_iter().flatten();
        marks.into_iter().any(|mark| mark["type"] == name)
    };
    match node["type"].as_str().unwrap_or_default() {
        "text" => {
            let text = node["text"].as_str().unwrap_or_default();
            match (marked("strong"), marked("em")) {
                (true, _) => format!("*{text}*"),
                (_, true) => format!("_{text}_"),
                _ => text.to_owned(),
            }
        }
        "hardBreak" => "\n".to_owned(),
        "heading" => format!(
            "h{}. {}\n\n",
            node["attrs"]["level"].as_u64().unwrap_or(1),
            inner()
        ),
        "listItem" => format!("* {}\n", inner().trim_end()),
        "codeBlock" => format!("{{code}}\n{}\n{{code}}\n\n", inner()),
        "paragraph" => format!("{}\n\n", inner()),
        _ => inner(),
    }
}
