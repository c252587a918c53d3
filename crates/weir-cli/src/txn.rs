//! `weir txn`: several writes to one topic, all or none.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use weir::{ErrorCode, Intention, Operation, limits};

use crate::caller::Caller;
use crate::item::{Item, Items, bad_text};
use crate::output::Shape;
use crate::place::{self, Access};
use crate::report::{Failure, FailureContext};
use crate::verdict;
use crate::write::{self, ensure};

/// Maximum bytes of a description: the largest transaction, with room for JSON.
const INPUT_BYTES_MAX: u64 = 2 * limits::ITEM_BYTES_MAX as u64;

/// What an error reports about the other lines.
const NOTHING: &str = "nothing was written";

#[derive(Debug, Args)]
#[command(after_long_help = "\
Each line of input is a JSON object: one write, or conditions for one key. Its members are:
  key, key64            the key as text, or in base64
  value, text, value64  the value as JSON, as text, or in base64
  meta, meta64          metadata as text, or in base64
  delete                true to delete the key; then there is no value
  expect                conditions: offset, absent, present (of the key),
                        topic_offset, topic_empty (of the topic)
If a condition does not hold, or the topic rejects a write, nothing is written.

Examples:
  printf '{\"key\":\"a\",\"value\":1}\\n{\"key\":\"b\",\"value\":2}\\n' | weir txn accounts
  printf '{\"key\":\"c\",\"value\":3,\"expect\":{\"absent\":true}}\\n' | weir txn accounts -")]
pub(crate) struct TxnArgs {
    /// Topic to write to; created if it does not exist
    topic: String,
    /// File with one write per line; `-` is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Do not create the topic
    #[arg(long)]
    no_create: bool,
    /// Exit with code 0 even if the verdict is not VALID
    #[arg(long)]
    accept_invalid: bool,
}

/// Runs `weir txn`.
pub(crate) fn run(caller: &Caller, args: &TxnArgs) -> anyhow::Result<ExitCode> {
    let Some(out) = caller.style.open(Shape::One, verdict::FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let items = read(&args.file)?;
    let steps = items.steps();
    let expect = items.conditions(false);
    let weir = place::open(caller, Access::Write)?;
    ensure(caller, &weir, &args.topic, args.no_create)?;
    let operation = Operation::Txn { ops: &steps };
    let intention = Intention::new(&args.topic, operation).expecting(&expect);
    let failed = || format!("cannot execute the transaction on {}", args.topic);
    let outcome = write::propose_one(&weir, intention, failed)?;
    let exit = write::answer(out, &weir, &args.topic, &outcome, args.accept_invalid)?;
    weir.close().failed(failed)?;
    Ok(exit)
}

fn read(path: &std::path::Path) -> anyhow::Result<Items> {
    let failed = || format!("cannot read {}", path.display());
    let mut text = Vec::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin()
            .take(INPUT_BYTES_MAX + 1)
            .read_to_end(&mut text)
    } else {
        let file = std::fs::File::open(path).failed(failed)?;
        file.take(INPUT_BYTES_MAX + 1).read_to_end(&mut text)
    };
    if read.failed(failed)? as u64 > INPUT_BYTES_MAX {
        let why = format!("it has more than {INPUT_BYTES_MAX} bytes");
        return Err(Failure::new(ErrorCode::TooLarge, failed())
            .because(why)
            .into());
    }
    let mut items = Items::default();
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let item = Item::parse(line).map_err(|wrong| bad_text(number, &wrong, NOTHING))?;
        items
            .item(&item)
            .map_err(|why| bad_text(number, &why.into(), NOTHING))?;
    }
    Ok(items)
}
