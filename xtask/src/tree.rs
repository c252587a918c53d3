//! The files of the project, and their names in messages.
//!
//! Invariant: paths are relative to the root, with `/`, in byte order, so that every run lists
//! equal files in equal order.

use anyhow::Context as _;
use std::path::{Path, PathBuf};

/// Directories without hand-written files (`.git` is a file in a linked work tree).
const SKIPPED: &[&str] = &[
    ".git",
    "target",
    "node_modules",
    "__pycache__",
    ".venv",
    "corpus",
];

/// Results of lab runs: paths and program output of one machine.
const RESULTS: &str = "lab/results";

/// The root of the project.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent()
        .map_or_else(|| here.to_path_buf(), Path::to_path_buf)
}

/// All files below the root, relative to it, except those under `SKIPPED` directories.
pub(crate) fn files() -> anyhow::Result<Vec<String>> {
    let root = root();
    let mut found = Vec::new();
    let mut queue = vec![root.clone()];
    while let Some(directory) = queue.pop() {
        let entries = std::fs::read_dir(&directory)
            .with_context(|| format!("cannot list {}", directory.display()))?;
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            let kind = entry.file_type()?;
            let skipped = |skipped: &&str| entry.file_name() == **skipped;
            if SKIPPED.iter().any(skipped) || path == root.join(RESULTS) {
                continue;
            }
            if kind.is_dir() {
                queue.push(path);
            } else if kind.is_file()
                && let Ok(relative) = path.strip_prefix(&root)
                && let Some(name) = relative.to_str()
            {
                found.push(name.to_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The bytes of the file `name`, relative to the root.
pub(crate) fn bytes(name: &str) -> anyhow::Result<Vec<u8>> {
    std::fs::read(root().join(name)).with_context(|| format!("cannot read {name}"))
}

/// The text of the file `name`, relative to the root.
pub(crate) fn text(name: &str) -> anyhow::Result<String> {
    String::from_utf8(bytes(name)?).with_context(|| format!("{name} is not UTF-8"))
}

/// Whether the file has this extension.
pub(crate) fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name)
        .extension()
        .is_some_and(|found| found == extension)
}
