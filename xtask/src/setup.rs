//! Parts of the toolchain that checks and tests need, installed when they are missing.
//!
//! Invariant: running it again changes nothing, and it says what it does before it does it.

use crate::steps::{cargo, succeed};
use std::process::{Command, Stdio};

/// Subcommands of cargo, and the rustup component that brings each.
const COMPONENTS: &[(&str, &str)] = &[("fmt", "rustfmt"), ("clippy", "clippy")];

/// Packages of Debian that tests use: their names, and a file that each brings
/// below a directory of `/usr/lib`.
const PACKAGES: &[(&str, &str)] = &[("faketime", "faketime/libfaketimeMT.so.1")];

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
    for (package, file) in PACKAGES {
        if brought(file) {
            continue;
        }
        println!("setup: installing the package {package}");
        // The lists of packages may be missing or old.
        let _ = Command::new("apt-get").args(["-q", "update"]).status();
        succeed(Command::new("apt-get").args(["-q", "-y", "install", package])).map_err(
            |error| {
                error.context(format!(
                "the package {package} is missing; install it as root: `apt-get install {package}`"
            ))
            },
        )?;
    }
    println!("setup: everything the tests need is there");
    Ok(())
}

/// Whether a package's file is there.
fn brought(file: &str) -> bool {
    let Ok(places) = std::fs::read_dir("/usr/lib") else {
        return false;
    };
    places
        .flatten()
        .any(|place| place.path().join(file).exists())
}

fn present(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
