//! `weir program check`: checks whether a module may run, and what it needs.

use std::path::Path;
use std::process::ExitCode;

use weir::program::{Refusal, WasmtimeHost};
use weir::{ErrorCode, ProgramHost, StoreError};

use super::module;
use crate::caller::Caller;
use crate::output::{Cell, Field, Shape, field};
use crate::report::{Failure, note};

pub(super) const CHECKED: &[Field] = &[
    field("bytes", "bytes", "size of the module"),
    field("functions", "count", "functions with a body"),
    field(
        "memory",
        "bytes",
        "maximum size of the memory of the module",
    ),
    field(
        "init",
        "bool",
        "whether the module has a function that runs when a topic is created",
    ),
    field(
        "upgrade",
        "bool",
        "whether the module has a function that runs when it replaces a program",
    ),
    field(
        "state_version",
        "number",
        "version of the state, from `weir_state`; 0 without this function",
    ),
    field(
        "imports",
        "text",
        "functions of the store that the module imports",
    ),
    field("sha256", "text", "SHA-256 of the module"),
];

/// Runs `weir program check`.
pub(super) fn run(caller: &Caller, file: &Path) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, CHECKED)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let code = module(file)?;
    let report = weir::program::inspect(&code).map_err(|why| failure(file, Refusal::Bad(why)))?;
    // The remaining rules: the module compiles, and exports a supported ABI version.
    let host = WasmtimeHost::default();
    let largest = weir::program::largest_setup();
    host.admit(&code, &largest)
        .map_err(|refusal| failure(file, refusal))?;
    out.row(&[
        Cell::Size(code.len() as u64),
        Cell::Count(u64::from(report.functions)),
        Cell::Size(report.memory_bytes_max),
        Cell::Flag(report.facts.has_init),
        Cell::Flag(report.facts.has_upgrade),
        Cell::signed(report.facts.state_version.into()),
        Cell::Text(report.imports.join(" ").into()),
        Cell::Text(host.hash(&code).to_string().into()),
    ])?;
    out.finish()?;
    if let Err(why) = report.fits(&weir::program::default_setup()) {
        note(caller.quiet, &format!("deploy it with an option: {why}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The error for a module that the host does not admit.
fn failure(file: &Path, refusal: Refusal) -> Failure {
    match refusal {
        Refusal::Bad(why) => {
            let what = format!("{} is not a program", file.display());
            let failure = Failure::new(ErrorCode::BadProgram, what).because(why);
            failure.advise("correct that in the source or the build, and build the module again")
        }
        Refusal::Unable(why) => {
            let what = format!("cannot check {}", file.display());
            let failure = Failure::store(what, &StoreError::ProgramUnable { why });
            failure.advise("free memory of this computer, or raise the limits of this process")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_the_computer_is_not_reported_as_a_fault_of_the_module() {
        let code = |refusal| failure(Path::new("a.wasm"), refusal).code;
        let why = || "no memory".to_owned();
        assert_eq!(code(Refusal::Unable(why())), ErrorCode::EngineMissing);
        assert_eq!(code(Refusal::Bad(why())), ErrorCode::BadProgram);
    }
}
