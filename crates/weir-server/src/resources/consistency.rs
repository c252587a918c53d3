//! The consistency of a read at a node of a cluster (docs/api/http.md).

use weir_protocol::Consistency;

use super::context::{Call, Edge};
use super::problems;
use super::route::Resource;
use super::table::Operation;
use crate::http::problem::Problem;

/// The query parameter.
pub(crate) const PARAMETER: &str = "consistency";

/// Returns the consistency of a read: that of the request, or the default of its resource.
fn requested(call: &Call) -> Result<Consistency, Problem> {
    use Consistency::{Leader, Linear, Local};
    let all = [Local, Leader, Linear].map(|level| (level.name(), level));
    let default = match call.matched.resource {
        Resource::Key | Resource::Keys => Linear,
        _ => Local,
    };
    Ok(call.query.word(PARAMETER, &all)?.unwrap_or(default))
}

/// Whether an operation may begin without [`wait`].
pub(crate) fn is_met_now(edge: &Edge, call: &Call, operation: &Operation) -> bool {
    if !operation.query.contains(&PARAMETER) {
        return true;
    }
    // `wait` reports the error of a malformed parameter.
    let consistency = requested(call);
    consistency.is_ok_and(|level| edge.shared.cluster.is_none() || level == Consistency::Local)
}

/// Waits until the node meets the consistency of a read.
pub(crate) async fn wait(edge: &Edge, call: &Call, operation: &Operation) -> Result<(), Problem> {
    if !operation.query.contains(&PARAMETER) {
        return Ok(());
    }
    let result = edge.shared.wait_for_consistency(requested(call)?).await;
    result.map_err(|error| problems::of_store(&error))
}
