//! The gate: the order of its steps, and the thin ones that only call cargo.
//!
//! Invariant: every step that compiles uses the dev profile and the features of the whole
//! workspace, so that clippy, doc and tests share what they can and nothing is built twice.

use crate::steps::{self, COMMAND_FEATURES, FEATURES, Step, cargo, succeed};
use crate::suites;
use crate::tree;
use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Instant;

/// Cheap steps first: a wrong import should not wait for a build.
const STEPS: &[Step] = &[
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
        name: "lock files",
        run: lock_files,
    },
    Step {
        name: "features",
        run: features,
    },
    Step {
        name: "clippy",
        run: clippy,
    },
    Step {
        name: "doc",
        run: doc,
    },
];

/// All steps, stopping at the first that fails.
pub(crate) fn check() -> anyhow::Result<()> {
    steps::all(STEPS)
}

/// All steps and all tests, none skipped because another failed; ends with the totals, and is
/// false if anything failed.
pub(crate) fn test() -> anyhow::Result<bool> {
    crate::setup::setup()?;
    let mut summary = suites::Summary::default();
    for step in STEPS {
        let start = Instant::now();
        let result = steps::one(step);
        summary.took(step.name, start.elapsed());
        if let Err(error) = &result {
            println!("{error:#}");
        }
        summary.step(step.name, result.is_ok());
    }
    suites::all(&mut summary)?;
    Ok(summary.close())
}

/// The description of the HTTP edge against a server, alone.
pub(crate) fn api() -> bool {
    let mut summary = suites::Summary::default();
    suites::api(&mut summary);
    summary.close()
}

/// The conformance suite of Durable Streams against a server, alone.
pub(crate) fn ds() -> bool {
    let mut summary = suites::Summary::default();
    suites::durable_streams(&mut summary);
    summary.close()
}

/// The public suites of JSON and JSONPath, alone.
pub(crate) fn json() -> bool {
    let mut summary = suites::Summary::default();
    suites::json(&mut summary);
    summary.close()
}

/// The languages over the C library, alone.
pub(crate) fn bindings() -> bool {
    let mut summary = suites::Summary::default();
    suites::bindings(&mut summary);
    summary.close()
}

/// The Python package, alone.
pub(crate) fn python() -> bool {
    let mut summary = suites::Summary::default();
    suites::python(&mut summary);
    summary.close()
}

/// The Node package, alone.
pub(crate) fn node() -> bool {
    let mut summary = suites::Summary::default();
    suites::node(&mut summary);
    summary.close()
}

/// The Emacs package, alone.
pub(crate) fn emacs() -> bool {
    let mut summary = suites::Summary::default();
    suites::emacs(&mut summary);
    summary.close()
}

/// The tests of the Rust workspace alone; ends with the totals.
pub(crate) fn test_rust() -> anyhow::Result<bool> {
    let mut summary = suites::Summary::default();
    suites::rust(&mut summary)?;
    Ok(summary.close())
}

/// Formatting of the workspace.
pub(crate) fn fmt() -> anyhow::Result<()> {
    succeed(&mut cargo(&["fmt", "--all", "--check"]))
}

/// The lock files of workspaces beside this one fit the packages that they take from it. They are
/// built on demand, so nothing else would notice.
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

/// Packages that are built alone share foreign crates with a larger build: for tests with that of the
/// workspace, for release with that of the `weir` command. Otherwise these crates are compiled again for
/// each.
pub(crate) fn features() -> anyhow::Result<()> {
    let workspace = asked(&["--workspace", "--edges", "normal,build,dev"])?;
    for package in ["weir-capi", "weir-node", "weir-python"] {
        shares(package, FEATURES, &workspace)?;
    }
    let command = asked(&["--package", "weir-cli", "--edges", "normal,build"])?;
    shares("weir-capi", COMMAND_FEATURES, &command)
}

/// Whether a package with the features of `with` asks of foreign crates what the larger build asks.
fn shares(package: &str, with: &[&str], larger: &BTreeSet<String>) -> anyhow::Result<()> {
    let mut options = vec!["--package", package, "--edges", "normal,build"];
    options.extend(with);
    for one in asked(&options)?.difference(larger) {
        let ours = one.contains("(/");
        anyhow::ensure!(
            ours,
            "{package} is built with `{one}`, which the larger build asks for with other features: \
             change them in the package of {with:?} below xtask"
        );
    }
    Ok(())
}

/// The crates of a build, with their features.
fn asked(options: &[&str]) -> anyhow::Result<BTreeSet<String>> {
    let mut command = cargo(&["tree", "--locked", "--prefix", "none"]);
    command.args(["--format", "{p} [{f}]"]).args(options);
    let output = command.output()?;
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

/// Lints of all targets.
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
    // Who embeds it may do without programs and TLS; what it needs is checked already.
    let bare = [
        "clippy",
        "--package",
        "weir",
        "--no-default-features",
        "--locked",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ];
    succeed(&mut cargo(&bare))
}

/// Documentation of the workspace's own crates.
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
