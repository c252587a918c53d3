//! Wall and CPU clocks in nanoseconds.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the monotonic clock.
pub fn wall_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// Nanoseconds of CPU time that this process has used, over all threads.
pub fn process_cpu_ns() -> u64 {
    read(ClockId::ProcessCPUTime)
}

/// Nanoseconds by which the time of day is ahead of the monotonic clock.
pub fn time_of_day_ahead_ns() -> u64 {
    read(ClockId::Realtime).saturating_sub(wall_ns())
}

fn read(id: ClockId) -> u64 {
    let time = clock_gettime(id);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + nanos
}

/// A running measurement of wall and CPU time.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    wall: u64,
    cpu: u64,
}

impl Stopwatch {
    /// Starts.
    pub fn start() -> Stopwatch {
        let cpu = process_cpu_ns();
        Stopwatch {
            wall: wall_ns(),
            cpu,
        }
    }

    /// Wall and CPU nanoseconds since the start.
    pub fn stop(self) -> (u64, u64) {
        let wall = wall_ns() - self.wall;
        (wall, process_cpu_ns() - self.cpu)
    }
}
