//! Tests the projects that `weir program new` creates: outside of the clone, each project is built,
//! and the commands of its README run. Then it is built with the example of its library. The build
//! commands on the page of the library run too.
//!
//! Invariant: the projects are in the folder for temporary files, where builds find no file of this
//! repository by accident.

use super::Verdict;
use super::compilers::Compilers;
use super::finish;
use super::guide;
use super::language::{Language, cargo_alone};
use crate::tree;
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder for projects, removed when this is dropped.
pub(super) struct Projects<'a> {
    weir: &'a Path,
    directory: PathBuf,
}

impl<'a> Projects<'a> {
    /// Creates an empty folder. `weir` is the command that creates the projects.
    pub(super) fn new(weir: &'a Path) -> anyhow::Result<Self> {
        let directory = std::env::temp_dir().join(format!("weir-projects-{}", std::process::id()));
        std::fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        Ok(Self { weir, directory })
    }

    /// Creates, builds, checks and runs the project of a language.
    pub(super) fn verdict(&self, language: &Language, compilers: &Compilers) -> Verdict {
        let uses_make = matches!(language.option, "c" | "zig");
        if uses_make && finish(Command::new("make").arg("--version")).is_err() {
            return Verdict::Skipped("there is no `make`".to_owned());
        }
        match self.run(language, compilers) {
            Ok(()) => Verdict::Passed,
            Err(why) => Verdict::Failed(why),
        }
    }

    /// Runs the guide to programs.
    pub(super) fn guide(&self) -> Verdict {
        match guide::run(self.weir, &self.directory.join("guide")) {
            Ok(()) => Verdict::Passed,
            Err(why) => Verdict::Failed(why),
        }
    }

    fn run(&self, language: &Language, compilers: &Compilers) -> Result<(), String> {
        let option = language.option;
        let directory = self.directory.join(option);
        let mut new = Command::new(self.weir);
        new.args(["program", "new", "seats", "--lang", option, "--dir"]);
        finish(new.arg(&directory))?;
        build(option, compilers, &directory)?;
        self.use_readme(option, &directory)?;
        write_example(option, &directory)?;
        let module = build(option, compilers, &directory)?;
        let script = format!(
            "weir program deploy texts {}\nweir put texts short\n\
             if weir put texts $(printf '%0101d' 0); then exit 1; fi",
            module.display()
        );
        self.shell(&directory, &script)?;
        self.build_as_printed(language, compilers)
    }

    /// Runs the build commands on the page of a library, in a copy of its folder. They build a module
    /// of the repository.
    fn build_as_printed(&self, language: &Language, compilers: &Compilers) -> Result<(), String> {
        let (folder, module) = match language.option {
            "c" => ("programs/c", "balance.wasm"),
            "zig" => ("programs/zig", "balance.wasm"),
            "assemblyscript" => ("programs/assemblyscript", "build/balance.wasm"),
            // Its page has no build commands.
            _ => return Ok(()),
        };
        let directory = self.directory.join(format!("page-{}", language.option));
        let mut copy = Command::new("cp");
        finish(
            copy.arg("-r")
                .arg(tree::root().join(folder))
                .arg(&directory),
        )?;
        let page = format!("{folder}/README.md");
        let commands = block(&page, "sh")?;
        // `clang` is the compiler of the other example. The packages of npm are installed.
        let is_run = |line: &&str| !line.starts_with("clang ") && *line != "npm ci";
        let script: Vec<&str> = commands.lines().filter(is_run).collect();
        if language.option == "assemblyscript" {
            link_modules(compilers, &directory)?;
        }
        let mut shell = guide::shell(self.weir, &directory);
        shell.env("PYTHONPATH", compilers.ziglang());
        compilers.zig_caches(&mut shell);
        finish(shell.args(["-euc", &script.join("\n")]))?;
        let stored = format!("balance{}.wasm", language.suffix);
        let stored = tree::root().join(super::PREBUILT).join(stored);
        if read(&directory.join(module))? != read(&stored)? {
            return Err(format!(
                "the commands of {page} do not build {}",
                stored.display()
            ));
        }
        Ok(())
    }

    /// Runs the commands of the README of a built project. The guide must print them too.
    fn use_readme(&self, option: &str, directory: &Path) -> Result<(), String> {
        let readme = read(&directory.join("README.md"))?;
        let readme = String::from_utf8_lossy(&readme);
        let lines = readme.lines();
        let commands: Vec<&str> = lines
            .filter(|line| line.starts_with("weir program "))
            .collect();
        if commands.len() != 3 {
            return Err(format!("the README has the commands {commands:?}"));
        }
        let page = text(guide::GUIDE)?;
        // The guide describes Rust first, with more steps.
        let missing = commands.iter().find(|command| !page.contains(*command));
        if let Some(command) = missing.filter(|_| option != "rust") {
            return Err(format!("{} has no `{command}`", guide::GUIDE));
        }
        let script = format!(
            "{}\nweir put seats ann --key 12A\n\
             if weir put seats bob --key 12A; then exit 1; fi",
            commands.join("\n")
        );
        self.shell(directory, &script)
    }

    /// Runs commands in the folder of a project.
    fn shell(&self, directory: &Path, script: &str) -> Result<(), String> {
        let mut shell = guide::shell(self.weir, directory);
        finish(shell.args(["-euc", script])).map(drop)
    }
}

/// The text of a file of this repository.
fn text(file: &str) -> Result<String, String> {
    tree::text(file).map_err(|error| format!("{error:#}"))
}

/// The first block of a language on a page of this repository.
fn block(page: &str, language: &str) -> Result<String, String> {
    let text = text(page)?;
    let block = text
        .split_once(&format!("```{language}\n"))
        .and_then(|(_, rest)| rest.split_once("```"));
    let block = block.map(|(block, _)| block.to_owned());
    block.ok_or_else(|| format!("{page} has no block of {language}"))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Replaces the program of a project by the example on the page of its library.
fn write_example(option: &str, directory: &Path) -> Result<(), String> {
    let (page, language, file) = match option {
        "rust" => ("programs/weir-guest/README.md", "rust,ignore", "src/lib.rs"),
        "c" => ("programs/c/README.md", "c", "program.c"),
        "zig" => ("programs/zig/README.md", "zig", "program.zig"),
        _ => (
            "programs/assemblyscript/README.md",
            "ts",
            "assembly/program.ts",
        ),
    };
    // In a project, the library has another name.
    let program = block(page, language)?.replace("\"./index\"", "\"./weir_guest\"");
    std::fs::write(directory.join(file), program).map_err(|error| format!("{file}: {error}"))
}

impl Drop for Projects<'_> {
    fn drop(&mut self) {
        // A failure leaves only temporary files.
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

/// Links the installed packages of npm into a folder, unless it has packages already.
fn link_modules(compilers: &Compilers, directory: &Path) -> Result<(), String> {
    let link = directory.join("node_modules");
    if link.exists() {
        return Ok(());
    }
    std::os::unix::fs::symlink(compilers.node_modules(), link)
        .map_err(|error| format!("node_modules: {error}"))
}

/// Builds a project with the command of its README. Returns the module, relative to the project.
fn build(option: &str, compilers: &Compilers, directory: &Path) -> Result<PathBuf, String> {
    let (mut command, module) = match option {
        "rust" => (
            cargo_alone(&["build", "--quiet", "--release", "--offline"]),
            "target/wasm32-unknown-unknown/release/program.wasm",
        ),
        "assemblyscript" => {
            link_modules(compilers, directory)?;
            let mut npm = Command::new("npm");
            npm.args(["run", "build"]);
            (npm, "build/program.wasm")
        }
        _ => {
            let mut make = Command::new("make");
            // For `python3 -m ziglang`.
            make.env("PYTHONPATH", compilers.ziglang());
            compilers.zig_caches(&mut make);
            (make, "program.wasm")
        }
    };
    finish(command.current_dir(directory))?;
    Ok(PathBuf::from(module))
}
