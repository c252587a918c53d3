//! Opening the store that a command works on.
//!
//! What must never happen here: a new store where somebody wanted to read, or
//! a weaker durability than asked for without a word.

use std::path::Path;
use std::time::{Duration, Instant};

use weir::{Durability, ErrorCode, OpenOptions, StoreError, Weir, WeirError};

use crate::cli::Caller;
use crate::report::{Failure, note};

/// What the lock file calls this program.
pub(crate) const PROGRAM: &str = "weir";
/// How often a held lock is tried again.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// What the command will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read only: the store must be there.
    Read,
    /// Write: the store is made if it is not there.
    Write,
}

/// Opens the store of the call.
pub(crate) fn open(caller: &Caller, access: Access) -> anyhow::Result<Weir> {
    open_as(caller, access, PROGRAM, caller.lock_wait)
}

/// The same under a name of its own and with a wait while somebody else has it.
pub(crate) fn open_as(
    caller: &Caller,
    access: Access,
    program: &str,
    wait: Duration,
) -> anyhow::Result<Weir> {
    let at = directory(caller)?;
    let weir = open_at(caller, Path::new(at), access, program, wait)?;
    let report = weir.store().report();
    if report.created {
        note(caller.quiet, &format!("made a new store in {at}"));
    }
    if caller.verbose {
        let text = format!(
            "opened {at} ({}): {} log entries applied again, {} files derived again",
            caller.settings.at.origin,
            report.replayed_entries,
            report.set_aside.len(),
        );
        note(false, &text);
    }
    if access == Access::Write {
        warn(caller);
    }
    Ok(weir)
}

/// Opens the store in a directory; waits a little when another process has it.
pub(crate) fn open_at(
    caller: &Caller,
    at: &Path,
    access: Access,
    program: &str,
    wait: Duration,
) -> anyhow::Result<Weir> {
    let options = OpenOptions {
        create: access == Access::Write,
        durability: caller.settings.durability.value,
        limits: caller.limits,
        program: program.to_owned(),
        ..OpenOptions::default()
    };
    if access == Access::Read && !is_store(at) {
        let missing = StoreError::Missing { what: "store" };
        return Err(cannot_open(caller, at, &missing.into()));
    }
    let deadline = Instant::now() + wait;
    loop {
        match Weir::open_with(at, &options) {
            Ok(weir) => return Ok(weir),
            Err(WeirError::Store(StoreError::Locked { .. })) if Instant::now() < deadline => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(error) => return Err(cannot_open(caller, at, &error)),
        }
    }
}

/// Whether there is a store, or what is left of one. An open would leave a
/// lock file in any directory.
fn is_store(at: &Path) -> bool {
    let there = |name: &str| at.join(name).try_exists();
    // What cannot be looked at is the open's to complain about.
    there("weir.id").unwrap_or(true) || there("log").unwrap_or(true)
}

fn cannot_open(caller: &Caller, at: &Path, error: &WeirError) -> anyhow::Error {
    let what = format!("cannot open the store in {}", at.display());
    let failure = Failure::weir(what, error);
    if caller.tool { failure.tool() } else { failure }.into()
}

/// The directory of the call.
pub(crate) fn directory(caller: &Caller) -> anyhow::Result<&str> {
    let at = caller.settings.at.value.as_str();
    let Some((scheme, _)) = at.split_once("://") else {
        return Ok(at);
    };
    let code = match scheme {
        "weir" | "http" | "https" => ErrorCode::Unsupported,
        _ => ErrorCode::BadAddress,
    };
    let failure = Failure::new(code, format!("cannot work at {at}"));
    Err(match code {
        ErrorCode::Unsupported => failure
            .because("this version works on directories only")
            .advise("give a directory: `--at DIR`"),
        _ => failure.because(format!("{scheme} is no kind of address that is known")),
    }
    .into())
}

fn warn(caller: &Caller) {
    let text = match caller.settings.durability.value {
        Durability::Interval(time) => format!(
            "durability interval: a power cut can lose the last {} ms",
            time.as_millis()
        ),
        Durability::Memory => {
            "durability memory: a power cut can lose everything of this run".to_owned()
        }
        _ => return,
    };
    note(caller.quiet, &text);
}
