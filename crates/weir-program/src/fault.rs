//! Why code is not a valid program: it breaks a rule, or its format is wrong.

/// Why the check of a module failed.
pub(crate) enum Fault {
    Rule(String),
    Format(wasmparser::BinaryReaderError),
}

impl From<wasmparser::BinaryReaderError> for Fault {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Self::Format(error)
    }
}

pub(crate) fn rule<T>(sentence: String) -> Result<T, Fault> {
    Err(Fault::Rule(sentence))
}
