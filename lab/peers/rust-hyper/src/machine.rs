//! CPU time of processes and idle time of the machine.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Files with the microseconds that a CPU spent in an idle state.
static IDLE: LazyLock<Vec<PathBuf>> = LazyLock::new(|| {
    let entries = |dir: PathBuf| {
        fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.path())
    };
    entries("/sys/devices/system/cpu".into())
        .flat_map(|cpu| entries(cpu.join("cpuidle")))
        .map(|state| state.join("time"))
        .filter(|file| file.is_file())
        .collect()
});

/// Online CPUs of the machine.
pub static CPUS: LazyLock<usize> = LazyLock::new(|| {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    text.lines()
        .filter(|line| line.starts_with("cpu"))
        .count()
        .saturating_sub(1)
        .max(1)
});

/// Idle nanoseconds of all CPUs together. The resolution is a microsecond if the kernel reports
/// idle states, otherwise a tick.
pub fn idle_ns() -> u64 {
    let read = |file: &PathBuf| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let exact: u64 = IDLE.iter().filter_map(read).sum();
    if exact > 0 {
        return exact * 1_000;
    }
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = text.split_ascii_whitespace().skip(4).take(2);
    ticks
        .filter_map(|tick| tick.parse::<u64>().ok())
        .sum::<u64>()
        * 10_000_000
}

/// Runs briefly on every CPU, because the kernel counts an idle period only when it ends.
pub fn stir_cpus() {
    let Ok(before) = sched_getaffinity(None) else {
        return;
    };
    for cpu in 0..*CPUS {
        let mut only = CpuSet::new();
        only.set(cpu);
        // A CPU that this process may not use is skipped.
        let _ = sched_setaffinity(None, &only);
    }
    let _ = sched_setaffinity(None, &before);
}

/// CPU nanoseconds of the living threads of process `pid`.
pub fn process_ns(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// How often the living threads of process `pid` gave up their CPU to wait.
pub fn process_waits(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok())
        .filter_map(|text| {
            let (_, rest) = text.split_once("\nvoluntary_ctxt_switches:")?;
            rest.lines().next()?.trim().parse::<u64>().ok()
        })
        .sum()
}

/// CPU nanoseconds of this process.
pub fn own_ns() -> u64 {
    ns(ClockId::ProcessCPUTime)
}

/// Nanoseconds of the monotonic clock.
pub fn now_ns() -> u64 {
    ns(ClockId::Monotonic)
}

fn ns(id: ClockId) -> u64 {
    let time = clock_gettime(id);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
