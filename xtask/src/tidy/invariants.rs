//! Checks that each invariant of ARCHITECTURE.md has a test, and each one marked † a release
//! assertion in a crate whose tests also run in release.
//!
//! A test contains the id in a comment or a message. An assertion contains it in its message, or in
//! a comment directly before the assertion.

use super::Findings;
use super::rust_source::without_tests;
use crate::suites::RELEASE;
use crate::tree;

/// The page that contains the table.
const PAGE: &str = "ARCHITECTURE.md";

/// Checks every row of the table.
pub(super) fn check(files: &[String], findings: &mut Findings) -> anyhow::Result<()> {
    let page = tree::text(PAGE)?;
    let ids: Vec<(&str, bool)> = page.lines().filter_map(row).collect();
    if ids.is_empty() {
        findings.wrong(PAGE, "the table of invariants has no row");
    }
    let mut tested = vec![false; ids.len()];
    let mut asserted = vec![false; ids.len()];
    for name in files.iter().filter(|name| tree::has_extension(name, "rs")) {
        if !name.starts_with("crates/") {
            continue;
        }
        let text = tree::text(name)?;
        let in_tests = name.contains("/tests/");
        let shipped = if in_tests || !runs_in_release(name) {
            String::new()
        } else {
            without_tests(&text)
        };
        for (at, (id, _)) in ids.iter().enumerate() {
            tested[at] |= named(if in_tests { &text } else { tests_of(&text) }, id);
            asserted[at] |= asserts(&shipped, id);
        }
    }
    for (at, (id, marked)) in ids.iter().enumerate() {
        if !tested[at] {
            findings.wrong(PAGE, &format!("no test names {id}"));
        }
        if *marked && !asserted[at] {
            findings.wrong(PAGE, &format!("no assertion names {id}"));
        }
    }
    Ok(())
}

/// Whether the tests of the crate of this file also run in release.
fn runs_in_release(name: &str) -> bool {
    let package = name.split('/').nth(1).unwrap_or_default();
    RELEASE.contains(&format!("--package={package}").as_str())
}

/// Parses `| I1 † | … |` into the id, and whether it needs a release assertion.
fn row(line: &str) -> Option<(&str, bool)> {
    let cell = line.strip_prefix("| ")?.split(" |").next()?.trim();
    let id = cell.trim_end_matches('†').trim();
    let number = id.strip_prefix('I')?;
    let is_id = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_id.then_some((id, cell.ends_with('†')))
}

/// The test part of a file.
fn tests_of(text: &str) -> &str {
    text.find("#[cfg(test)]").map_or("", |at| &text[at..])
}

/// Whether the text contains the id as a word.
fn named(text: &str, id: &str) -> bool {
    text.match_indices(id).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + id.len()..].chars().next();
        let inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !inside(before) && !inside(after)
    })
}

/// Whether a release assertion names the id.
fn asserts(text: &str, id: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.iter().enumerate().any(|(at, line)| {
        let is_assertion = line.starts_with("assert!(") || line.starts_with("assert_eq!(");
        let (before, statement) = lines.split_at(at);
        is_assertion && (comment_names(before, id) || statement_names(statement, id))
    })
}

/// Whether the comment that ends these lines names the id.
fn comment_names(lines: &[&str], id: &str) -> bool {
    let mut comment = lines.iter().rev().take_while(|line| line.starts_with("//"));
    comment.any(|line| named(line, id))
}

/// Whether the statement that begins these lines names the id.
fn statement_names(lines: &[&str], id: &str) -> bool {
    let last = lines.iter().position(|line| line.ends_with(");"));
    let mut statement = lines.iter().take(last.map_or(lines.len(), |last| last + 1));
    statement.any(|line| named(line, id))
}

#[cfg(test)]
mod tests {
    use super::{asserts, named, row, runs_in_release};

    #[test]
    fn a_row_has_an_id() {
        assert_eq!(row("| I1 † | offsets are dense |"), Some(("I1", true)));
        assert_eq!(row("| I10 | no record |"), Some(("I10", false)));
        assert_eq!(row("| id | says |"), None);
    }

    #[test]
    fn only_an_assertion_that_stays_counts() {
        assert!(asserts("assert!(a, \"dense (I1)\");", "I1"));
        assert!(asserts("// I1: dense.\nassert_eq!(a, b);", "I1"));
        assert!(asserts(
            "    assert!(\n        a,\n        \"dense (I1)\"\n    );",
            "I1"
        ));
        assert!(!asserts("debug_assert!(a, \"dense (I1)\");", "I1"));
        assert!(!asserts("assert!(a, \"bounded (I10)\");", "I1"));
        assert!(!asserts("//! I1: dense.\n\nassert!(a);\n// I1\n", "I1"));
        assert!(!named("I10", "I1"));
    }

    #[test]
    fn assertions_count_in_crates_that_are_tested_in_release() {
        assert!(runs_in_release("crates/weir-core/src/machine/change.rs"));
        assert!(!runs_in_release("crates/weir-sim/src/invariants/order.rs"));
    }
}
