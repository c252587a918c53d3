//! Why a server fails to start or to end cleanly.

use std::io;

use crate::config::{ConfigError, MissingProtection};
use crate::security::{IdentitiesError, SecurityError, TlsError};

/// A failure of a whole server. Errors of one request or connection are reported to its client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The server cannot listen on an address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address as configured.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// Other machines can reach an address that lacks a protection.
    #[error("{address} can be reached from other machines, and {missing}")]
    Exposed {
        /// The address as configured.
        address: String,
        /// The missing protection, and how to add it.
        missing: MissingProtection,
    },
    /// Two settings contradict each other, or the server cannot apply one of them.
    #[error("{what}")]
    Config {
        /// What is wrong.
        what: &'static str,
    },
    /// The file of identities is not valid.
    #[error(transparent)]
    Identities(#[from] IdentitiesError),
    /// The files for TLS are not valid.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The threads cannot be started.
    #[error("cannot start the threads of the server: {source}")]
    Runtime {
        /// The error of the system.
        source: io::Error,
    },
    /// The process may not open enough files.
    #[error("the limit of open files is {limit}; the server needs {need}")]
    Descriptors {
        /// Descriptors that the process may open.
        limit: usize,
        /// Smallest number of descriptors that a server needs.
        need: usize,
    },
    /// The thread of the server panicked.
    #[error("the server ended unexpectedly")]
    Panicked,
    /// The server was ordered to end at once while requests were still open.
    #[error("the server was stopped while requests were still open")]
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
