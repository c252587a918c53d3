//! Executes the page of a package in an empty directory: its installation, then its first program.
//!
//! Invariants:
//! - The caller lists each printed line that is replaced by another command. A listed line that is
//!   not on the page is an error.
//! - The program accesses no file of the source tree, except by the path that the page names.

use crate::tree;
use crate::wasm::{Verdict, finish};
use anyhow::Context as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The first block of a language after a heading.
fn block<'a>(text: &'a str, heading: &str, language: &str) -> anyhow::Result<&'a str> {
    let missing = || format!("the page has no {language} under {heading}");
    let (_, rest) = text.split_once(heading).with_context(missing)?;
    let (_, rest) = rest
        .split_once(&format!("```{language}\n"))
        .with_context(missing)?;
    let (block, _) = rest.split_once("```").with_context(missing)?;
    Ok(block)
}

/// The printed commands, with the first part of each pair of `replacements` replaced by the second.
fn commands(printed: &str, replacements: &[(&str, &str)]) -> anyhow::Result<String> {
    let mut lines: Vec<&str> = printed.lines().collect();
    for (line, other) in replacements {
        let at = lines.iter().position(|printed| printed == line);
        let at = at.with_context(|| format!("the page does not print `{line}` any more"))?;
        lines[at] = other;
    }
    Ok(lines.join("\n"))
}

/// The commands under `Install` on the page of `package`, for execution in `directory`. That
/// directory is created again, empty except for a link to the folder of packages.
pub(crate) fn installation(
    package: &str,
    directory: &Path,
    replacements: &[(&str, &str)],
) -> anyhow::Result<String> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    fs::create_dir_all(directory)?;
    std::os::unix::fs::symlink(tree::root().join("bindings"), directory.join("bindings"))?;
    let page = tree::text(&format!("bindings/{package}/README.md"))?;
    commands(block(&page, "## Install", "sh")?, replacements)
}

/// Executes the page of `package` below `directory`: the commands under `Install`, and then
/// `command` with the first program of `language` in the file `file`.
pub(crate) fn run(
    package: &str,
    directory: &Path,
    replacements: &[(&str, &str)],
    (language, file, command): (&str, &str, &str),
    shell: impl Fn() -> Command,
) -> anyhow::Result<Verdict> {
    let install = installation(package, directory, replacements)?;
    let page = tree::text(&format!("bindings/{package}/README.md"))?;
    fs::write(
        directory.join(file),
        block(&page, "## Quick start", language)?,
    )?;
    for script in [install.as_str(), command] {
        let mut shell = shell();
        shell.args(["-euc", script]).current_dir(directory);
        if let Err(why) = finish(&mut shell) {
            return Ok(Verdict::Failed(why));
        }
    }
    Ok(Verdict::Passed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::{block, commands};

    #[test]
    fn a_line_that_is_not_on_the_page_is_an_error() {
        let page = "## A\n```sh\nno\n```\n## Install\n```sh\nmake --release\nrun\n```\n";
        let printed = block(page, "## Install", "sh").unwrap();
        assert_eq!(printed, "make --release\nrun\n");
        let replaced = commands(printed, &[("make --release", "make")]).unwrap();
        assert_eq!(replaced, "make\nrun");
        assert!(commands(printed, &[("make it", "make")]).is_err());
        assert!(block(page, "## Install", "js").is_err());
        assert!(block(page, "## Other", "sh").is_err());
    }
}
