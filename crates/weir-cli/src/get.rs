//! `weir get`: reads one record.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Args;
use weir::{ConsequenceOffset, ErrorCode};

use crate::bytes::printable;
use crate::caller::Caller;
use crate::key::KeyArgs;
use crate::output::{Format, Shape};
use crate::place::{self, Access};
use crate::record;
use crate::report::{self, Failure, FailureContext, usage};

#[derive(Debug, Args)]
#[command(after_long_help = "\
Without -o, prints the value byte for byte; on a terminal, a line end follows. With
-o json, table and so on, prints the whole record, and with --columns some of its fields.

Examples:
  weir put orders '{\"id\":7}' --key 7 && weir get orders --key 7
  weir put orders first && weir get orders 2
  weir put orders '{\"id\":7}' --key 7 && weir get orders --key 7 -o json")]
pub(crate) struct GetArgs {
    /// Topic to read
    topic: String,
    /// Offset of the record
    #[arg(required_unless_present_any = ["key", "key_hex", "key64"], conflicts_with = "a_key")]
    offset: Option<u64>,
    #[command(flatten)]
    key: KeyArgs,
}

/// Runs `weir get`.
pub(crate) fn run(caller: &Caller, args: &GetArgs) -> anyhow::Result<ExitCode> {
    let format = caller.style.format;
    let whole =
        caller.style.columns.is_some() || format.is_some_and(|format| format != Format::Raw);
    let out = caller.style.open(Shape::One, record::FIELDS)?;
    let Some(mut out) = out else {
        return Ok(ExitCode::SUCCESS);
    };
    let weir = place::open(caller, Access::Read)?;
    let name = &args.topic;
    let failed = || format!("cannot read {name}");
    let topic = weir.topic(name).failed(failed)?;
    let (found, missing, what) = match (args.offset, args.key.bytes()) {
        (Some(offset), _) => (
            topic.at(ConsequenceOffset(offset)).failed(failed)?,
            ErrorCode::RecordAbsent,
            format!("{name} has no record {offset}"),
        ),
        (None, Some(key)) => (
            topic.get(key).failed(failed)?,
            ErrorCode::KeyAbsent,
            format!("{name} has no key {}", printable(key)),
        ),
        (None, None) => return Err(usage("give an OFFSET or a --key")),
    };
    let found = found.ok_or_else(|| match missing {
        ErrorCode::KeyAbsent => Failure::new(missing, what).advise(format!(
            "list all keys: `weir export {name} --latest --columns key`"
        )),
        _ => Failure::new(missing, what),
    })?;
    if whole {
        out.row(&record::row(name, &found.record()))?;
        out.finish()?;
    } else {
        let mut stdout = std::io::stdout().lock();
        let newline = format.is_none() && stdout.is_terminal();
        let end: &[u8] = if newline { b"\n" } else { b"" };
        let written = stdout
            .write_all(found.value())
            .and_then(|()| stdout.write_all(end));
        report::stdout(written.and_then(|()| stdout.flush()))?;
    }
    Ok(ExitCode::SUCCESS)
}
