//! Tells `weir version` the commit it is built from, where that is known.
//!
//! Without git, or outside its own repository, nothing is said; a build never
//! fails here.
#![allow(
    clippy::print_stdout,
    reason = "this is how a build script speaks to cargo"
)]

use std::path::Path;
use std::process::Command;

/// Place of this crate in its repository.
const HERE: &str = "crates/weir-cli/";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=WEIR_COMMIT");
    // The sources may lie in a repository that is not theirs.
    if git(&["rev-parse", "--show-prefix"]).as_deref() != Some(HERE) {
        return;
    }
    // HEAD changes with the branch, its log with each commit.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name])
            && Path::new(&path).exists()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    if std::env::var_os("WEIR_COMMIT").is_none()
        && let Some(commit) = git(&["rev-parse", "--short", "HEAD"])
    {
        println!("cargo::rustc-env=WEIR_COMMIT={commit}");
    }
}

/// One line of git's output.
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.trim();
    (output.status.success() && !line.is_empty()).then(|| line.to_owned())
}
