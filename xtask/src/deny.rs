//! Checks dependencies: a fast check of the lock file, and cargo-deny.
//!
//! Invariant: both apply the rules of `deny.toml`. The fast check takes about a second; it applies
//! the lists of licences, bans and sources, and reports duplicates.

use crate::metadata::{self, Package};
use crate::steps::{cargo, succeed};
use crate::tree;
use anyhow::{Context as _, ensure};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;
use toml::Table;

/// The version that is installed if cargo-deny is missing.
const CARGO_DENY: &str = "0.20.2";

/// Where cargo-deny expects the database: `db-path` of `deny.toml`, and a name that cargo-deny
/// derives from the address of the database.
const ADVISORIES: &str = "target/tools/advisory-dbs/advisory-db-3157b0e258782691";

/// Rules of `deny.toml` that the fast check applies.
struct Rules {
    licences: Vec<String>,
    banned: Vec<Ban>,
    registries: Vec<String>,
}

/// A banned crate: `name`, or `name@<1.2.3` for versions before that one.
struct Ban {
    text: String,
    name: String,
    before: Option<[u64; 3]>,
}

impl Ban {
    fn parse(text: String) -> anyhow::Result<Self> {
        let (name, before) = match text.split_once("@<") {
            Some((name, version)) => (name.to_owned(), Some(numbers(version))),
            None => (text.clone(), None),
        };
        ensure!(
            !name.contains(['@', ':']),
            "`{text}` is not `NAME` or `NAME@<VERSION`"
        );
        Ok(Self { text, name, before })
    }

    fn covers(&self, package: &Package) -> bool {
        package.name == self.name
            && self
                .before
                .is_none_or(|before| numbers(&package.version) < before)
    }
}

/// The three numbers of a version, without its suffixes.
fn numbers(version: &str) -> [u64; 3] {
    let core = version.split(['-', '+']).next().unwrap_or_default();
    let mut parts = core.split('.').map(|part| part.parse().unwrap_or(0));
    [(); 3].map(|()| parts.next().unwrap_or(0))
}

/// Runs the fast check.
pub(crate) fn licences() -> anyhow::Result<()> {
    let rules = rules(&tree::text("deny.toml")?).context("deny.toml")?;
    let packages = metadata::load()?;
    let wrong = violations(&packages, &rules);
    for line in &wrong {
        println!("licences: {line}");
    }
    for line in duplicates(&packages) {
        println!("note: {line}");
    }
    ensure!(wrong.is_empty(), "{} violations, listed above", wrong.len());
    let foreign = packages
        .iter()
        .filter(|package| package.source.is_some())
        .count();
    println!("{foreign} foreign packages");
    Ok(())
}

/// Runs cargo-deny, and installs it first if it is missing. Checks advisories if a database is
/// given.
pub(crate) fn run_cargo_deny() -> anyhow::Result<()> {
    let tools = tree::root().join("target/tools");
    let binary = tools.join("bin/cargo-deny");
    if !binary.exists() {
        println!("deny: building cargo-deny {CARGO_DENY}; this takes some minutes, once");
        let mut install = cargo(&["install", "--locked", "cargo-deny", "--version", CARGO_DENY]);
        succeed(install.arg("--root").arg(&tools))?;
    }
    let deny = |arguments: &[&str]| {
        succeed(
            Command::new(&binary)
                .current_dir(tree::root())
                .args(arguments),
        )
    };
    deny(&["--locked", "check", "bans", "licenses", "sources"])?;
    let Some(database) = std::env::var_os("WEIR_ADVISORY_DB") else {
        println!("deny: advisories are not checked, because WEIR_ADVISORY_DB is not set");
        return Ok(());
    };
    place_advisories(Path::new(&database), &tree::root().join(ADVISORIES))?;
    deny(&["--locked", "--offline", "check", "advisories"])
}

/// Copies an unpacked `RustSec` database to where cargo-deny expects its clone.
///
/// cargo-deny derives the age of the data from the time of the last fetch. So that time is set to
/// the time of the newest advisory.
fn place_advisories(from: &Path, to: &Path) -> anyhow::Result<()> {
    ensure!(
        from.join("crates").is_dir(),
        "{} is not a RustSec database",
        from.display()
    );
    if to.exists() {
        std::fs::remove_dir_all(to)?;
    }
    let mut newest = SystemTime::UNIX_EPOCH;
    for part in ["crates", "rust"] {
        copy(&from.join(part), &to.join(part), &mut newest)?;
    }
    let git = to.join(".git");
    std::fs::create_dir_all(&git)?;
    std::fs::File::create(git.join("FETCH_HEAD"))?.set_modified(newest)?;
    let days = newest.elapsed().map_or(0, |age| age.as_secs() / 86_400);
    println!("deny: advisories are {days} days old");
    Ok(())
}

fn copy(from: &Path, to: &Path, newest: &mut SystemTime) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target, newest)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
            *newest = (*newest).max(entry.metadata()?.modified()?);
        }
    }
    Ok(())
}

fn rules(text: &str) -> anyhow::Result<Rules> {
    let table: Table = text.parse()?;
    let list = |part: &str, field: &str| -> anyhow::Result<Vec<toml::Value>> {
        let value = table.get(part).and_then(|part| part.get(field));
        let value = value.and_then(toml::Value::as_array);
        Ok(value
            .with_context(|| format!("[{part}] has no list `{field}`"))?
            .clone())
    };
    let names = |values: Vec<toml::Value>| -> Vec<String> {
        values
            .iter()
            .filter_map(|value| value.as_str().or_else(|| value.get("crate")?.as_str()))
            .map(str::to_owned)
            .collect()
    };
    Ok(Rules {
        licences: names(list("licenses", "allow")?),
        banned: names(list("bans", "deny")?)
            .into_iter()
            .map(Ban::parse)
            .collect::<anyhow::Result<_>>()?,
        registries: names(list("sources", "allow-registry")?),
    })
}

fn violations(packages: &[Package], rules: &Rules) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in packages {
        let place = format!("{} {}", package.name, package.version);
        if !satisfied(&package.license, &rules.licences) {
            wrong.push(format!(
                "{place}: licence `{}` is not allowed",
                package.license
            ));
        }
        for ban in rules.banned.iter().filter(|ban| ban.covers(package)) {
            wrong.push(format!("{place}: banned by deny.toml (`{}`)", ban.text));
        }
        if let Some(source) = &package.source {
            let from = source.strip_prefix("registry+").unwrap_or(source);
            if !rules.registries.iter().any(|registry| registry == from) {
                wrong.push(format!("{place}: comes from {source}"));
            }
        }
    }
    wrong
}

/// Packages that occur in more than one version.
fn duplicates(packages: &[Package]) -> Vec<String> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        versions
            .entry(&package.name)
            .or_default()
            .push(&package.version);
    }
    versions
        .into_iter()
        .filter(|(_, versions)| versions.len() > 1)
        .map(|(name, versions)| {
            format!(
                "{name} occurs in {} versions: {}",
                versions.len(),
                versions.join(", ")
            )
        })
        .collect()
}

/// Whether the allowed licences satisfy the licence expression.
///
/// The grammar is that of SPDX. `OR` has the lowest precedence, then `AND`, then `WITH`. `/` is an
/// old form of `OR`.
fn satisfied(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let verdict = any_of(&mut rest, allowed);
    verdict && rest.is_empty()
}

fn any_of(words: &mut &[&str], allowed: &[String]) -> bool {
    let mut verdict = all_of(words, allowed);
    while let Some((&"OR", rest)) = words.split_first() {
        *words = rest;
        // Both sides are always parsed, because all words must be consumed.
        let right = all_of(words, allowed);
        verdict = verdict || right;
    }
    verdict
}

fn all_of(words: &mut &[&str], allowed: &[String]) -> bool {
    let mut verdict = term(words, allowed);
    while let Some((&"AND", rest)) = words.split_first() {
        *words = rest;
        let right = term(words, allowed);
        verdict = verdict && right;
    }
    verdict
}

fn term(words: &mut &[&str], allowed: &[String]) -> bool {
    let Some((first, rest)) = words.split_first() else {
        return false;
    };
    *words = rest;
    if *first == "(" {
        let verdict = any_of(words, allowed);
        let Some((&")", rest)) = words.split_first() else {
            return false;
        };
        *words = rest;
        return verdict;
    }
    if let [with, exception, rest @ ..] = *words
        && *with == "WITH"
    {
        *words = rest;
        let whole = format!("{first} WITH {exception}");
        return allowed.contains(&whole);
    }
    allowed.iter().any(|licence| licence == first)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::{Ban, rules, satisfied, violations};
    use crate::metadata::Package;

    fn package(name: &str, version: &str) -> Package {
        Package {
            name: name.to_owned(),
            version: version.to_owned(),
            description: String::new(),
            license: "MIT".to_owned(),
            source: Some("registry+https://a.example/index".to_owned()),
            member: false,
            folder: String::new(),
            dependencies: Vec::new(),
            targets: Vec::new(),
        }
    }

    #[test]
    fn bans_sources_and_licences_are_applied() {
        let rules = rules(
            "[licenses]\nallow = [\"MIT\"]\n[bans]\ndeny = [{ crate = \"a\" }, \"b@<1.10.2\"]\n\
             [sources]\nallow-registry = [\"https://a.example/index\"]\n",
        )
        .unwrap();
        let check = |package: Package, expected: &str| {
            let found = violations(&[package], &rules).join("; ");
            assert!(
                found.contains(expected) && found.is_empty() == expected.is_empty(),
                "{found}"
            );
        };
        check(package("c", "1.0.0"), "");
        check(package("a", "1.0.0"), "banned");
        check(package("b", "1.9.9"), "banned");
        check(package("b", "1.10.2"), "");
        check(
            Package {
                source: None,
                ..package("c", "1.0.0")
            },
            "",
        );
        let elsewhere = Some("git+https://a.example/c".to_owned());
        check(
            Package {
                source: elsewhere,
                ..package("c", "1.0.0")
            },
            "comes from",
        );
        check(
            Package {
                license: "GPL-3.0".to_owned(),
                ..package("c", "1.0.0")
            },
            "licence",
        );
        assert!(Ban::parse("a:1.0".to_owned()).is_err());
    }

    #[test]
    fn expressions_follow_spdx() {
        let allowed: Vec<String> = ["MIT", "BSD-3-Clause", "Apache-2.0 WITH LLVM-exception"]
            .map(str::to_owned)
            .into();
        let check = |expression: &str, expected: bool| {
            assert_eq!(satisfied(expression, &allowed), expected, "{expression}");
        };
        check("MIT", true);
        check("MIT OR GPL-3.0", true);
        check("GPL-3.0 OR MIT", true);
        check("MIT/GPL-3.0", true);
        check("MIT AND GPL-3.0", false);
        check("MIT AND BSD-3-Clause", true);
        check("(GPL-3.0 OR MIT) AND BSD-3-Clause", true);
        check("GPL-3.0 OR MIT AND GPL-2.0", false);
        check("Apache-2.0 WITH LLVM-exception OR GPL-3.0", true);
        check("Apache-2.0", false);
        check("MIT WITH LLVM-exception", false);
        check("", false);
        check("(MIT", false);
    }
}
