//! The Emacs package on a real Emacs: its files are compiled and checked, and its tests run in batch
//! with the module.
//!
//! Invariants: each test counts once; a machine without Emacs fails. It is not part of `make test` yet.

use crate::served::Running;
use crate::steps::{cargo, succeed};
use crate::tree;
use crate::wasm::{Tell, Verdict};
use anyhow::{Context as _, ensure};
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Where the package is.
const FOLDER: &str = "emacs";
/// Seconds after which the tests are ended; they take about 5.
const SECONDS_MAX: u64 = 300;

/// Builds the module, checks the package and runs its tests.
pub(crate) fn run(tell: Tell<'_>) -> anyhow::Result<()> {
    println!("-- the module of Emacs");
    // Of the workspace, so that nothing is built again with other features.
    succeed(&mut cargo(&[
        "build",
        "--quiet",
        "--locked",
        "--workspace",
        "--exclude",
        "fuzz",
        "--lib",
    ]))?;
    let folder = tree::root().join(FOLDER);
    let emacs = |arguments: &[&str]| {
        let mut command = Command::new("emacs");
        command
            .args(["-Q", "--batch", "-L", "."])
            .args(arguments)
            .current_dir(&folder)
            .stdin(Stdio::null());
        command
    };
    println!("-- the checks of the Emacs package");
    let mut checks = emacs(&["-l", "test/check.el", "weir.el", "test/weir-tests.el"]);
    let fine = checks
        .status()
        .context("cannot start emacs; install Emacs 28.1 or later (Debian: emacs-nox)")?;
    let checked = if fine.success() {
        Verdict::Passed
    } else {
        Verdict::Failed("warnings, printed above".to_owned())
    };
    tell("byte-compile and checkdoc", checked);
    println!("-- the tests of the Emacs package");
    let module = tree::root().join("target/debug/libweir_module.so");
    let report = tree::root().join("target/emacs.report");
    let output = fs::File::create(&report).with_context(|| report.display().to_string())?;
    let mut tests = emacs(&[
        "-l",
        "test/weir-tests.el",
        "-f",
        "ert-run-tests-batch-and-exit",
    ]);
    tests.env("WEIR_MODULE", module).stderr(output);
    let mut tests = Running(tests.spawn().context("cannot start emacs")?);
    let fine = tests.ends_well(Duration::from_secs(SECONDS_MAX))?;
    let text = fs::read_to_string(&report).context("the tests wrote no report")?;
    let mut counted = 0;
    let mut failed = 0;
    for line in text.lines().map(str::trim_start) {
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some("passed"), Some(_), Some(name)) => {
                counted += 1;
                tell(name, Verdict::Passed);
            }
            (Some("FAILED"), Some(_), Some(name)) => {
                counted += 1;
                failed += 1;
                tell(name, Verdict::Failed("see target/emacs.report".to_owned()));
            }
            _ => {}
        }
    }
    ensure!(counted > 0, "no test ran:\n{text}");
    ensure!(
        fine == Some(true) || failed > 0,
        "Emacs failed outside of its tests:\n{text}"
    );
    Ok(())
}
