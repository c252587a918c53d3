//! The state of the machine during a block: idle share, stolen time and the CPU time of other
//! processes, from the counters of the kernel; whether the clock was set; and programs that are known
//! to disturb a measurement.
//!
//! A tick is 10 ms, so over a block of a second the shares have an error of about a percent.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rustix::thread::sched_getaffinity;

use crate::clock;

/// Nanoseconds of one tick of `/proc/stat`.
const TICK_NS: u64 = 10_000_000;
/// Time services slow down or speed up the time of day by at most one part in this number. A larger change
/// is a step.
const SLEW_PARTS: u64 = 1_000;
/// Programs that disturb a measurement by their disk or memory traffic, which the share of foreign CPU
/// time does not show: package managers, indexers, backups and builds. The kernel keeps 15 bytes of
/// a name.
const DISTURBERS: [&str; 20] = [
    "apt-get",
    "baloo_file",
    "borg",
    "cc1",
    "cc1plus",
    "clang",
    "dpkg",
    "duplicity",
    "javac",
    "ld",
    "lld",
    "locate",
    "mandb",
    "ninja",
    "packagekitd",
    "restic",
    "rsync",
    "rustc",
    "tracker-miner-f",
    "updatedb",
];

/// CPUs this process may use, ascending.
pub fn allowed_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else {
        return vec![0];
    };
    (0..1_024).filter(|cpu| set.is_set(*cpu)).collect()
}

/// Names of running programs that are known to disturb a measurement; `proc` is `/proc`.
pub fn disturbers(proc: &Path) -> BTreeSet<String> {
    let processes = fs::read_dir(proc).into_iter().flatten().flatten();
    let names = processes.filter_map(|process| {
        let name = fs::read_to_string(process.path().join("comm")).ok()?;
        Some(name.trim_end().to_owned())
    });
    names
        .filter(|name| DISTURBERS.contains(&name.as_str()))
        .collect()
}

/// Counters of the watched CPUs and of our processes at one moment,
/// nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    wall: u64,
    /// How far the time of day is ahead of `wall`.
    ahead: u64,
    idle: u64,
    steal: u64,
    ours: u64,
}

/// Shares of the watched CPUs' time between two moments, 0 to 1, and what happened to the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Shares {
    /// Idle, or waiting for a device.
    pub idle: f64,
    /// Taken by the hypervisor.
    pub steal: f64,
    /// Used by other processes.
    pub foreign: f64,
    /// Whether the time of day was set.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clock_set: bool,
}

impl Moment {
    /// This moment, with `ours_ns` of CPU time added for our processes that have ended.
    #[must_use]
    pub fn with_ours(mut self, ours_ns: u64) -> Moment {
        self.ours += ours_ns;
        self
    }
}

/// Reads the counters of `cpus`. This process and `pids` count as ours.
pub fn moment(cpus: &[usize], pids: &[u32], count_self: bool) -> Moment {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let mut now = Moment {
        wall: clock::wall_ns(),
        ahead: clock::time_of_day_ahead_ns(),
        ..Moment::default()
    };
    for cpu in cpus {
        let (idle, steal) = cpu_ticks(&text, *cpu).unwrap_or_default();
        now.idle += idle * TICK_NS;
        now.steal += steal * TICK_NS;
    }
    now.ours = pids.iter().map(|pid| process_ns(*pid)).sum();
    if count_self {
        now.ours += clock::process_cpu_ns();
    }
    now
}

/// Idle (with I/O wait) and steal ticks of `cpu` in the text of `/proc/stat`.
fn cpu_ticks(text: &str, cpu: usize) -> Option<(u64, u64)> {
    let label = format!("cpu{cpu}");
    let line = text
        .lines()
        .find(|line| line.split(' ').next() == Some(&label))?;
    let ticks: Vec<u64> = line
        .split_ascii_whitespace()
        .skip(1)
        .flat_map(str::parse)
        .collect();
    Some((ticks.get(3)? + ticks.get(4)?, *ticks.get(7)?))
}

/// CPU nanoseconds of `pid`: those of its living threads in nanoseconds, or those of all its
/// threads in ticks, whichever is more.
fn process_ns(pid: u32) -> u64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return 0;
    };
    let living: u64 = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
        .sum();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    living.max(stat_ticks(&stat).unwrap_or(0) * TICK_NS)
}

/// User and system ticks in the text of `/proc/<pid>/stat`.
fn stat_ticks(text: &str) -> Option<u64> {
    // The name may contain spaces; it ends at the last parenthesis.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let user: u64 = fields.get(11)?.parse().ok()?;
    let system: u64 = fields.get(12)?.parse().ok()?;
    Some(user + system)
}

/// What happened to `cpus` CPUs and to the clock between two moments.
#[allow(clippy::cast_precision_loss)] // nanoseconds of minutes are far below 2^53
pub fn between(from: Moment, to: Moment, cpus: usize) -> Shares {
    let whole = ((to.wall - from.wall) * cpus as u64).max(1) as f64;
    let share = |from: u64, to: u64| (to.saturating_sub(from) as f64 / whole).min(1.0);
    let idle = share(from.idle, to.idle);
    let ours = share(from.ours, to.ours);
    Shares {
        idle,
        steal: share(from.steal, to.steal),
        foreign: (1.0 - idle - ours).max(0.0),
        clock_set: to.ahead.abs_diff(from.ahead) > TICK_NS + (to.wall - from.wall) / SLEW_PARTS,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        let from = Moment::default();
        let to = Moment {
            wall: 1_000_000_000,
            idle: 500_000_000,
            steal: 100_000_000,
            ours: 1_200_000_000,
            ..Moment::default()
        };
        let shares = between(from, to, 2);
        assert!((shares.idle - 0.25).abs() < 1e-9);
        assert!((shares.foreign - 0.15).abs() < 1e-9);
        assert!((shares.steal - 0.05).abs() < 1e-9);
    }

    #[test]
    fn a_clock_that_was_set_is_noticed_and_a_slow_one_is_not() {
        let moment = |wall, ahead| Moment {
            wall,
            ahead,
            ..Moment::default()
        };
        let from = moment(0, 1_000_000_000);
        let is_set = |ahead| between(from, moment(100_000_000_000, ahead), 1).clock_set;
        assert!(!is_set(1_050_000_000) && !is_set(950_000_000));
        assert!(is_set(1_120_000_000) && is_set(880_000_000));
    }

    #[test]
    fn disturbers_are_found_by_whole_name() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, name) in [
            ("1", "rustc\n"),
            ("20", "rustc\n"),
            ("3", "rustc-not\n"),
            ("self", ""),
        ] {
            fs::create_dir(proc.path().join(pid)).unwrap();
            fs::write(proc.path().join(pid).join("comm"), name).unwrap();
        }
        let found = disturbers(proc.path());
        assert_eq!(found, BTreeSet::from(["rustc".to_owned()]));
    }

    #[test]
    fn ticks_are_found_after_any_name() {
        let text = "77 (a b) c) S 1 2 3 4 5 6 7 8 9 10 40 2 0 0 20 0";
        assert_eq!(stat_ticks(text), Some(42));
    }

    #[test]
    fn counters_are_found_by_whole_name() {
        let text = "cpu  9 9 9 9 9 9 9 9\ncpu1 1 2 3 40 5 6 7 8 0 0\ncpu10 0 0 0 77 0 0 0 1\n";
        assert_eq!(cpu_ticks(text, 1).unwrap(), (45, 8));
        assert_eq!(cpu_ticks(text, 10).unwrap(), (77, 1));
        assert!(cpu_ticks(text, 2).is_none());
    }
}
