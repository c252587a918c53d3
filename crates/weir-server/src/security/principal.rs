//! Who asks: a name, how it was proved, and what it is charged to.

use std::net::SocketAddr;

use super::rate::Charged;

/// How a name was proved. It is looked up again on each question, so what is
/// taken back is gone for open connections too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Proof {
    /// Not at all.
    #[default]
    None,
    /// By the token of this id.
    Token(Box<str>),
    /// By running as the person of the server, on the same machine: the files
    /// of the store are open to it anyway.
    Owner,
    /// By a certificate that the TLS library has verified.
    Certificate,
}

/// Who asks. Two of the same name are the same principal, however proved.
#[derive(Clone, Debug, Default)]
pub(crate) struct Principal {
    /// Authenticated name; empty when there is none. At most 255 bytes.
    pub(crate) name: String,
    /// The other end of the connection.
    pub(crate) peer: Option<SocketAddr>,
    pub(super) proof: Proof,
    pub(super) charged: Charged,
}

impl Principal {
    /// Whether it is the person whose files the store is in.
    pub(crate) fn is_owner(&self) -> bool {
        self.proof == Proof::Owner
    }
}

impl PartialEq for Principal {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Principal {}
