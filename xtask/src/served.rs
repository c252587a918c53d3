//! `weir serve` over a separate store, and other processes that end with a suite.
//!
//! Invariants:
//! - The system selects the port.
//! - No process outlives its value in this module.

use anyhow::Context as _;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Interval between checks whether a process has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A process that does not outlive this value.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Waits for the end, at most `within`. Returns whether the process succeeded; `None` if it did
    /// not end in time.
    pub(crate) fn ends_well(&mut self, within: Duration) -> anyhow::Result<Option<bool>> {
        let until = Instant::now() + within;
        while Instant::now() < until {
            if let Some(status) = self.0.try_wait()? {
                return Ok(Some(status.success()));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(None)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may already have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// `weir serve` over a new store.
pub(crate) struct Server {
    pub(crate) url: String,
    _process: Running,
}

impl Server {
    /// Starts the server with `flags` and the common flags.
    pub(crate) fn start(weir: &Path, directory: &Path, flags: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(weir);
        command.args(["serve", "--http", "127.0.0.1:0", "--native", "off"]);
        command.args(flags);
        command.args(["--durability", "memory", "--at"]);
        command.arg(directory.join("store"));
        // The server must not read the settings of the caller's user.
        command
            .env("HOME", directory)
            .env("XDG_CONFIG_HOME", directory);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let process = command.stderr(Stdio::piped()).spawn();
        let mut process = Running(process.context("cannot start `weir serve`")?);
        let stderr = process
            .0
            .stderr
            .take()
            .context("`weir serve` has no standard error")?;
        let mut lines = BufReader::new(stderr).lines();
        let url = lines.find_map(|line| {
            let line = line.ok()?;
            println!("{line}");
            Some(line.split_once("HTTP at ")?.1.to_owned())
        });
        // The server continues to write lines, and must not block on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self {
            url: url.context("`weir serve` printed no address")?,
            _process: process,
        })
    }
}

/// Like `Server`, for the native protocol.
pub(crate) struct Native {
    pub(crate) address: String,
    _process: Running,
}

impl Native {
    /// Starts the server.
    pub(crate) fn start(weir: &Path, directory: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(weir);
        command.args(["serve", "--http", "off", "--native", "127.0.0.1:0"]);
        command.args(["--durability", "memory", "--at"]);
        command.arg(directory.join("store"));
        command
            .env("HOME", directory)
            .env("XDG_CONFIG_HOME", directory);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let process = command.stderr(Stdio::piped()).spawn();
        let mut process = Running(process.context("cannot start `weir serve`")?);
        let stderr = process
            .0
            .stderr
            .take()
            .context("`weir serve` has no standard error")?;
        let mut lines = BufReader::new(stderr).lines();
        let address = lines.find_map(|line| {
            let line = line.ok()?;
            let (_, rest) = line.split_once("weir://")?;
            let end = rest.find([' ', ',', ';']).unwrap_or(rest.len());
            Some(format!("weir://{}", rest.get(..end)?))
        });
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self {
            address: address.context("`weir serve` printed no address")?,
            _process: process,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::Running;
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn a_process_that_does_not_end_is_ended() {
        let shell = |text: &str| Running(Command::new("sh").args(["-c", text]).spawn().unwrap());
        let soon = Duration::from_mins(1);
        assert_eq!(shell("exit 0").ends_well(soon).unwrap(), Some(true));
        assert_eq!(shell("exit 1").ends_well(soon).unwrap(), Some(false));
        let begun = Instant::now();
        let mut endless = shell("exec sleep 600");
        assert_eq!(endless.ends_well(Duration::ZERO).unwrap(), None);
        drop(endless);
        assert!(begun.elapsed() < soon, "it was waited for");
    }
}
