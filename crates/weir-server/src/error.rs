//! Why a server does not start or end well.

use std::io;

use crate::config::{ConfigError, Missing};
use crate::security::{IdentitiesError, SecurityError, TlsError};

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
    #[error("{address} can be reached from other machines, and {missing}")]
    Exposed {
        /// The address as configured.
        address: String,
        /// What is missing, and what to do.
        missing: Missing,
    },
    /// Two settings that contradict each other, or one that cannot be carried
    /// out.
    #[error("{what}")]
    Config {
        /// What is wrong.
        what: &'static str,
    },
    /// The file of identities is not taken.
    #[error(transparent)]
    Identities(#[from] IdentitiesError),
    /// Files of TLS are not taken.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The threads cannot be started.
    #[error("cannot start the threads of the server: {source}")]
    Runtime {
        /// The answer of the system.
        source: io::Error,
    },
    /// The process may not open enough files.
    #[error("the limit of open files is {limit}; the server needs {need}")]
    Descriptors {
        /// Descriptors that the process may have.
        limit: usize,
        /// Descriptors that are the least.
        need: usize,
    },
    /// The server's thread ended by a panic.
    #[error("the server ended unexpectedly")]
    Died,
    /// It was told to end at once while requests were still open.
    #[error("the server was ended before its requests were")]
    Cut,
}

impl From<ConfigError> for ServerError {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Exposed { address, missing } => Self::Exposed { address, missing },
            ConfigError::Contradiction { what } => Self::Config { what },
        }
    }
}

impl From<SecurityError> for ServerError {
    fn from(error: SecurityError) -> Self {
        match error {
            SecurityError::Identities(error) => Self::Identities(error),
            SecurityError::Tls(error) => Self::Tls(error),
        }
    }
}
