//! Defaults for missing values in the machine, the store, queries, the native protocol and the
//! cluster.
//!
//! A default may hide an impossible case as well as fill in a possible one. So each default is
//! listed with its reason. An impossible case must be an assertion with a message, or a typed
//! error.
//!
//! Invariant: `defaults.toml` has the number of lines with a default in each file, so that a new
//! default needs a reason.

use super::Findings;
use super::rust_source::{code, without_tests};
use crate::tree;
use anyhow::Context as _;
use std::collections::BTreeMap;

/// The list of permitted defaults, by file.
const LIST: &str = "xtask/src/tidy/defaults.toml";

/// Folders to which the rule applies.
const FOLDERS: &[&str] = &[
    "crates/weir-core/src/",
    "crates/weir-protocol/src/",
    "crates/weir-query/src/",
    "crates/weir-raft/src/",
    "crates/weir-store/src/",
];

/// Simulated disks, which only tests use.
const SIMULATED: &str = "crates/weir-store/src/disk/sim/";

/// Code patterns of a default. `MAX` stands for the largest value of any type.
const DEFAULTS: &[&str] = &[
    ".unwrap_or_default()",
    ".unwrap_or(0)",
    ".unwrap_or(1)",
    ".unwrap_or(&[])",
    ".unwrap_or(MAX)",
    ".map_or(0,",
    ".map_or(MAX,",
    ".saturating_sub(",
];

/// Number of lines with a default in a file, and why none of them hides an impossible case.
type Entry = (usize, String);

/// Compares the files with the list.
pub(super) fn check(files: &[String], findings: &mut Findings) -> anyhow::Result<()> {
    let listed: BTreeMap<String, Entry> =
        toml::from_str(&tree::text(LIST)?).with_context(|| LIST.to_owned())?;
    for name in listed.keys().filter(|name| !files.contains(name)) {
        findings.wrong(LIST, &format!("there is no file {name}"));
    }
    for name in files {
        let is_checked = FOLDERS.iter().any(|folder| name.starts_with(folder));
        if !is_checked || name.starts_with(SIMULATED) || !tree::has_extension(name, "rs") {
            continue;
        }
        let found = found(&tree::text(name)?);
        let entry = listed.get(name);
        if entry.is_some_and(|(_, reason)| reason.is_empty()) {
            findings.wrong(LIST, &format!("{name} has no reason"));
        }
        let expected = entry.map_or(0, |(lines, _)| *lines);
        if found.len() < expected {
            let what = format!(
                "{name} has {} lines with a default: correct the number and the reason",
                found.len()
            );
            findings.wrong(LIST, &what);
        }
        if found.len() > expected {
            let what = format!(
                "{} lines with a default for a missing value (lines {found:?}), {expected} in {LIST}: \
                 assert impossible cases, or add the reason there",
                found.len()
            );
            findings.wrong(name, &what);
        }
    }
    Ok(())
}

/// The line numbers with a default, from 1. Tests do not count.
fn found(text: &str) -> Vec<usize> {
    let code = without_tests(&code(text));
    let has = |line: &str| {
        DEFAULTS
            .iter()
            .any(|default| match default.split_once("MAX") {
                Some((call, end)) => line.contains(call) && line.contains(&format!("::MAX{end}")),
                None => line.contains(default),
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
    fn defaults_are_found_and_tests_are_omitted() {
        let text = "fn f() {\n    a.unwrap_or(u64::MAX);\n    // b.unwrap_or(0)\n    c.unwrap_or(7);\n    e.saturating_sub(n);\n    f.unwrap_or(&[]);\n    g.map_or(u64::MAX, |n| n);\n}\n\
                    #[cfg(test)]\nmod tests {\n    fn g() { d.unwrap_or_default(); }\n}\n";
        assert_eq!(found(text), [2, 5, 6, 7]);
    }
}
