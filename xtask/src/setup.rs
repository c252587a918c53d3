//! Installs the tools that checks and tests need, if they are missing.
//!
//! Invariants:
//! - A second run changes nothing.
//! - Each action is printed before it starts.

use crate::steps::{cargo, succeed};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Subcommands of cargo, and the rustup component that contains each.
const COMPONENTS: &[(&str, &str)] = &[("fmt", "rustfmt"), ("clippy", "clippy")];

/// Debian packages that tests use, and how each one is detected.
const PACKAGES: &[(&str, Detection)] = &[
    (
        "faketime",
        Detection::Library("faketime/libfaketimeMT.so.1"),
    ),
    // Any Emacs is accepted here; the suite checks the version.
    ("emacs-nox", Detection::Command("emacs")),
    ("elpa-package-lint", Detection::Lisp("package-lint")),
    // The manual of the Emacs package.
    ("texinfo", Detection::Command("makeinfo")),
];

/// How a package is detected.
#[derive(Clone, Copy)]
enum Detection {
    /// A file below a directory of `/usr/lib`.
    Library(&'static str),
    /// A command that answers `--version`.
    Command(&'static str),
    /// A package of Lisp, as [`lisp_folder`] finds it.
    Lisp(&'static str),
}

/// Where Debian keeps the sources of Lisp packages.
const LISP: &str = "/usr/share/emacs/site-lisp/elpa-src";

/// Checks all tools, and installs the missing ones.
pub(crate) fn setup() -> anyhow::Result<()> {
    for (subcommand, component) in COMPONENTS {
        if present(&mut cargo(&[subcommand, "--version"])) {
            continue;
        }
        println!("setup: installing the toolchain component {component}");
        succeed(
            Command::new("rustup")
                .args(["component", "add", component])
                .current_dir(crate::tree::root()),
        )
        .map_err(|error| {
            error.context(format!(
                "`cargo {subcommand}` is missing; install the component {component} of Rust"
            ))
        })?;
    }
    for (package, detection) in PACKAGES {
        if detection.present() {
            continue;
        }
        println!("setup: installing the package {package}");
        // The package lists may be missing or old.
        let _ = Command::new("apt-get").args(["-q", "update"]).status();
        // A recommended package would install a graphical Emacs.
        let install = ["-q", "-y", "install", "--no-install-recommends", package];
        succeed(Command::new("apt-get").args(install)).map_err(|error| {
            error.context(format!(
                "the package {package} is missing; install it as root: `apt-get install {package}`"
            ))
        })?;
    }
    println!("setup: all required tools are installed");
    Ok(())
}

impl Detection {
    fn present(self) -> bool {
        match self {
            Self::Library(file) => is_installed(file),
            Self::Command(name) => present(Command::new(name).arg("--version")),
            Self::Lisp(name) => lisp_folder(name).is_some(),
        }
    }
}

/// The folder of a Lisp package. Its name contains the version; if there are several, the greatest
/// name.
pub(crate) fn lisp_folder(name: &str) -> Option<PathBuf> {
    let places = std::fs::read_dir(LISP).ok()?;
    let start = format!("{name}-");
    let of_package = |path: &PathBuf| {
        let version = path.file_name()?.to_str()?.strip_prefix(&start)?;
        version
            .starts_with(|c: char| c.is_ascii_digit())
            .then_some(())
    };
    places
        .flatten()
        .map(|place| place.path())
        .filter(|path| of_package(path).is_some())
        .max()
}

/// Whether the file of a package exists.
fn is_installed(file: &str) -> bool {
    let Ok(places) = std::fs::read_dir("/usr/lib") else {
        return false;
    };
    places
        .flatten()
        .any(|place| place.path().join(file).exists())
}

fn present(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
