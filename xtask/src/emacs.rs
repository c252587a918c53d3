//! Tests the Emacs package: compiles and checks its files, and runs its tests in batch mode with
//! the module.
//!
//! Invariants:
//! - Each test counts once.
//! - A machine without Emacs fails.
//! - No file in the user's `~/.emacs.d` is read.

use crate::served::Running;
use crate::setup::lisp_folder;
use crate::steps::build_workspace;
use crate::tree;
use crate::wasm::{ReportVerdict, Verdict};
use anyhow::{Context as _, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The folder of the package.
const FOLDER: &str = "emacs";
/// Seconds after which the tests are killed; they take about 20.
const SECONDS_MAX: u64 = 600;

/// Builds the module, checks the package and runs its tests.
pub(crate) fn run(report_verdict: ReportVerdict<'_>) -> anyhow::Result<()> {
    println!("-- the module of Emacs, and the command");
    build_workspace()?;
    let built = tree::root().join("target/debug");
    let home = tree::root().join("target/emacs");
    if home.exists() {
        fs::remove_dir_all(&home).with_context(|| home.display().to_string())?;
    }
    fs::create_dir_all(&home).with_context(|| home.display().to_string())?;
    let folder = tree::root().join(FOLDER);
    let emacs = || {
        let mut command = Command::new("emacs");
        command
            .args(["-Q", "--batch", "-L", ".", "-L", "test", "-L", "bench"])
            .current_dir(&folder)
            .env("HOME", &home)
            .env("XDG_CONFIG_HOME", home.join("config"))
            .stdin(Stdio::null());
        command
    };
    println!("-- the checks of the Emacs package");
    report_verdict(
        "byte-compile, checkdoc, package-lint",
        checks(emacs(), &folder)?,
    );
    println!("-- the tests of the Emacs package");
    let report = home.join("report");
    let output = fs::File::create(&report).with_context(|| report.display().to_string())?;
    let mut tests = emacs();
    for file in lisp_files(&folder, "test")? {
        if file.ends_with("-tests.el") {
            tests.args(["-l", &file]);
        }
    }
    tests
        .args(["-f", "ert-run-tests-batch-and-exit"])
        .env("WEIR_MODULE", built.join("libweir_module.so"))
        .env("WEIR_BINARY", built.join("weir"))
        .stderr(output);
    let mut tests = Running(tests.spawn().context("cannot start emacs")?);
    let succeeded = tests.ends_well(Duration::from_secs(SECONDS_MAX))?;
    let text = fs::read(&report).context("the tests wrote no report")?;
    let text = String::from_utf8_lossy(&text);
    let (counted, failed) = count(&text, report_verdict);
    if failed > 0 {
        // Only this text contains the output of a failed test.
        println!("{text}");
    }
    ensure!(counted > 0, "no test ran:\n{text}");
    ensure!(
        succeeded == Some(true) || failed > 0,
        "Emacs failed outside of its tests, or did not end in {SECONDS_MAX} s:\n{text}"
    );
    Ok(())
}

/// Compiles and checks every file of the package.
fn checks(mut emacs: Command, folder: &Path) -> anyhow::Result<Verdict> {
    let lint = lisp_folder("package-lint")
        .context("package-lint is missing; install it (Debian: elpa-package-lint)")?;
    emacs.arg("-L").arg(lint).args(["-l", "test/check.el"]);
    for below in ["", "test", "bench"] {
        emacs.args(lisp_files(folder, below)?);
    }
    let status = emacs
        .status()
        .context("cannot start emacs; install Emacs 28.1 or later (Debian: emacs-nox)")?;
    Ok(if status.success() {
        Verdict::Passed
    } else {
        Verdict::Failed("faults, printed above".to_owned())
    })
}

/// The Lisp files in a folder of the package, as sorted paths relative to the package.
fn lisp_files(folder: &Path, below: &str) -> anyhow::Result<Vec<String>> {
    let directory: PathBuf = folder.join(below);
    let mut files = Vec::new();
    for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if tree::has_extension(&name, "el") {
            files.push(Path::new(below).join(name).to_string_lossy().into_owned());
        }
    }
    files.sort();
    Ok(files)
}

/// Counts the results of ERT: tests, and failures.
fn count(text: &str, report_verdict: ReportVerdict<'_>) -> (usize, usize) {
    let (mut counted, mut failed) = (0, 0);
    for line in text.lines().map(str::trim_start) {
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some("passed"), Some(_), Some(name)) => {
                counted += 1;
                report_verdict(name, Verdict::Passed);
            }
            (Some("FAILED"), Some(_), Some(name)) => {
                counted += 1;
                failed += 1;
                report_verdict(name, Verdict::Failed("see target/emacs/report".to_owned()));
            }
            (Some("skipped"), Some(_), Some(name)) => {
                counted += 1;
                report_verdict(name, Verdict::Skipped("by the test itself".to_owned()));
            }
            _ => {}
        }
    }
    (counted, failed)
}
