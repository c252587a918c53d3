//! The languages of programs: their sources, and the commands that build them.
//!
//! Invariant: every command runs in the folder of its sources and uses relative names, so that a
//! module does not depend on the directory of the clone.

use super::compilers::{Compilers, TARGET, get_rust};
use super::finish;
use crate::tree;
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Memory of exactly one page, without growth.
const MEMORY: [&str; 2] = ["--initial-memory=65536", "--max-memory=65536"];

/// The baseline instructions, and two extensions that all engines support.
const CPU: &str = "-mcpu=mvp+bulk_memory+sign_ext";

/// An action with the available compilers. The error is the reason why it cannot be done.
pub(super) type Step = fn(&Compilers) -> Result<(), String>;

/// A language of programs.
pub(super) struct Language {
    /// Name for people.
    pub(super) name: &'static str,
    /// Value of `weir program new --lang`.
    pub(super) option: &'static str,
    /// Suffix after the name of a program in the name of its module.
    pub(super) suffix: &'static str,
    /// Folder of the sources, relative to the root.
    folder: &'static str,
    /// Extension of source files.
    extension: &'static str,
    /// Source files that are not programs.
    others: &'static [&'static str],
    /// Gets the compiler. The error is the reason why it is unavailable.
    pub(super) get: Step,
    /// Checks formatting and lints of library, programs and template, if the compiler has a tool
    /// for that.
    pub(super) lint: Option<Step>,
    /// Builds the program with that name. Returns the module.
    build_program: fn(&Compilers, &str) -> Result<PathBuf, String>,
}

/// All languages.
pub(super) const LANGUAGES: &[Language] = &[
    Language {
        name: "Rust",
        option: "rust",
        suffix: "",
        folder: "programs/reference/examples",
        extension: "rs",
        others: &[],
        get: |_| get_rust(),
        lint: Some(lint_rust),
        build_program: rust,
    },
    Language {
        name: "C",
        option: "c",
        suffix: "-c",
        folder: "programs/c",
        extension: "c",
        others: &[],
        get: Compilers::get_zig,
        // The build treats warnings as errors.
        lint: None,
        build_program: c,
    },
    Language {
        name: "Zig",
        option: "zig",
        suffix: "-zig",
        folder: "programs/zig",
        extension: "zig",
        others: &["build", "weir_guest"],
        get: Compilers::get_zig,
        lint: Some(lint_zig),
        build_program: zig,
    },
    Language {
        name: "AssemblyScript",
        option: "assemblyscript",
        suffix: "-as",
        folder: "programs/assemblyscript/assembly",
        extension: "ts",
        others: &["index"],
        get: Compilers::get_assemblyscript,
        lint: None,
        build_program: assemblyscript,
    },
];

impl Language {
    /// Builds every program. Returns each name with its module, or with the reason of the failure.
    pub(super) fn build(
        &self,
        compilers: &Compilers,
    ) -> anyhow::Result<Vec<(String, Result<PathBuf, String>)>> {
        let out = compilers.out(self.option);
        std::fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
        let mut built = Vec::new();
        for name in self.programs()? {
            let module = (self.build_program)(compilers, &name);
            built.push((name, module));
        }
        Ok(built)
    }

    fn programs(&self) -> anyhow::Result<Vec<String>> {
        let sources = tree::files()?.into_iter();
        let names = sources.filter_map(|path| {
            let name = path.strip_prefix(self.folder)?.strip_prefix('/')?;
            let (name, extension) = name.rsplit_once('.')?;
            let program =
                extension == self.extension && !self.others.contains(&name) && !name.contains('/');
            program.then(|| name.to_owned())
        });
        Ok(names.collect())
    }
}

/// Environment variables that would change a module, or its location.
pub(super) const CHANGE_MODULES: [&str; 4] = [
    "CARGO_BUILD_TARGET",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_TARGET_DIR",
    "RUSTFLAGS",
];

/// A cargo command outside of this workspace, without variables that change a module.
pub(super) fn cargo_alone(arguments: &[&str]) -> Command {
    let mut cargo = crate::steps::cargo(arguments);
    for name in CHANGE_MODULES {
        cargo.env_remove(name);
    }
    cargo
}

/// The folder of the project templates.
const TEMPLATES: &str = "crates/weir-cli/templates";

fn lint_rust(compilers: &Compilers) -> Result<(), String> {
    let template = tree::root().join(TEMPLATES).join("rust/program.rs");
    let mut format = cargo_alone(&["fmt", "--all", "--check", "--"]);
    format.arg(template);
    let mut clippy = cargo_alone(&["clippy", "--quiet", "--workspace", "--locked", "--release"]);
    clippy.args([
        "--all-features",
        "--lib",
        "--examples",
        "--",
        "-D",
        "warnings",
    ]);
    clippy.env("CARGO_TARGET_DIR", compilers.out("rust"));
    for command in [&mut format, &mut clippy] {
        finish(command.current_dir(tree::root().join("programs")))?;
    }
    Ok(())
}

fn lint_zig(compilers: &Compilers) -> Result<(), String> {
    let mut format = compilers.zig();
    format.args(["fmt", "--check", "programs/zig"]);
    format.arg(format!("{TEMPLATES}/zig/program.zig"));
    finish(format.current_dir(tree::root())).map(drop)
}

/// Programs in Rust that need the feature with their name.
const WITH_FEATURE: &[&str] = &["words"];

/// Programs that show failures. Their modules keep the names of functions, for `weir program trace`.
const WITH_NAMES: &[&str] = &["broken", "words"];

fn rust(compilers: &Compilers, name: &str) -> Result<PathBuf, String> {
    let out = compilers.out("rust");
    let mut cargo = cargo_alone(&[
        "build",
        "--quiet",
        "--release",
        "--locked",
        // The library is also a package of this workspace, and its default features would enlarge
        // all programs.
        "--package=reference",
        "--example",
        name,
    ]);
    if WITH_FEATURE.contains(&name) {
        cargo.args(["--features", name]);
    }
    if WITH_NAMES.contains(&name) {
        cargo.env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo");
    }
    cargo.env("CARGO_TARGET_DIR", &out);
    finish(cargo.current_dir(tree::root().join("programs")))?;
    let file = format!("{}.wasm", name.replace('-', "_"));
    Ok(out.join(TARGET).join("release/examples").join(file))
}

fn c(compilers: &Compilers, name: &str) -> Result<PathBuf, String> {
    let out = compilers.out("c").join(format!("{name}.wasm"));
    let folder = tree::root().join("programs/c");
    let mut zig = compilers.zig();
    zig.args(["cc", "--target=wasm32-freestanding", CPU]);
    zig.args(["-std=c11", "-Os", "-Wall", "-Wextra", "-Werror"]);
    zig.arg(format!("{name}.c"));
    if WITH_NAMES.contains(&name) {
        let object = out.with_extension("o");
        zig.args(["-c", "-g", "-o"]).arg(&object);
        finish(zig.current_dir(&folder))?;
        link(compilers, &object, &out)?;
        return Ok(out);
    }
    zig.args(["-nostdlib", "-Wl,--no-entry"]);
    zig.args(["-Wl,-z,stack-size=16384", "-Wl,--strip-all"]);
    zig.args(MEMORY.map(|word| format!("-Wl,{word}")));
    zig.arg("-o").arg(&out);
    finish(zig.current_dir(&folder))?;
    Ok(out)
}

fn zig(compilers: &Compilers, name: &str) -> Result<PathBuf, String> {
    let out = compilers.out("zig").join(format!("{name}.wasm"));
    let folder = tree::root().join("programs/zig");
    let root = format!("-Mroot={name}.zig");
    let sources = ["--dep", "weir_guest", &root, "-Mweir_guest=weir_guest.zig"];
    let target = ["-target", "wasm32-freestanding", CPU, "-O", "ReleaseSafe"];
    let mut zig = compilers.zig();
    if WITH_NAMES.contains(&name) {
        let object = out.with_extension("o");
        zig.arg("build-obj").args(target).arg("-fno-strip");
        zig.args(sources);
        zig.arg(format!("-femit-bin={}", object.display()));
        finish(zig.current_dir(&folder))?;
        link(compilers, &object, &out)?;
        return Ok(out);
    }
    zig.arg("build-exe").args(target);
    zig.args(["-fstrip", "-fno-entry", "-rdynamic", "--stack", "16384"]);
    zig.args(MEMORY).args(sources);
    zig.arg(format!("-femit-bin={}", out.display()));
    finish(zig.current_dir(&folder))?;
    Ok(out)
}

/// Links an object to a module, which keeps the names of functions and no other debug information.
fn link(compilers: &Compilers, object: &Path, out: &Path) -> Result<(), String> {
    let mut linker = compilers.zig();
    linker.args(["wasm-ld", "--no-entry", "--export-dynamic"]);
    linker.args(["-z", "stack-size=16384", "--strip-debug"]);
    linker.args(MEMORY).arg(object).arg("-o").arg(out);
    finish(&mut linker).map(drop)
}

fn assemblyscript(compilers: &Compilers, name: &str) -> Result<PathBuf, String> {
    let out = compilers.out("assemblyscript").join(format!("{name}.wasm"));
    let mut asc = compilers.assemblyscript();
    asc.arg(format!("assembly/{name}.ts"));
    if WITH_NAMES.contains(&name) {
        asc.arg("--debug");
    }
    asc.args(["--target", "release", "-o"]).arg(&out);
    finish(asc.current_dir(tree::root().join("programs/assemblyscript")))?;
    Ok(out)
}
