//! Passes the commit of the build to `weir version`, if it is known.
//!
//! Without git, or outside of its own repository, the script passes nothing. A build never fails
//! here.
#![allow(
    clippy::print_stdout,
    reason = "this is how a build script speaks to cargo"
)]

use std::path::Path;
use std::process::Command;

/// Path of this crate in its repository.
const HERE: &str = "crates/weir-cli/";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=WEIR_COMMIT");
    // The sources may be in a different repository, for example vendored.
    if git(&["rev-parse", "--show-prefix"]).as_deref() != Some(HERE) {
        return;
    }
    // HEAD changes with the branch, and its log with each commit.
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

/// Runs git, and returns its output if that is one line.
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.trim();
    (output.status.success() && !line.is_empty()).then(|| line.to_owned())
}
