//! Tests the Node package as a user installs it. The package is packed with its native module,
//! installed into an empty directory, and tested there.
//!
//! The type checker is in `target/tools`, pinned by `xtask/node-package/package-lock.json`.
//!
//! Invariants:
//! - The native module is built in the dev profile, from the lock file.
//! - Each test counts once, and a run without tests never counts as passed.
//! - Tests never load the package from the source tree.

use crate::durable_streams::{NewCommand, install, programs};
use crate::python::read;
use crate::readme;
use crate::served::Running;
use crate::steps::build_workspace;
use crate::tree;
use crate::wasm::{self, ReportVerdict, Verdict, finish, tool_folder};
use anyhow::{Context as _, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The folder of the package.
const FOLDER: &str = "bindings/node";
/// The folder of the tool list.
const TOOLS: &str = "xtask/node-package";
/// Seconds after which the tests are killed; they take about 15.
const SECONDS_MAX: u64 = 600;
/// Minimum version of Node.
const MAJOR_MIN: u64 = 20;

/// Builds, packs, installs and tests the package.
pub(crate) fn run(report_verdict: ReportVerdict<'_>) -> anyhow::Result<()> {
    let target = tree::root().join("target");
    let (node, npm, tools) = match tool(&target) {
        Ok(tools) => tools,
        Err(why) => {
            report_verdict("the package", Verdict::Skipped(why));
            return Ok(());
        }
    };
    let directory = target.join("node");
    if directory.exists() {
        fs::remove_dir_all(&directory).with_context(|| directory.display().to_string())?;
    }
    println!("-- the Node package");
    let clean = installed(&node, &npm, &directory)?;
    let weir = wasm::weir()?;
    println!("-- the tests of the Node package");
    let report = directory.join("report.jsonl");
    let source = tree::root().join(FOLDER);
    let mut tests = Command::new(&node);
    tests.arg("--test").current_dir(&clean);
    tests.args(["--test-reporter=spec", "--test-reporter-destination=stdout"]);
    tests.arg("--test-reporter=./test/reporter.mjs");
    tests.arg(format!("--test-reporter-destination={}", report.display()));
    for name in names(&source.join("test"), ".test.js")? {
        tests.arg(Path::new("test").join(name));
    }
    tests
        .env("WEIR_BINARY", weir)
        .env("WEIR_CLUSTER", std::env::current_exe()?)
        .env("WEIR_PACKAGE", &source)
        .env("WEIR_VECTORS", tree::root().join("vectors"))
        .env("WEIR_TSC", tools.join("node_modules/typescript/lib/tsc.js"))
        .env("WEIR_TYPE_ROOTS", tools.join("node_modules/@types"))
        .env_remove("WEIR_NATIVE_PATH")
        .stdin(Stdio::null());
    let mut tests = Running(tests.spawn().context("cannot start the tests")?);
    let succeeded = tests.ends_well(Duration::from_secs(SECONDS_MAX))?;
    ensure!(succeeded.is_some(), "no end after {SECONDS_MAX} s");
    let text = fs::read_to_string(&report).context("the tests wrote no report")?;
    let failed = read(&text, report_verdict)?;
    ensure!(
        succeeded == Some(true) || failed > 0,
        "the command failed without a failed test"
    );
    report_verdict(
        "README: install, quick start",
        quick_start(&node, &npm, &directory)?,
    );
    Ok(())
}

/// Runs the commands on the page of the package, with an unoptimised module and without the
/// network.
fn quick_start(node: &Path, npm: &NewCommand, directory: &Path) -> anyhow::Result<Verdict> {
    let replacements = [(
        "node bindings/node/build.mjs",
        "node bindings/node/build.mjs --dev",
    )];
    // These programs may differ from those of the search path.
    let folders = [
        Some(node),
        Path::new(npm().get_program())
            .canonicalize()
            .ok()
            .as_deref(),
    ]
    .into_iter()
    .flatten()
    .filter_map(|program| Some(program.parent()?.display().to_string()))
    .collect::<Vec<_>>()
    .join(":");
    let path = std::env::var("PATH").unwrap_or_default();
    readme::run(
        "node",
        &directory.join("readme"),
        &replacements,
        ("js", "first.js", "node first.js"),
        || {
            let mut shell = Command::new("sh");
            shell.env("PATH", format!("{folders}:{path}"));
            for name in ["offline", "ignore_scripts"] {
                shell.env(format!("npm_config_{name}"), "true");
            }
            for name in ["audit", "fund", "update_notifier"] {
                shell.env(format!("npm_config_{name}"), "false");
            }
            shell
        },
    )
}

/// Node, npm, and the folder of the tools, which are fetched if they are missing.
fn tool(target: &Path) -> Result<(PathBuf, NewCommand, PathBuf), String> {
    let (node, npm) = programs(target)?;
    let version = finish(Command::new(&node).args(["-p", "process.versions.node.split('.')[0]"]))?;
    let version = String::from_utf8_lossy(&version).trim().to_owned();
    if version.parse::<u64>().is_ok_and(|major| major < MAJOR_MIN) {
        return Err(format!("node is {version}; the package needs {MAJOR_MIN}"));
    }
    let list = tree::root().join(TOOLS);
    let folder = target.join("tools/node-package");
    tool_folder(&folder, &list.join("package-lock.json"), |directory| {
        println!("node: fetching typescript (25 MiB unpacked)");
        install(&list, directory, &npm)
    })?;
    Ok((node, npm, folder))
}

/// Sorted names of the files in a folder that end with `end`.
fn names(folder: &Path, end: &str) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(end) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Copies the files of a folder.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to).with_context(|| to.display().to_string())?;
    for name in names(from, "")? {
        let file = from.join(&name);
        if file.is_file() {
            fs::copy(&file, to.join(&name)).with_context(|| file.display().to_string())?;
        }
    }
    Ok(())
}

/// Installs the package and its tests into an empty directory. Returns the directory.
fn installed(node: &Path, npm: &NewCommand, directory: &Path) -> anyhow::Result<PathBuf> {
    let package = directory.join("package");
    let source = tree::root().join(FOLDER);
    copy(&source, &package)?;
    copy(&source.join("lib"), &package.join("lib"))?;
    build_workspace()?;
    let here = std::env::current_exe().context("the path of this command")?;
    let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let library = here.with_file_name(format!("{prefix}weir_node{suffix}"));
    let platform = finish(Command::new(node).args(["-p", "`${process.platform}-${process.arch}`"]));
    let platform = platform.map_err(anyhow::Error::msg)?;
    let platform = String::from_utf8_lossy(&platform).trim().to_owned();
    let native = package.join("native");
    fs::create_dir_all(&native)?;
    fs::copy(&library, native.join(format!("weir.{platform}.node")))
        .with_context(|| library.display().to_string())?;

    let mut pack = npm();
    pack.args(["pack", "--silent", "./package"])
        .current_dir(directory);
    finish(&mut pack).map_err(anyhow::Error::msg)?;
    let packed = names(directory, ".tgz")?;
    let packed = packed.first().context("npm packed nothing")?;
    let clean = directory.join("clean");
    copy(&source.join("test"), &clean.join("test"))?;
    fs::write(clean.join("package.json"), "{ \"private\": true }\n")?;
    let mut install = npm();
    install.args(["install", "--silent", "--offline", "--ignore-scripts"]);
    install.args(["--no-audit", "--no-fund", "--no-package-lock"]);
    install
        .arg(Path::new("..").join(packed))
        .current_dir(&clean);
    finish(&mut install).map_err(anyhow::Error::msg)?;
    Ok(clean)
}
