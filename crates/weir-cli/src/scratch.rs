//! Directories for the stores of demos and measurements, and what they take there.

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
    /// Whether it goes when this does.
    temporary: bool,
}

impl ScratchDirectory {
    /// Makes the directory `keep`, or a temporary one: below the build
    /// directory of the current one if there is any, else where the system
    /// keeps temporary files.
    pub(crate) fn new(keep: Option<&Path>) -> anyhow::Result<Self> {
        if let Some(path) = keep {
            let shown = path.display();
            fs::create_dir_all(path).with_context(|| format!("cannot make {shown}"))?;
            let empty = path.read_dir()?.next().is_none();
            ensure!(
                empty,
                "{shown} is not empty, and the demo overwrites nothing"
            );
            return Ok(Self {
                path: path.to_owned(),
                temporary: false,
            });
        }
        let parent = if Path::new("target/CACHEDIR.TAG").exists() {
            fs::create_dir_all("target/demo").context("cannot make target/demo")?;
            PathBuf::from("target/demo")
        } else {
            std::env::temp_dir()
        };
        let path = parent.join(format!("weir-demo-{:016x}", random()));
        // Fails when it exists.
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("cannot make {}", path.display()))?;
        let temporary = true;
        Ok(Self { path, temporary })
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it stays.
    pub(crate) fn is_kept(&self) -> bool {
        !self.temporary
    }

    /// Leaves it where it is, for a look.
    pub(crate) fn keep(&mut self) -> &Path {
        self.temporary = false;
        &self.path
    }

    /// Removes it if it is temporary.
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
            // Only a panic comes here; what it says matters more.
            drop(fs::remove_dir_all(&self.path));
        }
    }
}

/// A number that nobody can know before.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Bytes that the files below a directory take on the disk, whatever their
/// length.
pub(crate) fn disk_bytes(directory: &Path) -> anyhow::Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let about = entry.metadata()?;
        total += if about.is_dir() {
            disk_bytes(&entry.path())?
        } else {
            about.blocks() * 512
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
        // A later line lies over an earlier one.
        if path.starts_with(point) && point.len() >= best.0 {
            best = (point.len(), Some(kind.to_owned()));
        }
    }
    best.1
}
