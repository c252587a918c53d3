//! Tests the projects that `weir program new` creates: outside of the clone, each project is built
//! by the commands of its README, checked, and run with its first script.
//!
//! Invariant: the projects are in the folder for temporary files, where builds find no file of this
//! repository by accident.

use super::Verdict;
use super::compilers::Compilers;
use super::finish;
use super::guide;
use super::language::{Language, cargo_alone};
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
        let module = build(option, compilers, &directory)?;
        for rest in [
            &["check".as_ref(), module.as_os_str()][..],
            &["test".as_ref(), module.as_os_str(), "first.txt".as_ref()],
        ] {
            let mut weir = Command::new(self.weir);
            finish(weir.arg("program").args(rest).current_dir(&directory))?;
        }
        Ok(())
    }
}

impl Drop for Projects<'_> {
    fn drop(&mut self) {
        // A failure leaves only temporary files.
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

/// Builds a project with the command of its README. Returns the module.
fn build(option: &str, compilers: &Compilers, directory: &Path) -> Result<PathBuf, String> {
    let (mut command, module) = match option {
        "rust" => (
            cargo_alone(&["build", "--quiet", "--release", "--offline"]),
            "target/wasm32-unknown-unknown/release/program.wasm",
        ),
        "assemblyscript" => {
            let modules = compilers.node_modules();
            std::os::unix::fs::symlink(modules, directory.join("node_modules"))
                .map_err(|error| format!("node_modules: {error}"))?;
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
