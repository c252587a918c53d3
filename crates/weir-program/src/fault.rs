//! Why some code is no program: a rule that it breaks, or its format.

/// Why a walk through a module ended.
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
