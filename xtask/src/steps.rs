//! Runs the steps of a check, and their commands.
//!
//! Invariant: each step prints its name, its verdict and the time it took, in that order.

use anyhow::Context as _;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;

/// One step of a check.
pub(crate) struct Step {
    /// Short name, which is also the name of the xtask command that runs it alone.
    pub(crate) name: &'static str,
    /// Runs the step. Fails with the reason.
    pub(crate) run: fn() -> anyhow::Result<()>,
}

/// Runs the steps in order, and stops at the first failure.
pub(crate) fn all(steps: impl Iterator<Item = &'static Step>) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut count = 0;
    for step in steps {
        run_one(step)?;
        count += 1;
    }
    println!(
        "check: {count} steps passed in {:.1} s",
        start.elapsed().as_secs_f32()
    );
    Ok(())
}

/// Runs one step and prints its verdict and time.
pub(crate) fn run_one(step: &Step) -> anyhow::Result<()> {
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

/// A cargo command in the root of the project, with the cargo that runs this program.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(crate::tree::root());
    command
}

/// Options for test builds of one package, so that it shares all other crates with the workspace
/// (`xtask/workspace-features`).
pub(crate) const FEATURES: &[&str] = &["--features", "workspace-features"];

/// Options for the release build of the C library, so that it shares foreign crates with the `weir`
/// command (`xtask/command-features`).
pub(crate) const COMMAND_FEATURES: &[&str] = &["--features", "command-features"];

/// Builds the libraries and commands of the workspace with the features of its test build, which
/// are those of all members and their tests. A build of one package has fewer features, and would
/// compile most crates a second time.
///
/// Only the first call builds: sources do not change while suites run, and even a build without
/// work takes a second.
pub(crate) fn build_workspace() -> anyhow::Result<()> {
    static BUILT: OnceLock<Result<(), String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let mut command = cargo(&["build", "--quiet", "--locked", "--workspace"]);
        command.args(["--lib", "--bin", "weir", "--tests"]);
        succeed(&mut command).map_err(|error| format!("{error:#}"))
    });
    built.clone().map_err(anyhow::Error::msg)
}

/// Runs a command to its end. An exit code other than 0 is an error that names the command.
pub(crate) fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let shown = shown(command);
    let status = command
        .status()
        .with_context(|| format!("cannot start `{shown}`"))?;
    anyhow::ensure!(status.success(), "`{shown}` ended with {status}");
    Ok(())
}

/// The command as typed in a shell.
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
