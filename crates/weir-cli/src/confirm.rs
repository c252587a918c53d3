//! Asks for confirmation before data is removed.

use std::io::{BufRead, IsTerminal, Write};

use weir::ErrorCode;

use crate::report::{Failure, FailureContext, usage};

/// Asks the user to type `name` again, which names the `noun` to remove.
pub(crate) fn confirm(noun: &str, name: &str) -> anyhow::Result<()> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(usage(&format!(
            "give --yes to remove the {noun} {name} without confirmation"
        )));
    }
    let mut terminal = std::io::stderr();
    let mut answer = String::new();
    let read = write!(terminal, "weir: to remove the {noun} {name}, type {name}: ")
        .and_then(|()| terminal.flush())
        .and_then(|()| stdin.lock().read_line(&mut answer));
    read.failed(|| "cannot read the answer".to_owned())?;
    if answer.trim() == name {
        return Ok(());
    }
    let failure = Failure::new(ErrorCode::Cancelled, format!("{name} was not removed"));
    Err(failure.because("another text was typed").into())
}
