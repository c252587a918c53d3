//! Builds the test binaries of the Rust workspace once, and runs them.
//!
//! Invariants:
//! - A binary that ends without a report counts as one failure.
//! - A binary that fails without a failed test counts as one failure.
//! - The output of a failed binary is printed completely.

use super::{Counts, Summary};
use crate::steps::{cargo, shown};
use anyhow::Context as _;
use serde_json::Value;
use std::collections::{BTreeSet, VecDeque};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Packages of the release tests: those whose assertions are the invariants that ARCHITECTURE.md
/// marks with †, and the features of foreign crates in the other tests.
pub(crate) const RELEASE: &[&str] = &[
    "--package=weir-core",
    "--package=weir-query",
    "--package=weir-store",
    "--package=workspace-features",
];

/// The slowest targets, slowest first. They start first, so that at the end no worker waits for one
/// of them.
const SLOWEST: &[&str] = &[
    "cli",
    "demo",
    "sim_suite",
    "abuse",
    "serve",
    "jira",
    "store_suite",
    "remote",
];

/// A unit of work: a test binary, the documentation examples of all crates, or the release tests of
/// the crates with invariants.
enum Job {
    Binary(Binary),
    Examples,
    Release,
}

/// A test binary.
struct Binary {
    /// The folder of the crate, which is the name of the suite.
    package: String,
    /// The target within the crate.
    target: String,
    path: PathBuf,
    /// The working directory that cargo would use.
    directory: PathBuf,
}

/// The remaining jobs. All workers take jobs from the front.
pub(super) struct Queue(Mutex<VecDeque<Job>>);

/// Builds the tests of the workspace.
pub(super) fn queue(summary: &mut Summary) -> anyhow::Result<Queue> {
    let Some(mut jobs) = jobs(summary, &["--workspace".to_owned()])? else {
        return Ok(Queue(Mutex::default()));
    };
    // This job builds first, so it starts early, while other jobs can run beside it.
    jobs.push_front(Job::Release);
    jobs.push_back(Job::Examples);
    Ok(Queue(Mutex::new(jobs)))
}

/// Builds the tests of some packages, with the features that they have in the tests of the
/// workspace.
pub(super) fn queue_of(
    packages: &BTreeSet<String>,
    summary: &mut Summary,
) -> anyhow::Result<Queue> {
    let mut options = vec![
        "--package=workspace-features".to_owned(),
        "--features=workspace-features/members".to_owned(),
    ];
    options.extend(packages.iter().map(|name| format!("--package={name}")));
    if packages.contains("weir-raft") {
        options.push("--features=weir-raft/sim".to_owned());
    }
    let jobs = jobs(summary, &options)?.unwrap_or_default();
    Ok(Queue(Mutex::new(jobs)))
}

/// Builds tests. Returns a job for each test binary; `None` if the tests do not build.
fn jobs(summary: &mut Summary, options: &[String]) -> anyhow::Result<Option<VecDeque<Job>>> {
    println!("-- building the tests");
    let start = Instant::now();
    let binaries = build(options)?;
    summary.add_time("building the tests", start.elapsed());
    let Some(mut binaries) = binaries else {
        summary.fail("rust", "the tests do not build");
        return Ok(None);
    };
    binaries.sort_by_key(|binary| {
        let rank = SLOWEST
            .iter()
            .position(|name| binary.target.ends_with(name));
        rank.unwrap_or(SLOWEST.len())
    });
    Ok(Some(binaries.into_iter().map(Job::Binary).collect()))
}

impl Queue {
    /// Runs jobs until the queue is empty.
    pub(super) fn run_jobs(&self, summary: &mut Summary) {
        loop {
            let job = self
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front();
            let Some(job) = job else {
                return;
            };
            let start = Instant::now();
            let name = job.name();
            println!("running  {name}");
            let before = summary.failures.len();
            let output = match job.run(summary) {
                Ok(output) => output,
                Err(error) => {
                    summary.fail("rust", &format!("{name}: {error:#}"));
                    String::new()
                }
            };
            let time = start.elapsed();
            let failed = summary.failures.len() > before;
            if failed {
                println!("{output}");
            }
            let verdict = if failed { "FAILED" } else { "passed" };
            println!("{verdict}   {name} ({:.1} s)", time.as_secs_f32());
            summary.add_time(&name, time);
        }
    }
}

impl Job {
    fn name(&self) -> String {
        match self {
            Self::Binary(binary) => format!("{} {}", binary.package, binary.target),
            Self::Examples => "documentation examples".to_owned(),
            Self::Release => "weir-core, weir-query and weir-store in release".to_owned(),
        }
    }

    /// Runs the job and counts its results. Returns its output.
    fn run(self, summary: &mut Summary) -> anyhow::Result<String> {
        let (mut command, suite) = match self {
            Self::Binary(binary) => {
                let mut command = Command::new(&binary.path);
                command.current_dir(&binary.directory);
                (command, Some((binary.package, binary.target)))
            }
            Self::Examples => (
                cargo(&["test", "--workspace", "--doc", "--locked", "--no-fail-fast"]),
                None,
            ),
            Self::Release => (
                release(),
                Some(("release".to_owned(), "of the invariants".to_owned())),
            ),
        };
        let (reader, writer) = std::io::pipe()?;
        command
            .env("CARGO_TERM_COLOR", "never")
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer);
        let shown = shown(&command);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start `{shown}`"))?;
        // The command holds the write ends of the pipe, and must drop them, so that reading ends
        // with the child.
        drop(command);
        let before = summary.failures.len();
        let mut report = Report {
            summary: &mut *summary,
            current: None,
        };
        if let Some((package, target)) = suite {
            report.begin(package, target);
        }
        let mut output = String::new();
        for line in BufReader::new(reader).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            output.push_str(&line);
            output.push('\n');
            report.line(&line);
        }
        report.end();
        let status = child.wait()?;
        if !status.success() && summary.failures.len() == before {
            summary.fail("rust", &format!("`{shown}` ended with {status}"));
        }
        Ok(output)
    }
}

/// The tests of the crates with invariants, built without overflow checks and debug assertions, as
/// in a release. Foreign crates are those of the other tests: `Cargo.toml` sets for them what this
/// changes for ours, and [`RELEASE`] has their features.
fn release() -> Command {
    let mut command = cargo(&["test", "--locked", "--no-fail-fast", "--tests"]);
    for setting in ["debug-assertions", "overflow-checks"] {
        let setting = format!("profile.dev.{setting}=false");
        command.args(["--config", &setting]);
    }
    command.args(RELEASE);
    command
}

/// Builds the tests of the packages in `options`; `None` if they do not build.
fn build(options: &[String]) -> anyhow::Result<Option<Vec<Binary>>> {
    let mut child = cargo(&[
        "test",
        "--tests",
        "--locked",
        "--no-run",
        "--quiet",
        "--message-format=json-render-diagnostics",
    ])
    .args(options)
    .stdin(Stdio::null())
    .stdout(Stdio::piped())
    .spawn()
    .context("cannot start cargo test")?;
    let stdout = child
        .stdout
        .take()
        .context("cargo test has no standard output")?;
    let mut binaries = Vec::new();
    for line in BufReader::new(stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line?) else {
            continue;
        };
        if message["profile"]["test"] != Value::Bool(true) {
            continue;
        }
        let (Some(path), Some(manifest)) = (
            message["executable"].as_str(),
            message["manifest_path"].as_str(),
        ) else {
            continue;
        };
        let directory = Path::new(manifest).parent().context("a bare manifest")?;
        let package = directory.file_name().context("a crate without folder")?;
        let target = &message["target"];
        let kind = target["kind"][0].as_str().unwrap_or_default();
        let name = target["name"].as_str().unwrap_or_default();
        let package = package.to_string_lossy().into_owned();
        binaries.push(Binary {
            package,
            target: format!("{kind} {name}"),
            path: path.into(),
            directory: directory.to_path_buf(),
        });
    }
    Ok(child.wait()?.success().then_some(binaries))
}

/// Parses the output of a test binary, or of `cargo test --doc`.
struct Report<'a> {
    summary: &'a mut Summary,
    /// Package and name of the current binary, and whether it has reported its result.
    current: Option<(String, String, bool)>,
}

impl Report<'_> {
    fn line(&mut self, line: &str) {
        let line = line.trim_start();
        if let Some(name) = line.strip_prefix("Doc-tests ") {
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

/// Parses `ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s`.
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
    use super::super::{Counts, Summary};
    use super::Report;

    fn read(binaries: &[(&str, &str)], examples: &str) -> Summary {
        let mut summary = Summary::default();
        let mut report = Report {
            summary: &mut summary,
            current: None,
        };
        for (package, text) in binaries {
            report.begin((*package).to_owned(), "a target".to_owned());
            text.lines().for_each(|line| report.line(line));
        }
        examples.lines().for_each(|line| report.line(line));
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
        let core = "test a ... ok\n\
             test b ... ignored, needs a second disk\n\
             test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n";
        let store = "test c ... FAILED\n\
             test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let examples = "\x20  Doc-tests weir_core\n\
             test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let summary = read(&[("weir-core", core), ("weir-store", store)], examples);
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
    fn a_binary_without_a_report_counts_as_a_failure() {
        let summary = read(&[("weir-store", "test c ... ")], "");
        assert_eq!(summary.suites, [("weir-store".to_owned(), counts(0, 1, 0))]);
        assert!(!summary.close());
    }
}
