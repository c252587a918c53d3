//! Why a server does not start or end well.

use std::io;

/// A failure of a whole server; what goes wrong with one request or
/// connection is answered there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address as configured.
        address: String,
        /// The answer of the system.
        source: io::Error,
    },
    /// An address that others can reach, without what protects it.
    #[error("{address} can be reached from other machines, and {missing} is off; {flag} allows it")]
    Exposed {
        /// The address as configured.
        address: String,
        /// What is missing.
        missing: &'static str,
        /// The setting that allows it.
        flag: &'static str,
    },
    /// Two settings that contradict each other, or one that cannot be carried
    /// out.
    #[error("{what}")]
    Config {
        /// What is wrong.
        what: &'static str,
    },
    /// The threads cannot be started.
    #[error("cannot start the threads of the server: {source}")]
    Runtime {
        /// The answer of the system.
        source: io::Error,
    },
    /// The server's thread ended by a panic.
    #[error("the server ended unexpectedly")]
    Died,
    /// It was told to end at once while requests were still open.
    #[error("the server was ended before its requests were")]
    Cut,
}
