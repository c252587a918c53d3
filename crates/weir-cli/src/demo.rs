//! `weir demo`: shows the main features with real data.
//!
//! The demo has chapters, most of them over one embedded store. Each chapter does its
//! work, checks the result against the source data, and prints one line.
//!
//! Invariants:
//! - A line claims only facts that this run checked, and contains only numbers that this run
//!   measured.
//! - No file remains outside of the demo's own directory.

mod bank;
mod child;
mod crash;
mod facts;
mod failover;
mod load;
mod output;
mod quakes;
mod read;
mod recheck;
mod reopen;
mod rules;
mod strongest;
mod tour;
mod write;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use self::output::OutputOptions;
use self::tour::Size;
use crate::caller::Caller;
use crate::output::Format;

/// Arguments of `weir demo`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Without --keep, the demo works in a temporary directory, which it removes at the end, on Ctrl-C and
when its terminal is closed.
Each step checks its result and prints a line. If a step fails, the stores are kept, and the exit code
is 1.

Examples:
  weir demo --quick
  weir demo --quick --keep quakes && weir demo --recheck quakes")]
pub(crate) struct DemoArgs {
    /// Keep the stores in this directory (new or empty)
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Only check the stores that an earlier `--keep DIR` created
    #[arg(long, value_name = "DIR", conflicts_with_all = ["keep", "quick"])]
    recheck: Option<PathBuf>,
    /// Run with a tenth of the load and fewer kills
    #[arg(long)]
    quick: bool,
    /// Run as the writer that gets killed: write into this store, and print each acknowledged
    /// offset
    #[arg(long, value_name = "DIR", hide = true)]
    child: Option<PathBuf>,
    /// First nonce of each of the child's sessions
    #[arg(
        long,
        value_name = "N,N,N",
        value_delimiter = ',',
        requires = "child",
        hide = true
    )]
    resume: Vec<u64>,
}

/// Runs the demo. With `-o json`, prints one object with the results to standard output, and
/// nothing else. A failed step prints its reason, and the exit code is 1.
pub(crate) fn run(caller: &Caller, args: &DemoArgs) -> anyhow::Result<ExitCode> {
    if let Some(directory) = &args.child {
        return child::run(directory, &args.resume);
    }
    let json = matches!(caller.style.format, Some(Format::Json | Format::Jsonl));
    let show = OutputOptions {
        steps: !json && !caller.quiet,
        json,
    };
    if let Some(directory) = &args.recheck {
        return recheck::run(directory, show);
    }
    let size = if args.quick { Size::QUICK } else { Size::FULL };
    tour::run(args.keep.as_deref(), size, show)
}
