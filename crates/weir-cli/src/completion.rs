//! `weir completion`: scripts that complete commands and options.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use clap_complete::Shell;

use crate::report;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  weir completion bash > weir.bash
  weir completion zsh > _weir
  weir completion fish > weir.fish")]
pub(crate) struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Carries out `weir completion`.
pub(crate) fn run(args: &CompletionArgs, grammar: &mut clap::Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, grammar, "weir", &mut script);
    report::stdout(std::io::stdout().write_all(&script))?;
    Ok(ExitCode::SUCCESS)
}
