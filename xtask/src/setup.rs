//! Parts of the toolchain that checks and tests need, installed when they are missing.
//!
//! Invariant: running it again changes nothing, and it says what it does before it does it.

use crate::steps::{cargo, succeed};
use std::process::{Command, Stdio};

/// Subcommands of cargo, and the rustup component that brings each.
const COMPONENTS: &[(&str, &str)] = &[("fmt", "rustfmt"), ("clippy", "clippy")];

/// Looks for everything and installs what is missing.
pub(crate) fn setup() -> anyhow::Result<()> {
    for (subcommand, component) in COMPONENTS {
        if present(&mut cargo(&[subcommand, "--version"])) {
            continue;
        }
        println!("setup: installing the toolchain component {component}");
        succeed(
            Command::new("rustup")
                .args(["component", "add", component])
                .current_dir(crate::tree::root()),
        )
        .map_err(|error| {
            error.context(format!(
                "`cargo {subcommand}` is missing; install the component {component} of Rust"
            ))
        })?;
    }
    println!("setup: everything the tests need is there");
    Ok(())
}

fn present(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
