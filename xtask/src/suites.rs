//! Running test suites and counting what they report.
//!
//! Invariants: the last line is `N passed, N failed, N skipped` over all suites; a test binary that
//! ended without a report, and a command that failed without naming a failed test, count as one
//! failure each, so that nothing can go wrong without being counted.

use crate::c;
use crate::capi;
use crate::durable_streams;
use crate::go;
use crate::java;
use crate::json_suites;
use crate::node;
use crate::python;
use crate::schemathesis;
use crate::steps::{cargo, shown};
use crate::tree;
use crate::wasm::{self, Verdict};
use anyhow::Context as _;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

/// Counts of one suite.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

/// What all suites reported.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    suites: Vec<(String, Counts)>,
    failures: Vec<String>,
    skips: Vec<String>,
}

impl Summary {
    /// Counts one step of the gate in the suite `check`.
    pub(crate) fn step(&mut self, name: &str, passed: bool) {
        let counts = self.suite("check");
        if passed {
            counts.passed += 1;
        } else {
            counts.failed += 1;
            self.failures.push(format!("check: {name}"));
        }
    }

    /// Prints failures, skips, one line a suite and the total; true if nothing failed.
    pub(crate) fn close(&self) -> bool {
        println!();
        for failure in &self.failures {
            println!("FAILED  {failure}");
        }
        for skip in &self.skips {
            println!("skipped {skip}");
        }
        let width = self
            .suites
            .iter()
            .map(|(name, _)| name.len())
            .max()
            .unwrap_or(0);
        let mut total = Counts::default();
        for (name, counts) in &self.suites {
            println!("{name:width$}  {}", line(counts));
            total.passed += counts.passed;
            total.failed += counts.failed;
            total.skipped += counts.skipped;
        }
        println!("{}", line(&total));
        total.failed == 0
    }

    fn suite(&mut self, name: &str) -> &mut Counts {
        let index = self
            .suites
            .iter()
            .position(|(other, _)| other == name)
            .unwrap_or_else(|| {
                self.suites.push((name.to_owned(), Counts::default()));
                self.suites.len() - 1
            });
        &mut self.suites[index].1
    }

    fn verdict(&mut self, suite: &str, what: &str, verdict: Verdict) {
        match verdict {
            Verdict::Passed => self.suite(suite).passed += 1,
            Verdict::Failed(why) => self.fail(suite, &format!("{what}: {why}")),
            Verdict::Skipped(why) => {
                self.suite(suite).skipped += 1;
                self.skips.push(format!("{suite}: {what}: {why}"));
            }
        }
    }

    fn fail(&mut self, suite: &str, what: &str) {
        self.suite(suite).failed += 1;
        self.failures.push(format!("{suite}: {what}"));
    }
}

/// Programs of topics, built from source in each language.
pub(crate) fn programs(summary: &mut Summary) {
    let suite = "programs from source";
    let result = wasm::all(false, &mut |what, verdict| {
        summary.verdict(suite, what, verdict);
    });
    if let Err(error) = result {
        summary.fail(suite, &format!("{error:#}"));
    }
}

/// The HTTP edge against its description.
pub(crate) fn api(summary: &mut Summary) {
    let suite = "HTTP edge by its description";
    match schemathesis::verdict() {
        Ok(verdict) => summary.verdict(suite, "schemathesis", verdict),
        Err(error) => summary.fail(suite, &format!("{error:#}")),
    }
}

/// The surface `/ds` of the HTTP edge.
pub(crate) fn durable_streams(summary: &mut Summary) {
    let suite = "Durable Streams";
    let result = durable_streams::run(&mut |what, verdict| {
        summary.verdict(suite, what, verdict);
    });
    if let Err(error) = result {
        summary.fail(suite, &format!("{error:#}"));
    }
}

/// The scanner of JSON against published suites.
pub(crate) fn json(summary: &mut Summary) {
    let suite = "JSON and JSONPath";
    let result = json_suites::run(&mut |what, verdict| {
        summary.verdict(suite, what, verdict);
    });
    if let Err(error) = result {
        summary.fail(suite, &format!("{error:#}"));
    }
}

/// Tests a language over the C library below a directory.
type Binding = fn(&Path, wasm::Tell<'_>) -> anyhow::Result<()>;

/// The languages over the C library; each has a file of its own.
const BINDINGS: &[(&str, Binding)] = &[("C", c::run), ("Go", go::run), ("Java", java::run)];

/// The C library, installed, and each language over it.
pub(crate) fn bindings(summary: &mut Summary) {
    println!("-- building the C library");
    let prefix = tree::root().join("target/capi");
    if let Err(error) = capi::install(&prefix, capi::Profile::Dev, true) {
        summary.fail("C", &format!("{error:#}"));
        return;
    }
    for (suite, run) in BINDINGS {
        let result = run(&prefix, &mut |what, verdict| {
            summary.verdict(suite, what, verdict);
        });
        if let Err(error) = result {
            summary.fail(suite, &format!("{error:#}"));
        }
    }
}

/// The Python package, installed.
pub(crate) fn python(summary: &mut Summary) {
    let suite = "Python package";
    let result = python::run(&mut |what, verdict| {
        summary.verdict(suite, what, verdict);
    });
    if let Err(error) = result {
        summary.fail(suite, &format!("{error:#}"));
    }
}

/// The Node package, installed.
pub(crate) fn node(summary: &mut Summary) {
    let suite = "Node package";
    let result = node::run(&mut |what, verdict| {
        summary.verdict(suite, what, verdict);
    });
    if let Err(error) = result {
        summary.fail(suite, &format!("{error:#}"));
    }
}

fn line(counts: &Counts) -> String {
    format!(
        "{} passed, {} failed, {} skipped",
        counts.passed, counts.failed, counts.skipped
    )
}

/// All tests of the Rust workspace: one suite a crate, documentation examples included.
pub(crate) fn rust(summary: &mut Summary) -> anyhow::Result<()> {
    println!("-- building the tests of the workspace");
    let Some(owners) = build()? else {
        summary.fail("rust", "the tests do not build");
        return Ok(());
    };
    println!("-- running the tests of the workspace");
    let (reader, writer) = std::io::pipe()?;
    let mut command = cargo(&["test", "--workspace", "--locked", "--no-fail-fast"]);
    // Colours would stand in the middle of what is parsed.
    command
        .env("CARGO_TERM_COLOR", "never")
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer);
    let shown = shown(&command);
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    // The command holds both ends of the pipe for writing; the loop ends when the child's close.
    drop(command);
    let failures_before = summary.failures.len();
    let mut report = Report {
        owners: &owners,
        summary,
        current: None,
    };
    for line in BufReader::new(reader).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        report.line(&line);
    }
    report.end();
    let status = child.wait()?;
    if !status.success() && summary.failures.len() == failures_before {
        summary.fail("rust", &format!("`{shown}` ended with {status}"));
    }
    Ok(())
}

/// Builds the tests; the package of each test binary, by file name; `None` if they do not build.
fn build() -> anyhow::Result<Option<BTreeMap<String, String>>> {
    let mut child = cargo(&[
        "test",
        "--workspace",
        "--locked",
        "--no-run",
        "--quiet",
        "--message-format=json-render-diagnostics",
    ])
    .stdin(Stdio::null())
    .stdout(Stdio::piped())
    .spawn()
    .context("cannot start cargo test")?;
    let stdout = child
        .stdout
        .take()
        .context("cargo test has no standard output")?;
    let mut owners = BTreeMap::new();
    for line in BufReader::new(stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line?) else {
            continue;
        };
        let part = |path: &Value| path.as_str().map(|path| Path::new(path).to_path_buf());
        let (Some(binary), Some(manifest)) = (
            part(&message["executable"]),
            part(&message["manifest_path"]),
        ) else {
            continue;
        };
        if let (Some(file), Some(folder)) = (binary.file_name(), manifest.parent())
            && let Some(package) = folder.file_name()
        {
            let package = package.to_string_lossy().into_owned();
            owners.insert(file.to_string_lossy().into_owned(), package);
        }
    }
    Ok(child.wait()?.success().then_some(owners))
}

/// Reader of what `cargo test` prints.
struct Report<'a> {
    owners: &'a BTreeMap<String, String>,
    summary: &'a mut Summary,
    /// Package and name of the binary that runs now, and whether it has reported.
    current: Option<(String, String, bool)>,
}

impl Report<'_> {
    fn line(&mut self, line: &str) {
        let line = line.trim_start();
        if let Some(rest) = line.strip_prefix("Running ") {
            // `Running tests/crash.rs (target/debug/deps/crash-0123456789abcdef)`
            let Some((name, path)) = rest.rsplit_once(" (") else {
                return;
            };
            let file = path
                .trim_end_matches(')')
                .rsplit('/')
                .next()
                .unwrap_or_default();
            let Some(package) = self.owners.get(file).cloned() else {
                return;
            };
            self.begin(package, name.to_owned());
        } else if let Some(name) = line.strip_prefix("Doc-tests ") {
            self.begin(
                name.trim().replace('_', "-"),
                "documentation examples".to_owned(),
            );
        } else if let Some(counts) = line.strip_prefix("test result: ").and_then(result) {
            let Some((package, _, reported)) = &mut self.current else {
                return;
            };
            *reported = true;
            let suite = self.summary.suite(package);
            suite.passed += counts.passed;
            suite.failed += counts.failed;
            suite.skipped += counts.skipped;
        } else if let Some(rest) = line.strip_prefix("test ")
            && let Some((package, _, _)) = &self.current
            && let Some((name, verdict)) = rest.rsplit_once(" ... ")
        {
            if verdict.starts_with("FAILED") {
                self.summary.failures.push(format!("{package}: {name}"));
            } else if let Some(reason) = verdict.strip_prefix("ignored") {
                self.summary
                    .skips
                    .push(format!("{package}: {name}{reason}"));
            }
        }
    }

    fn begin(&mut self, package: String, name: String) {
        self.end();
        self.current = Some((package, name, false));
    }

    fn end(&mut self) {
        if let Some((package, name, false)) = self.current.take() {
            self.summary
                .fail(&package, &format!("{name} ended without a report"));
        }
    }
}

/// `ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s`
fn result(text: &str) -> Option<Counts> {
    let (_, text) = text.split_once(". ")?;
    let mut counts = Counts::default();
    for part in text.split("; ") {
        let Some((number, what)) = part.split_once(' ') else {
            continue;
        };
        match what {
            "passed" => counts.passed = number.parse().ok()?,
            "failed" => counts.failed = number.parse().ok()?,
            "ignored" => counts.skipped = number.parse().ok()?,
            _ => {}
        }
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::{Counts, Report, Summary, Verdict};
    use std::collections::BTreeMap;

    fn read(text: &str) -> Summary {
        let mut owners = BTreeMap::new();
        owners.insert("crash-0a".to_owned(), "weir-store".to_owned());
        owners.insert("weir_core-0b".to_owned(), "weir-core".to_owned());
        let mut summary = Summary::default();
        let mut report = Report {
            owners: &owners,
            summary: &mut summary,
            current: None,
        };
        for line in text.lines() {
            report.line(line);
        }
        report.end();
        summary
    }

    fn counts(passed: u64, failed: u64, skipped: u64) -> Counts {
        Counts {
            passed,
            failed,
            skipped,
        }
    }

    #[test]
    fn binaries_of_one_crate_add_up() {
        let summary = read(
            "     Running unittests src/lib.rs (target/debug/deps/weir_core-0b)\n\
             test a ... ok\n\
             test b ... ignored, needs a second disk\n\
             test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
             \x20    Running tests/crash.rs (target/debug/deps/crash-0a)\n\
             test c ... FAILED\n\
             test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n\
             \x20  Doc-tests weir_core\n\
             test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n",
        );
        let expected = [
            ("weir-core", counts(5, 0, 1)),
            ("weir-store", counts(2, 1, 0)),
        ];
        assert_eq!(
            summary.suites,
            expected.map(|(name, counts)| (name.to_owned(), counts))
        );
        assert_eq!(summary.failures, ["weir-store: c"]);
        assert_eq!(summary.skips, ["weir-core: b, needs a second disk"]);
        assert!(!summary.close());
    }

    #[test]
    fn what_is_skipped_is_neither_passed_nor_silent() {
        let mut summary = Summary::default();
        let why = || "no compiler".to_owned();
        summary.verdict("programs", "a", Verdict::Skipped(why()));
        summary.verdict("programs", "b", Verdict::Passed);
        assert_eq!(summary.suites, [("programs".to_owned(), counts(1, 0, 1))]);
        assert_eq!(summary.skips, ["programs: a: no compiler"]);
        assert!(summary.close());
        summary.verdict("programs", "c", Verdict::Failed(why()));
        assert_eq!(summary.failures, ["programs: c: no compiler"]);
        assert!(!summary.close());
    }

    #[test]
    fn a_binary_that_dies_counts_as_a_failure() {
        let summary = read(
            "     Running tests/crash.rs (target/debug/deps/crash-0a)\n\
             test c ... error: test failed, to rerun pass `--test crash`\n",
        );
        assert_eq!(summary.suites, [("weir-store".to_owned(), counts(0, 1, 0))]);
        assert!(!summary.close());
    }
}
