//! `weir program deploy`, `replace` and `quarantine`: set the program of a topic, or stop it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use weir::program::script;
use weir::{CodeHash, ErrorCode, Operation, TopicOptions, Weir};

use super::module;
use crate::bytes;
use crate::caller::Caller;
use crate::place::{self, Access};
use crate::report::{Failure, note};
use crate::topic_options as options;
use crate::write::change;

/// Arguments of `weir program deploy`.
#[derive(Debug, Args)]
pub(super) struct DeployArgs {
    /// Name of the topic
    topic: String,
    /// The module, a .wasm file
    file: PathBuf,
    /// Options of the program and of the topic
    #[arg(value_name = "OPTION=VALUE")]
    options: Vec<String>,
    /// Arguments of the program; \xff, {u32:5}, {x*9} as in scripts
    #[arg(long, default_value = "", hide_default_value = true)]
    args: String,
}

/// Arguments of `weir program replace`.
#[derive(Debug, Args)]
pub(super) struct ReplaceArgs {
    /// Name of the topic
    topic: String,
    /// The module, a .wasm file
    file: PathBuf,
    /// Arguments of the program; \xff, {u32:5}, {x*9} as in scripts
    #[arg(long, default_value = "", hide_default_value = true)]
    args: String,
    /// Only if the current program of the topic has this SHA-256
    #[arg(long, value_name = "HASH")]
    expect: Option<String>,
}

/// Runs `weir program deploy`.
pub(super) fn deploy(caller: &Caller, args: &DeployArgs) -> anyhow::Result<ExitCode> {
    let options = &options::parse(&args.options, &TopicOptions::default())?;
    let (code, arguments) = (&module(&args.file)?, &argument("--args", &args.args)?);
    let weir = place::open(caller, Access::Write)?;
    let create = Operation::CreateProgram {
        options,
        code,
        args: arguments,
    };
    let answered = change(caller, &weir, &args.topic, create)?;
    if answered != ExitCode::SUCCESS {
        warn(caller, &weir, &args.topic);
    }
    Ok(answered)
}

/// Warns if the topic was not created, because the next put would create it without a program.
fn warn(caller: &Caller, weir: &Weir, name: &str) {
    let info = weir.topic(name).and_then(|topic| topic.try_info());
    if info.is_ok_and(|info| info.is_none_or(|info| !info.live)) {
        let text =
            "was not created; without --no-create, `weir put` would create it without a program";
        note(caller.quiet, &format!("topic {name} {text}"));
    }
}

/// Runs `weir program replace`.
pub(super) fn replace(caller: &Caller, args: &ReplaceArgs) -> anyhow::Result<ExitCode> {
    let (code, arguments) = (&module(&args.file)?, &argument("--args", &args.args)?);
    let expected = args.expect.as_deref().map(hash).transpose()?;
    let weir = place::open(caller, Access::Change)?;
    let replace = Operation::Replace {
        expected,
        code,
        args: arguments,
    };
    change(caller, &weir, &args.topic, replace)
}

/// Runs `weir program quarantine`.
pub(super) fn quarantine(caller: &Caller, name: &str, release: bool) -> anyhow::Result<ExitCode> {
    let weir = place::open(caller, Access::Change)?;
    let stopped = !release;
    change(caller, &weir, name, Operation::Quarantine { stopped })
}

/// Parses the value of an option: bytes in the syntax of scripts.
pub(super) fn argument(option: &str, words: &str) -> anyhow::Result<Vec<u8>> {
    script::parse_at(words).map_err(|at| {
        let bad = words.get(at..).unwrap_or_default();
        let syntax = "write a byte as \\xff, a big-endian number as {u32:5} or {i64:-5}, and nine times x as {x*9}";
        // The shell removes the outer quotes; the inner ones are part of the syntax.
        let quoted = format!("{option} \"'{{\\\"a\\\":1}}'\"");
        Failure::new(ErrorCode::BadOption, format!("cannot use {option} {words}"))
            .because(format!("the syntax is invalid from byte {at} on: {bad}"))
            .advise(format!("quote a text that has braces, as in `{quoted}`; {syntax}"))
            .into()
    })
}

fn hash(text: &str) -> anyhow::Result<CodeHash> {
    let bytes = bytes::from_hex(text).and_then(|bytes| bytes.try_into().ok());
    bytes.map(CodeHash).ok_or_else(|| {
        let what = format!("{text} is not a SHA-256 hash");
        let failure = Failure::new(ErrorCode::BadOption, what);
        failure
            .because("a SHA-256 hash has 64 hexadecimal digits")
            .into()
    })
}
