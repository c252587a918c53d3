//! Rules for external data: `data/README.md` has a line with the hash of each file.

use super::Findings;
use crate::tree;
use anyhow::{Context as _, ensure};
use std::process::Command;

/// Checks every file below `data`.
pub(super) fn check(files: &[String], findings: &mut Findings) -> anyhow::Result<()> {
    let inside: Vec<&String> = files
        .iter()
        .filter(|name| name.starts_with("data/") && *name != "data/README.md")
        .collect();
    if inside.is_empty() {
        return Ok(());
    }
    let page = tree::text("data/README.md")?;
    for name in inside {
        let file = name.strip_prefix("data/").unwrap_or(name);
        let hash = sha256(name)?;
        // One row of the table must contain both.
        if !page
            .lines()
            .any(|line| line.contains(file) && line.contains(&hash))
        {
            findings.wrong(
                name,
                &format!("no line of data/README.md has it with {hash}"),
            );
        }
    }
    Ok(())
}

/// SHA-256 of a file in lower-case hexadecimal, computed by coreutils.
fn sha256(name: &str) -> anyhow::Result<String> {
    let output = Command::new("sha256sum")
        .args(["--", name])
        .current_dir(tree::root())
        .output()
        .context("cannot start sha256sum")?;
    ensure!(output.status.success(), "sha256sum failed on {name}");
    let text = String::from_utf8(output.stdout)?;
    Ok(text
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned())
}
