//! Asks for confirmation before data is removed.

use std::io::{BufRead, IsTerminal, Write};

use weir::ErrorCode;

use crate::report::{Failure, FailureContext, usage};

/// Asks the user to type `name` again, which names the `noun` to remove.
pub(crate) fn confirm(noun: &str, name: &str) -> anyhow::Result<()> {
    confirm_if(noun, name, || Ok(()))
}

/// As `confirm`. Does not ask if `check` fails.
pub(crate) fn confirm_if(
    noun: &str,
    name: &str,
    check: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(usage(&format!(
            "give --yes to remove the {noun} {name} without confirmation"
        )));
    }
    check()?;
    let mut terminal = std::io::stderr();
    let mut answer = String::new();
    let read = write!(terminal, "weir: to remove the {noun} {name}, type {name}: ")
        .and_then(|()| terminal.flush())
        .and_then(|()| stdin.lock().read_line(&mut answer));
    read.failed(|| "cannot read the answer".to_owned())?;
    let why = match answer.trim() {
        typed if typed == name => return Ok(()),
        "" => "there was no answer",
        _ => "another text was typed",
    };
    let failure = Failure::new(ErrorCode::Cancelled, format!("{name} was not removed"));
    Err(failure.because(why).into())
}
