//! The circumstances of a run: machine, builds, file system, commit.
//!
//! It has two parts. `stable` decides whether a run may be resumed (the plan has its hash).
//! `moment` changes from run to run.
//!
//! Invariant: a fingerprint has no host name, user name, address, path or value of an environment
//! variable.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::error::{LabError, Result};
use crate::protocol::Fields;
use crate::rng::{fnv1a64, fnv1a64_more};
use crate::stats::{percentile_of_sorted, sorted};

/// Number of data syncs that are timed.
const SYNCS: u64 = 100;
/// Bytes written before each sync.
const SYNC_BYTES: usize = 4_096;

/// Machine, builds and moment of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// The part that comparable runs share.
    pub stable: BTreeMap<String, String>,
    /// The part of this run alone.
    pub moment: BTreeMap<String, String>,
}

impl Fingerprint {
    /// Inspects the machine. `scratch` is the directory whose file system is described,
    /// `contenders` the reports of the contenders, and `programs` the measured executables.
    pub fn take(
        root: &Path,
        scratch: &Path,
        contenders: &BTreeMap<String, Fields>,
        programs: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Fingerprint> {
        let mut stable = BTreeMap::new();
        let mut put = |name: &str, value: String| {
            if !value.is_empty() {
                stable.insert(name.to_owned(), value);
            }
        };
        put("cpu", field_of("/proc/cpuinfo", "model name"));
        put(
            "cpus",
            std::thread::available_parallelism()
                .map_or(1, usize::from)
                .to_string(),
        );
        put(
            "cache L1d",
            first_line("/sys/devices/system/cpu/cpu0/cache/index0/size"),
        );
        put(
            "cache L2",
            first_line("/sys/devices/system/cpu/cpu0/cache/index2/size"),
        );
        put(
            "cache L3",
            first_line("/sys/devices/system/cpu/cpu0/cache/index3/size"),
        );
        put("hypervisor", hypervisor());
        put("memory", field_of("/proc/meminfo", "MemTotal"));
        put("kernel", first_line("/proc/sys/kernel/osrelease"));
        put(
            "clock source",
            first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        );
        put(
            "governor",
            first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        );
        put(
            "huge pages",
            first_line("/sys/kernel/mm/transparent_hugepage/enabled"),
        );
        put("file system", file_system(scratch));
        put("lab", env!("CARGO_PKG_VERSION").to_owned());
        for (contender, versions) in contenders {
            let listed: Vec<String> = versions
                .iter()
                .map(|(name, version)| format!("{name} {version}"))
                .collect();
            put(&format!("contender {contender}"), listed.join(", "));
        }
        for (program, bytes) in programs {
            put(
                &format!("program {program}"),
                format!("{:016x}", fnv1a64(bytes)),
            );
        }
        let mut moment = BTreeMap::new();
        moment.insert("time".to_owned(), utc_now());
        moment.insert("load average".to_owned(), load_average());
        moment.insert("commit".to_owned(), commit(root));
        let (p50, p99) = sync_times(scratch)?;
        moment.insert("data sync of 4 KiB, p50".to_owned(), format!("{p50:.1} us"));
        moment.insert("data sync of 4 KiB, p99".to_owned(), format!("{p99:.1} us"));
        Ok(Fingerprint { stable, moment })
    }

    /// Short hash of the stable part.
    pub fn hash(&self) -> String {
        let mut sum = fnv1a64(b"");
        for (name, value) in &self.stable {
            sum = fnv1a64_more(sum, format!("{name}={value}\n").as_bytes());
        }
        format!("{:08x}", sum >> 32)
    }
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

fn field_of(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    });
    value.unwrap_or_default()
}

fn hypervisor() -> String {
    let flags = field_of("/proc/cpuinfo", "flags");
    let inside = flags.split(' ').any(|flag| flag == "hypervisor");
    if inside {
        "yes".to_owned()
    } else {
        "none seen".to_owned()
    }
}

fn load_average() -> String {
    first_line("/proc/loadavg")
        .split(' ')
        .take(3)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Type and options of the file system `dir` is on.
fn file_system(dir: &Path) -> String {
    let Ok(dir) = dir.canonicalize() else {
        return String::new();
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut best: (usize, String) = (0, String::new());
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ") else {
            continue;
        };
        let mut left = left.split(' ').skip(4);
        let (Some(point), Some(options)) = (left.next(), left.next()) else {
            continue;
        };
        let kind = right.split(' ').next().unwrap_or_default();
        if dir.starts_with(point) && point.len() >= best.0 {
            best = (point.len(), format!("{kind} ({options})"));
        }
    }
    best.1
}

fn commit(root: &Path) -> String {
    let git = |words: &[&str]| {
        let out = Command::new("git")
            .arg("-C")
            .arg(root)
            .args(words)
            .output()
            .ok()?;
        out.status
            .success()
            .then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
    };
    let Some(hash) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "not a repository".to_owned();
    };
    let clean =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|s| s.is_empty());
    if clean {
        hash
    } else {
        format!("{hash} with changes")
    }
}

/// p50 and p99 of `fdatasync` after a write into a preallocated file,
/// microseconds.
#[allow(clippy::cast_precision_loss)] // nanoseconds of a sync
fn sync_times(dir: &Path) -> Result<(f64, f64)> {
    let path = dir.join("sync-probe");
    let measure = || -> std::io::Result<Vec<f64>> {
        let mut file = File::create(&path)?;
        let block = vec![0xA5u8; SYNC_BYTES];
        for _ in 0..SYNCS {
            file.write_all(&block)?;
        }
        file.sync_all()?;
        let mut times = Vec::new();
        for place in 0..SYNCS {
            std::os::unix::fs::FileExt::write_all_at(&file, &block, place * SYNC_BYTES as u64)?;
            let start = clock::wall_ns();
            file.sync_data()?;
            times.push((clock::wall_ns() - start) as f64 / 1e3);
        }
        Ok(times)
    };
    let measured = measure();
    // Also after an error: on a full disk, the file would only occupy space.
    let _ = fs::remove_file(&path);
    let times = sorted(&measured.map_err(LabError::io(&path))?);
    let at = |share| percentile_of_sorted(&times, share).unwrap_or(0.0);
    Ok((at(0.50), at(0.99)))
}

/// The time as `2026-01-31T12-00-00`, UTC.
pub fn utc_now() -> String {
    let seconds = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    utc(seconds)
}

/// `seconds` since 1970 as a date, by the civil-from-days algorithm with years that begin in March.
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}-{:02}-{:02}",
        rest / 3_600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From `date -u -d @N`.
    #[test]
    fn dates_are_right() {
        assert_eq!(utc(0), "1970-01-01T00-00-00");
        assert_eq!(utc(951_782_399), "2000-02-28T23-59-59");
        assert_eq!(utc(951_782_400), "2000-02-29T00-00-00");
        assert_eq!(utc(1_795_154_226), "2026-11-20T05-57-06");
    }

    #[test]
    fn the_hash_ignores_the_moment() {
        let mut a = Fingerprint::default();
        a.stable.insert("cpu".into(), "x".into());
        let mut b = a.clone();
        b.moment.insert("time".into(), "now".into());
        assert_eq!(a.hash(), b.hash());
        b.stable.insert("cpu".into(), "y".into());
        assert_ne!(a.hash(), b.hash());
    }
}
