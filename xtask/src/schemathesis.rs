//! The description of the HTTP edge, held against a running server by schemathesis.
//!
//! The tool is pinned by `xtask/schemathesis/requirements.txt` and lies in `target/tools`; beside it
//! stand what it is told to expect and the seed. The server is `weir serve` over a store of its own,
//! on a port that the system chooses. Invariants: the same seed sends the same requests; server and
//! tool end with this, whatever happens. What must never happen here: a run that is not bounded in
//! time, or a tool that cannot be had and is told as passed.

use crate::tree;
use crate::wasm::{self, Verdict, fetched, finish, whole};
use anyhow::Context as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where its configuration, its hooks and the list of its packages are.
const FOLDER: &str = "xtask/schemathesis";
/// What the requests are drawn from.
const SEED: &str = "1";
/// Seconds after which the tool is ended; it takes about 40 on two idle processors.
const SECONDS_MAX: u64 = 300;
/// How often it is looked whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Last lines of a report that are told.
const WORDS: usize = 60;

/// Every check of the tool on every operation.
pub(crate) fn verdict() -> anyhow::Result<Verdict> {
    let target = tree::root().join("target");
    let packages = match tool(&target) {
        Ok(packages) => packages,
        Err(why) => return Ok(Verdict::Skipped(why)),
    };
    let place = target.join("schemathesis");
    if place.exists() {
        fs::remove_dir_all(&place).with_context(|| place.display().to_string())?;
    }
    fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
    let server = Server::start(&wasm::weir()?, &place)?;
    let folder = tree::root().join(FOLDER);
    let paths = std::env::join_paths([&packages, &folder])?;
    let report = place.join("report.txt");
    let out = fs::File::create(&report).with_context(|| report.display().to_string())?;
    let mut python = Command::new("python3");
    python
        .args([
            "-c",
            "from schemathesis.cli import schemathesis; schemathesis()",
        ])
        .args(["--no-color", "--config-file"])
        .arg(folder.join("schemathesis.toml"))
        .args(["run", "--checks", "all", "--seed", SEED])
        .arg(format!("{}/openapi.json", server.url))
        .current_dir(&place)
        .env("PYTHONPATH", paths)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out);
    println!("-- schemathesis on {}", server.url);
    let mut tool = Running(python.spawn().context("cannot start python3")?);
    let fine = tool.ends_well(Duration::from_secs(SECONDS_MAX))?;
    if fine == Some(true) {
        return Ok(Verdict::Passed);
    }
    let text = String::from_utf8_lossy(&fs::read(&report)?).into_owned();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    for line in lines.iter().skip(lines.len().saturating_sub(WORDS)) {
        println!("{line}");
    }
    Ok(Verdict::Failed(match fine {
        None => format!("no end after {SECONDS_MAX} s"),
        _ => format!(
            "{}; all of it in target/schemathesis/report.txt",
            lines
                .last()
                .unwrap_or(&"it said nothing")
                .trim_matches('=')
                .trim()
        ),
    }))
}

/// The folder of the packages, fetched when they are missing.
fn tool(target: &Path) -> Result<PathBuf, String> {
    let list = tree::root().join(FOLDER).join("requirements.txt");
    let folder = target.join("tools/schemathesis");
    whole(&folder, &list, |place| {
        println!("schemathesis: fetching it (24 MiB unpacked)");
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps"]);
        pip.args(["--require-hashes", "--only-binary", ":all:"]);
        pip.args(["--retries", "1", "--timeout", "30"]);
        pip.arg("--target")
            .arg(place)
            .arg("--requirement")
            .arg(&list);
        fetched(finish(&mut pip), "ERROR:")
    })?;
    Ok(folder)
}

/// A process that does not outlive this value.
struct Running(Child);

impl Running {
    /// Whether it succeeded; `None` if it did not end in time.
    fn ends_well(&mut self, within: Duration) -> anyhow::Result<Option<bool>> {
        let until = Instant::now() + within;
        while Instant::now() < until {
            if let Some(status) = self.0.try_wait()? {
                return Ok(Some(status.success()));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(None)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// `weir serve` over a new store.
struct Server {
    url: String,
    _process: Running,
}

impl Server {
    fn start(weir: &Path, place: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(weir);
        command.args(["serve", "--http", "127.0.0.1:0", "--native", "off"]);
        command.args(["--durability", "memory", "--at"]);
        command.arg(place.join("store"));
        // The settings of whoever runs this are none of its business.
        command.env("HOME", place).env("XDG_CONFIG_HOME", place);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let process = command.stderr(Stdio::piped()).spawn();
        let mut process = Running(process.context("cannot start `weir serve`")?);
        let said = process.0.stderr.take().context("`weir serve` is mute")?;
        let mut lines = BufReader::new(said).lines();
        let url = lines.find_map(|line| {
            let line = line.ok()?;
            println!("{line}");
            Some(line.split_once("HTTP at ")?.1.to_owned())
        });
        // It goes on talking, and must not wait for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self {
            url: url.context("`weir serve` does not say where")?,
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
