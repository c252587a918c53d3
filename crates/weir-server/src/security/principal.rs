//! The caller of a request: its name, its proof, and its accounts for rate limits.

use std::net::SocketAddr;

use super::rate::RateAccounts;
use crate::limits::budget::ShareKey;

/// How a name was proved. Each check looks up the proof again, so a revocation also affects open
/// connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Proof {
    /// No proof.
    #[default]
    None,
    /// By the token with this id.
    Token(Box<str>),
    /// By running as the server's user on this machine. This user can access the files of the store
    /// anyway.
    Owner,
    /// By a certificate that the TLS library has verified.
    Certificate,
}

/// The caller. Two callers with one name are one principal, even if their proofs differ.
#[derive(Clone, Debug, Default)]
pub(crate) struct Principal {
    /// Authenticated name, at most 255 bytes; empty if there is none.
    pub(crate) name: String,
    /// Address of the peer.
    pub(crate) peer: Option<SocketAddr>,
    pub(super) proof: Proof,
    pub(super) accounts: RateAccounts,
}

impl Principal {
    /// Whether the principal is the user who owns the files of the store.
    pub(crate) fn is_owner(&self) -> bool {
        self.proof == Proof::Owner
    }

    /// The key of the principal's shares of memory; `None` if none limits it.
    pub(crate) fn share_key(&self) -> Option<ShareKey> {
        self.is_limited().then(|| ShareKey::new(&self.name))?
    }

    /// Whether shares limit the principal: it has a name, and is not the owner.
    pub(crate) fn is_limited(&self) -> bool {
        !self.name.is_empty() && !self.is_owner()
    }
}

impl PartialEq for Principal {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Principal {}
