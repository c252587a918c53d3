//! Tests the Python package as a user installs it. The wheel is built, installed into an empty
//! environment, and tested there.
//!
//! The tools that build and test the package are in `target/tools`, pinned by
//! `bindings/python/requirements.txt`.
//!
//! Invariants:
//! - The wheel is built in the dev profile, from the lock file.
//! - Each test counts once, and a run without tests never counts as passed.
//! - Tests never import the package from the source tree.

use crate::readme;
use crate::served::Running;
use crate::steps::FEATURES;
use crate::tree;
use crate::wasm::{self, ReportVerdict, Verdict, fetch_result, finish, tool_folder};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The folder of the package.
const FOLDER: &str = "bindings/python";
/// Seconds after which the tests are killed; they take about 20.
const SECONDS_MAX: u64 = 600;
/// Minimum version of Python, as its second number.
const MINOR_MIN: u64 = 11;
/// Maximum characters of a failure message.
const MESSAGE_CHARS: usize = 300;

/// Builds, installs and tests the package.
pub(crate) fn run(report_verdict: ReportVerdict<'_>) -> anyhow::Result<()> {
    let target = tree::root().join("target");
    let tools = match tool(&target) {
        Ok(tools) => tools,
        Err(why) => {
            report_verdict("the package", Verdict::Skipped(why));
            return Ok(());
        }
    };
    let directory = target.join("python");
    if directory.exists() {
        fs::remove_dir_all(&directory).with_context(|| directory.display().to_string())?;
    }
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    println!("-- the wheel of the Python package");
    let wheel = wheel(&tools, &directory)?;
    let python = installed(&wheel, &directory)?;
    let weir = wasm::weir()?;
    println!("-- the tests of the Python package");
    let report = directory.join("report.jsonl");
    let mut tests = Command::new(&python);
    tests
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"])
        .args(["--tb=short", "tests"])
        .current_dir(tree::root().join(FOLDER))
        .env("PYTHONPATH", &tools)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("WEIR_BINARY", weir)
        .env("WEIR_CLUSTER", std::env::current_exe()?)
        .env("WEIR_REPORT", &report)
        .stdin(Stdio::null());
    let mut tests = Running(tests.spawn().context("cannot start the tests")?);
    let succeeded = tests.ends_well(Duration::from_secs(SECONDS_MAX))?;
    ensure!(succeeded.is_some(), "no end after {SECONDS_MAX} s");
    let text = fs::read_to_string(&report).context("the tests wrote no report")?;
    let failed = read(&text, report_verdict)?;
    ensure!(
        succeeded == Some(true) || failed > 0,
        "pytest failed outside of its tests"
    );
    report_verdict(
        "README: install, quick start",
        quick_start(&tools, &directory)?,
    );
    Ok(())
}

/// Runs the commands on the page of the package, with an unoptimised module and without the
/// network.
fn quick_start(tools: &Path, directory: &Path) -> anyhow::Result<Verdict> {
    let fresh = directory.join("fresh");
    let mut venv = Command::new("python3");
    finish(venv.args(["-m", "venv"]).arg(&fresh)).map_err(anyhow::Error::msg)?;
    // Only the build uses the tools; the program must not see them.
    let maturin = format!(
        "PYTHONPATH={} {}",
        tools.display(),
        tools.join("bin/maturin").display()
    );
    let build = "maturin build --release --manifest-path bindings/python/Cargo.toml --out dist";
    let quick = format!(
        "{maturin} {} --profile dev --quiet --locked {}",
        build
            .trim_start_matches("maturin ")
            .replace("--release ", ""),
        FEATURES.join(" ")
    );
    let replacements = [
        ("pip install maturin", "true"),
        (build, &quick),
        (
            "pip install dist/weir-*.whl",
            "pip install --quiet --no-index --disable-pip-version-check dist/weir-*.whl",
        ),
    ];
    let path = std::env::var("PATH").unwrap_or_default();
    readme::run(
        "python",
        &directory.join("readme"),
        &replacements,
        ("python", "first.py", "python first.py"),
        || {
            let mut shell = Command::new("sh");
            shell.env("PATH", format!("{}:{path}", fresh.join("bin").display()));
            shell.env("VIRTUAL_ENV", &fresh);
            shell
        },
    )
}

/// Reports each test of a report, one line each. Returns the number of failures.
pub(crate) fn read(report: &str, report_verdict: ReportVerdict<'_>) -> anyhow::Result<usize> {
    let (mut count, mut failed) = (0, 0);
    for line in report.lines() {
        let line: Value = serde_json::from_str(line).context("a line of the report")?;
        let why: String = line["why"]
            .as_str()
            .unwrap_or("")
            .chars()
            .take(MESSAGE_CHARS)
            .collect();
        let verdict = match line["outcome"].as_str() {
            Some("passed") => Verdict::Passed,
            Some("skipped") => Verdict::Skipped(why),
            _ => {
                failed += 1;
                Verdict::Failed(why)
            }
        };
        count += 1;
        report_verdict(line["name"].as_str().unwrap_or("?"), verdict);
    }
    ensure!(count > 0, "the report has no test");
    Ok(failed)
}

/// The folder of the tools, which are fetched if they are missing.
fn tool(target: &Path) -> Result<PathBuf, String> {
    let version =
        finish(Command::new("python3").args(["-c", "import sys; print(sys.version_info[1])"]));
    let version = String::from_utf8_lossy(&version?).trim().to_owned();
    if version.parse::<u64>().is_ok_and(|minor| minor < MINOR_MIN) {
        return Err(format!(
            "python3 is 3.{version}; the package needs 3.{MINOR_MIN}"
        ));
    }
    let list = tree::root().join(FOLDER).join("requirements.txt");
    let folder = target.join("tools/python");
    tool_folder(&folder, &list, |directory| {
        println!("python: fetching maturin, pytest and mypy (70 MiB unpacked)");
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps"]);
        pip.args(["--require-hashes", "--only-binary", ":all:"]);
        pip.args(["--retries", "1", "--timeout", "30", "--target"]);
        pip.arg(directory).arg("--requirement").arg(&list);
        fetch_result(finish(&mut pip), "ERROR:")
    })?;
    Ok(folder)
}

/// Builds the wheel.
fn wheel(tools: &Path, directory: &Path) -> anyhow::Result<PathBuf> {
    let mut maturin = Command::new(tools.join("bin/maturin"));
    maturin
        .args(["build", "--quiet", "--locked", "--profile", "dev"])
        .args(FEATURES)
        .arg("--out")
        .arg(directory)
        .arg("--manifest-path")
        .arg(tree::root().join(FOLDER).join("Cargo.toml"))
        .args(["--interpreter", "python3"])
        .current_dir(tree::root())
        .env("PYTHONPATH", tools);
    finish(&mut maturin).map_err(anyhow::Error::msg)?;
    let found = fs::read_dir(directory)?.find_map(|entry| {
        let path = entry.ok()?.path();
        (path.extension()? == "whl").then_some(path)
    });
    found.context("maturin built no wheel")
}

/// Creates an empty environment with the wheel. Returns its interpreter.
fn installed(wheel: &Path, directory: &Path) -> anyhow::Result<PathBuf> {
    let environment = directory.join("environment");
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "--without-pip"]).arg(&environment);
    finish(&mut venv).map_err(anyhow::Error::msg)?;
    let python = environment.join("bin/python");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "--python"]).arg(&python);
    pip.args(["install", "--quiet", "--no-deps", "--no-index"])
        .arg(wheel);
    finish(&mut pip).map_err(anyhow::Error::msg)?;
    Ok(python)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::read;
    use crate::wasm::Verdict;

    #[test]
    fn each_line_is_a_test_and_an_empty_report_fails() {
        let report = concat!(
            "{\"name\":\"a\",\"outcome\":\"passed\",\"why\":\"\"}\n",
            "{\"name\":\"b\",\"outcome\":\"failed\",\"why\":\"w\"}\n",
            "{\"name\":\"c\",\"outcome\":\"skipped\",\"why\":\"s\"}\n",
        );
        let mut reported = Vec::new();
        let failed = read(report, &mut |name, verdict| {
            reported.push((name.to_owned(), verdict));
        });
        assert_eq!(failed.unwrap(), 1);
        let expected = [
            ("a", Verdict::Passed),
            ("b", Verdict::Failed("w".to_owned())),
            ("c", Verdict::Skipped("s".to_owned())),
        ];
        let expected = expected.map(|(name, verdict)| (name.to_owned(), verdict));
        assert_eq!(reported, expected);
        assert!(read("", &mut |_, _| {}).is_err());
        assert!(read("no line", &mut |_, _| {}).is_err());
    }
}
