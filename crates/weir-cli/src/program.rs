//! `weir program`: modules that judge the writes to a topic.

mod bench;
mod calls;
mod check;
mod deploy;
mod logs;
mod new;
mod replay;
mod script;
mod show;
mod trace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use weir::ErrorCode;

use crate::caller::Caller;
use crate::report::{Failure, FailureContext};

/// The commands with required arguments that print rows, and the fields of the rows.
pub(crate) const ROWS: &[(&str, &[crate::output::Field])] = &[
    ("program check", check::CHECKED),
    ("program test", script::FIELDS),
    ("program trace", trace::FIELDS),
    ("program logs", logs::FIELDS),
    ("program replay", replay::FIELDS),
    ("program bench", bench::FIELDS),
    ("program deploy", crate::verdict::FIELDS),
    ("program replace", crate::verdict::FIELDS),
    ("program quarantine", crate::verdict::FIELDS),
    ("program show", show::FIELDS),
];

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
    /// Check a module against every rule, and report what it needs
    #[command(after_long_help = "Examples:\n  \
        weir program check balance.wasm\n  \
        weir program check balance.wasm -o json")]
    Check {
        /// The module, a .wasm file
        file: PathBuf,
    },
    /// Run a script, or the history of a topic, against a module, without a store
    #[command(after_long_help = "\
With --from-topic the module judges what was written to that topic, as `weir program replay` does.
A script names programs by the name of their file without .wasm; they are looked for beside FILE.
With --write the outcomes go into the script, to be read before they are kept.

Examples:
  weir program test balance.wasm balance.txt
  weir program test balance.wasm balance.txt --write
  weir program deploy bank balance.wasm && weir program test balance.wasm --from-topic bank")]
    Test(script::TestArgs),
    /// Replay a past intention, and show the calls of the program
    #[command(after_long_help = "\
Only reads the store, even if another process has it open. The intention runs in memory, on the
state before it, which is rebuilt from the nearest snapshot and the log. Each host call is printed with
its arguments, result and fuel. An intention cannot be replayed if the log before it was purged and no
snapshot is old enough. At a server, which sends parts of its files, `trace`, `logs` and `replay` need
the rights `admin` and `read` on all topics.

Examples:
  weir program deploy bank balance.wasm && weir program trace bank 1
  weir program trace bank --record 1 -o json")]
    Trace(trace::TraceArgs),
    /// Print the lines that the programs of a topic wrote
    #[command(after_long_help = "\
A store does not contain the lines. This command replays the log in memory, from the first intention
that can be replayed, and prints the lines. A process that has the store open
receives the lines as events of `tracing` (target weir::program).

Examples:
  weir program deploy bank balance.wasm && weir program logs bank
  weir program logs bank --last 10 -o json")]
    Logs(logs::LogsArgs),
    /// Show how another program would have judged the history of a topic
    #[command(after_long_help = "\
Only reads the store, even if another process has it open. The log is replayed in memory twice: with its
own programs, and with the module of --with instead of every program of the topic. Limits, arguments,
timestamps and order are equal. Each intention whose verdict or records differ is a row; the exit code is
3 if there is a row. If the start of the log was purged, both runs begin with the newest snapshot that is
old enough, and the other program continues with the state in it. The runs need about 100 bytes of memory
for each intention of the topic.

Examples:
  weir program deploy bank balance.wasm && weir program replay bank --with balance.wasm
  weir program deploy names unique.wasm && weir program replay names --with unique.wasm -o json")]
    Replay(replay::ReplayArgs),
    /// Measure what a program adds to a write, in a separate store
    #[command(after_long_help = "\
The same writes go to a plain topic and to one with the program, in memory, in blocks that take
turns; the first blocks are not counted. `extra_ns` is the median over pairs of blocks. With
--script the writes of a script go round, so what was refused once may be refused again; `valid`,
`rejected`, `trapped` and `failed` say what was measured.

Examples:
  weir program bench unique.wasm --count 2000
  weir program bench balance.wasm --script balance.txt --count 2000 -o json")]
    Bench(bench::BenchArgs),
    /// List the topics that have a program
    #[command(after_long_help = "Examples:\n  \
        weir program deploy bank balance.wasm && weir program ls\n  \
        weir program ls -o json")]
    Ls,
    /// Create a topic with a program
    #[command(after_long_help = "\
Options of a program; `none` takes one back, and `weir topic set` changes all of them but `state`:
  state=none|kv|memory   what is kept between calls: nothing, a map of bytes, or the memory of the
                         module (default kv)
  fuel-max=N             fuel of one call (default 2000000)
  memory-bytes-max=SIZE  memory that the module may declare (default 1 MiB, at most 16 MiB)
  emits-max=N            records of one write (default 1024)
  emit-bytes-max=SIZE    bytes of their keys and values (default 1 MiB)
  state-entries-max=N    entries of the state (default 1000000)
  state-bytes-max=SIZE   bytes of the state (default 64 MiB)
The options of `weir topic create` may stand there too.

Examples:
  weir program deploy bank balance.wasm
  weir program deploy names unique.wasm state=none fuel-max=100000")]
    Deploy(deploy::DeployArgs),
    /// Replace the program of a topic
    #[command(after_long_help = "\
The new program takes over the state. If it exports `weir_upgrade`, that runs first and may change the
state. Without it, a module whose `weir_state` returns another version than that of the old one is
refused (BAD_PROGRAM), and so is every module in state mode memory. On any failure the old program stays.

Examples:
  weir program deploy bank balance.wasm && weir program replace bank balance2.wasm
  weir program replace bank balance.wasm -o json")]
    Replace(deploy::ReplaceArgs),
    /// Stop the writes of a topic whose program cannot be trusted, or resume them
    #[command(after_long_help = "\
A topic in quarantine is read as ever and takes no write: QUARANTINED. It goes on with --release, or
with another program in the place of its own. At a server this needs the right `admin`.

Examples:
  weir program deploy bank balance.wasm && weir program quarantine bank
  weir program quarantine bank --release -o json")]
    Quarantine {
        /// Name of the topic
        topic: String,
        /// Accept writes again
        #[arg(long)]
        release: bool,
    },
    /// Describe the program of a topic
    #[command(after_long_help = "Examples:\n  \
        weir program deploy bank balance.wasm && weir program show bank\n  \
        weir program show bank -o json")]
    Show {
        /// Name of the topic
        topic: String,
    },
}

/// Runs `weir program`.
pub(crate) fn run(caller: &Caller, args: &ProgramArgs) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Verb::New(args) => new::run(caller, args),
        Verb::Check { file } => check::run(caller, file),
        Verb::Test(args) => script::run(caller, args),
        Verb::Trace(args) => trace::run(caller, args),
        Verb::Logs(args) => logs::run(caller, args),
        Verb::Replay(args) => replay::run(caller, args),
        Verb::Bench(args) => bench::run(caller, args),
        Verb::Ls => show::list(caller),
        Verb::Deploy(args) => deploy::deploy(caller, args),
        Verb::Replace(args) => deploy::replace(caller, args),
        Verb::Quarantine { topic, release } => deploy::quarantine(caller, topic, *release),
        Verb::Show { topic } => show::run(caller, topic),
    }
}

/// Reads a module.
fn module(file: &Path) -> anyhow::Result<Vec<u8>> {
    let code = read(file)?;
    if code.is_empty() {
        let what = format!("{} is not a program", file.display());
        return Err(Failure::new(ErrorCode::BadProgram, what)
            .because("the file is empty")
            .advise("build the module again, and look at what the compiler says")
            .into());
    }
    Ok(code)
}

/// Reads a module or a script.
fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).failed(|| format!("cannot read {}", file.display()))
}
