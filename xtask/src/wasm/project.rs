//! Tests the projects that `weir program new` creates: outside of the clone, each project is built,
//! and the commands of its README run. Then it is built with the example of its library.
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
        self.shell(&directory, &script)
    }

    /// Runs the commands of the README of a built project. The guide must print them too.
    fn use_readme(&self, option: &str, directory: &Path) -> Result<(), String> {
        let readme = std::fs::read_to_string(directory.join("README.md"))
            .map_err(|error| format!("README.md: {error}"))?;
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
    let text = text(page)?;
    let example = text
        .split_once(&format!("```{language}\n"))
        .and_then(|(_, rest)| rest.split_once("```"));
    let (example, _) = example.ok_or_else(|| format!("{page} has no example"))?;
    // In a project, the library has another name.
    let program = example.replace("\"./index\"", "\"./weir_guest\"");
    std::fs::write(directory.join(file), program).map_err(|error| format!("{file}: {error}"))
}

impl Drop for Projects<'_> {
    fn drop(&mut self) {
        // A failure leaves only temporary files.
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

/// Builds a project with the command of its README. Returns the module, relative to the project.
fn build(option: &str, compilers: &Compilers, directory: &Path) -> Result<PathBuf, String> {
    let (mut command, module) = match option {
        "rust" => (
            cargo_alone(&["build", "--quiet", "--release", "--offline"]),
            "target/wasm32-unknown-unknown/release/program.wasm",
        ),
        "assemblyscript" => {
            let (modules, link) = (compilers.node_modules(), directory.join("node_modules"));
            if !link.exists() {
                std::os::unix::fs::symlink(modules, link)
                    .map_err(|error| format!("node_modules: {error}"))?;
            }
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
