//! Queries over the replica, without a request.

use serde_json::Value;

use crate::error::{JiraError, Result};
use crate::jql::{self, Condition, Context, Operand, Operator, Query};
use crate::meta;
use crate::overlay::Overlay;
use crate::replica::{Location, Replica};

/// A text as a JQL literal.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The context of queries: the account of the replica, with its time zone.
pub(crate) fn context(replica: &Replica, now_ms: i64) -> Result<Context> {
    Ok(Context {
        me: meta::account(replica)?,
        now_ms,
        zone: meta::zone(replica)?,
    })
}

/// The issues that a query selects, with pending edits applied, in its order; without an order, the
/// newest first. The empty query selects all issues, because no request is sent.
///
/// # Errors
/// `Jql` with the position of the first character outside of the subset.
pub fn select(replica: &Replica, query: &str, now_ms: i64) -> Result<Vec<Value>> {
    let mut query = jql::parse(query)?;
    if query.order.is_empty() {
        query.order = vec![("updated".to_owned(), true), ("key".to_owned(), false)];
    }
    let context = context(replica, now_ms)?;
    let mut found = Vec::new();
    let overlay = Overlay::load(replica)?;
    for mut issue in replica.issues()? {
        add_missing_comments(replica, &mut issue)?;
        overlay.apply(&mut issue);
        if jql::matches(&query, &issue, &context) {
            found.push(issue);
        }
    }
    let created = overlay.created().into_iter();
    found.extend(created.filter(|issue| jql::matches(&query, issue, &context)));
    let mut rows: Vec<&Value> = found.iter().collect();
    jql::sort(&query, &mut rows);
    Ok(rows.into_iter().cloned().collect())
}

/// A value of a query that nothing in the replica has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownValue {
    /// Name of the field, in lower case.
    pub field: String,
    /// The value, as in the query.
    pub value: String,
}

impl UnknownValue {
    /// The query for issues with this value.
    fn query(&self) -> Query {
        let condition = Condition::Compare {
            field: self.field.clone(),
            operator: Operator::Equal,
            values: vec![Operand::Text(self.value.clone())],
        };
        Query {
            condition: Some(condition),
            order: Vec::new(),
        }
    }
}

/// The values of a query that neither an issue nor a list of the replica has. Only statuses, types,
/// priorities and projects are checked, and `me` as a person. `found` is the result of the query.
///
/// # Errors
/// `Jql` as [`select`].
pub fn unknown_values(
    replica: &Replica,
    query: &str,
    found: &[Value],
) -> Result<Vec<UnknownValue>> {
    let mut values = Vec::new();
    if let Some(condition) = jql::parse(query)?.condition {
        collect_checked(&condition, &mut values);
    }
    let mut unknown: Vec<(UnknownValue, Query)> = Vec::new();
    for value in values {
        let query = value.query();
        let has_value = |issues: &[Value]| {
            let mut issues = issues.iter();
            issues.any(|issue| jql::matches(&query, issue, &Context::default()))
        };
        if !has_value(found) && !has_value(&meta::listed_values(replica, &value.field)?) {
            unknown.push((value, query));
        }
    }
    if !unknown.is_empty() {
        let overlay = Overlay::load(replica)?;
        let mut issues = replica.issues()?;
        for issue in &mut issues {
            overlay.apply(issue);
        }
        for issue in issues.iter().chain(&overlay.created()) {
            unknown.retain(|(_, query)| !jql::matches(query, issue, &Context::default()));
        }
    }
    Ok(unknown.into_iter().map(|(value, _)| value).collect())
}

/// Adds the values of a condition that [`unknown_values`] checks.
fn collect_checked(condition: &Condition, found: &mut Vec<UnknownValue>) {
    match condition {
        Condition::And(parts) | Condition::Or(parts) => {
            for part in parts {
                collect_checked(part, found);
            }
        }
        Condition::Compare {
            field,
            operator: Operator::Equal | Operator::NotEqual,
            values,
        } => {
            for value in values {
                let Operand::Text(text) = value else { continue };
                let is_checked = match field.as_str() {
                    "status" | "type" | "issuetype" | "priority" | "project" => true,
                    "assignee" | "reporter" | "creator" => text.eq_ignore_ascii_case("me"),
                    _ => false,
                };
                let (field, value) = (field.clone(), text.clone());
                let value = UnknownValue { field, value };
                if is_checked && !found.contains(&value) {
                    found.push(value);
                }
            }
        }
        _ => {}
    }
}

/// The issues whose summary, description or comments contain all words, matched by prefix.
pub fn search(replica: &Replica, words: &str, now_ms: i64) -> Result<Vec<Value>> {
    let parts = words
        .split(|c: char| !c.is_alphanumeric())
        .filter(|part| !part.is_empty());
    let parts: Vec<String> = parts.map(|part| format!("{part}*")).collect();
    if parts.is_empty() {
        return Err(JiraError::EmptyQuery);
    }
    select(
        replica,
        &format!("text ~ {}", quoted(&parts.join(" "))),
        now_ms,
    )
}

/// Adds all comments of the replica to an issue that was stored with a part of them.
fn add_missing_comments(replica: &Replica, issue: &mut Value) -> Result<()> {
    let part = &issue["fields"]["comment"];
    let count = part["comments"].as_array().map_or(0, Vec::len);
    let total = part["total"]
        .as_u64()
        .and_then(|total| usize::try_from(total).ok());
    if total.is_none_or(|total| total <= count) {
        return Ok(());
    }
    let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let project = name(&issue["fields"]["project"]["id"]);
    let location = Location {
        id: name(&issue["id"]),
        project,
    };
    issue["fields"]["comment"]["comments"] = replica.comments(&location)?.into();
    Ok(())
}
