//! Running the steps of a check, and the commands they consist of.
//!
//! Invariant: each step prints its name, its verdict and the time it took, in that order.

use anyhow::Context as _;
use std::process::Command;
use std::time::Instant;

/// One step of a check.
pub(crate) struct Step {
    /// Short name, which is also the name of the xtask command that runs it alone.
    pub(crate) name: &'static str,
    /// What it does; fails with the reason.
    pub(crate) run: fn() -> anyhow::Result<()>,
}

/// Runs the steps in order and stops at the first that fails.
pub(crate) fn all(steps: &[Step]) -> anyhow::Result<()> {
    let start = Instant::now();
    for step in steps {
        one(step)?;
    }
    println!(
        "check: {} steps passed in {:.1} s",
        steps.len(),
        start.elapsed().as_secs_f32()
    );
    Ok(())
}

/// Runs one step and prints its verdict and time.
pub(crate) fn one(step: &Step) -> anyhow::Result<()> {
    println!("-- {}", step.name);
    let start = Instant::now();
    let result = (step.run)();
    let seconds = start.elapsed().as_secs_f32();
    match result {
        Ok(()) => {
            println!("-- {} passed in {seconds:.1} s", step.name);
            Ok(())
        }
        Err(error) => {
            println!("-- {} FAILED after {seconds:.1} s", step.name);
            Err(error).with_context(|| {
                format!(
                    "step `{0}` failed; `cargo xtask {0}` runs it alone",
                    step.name
                )
            })
        }
    }
}

/// A cargo command in the root of the project, by the cargo that runs this.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(crate::tree::root());
    command
}

/// Options with which one package is built for tests, so that it shares foreign crates with the
/// workspace (`xtask/workspace-features`).
pub(crate) const FEATURES: &[&str] = &["--features", "workspace-features"];

/// Options with which the C library is built for release, so that it shares foreign crates with the
/// `weir` command (`xtask/command-features`).
pub(crate) const COMMAND_FEATURES: &[&str] = &["--features", "command-features"];

/// Builds the libraries and commands of the workspace with the features that its tests are built
/// with, which are those of all members and of their tests together. A build of one package has
/// fewer, and compiles the engine of programs and most of the rest a second time.
pub(crate) fn build_workspace() -> anyhow::Result<()> {
    succeed(&mut cargo(&[
        "build",
        "--quiet",
        "--locked",
        "--workspace",
        "--lib",
        "--bin",
        "weir",
        "--tests",
    ]))
}

/// Runs a command to its end; an exit code other than 0 is an error that names the command.
pub(crate) fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let shown = shown(command);
    let status = command
        .status()
        .with_context(|| format!("cannot start `{shown}`"))?;
    anyhow::ensure!(status.success(), "`{shown}` ended with {status}");
    Ok(())
}

/// The command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let mut words = vec![
        std::path::Path::new(command.get_program())
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
    ];
    words.extend(
        command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned()),
    );
    words.join(" ")
}
