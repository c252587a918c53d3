//! Starts, pins, drives and ends a contender that runs as a resident child.
//!
//! Invariants: a child runs in its own process group, which is killed when the [`Child`] is
//! dropped, so no process outlives the lab. A child is pinned before its first instruction, so all
//! of its threads are pinned.
//!
//! A lab that is killed drops no [`Child`]. Then a [`Reaper`], a separate process, kills its children
//! and what they have started. It finds them by a variable of their environment, which they have
//! from their first instruction.
//!
//! A server that a contender starts is not in the group of the contender. It is started through
//! [`guarded`], so that the kernel kills it when its parent ends, even if the parent is killed.
//!
//! Invariant: every wait has a deadline.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, getpgid, getpid, getppid, kill_process_group, set_parent_process_death_signal,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::{LabError, Result};
use crate::protocol::{Answer, Fields, Hello, Request, Timed};

/// Environment variable whose random length moves the child's stack.
const PADDING: &str = "WEIR_LAB_PADDING";

/// Environment variable with the id of the process that started a child.
const LAB_PID: &str = "WEIR_LAB_PID";

/// Scans of all processes after the end of a lab, and the pause after each.
const SCANS: usize = 3;
const SCAN_PAUSE: Duration = Duration::from_millis(50);

/// Time that a child gets to clean up after the end of its input.
const GRACE: Duration = Duration::from_secs(5);

/// A process that kills the children of the lab if the lab is killed.
#[derive(Debug)]
pub struct Reaper {
    /// Its standard input is a pipe, which closes when the lab ends.
    process: std::process::Child,
}

impl Reaper {
    /// Starts a reaper. `lab` is this program.
    pub fn start(lab: &Path) -> Result<Reaper> {
        let words = [
            lab.display().to_string(),
            "reap".to_owned(),
            std::process::id().to_string(),
        ];
        let mut command = command(&words, 0);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let process = command.spawn().map_err(LabError::io(lab))?;
        Ok(Reaper { process })
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        // A lab that ends by itself has ended its children.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Does the work of a [`Reaper`]: reads `input` to its end, and kills the processes that lab `lab`
/// has started.
pub fn reap(lab: u32, mut input: impl Read) {
    let _ = std::io::copy(&mut input, &mut std::io::sink());
    // A process that is being started closes its copy of the pipe a moment before it has its
    // environment, so the first scan can miss it.
    for _ in 0..SCANS {
        started_by(lab).for_each(end_group_of);
        std::thread::sleep(SCAN_PAUSE);
    }
}

/// The processes that lab `lab` and its children have started, without this one.
pub fn started_by(lab: u32) -> impl Iterator<Item = Pid> {
    let mark = format!("{LAB_PID}={lab}");
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(move |process| {
        let pid = process.file_name().to_str()?.parse::<u32>().ok()?;
        let environment = fs::read(process.path().join("environ")).ok()?;
        let mut variables = environment.split(|byte| *byte == 0);
        let is_marked = variables.any(|variable| variable == mark.as_bytes());
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
        (is_marked && pid != getpid()).then_some(pid)
    })
}

/// Kills the process group of `pid`. Its members can have hidden their environment.
fn end_group_of(pid: Pid) {
    if let Ok(group) = getpgid(Some(pid)) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// How children are started.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// CPU to run on; `None` leaves the choice to the kernel.
    pub cpu: Option<usize>,
    /// Time limit for an answer.
    pub timeout: Duration,
    /// Length of the padding variable.
    pub padding: usize,
}

/// A running contender.
#[derive(Debug)]
pub struct Child {
    name: String,
    process: std::process::Child,
    input: Option<ChildStdin>,
    lines: Receiver<std::io::Result<String>>,
    timeout: Duration,
    hello: Hello,
}

/// A command that will run in its own process group.
pub fn command(words: &[String], padding: usize) -> Command {
    let mut words = words.iter();
    let mut command = Command::new(words.next().map_or("", String::as_str));
    command
        .args(words)
        .env(PADDING, "x".repeat(padding))
        .env(LAB_PID, std::process::id().to_string())
        .process_group(0);
    command
}

/// The command `weir` beside `lab`, which is this program.
pub fn beside(lab: &Path) -> PathBuf {
    lab.with_file_name("weir")
}

/// The command line that runs `words` so that the process is killed when the thread that starts it,
/// or its process, ends. `lab` is this program.
pub fn guarded(lab: &Path, words: &[String]) -> Vec<String> {
    let me = std::process::id().to_string();
    let own = [
        lab.display().to_string(),
        "guard".to_owned(),
        me,
        "--".to_owned(),
    ];
    own.into_iter().chain(words.iter().cloned()).collect()
}

/// Replaces this process by `words`, which is killed when process `parent`, which started it, ends.
/// Returns only if it fails.
pub fn guard(parent: u32, words: &[String]) -> Result<()> {
    let failed = |source| LabError::Start {
        contender: "guard".to_owned(),
        program: words.first().cloned().unwrap_or_default(),
        source,
    };
    // The kernel keeps this setting across `exec`.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| failed(error.into()))?;
    let actual = getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
    if actual != Some(parent) {
        // The parent ended before the setting was made.
        return Err(failed(std::io::ErrorKind::NotFound.into()));
    }
    let mut words = words.iter();
    let mut command = Command::new(words.next().map_or("", String::as_str));
    Err(failed(command.args(words).exec()))
}

/// Spawns `command` on `cpu`. This thread moves to `cpu` during the fork, because a child inherits
/// the mask.
pub fn spawn_on(command: &mut Command, cpu: Option<usize>) -> std::io::Result<std::process::Child> {
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

/// Whether every thread of process `pid` is pinned to `cpu`.
pub fn is_pinned(pid: u32, cpu: usize) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    let want = format!("Cpus_allowed_list:\t{cpu}");
    threads.flatten().all(|thread| {
        fs::read_to_string(thread.path().join("status"))
            .is_ok_and(|status| status.lines().any(|line| line == want))
    })
}

impl Child {
    /// Starts `words` and waits for its greeting.
    pub fn start(name: &str, words: &[String], launch: Launch) -> Result<Child> {
        let mut command = command(words, launch.padding);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = spawn_on(&mut command, launch.cpu).map_err(|source| LabError::Start {
            contender: name.to_owned(),
            program: words.first().cloned().unwrap_or_default(),
            source,
        })?;
        let input = process.stdin.take();
        let (sender, lines) = sync_channel(1);
        if let Some(output) = process.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines() {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        let mut child = Child {
            name: name.to_owned(),
            process,
            input,
            lines,
            timeout: launch.timeout,
            hello: Hello::default(),
        };
        let greeting = child.receive()?;
        child.hello = Hello::parse(&greeting).map_err(|error| child.failure(error))?;
        if let Some(cpu) = launch.cpu
            && !is_pinned(child.pid(), cpu)
        {
            return Err(LabError::contender(
                name,
                format!("did not stay on CPU {cpu}"),
            ));
        }
        Ok(child)
    }

    /// The greeting of the contender.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Prepares input `input`.
    pub fn load(&mut self, input: usize, fields: Fields) -> Result<()> {
        match self.ask(&Request::Load(input, fields))?.as_str() {
            "ok" => Ok(()),
            other => Err(LabError::contender(
                &self.name,
                format!("responded to `load` with {other:?}"),
            )),
        }
    }

    /// Executes input `input` once, untimed.
    pub fn check(&mut self, input: usize) -> Result<Answer> {
        let line = self.ask(&Request::Check(input))?;
        Answer::parse(&line).map_err(|error| self.failure(error))
    }

    /// Times `iterations` of input `input`.
    pub fn run(&mut self, input: usize, iterations: u64) -> Result<Timed> {
        let line = self.ask(&Request::Run(input, iterations))?;
        Timed::parse(&line).map_err(|error| self.failure(error))
    }

    fn failure(&self, error: impl std::fmt::Display) -> LabError {
        LabError::contender(&self.name, error.to_string())
    }

    fn ask(&mut self, request: &Request) -> Result<String> {
        let line = format!("{}\n", request.render());
        let sent = self
            .input
            .as_mut()
            .map(|input| input.write_all(line.as_bytes()));
        if !matches!(sent, Some(Ok(()))) {
            return Err(self.failure("ended before it received the request"));
        }
        let answer = self.receive()?;
        match answer.strip_prefix("error\t") {
            Some(what) => Err(self.failure(what)),
            None => Ok(answer),
        }
    }

    fn receive(&mut self) -> Result<String> {
        match self.lines.recv_timeout(self.timeout) {
            Ok(Ok(line)) => Ok(line),
            Ok(Err(error)) => Err(self.failure(error)),
            Err(RecvTimeoutError::Timeout) => {
                Err(self.failure(format!("no answer within {} s", self.timeout.as_secs())))
            }
            Err(RecvTimeoutError::Disconnected) => {
                let end = self.end();
                Err(self.failure(end))
            }
        }
    }

    /// How the child ended. Its output is closed, but its exit status can arrive a moment later.
    fn end(&mut self) -> String {
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            match self.process.try_wait() {
                Ok(Some(status)) => return format!("ended: {status}"),
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => return format!("cannot be waited for: {error}"),
            }
        }
        "closed its output and did not end".to_owned()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // At the end of its input, the child cleans up and exits, which closes its output. A child
        // that does not exit within `GRACE` is killed.
        drop(self.input.take());
        while self.lines.recv_timeout(GRACE).is_ok() {}
        end_group(self.process.id());
        // Reaps the child. Its group was just killed, so this cannot block long.
        let _ = self.process.wait();
    }
}

/// Kills the process group of `pid`. It is no error if the group no longer exists.
pub fn end_group(pid: u32) {
    if let Some(group) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}
