//! Reports a panic of the command in three lines, and writes a file for a bug report.
//!
//! Invariant: the report contains the message of the panic, its location and the stack, and no
//! value or key of a store.

use std::backtrace::Backtrace;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::path::PathBuf;
use std::process::ExitCode;

use weir::ErrorCode;

use crate::report::{Failure, print_line};

/// Installs the hook that reports panics of all threads.
pub(crate) fn watch() {
    panic::set_hook(Box::new(|info| {
        print_line(&failure(info, report(info)));
    }));
}

/// Runs the command. Converts a panic to the exit code of an internal error.
pub(crate) fn catch(work: impl FnOnce() -> ExitCode) -> ExitCode {
    let code = || ExitCode::from(ErrorCode::Internal.exit_code());
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| code())
}

fn message(info: &PanicHookInfo<'_>) -> String {
    let text = info.payload_as_str().unwrap_or("a panic without a message");
    match info.location() {
        Some(place) => format!("{text} ({}:{})", place.file(), place.line()),
        None => text.to_owned(),
    }
}

fn failure(info: &PanicHookInfo<'_>, file: Option<PathBuf>) -> Failure {
    let failure =
        Failure::new(ErrorCode::Internal, "internal error, a bug in Weir").because(message(info));
    match file {
        Some(file) => failure.advise(format!("report it with the file {}", file.display())),
        None => failure,
    }
}

/// Writes the report. Returns its path.
fn report(info: &PanicHookInfo<'_>) -> Option<PathBuf> {
    let name = format!("weir-crash-{}.txt", std::process::id());
    let path = std::env::temp_dir().join(name);
    let stack = Backtrace::force_capture();
    let version = env!("CARGO_PKG_VERSION");
    let text = format!("weir {version}\n{}\n\n{stack}", message(info));
    let options = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path);
    std::io::Write::write_all(&mut options.ok()?, text.as_bytes()).ok()?;
    Some(path)
}
