//! The server under test: a child on a separate CPU, with a port from the kernel and a separate
//! directory. When it is dropped, the process is killed and its files are removed.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::machine::{CPUS, process_ns, process_waits};
use crate::{Error, io};

/// Maximum time of a start.
const START: Duration = Duration::from_secs(30);

/// The argument before the command of a server that must end with its starter.
pub const GUARD: &str = "--guard";

/// Replaces this process by the command `words`. The kernel kills it when its starter, the process
/// `parent`, ends. Returns only if it fails.
pub fn guard(parent: &str, words: &[String]) -> Result<(), Error> {
    // The kernel keeps this setting across `exec`.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| io("guard")(e.into()))?;
    let there = getppid().map(|pid| pid.as_raw_nonzero().to_string());
    let (program, rest) = words.split_first().ok_or(Error::Parameter("server"))?;
    if there.as_deref() != Some(parent) {
        return Err(Error::Parameter("guard"));
    }
    Err(io("starting the server")(
        Command::new(program).args(rest).exec(),
    ))
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    dir: PathBuf,
    /// Address of the server.
    pub address: SocketAddr,
}

/// The CPU that `text` names: a number, `none`, or `auto`, the lowest CPU that this process is not
/// pinned to.
pub fn server_cpu(text: &str) -> Result<Option<usize>, Error> {
    if text != "auto" {
        let number = || text.parse().map_err(|_| Error::Parameter("server_cpu"));
        return if text == "none" {
            Ok(None)
        } else {
            number().map(Some)
        };
    }
    let mine = sched_getaffinity(None).map_err(|e| io("CPU mask")(e.into()))?;
    if mine.count() > 1 {
        return Ok(None);
    }
    Ok((0..*CPUS).find(|cpu| !mine.is_set(*cpu)))
}

/// Whether a server accepts connections and has opened its data. Until then it answers 503.
fn is_open(address: SocketAddr) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(START))?;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut status = [0; "HTTP/1.1 503".len()];
        stream.read_exact(&mut status)?;
        Ok(!status.ends_with(b"503"))
    };
    ask().unwrap_or_default()
}

impl Server {
    /// Starts `words` with `{port}` and `{data}` replaced; scratch files are below `scratch`.
    pub fn start(words: &[String], scratch: &Path, cpu: Option<usize>) -> Result<Server, Error> {
        let dir = scratch.join(format!("http-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).map_err(io("scratch directory"))?;
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(io("port"))?;
        let address = free.local_addr().map_err(io("port"))?;
        drop(free);
        let fill = |word: &String| {
            word.replace("{port}", &address.port().to_string())
                .replace("{data}", &dir.join("data").display().to_string())
        };
        let words: Vec<String> = words.iter().map(fill).collect();
        let log = File::create(dir.join("output")).map_err(io("output"))?;
        let again = log.try_clone().map_err(io("output"))?;
        if words.is_empty() {
            return Err(Error::Parameter("server"));
        }
        let myself = std::env::current_exe().map_err(io("own program"))?;
        let mut command = Command::new(myself);
        command
            .args([GUARD, &std::process::id().to_string()])
            .args(words)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(again);
        let child = spawn_on(&mut command, cpu).map_err(io("starting the server"))?;
        let mut server = Server {
            child,
            dir,
            address,
        };
        server.wait()?;
        Ok(server)
    }

    fn wait(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        while !is_open(self.address) {
            let ended = self.child.try_wait().map_err(io("server"))?.is_some();
            if ended || begun.elapsed() > START {
                let output = fs::read_to_string(self.dir.join("output")).unwrap_or_default();
                return Err(Error::Start(output.chars().take(400).collect()));
            }
            // There is no event for a port that begins to listen.
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// CPU nanoseconds of all threads of the server.
    pub fn cpu_ns(&self) -> u64 {
        process_ns(self.child.id())
    }

    /// How often the threads of the server have waited.
    pub fn wakeups(&self) -> u64 {
        process_waits(self.child.id())
    }

    /// Stops the server while others are measured.
    pub fn freeze(&self) -> Result<(), Error> {
        self.signal(Signal::STOP)
    }

    /// Continues the server.
    pub fn thaw(&self) -> Result<(), Error> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<(), Error> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(Error::Malformed)?;
        kill_process(pid, signal).map_err(|e| io("signal")(e.into()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A process that has already ended cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Spawns the server while the CPU mask of this thread is changed, because the child inherits the
/// mask.
fn spawn_on(command: &mut Command, cpu: Option<usize>) -> std::io::Result<Child> {
    let Some(cpu) = cpu else {
        return command.spawn();
    };
    let before = sched_getaffinity(None)?;
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only)?;
    let child = command.spawn();
    sched_setaffinity(None, &before)?;
    child
}
