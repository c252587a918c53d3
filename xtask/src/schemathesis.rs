//! Checks a running server against the description of the HTTP API with schemathesis.
//!
//! The tool is in `target/tools`, pinned by `xtask/schemathesis/requirements.txt`. Its
//! configuration is in the folder of that file. The server is `weir serve` over a separate store,
//! on a port that the system selects.
//!
//! Invariants:
//! - Equal seeds send equal requests.
//! - Server and tool never outlive this process.
//! - The time of a run is bounded.
//! - A missing tool never counts as passed.

use crate::served::{Running, Server};
use crate::tree;
use crate::wasm::{self, Verdict, fetch_result, finish, tool_folder};
use anyhow::Context as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Folder of the configuration, the hooks and the package list.
const FOLDER: &str = "xtask/schemathesis";
/// Seed of the requests.
const SEED: &str = "1";
/// Seconds after which the tool is killed; it takes about 40 on two idle processors.
const SECONDS_MAX: u64 = 300;
/// Number of last lines of a report that are printed.
const LINES_MAX: usize = 60;

/// Runs every check of the tool on every operation.
pub(crate) fn verdict() -> anyhow::Result<Verdict> {
    let target = tree::root().join("target");
    let packages = match tool(&target) {
        Ok(packages) => packages,
        Err(why) => return Ok(Verdict::Skipped(why)),
    };
    let directory = target.join("schemathesis");
    if directory.exists() {
        fs::remove_dir_all(&directory).with_context(|| directory.display().to_string())?;
    }
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    let server = Server::start(&wasm::weir()?, &directory, &[])?;
    let folder = tree::root().join(FOLDER);
    let paths = std::env::join_paths([&packages, &folder])?;
    let report = directory.join("report.txt");
    let out = fs::File::create(&report).with_context(|| report.display().to_string())?;
    let mut python = Command::new("python3");
    python
        .args([
            "-c",
            "from schemathesis.cli import schemathesis; schemathesis()",
        ])
        .args(["--no-color", "--config-file"])
        .arg(folder.join("schemathesis.toml"))
        .args(["run", "--checks", "all", "--seed", SEED])
        .arg(format!("{}/openapi.json", server.url))
        .current_dir(&directory)
        .env("PYTHONPATH", paths)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out);
    println!("-- schemathesis on {}", server.url);
    let mut tool = Running(python.spawn().context("cannot start python3")?);
    let succeeded = tool.ends_well(Duration::from_secs(SECONDS_MAX))?;
    if succeeded == Some(true) {
        return Ok(Verdict::Passed);
    }
    let text = String::from_utf8_lossy(&fs::read(&report)?).into_owned();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    for line in lines.iter().skip(lines.len().saturating_sub(LINES_MAX)) {
        println!("{line}");
    }
    Ok(Verdict::Failed(match succeeded {
        None => format!("no end after {SECONDS_MAX} s"),
        _ => format!(
            "{}; all of it in target/schemathesis/report.txt",
            lines
                .last()
                .unwrap_or(&"no output")
                .trim_matches('=')
                .trim()
        ),
    }))
}

/// The folder of the packages, which are fetched if they are missing.
fn tool(target: &Path) -> Result<PathBuf, String> {
    let list = tree::root().join(FOLDER).join("requirements.txt");
    let folder = target.join("tools/schemathesis");
    tool_folder(&folder, &list, |directory| {
        println!("schemathesis: fetching it (24 MiB unpacked)");
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps"]);
        pip.args(["--require-hashes", "--only-binary", ":all:"]);
        pip.args(["--retries", "1", "--timeout", "30"]);
        pip.arg("--target")
            .arg(directory)
            .arg("--requirement")
            .arg(&list);
        fetch_result(finish(&mut pip), "ERROR:")
    })?;
    Ok(folder)
}
