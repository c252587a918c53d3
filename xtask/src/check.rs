//! The gate: the order of its steps, and the steps that only call cargo.
//!
//! Invariant: every step that compiles uses the dev profile and the features of the whole
//! workspace, so that clippy, doc and tests share builds and nothing is built twice.

use crate::changed;
use crate::steps::{self, COMMAND_FEATURES, FEATURES, Step, cargo, succeed};
use crate::suites;
use crate::tree;
use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Instant;

/// Steps that compile nothing, so that a wrong import fails before a build starts.
const QUICK: &[Step] = &[
    Step {
        name: "fmt",
        run: fmt,
    },
    Step {
        name: "tidy",
        run: crate::tidy::tidy,
    },
    Step {
        name: "gen --check",
        run: crate::generate::compare,
    },
    Step {
        name: "licences",
        run: crate::deny::licences,
    },
    Step {
        name: "lock-files",
        run: lock_files,
    },
    Step {
        name: "features",
        run: features,
    },
];

/// Steps that compile.
const COMPILING: &[Step] = &[
    Step {
        name: "clippy",
        run: clippy,
    },
    Step {
        name: "doc",
        run: doc,
    },
];

/// Runs all steps, and stops at the first failure.
pub(crate) fn check() -> anyhow::Result<()> {
    steps::all(QUICK.iter().chain(COMPILING))
}

/// Runs all steps and all tests, also after a failure, and prints the totals. Returns `false` if
/// anything failed.
pub(crate) fn test() -> anyhow::Result<bool> {
    crate::setup::setup()?;
    let mut summary = suites::Summary::default();
    run_steps(&mut summary);
    suites::all(&mut summary)?;
    Ok(summary.close())
}

/// Names of the steps before the tests of changed packages.
const CHANGED_STEPS: &[&str] = &["fmt", "tidy", "gen --check", "clippy"];

/// Runs [`CHANGED_STEPS`], and the tests of the packages whose files differ from a commit. Prints
/// the totals. Returns `false` if anything failed.
pub(crate) fn test_changed(commit: &str) -> anyhow::Result<bool> {
    let changed = changed::since(commit)?;
    let mut summary = suites::Summary::default();
    for step in QUICK.iter().chain(COMPILING) {
        if CHANGED_STEPS.contains(&step.name) {
            run_step(step, &mut summary);
        }
    }
    if !changed.packages.is_empty() {
        suites::packages(&changed.packages, &mut summary)?;
    }
    for file in &changed.others {
        println!("not tested: {file}");
    }
    let packages: Vec<&str> = changed.packages.iter().map(String::as_str).collect();
    let packages = packages.join(", ");
    println!("only packages with changes since {commit} were tested: {packages}");
    Ok(summary.close())
}

/// Runs all steps. The quick steps use one core, so they run beside those that compile.
fn run_steps(summary: &mut suites::Summary) {
    let mut quick = suites::Summary::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for step in QUICK {
                run_step(step, &mut quick);
            }
        });
        for step in COMPILING {
            run_step(step, summary);
        }
    });
    summary.merge(quick);
}

/// Runs one step, and counts its verdict and its time.
fn run_step(step: &Step, summary: &mut suites::Summary) {
    let start = Instant::now();
    let result = steps::run_one(step);
    summary.add_time(step.name, start.elapsed());
    if let Err(error) = &result {
        println!("{error:#}");
    }
    summary.step(step.name, result.is_ok());
}

/// Checks a server against the description of the HTTP API.
pub(crate) fn api() -> bool {
    let mut summary = suites::Summary::default();
    suites::api(&mut summary);
    summary.close()
}

/// Runs the conformance suite of Durable Streams.
pub(crate) fn ds() -> bool {
    let mut summary = suites::Summary::default();
    suites::durable_streams(&mut summary);
    summary.close()
}

/// Runs the public suites of JSON and JSONPath.
pub(crate) fn json() -> bool {
    let mut summary = suites::Summary::default();
    suites::json(&mut summary);
    summary.close()
}

/// Tests the languages over the C library.
pub(crate) fn bindings() -> bool {
    let mut summary = suites::Summary::default();
    suites::bindings(&mut summary);
    summary.close()
}

/// Tests the Python package.
pub(crate) fn python() -> bool {
    let mut summary = suites::Summary::default();
    suites::python(&mut summary);
    summary.close()
}

/// Tests the Node package.
pub(crate) fn node() -> bool {
    let mut summary = suites::Summary::default();
    suites::node(&mut summary);
    summary.close()
}

/// Tests the Emacs package.
pub(crate) fn emacs() -> bool {
    let mut summary = suites::Summary::default();
    suites::emacs(&mut summary);
    summary.close()
}

/// Runs the tests of the Rust workspace, and prints the totals.
pub(crate) fn test_rust() -> anyhow::Result<bool> {
    let mut summary = suites::Summary::default();
    suites::rust(&mut summary)?;
    Ok(summary.close())
}

/// Checks the formatting of the workspace.
pub(crate) fn fmt() -> anyhow::Result<()> {
    succeed(&mut cargo(&["fmt", "--all", "--check"]))
}

/// Checks that the lock files of the other workspaces fit the packages that they use from this one.
/// Those workspaces are built on demand, so no other check would find a difference.
pub(crate) fn lock_files() -> anyhow::Result<()> {
    for lock in tree::files()? {
        let Some(folder) = lock.strip_suffix("/Cargo.lock") else {
            continue;
        };
        let manifest = format!("{folder}/Cargo.toml");
        let mut command = cargo(&["metadata", "--locked", "--format-version", "1"]);
        command.args(["--quiet", "--manifest-path", &manifest]);
        succeed(command.stdout(Stdio::null()))?;
    }
    Ok(())
}

/// Packages that users embed, without programs, TLS, and what only tests use. Foreign crates have
/// the features of the workspace.
const BARE: &[&str] = &[
    "--package=weir",
    "--package=weir-program",
    "--package=weir-raft",
    "--package=workspace-features",
    "--no-default-features",
];

/// The command that users install. Its own crates have the features of that build, without those
/// that only tests use. Foreign crates have the features of the workspace.
const COMMAND: &[&str] = &["--package=weir-cli", "--package=workspace-features"];

/// Checks that builds of single packages share crates with a larger build. Test builds share them
/// with the workspace, release builds with the `weir` command. Otherwise each build would compile
/// these crates again.
pub(crate) fn features() -> anyhow::Result<()> {
    let with_dev = "--edges=normal,build,dev";
    let workspace = resolved(&["--workspace", with_dev])?;
    for package in ["weir-capi", "weir-node", "weir-python"] {
        let build = [&["--package", package][..], FEATURES].concat();
        shares(&build, &[package, "workspace-features"], &workspace)?;
    }
    let release = [suites::RELEASE, &[with_dev]].concat();
    shares(&release, &[], &workspace)?;
    let own = ["weir", "weir-program", "weir-raft", "weir-store"];
    shares(BARE, &own, &workspace)?;
    let command = resolved(&["--package", "weir-cli"])?;
    let library = [&["--package", "weir-capi"][..], COMMAND_FEATURES].concat();
    shares(&library, &["weir-capi", "command-features"], &command)
}

/// Checks that a build has the crates and features of the larger build, except those of `own`.
fn shares(build: &[&str], own: &[&str], larger: &BTreeSet<String>) -> anyhow::Result<()> {
    for one in resolved(build)?.difference(larger) {
        let name = one.split(' ').next().unwrap_or_default();
        anyhow::ensure!(
            own.contains(&name),
            "the build of {build:?} has `{one}`, which the larger build has with other features: \
             list them in a package for features below xtask"
        );
    }
    Ok(())
}

/// The crates of a build, with their features.
fn resolved(options: &[&str]) -> anyhow::Result<BTreeSet<String>> {
    let mut command = cargo(&["tree", "--locked", "--prefix", "none"]);
    command.args(["--format", "{p} [{f}]"]);
    if !options.iter().any(|option| option.starts_with("--edges")) {
        command.arg("--edges=normal,build");
    }
    let output = command.args(options).output()?;
    anyhow::ensure!(
        output.status.success(),
        "`{}` ended with {}",
        steps::shown(&command),
        output.status
    );
    let text = String::from_utf8(output.stdout)?;
    let plain = |line: &str| line.replace(" (*)", "").replace(" (proc-macro)", "");
    Ok(text.lines().map(plain).collect())
}

/// Runs clippy on all targets, and on builds of which some crates have fewer features.
pub(crate) fn clippy() -> anyhow::Result<()> {
    let arguments = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ];
    succeed(&mut cargo(&arguments))?;
    for packages in [BARE, COMMAND] {
        let mut clippy = cargo(&["clippy", "--locked", "--quiet"]);
        succeed(clippy.args(packages).args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}

/// Builds the documentation of the workspace's own crates.
pub(crate) fn doc() -> anyhow::Result<()> {
    let arguments = [
        "doc",
        "--workspace",
        "--lib",
        "--no-deps",
        "--locked",
        "--quiet",
    ];
    succeed(cargo(&arguments).env("RUSTDOCFLAGS", "-D warnings"))
}
