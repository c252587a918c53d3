//! Defaults for missing values in the machine, the store, the native protocol and the cluster.
//!
//! A default hides an impossible case as well as it fills in a possible one. So each is listed with its reason;
//! an impossible case is an assertion with a sentence, or a typed error.
//!
//! Invariant: `defaults.toml` names the number of lines of each file that have one, so a new one needs a reason.

use super::Findings;
use super::rust_source::{code, without_tests};
use crate::tree;
use anyhow::Context as _;
use std::collections::BTreeMap;

/// The defaults that are argued for, by file.
const LIST: &str = "xtask/src/tidy/defaults.toml";

/// Folders in which the rule holds.
const FOLDERS: &[&str] = &[
    "crates/weir-core/src/",
    "crates/weir-protocol/src/",
    "crates/weir-raft/src/",
    "crates/weir-store/src/",
];

/// Simulated disks: tests alone use them.
const SIMULATED: &str = "crates/weir-store/src/disk/sim/";

/// What a default looks like.
const DEFAULTS: &[&str] = &[
    ".unwrap_or_default()",
    ".unwrap_or(0)",
    ".unwrap_or(1)",
    "::MAX)",
    ".map_or(0,",
    ".saturating_sub(",
];

/// How many lines of a file have a default, and why none of them hides a case that cannot be.
type Argued = (usize, String);

/// Compares the files with the list.
pub(super) fn check(files: &[String], findings: &mut Findings) -> anyhow::Result<()> {
    let listed: BTreeMap<String, Argued> =
        toml::from_str(&tree::text(LIST)?).with_context(|| LIST.to_owned())?;
    for name in listed.keys().filter(|name| !files.contains(name)) {
        findings.wrong(LIST, &format!("there is no file {name}"));
    }
    for name in files {
        let is_checked = FOLDERS.iter().any(|folder| name.starts_with(folder));
        if !is_checked || name.starts_with(SIMULATED) || !tree::is(name, "rs") {
            continue;
        }
        let found = found(&tree::text(name)?);
        let argued = listed.get(name);
        if argued.is_some_and(|(_, reason)| reason.is_empty()) {
            findings.wrong(LIST, &format!("{name} has no reason"));
        }
        let expected = argued.map_or(0, |(lines, _)| *lines);
        if found.len() < expected {
            findings.note(LIST, &format!("{name} has fewer defaults than are listed"));
        }
        if found.len() > expected {
            let what = format!(
                "{} lines with a default for a missing value (lines {found:?}), {expected} in {LIST}: \
                 assert what cannot be, or argue there",
                found.len()
            );
            findings.wrong(name, &what);
        }
    }
    Ok(())
}

/// The numbers of the lines that have a default, from 1. Tests do not count.
fn found(text: &str) -> Vec<usize> {
    let code = without_tests(&code(text));
    let has = |line: &str| {
        DEFAULTS.iter().any(|default| match *default {
            "::MAX)" => line.contains("unwrap_or(") && line.contains(default),
            default => line.contains(default),
        })
    };
    let lines = code.lines().enumerate();
    lines
        .filter(|(_, line)| has(line))
        .map(|(at, _)| at + 1)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::found;

    #[test]
    fn defaults_are_found_and_tests_are_left_out() {
        let text = "fn f() {\n    a.unwrap_or(u64::MAX);\n    // b.unwrap_or(0)\n    c.unwrap_or(7);\n    e.saturating_sub(n);\n}\n\
                    #[cfg(test)]\nmod tests {\n    fn g() { d.unwrap_or_default(); }\n}\n";
        assert_eq!(found(text), [2, 5]);
    }
}
