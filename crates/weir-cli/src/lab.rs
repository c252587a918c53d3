//! `weir lab`: runs the program `weir-lab`. It is installed separately, because it contains other
//! software and its licences.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Args;
use weir::ErrorCode;

use crate::report::Failure;

/// Name of the program.
const PROGRAM: &str = "weir-lab";

#[derive(Debug, Args)]
#[command(after_long_help = "\
All arguments go to weir-lab, which must be in the directory of this program or on the PATH.

Examples:
  weir lab --help
  weir lab run wire-parse --quick")]
pub(crate) struct LabArgs {
    /// Arguments of weir-lab; `weir lab help` prints its own help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Runs `weir lab`. Returns only if the program cannot be started.
pub(crate) fn run(args: &LabArgs) -> anyhow::Result<ExitCode> {
    let sibling = std::env::current_exe()
        .ok()
        .map(|path| path.with_file_name(PROGRAM));
    let program = sibling
        .filter(|path| path.is_file())
        .unwrap_or(PathBuf::from(PROGRAM));
    let error = Command::new(&program).args(&args.words).exec();
    let failure = Failure::new(ErrorCode::Unsupported, format!("cannot run {PROGRAM}"));
    Err(match error.kind() {
        std::io::ErrorKind::NotFound => failure
            .because("it is not in the directory of this program, and not on the PATH")
            .advise("build it with `cargo build --release --package weir-lab`"),
        _ => failure.because(error),
    }
    .into())
}
