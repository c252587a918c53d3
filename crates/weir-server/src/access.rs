//! Who may do what: the one place that every request passes.
//!
//! Without identities everything is allowed, which is why a server without
//! them listens on loopback only unless told otherwise.

/// What a request wants to do. The same list as for the native port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "the list is that of the model; groups come later")]
pub(crate) enum Right {
    /// Make a topic.
    Create,
    /// End a topic.
    Destroy,
    /// Write records, change options.
    Put,
    /// Remove keys.
    Delete,
    /// Read records, keys, options.
    Read,
    /// Use groups.
    Group,
    /// Set or replace a program.
    Program,
    /// Look into the server itself.
    Admin,
}

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Principal {
    /// Authenticated name; empty when there is none. At most 255 bytes.
    pub(crate) name: String,
}

/// A request that is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denied {
    /// The right that is missing.
    pub(crate) right: Right,
}

/// Who is known, and what they may do.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    known: bool,
}

impl Identities {
    /// Whether callers must say who they are.
    pub(crate) fn required(&self) -> bool {
        self.known
    }
}

/// Whether the principal may do this to the topic. Empty topic: the server as
/// a whole.
pub(crate) fn authorize(
    identities: &Identities,
    principal: &Principal,
    right: Right,
    topic: &str,
) -> Result<(), Denied> {
    let _ = (principal, topic);
    if identities.required() {
        return Err(Denied { right });
    }
    Ok(())
}
