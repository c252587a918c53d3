//! Builds the programs of topics from source, in every language, and compares each one with the
//! module in the repository. Also builds and runs each project of `weir program new`, and runs the
//! guide.
//!
//! Invariants:
//! - Modules are compared byte by byte.
//! - A language without its compiler counts as skipped, with the reason, and never as passed.
//! - Only `--write` changes `programs/prebuilt`.
//! - No outcome depends on the directory of the clone.

mod compilers;
mod guide;
mod language;
mod project;

use crate::steps::build_workspace;
use crate::tree;
use anyhow::Context as _;
use compilers::Compilers;
pub(crate) use compilers::{fetch_result, tool_folder};
use language::LANGUAGES;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder of the modules in the repository.
const PREBUILT: &str = "programs/prebuilt";

/// The result of a program or project.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The result is as expected.
    Passed,
    /// The reason of the failure.
    Failed(String),
    /// The reason why it was not run.
    Skipped(String),
}

/// Receives the name of a program or project, and its verdict.
pub(crate) type ReportVerdict<'a> = &'a mut dyn FnMut(&str, Verdict);

/// Runs the command `wasm`, and prints each verdict. Returns `false` if one failed.
pub(crate) fn wasm(write: bool) -> anyhow::Result<bool> {
    let mut succeeded = true;
    all(write, &mut |what, verdict| {
        let line = match verdict {
            Verdict::Passed => format!("{what}: passed"),
            Verdict::Skipped(why) => format!("{what}: skipped, {why}"),
            Verdict::Failed(why) => {
                succeeded = false;
                format!("{what}: FAILED, {why}")
            }
        };
        println!("{line}");
    })?;
    Ok(succeeded)
}

/// Builds everything, and compares the modules. With `write`, replaces them.
pub(crate) fn all(write: bool, report_verdict: ReportVerdict<'_>) -> anyhow::Result<()> {
    let compilers = Compilers::new(tree::root().join("target"));
    let weir = weir()?;
    let projects = project::Projects::new(&weir)?;
    for language in LANGUAGES {
        println!("-- programs in {}", language.name);
        if let Err(why) = (language.get)(&compilers) {
            report_verdict(
                &format!("programs in {}", language.name),
                Verdict::Skipped(why),
            );
            continue;
        }
        if let Some(lint) = language.lint {
            let verdict = lint(&compilers).map_or_else(Verdict::Failed, |()| Verdict::Passed);
            report_verdict(&format!("form and lints in {}", language.name), verdict);
        }
        let built = language.build(&compilers)?;
        for (program, built) in built {
            let module = format!("{program}{}.wasm", language.suffix);
            let verdict = match built {
                Ok(path) => compare(&path, &tree::root().join(PREBUILT).join(&module), write)?,
                Err(why) => Verdict::Failed(why),
            };
            report_verdict(&module, verdict);
        }
        let verdict = projects.verdict(language, &compilers);
        report_verdict(&format!("a new project in {}", language.name), verdict);
        if language.suffix.is_empty() {
            report_verdict("the guide to programs", projects.guide());
        }
    }
    if write { write_hashes() } else { Ok(()) }
}

/// Compares a module with the one in the repository. With `write`, replaces it.
fn compare(built: &Path, stored: &Path, write: bool) -> anyhow::Result<Verdict> {
    let bytes = std::fs::read(built).with_context(|| built.display().to_string())?;
    if write {
        std::fs::write(stored, bytes).with_context(|| stored.display().to_string())?;
        return Ok(Verdict::Passed);
    }
    let update = "`cargo xtask wasm --write` updates it";
    Ok(match std::fs::read(stored) {
        Ok(other) if other == bytes => Verdict::Passed,
        Ok(other) => Verdict::Failed(format!(
            "the source gives {} bytes, {PREBUILT} has {} other ones; {update}",
            bytes.len(),
            other.len()
        )),
        Err(error) => Verdict::Failed(format!("{PREBUILT}: {error}; {update}")),
    })
}

/// Writes the list of hashes, computed by coreutils.
fn write_hashes() -> anyhow::Result<()> {
    let directory = tree::root().join(PREBUILT);
    let mut names: Vec<String> = tree::files()?
        .into_iter()
        .filter_map(|name| Some(name.strip_prefix(PREBUILT)?.strip_prefix('/')?.to_owned()))
        .filter(|name| tree::has_extension(name, "wasm"))
        .collect();
    names.sort();
    let mut command = Command::new("sha256sum");
    let output = finish(command.arg("--").args(names).current_dir(&directory));
    let output = output.map_err(anyhow::Error::msg)?;
    std::fs::write(directory.join("SHA256SUMS"), output).context("SHA256SUMS")
}

/// Builds the command `weir` beside this program. Returns its path.
pub(crate) fn weir() -> anyhow::Result<PathBuf> {
    build_workspace()?;
    let here = std::env::current_exe().context("the path of this command")?;
    Ok(here.with_file_name("weir"))
}

/// Runs a command to its end. Returns its output; the error has its name and the end of its output.
pub(crate) fn finish(command: &mut Command) -> Result<Vec<u8>, String> {
    let shown = crate::steps::shown(command);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let mut text = output.stdout;
    text.extend(output.stderr);
    let text = String::from_utf8_lossy(&text);
    let last: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let last = last
        .get(last.len().saturating_sub(LINES_MAX)..)
        .unwrap_or_default();
    Err(format!("`{shown}`: {}", last.join(" | ")))
}

/// Maximum lines of the output of a failed command.
const LINES_MAX: usize = 12;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::{Verdict, compare, finish};
    use std::process::Command;

    #[test]
    fn a_module_is_compared_byte_by_byte_and_stored_on_request() {
        let directory = std::env::temp_dir().join(format!("weir-xtask-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (built, stored) = (directory.join("built"), directory.join("stored"));
        std::fs::write(&built, b"one").unwrap();
        let failed = |verdict| matches!(verdict, Verdict::Failed(_));
        assert!(
            failed(compare(&built, &stored, false).unwrap()),
            "nothing is there"
        );
        assert_eq!(compare(&built, &stored, true).unwrap(), Verdict::Passed);
        assert_eq!(compare(&built, &stored, false).unwrap(), Verdict::Passed);
        std::fs::write(&built, b"two").unwrap();
        assert!(
            failed(compare(&built, &stored, false).unwrap()),
            "other bytes"
        );
        assert_eq!(std::fs::read(&stored).unwrap(), b"one", "only when asked");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_failed_command_returns_its_output() {
        let mut shell = Command::new("sh");
        let why = finish(shell.args(["-c", "echo out; echo why >&2; exit 3"])).unwrap_err();
        assert!(why.contains("out | why"), "{why}");
        assert!(finish(&mut Command::new("no-such-command-here")).is_err());
    }
}
