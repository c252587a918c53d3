//! Tests the Go package as a user installs it, over an installed C library: formatting, `go vet`,
//! tests with the race detector, the README, and the server of the lab that its example reads from.
//!
//! Invariants:
//! - Each test counts once. A test with subtests counts as its subtests.
//! - Without Go or a C compiler, everything counts as skipped.
//! - No module and no toolchain is downloaded.

use crate::capi;
use crate::tree;
use crate::wasm::{self, ReportVerdict, Verdict, finish};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// The package.
const FOLDER: &str = "bindings/go";
/// The server that the example of external sources reads from.
const MOCK: &str = "lab/peers/cosmos-mock";
/// Minimum version of Go, as its second number.
const MINOR_MIN: u32 = 26;
/// Beginning of the line with the number of transcripts.
const TRANSCRIPTS_PREFIX: &str = "transcripts of ";
/// Maximum characters of the output of a failed test.
const MESSAGE_CHARS: usize = 600;

/// Tests the package over the library below `prefix`.
pub(crate) fn run(prefix: &Path, report_verdict: ReportVerdict<'_>) -> anyhow::Result<()> {
    if let Err(why) = tools() {
        report_verdict("the package", Verdict::Skipped(why));
        return Ok(());
    }
    println!("-- the Go package");
    let formatting = finish(
        Command::new("gofmt")
            .args(["-l", FOLDER, MOCK])
            .current_dir(tree::root()),
    );
    report_verdict(
        "formatting",
        match formatting {
            Ok(output) if output.is_empty() => Verdict::Passed,
            Ok(output) => Verdict::Failed(format!(
                "gofmt: {}",
                String::from_utf8_lossy(&output).trim()
            )),
            Err(why) => Verdict::Failed(why),
        },
    );
    let passed =
        |result: Result<Vec<u8>, String>| result.map_or_else(Verdict::Failed, |_| Verdict::Passed);
    let vet = finish(go(prefix, FOLDER)?.args(["vet", "./..."]));
    report_verdict("go vet", passed(vet));
    let mut bare = go(prefix, FOLDER)?;
    bare.args(["vet", ".", "./examples/..."])
        .env("CGO_ENABLED", "0");
    report_verdict("go vet without cgo", passed(finish(&mut bare)));
    let mock = tree::root().join("target/cosmos-mock");
    let built = finish(go(prefix, MOCK)?.args(["build", "-o"]).arg(&mock).arg("."));
    built.map_err(anyhow::Error::msg)?;
    let mut tests = go(prefix, FOLDER)?;
    // Go caches results, but does not detect changes of transcripts, which are outside of its
    // module.
    tests.args(["test", "-json", "-count=1", "-race", "./..."]);
    tests.env("WEIR_COMMAND", wasm::weir()?);
    tests.env("WEIR_CLUSTER", std::env::current_exe()?);
    tests.env("WEIR_COSMOS_MOCK", &mock);
    counted(&mut tests, report_verdict)?;
    counted(
        go(prefix, MOCK)?.args(["test", "-json", "./..."]),
        report_verdict,
    )
}

/// Checks that the required tools exist.
fn tools() -> Result<(), String> {
    let version = finish(
        Command::new("go")
            .args(["env", "GOVERSION"])
            .env("GOTOOLCHAIN", "local"),
    );
    let version = version.map_err(|_| "there is no go".to_owned())?;
    let version = String::from_utf8_lossy(&version).trim().to_owned();
    let minor = version
        .strip_prefix("go1.")
        .and_then(|rest| rest.split('.').next()?.parse().ok());
    if minor.is_some_and(|minor: u32| minor < MINOR_MIN) {
        return Err(format!("{version} is older than go1.{MINOR_MIN}"));
    }
    for tool in ["cc", "pkg-config"] {
        finish(Command::new(tool).arg("--version")).map_err(|_| format!("there is no {tool}"))?;
    }
    Ok(())
}

/// Creates a Go command in a folder, over the library below `prefix`.
fn go(prefix: &Path, folder: &str) -> anyhow::Result<Command> {
    let mut go = Command::new("go");
    go.current_dir(tree::root().join(folder));
    go.env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "-buildvcs=false")
        .env("GOWORK", "off");
    go.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    go.env("LD_LIBRARY_PATH", prefix.join("lib"));
    // The hash of the header forces a rebuild: Go does not detect changes of the installed header.
    let header = tree::bytes(capi::HEADER)?;
    let print = header.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    go.env("CGO_CFLAGS", format!("-O2 -g -DWEIR_HEADER=0x{print:x}"));
    Ok(go)
}

/// Runs tests and reports each.
fn counted(command: &mut Command, report_verdict: ReportVerdict<'_>) -> anyhow::Result<()> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = child.context("cannot start go")?;
    let out = child.stdout.take().context("go has no standard output")?;
    let mut report = Report::default();
    for line in BufReader::new(out).lines() {
        report.line(&line?);
    }
    let status = child.wait()?;
    let failed = report.report_verdict(report_verdict);
    ensure!(
        status.success() || failed,
        "go test ended with {status} outside of its tests"
    );
    Ok(())
}

/// The output of `go test -json`.
#[derive(Default)]
struct Report {
    /// Outcome of each test, by package and name.
    outcomes: BTreeMap<(String, String), String>,
    /// The output of each test.
    outputs: BTreeMap<(String, String), String>,
}

impl Report {
    fn line(&mut self, line: &str) {
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            println!("{line}");
            return;
        };
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let key = (text("Package"), text("Test"));
        match text("Action").as_str() {
            action @ ("pass" | "fail" | "skip") => {
                self.outcomes.insert(key, action.to_owned());
            }
            "output" => {
                let words = text("Output");
                if words.starts_with(TRANSCRIPTS_PREFIX) {
                    print!("go: {words}");
                }
                self.outputs.entry(key).or_default().push_str(&words);
            }
            _ => {}
        }
    }

    /// Reports each test without subtests, and each package that failed outside of its tests.
    /// Returns whether anything failed.
    fn report_verdict(&self, report_verdict: ReportVerdict<'_>) -> bool {
        let mut any = false;
        for ((package, test), outcome) in &self.outcomes {
            let parted = |(other, name): &&(String, String)| {
                other == package
                    && (test.is_empty() || name.starts_with(&format!("{test}/")))
                    && name != test
            };
            let parts = self.outcomes.keys().find(parted).is_some();
            let failed = outcome == "fail";
            let by_itself = failed
                && !self
                    .outcomes
                    .iter()
                    .any(|(key, outcome)| parted(&key) && outcome == "fail");
            if (parts || test.is_empty()) && !by_itself {
                continue;
            }
            any |= failed;
            let key = (package.clone(), test.clone());
            let output = self.outputs.get(&key).map_or("", |output| output.trim());
            let words: String = output.chars().take(MESSAGE_CHARS).collect();
            let verdict = match outcome.as_str() {
                "pass" => Verdict::Passed,
                "skip" => Verdict::Skipped(words),
                _ => Verdict::Failed(words),
            };
            report_verdict(&format!("{package} {test}"), verdict);
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::Report;
    use crate::wasm::Verdict;

    #[test]
    fn tests_count_by_their_parts_and_packages_by_their_tests() {
        let mut report = Report::default();
        for (action, test) in [
            ("pass", "A/1"),
            ("fail", "A/2"),
            ("fail", "A"),
            ("skip", "B"),
            ("fail", "C"),
            ("pass", "C/1"),
            ("fail", ""),
        ] {
            report.line(&format!(
                "{{\"Action\":\"{action}\",\"Package\":\"p\",\"Test\":\"{test}\"}}"
            ));
        }
        report.line("{\"Action\":\"fail\",\"Package\":\"does-not-build\"}");
        report.line("{\"Action\":\"skip\",\"Package\":\"has-no-tests\"}");
        let mut reported = Vec::new();
        assert!(
            report.report_verdict(&mut |name, verdict| reported.push((name.to_owned(), verdict)))
        );
        let failed = || Verdict::Failed(String::new());
        let expected = [
            ("does-not-build ", failed()),
            ("p A/1", Verdict::Passed),
            ("p A/2", failed()),
            ("p B", Verdict::Skipped(String::new())),
            ("p C", failed()),
            ("p C/1", Verdict::Passed),
        ];
        assert_eq!(
            reported,
            expected.map(|(name, verdict)| (name.to_owned(), verdict))
        );
    }
}
