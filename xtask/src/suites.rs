//! Runs test suites, and counts their results.
//!
//! Invariants:
//! - The last line is `N passed, N failed, N skipped` over all suites.
//! - A test binary that ends without a report counts as one failure.
//! - A command that fails without a failed test counts as one failure.

use crate::c;
use crate::capi;
use crate::durable_streams;
use crate::emacs;
use crate::go;
use crate::java;
use crate::json_suites;
use crate::node;
use crate::openapi_client;
use crate::python;
use crate::schemathesis;
use crate::tree;
use crate::wasm::{self, Verdict};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

mod rust;

pub(crate) use rust::RELEASE;

/// Counts of one suite.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

/// The results of all suites.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    suites: Vec<(String, Counts)>,
    failures: Vec<String>,
    skips: Vec<String>,
    /// Wall time of each part, in the order of completion.
    times: Vec<(String, Duration)>,
}

impl Summary {
    /// Records the duration of a part.
    pub(crate) fn add_time(&mut self, part: &str, time: Duration) {
        self.times.push((part.to_owned(), time));
    }

    /// Adds the counts of another thread.
    pub(crate) fn merge(&mut self, other: Self) {
        for (name, counts) in other.suites {
            let suite = self.suite(&name);
            suite.passed += counts.passed;
            suite.failed += counts.failed;
            suite.skipped += counts.skipped;
        }
        self.failures.extend(other.failures);
        self.skips.extend(other.skips);
        self.times.extend(other.times);
    }

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

    /// Prints wall times (slowest first), failures, skips, one line for each suite, and the total.
    /// Returns `true` if nothing failed.
    pub(crate) fn close(&self) -> bool {
        println!();
        let mut times: Vec<_> = self.times.iter().collect();
        times.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        for (part, time) in times {
            println!("{:8.1} s  {part}", time.as_secs_f32());
        }
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

/// Builds the programs of topics from source, in each language.
pub(crate) fn programs(summary: &mut Summary) {
    let suite = "programs from source";
    let result = wasm::all(false, &mut |what, verdict| {
        summary.verdict(suite, what, verdict);
    });
    if let Err(error) = result {
        summary.fail(suite, &format!("{error:#}"));
    }
}

/// Checks the HTTP API against its description.
pub(crate) fn api(summary: &mut Summary) {
    let suite = "HTTP edge by its description";
    match schemathesis::verdict() {
        Ok(verdict) => summary.verdict(suite, "schemathesis", verdict),
        Err(error) => summary.fail(suite, &format!("{error:#}")),
    }
    match openapi_client::verdict() {
        Ok(verdict) => summary.verdict(suite, "generated client", verdict),
        Err(error) => summary.fail(suite, &format!("{error:#}")),
    }
}

/// Tests the path `/ds` of the HTTP API.
pub(crate) fn durable_streams(summary: &mut Summary) {
    let suite = "Durable Streams";
    let result = durable_streams::run(&mut |what, verdict| {
        summary.verdict(suite, what, verdict);
    });
    if let Err(error) = result {
        summary.fail(suite, &format!("{error:#}"));
    }
}

/// Tests the JSON scanner with published suites.
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
type Binding = fn(&Path, wasm::ReportVerdict<'_>) -> anyhow::Result<()>;

/// The languages over the C library.
const BINDINGS: &[(&str, Binding)] = &[("C", c::run), ("Go", go::run), ("Java", java::run)];

/// Installs the C library, and tests each language over it.
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

/// Tests the installed Python package.
pub(crate) fn python(summary: &mut Summary) {
    let suite = "Python package";
    let result = python::run(&mut |what, verdict| {
        summary.verdict(suite, what, verdict);
    });
    if let Err(error) = result {
        summary.fail(suite, &format!("{error:#}"));
    }
}

/// Tests the installed Node package.
pub(crate) fn node(summary: &mut Summary) {
    let suite = "Node package";
    let result = node::run(&mut |what, verdict| {
        summary.verdict(suite, what, verdict);
    });
    if let Err(error) = result {
        summary.fail(suite, &format!("{error:#}"));
    }
}

/// Tests the Emacs package in a real Emacs.
pub(crate) fn emacs(summary: &mut Summary) {
    let suite = "Emacs package";
    let result = emacs::run(&mut |what, verdict| {
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

/// Counts the suites of one language or published suite.
type Suite = fn(&mut Summary);

/// The suites that `all` runs in addition to the Rust workspace.
const LANGUAGES: &[(&str, Suite)] = &[
    ("programs from source", programs),
    ("HTTP edge by its description", api),
    ("Durable Streams", durable_streams),
    ("JSON and JSONPath", json),
    ("C, Go, Java", bindings),
    ("Python package", python),
    ("Node package", node),
    ("Emacs package", emacs),
];

/// Test binaries that run at a time on two cores: the third one uses the time in which the others
/// wait for disks, processes and peers.
const WORKERS: usize = 3;

/// Runs every suite. The languages run sequentially on this thread, the binaries of the Rust
/// workspace on the other workers. After the languages, this thread runs binaries too.
pub(crate) fn all(summary: &mut Summary) -> anyhow::Result<()> {
    let queue = rust::queue(summary)?;
    run_jobs(&queue, summary, |summary| {
        for (name, run) in LANGUAGES {
            let start = Instant::now();
            run(summary);
            summary.add_time(name, start.elapsed());
        }
    });
    Ok(())
}

/// Runs all tests of the Rust workspace: one suite for each crate, with documentation examples.
pub(crate) fn rust(summary: &mut Summary) -> anyhow::Result<()> {
    let queue = rust::queue(summary)?;
    run_jobs(&queue, summary, |_| {});
    Ok(())
}

/// Runs the tests of some packages of the workspace, without documentation examples.
pub(crate) fn packages(names: &BTreeSet<String>, summary: &mut Summary) -> anyhow::Result<()> {
    let queue = rust::queue_of(names, summary)?;
    run_jobs(&queue, summary, |_| {});
    Ok(())
}

/// Runs `first` on this thread, and then test binaries; the other workers run binaries at once.
fn run_jobs(queue: &rust::Queue, summary: &mut Summary, first: impl FnOnce(&mut Summary)) {
    let mut others: [Summary; WORKERS - 1] = Default::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = others
            .iter_mut()
            .map(|other| scope.spawn(move || queue.run_jobs(other)))
            .collect();
        first(summary);
        queue.run_jobs(summary);
        for worker in workers {
            if worker.join().is_err() {
                summary.fail("rust", "a worker panicked");
            }
        }
    });
    for other in others {
        summary.merge(other);
    }
}

#[cfg(test)]
mod tests {
    use super::{Counts, Summary, Verdict};

    fn counts(passed: u64, failed: u64, skipped: u64) -> Counts {
        Counts {
            passed,
            failed,
            skipped,
        }
    }

    #[test]
    fn counts_of_two_threads_are_added() {
        let mut summary = Summary::default();
        summary.suite("weir-core").passed = 2;
        let mut second = Summary::default();
        second.suite("weir-core").passed = 3;
        second.fail("weir-store", "c");
        summary.merge(second);
        let expected = [
            ("weir-core", counts(5, 0, 0)),
            ("weir-store", counts(0, 1, 0)),
        ];
        assert_eq!(
            summary.suites,
            expected.map(|(name, counts)| (name.to_owned(), counts))
        );
        assert_eq!(summary.failures, ["weir-store: c"]);
        assert!(!summary.close());
    }

    #[test]
    fn a_skipped_test_is_listed_and_is_not_passed() {
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
}
