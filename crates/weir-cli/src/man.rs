//! `weir man`: writes the manual pages, generated from the help texts.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::report::FailureContext;

#[derive(Debug, Args)]
#[command(after_long_help = "\
One page for each command, `weir-put.1` and so on.

Examples:
  weir man ./man
  weir man ./pages && ls ./pages")]
pub(crate) struct ManArgs {
    /// Directory to write to
    directory: PathBuf,
}

/// Runs `weir man`.
pub(crate) fn run(args: &ManArgs, grammar: clap::Command) -> anyhow::Result<ExitCode> {
    let written = std::fs::create_dir_all(&args.directory)
        .and_then(|()| clap_mangen::generate_to(grammar, &args.directory));
    written.failed(|| format!("cannot write to {}", args.directory.display()))?;
    Ok(ExitCode::SUCCESS)
}
