//! A stream as a request finds it.

use std::sync::Arc;

use super::expire;
use super::view::{View, look};
use crate::http::problem::Problem;
use crate::resources::context::Edge;
use crate::resources::events::read::no_topic;

/// The stream of a name, as a request meets it: one that has expired is
/// removed on the way.
pub(super) async fn open(edge: &Arc<Edge>, topic: &str) -> Result<View, Problem> {
    let ds = &edge.ds;
    let view = look(edge, topic).await?.ok_or_else(no_topic)?;
    let over = view.gone || ds.is_expired(&view, edge.shared.store.now_ms());
    if over && !expire::expired(edge, topic).await? {
        // It was made anew meanwhile.
        return look(edge, topic).await?.ok_or_else(no_topic);
    }
    if over { Err(no_topic()) } else { Ok(view) }
}
