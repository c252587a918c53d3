//! The kind of a file system, and whether synced data on it survives a power cut.
//!
//! The kernel reports the kind (`statfs`). File systems in memory lose everything. Network file
//! systems are only as durable as their server. An overlay is as volatile as the directory that
//! receives its writes.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{StatFs, fstat, fstatfs, fstatvfs, major, minor, stat, statfs};

use super::DiskSpace;

/// The type of an overlay (`f_type`, `linux/magic.h`).
const OVERLAY: u64 = 0x794c_7630;

/// The durability of synced data on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// Synced data survives a power cut.
    Survives,
    /// Unknown: a user program implements the file system, or its type is not in the table.
    Unknown,
    /// Synced data may be lost: it is only in memory, or on another machine.
    Volatile,
}

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Name; `unknown` for a type that is not in the table.
    pub name: &'static str,
    /// Durability of synced data.
    pub survival: Survival,
}

/// Types of file systems (`f_type`, `linux/magic.h`), their names, and the durability of synced
/// data.
const KINDS: [(u64, &str, Survival); 18] = [
    (0xef53, "ext", Survival::Survives),
    (0x5846_5342, "xfs", Survival::Survives),
    (0x9123_683e, "btrfs", Survival::Survives),
    (0x2fc1_2fc1, "zfs", Survival::Survives),
    (0xf2f5_2010, "f2fs", Survival::Survives),
    (0xca45_1a4e, "bcachefs", Survival::Survives),
    // Used if the upper directory of the overlay is unknown.
    (OVERLAY, "overlay", Survival::Survives),
    (0x6573_5546, "fuse", Survival::Unknown),
    (0x0102_1994, "tmpfs", Survival::Volatile),
    (0x8584_58f6, "ramfs", Survival::Volatile),
    (0x6969, "nfs", Survival::Volatile),
    (0x517b, "smb", Survival::Volatile),
    (0xff53_4d42, "cifs", Survival::Volatile),
    (0xfe53_4d42, "smb2", Survival::Volatile),
    (0x0102_1997, "9p", Survival::Volatile),
    (0x00c3_6400, "ceph", Survival::Volatile),
    (0x5346_414f, "afs", Survival::Volatile),
    (0x0bd0_0bd0, "lustre", Survival::Volatile),
];

/// The kind of the file system that contains `path`, which must exist.
///
/// # Errors
/// The errors of `statfs` and `stat`.
pub fn file_system(path: &Path) -> io::Result<FileSystem> {
    Ok(look_up(&statfs(path)?, stat(path)?.st_dev))
}

/// Kind of the file system that contains `path`, or that would contain it if it were created.
/// `None` if synced data survives a power cut there.
#[must_use]
pub fn volatile_kind(path: &Path) -> Option<&'static str> {
    let absolute = std::path::absolute(path).ok()?;
    let found = |dir: &Path| Some((statfs(dir).ok()?, stat(dir).ok()?.st_dev));
    let (found, device) = absolute.ancestors().find_map(found)?;
    kind(&found, device)
}

/// Like `volatile_kind`, for an open directory.
pub(super) fn kind_of(directory: &impl AsFd) -> Option<&'static str> {
    kind(&fstatfs(directory).ok()?, fstat(directory).ok()?.st_dev)
}

/// Name and space of the file system of an open directory.
pub(super) fn space_of(directory: &impl AsFd) -> Option<DiskSpace> {
    let found = fstatfs(directory).ok()?;
    let space = fstatvfs(directory).ok()?;
    Some(DiskSpace {
        file_system: look_up(&found, fstat(directory).ok()?.st_dev).name,
        free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
        total_bytes: space.f_blocks.saturating_mul(space.f_frsize),
    })
}

fn kind(found: &StatFs, device: u64) -> Option<&'static str> {
    let found = look_up(found, device);
    (found.survival == Survival::Volatile).then_some(found.name)
}

fn look_up(found: &StatFs, device: u64) -> FileSystem {
    let upper = match magic(found) {
        OVERLAY => upper_directory(device).and_then(|upper| statfs(upper.as_str()).ok()),
        _ => None,
    };
    match upper.map(|upper| of_type(magic(&upper)).survival) {
        Some(survival @ Survival::Volatile) => FileSystem {
            name: "overlay on a volatile file system",
            survival,
        },
        _ => of_type(magic(found)),
    }
}

/// Only the lower 32 bits are defined; some systems extend their sign.
fn magic(found: &StatFs) -> u64 {
    let bytes = found.f_type.to_le_bytes();
    let Some(low) = bytes.first_chunk::<4>() else {
        unreachable!("the type of a file system has at least 32 bits")
    };
    u64::from(u32::from_le_bytes(*low))
}

fn of_type(magic: u64) -> FileSystem {
    let found = KINDS.iter().find(|(known, ..)| *known == magic);
    let unknown = ("unknown", Survival::Unknown);
    let (name, survival) = found.map_or(unknown, |(_, name, survival)| (*name, *survival));
    FileSystem { name, survival }
}

/// The upper directory of an overlay, if it is visible to the process.
fn upper_directory(device: u64) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let wanted = format!("{}:{}", major(device), minor(device));
    let line = mounts
        .lines()
        .find(|line| line.split(' ').nth(2) == Some(&wanted))?;
    let (_, upper) = line.split_once("upperdir=")?;
    upper.split([',', ' ']).next().map(str::to_owned)
}
