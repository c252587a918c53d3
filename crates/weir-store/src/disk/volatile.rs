//! File systems on which "synced" does not mean "survives a power cut".
//!
//! The kind is read from the kernel (`statfs`): file systems in memory lose
//! everything, and those of the network promise what their server promises. An
//! overlay is as volatile as the directory that takes its writes.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{StatFs, fstat, fstatfs, major, minor, stat, statfs};

/// The type of an overlay (`f_type`, `linux/magic.h`).
const OVERLAY: u64 = 0x794c_7630;

/// Types of file systems (`f_type`) and their names.
const KINDS: [(u64, &str); 9] = [
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x6969, "nfs"),
    (0x517b, "smb"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "ceph"),
    (0x5346_414f, "afs"),
];

/// Kind of the file system that holds `path`, or that would if it were made;
/// `None` when what is synced there survives.
#[must_use]
pub fn volatile_kind(path: &Path) -> Option<&'static str> {
    let absolute = std::path::absolute(path).ok()?;
    let found = |dir: &Path| Some((statfs(dir).ok()?, stat(dir).ok()?.st_dev));
    let (found, device) = absolute.ancestors().find_map(found)?;
    kind(&found, device)
}

/// The same for an open directory.
pub(super) fn kind_of(directory: &impl AsFd) -> Option<&'static str> {
    kind(&fstatfs(directory).ok()?, fstat(directory).ok()?.st_dev)
}

fn kind(found: &StatFs, device: u64) -> Option<&'static str> {
    match magic(found) {
        OVERLAY => {
            let upper = statfs(upper_directory(device)?.as_str()).ok()?;
            name(magic(&upper)).map(|_| "overlay on a volatile file system")
        }
        other => name(other),
    }
}

/// Only the lower 32 bits are defined; some systems extend their sign.
fn magic(found: &StatFs) -> u64 {
    let bytes = found.f_type.to_le_bytes();
    bytes
        .first_chunk::<4>()
        .map_or(0, |low| u64::from(u32::from_le_bytes(*low)))
}

fn name(magic: u64) -> Option<&'static str> {
    let found = KINDS.iter().find(|(known, _)| *known == magic);
    found.map(|(_, name)| *name)
}

/// Where an overlay writes, as far as the process may see it.
fn upper_directory(device: u64) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let wanted = format!("{}:{}", major(device), minor(device));
    let line = mounts
        .lines()
        .find(|line| line.split(' ').nth(2) == Some(&wanted))?;
    let (_, upper) = line.split_once("upperdir=")?;
    upper.split([',', ' ']).next().map(str::to_owned)
}
