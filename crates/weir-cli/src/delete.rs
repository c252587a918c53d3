//! `weir delete`: deletes the current value of a key.

use std::process::ExitCode;

use clap::Args;
use weir::{Intention, Operation};

use crate::caller::Caller;
use crate::key::KeyArgs;
use crate::output::Shape;
use crate::place::{self, Access};
use crate::report::{FailureContext, usage};
use crate::verdict;
use crate::write::{self, Conditions};

#[derive(Debug, Args)]
#[command(after_long_help = "\
Appends a DELETE record to the topic; earlier records remain. Deleting a key without a value is
VALID too, unless a condition fails.

Examples:
  weir put orders x --key 7 && weir delete orders --key 7
  weir put orders x --key 8 && weir delete orders --key 8 --if-present")]
pub(crate) struct DeleteArgs {
    /// Topic
    topic: String,
    #[command(flatten)]
    key: KeyArgs,
    /// Exit with 0 even if the verdict is not VALID
    #[arg(long)]
    accept_invalid: bool,
    #[command(flatten)]
    conditions: Conditions,
}

/// Runs `weir delete`.
pub(crate) fn run(caller: &Caller, args: &DeleteArgs) -> anyhow::Result<ExitCode> {
    let Some(out) = caller.style.open(Shape::One, verdict::FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let key = args.key.bytes().filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| usage("give the --key to remove"))?;
    let weir = place::open(caller, Access::Write)?;
    let expect = args.conditions.list();
    let intention = Intention::new(&args.topic, Operation::Delete { key }).expecting(&expect);
    let failed = || format!("cannot delete in {}", args.topic);
    let outcome = write::propose_one(&weir, intention, failed)?;
    let exit = write::answer(out, &weir, &args.topic, &outcome, args.accept_invalid)?;
    weir.close().failed(failed)?;
    Ok(exit)
}
