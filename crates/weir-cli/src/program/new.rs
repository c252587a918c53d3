//! `weir program new`: creates a project for a program, ready to build.
//!
//! The files are in `templates/`; the libraries of the languages are in `programs/`.
//! `cargo xtask wasm` writes, builds and runs a project of each language.
//!
//! Invariants:
//! - No existing file is changed.
//! - A project does not depend on this repository.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use weir::ErrorCode;

use crate::caller::Caller;
use crate::report::{self, Failure, FailureContext};

/// Maximum bytes of the name of a project.
const NAME_BYTES_MAX: usize = 64;

/// The placeholder for the name in the files.
const NAME: &str = "{{name}}";

#[derive(Debug, Args)]
pub(super) struct NewArgs {
    /// Name of the project and of the topic in its script: a-z 0-9 -
    name: String,
    /// Language of the program
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    lang: Language,
    /// Directory of the project; it must be new or empty [else NAME]
    #[arg(long)]
    dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Language {
    Rust,
    C,
    Zig,
    #[value(alias = "as")]
    Assemblyscript,
}

/// A file of a project: its path, and its content.
type File = (&'static str, &'static str);

macro_rules! template {
    ($path:literal) => {
        include_str!(concat!("../../templates/", $path))
    };
}

macro_rules! library {
    ($path:literal) => {
        include_str!(concat!("../../../../programs/", $path))
    };
}

/// Files of every project.
const ALL: &[File] = &[("first.txt", template!("first.txt"))];

const RUST: &[File] = &[
    ("Cargo.toml", template!("rust/Cargo.toml.in")),
    (".cargo/config.toml", template!("rust/config.toml")),
    (".gitignore", template!("rust/gitignore")),
    ("README.md", template!("rust/README.md")),
    ("src/lib.rs", template!("rust/program.rs")),
    ("weir-guest/Cargo.toml", template!("rust/guest.toml.in")),
    ("weir-guest/src/lib.rs", library!("weir-guest/src/lib.rs")),
    ("weir-guest/src/host.rs", library!("weir-guest/src/host.rs")),
    ("weir-guest/src/heap.rs", library!("weir-guest/src/heap.rs")),
    (
        "weir-guest/src/panics.rs",
        library!("weir-guest/src/panics.rs"),
    ),
    (
        "weir-guest/src/bytes.rs",
        library!("weir-guest/src/bytes.rs"),
    ),
];

const C: &[File] = &[
    ("Makefile", template!("c/Makefile.in")),
    (".gitignore", template!("c/gitignore")),
    ("README.md", template!("c/README.md")),
    ("program.c", template!("c/program.c")),
    ("weir_guest.h", library!("c/weir_guest.h")),
];

const ZIG: &[File] = &[
    ("Makefile", template!("zig/Makefile.in")),
    (".gitignore", template!("zig/gitignore")),
    ("README.md", template!("zig/README.md")),
    ("program.zig", template!("zig/program.zig")),
    ("weir_guest.zig", library!("zig/weir_guest.zig")),
];

const ASSEMBLYSCRIPT: &[File] = &[
    ("package.json", template!("assemblyscript/package.json.in")),
    (
        "package-lock.json",
        template!("assemblyscript/package-lock.json.in"),
    ),
    (".npmrc", library!("assemblyscript/.npmrc")),
    ("asconfig.json", template!("assemblyscript/asconfig.json")),
    (".gitignore", template!("assemblyscript/gitignore")),
    ("README.md", template!("assemblyscript/README.md")),
    (
        "assembly/program.ts",
        template!("assemblyscript/program.ts"),
    ),
    (
        "assembly/weir_guest.ts",
        library!("assemblyscript/assembly/index.ts"),
    ),
];

impl Language {
    fn files(self) -> impl Iterator<Item = &'static File> {
        let own = match self {
            Self::Rust => RUST,
            Self::C => C,
            Self::Zig => ZIG,
            Self::Assemblyscript => ASSEMBLYSCRIPT,
        };
        ALL.iter().chain(own)
    }
}

/// Runs `weir program new`.
pub(super) fn run(caller: &Caller, args: &NewArgs) -> anyhow::Result<ExitCode> {
    let bad = |why: String| -> anyhow::Error {
        let what = format!("cannot create the project {}", args.name);
        let failure = Failure::new(ErrorCode::BadOption, what).because(why);
        let advice = "choose another name, or a directory that does not exist with `--dir`";
        failure.advise(advice).into()
    };
    if let Some(why) = name_problem(&args.name) {
        return Err(bad(why.to_owned()));
    }
    let dir = args.dir.clone().unwrap_or_else(|| (&args.name).into());
    if let Some(why) = directory_problem(&dir) {
        return Err(bad(why));
    }
    let mut count = 0;
    for (path, text) in args.lang.files() {
        write(&dir.join(path), &text.replace(NAME, &args.name))?;
        count += 1;
    }
    let readme = dir.join("README.md");
    let text = format!(
        "wrote {count} files; the next commands are in {}",
        readme.display()
    );
    report::note(caller.quiet, &text);
    Ok(ExitCode::SUCCESS)
}

/// Why a name is invalid: it must suit packages of every language, and topics.
fn name_problem(name: &str) -> Option<&'static str> {
    if !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Some("the name must begin with a letter from a to z");
    }
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if !name.bytes().all(allowed) {
        return Some("the name may contain only letters from a to z, digits and -");
    }
    if name.len() > NAME_BYTES_MAX {
        return Some("the name may have at most 64 bytes");
    }
    (name == "weir-guest").then_some("the library for programs already has this name")
}

/// Why a project cannot be written to a directory.
fn directory_problem(dir: &Path) -> Option<String> {
    match fs::read_dir(dir) {
        Ok(mut entries) => {
            let taken = entries.next().is_some();
            taken.then(|| format!("the directory {} is not empty", dir.display()))
        }
        Err(_) if !dir.exists() => None,
        Err(error) => Some(format!("{}: {error}", dir.display())),
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let what = || format!("cannot write {}", path.display());
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).failed(what)?;
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .failed(what)?;
    file.write_all(text.as_bytes()).failed(what)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use clap::ValueEnum as _;

    use super::{Language, NAME, directory_problem, name_problem, write};

    #[test]
    fn nothing_is_overwritten() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path();
        assert_eq!(directory_problem(dir), None, "an empty directory");
        assert_eq!(
            directory_problem(&dir.join("new")),
            None,
            "no directory yet"
        );
        let file = dir.join("src/lib.rs");
        write(&file, "mine").unwrap();
        assert!(directory_problem(dir).is_some());
        assert!(directory_problem(&file).is_some(), "a file");
        assert!(write(&file, "ours").is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    }

    #[test]
    fn names_suit_packages_and_topics() {
        for name in ["seats", "a", "a-1", "core", &"a".repeat(64)] {
            assert_eq!(name_problem(name), None, "{name}");
        }
        let long = "a".repeat(65);
        for name in ["", "A", "1a", "-a", "a_b", "a/b", "..", "weir-guest", &long] {
            assert!(name_problem(name).is_some(), "{name}");
        }
    }

    #[test]
    fn every_project_is_complete_and_needs_no_other_files() {
        for language in Language::value_variants() {
            let files: Vec<_> = language.files().collect();
            for part in ["README.md", "first.txt", ".gitignore"] {
                let named = files.iter().filter(|(path, _)| *path == part).count();
                assert_eq!(named, 1, "{language:?} has {part}");
            }
            for (path, text) in files {
                let text = text.replace(NAME, "seats");
                assert!(!text.contains("{{"), "{path} has something to fill in");
                assert!(!text.contains("../"), "{path} leaves the project");
                assert!(!text.contains(".workspace"), "{path} needs this workspace");
            }
        }
    }
}
