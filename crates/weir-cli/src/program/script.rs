//! `weir program test`: runs a script and compares.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use weir::program::WasmtimeHost;
use weir::program::script::{self, Manner};
use weir::{ErrorCode, ProgramHost};

use super::read;
use crate::cli::Caller;
use crate::report::{self, Because, Failure};

/// Carries out `weir program test`.
pub(super) fn run(
    caller: &Caller,
    file: &Path,
    path: &Path,
    write: bool,
) -> anyhow::Result<ExitCode> {
    let code = read(file)?;
    let text = String::from_utf8_lossy(&read(path)?).into_owned();
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let program = |name: &str| {
        if file.file_stem().is_some_and(|stem| stem == name) {
            return Some(code.clone());
        }
        std::fs::read(file.with_file_name(format!("{name}.wasm"))).ok()
    };
    let ran = script::run(&text, &host, Manner::default(), &program);
    let (blocks, _) = ran.map_err(|error| {
        let what = format!("cannot run {}", path.display());
        Failure::new(ErrorCode::BadRequest, what).because(error)
    })?;
    if write {
        let text = script::rewritten(&text, &blocks);
        std::fs::write(path, text).failed(|| format!("cannot write {}", path.display()))?;
        report::note(caller.quiet, &format!("wrote {} blocks", blocks.len()));
        return Ok(ExitCode::SUCCESS);
    }
    let wrong = blocks.iter().filter(|block| block.actual != block.expected);
    let mut failed = 0;
    for block in wrong {
        failed += 1;
        report::note(false, &format!("{} line {}:", path.display(), block.line));
        for line in difference(&block.expected, &block.actual) {
            report::note(false, &line);
        }
    }
    if failed > 0 {
        let count = blocks.len();
        report::note(false, &format!("{failed} of {count} blocks went otherwise"));
        return Ok(ExitCode::from(crate::verdict::NOT_VALID));
    }
    report::note(
        caller.quiet,
        &format!("{} blocks as expected", blocks.len()),
    );
    Ok(ExitCode::SUCCESS)
}

/// Lines that differ: expected ones with `-`, those that came with `+`.
fn difference(expected: &str, actual: &str) -> Vec<String> {
    let (mut old, mut new) = (expected.lines(), actual.lines());
    let mut out = Vec::new();
    loop {
        match (old.next(), new.next()) {
            (None, None) => return out,
            (Some(old), Some(new)) if old == new => out.push(format!("    {old}")),
            (old, new) => {
                out.extend(old.map(|line| format!("  - {line}")));
                out.extend(new.map(|line| format!("  + {line}")));
            }
        }
    }
}
