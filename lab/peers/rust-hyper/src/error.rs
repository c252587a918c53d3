//! Errors of the load client, and the hash of bodies.

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter is missing or not of its type.
    #[error("parameter `{0}` is missing or malformed")]
    Parameter(&'static str),
    /// The operating system refused.
    #[error("{what}: {source}")]
    Io {
        /// The operation.
        what: &'static str,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The server ended or never answered.
    #[error("the server did not start: {0}")]
    Start(String),
    /// The server sent an unexpected answer.
    #[error("the server answered {0}")]
    Answer(String),
    /// No answer arrived within a minute.
    #[error("no answer for a minute")]
    Silent,
    /// An input number that was never loaded.
    #[error("input {0} was not loaded")]
    NotLoaded(usize),
    /// The lab sent a line that is not a request.
    #[error("malformed line")]
    Malformed,
}

/// Wraps an error of the operating system.
pub fn io(what: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::Io { what, source }
}

/// FNV-1a.
pub fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3)
    })
}
