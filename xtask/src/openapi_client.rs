//! Generates a client from docs/api/openapi.yaml, and uses it on a running server.
//!
//! `openapi-typescript` generates types, the TypeScript compiler checks a program that publishes,
//! reads and claims with them, and node runs it. The packages are pinned by
//! `xtask/openapi-client/package-lock.json` and are in `target/tools`.
//!
//! Invariants:
//! - Each command ends within [`SECONDS_MAX`] seconds.
//! - Packages that cannot be fetched count as skipped, not as passed.

use crate::durable_streams::{install, programs};
use crate::served::{Running, Server};
use crate::tree;
use crate::wasm::{self, Verdict, tool_folder};
use anyhow::Context as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Folder of the package list and the program.
const FOLDER: &str = "xtask/openapi-client";
/// Files of the program.
const FILES: [&str; 3] = ["client.ts", "tsconfig.json", "package.json"];
/// Seconds after which a command is killed; the slowest takes about 10.
const SECONDS_MAX: u64 = 180;

/// Generates, compiles and runs the client.
pub(crate) fn verdict() -> anyhow::Result<Verdict> {
    let target = tree::root().join("target");
    let (node, packages) = match tool(&target) {
        Ok(tool) => tool,
        Err(why) => return Ok(Verdict::Skipped(why)),
    };
    let directory = target.join("openapi-client");
    if directory.exists() {
        fs::remove_dir_all(&directory).with_context(|| directory.display().to_string())?;
    }
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    for name in FILES {
        fs::copy(tree::root().join(FOLDER).join(name), directory.join(name)).context(name)?;
    }
    let modules = packages.join("node_modules");
    std::os::unix::fs::symlink(&modules, directory.join("node_modules"))?;
    let run = |what: &str, arguments: &[&std::ffi::OsStr]| -> anyhow::Result<Option<String>> {
        let report = directory.join("report.txt");
        let out = fs::File::create(&report)?;
        let mut command = Command::new(&node);
        command.args(arguments).current_dir(&directory);
        command.stdin(Stdio::null());
        command.stdout(out.try_clone()?).stderr(out);
        let mut command = Running(command.spawn().context("cannot start node")?);
        Ok(match command.ends_well(Duration::from_secs(SECONDS_MAX))? {
            Some(true) => None,
            Some(false) => Some(format!("{what}: {}", fs::read_to_string(&report)?.trim())),
            None => Some(format!("{what}: no end after {SECONDS_MAX} s")),
        })
    };
    let generator = modules.join("openapi-typescript/bin/cli.js");
    let description = tree::root().join("docs/api/openapi.yaml");
    let failed = run(
        "the generator",
        &[
            generator.as_os_str(),
            description.as_os_str(),
            "-o".as_ref(),
            "schema.d.ts".as_ref(),
        ],
    )?;
    if let Some(why) = failed {
        return Ok(Verdict::Failed(why));
    }
    let compiler = modules.join("typescript/bin/tsc");
    if let Some(why) = run("the compiler", &[compiler.as_os_str()])? {
        return Ok(Verdict::Failed(why));
    }
    let server = Server::start(&wasm::weir()?, &directory, &[])?;
    println!("-- a generated client on {}", server.url);
    let failed = run(
        "the client",
        &["out/client.js".as_ref(), server.url.as_ref()],
    )?;
    Ok(failed.map_or(Verdict::Passed, Verdict::Failed))
}

/// The program `node` and the folder of the packages, which are fetched if they are missing.
fn tool(target: &Path) -> Result<(PathBuf, PathBuf), String> {
    let package = tree::root().join(FOLDER);
    let (node, npm) = programs(target)?;
    let folder = target.join("tools/openapi-client");
    tool_folder(&folder, &package.join("package-lock.json"), |directory| {
        println!("generated client: fetching the generator (45 MiB unpacked)");
        install(&package, directory, &npm)
    })?;
    Ok((node, folder))
}
