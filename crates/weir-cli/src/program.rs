//! `weir program`: modules that judge the writes to a topic.

mod check;
mod deploy;
mod new;
mod script;
mod show;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::cli::Caller;
use crate::report::Because;

#[derive(Debug, Args)]
pub(crate) struct ProgramArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Write a project for a program: source, build file, script, library
    #[command(after_long_help = "Examples:\n  \
        weir program new seats\n  \
        weir program new --lang zig seats --dir seats-zig")]
    New(new::NewArgs),
    /// Check a module against every rule, and say what it needs
    #[command(after_long_help = "Examples:\n  \
        weir program check balance.wasm\n  \
        weir program check balance.wasm -o json")]
    Check {
        /// The module, a .wasm file
        file: PathBuf,
    },
    /// Run a script: what writes lead to, without any store
    #[command(after_long_help = "\
A script names programs by the name of their file without .wasm; they are looked for beside FILE.
With --write the outcomes go into the script, to be read before they are kept.

Examples:
  weir program test balance.wasm balance.txt
  weir program test balance.wasm balance.txt --write")]
    Test {
        /// The module, a .wasm file
        file: PathBuf,
        /// The script
        script: PathBuf,
        /// Write what happened into the script
        #[arg(long)]
        write: bool,
    },
    /// Make a topic with a program
    #[command(after_long_help = "Examples:\n  \
        weir program deploy bank balance.wasm\n  \
        weir program deploy names unique.wasm state=none fuel-max=100000")]
    Deploy(deploy::DeployArgs),
    /// Put another program in the place of a topic's program
    #[command(after_long_help = "Examples:\n  \
        weir program deploy bank balance.wasm && weir program replace bank balance2.wasm\n  \
        weir program replace bank balance.wasm -o json")]
    Replace(deploy::ReplaceArgs),
    /// Describe the program of a topic
    #[command(after_long_help = "Examples:\n  \
        weir program deploy bank balance.wasm && weir program show bank\n  \
        weir program show bank -o json")]
    Show {
        /// Name of the topic
        topic: String,
    },
}

/// Carries out `weir program`.
pub(crate) fn run(caller: &Caller, args: &ProgramArgs) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Verb::New(args) => new::run(caller, args),
        Verb::Check { file } => check::run(caller, file),
        Verb::Test {
            file,
            script,
            write,
        } => script::run(caller, file, script, *write),
        Verb::Deploy(args) => deploy::deploy(caller, args),
        Verb::Replace(args) => deploy::replace(caller, args),
        Verb::Show { topic } => show::run(caller, topic),
    }
}

/// The bytes of a module or a script.
fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).failed(|| format!("cannot read {}", file.display()))
}
