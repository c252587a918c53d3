//! Finds circular imports between the modules of a crate: at each level, modules must form layers.
//!
//! Module A uses module B if a file of A names an item that a file of B defines, in a `use` or in a
//! path. A module and the modules below it count as one unit at the level of the module, so a child
//! may use its parent. At each level, siblings must not use each other in a circle. A re-export is
//! followed to the file that defines the item; a file that only re-exports a name does not use it.
//! Test modules do not count. A method call names no file, so the check does not detect it.
//!
//! Invariants:
//! - `circles.toml` lists the exceptions, each with its reason.
//! - An exception that is part of no circle is a violation, so that the list only shrinks.

mod modules;

use super::Findings;
use crate::metadata::Package;
use crate::tree;
use anyhow::Context as _;
use modules::Modules;
use std::collections::{BTreeMap, BTreeSet};

/// The exceptions: one table for each crate, one line `"from -> to" = "reason"` for each use. Both
/// are siblings, named by their paths below the source folder.
const EXCEPTIONS: &str = "xtask/src/tidy/circles.toml";

/// The files or modules of a crate, with the files or modules that each one uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Checks every member of the workspace.
pub(super) fn check(packages: &[Package], findings: &mut Findings) -> anyhow::Result<()> {
    let listed: BTreeMap<String, BTreeMap<String, String>> =
        toml::from_str(&tree::text(EXCEPTIONS)?).with_context(|| EXCEPTIONS.to_owned())?;
    let mut members = BTreeSet::new();
    for package in packages.iter().filter(|package| package.member) {
        members.insert(package.name.as_str());
        let mut uses = Uses::new();
        for root in ["lib", "main"] {
            let folder = format!("{}/src", package.folder);
            if let Some(modules) = Modules::read(&folder, root)? {
                modules.uses(&mut uses);
            }
        }
        let none = BTreeMap::new();
        let exceptions = listed.get(&package.name).unwrap_or(&none);
        for what in violations(&layers(&uses), exceptions) {
            findings.wrong(&format!("{}/src", package.folder), &what);
        }
    }
    for name in listed
        .keys()
        .filter(|name| !members.contains(name.as_str()))
    {
        findings.wrong(EXCEPTIONS, &format!("no crate is named {name}"));
    }
    Ok(())
}

/// Derives the uses between sibling modules, at every level, from the uses between files.
fn layers(uses: &Uses) -> Uses {
    let mut layers = Uses::new();
    for (from, targets) in uses {
        for to in targets {
            if let Some((from, to)) = siblings(from, to) {
                layers.entry(from).or_default().insert(to);
            }
        }
    }
    layers
}

/// The sibling modules that contain two files. `None` if one file is the parent of the other.
fn siblings(from: &str, to: &str) -> Option<(String, String)> {
    let parts = |name: &str| -> Vec<String> {
        let root = ["lib", "main"].contains(&name);
        let parts = name.split('/').map(str::to_owned);
        parts.filter(|part| !root && part != "mod").collect()
    };
    let (from, to) = (parts(from), parts(to));
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let ancestor = |parts: &[String]| Some(parts.get(..=common)?.join("/"));
    Some((ancestor(&from)?, ancestor(&to)?))
}

/// The violations of one crate.
fn violations(uses: &Uses, exceptions: &BTreeMap<String, String>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut remaining = uses.clone();
    let cycles = cycles(uses);
    for (line, reason) in exceptions {
        let Some((from, to)) = line.split_once(" -> ") else {
            wrong.push(format!("`{line}` in {EXCEPTIONS} is not `from -> to`"));
            continue;
        };
        let exists = uses.get(from).is_some_and(|targets| targets.contains(to));
        let closes = cycles
            .iter()
            .any(|cycle| cycle.contains(from) && cycle.contains(to));
        if !exists || !closes {
            wrong.push(format!(
                "`{line}` closes no circle any more: remove it from {EXCEPTIONS}"
            ));
        } else if reason.trim().is_empty() {
            wrong.push(format!("`{line}` has no reason in {EXCEPTIONS}"));
        }
        if let Some(targets) = remaining.get_mut(from) {
            targets.remove(to);
        }
    }
    for cycle in self::cycles(&remaining) {
        let inside: Vec<String> = cycle
            .iter()
            .flat_map(|from| {
                let targets = remaining.get(from).into_iter().flatten();
                let targets = targets.filter(|to| cycle.contains(*to));
                targets.map(move |to| format!("{from} -> {to}"))
            })
            .collect();
        wrong.push(format!(
            "{} modules use each other in a circle: {}",
            cycle.len(),
            inside.join(", ")
        ));
    }
    wrong
}

/// The maximal sets of two or more modules in which each module reaches every other one.
fn cycles(uses: &Uses) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = uses
        .keys()
        .map(|from| (from.as_str(), reach(uses, from)))
        .collect();
    let mut placed: BTreeSet<&str> = BTreeSet::new();
    let mut cycles = Vec::new();
    for (from, targets) in &reached {
        if placed.contains(from) {
            continue;
        }
        let back = |to: &&&str| reached.get(**to).is_some_and(|back| back.contains(from));
        let cycle: BTreeSet<&str> = targets.iter().filter(back).copied().collect();
        if cycle.len() > 1 {
            placed.extend(&cycle);
            cycles.push(cycle.into_iter().map(str::to_owned).collect());
        }
    }
    cycles
}

/// All modules that `from` uses, directly or indirectly.
fn reach<'a>(uses: &'a Uses, from: &'a str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut queue = vec![from];
    while let Some(next) = queue.pop() {
        for target in uses.get(next).into_iter().flatten() {
            if found.insert(target.as_str()) {
                queue.push(target);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Uses, siblings, violations};
    use std::collections::BTreeMap;

    fn uses(edges: &[(&str, &str)]) -> Uses {
        let mut uses = Uses::new();
        for (from, to) in edges {
            uses.entry((*from).to_owned())
                .or_default()
                .insert((*to).to_owned());
        }
        uses
    }

    fn check(edges: &[(&str, &str)], exceptions: &[(&str, &str)], expected: &[&str]) {
        let exceptions: BTreeMap<String, String> = exceptions
            .iter()
            .map(|(line, reason)| ((*line).to_owned(), (*reason).to_owned()))
            .collect();
        let found = violations(&uses(edges), &exceptions);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found} has no `{expected}`");
        }
    }

    #[test]
    fn a_use_counts_between_siblings() {
        let check = |from: &str, to: &str, expected: Option<(&str, &str)>| {
            let expected = expected.map(|(from, to)| (from.to_owned(), to.to_owned()));
            assert_eq!(siblings(from, to), expected, "{from} -> {to}");
        };
        check("a", "b", Some(("a", "b")));
        check("a/c", "b/d/e", Some(("a", "b")));
        check("a/c/x", "a/d", Some(("a/c", "a/d")));
        check("a/c", "a", None);
        check("a", "a/c", None);
        check("a", "lib", None);
        check("main", "a/c", None);
    }

    #[test]
    fn a_circle_is_a_violation_unless_it_is_listed() {
        let cycle = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")];
        check(&cycle[..2], &[], &[]);
        check(
            &cycle,
            &[],
            &["3 modules use each other in a circle: a -> b"],
        );
        check(&cycle, &[("c -> a", "one pass")], &[]);
        check(&cycle, &[("c -> a", " ")], &["has no reason"]);
    }

    #[test]
    fn an_exception_that_closes_no_circle_is_a_violation() {
        let line = [("a", "b"), ("b", "c")];
        check(&line, &[("b -> c", "why")], &["closes no circle any more"]);
        check(&line, &[("c -> a", "why")], &["closes no circle any more"]);
        check(&line, &[("c, a", "why")], &["is not `from -> to`"]);
    }
}
