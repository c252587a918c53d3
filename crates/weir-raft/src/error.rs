//! Errors of a node.

use weir_store::StoreError;

/// An error of a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The store could not be opened or closed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system refused a thread or an address.
    #[error("cannot start the node: {0}")]
    Io(#[from] std::io::Error),
    /// The consensus has rejected the request, or has ended.
    #[error("the consensus refused: {0}")]
    Consensus(String),
    /// The cluster has rejected the node or the change.
    #[error("{0}")]
    Refused(String),
    /// The directory is an older copy of that of the node: another node has seen a later state.
    #[error("{0}")]
    OlderCopy(String),
    /// The store that should become a node has the state of a cluster with other voters. They may
    /// run, and acknowledge writes that the store lacks.
    #[error(
        "the store is the copy of a node of a cluster with the voters {voters}: a second cluster of \
         the same store would acknowledge writes that the first one lacks"
    )]
    OtherVoters {
        /// Their numbers, separated by commas.
        voters: String,
    },
    /// A node that the request needs does not answer or lags. The request may succeed later.
    #[error("{0}")]
    NotReady(String),
    /// No leader has replied.
    #[error("no leader of the cluster has answered: {0}")]
    Unreachable(String),
}

impl NodeError {
    pub(crate) fn consensus(error: &impl std::fmt::Display) -> Self {
        Self::Consensus(error.to_string())
    }
}
