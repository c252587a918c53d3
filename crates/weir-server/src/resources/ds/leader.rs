//! Changes of streams are decided at the leader of a cluster.

use crate::http::problem::Problem;
use crate::resources::context::Edge;
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
