//! Validates entries of the registry: the entry of a fork counts only if the description of that
//! stream names the source.

use std::sync::Arc;

use super::registry::{Expiring, entries};
use super::view::View;
use crate::http::offload;
use crate::http::problem::Problem;
use crate::resources::context::Edge;
use crate::resources::streams::terms::REGISTRY_PAGE;

/// Whether a live fork reads this stream.
pub(super) async fn has_forks(edge: &Arc<Edge>, view: &View) -> Result<bool, Problem> {
    let (edge, source, incarnation) = (Arc::clone(edge), view.topic.clone(), view.incarnation);
    offload::run(move || {
        let mut found = false;
        entries(&edge, &format!("fork/{source}/"), false, |fork, _| {
            found = is_fork(&edge, fork, &source, incarnation)?;
            Ok(!found)
        })?;
        Ok(found)
    })
    .await
}

fn is_fork(edge: &Edge, fork: &str, source: &str, incarnation: u64) -> Result<bool, Problem> {
    let view = View::find(&edge.ds, &edge.shared.store, fork)?;
    Ok(view.is_some_and(|view| {
        let fork = view.config.fork.as_ref();
        fork.is_some_and(|fork| fork.from == source && fork.incarnation == incarnation)
    }))
}

/// Loads the registry: records the streams that expire, and returns the pairs of source and fork
/// whose fork does not exist.
pub(super) fn load(edge: &Edge) -> Result<Vec<(String, String)>, Problem> {
    let mut stale = Vec::new();
    entries(edge, "expiry/", true, |topic, value| {
        if !edge.ds.is_full()
            && let Ok(entry) = serde_json::from_slice::<Expiring>(value)
        {
            edge.ds.lease(topic, entry.expiry);
        }
        Ok(true)
    })?;
    entries(edge, "fork/", false, |names, _| {
        let Some((source, fork)) = names.split_once('/') else {
            return Ok(true);
        };
        let source_state = edge.shared.store.topic_state(source);
        let incarnation = source_state.and_then(|topic| topic.incarnation);
        let is_valid = match incarnation {
            Some(incarnation) => is_fork(edge, fork, source, incarnation.0)?,
            None => false,
        };
        if !is_valid {
            stale.push((source.to_owned(), fork.to_owned()));
        }
        Ok(stale.len() < REGISTRY_PAGE)
    })?;
    Ok(stale)
}
