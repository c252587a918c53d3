//! `weir restore`: creates a store from a backup.
//!
//! The backup is checked, copied, synced and checked again before it gets its
//! final name.
//!
//! Invariants:
//! - The backup is not changed.
//! - A target under its final name is complete.
//! - A node of a cluster is not copied: the copy would have its vote.

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use weir::ErrorCode;

use crate::caller::Caller;
use crate::output::{Cell, Field, Shape, field};
use crate::place::{self, Access};
use crate::progress::Progress;
use crate::report::{Failure, io_code, usage};
use crate::serve::node;
use crate::target;
use crate::verify;

/// Files of a store that belong to the process that has it open.
const NOT_COPIED: [&str; 2] = ["LOCK", "weir.sock"];
/// The folder with the vote of a node.
const NODE_FOLDER: &str = "cluster";
/// Maximum depth of folders below the directory of a store; deeper ones do not belong to a store.
const DEPTH_MAX: usize = 8;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Verifies the backup, copies it to a temporary directory beside TARGET, verifies the copy, and renames
it to TARGET. The backup is not changed.

Examples:
  weir put orders x && weir backup ./copy && weir restore ./copy ./again
  weir put orders x && weir backup ./copy2 && weir restore ./copy2 ./again2 -o json")]
pub(crate) struct RestoreArgs {
    /// Directory of the backup
    backup: PathBuf,
    /// Target directory; it must be new or empty
    target: PathBuf,
}

/// Fields of a restore.
pub(crate) const FIELDS: &[Field] = &[
    field("target", "text", "directory of the restored store"),
    field("files", "number", "files copied"),
    field("bytes", "number", "bytes copied"),
    field(
        "applied",
        "number",
        "newest intention in the restored store",
    ),
    field(
        "digest",
        "text",
        "digest of the state of the restored store",
    ),
    field("ms", "number", "duration of the restore in milliseconds"),
];

#[derive(Default)]
struct CopyCounts {
    files: u64,
    bytes: u64,
}

/// Runs `weir restore`.
pub(crate) fn run(caller: &Caller, args: &RestoreArgs) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let started = Instant::now();
    let shown = args.target.display().to_string();
    let failed = |error| failure(&shown, error);
    node::refuse_copy(caller, &args.backup, format!("cannot restore into {shown}"))?;
    if !is_absent_or_empty(&args.target).map_err(failed)? {
        let what = format!("cannot restore into {shown}");
        return Err(Failure::new(ErrorCode::StoreExists, what).tool().into());
    }
    let target = target::check(&args.target, &args.backup)?;
    let partial = partial_path(&target)
        .ok_or_else(|| usage("TARGET must end with the name of a directory"))?;
    if partial.try_exists().map_err(failed)? {
        let partial = partial.display();
        return Err(failed(io::ErrorKind::AlreadyExists.into())
            .because(format!("the temporary directory {partial} already exists"))
            .advise(format!(
                "if an interrupted restore created {partial}, remove it; otherwise choose another \
                 target"
            ))
            .into());
    }
    let report = verify::check(&args.backup, caller.quiet)?;
    verify::ensure_sound(&args.backup, &report)?;
    if let Some(parent) = partial.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    create_private(&partial).map_err(failed)?;
    let copied = copy_and_verify(&args.backup, &partial, caller.quiet, &shown);
    if copied.is_err() {
        // The failure may be a lack of space. The error of the copy is reported, not one of this.
        drop(std::fs::remove_dir_all(&partial));
    }
    let counts = copied?;
    publish(&partial, &target).map_err(failed)?;
    let weir = place::open_at(
        caller,
        &target,
        Access::Change,
        place::PROGRAM,
        caller.lock_wait,
        false,
        &Progress::default(),
        |_| {},
    )?;
    out.row(&[
        Cell::Text(shown.as_str().into()),
        Cell::Count(counts.files),
        Cell::Size(counts.bytes),
        Cell::Count(weir.store()?.applied().0),
        Cell::Text(weir.store()?.digest().to_string().into()),
        Cell::Count(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)),
    ])?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// The failure of a system call.
fn failure(target: &str, error: io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::AlreadyExists => ErrorCode::StoreExists,
        _ => io_code(&error),
    };
    Failure::new(code, format!("cannot restore into {target}"))
        .because(error)
        .tool()
}

/// Copies the backup into an empty directory, and verifies the copy.
fn copy_and_verify(
    backup: &Path,
    partial: &Path,
    quiet: bool,
    target: &str,
) -> anyhow::Result<CopyCounts> {
    let mut counts = CopyCounts::default();
    copy(backup, partial, 0, &mut counts).map_err(|error| failure(target, error))?;
    let report = verify::check(partial, quiet)?;
    verify::ensure_sound(partial, &report)?;
    Ok(counts)
}

/// Whether the target does not exist or is empty.
fn is_absent_or_empty(target: &Path) -> io::Result<bool> {
    match std::fs::read_dir(target) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// The name of the copy until it is complete. `None` for a path without a file name, such as `.`.
fn partial_path(target: &Path) -> Option<PathBuf> {
    let mut name = target.file_name()?.to_owned();
    name.push(".partial");
    Some(target.with_file_name(name))
}

/// Creates a directory that only its owner can use, as a store does.
fn create_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Copies the files below a directory into an existing one.
fn copy(from: &Path, to: &Path, depth: usize, counts: &mut CopyCounts) -> io::Result<()> {
    if depth > DEPTH_MAX {
        return Err(io::Error::other(format!(
            "the directories of the backup are nested more than {DEPTH_MAX} deep"
        )));
    }
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let target = to.join(&name);
        let kind = entry.file_type()?;
        if depth == 0 && name == NODE_FOLDER {
            continue;
        }
        if kind.is_dir() {
            create_private(&target)?;
            copy(&entry.path(), &target, depth + 1, counts)?;
        } else if kind.is_file() && !NOT_COPIED.iter().any(|skipped| name == *skipped) {
            counts.bytes += std::fs::copy(entry.path(), &target)?;
            counts.files += 1;
            // The files of a backup may be read-only.
            std::fs::set_permissions(&target, Permissions::from_mode(0o600))?;
            File::open(&target)?.sync_all()?;
        }
    }
    File::open(to)?.sync_all()
}

/// Renames the complete copy to its final name.
fn publish(partial: &Path, target: &Path) -> io::Result<()> {
    if target.exists() {
        std::fs::remove_dir(target)?;
    }
    std::fs::rename(partial, target)?;
    let parent = target
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
