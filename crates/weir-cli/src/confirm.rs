//! Asks for confirmation before data is removed.

use std::io::{BufRead, IsTerminal, Write};

use weir::ErrorCode;

use crate::report::{Failure, FailureContext, usage};

/// Asks the user to type `name`, the name of the `noun` to remove.
pub(crate) fn confirm(noun: &str, name: &str) -> anyhow::Result<()> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(usage(&format!(
            "give --yes to remove a {noun} without confirmation"
        )));
    }
    let mut terminal = std::io::stderr();
    let mut answer = String::new();
    let read = write!(terminal, "weir: type the name of the {noun} to remove: ")
        .and_then(|()| terminal.flush())
        .and_then(|()| stdin.lock().read_line(&mut answer));
    read.failed(|| "cannot read the answer".to_owned())?;
    if answer.trim() == name {
        return Ok(());
    }
    let failure = Failure::new(ErrorCode::Cancelled, format!("{name} was not removed"));
    Err(failure.because("another name was typed").into())
}
