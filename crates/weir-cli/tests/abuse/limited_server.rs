//! A server with few resources: 1,024 descriptors, and 256 MiB if a control group can be created.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Far longer than any step takes; only a hang reaches this limit.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);
/// Memory of the server.
pub(crate) const MEMORY_BYTES: u64 = 256 << 20;
/// Descriptors of the server, as soft and hard limit.
pub(crate) const DESCRIPTORS: usize = 1024;

/// Limits on the descriptors of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors {
    pub(crate) soft: usize,
    /// `None`: the limit of the test process.
    pub(crate) hard: Option<usize>,
}

impl Descriptors {
    /// Equal soft and hard limits.
    pub(crate) fn both(limit: usize) -> Self {
        Self {
            soft: limit,
            hard: Some(limit),
        }
    }
}

/// Only one server runs at a time, because the machine may be small.
static SERIAL: Mutex<()> = Mutex::new(());

/// A server under limits. Dropping it ends the server.
pub(crate) struct LimitedServer {
    pub(crate) child: Child,
    pub(crate) address: String,
    /// Address of the native port.
    pub(crate) native: String,
    _stderr: BufReader<ChildStderr>,
    group: Option<Group>,
    _directory: tempfile::TempDir,
    _serial: MutexGuard<'static, ()>,
}

/// A memory control group. Dropping it removes the group.
struct Group(PathBuf);

impl Group {
    /// Creates a group of [`MEMORY_BYTES`]. `None` without the right to do so.
    fn new() -> Option<Self> {
        let name = format!("weir-abuse-{}", std::process::id());
        for (parent, limit) in [
            ("/sys/fs/cgroup", "memory.max"),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ] {
            let group = Path::new(parent).join(&name);
            if fs::create_dir_all(&group).is_err() {
                continue;
            }
            let created = Self(group);
            // Version 1 has a plain directory at the root path of version 2.
            if !created.0.join("cgroup.procs").exists() {
                continue;
            }
            if fs::write(created.0.join(limit), MEMORY_BYTES.to_string()).is_ok() {
                // The file does not exist without swap.
                let _ = fs::write(created.0.join("memory.swap.max"), "0");
                return Some(created);
            }
        }
        None
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// The server's command under limits of descriptors, in a control group if there is one.
fn limited(directory: &Path, descriptors: Descriptors, group: Option<&Group>) -> Command {
    let script = "if [ -n \"$GROUP\" ]; then echo $$ >\"$GROUP/cgroup.procs\" || exit 99; fi
        ulimit -Sn \"$SOFT\" && { [ -z \"$HARD\" ] || ulimit -Hn \"$HARD\"; } && exec \"$@\"";
    let hard = descriptors.hard.map(|limit| limit.to_string());
    let mut command = Command::new("/bin/sh");
    let path = group.map(|group| group.0.as_os_str().to_owned());
    command
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_weir")])
        .args(["serve", "--at", "data", "--http", ":0", "--native", ":0"])
        .args(["--durability", "memory", "--volatile"])
        .current_dir(directory)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", directory)
        .env("GROUP", path.unwrap_or_default())
        .env("SOFT", descriptors.soft.to_string())
        .env("HARD", hard.unwrap_or_default())
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Starts a server with a limit of `descriptors`. Returns its exit status and output if it ends by
/// itself; `None` if it serves, after which it is killed.
pub(crate) fn start_with(descriptors: usize) -> Option<(ExitStatus, String)> {
    let _serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let descriptors = Descriptors::both(descriptors);
    let mut child = limited(directory.path(), descriptors, None)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut text = String::new();
    while lines.read_line(&mut text).unwrap() > 0 {
        if let Some(address) = address(&text) {
            assert_eq!(put(&address, "PUT /v1/topics/t", b""), 201);
            assert_eq!(put(&address, "PUT /v1/topics/t/keys/k", b"1"), 201);
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
    }
    Some((child.wait().unwrap(), text))
}

fn address(text: &str) -> Option<String> {
    let address = after(text, "HTTP at http://")?;
    text.contains("acknowledged").then_some(address)
}

/// The rest of the line after `words`.
fn after(text: &str, words: &str) -> Option<String> {
    let (_, rest) = text.split_once(words)?;
    let (rest, _) = rest.split_once('\n')?;
    Some(rest.trim().to_owned())
}

impl LimitedServer {
    /// A server with a topic `t`.
    pub(crate) fn new() -> Self {
        Self::prepared(Descriptors::both(DESCRIPTORS), |_| {})
    }

    /// Like `new`, after commands without limits have prepared the directory.
    pub(crate) fn prepared(descriptors: Descriptors, prepare: impl FnOnce(&Path)) -> Self {
        let serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::tempdir().unwrap();
        prepare(directory.path());
        let group = Group::new();
        let mut command = limited(directory.path(), descriptors, group.as_ref());
        if group.is_none() {
            println!("no control group can be created: memory is measured, not limited");
        }
        let mut child = command.spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut text = String::new();
        let address = loop {
            assert!(stderr.read_line(&mut text).unwrap() > 0, "{text}");
            if let Some(address) = address(&text) {
                break address;
            }
        };
        let native = after(&text, "native at weir://").unwrap();
        let server = Self {
            child,
            address,
            native,
            _stderr: stderr,
            group,
            _directory: directory,
            _serial: serial,
        };
        assert_eq!(put(&server.address, "PUT /v1/topics/t", b""), 201);
        server
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(&self.address)
    }

    /// Whether the server runs in a control group, which limits its memory.
    pub(crate) fn has_memory_limit(&self) -> bool {
        self.group.is_some()
    }

    /// Writes a key of the topic `t`, and asserts that it is acknowledged.
    pub(crate) fn write(&self, key: usize, value: &[u8]) {
        let line = format!("PUT /v1/topics/t/keys/k{key}");
        let status = put(&self.address, &line, value);
        assert!(matches!(status, 200 | 201), "{status} to {line}");
    }

    /// The value of a line of `/proc/PID/status`, in bytes.
    pub(crate) fn memory(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        let kib = line.split_ascii_whitespace().nth(1).unwrap();
        kib.parse::<u64>().unwrap() << 10
    }

    /// Asserts that the server runs and has not used more memory than its limit. The pages of the
    /// command's own file do not count, because the system can evict them; the file is large in a
    /// test build. A control group ends a server that exceeds its limit.
    pub(crate) fn check_limits(&mut self, what: &str) {
        assert_eq!(
            self.child.try_wait().unwrap(),
            None,
            "{what}: the server ended"
        );
        let most = self.memory("VmHWM") - self.memory("RssFile");
        println!(
            "{what}: at most {} MiB of its own{}",
            most >> 20,
            if self.group.is_some() {
                ", in a control group of 256 MiB"
            } else {
                ""
            }
        );
        assert!(most <= MEMORY_BYTES, "{what}: {most} bytes");
    }

    /// Waits until the server has at most `bytes` bytes resident.
    pub(crate) fn wait_memory(&self, what: &str, bytes: u64) {
        // The server executes a hundred reads of 64 MiB, one at a time, although their
        // clients have disconnected.
        let end = Instant::now() + 5 * TIMEOUT;
        loop {
            let now = self.memory("VmRSS");
            if now <= bytes {
                println!("{what}: {} MiB resident afterwards", now >> 20);
                return;
            }
            assert!(Instant::now() < end, "{what}: {now} bytes stay resident");
            std::thread::yield_now();
        }
    }

    /// A metric of the server.
    pub(crate) fn metric(&self, name: &str) -> Option<u64> {
        let page = get(&self.address, "/metrics");
        let mut lines = page.lines();
        lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    /// Waits until a metric of the server satisfies `wanted`.
    pub(crate) fn wait_metric(&self, name: &str, wanted: impl Fn(u64) -> bool) {
        let end = Instant::now() + TIMEOUT;
        loop {
            let value = self.metric(name);
            if value.is_some_and(&wanted) {
                return;
            }
            assert!(Instant::now() < end, "{name} is {value:?}");
            std::thread::yield_now();
        }
    }
}

/// Runs a command in a directory, without limits. It must succeed.
pub(crate) fn run(directory: &Path, arguments: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .env("HOME", directory)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {text}");
}

impl Drop for LimitedServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    stream
}

fn ask(address: &str, line: &str, body: &[u8]) -> std::io::Result<String> {
    let mut stream = connect(address);
    let length = body.len();
    let head = format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Sends a write. Returns the status of the response; 0: the connection was refused or closed.
pub(crate) fn put(address: &str, line: &str, body: &[u8]) -> u16 {
    let answer = ask(address, line, body).unwrap_or_default();
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    status.unwrap_or(0)
}

/// Sends a GET. Returns the response, head and body.
pub(crate) fn get(address: &str, path: &str) -> String {
    ask(address, &format!("GET {path}"), b"").unwrap()
}
