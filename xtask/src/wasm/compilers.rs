//! Finds the compilers of programs, and fetches missing ones.
//!
//! Versions are pinned: by `rust-toolchain.toml`, by `programs/zig/requirements.txt` (with hashes),
//! and by `programs/assemblyscript/package-lock.json` (with hashes). Fetched tools are in
//! `target/tools`; the Rust target is in the toolchain. Invariant: a tool folder is complete,
//! because it is created under another name and renamed afterwards.

use super::finish;
use crate::tree;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Rust target of programs.
pub(super) const TARGET: &str = "wasm32-unknown-unknown";

/// The locations of the compilers.
pub(super) struct Compilers {
    target: PathBuf,
}

impl Compilers {
    /// Uses `target` as the folder for all generated files.
    pub(super) fn new(target: PathBuf) -> Self {
        Self { target }
    }

    /// The output folder for the programs of a language.
    pub(super) fn out(&self, language: &str) -> PathBuf {
        self.target.join("programs").join(language)
    }

    fn tools(&self) -> PathBuf {
        self.target.join("tools")
    }

    /// The folder of the Python package `ziglang`.
    pub(super) fn ziglang(&self) -> PathBuf {
        self.tools().join("ziglang")
    }

    /// The compiler of C and Zig, with its caches set.
    pub(super) fn zig(&self) -> Command {
        let mut zig = Command::new(self.ziglang().join("ziglang/zig"));
        self.zig_caches(&mut zig);
        zig
    }

    /// Sets Zig's caches to a folder outside of the home directory and the sources.
    pub(super) fn zig_caches(&self, command: &mut Command) {
        let cache = self.target.join("programs/zig-cache");
        command.env("ZIG_GLOBAL_CACHE_DIR", &cache);
        command.env("ZIG_LOCAL_CACHE_DIR", cache);
    }

    /// Fetches the package `ziglang` if it is missing.
    pub(super) fn get_zig(&self) -> Result<(), String> {
        let list = tree::root().join("programs/zig/requirements.txt");
        tool_folder(&self.ziglang(), &list, |directory| {
            println!("wasm: fetching ziglang (97 MiB, 413 MiB unpacked)");
            let mut pip = Command::new("python3");
            pip.args(["-m", "pip", "install", "--quiet", "--no-deps"]);
            pip.args(["--require-hashes", "--retries", "1", "--timeout", "30"]);
            pip.arg("--target")
                .arg(directory)
                .arg("--requirement")
                .arg(&list);
            fetch_result(finish(&mut pip), "ERROR:")
        })
    }

    /// The folder `node_modules` with the package `assemblyscript`.
    pub(super) fn node_modules(&self) -> PathBuf {
        self.tools().join("assemblyscript/node_modules")
    }

    /// The compiler of `AssemblyScript`.
    pub(super) fn assemblyscript(&self) -> Command {
        let mut node = Command::new("node");
        node.arg(self.node_modules().join("assemblyscript/bin/asc.js"));
        node
    }

    /// Fetches the package `assemblyscript` if it is missing.
    pub(super) fn get_assemblyscript(&self) -> Result<(), String> {
        let package = tree::root().join("programs/assemblyscript");
        let list = package.join("package-lock.json");
        finish(Command::new("node").arg("--version"))?;
        tool_folder(&self.tools().join("assemblyscript"), &list, |directory| {
            println!("wasm: fetching assemblyscript (102 MiB unpacked)");
            for name in ["package.json", "package-lock.json", ".npmrc"] {
                let copied = fs::copy(package.join(name), directory.join(name));
                copied.map_err(|error| format!("{name}: {error}"))?;
            }
            let mut npm = Command::new("npm");
            npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
            npm.args([
                "--loglevel=error",
                "--fetch-retries=1",
                "--fetch-timeout=30000",
            ]);
            fetch_result(finish(npm.current_dir(directory)), "npm error")
        })
    }
}

/// Adds the Rust target of programs if it is missing.
pub(super) fn get_rust() -> Result<(), String> {
    let mut query = Command::new("rustc");
    query.args(["--print", "target-libdir", "--target", TARGET]);
    let directory = finish(query.current_dir(tree::root()))?;
    let directory = String::from_utf8_lossy(&directory);
    if Path::new(directory.trim()).is_dir() {
        return Ok(());
    }
    println!("wasm: adding the target {TARGET} to the toolchain");
    let mut add = Command::new("rustup");
    add.args(["target", "add", TARGET])
        .current_dir(tree::root());
    finish(&mut add).map(drop)
}

/// Converts the result of a fetch. The error is the first line that begins with `mark`.
pub(crate) fn fetch_result(result: Result<Vec<u8>, String>, mark: &str) -> Result<(), String> {
    let Err(why) = result else { return Ok(()) };
    let mut lines = why.split(" | ").filter_map(|line| line.split_once(mark));
    Err(match lines.next() {
        Some((_, line)) => format!("cannot be fetched: {}", line.trim()),
        None => why,
    })
}

/// Creates the folder of a tool with `create`, unless it was created from an equal list.
pub(crate) fn tool_folder(
    folder: &Path,
    list: &Path,
    create: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<(), String> {
    let describe = |error: std::io::Error| format!("{}: {error}", folder.display());
    let wanted = fs::read(list).map_err(describe)?;
    let made_from = folder.join("made-from");
    if fs::read(&made_from).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    let partial = folder.with_extension("partial");
    for old in [folder, partial.as_path()] {
        if old.exists() {
            fs::remove_dir_all(old).map_err(describe)?;
        }
    }
    fs::create_dir_all(&partial).map_err(describe)?;
    create(&partial)?;
    fs::write(partial.join("made-from"), wanted).map_err(describe)?;
    fs::rename(&partial, folder).map_err(describe)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::tool_folder;
    use std::fs;

    #[test]
    fn a_tool_is_created_once_for_a_list_and_never_in_part() {
        let directory = std::env::temp_dir().join(format!("weir-tools-{}", std::process::id()));
        let (folder, list) = (directory.join("tool"), directory.join("list"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(&list, "1").unwrap();
        let mut count = 0;
        let mut create = |succeeds: bool| {
            tool_folder(&folder, &list, |to| {
                count += 1;
                fs::write(to.join("part"), "x").unwrap();
                succeeds
                    .then_some(())
                    .ok_or_else(|| "no network".to_owned())
            })
        };
        assert_eq!(create(false), Err("no network".to_owned()));
        assert!(!folder.exists(), "half a tool");
        assert_eq!((create(true), create(true)), (Ok(()), Ok(())));
        fs::write(&list, "2").unwrap();
        assert_eq!(create(true), Ok(()));
        assert_eq!(count, 3, "failed, made, made for the new list");
        fs::remove_dir_all(&directory).unwrap();
    }
}
