//! Checks the target directory of a copy of a store before the copy begins.
//!
//! A copy is built beside its target. When it is complete, it replaces the target by a rename.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use weir::ErrorCode;

use crate::report::{Failure, FailureContext, usage};

/// Returns the target without a separator at its end. Fails if a complete copy could not replace
/// the target, or if the target is inside of the directory `source`, which must not change.
pub(crate) fn check(target: &Path, source: &Path) -> anyhow::Result<PathBuf> {
    let target = target.components().as_path();
    let what = || format!("cannot use the target {}", target.display());
    let refused = |why: &str, advice: &str| {
        let failure = Failure::new(ErrorCode::BadOption, what());
        failure.because(why).advise(advice).tool()
    };
    if target.file_name().is_none() {
        return Err(usage("TARGET must end with the name of a directory"));
    }
    if target.is_symlink() {
        let advice = "give the directory that the link points to";
        return Err(refused("it is a symbolic link", advice).into());
    }
    if is_mount_point(target) {
        let advice = "give a new directory in it, or unmount the file system first";
        return Err(refused("a file system is mounted there", advice).into());
    }
    let absolute = std::path::absolute(target).failed(what)?;
    let existing = absolute
        .ancestors()
        .find_map(|path| path.canonicalize().ok());
    let source = source.canonicalize().ok();
    if let (Some(existing), Some(source)) = (existing, source)
        && existing.starts_with(&source)
    {
        let why = format!("it is inside of the store in {}", source.display());
        return Err(refused(&why, "give a directory outside of the store").into());
    }
    Ok(target.to_owned())
}

/// Whether a directory is the root of a file system, which cannot be replaced.
fn is_mount_point(target: &Path) -> bool {
    let (Ok(found), Ok(above)) = (target.metadata(), target.join("..").metadata()) else {
        return false;
    };
    found.dev() != above.dev()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use std::path::Path;

    use super::{check, is_mount_point};

    #[test]
    fn a_mount_point_is_no_target() {
        let proc = Path::new("/proc");
        assert!(is_mount_point(proc));
        let error = check(proc, Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.contains("mounted there"), "{error}");
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("below");
        std::fs::create_dir(&below).unwrap();
        assert!(!is_mount_point(&below));
        assert!(!is_mount_point(&below.join("new")));
    }

    #[test]
    fn a_separator_at_the_end_is_not_a_part_of_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("copy");
        let with_end = format!("{}/", target.display());
        let checked = check(Path::new(&with_end), Path::new("/nowhere")).unwrap();
        assert_eq!(checked.as_os_str(), target.as_os_str());
        for wrong in ["/", "..", "a/.."] {
            assert!(check(Path::new(wrong), Path::new("/nowhere")).is_err());
        }
    }
}
