//! Why a server does not start or end well.

use std::fmt;
use std::io;

use crate::security::{IdentitiesError, TlsError};

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

/// What protects an address that others can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// Encryption, and proof of whom one talks to.
    Tls,
    /// Who may come in.
    Identities,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls => {
                "TLS is off; give --tls-cert and --tls-key (`weir cert ca` and `weir cert issue` \
                 make them), or say --insecure-no-tls to let everybody on the way read and change \
                 everything"
            }
            Self::Identities => {
                "nobody has to say who they are; give --identities (`weir token new` makes the \
                 file), or say --insecure-no-auth to let everybody do everything"
            }
        })
    }
}
