//! DELETE of a stream.

use std::sync::Arc;

use super::expire;
use super::leader::wait_until_current;
use super::open::open;
use super::view;
use crate::http::problem::Problem;
use crate::http::reply::Reply;
use crate::resources::context::{Call, Edge};
use crate::resources::events::read::no_topic;
use crate::resources::streams::state::lock;

/// Responds to DELETE.
pub(super) async fn delete(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    let topic = &call.matched.topic;
    wait_until_current(edge).await?;
    open(edge, topic).await?;
    let guard = lock(edge.shared.config.store_timeout, &edge.ds.structure).await?;
    let view = view::find(edge, topic).await?.ok_or_else(no_topic)?;
    if view.gone {
        return Err(view::gone());
    }
    expire::remove(edge, &view, call.principal.name.as_bytes()).await?;
    drop(guard);
    Ok(Reply::new(204).field("cache-control", "no-store"))
}
