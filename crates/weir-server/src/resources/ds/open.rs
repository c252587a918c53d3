//! The stream of a request.

use std::sync::Arc;

use super::expire;
use super::view::{View, find};
use crate::http::problem::Problem;
use crate::resources::context::Edge;
use crate::resources::events::read::no_topic;

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
