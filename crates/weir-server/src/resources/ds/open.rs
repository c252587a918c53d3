//! The stream of a request.

use std::sync::Arc;

use super::expire;
use super::view::{View, find};
use crate::http::problem::Problem;
use crate::resources::context::Edge;
use crate::resources::events::read::no_topic;
use crate::resources::problems;

/// Waits until this server may decide about a change of streams: a node of a cluster must lead, and
/// have applied every acknowledged write.
pub(super) async fn wait_until_current(edge: &Edge) -> Result<(), Problem> {
    if let Some(node) = &edge.shared.cluster {
        // Boxed, so that requests without a cluster do not carry this state.
        let leads = Box::pin(node.lead()).await;
        leads.map_err(|error| problems::of_store(&error))?;
    }
    Ok(())
}

/// Finds the stream of a request. Removes it first if it has expired.
pub(super) async fn open(edge: &Arc<Edge>, topic: &str) -> Result<View, Problem> {
    let ds = &edge.ds;
    let view = find(edge, topic).await?.ok_or_else(no_topic)?;
    let is_over = view.gone || ds.is_expired(&view, &edge.shared);
    if is_over && !expire::remove_expired(edge, topic).await? {
        // Another request created the stream again meanwhile.
        return find(edge, topic).await?.ok_or_else(no_topic);
    }
    if is_over { Err(no_topic()) } else { Ok(view) }
}
