//! Selects the issues of a query in the simulator, with the requested fields.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::world::World;
use super::writes::Refusal;
use crate::jql;

/// Keeps only the requested fields.
pub(super) fn keep_fields(issue: &mut Value, names: &[&str]) {
    if names
        .iter()
        .any(|name| *name == "*all" || *name == "*navigable")
    {
        return;
    }
    if let Some(fields) = issue["fields"].as_object_mut() {
        fields.retain(|name, _| names.contains(&name.as_str()));
    }
}

/// The names of the fields that a request selects.
pub(super) fn requested_fields(body: &Value) -> Vec<String> {
    let names = body["fields"].as_array().into_iter().flatten();
    names
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect()
}

/// The rows of a query, in its order.
pub(super) fn select(world: &World, body: &Value) -> Result<Vec<Arc<Value>>, Refusal> {
    let query = jql::parse(body["jql"].as_str().unwrap_or_default());
    let query = query.map_err(|error| (400, error.to_string()))?;
    if query.condition.is_none() {
        return Err((400, "Unbounded JQL queries are not allowed here. Please add a search restriction to your query.".to_owned()));
    }
    let current = body["reconcileIssues"].as_array().into_iter().flatten();
    let current: BTreeSet<u64> = current
        .filter_map(|id| id.as_u64().or_else(|| id.as_str()?.parse().ok()))
        .collect();
    let context = jql::Context {
        me: world.me()["accountId"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        now_ms: world.now_ms(),
        zone: world.zone.clone(),
    };
    let mut found = world.indexed(&current);
    found.retain(|issue| jql::matches(&query, issue, &context));
    found.sort_by_cached_key(|issue| jql::order_of(&query, issue));
    Ok(found)
}
