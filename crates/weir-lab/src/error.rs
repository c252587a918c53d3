//! The errors of the lab, and their exit codes.

use std::io;
use std::path::{Path, PathBuf};

/// Result of a lab operation.
pub type Result<T> = std::result::Result<T, LabError>;

/// A failure of the lab, of an experiment file or of a contender.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A file or directory could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// An experiment file does not match the schema.
    #[error("{}: {source}", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// The position and the reason.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// An experiment file is well-formed but contradictory.
    #[error("experiment `{experiment}`: {what}")]
    Experiment {
        /// Name of the experiment or path of the file.
        experiment: String,
        /// The reason.
        what: String,
    },
    /// The command line names something that does not exist.
    #[error("{what}")]
    Usage {
        /// The reason.
        what: String,
    },
    /// A stored file of a result set could not be parsed.
    #[error("{}:{line}: {source}", path.display())]
    Stored {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
        /// The problem.
        #[source]
        source: serde_json::Error,
    },
    /// A contender could not be started.
    #[error(
        "contender `{contender}`: cannot start {program}: {source} (lab/peers/install.sh builds the peers)"
    )]
    Start {
        /// Name of the contender.
        contender: String,
        /// First word of its command.
        program: String,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A contender broke the protocol, reported an error or ended.
    #[error("contender `{contender}`: {what}")]
    Contender {
        /// Name of the contender.
        contender: String,
        /// The problem.
        what: String,
    },
    /// A contender is not an optimised build.
    #[error(
        "contender `{contender}` is built as `{profile}`; the lab measures optimised builds only"
    )]
    Unoptimised {
        /// Name of the contender.
        contender: String,
        /// The profile that it reported.
        profile: String,
    },
    /// Contenders that should agree gave different answers.
    #[error(
        "workload `{workload}`: `{left}` answers {left_answer}, `{right}` answers {right_answer}; nothing was timed"
    )]
    Disagree {
        /// Name of the workload.
        workload: String,
        /// First contender of the answer group.
        left: String,
        /// Its answer.
        left_answer: String,
        /// Contender that differs.
        right: String,
        /// Its answer.
        right_answer: String,
    },
    /// A contender does not behave as the verification expects.
    #[error("{what}")]
    WrongBehaviour {
        /// The contender, and its behaviour.
        what: String,
    },
    /// Contenders failed; the others were measured.
    #[error("{} failed and was left out (see the report); the rest was measured", names.join(", "))]
    Incomplete {
        /// The contenders that failed.
        names: Vec<String>,
        /// The result set.
        dir: PathBuf,
    },
    /// No contender could be measured; the error of the first one.
    #[error("{what}")]
    Unable {
        /// The contender and its error.
        what: String,
    },
    /// Cells regressed from one result set to another.
    #[error("{cells} cells regressed")]
    Regressed {
        /// Number of regressed cells of the primary metric.
        cells: usize,
    },
    /// Too many blocks were disturbed by other work on the machine.
    #[error(
        "{disturbed} of {total} blocks were disturbed by other work; the machine is too noisy to decide (see the report)"
    )]
    TooNoisy {
        /// Disturbed blocks. Each was repeated once.
        disturbed: usize,
        /// Blocks in all.
        total: usize,
        /// The result set.
        dir: PathBuf,
    },
    /// The user interrupted the run before its first block.
    #[error("interrupted while contenders were checked; no block was measured")]
    Cancelled,
    /// The user interrupted the run; the measured blocks are stored.
    #[error("interrupted; resume with: weir-lab run --resume {}", dir.display())]
    Interrupted {
        /// The result set.
        dir: PathBuf,
    },
}

impl LabError {
    /// Wraps an I/O error with the path it happened on.
    pub fn io(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> LabError {
        move |source| LabError::Io {
            path: path.as_ref().to_owned(),
            source,
        }
    }

    /// An error of contender `name`.
    pub fn contender(name: &str, what: impl Into<String>) -> LabError {
        LabError::Contender {
            contender: name.to_owned(),
            what: what.into(),
        }
    }

    /// An error of experiment `name`.
    pub fn experiment(name: &str, what: impl Into<String>) -> LabError {
        LabError::Experiment {
            experiment: name.to_owned(),
            what: what.into(),
        }
    }

    /// Whether only one contender failed, so that the others can be measured.
    pub fn is_of_one_contender(&self) -> bool {
        matches!(self, LabError::Start { .. } | LabError::Contender { .. })
    }

    /// The exit code the program ends with: 1 error, 2 usage, 3 regression, 4 too noisy,
    /// 5 contenders disagree, 130 interrupted.
    pub fn exit_code(&self) -> u8 {
        match self {
            LabError::Usage { .. } | LabError::Schema { .. } | LabError::Experiment { .. } => 2,
            LabError::Regressed { .. } => 3,
            LabError::TooNoisy { .. } => 4,
            LabError::Disagree { .. } | LabError::WrongBehaviour { .. } => 5,
            LabError::Cancelled | LabError::Interrupted { .. } => 130,
            _ => 1,
        }
    }
}
