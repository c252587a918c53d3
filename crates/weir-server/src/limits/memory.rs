//! How much memory the process may use, and how it is divided.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use crate::config::ServerConfig;

/// Divisors of the memory for the budgets, with upper and lower bounds. With 2 GiB or more, every
/// budget is at its upper bound, which suffices for a large machine.
const BUDGET_SHARE: usize = 8;
const BUDGET_BYTES_MAX: usize = 256 << 20;
const BUDGET_BYTES_MIN: usize = 4 << 20;
/// Bytes of intentions in progress. The queue of the store accepts 64 MiB.
const WRITES_BYTES_MAX: usize = 60 << 20;
/// Additional bytes of intentions that wait for costly calls. They have a separate limit, because
/// they may wait long and must not block other writes. The slow lane of the store accepts 96 MiB:
/// enough for both limits, even if all topics become costly at one moment.
const COSTLY_BYTES_MAX: usize = 24 << 20;
/// Bytes of a request or a response that need no reservation.
const SMALL_SHARE: usize = 16 << 10;
const SMALL_BYTES_MAX: usize = 256 << 10;
const SMALL_BYTES_MIN: usize = 16 << 10;
/// Open HTTP/2 streams in addition to the first one of each connection: one for each `STREAM_SHARE`
/// bytes of memory. Each stream may have header fields of 32 KiB.
const STREAM_SHARE: usize = 256 << 10;
const STREAMS_MAX: usize = 100_000;
/// Responses that are read and rendered at a time: one for each `READER_SHARE` bytes of memory, up
/// to the number that keeps a slow disk busy.
const READER_SHARE: usize = 16 << 20;
const READERS_MIN: usize = 16;
const READERS_MAX: usize = 64;
/// Open connections: one for each `CONNECTION_SHARE` bytes of memory. An HTTP/2 client may send a
/// quarter of this before any budget applies, so such input uses at most a quarter of the memory.
const CONNECTION_SHARE: usize = 4 * WINDOW_BYTES_MIN;
/// HTTP/2 window of a connection and of its streams. The minimum is the initial window of the
/// protocol.
const WINDOW_BYTES_MIN: usize = 64 << 10;
const WINDOW_BYTES_MAX: usize = 1 << 20;

/// Limits on what connections may use together, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLimits {
    /// Memory that the process may use; `None`: not known.
    pub(crate) memory: Option<usize>,
    pub(crate) bodies: usize,
    pub(crate) answers: usize,
    pub(crate) writes: usize,
    pub(crate) costly: usize,
    /// Bytes of one request or response that need no reservation.
    pub(crate) small: usize,
    /// Number of HTTP/2 streams.
    pub(crate) streams: usize,
    /// Number of responses that are read at a time.
    pub(crate) readers: usize,
    /// Number of open connections of all ports.
    pub(crate) connections: usize,
    /// Bytes that an HTTP/2 client may send on a connection before the server reads them.
    pub(crate) window: usize,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self::of(&ServerConfig::default(), None)
    }
}

impl MemoryLimits {
    /// Returns the limits for this configuration on this machine.
    pub(crate) fn detect(config: &ServerConfig) -> Self {
        Self::of(config, detect())
    }

    fn of(config: &ServerConfig, found: Option<usize>) -> Self {
        let memory = config.memory_max.map(|size| size.0).or(found);
        let share = |share: usize, min, max: usize| {
            memory.map_or(max, |memory| (memory / share).clamp(min, max))
        };
        let budget = share(BUDGET_SHARE, BUDGET_BYTES_MIN, BUDGET_BYTES_MAX);
        // A quarter of the memory, divided by the number of connections that a port may have.
        let window = memory.map_or(WINDOW_BYTES_MAX, |memory| {
            let window = memory / 4 / config.connections_max.max(1);
            window.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
        });
        Self {
            memory,
            bodies: config.bodies_budget.map_or(budget, |size| size.0),
            answers: config.answers_budget.map_or(budget, |size| size.0),
            writes: share(BUDGET_SHARE, BUDGET_BYTES_MIN, WRITES_BYTES_MAX),
            costly: share(2 * BUDGET_SHARE, BUDGET_BYTES_MIN, COSTLY_BYTES_MAX),
            small: share(SMALL_SHARE, SMALL_BYTES_MIN, SMALL_BYTES_MAX),
            streams: share(STREAM_SHARE, 64, STREAMS_MAX),
            readers: share(READER_SHARE, READERS_MIN, READERS_MAX),
            connections: share(CONNECTION_SHARE, 64, usize::MAX),
            window,
        }
    }

    /// Returns the settings with the limits of bodies lowered to the budget of bodies.
    pub(crate) fn bound(&self, mut config: ServerConfig) -> ServerConfig {
        for max in [
            &mut config.body_max,
            &mut config.payload_max,
            &mut config.json_max,
        ] {
            max.0 = max.0.min(self.bodies);
        }
        config
    }
}

/// Returns the lowest of three limits: the control groups of the process, its limit of address
/// space, and the memory of the machine.
fn detect() -> Option<usize> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        limit_of_group(Path::new(root), path, file)
    });
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = machine.lines().find_map(|line| {
        let kib = line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?;
        kib.parse::<usize>().ok()?.checked_mul(1 << 10)
    });
    let space = getrlimit(Resource::As).current;
    let space = space.and_then(|bytes| usize::try_from(bytes).ok());
    groups.chain(machine).chain(space).min()
}

/// Returns the lowest limit of a group and its parents. In a container the path may be that of the
/// host; then the root of the mount is the group.
fn limit_of_group(root: &Path, path: &str, file: &str) -> Option<usize> {
    let group = root.join(path.trim_start_matches('/'));
    let ancestors = group.ancestors().take_while(|path| path.starts_with(root));
    ancestors
        .filter_map(|path| {
            fs::read_to_string(path.join(file))
                .ok()?
                .trim()
                .parse()
                .ok()
        })
        .min()
}

/// Resident memory of the process, in bytes.
pub(crate) fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| {
        let kib = line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?;
        kib.parse::<u64>().ok()?.checked_mul(1 << 10)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::{MemoryLimits, detect, limit_of_group};
    use crate::config::{ServerConfig, Size};

    #[test]
    fn budgets_scale_with_the_memory() {
        let config = ServerConfig::default();
        let small = MemoryLimits::of(&config, Some(256 << 20));
        assert_eq!((small.bodies, small.answers), (32 << 20, 32 << 20));
        assert_eq!((small.writes, small.costly), (32 << 20, 16 << 20));
        assert_eq!((small.small, small.streams), (16 << 10, 1024));
        assert_eq!((small.connections, small.window), (1024, 64 << 10));
        let large = MemoryLimits::of(&config, Some(64 << 30));
        assert_eq!((large.bodies, large.small), (256 << 20, 256 << 10));
        assert_eq!(large.answers, MemoryLimits::default().answers);
        assert_eq!(large.window, 1 << 20);
        assert!(large.connections > 2 * config.connections_max);
    }

    #[test]
    fn settings_override_detected_memory() {
        let config = ServerConfig {
            memory_max: Some(Size(256 << 20)),
            answers_budget: Some(Size(1 << 20)),
            ..ServerConfig::default()
        };
        let limits = MemoryLimits::of(&config, Some(64 << 30));
        assert_eq!((limits.bodies, limits.answers), (32 << 20, 1 << 20));
        let config = limits.bound(config);
        assert_eq!(config.body_max, Size(32 << 20));
        assert_eq!(config.payload_max, ServerConfig::default().payload_max);
    }

    #[test]
    fn the_lowest_limit_of_the_groups_applies() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::write(inner.join("memory.max"), "max\n").unwrap();
        std::fs::write(root.path().join("a/memory.max"), "1048576\n").unwrap();
        let limit = limit_of_group(root.path(), "/a/b", "memory.max");
        assert_eq!(limit, Some(1 << 20));
        let unlimited = limit_of_group(root.path(), "/c", "memory.max");
        assert_eq!(unlimited, None);
        assert!(detect().is_some_and(|bytes| bytes > 1 << 20));
    }
}
