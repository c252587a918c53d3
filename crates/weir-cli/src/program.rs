//! `weir program`: modules that validate the writes to a topic.

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

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use weir::{ErrorCode, limits};

use crate::caller::Caller;
use crate::report::{Failure, FailureContext, unopened};

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
    /// Create a project for a program: source, build files, script
    #[command(after_long_help = "Examples:\n  \
        weir program new seats\n  \
        weir program new --lang zig seats --dir seats-zig")]
    New(new::NewArgs),
    /// Check that a module follows all rules, and show what it needs
    #[command(after_long_help = "Examples:\n  \
        weir program check balance.wasm\n  \
        weir program check balance.wasm -o json")]
    Check {
        /// Module, a .wasm file
        file: PathBuf,
    },
    /// Run a script, or the history of a topic, against a module, without a store
    #[command(after_long_help = "\
Runs the writes of a script and compares the outcomes with those in the script. A script names a
program by its file without .wasm, in the directory of FILE. --write writes the actual outcomes into
the script; review them. --from-topic runs the history of a topic, as `weir program replay` does.
`weir help guide programs` describes scripts.

Examples:
  weir program test balance.wasm balance.txt
  weir program test balance.wasm balance.txt --write
  weir program deploy bank balance.wasm && weir program test balance.wasm --from-topic bank")]
    Test(script::TestArgs),
    /// Replay a past intention, and show the host calls of the program
    #[command(after_long_help = "\
Only reads the store, even if another process has it open. The state before the intention is rebuilt
in memory from the nearest snapshot and the log; then the intention runs on it. Each host call is
printed with its arguments, result and fuel. An intention cannot be replayed if the log before it was
purged and no snapshot is old enough.

At a server, `trace`, `logs` and `replay` need the rights `admin` and `read` on all topics, because the
server sends parts of its files.

Examples:
  weir program deploy bank balance.wasm && weir program trace bank 1
  weir program trace bank --record 1 -o json")]
    Trace(trace::TraceArgs),
    /// Print the log lines of the programs of a topic
    #[command(after_long_help = "\
The store does not contain the log lines of programs. This command replays the log in memory, from
the first intention that can be replayed, and prints the lines. A process that has the store open
receives new lines as events of `tracing`, with the target weir::program.

Examples:
  weir program deploy bank balance.wasm && weir program logs bank
  weir program logs bank --last 10 -o json")]
    Logs(logs::LogsArgs),
    /// Show where the verdicts of another program would differ in the history of a topic
    #[command(after_long_help = "\
Only reads the store, even if another process has it open. The log is replayed in memory twice: with the
original programs, and with the module of --with in their place. Limits, arguments, timestamps and
order are equal. Each intention whose verdict or records differ is a row. If there is a row, the exit
code is 3.

If the start of the log was purged, both runs begin with the newest snapshot that is old enough. The
other program then continues with the state of the snapshot. The runs need about 100 bytes of memory for
each intention of the topic.

Examples:
  weir program deploy bank balance.wasm && weir program replay bank --with balance.wasm
  weir program deploy names unique.wasm && weir program replay names --with unique.wasm -o json")]
    Replay(replay::ReplayArgs),
    /// Measure the time that a program adds to a write
    #[command(after_long_help = "\
Sends equal writes to a plain topic and to a topic with the program, in a temporary store with the
durability level `memory`. Blocks of writes to the two topics alternate; the first blocks are not
counted. `extra_ns` is the median of the differences between paired blocks.

With --script, the writes of a script are repeated in a cycle, so a later cycle may be rejected where
the first one was valid. `valid`, `rejected`, `trapped` and `failed` count the verdicts.

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
Options of a program; for all but `state`, the value `none` restores the default:
  state=none|kv|memory   state between calls: none, a map of bytes, or the memory of the module
                         (default kv); cannot be changed later
  fuel-max=N             maximum fuel of one call (default 2000000, at most 10000000, or the
                         program_fuel_max of a server)
  memory-bytes-max=SIZE  maximum memory that the module may declare (default 1 MiB, at most 16 MiB)
  emits-max=N            maximum records of one write (default 1024, at most 65536)
  emit-bytes-max=SIZE    maximum bytes of keys and values of these records (default 1 MiB, at most
                         16 MiB)
  state-entries-max=N    maximum entries of the state (default 1000000, at most 16000000)
  state-bytes-max=SIZE   maximum bytes of the state (default 64 MiB, at most 256 MiB)
The options of `weir topic create` are accepted too. `weir topic set` changes the options later.

Examples:
  weir program deploy bank balance.wasm
  weir program deploy names unique.wasm state=none fuel-max=100000")]
    Deploy(deploy::DeployArgs),
    /// Replace the program of a topic
    #[command(after_long_help = "\
The new program inherits the state. If the module exports `weir_upgrade`, this function runs first and
may change the state. Without `weir_upgrade`, the module must have the state version of the old module
(`weir_state`), and the state mode must not be memory; otherwise it is rejected (BAD_PROGRAM). On any
failure, the old program remains. The arguments of the old program are not kept: pass them again.
`weir_init` does not run.

Examples:
  weir program deploy bank balance.wasm && weir program replace bank balance2.wasm
  weir program replace bank balance.wasm -o json")]
    Replace(deploy::ReplaceArgs),
    /// Reject all writes to a topic whose program is not trusted
    #[command(after_long_help = "\
A topic in quarantine can be read, but rejects all writes with QUARANTINED. --release ends the
quarantine; `weir program replace` ends it too. At a server, this command needs the right `admin`.

Examples:
  weir program deploy bank balance.wasm && weir program quarantine bank
  weir program quarantine bank --release -o json")]
    Quarantine {
        /// Name of the topic
        topic: String,
        /// End the quarantine, so that the topic accepts writes again
        #[arg(long)]
        release: bool,
    },
    /// Show the program of a topic
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
            .advise("build the module again, and read the messages of the compiler")
            .into());
    }
    Ok(code)
}

/// Maximum bytes of a module or a script: those of a value in a file.
const FILE_BYTES_MAX: u64 = limits::VALUE_BYTES_MAX as u64;

/// Reads a module or a script.
fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    let shown = || format!("cannot read {}", file.display());
    let open = File::open(file).map_err(|error| unopened(shown(), &error))?;
    let mut bytes = Vec::new();
    // The byte after the maximum shows that the file is larger.
    let read = open.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    if read.failed(shown)? as u64 > FILE_BYTES_MAX {
        let why =
            format!("a module or script has at most {FILE_BYTES_MAX} bytes, and the file has more");
        let failure = Failure::new(ErrorCode::TooLarge, shown()).because(why);
        return Err(failure.advise("check the path of the file").into());
    }
    Ok(bytes)
}
