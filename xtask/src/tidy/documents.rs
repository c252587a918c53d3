//! Rules about documents: titles, links, the change log, decision records.

use super::Findings;
use crate::tree;

/// Parts of a version in the change log, in their order.
const CHANGE_LOG_PARTS: &[&str] = &[
    "Safety and durability",
    "Features",
    "Performance",
    "Format/protocol/ABI",
    "Internals",
];

/// Parts of a decision record, in their order.
const DECISION_PARTS: &[&str] = &[
    "Context",
    "Decision",
    "Alternatives",
    "Consequences",
    "What would change our mind",
];

/// Maximum lines of a decision record: one page.
const DECISION_LINES_MAX: usize = 70;

/// Checks all documents.
pub(super) fn check(files: &[String], findings: &mut Findings) -> anyhow::Result<()> {
    let mut numbers: Vec<&str> = Vec::new();
    for name in files.iter().filter(|name| tree::has_extension(name, "md")) {
        let text = tree::text(name)?;
        let prose = prose(&text);
        one_title(name, &prose, findings);
        links(
            name,
            &prose,
            &|path| tree::root().join(path).exists(),
            findings,
        );
        if let Some(file) = name.strip_prefix("docs/decisions/") {
            let number = file.split('-').next().unwrap_or_default();
            if number.len() != 4 || !number.bytes().all(|b| b.is_ascii_digit()) {
                findings.wrong(name, "a decision record is named NNNN-title.md");
            }
            if numbers.contains(&number) {
                findings.wrong(name, "another decision record has this number");
            }
            numbers.push(number);
            decision_parts(name, &prose, findings);
            if text.lines().count() > DECISION_LINES_MAX {
                findings.wrong(name, "a decision record is one page");
            }
        }
    }
    index(files, findings)?;
    promises(files, findings)?;
    for number in gaps(&numbers, &tree::text(INDEX)?) {
        let what =
            format!("no decision has the number {number:04}, and this page does not say why");
        findings.wrong(INDEX, &what);
    }
    if files.iter().any(|name| name == "CHANGELOG.md") {
        change_log(&tree::text("CHANGELOG.md")?, findings);
    } else {
        findings.wrong("CHANGELOG.md", "is missing");
    }
    Ok(())
}

/// The page that names the tests of each promise.
const PROMISES: &str = "docs/operating/promises.md";

/// Checks that each test that the page of promises names is in the file that it names.
fn promises(files: &[String], findings: &mut Findings) -> anyhow::Result<()> {
    let page = tree::text(PROMISES)?;
    let mut missing = named_tests(&page);
    for name in files.iter().filter(|name| tree::has_extension(name, "rs")) {
        let text = tree::text(name)?;
        missing.retain(|(module, test)| {
            let is_there = has_module(name, module) && text.contains(&format!("fn {test}("));
            !is_there
        });
    }
    for (module, test) in missing {
        findings.wrong(PROMISES, &format!("no test is named {module}::{test}"));
    }
    Ok(())
}

/// Whether the path is a file, or is in a directory, with the name of this module or suite. `..`
/// stands for the module of the test before.
fn has_module(path: &str, module: &str) -> bool {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let is_module = |part: &str| part == module || part.strip_suffix("_suite") == Some(module);
    module == ".." || path.split('/').any(is_module)
}

/// The module and the name of each test in code spans of the form `module::test`. Types, and names
/// with `...` or `*`, do not count.
fn named_tests(page: &str) -> Vec<(&str, &str)> {
    let spans = page.split('`').skip(1).step_by(2);
    let parts = spans.filter_map(|span| span.rsplit_once("::"));
    let is_name = |text: &str, more: &str| {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || more.contains(c);
        text.chars().all(fits)
    };
    parts
        .filter(|(file, test)| is_name(file, "_/.:") && is_name(test, "_"))
        .map(|(modules, test)| {
            let module = modules.rsplit([':', '/', ' ']).next().unwrap_or(modules);
            (module.strip_suffix(".rs").unwrap_or(module), test)
        })
        .collect()
}

/// The page that lists all other pages.
const INDEX: &str = "docs/README.md";

/// Checks that the index links every page of the documentation. For decisions, it links the first
/// one.
fn index(files: &[String], findings: &mut Findings) -> anyhow::Result<()> {
    let text = tree::text(INDEX)?;
    let linked: Vec<&str> = text.lines().flat_map(targets).collect();
    for name in files.iter().filter(|name| tree::has_extension(name, "md")) {
        let Some(page) = name.strip_prefix("docs/") else {
            continue;
        };
        if name != INDEX && !page.starts_with("decisions/") && !linked.contains(&page) {
            findings.wrong(name, &format!("{INDEX} does not link to it"));
        }
    }
    Ok(())
}

/// Missing decision numbers up to the highest one. Numbers that the index names, alone or as
/// `NNNN to NNNN`, do not count.
fn gaps(numbers: &[&str], index: &str) -> Vec<u32> {
    let number = |word: &str| {
        let digits = word.trim_matches(|letter: char| !letter.is_ascii_digit());
        let is_number = digits.len() == 4;
        is_number.then(|| digits.parse::<u32>().ok()).flatten()
    };
    let taken: Vec<u32> = numbers.iter().copied().filter_map(number).collect();
    let mut named = Vec::new();
    let words: Vec<&str> = index.split_whitespace().collect();
    for (at, word) in words.iter().enumerate() {
        let Some(first) = number(word) else { continue };
        let last = match words.get(at + 1..at + 3) {
            Some(["to", last]) => number(last).unwrap_or(first),
            _ => first,
        };
        named.extend(first..=last);
    }
    let highest = taken.iter().copied().max().unwrap_or(0);
    (0..highest)
        .filter(|number| !taken.contains(number) && !named.contains(number))
        .collect()
}

/// The lines with fenced blocks replaced by empty lines, and without code spans.
fn prose(text: &str) -> Vec<String> {
    let mut fence: Option<&str> = None;
    let mut out = Vec::new();
    for line in text.lines() {
        let start = line.trim_start();
        let mark = ["```", "~~~"]
            .into_iter()
            .find(|mark| start.starts_with(mark));
        if fence.is_some() || mark.is_some() {
            fence = match (fence, mark) {
                (None, mark) => mark,
                (open, mark) if open == mark => None,
                (open, _) => open,
            };
            out.push(String::new());
        } else {
            // Every second piece between backticks is a code span.
            out.push(line.split('`').step_by(2).collect());
        }
    }
    out
}

fn one_title(name: &str, prose: &[String], findings: &mut Findings) {
    let titles = prose.iter().filter(|line| line.starts_with("# ")).count();
    if titles != 1 {
        findings.wrong(name, &format!("{titles} titles (`# `) instead of one"));
    }
}

/// Checks that every relative link leads to an existing file or folder.
fn links(name: &str, prose: &[String], exists: &dyn Fn(&str) -> bool, findings: &mut Findings) {
    let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
    for (number, line) in prose.iter().enumerate() {
        for target in targets(line) {
            let path = target.split(['#', '?']).next().unwrap_or_default();
            if path.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let place = format!("{name}:{}", number + 1);
            match joined(folder, path) {
                Some(path) if exists(&path) => {}
                Some(_) => findings.wrong(
                    &place,
                    &format!("the file of the link {target} does not exist"),
                ),
                None => findings.wrong(
                    &place,
                    &format!("the link {target} leads out of the project"),
                ),
            }
        }
    }
}

/// Targets of the links in a line: `[text](target)` and `[name]: target`.
fn targets(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, mark) in line.match_indices("](") {
        let rest = &line[at + mark.len()..];
        if let Some(end) = rest.find([')', ' ']) {
            found.push(&rest[..end]);
        }
    }
    if line.starts_with('[')
        && let Some((_, target)) = line.split_once("]: ")
    {
        found.push(target.trim());
    }
    found
}

/// `path` relative to `folder`, both with `/`. `None` if it leaves the root.
fn joined(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    let whole = if let Some(absolute) = path.strip_prefix('/') {
        absolute.to_owned()
    } else {
        format!("{folder}/{path}")
    };
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Checks that the second-level headings of a decision record are [`DECISION_PARTS`].
fn decision_parts(name: &str, prose: &[String], findings: &mut Findings) {
    let found: Vec<&str> = prose
        .iter()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    if found != DECISION_PARTS {
        let expected = DECISION_PARTS.join(", ");
        findings.wrong(name, &format!("the parts must be: {expected}"));
    }
}

/// Checks that `Unreleased` is first, and that each version has known parts in their order.
fn change_log(text: &str, findings: &mut Findings) {
    let name = "CHANGELOG.md";
    let mut versions = text.lines().filter_map(|line| line.strip_prefix("## "));
    if versions.next() != Some("Unreleased") {
        findings.wrong(name, "`## Unreleased` is not the first version");
    }
    let mut last = None;
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("## ") {
            last = None;
        } else if let Some(part) = line.strip_prefix("### ") {
            let position = CHANGE_LOG_PARTS.iter().position(|known| *known == part);
            if position.is_none() || position <= last {
                let place = format!("{name}:{}", number + 1);
                let known = CHANGE_LOG_PARTS.join(", ");
                findings.wrong(&place, &format!("parts are, in this order: {known}"));
            }
            last = position;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{change_log, gaps, has_module, joined, links, named_tests, one_title, prose};
    use crate::tidy::Findings;

    #[test]
    fn numbers_that_no_decision_has_are_explained() {
        let taken = ["0000", "0002", "0006", "0008"];
        assert_eq!(gaps(&taken, "0001, 0003 to 0005 were never used"), [7]);
        assert!(gaps(&taken, "(0001, 0003 to\n0005 and 0007).").is_empty());
    }

    #[test]
    fn tests_are_named_with_their_file() {
        let page = "| `crash::a_cut` | `edge/body::a_limit`, `..::b_2` | `row_1_...`, `log::row_1_...`, `salvage::*`, `Options::seed`, `crash` |";
        let expected = [("crash", "a_cut"), ("body", "a_limit"), ("..", "b_2")];
        assert_eq!(named_tests(page), expected);
        assert!(has_module("crates/a/tests/suite/body.rs", "body"));
        assert!(!has_module("crates/a/tests/suite/body.rs", "bod"));
    }

    fn check(text: &str, expected: usize) {
        let mut findings = Findings::default();
        let prose = prose(text);
        one_title("docs/a.md", &prose, &mut findings);
        let exists = |path: &str| ["docs/b.md", "README.md"].contains(&path);
        links("docs/a.md", &prose, &exists, &mut findings);
        assert_eq!(findings.wrong.len(), expected, "{:?}", findings.wrong);
    }

    #[test]
    fn titles_and_links_are_counted_outside_code() {
        check(
            "# A\n[b](b.md) [r](../README.md#x) [w](https://a.example/) [h](#x)\n",
            0,
        );
        check("# A\n```\n# B\n[c](c.md)\n```\n`[c](c.md)`\n", 0);
        check("# A\n[c](c.md)\n", 1);
        check("# A\n[b]: b.md\n[c]: c.md\n", 1);
        check("# A\n[c](../../c.md)\n", 1);
        check("# A\n# B\n", 1);
        check("text\n", 1);
        assert_eq!(joined("docs", "/README.md").as_deref(), Some("README.md"));
    }

    #[test]
    fn the_change_log_has_its_form() {
        let check = |text: &str, expected: usize| {
            let mut findings = Findings::default();
            change_log(text, &mut findings);
            assert_eq!(
                findings.wrong.len(),
                expected,
                "{text:?}: {:?}",
                findings.wrong
            );
        };
        check(
            "# C\n## Unreleased\n### Features\n### Internals\n## 0.1.0\n### Features\n",
            0,
        );
        check("# C\n## 0.1.0\n", 1);
        check("# C\n## Unreleased\n### Internals\n### Features\n", 1);
        check("# C\n## Unreleased\n### Odds and ends\n", 1);
    }
}
