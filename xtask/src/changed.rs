//! Finds the packages of the workspace whose files differ from a commit.

use crate::metadata::{self, Package};
use crate::tree;
use crate::wasm::finish;
use anyhow::ensure;
use std::collections::BTreeSet;
use std::process::Command;

/// The differences from a commit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Names of the packages with changed files.
    pub(crate) packages: BTreeSet<String>,
    /// Changed files outside of all packages.
    pub(crate) others: Vec<String>,
}

/// Compares the files in the tree with a commit. New files count unless git ignores them.
pub(crate) fn since(commit: &str) -> anyhow::Result<Changed> {
    ensure!(!commit.starts_with('-'), "`{commit}` is not a commit");
    let mut files = git(&["diff", "--name-only", "--relative", "-z", commit, "--"])?;
    files.extend(git(&["ls-files", "--others", "--exclude-standard", "-z"])?);
    Ok(assign(&metadata::load()?, files))
}

/// Runs a git command that prints paths, each with a zero byte after it.
fn git(arguments: &[&str]) -> anyhow::Result<Vec<String>> {
    let output = finish(
        Command::new("git")
            .args(arguments)
            .current_dir(tree::root()),
    );
    let output = String::from_utf8(output.map_err(anyhow::Error::msg)?)?;
    Ok(output.split_terminator('\0').map(str::to_owned).collect())
}

/// Assigns each file to the package in the innermost folder.
fn assign(packages: &[Package], files: Vec<String>) -> Changed {
    let mut changed = Changed {
        packages: BTreeSet::new(),
        others: Vec::new(),
    };
    for file in files {
        let contains = |package: &&Package| {
            let rest = file.strip_prefix(&package.folder);
            package.member && rest.is_some_and(|rest| rest.starts_with('/'))
        };
        let found = packages.iter().filter(contains);
        match found.max_by_key(|package| package.folder.len()) {
            Some(package) => {
                changed.packages.insert(package.name.clone());
            }
            None => changed.others.push(file),
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::{Changed, assign};
    use crate::metadata::Package;

    fn package(name: &str, folder: &str, member: bool) -> Package {
        Package {
            name: name.to_owned(),
            version: String::new(),
            description: String::new(),
            license: String::new(),
            source: None,
            member,
            folder: folder.to_owned(),
            dependencies: Vec::new(),
            targets: Vec::new(),
        }
    }

    #[test]
    fn a_file_belongs_to_the_package_in_the_innermost_folder() {
        let packages = [
            package("foreign", "", false),
            package("weir", "crates/weir", true),
            package("xtask", "xtask", true),
            package("command-features", "xtask/command-features", true),
        ];
        let files = [
            "crates/weir/src/lib.rs",
            "crates/weir-new/src/lib.rs",
            "xtask/command-features/Cargo.toml",
            "vectors/errors.toml",
        ];
        let files = files.map(str::to_owned).to_vec();
        let expected = Changed {
            packages: ["command-features", "weir"].map(str::to_owned).into(),
            others: ["crates/weir-new/src/lib.rs", "vectors/errors.toml"]
                .map(str::to_owned)
                .to_vec(),
        };
        assert_eq!(assign(&packages, files), expected);
    }
}
