//! Directories for the stores of demos and measurements, and their disk usage.

use std::collections::hash_map::RandomState;
use std::fs::{self, DirBuilder};
use std::hash::{BuildHasher, Hasher};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

/// The directory in which the demo and `weir program bench` work.
#[derive(Debug)]
pub(crate) struct ScratchDirectory {
    path: PathBuf,
    /// Whether the directory is removed when this is dropped.
    temporary: bool,
}

impl ScratchDirectory {
    /// Creates the directory `keep`, or a temporary one. A temporary directory is below `./target`
    /// if that is a build directory, else below the system's directory for temporary files.
    pub(crate) fn new(keep: Option<&Path>) -> anyhow::Result<Self> {
        if let Some(path) = keep {
            let shown = path.display();
            fs::create_dir_all(path).with_context(|| format!("cannot create {shown}"))?;
            let empty = path.read_dir()?.next().is_none();
            ensure!(
                empty,
                "{shown} is not empty; the demo needs an empty directory"
            );
            return Ok(Self {
                path: path.to_owned(),
                temporary: false,
            });
        }
        let parent = if Path::new("target/CACHEDIR.TAG").exists() {
            fs::create_dir_all("target/demo").context("cannot create target/demo")?;
            PathBuf::from("target/demo")
        } else {
            std::env::temp_dir()
        };
        let path = parent.join(format!("weir-demo-{:016x}", random()));
        // Fails if the directory exists.
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        let temporary = true;
        Ok(Self { path, temporary })
    }

    /// The path of the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the directory remains.
    pub(crate) fn is_kept(&self) -> bool {
        !self.temporary
    }

    /// Keeps the directory for inspection.
    pub(crate) fn keep(&mut self) -> &Path {
        self.temporary = false;
        &self.path
    }

    /// Removes the directory if it is temporary.
    pub(crate) fn close(mut self) -> anyhow::Result<()> {
        if std::mem::take(&mut self.temporary) {
            fs::remove_dir_all(&self.path)
                .with_context(|| format!("cannot remove {}", self.path.display()))?;
        }
        Ok(())
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        if self.temporary {
            // Reached only after a panic or an error, which is reported instead.
            drop(fs::remove_dir_all(&self.path));
        }
    }
}

/// An unpredictable number.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Bytes that the files below a directory occupy on the disk, not their lengths.
pub(crate) fn disk_bytes(directory: &Path) -> anyhow::Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        total += if metadata.is_dir() {
            disk_bytes(&entry.path())?
        } else {
            metadata.blocks() * 512
        };
    }
    Ok(total)
}

/// The type of the file system that holds a path, as the system names it.
pub(crate) fn file_system(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mut best: (usize, Option<String>) = (0, None);
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(point), Some(kind)) = (words.next(), words.next()) else {
            continue;
        };
        // A later mount hides an earlier one.
        if path.starts_with(point) && point.len() >= best.0 {
            best = (point.len(), Some(kind.to_owned()));
        }
    }
    best.1
}
