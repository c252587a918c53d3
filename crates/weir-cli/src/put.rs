//! `weir put`: writes one record, or one for each line of input.

mod lines;

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use weir::{ClientId, Intention, Operation};

use crate::caller::Caller;
use crate::key::{self, KeyArgs};
use crate::output::Shape;
use crate::place::{self, Access};
use crate::report::{FailureContext, usage};
use crate::verdict;
use crate::write::{Conditions, answer, client_id, ensure, propose_one};

#[derive(Debug, Args)]
#[command(after_long_help = "\
Without --key, the record has no key.

If VALUE is `-`, each line of standard input becomes a record. This is also the case without VALUE
if standard input is not a terminal. With --format jsonl, each line is a JSON object with these
members:
  key, key64            the key as text, or in base64
  value, text, value64  the value as JSON, as text, or in base64
  meta, meta64          metadata as text, or in base64
  delete                true to delete the key; then there is no value
  expect                conditions: offset, absent, present, topic_offset, topic_empty
Conditions in options apply to each line, in addition to the conditions of the line.

Examples:
  weir put orders '{\"id\":1}'
  weir put orders '{\"id\":2,\"state\":\"open\"}' --key 2 --if-absent
  weir put blobs --key-hex 00ff 'any bytes'
  printf '{\"key\":\"a\",\"value\":1}\\n{\"key\":\"b\",\"value\":2}\\n' | weir put things - --format jsonl")]
#[allow(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub(crate) struct PutArgs {
    /// Topic to write to; created if it does not exist
    topic: String,
    /// The value, `@FILE` for the content of a file, or `-` for lines of input
    ///
    /// The default is `-` if standard input is not a terminal.
    #[arg(allow_hyphen_values = false)]
    value: Option<OsString>,
    #[command(flatten)]
    key: KeyArgs,
    /// Metadata stored with the record, at most 4 KiB
    #[arg(long, value_name = "TEXT")]
    meta: Option<String>,
    /// Format of each line of input
    #[arg(long, value_enum, default_value_t = InputFormat::Lines)]
    format: InputFormat,
    /// Maximum number of input lines in one call
    #[arg(long, value_name = "N", default_value_t = 1000, hide_short_help = true)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batch: u64,
    /// Session of the write: with --nonce, a repeated call returns the stored verdict
    #[arg(long, value_name = "NAME", requires = "nonce", hide_short_help = true)]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    session: Option<String>,
    /// Number of the write in its session: 1 for the first write, then without gaps
    #[arg(long, value_name = "N", requires = "session", hide_short_help = true)]
    nonce: Option<u64>,
    /// Do not create the topic
    #[arg(long)]
    no_create: bool,
    /// Exit with code 0 even if the verdict is not VALID
    #[arg(long, hide_short_help = true)]
    accept_invalid: bool,
    #[command(flatten)]
    conditions: Conditions,
}

/// Formats of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum InputFormat {
    /// Each line is a value, byte for byte without its end (LF or CR LF)
    Lines,
    /// Each line is a JSON object with key, value and conditions
    Jsonl,
}

/// Runs `weir put`.
pub(crate) fn run(caller: &Caller, args: &PutArgs) -> anyhow::Result<ExitCode> {
    let dash = args.value.as_deref() == Some(OsStr::new("-"));
    let piped = args.value.is_none() && !std::io::stdin().is_terminal();
    if dash || piped {
        return lines::run(caller, args);
    }
    let Some(text) = &args.value else {
        return Err(usage("there is no VALUE to put"));
    };
    let Some(out) = caller.style.open(Shape::One, verdict::FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let value = key::value(text)?;
    let weir = place::open(caller, Access::Write)?;
    let topic = ensure(caller, &weir, &args.topic, args.no_create)?;
    let expect = args.conditions.list();
    let key = args.key.bytes().unwrap_or_default();
    let operation = Operation::Put { key, value: &value };
    let mut intention = Intention::new(&args.topic, operation).expecting(&expect);
    intention.meta = args.meta.as_deref().unwrap_or_default().as_bytes();
    if let Some((client, nonce)) = session(args) {
        intention = intention.under(client, nonce);
    }
    let failed = || format!("cannot put into {}", topic.name());
    let outcome = propose_one(&weir, intention, failed)?;
    let exit = answer(out, &weir, &args.topic, &outcome, args.accept_invalid)?;
    weir.close().failed(failed)?;
    Ok(exit)
}

/// The client id and nonce of `--session` and `--nonce`.
fn session(args: &PutArgs) -> Option<(ClientId, u64)> {
    let name = args.session.as_ref()?;
    Some((client_id(&["session", name]), args.nonce?))
}
