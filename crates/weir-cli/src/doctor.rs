//! `weir doctor`: checks whether this machine and this directory suit a store.
//!
//! Each check prints a row. A failed check ends the command with exit code 1; a warning does not.

use std::fs::File;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use weir::Survival;
use weir_server::ServerConfig;

use crate::caller::Caller;
use crate::disk;
use crate::output::{Cell, Field, Shape, field};
use crate::place;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Opens no store, and leaves nothing behind. Exit code 1: a check failed; a warning is not a failure.

Examples:
  weir doctor
  weir doctor --at ./data -o json")]
pub(crate) struct DoctorArgs {}

/// Fields of a check.
pub(crate) const FIELDS: &[Field] = &[
    field("check", "text", "subject of the check"),
    field("state", "text", "ok, warning or failed"),
    field("found", "text", "finding"),
    field("advice", "text", "advice, null if the check is ok"),
];

/// Syncs that are timed.
const SYNCS: usize = 16;
/// Bytes that are written before each sync.
const SYNC_BYTES: usize = 4096;
/// Median time of a sync above which writes are slow.
const SYNC_SLOW: Duration = Duration::from_millis(20);
/// Median time of a sync below which no disk can have executed it.
const SYNC_IMPLAUSIBLE: Duration = Duration::from_micros(20);
/// Free bytes below which a store will soon reject writes.
const FREE_BYTES_MIN: u64 = 64 << 20;
/// Free bytes below which the check warns.
const FREE_BYTES_FEW: u64 = 1 << 30;
/// Descriptors that a store needs (`FILES_MIN`), and that a server with some connections needs
/// (`FILES_FEW`).
const FILES_MIN: u64 = 64;
const FILES_FEW: u64 = 4096;
/// Tolerated difference by which a file may be newer than the clock.
const CLOCK_SLACK: Duration = Duration::from_secs(10);
/// A correct clock shows no time before this one: 2026-01-01.
const CLOCK_MIN_UNIX_S: u64 = 1_767_225_600;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ok,
    Warning,
    Failed,
}

/// One check.
struct Check {
    name: &'static str,
    state: State,
    found: String,
    advice: &'static str,
}

impl Check {
    /// Fails if `failed`, warns if `warned`, else succeeds. `advice` is for the first two.
    fn new(
        name: &'static str,
        found: impl Into<String>,
        failed: Option<&'static str>,
        warned: Option<&'static str>,
    ) -> Self {
        let (state, advice) = match (failed, warned) {
            (Some(advice), _) => (State::Failed, advice),
            (None, Some(advice)) => (State::Warning, advice),
            (None, None) => (State::Ok, ""),
        };
        Self {
            name,
            state,
            found: found.into(),
            advice,
        }
    }
}

/// Runs `weir doctor`.
pub(crate) fn run(caller: &Caller, _args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::List, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let advice = "run the command on the machine of the server, with `--at DIR`";
    let at = PathBuf::from(place::directory(caller, "weir doctor", advice)?);
    let base = existing_ancestor(&at);
    let mut checks = vec![files(), file_size(), clock(&at)];
    checks.extend(disk_of(&base));
    checks.push(syncs(&base));
    checks.extend(ports());
    let mut failed = false;
    for check in &checks {
        failed |= check.state == State::Failed;
        let state = match check.state {
            State::Ok => "ok",
            State::Warning => "warning",
            State::Failed => "failed",
        };
        let advice = Some(check.advice).filter(|advice| !advice.is_empty());
        out.row(&[
            Cell::Text(check.name.into()),
            Cell::Text(state.into()),
            Cell::Text(check.found.as_str().into()),
            advice.map_or(Cell::Nothing, |advice| Cell::Text(advice.into())),
        ])?;
    }
    out.finish()?;
    Ok(ExitCode::from(u8::from(failed)))
}

/// The directory, or its nearest ancestor that exists.
fn existing_ancestor(at: &Path) -> PathBuf {
    let at = std::path::absolute(at).unwrap_or_else(|_| at.to_owned());
    let found = at.ancestors().find(|path| path.is_dir());
    found.map_or_else(|| PathBuf::from("/"), Path::to_owned)
}

fn files() -> Check {
    let limit = getrlimit(Resource::Nofile);
    let (now, most) = (
        limit.current.unwrap_or(u64::MAX),
        limit.maximum.unwrap_or(u64::MAX),
    );
    Check::new(
        "descriptors",
        format!("{now} now, {most} at most"),
        (most < FILES_MIN).then_some("raise the hard limit: `ulimit -Hn`, LimitNOFILE= in systemd"),
        (most < FILES_FEW).then_some("a server with many clients needs more: LimitNOFILE="),
    )
}

fn file_size() -> Check {
    let limit = getrlimit(Resource::Fsize).current;
    let found = limit.map_or_else(|| "no limit".to_owned(), |bytes| format!("{bytes} bytes"));
    let advice =
        "a file of this size counts as a full disk: remove the limit with `ulimit -f unlimited`";
    Check::new("file size", found, None, limit.map(|_| advice))
}

/// Checks the clock: one that was set back shows a time before the newest stamp of the store.
fn clock(at: &Path) -> Check {
    let now = SystemTime::now();
    let unix_s = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    let seconds = i64::try_from(unix_s).unwrap_or(i64::MAX);
    let found = jiff::Timestamp::from_second(seconds)
        .unwrap_or_default()
        .to_string();
    let written = ["LOCK", "log"].map(|name| at.join(name).metadata().ok()?.modified().ok());
    let ahead = written
        .into_iter()
        .flatten()
        .any(|time| time > now + CLOCK_SLACK);
    let wrong = if unix_s < CLOCK_MIN_UNIX_S {
        Some("set the clock: retention and leases depend on it")
    } else if ahead {
        Some("files of the store have times in the future: set the clock before you open the store")
    } else {
        None
    };
    Check::new("clock", found, wrong, None)
}

fn disk_of(base: &Path) -> Vec<Check> {
    let found = weir::file_system(base).and_then(|system| Ok((system, disk::space(base)?)));
    let (system, space) = match found {
        Ok(found) => found,
        Err(error) => {
            let advice = "name a directory that this process can read";
            return vec![Check::new(
                "file system",
                error.to_string(),
                Some(advice),
                None,
            )];
        }
    };
    let warning = match system.survival {
        Survival::Survives => None,
        Survival::Unknown => {
            Some("check that a sync on this file system reaches a disk of this machine")
        }
        Survival::Volatile => {
            Some("synced data does not reach a disk of this machine: use a local disk")
        }
    };
    let free = space.free_bytes;
    vec![
        Check::new("file system", system.name, None, warning),
        Check::new(
            "free space",
            format!("{} MiB of {} MiB", free >> 20, space.total_bytes >> 20),
            (free < FREE_BYTES_MIN)
                .then_some("free disk space: a store in this file system accepts no writes"),
            (free < FREE_BYTES_FEW).then_some("free disk space, or set retention for topics"),
        ),
    ]
}

fn syncs(base: &Path) -> Check {
    match time_syncs(base) {
        Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
            let found = "not measured: the file system has no unnamed files";
            let advice = "measure it with `weir bench write`";
            Check::new("sync", found, None, Some(advice))
        }
        Err(error) => {
            let advice = match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free disk space",
                io::ErrorKind::FileTooLarge => {
                    "remove the limit on the size of files: `ulimit -f unlimited`"
                }
                io::ErrorKind::PermissionDenied => "make the directory writable for this user",
                _ => "a store needs a directory in which files can be written and synced",
            };
            Check::new("sync", format!("cannot write: {error}"), Some(advice), None)
        }
        Ok(mut times) => {
            times.sort();
            let median = times.get(times.len() / 2).copied().unwrap_or_default();
            let most = times.last().copied().unwrap_or_default();
            let found = format!(
                "median {} us, longest {} us",
                median.as_micros(),
                most.as_micros()
            );
            let warned = if median > SYNC_SLOW {
                Some("each write waits for a sync: use a faster disk, or send many writes at once")
            } else if median < SYNC_IMPLAUSIBLE {
                Some(
                    "no disk is this fast: the system ignores syncs, or the file system is in memory",
                )
            } else {
                None
            };
            Check::new("sync", found, None, warned)
        }
    }
}

/// Measures syncs of an unnamed temporary file.
fn time_syncs(base: &Path) -> io::Result<Vec<Duration>> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(base, flags, Mode::RUSR | Mode::WUSR)?);
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        file.write_all(&[0; SYNC_BYTES])?;
        let started = Instant::now();
        file.sync_data()?;
        times.push(started.elapsed());
    }
    Ok(times)
}

/// Whether the ports of a server with default settings are free.
fn ports() -> Vec<Check> {
    let config = ServerConfig::default();
    let ports = [("HTTP port", config.http), ("native port", config.native)];
    let known = ports
        .into_iter()
        .filter_map(|(name, address)| Some((name, address?.0)));
    known.map(|(name, address)| port(name, address)).collect()
}

fn port(name: &'static str, address: SocketAddr) -> Check {
    match TcpListener::bind(address) {
        Ok(_) => Check::new(name, format!("{address} is free"), None, None),
        Err(error) => {
            let advice = "stop the process that uses the port, or give `weir serve` another port";
            Check::new(name, format!("{address}: {error}"), None, Some(advice))
        }
    }
}
