//! The server of this project behind its native port, measured like the other servers: one process
//! on a separate CPU, and clients that send everything before they wait.
//!
//! The server is the program `weir` beside this one. It is stopped while others are measured.
//! Before each timed part, earlier writes are synced.

pub mod idle;
pub mod readers;
pub mod tail;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::sched_getaffinity;
use weir::{ClientId, Intention, Operation, ReadFrom, RecordKind, Session, Weir};

use super::store::keys::status_in;
use super::store::{Load, failed, remove, scratch};
use super::wire::part;
use super::{Contender, ContenderError, parameter};
use crate::child::{guarded, spawn_on};
use crate::clock::Stopwatch;
use crate::protocol::{Answer, Fields, Timed};

/// Maximum number of messages in a call.
const CALL_MESSAGES_MAX: usize = 1_000;

/// Puts of `producers` clients over the native port into a server at the durability `level` (a name
/// of `weir serve`), with `batch` messages in a call. All calls are sent before the first answer is
/// awaited. Reports `server_us` (CPU of the server, microseconds a message) and `idle` (idle share
/// of all CPUs).
#[derive(Debug, Default)]
pub struct Served {
    inputs: BTreeMap<usize, (Load, String)>,
    servers: BTreeMap<String, Server>,
    passes: u64,
}

/// Options of the server besides its addresses. All connections of the lab come from one address,
/// and wait while others are measured.
const SETTINGS: [(&str, &str); 3] = [
    ("WEIR_SERVE_CONNECTIONS_MAX", "20000"),
    ("WEIR_SERVE_CONNECTIONS_PER_ADDRESS_MAX", "20000"),
    ("WEIR_SERVE_IDLE_TIMEOUT", "600s"),
];

#[derive(Debug)]
struct Server {
    process: Child,
    url: String,
    /// Address of the HTTP port.
    http: Option<String>,
    dir: PathBuf,
}

impl Server {
    fn start(level: &str, fields: &Fields, input: usize) -> Result<Server, ContenderError> {
        let dir = scratch(fields, "served", input)?;
        let lab = std::env::current_exe().map_err(failed)?;
        let weir = lab.with_file_name("weir");
        let place = dir.display().to_string();
        let words = ["--at", &place, "--durability", level, "serve", "--volatile"];
        let ports = ["--http", "127.0.0.1:0", "--native", "127.0.0.1:0"];
        let words: Vec<String> = std::iter::once(weir.display().to_string())
            .chain(words.into_iter().chain(ports).map(str::to_owned))
            .collect();
        let words = guarded(&lab, &words);
        let (program, rest) = words.split_first().ok_or_else(|| failed("no words"))?;
        let mut command = Command::new(program);
        command
            .args(rest)
            .env_remove("WEIR_AT")
            .envs(SETTINGS)
            .stderr(Stdio::piped())
            .process_group(0);
        let mut process = spawn_on(&mut command, free_cpu()?).map_err(|source| {
            let path = weir.display().to_string();
            ContenderError::Io { path, source }
        })?;
        let mut said = String::new();
        let mut lines = BufReader::new(process.stderr.take().ok_or_else(|| failed("no pipe"))?);
        let mut http = None;
        let url = loop {
            let from = said.len();
            if lines.read_line(&mut said).map_err(failed)? == 0 {
                return Err(failed(format!("the server did not start: {said}")));
            }
            let line = said.get(from..).unwrap_or_default().trim();
            if let Some((_, address)) = line.split_once("HTTP at http://") {
                http = Some(address.to_owned());
            }
            if let Some((_, url)) = line.split_once("native at ") {
                break url.to_owned();
            }
        };
        // Further output of the server must not block it.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        let server = Server {
            process,
            url,
            http,
            dir,
        };
        server.signal(Signal::STOP)?;
        Ok(server)
    }

    fn signal(&self, signal: Signal) -> Result<(), ContenderError> {
        let id = i32::try_from(self.process.id())
            .ok()
            .and_then(Pid::from_raw);
        kill_process(id.ok_or_else(|| failed("no process"))?, signal).map_err(failed)
    }

    /// A field of the status of the server, in bytes.
    fn status(&self, name: &str) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        status_in(&text.unwrap_or_default(), name)
    }

    /// CPU time of all threads of the server, in nanoseconds.
    fn cpu_ns(&self) -> u64 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.process.id()));
        let time = |thread: fs::DirEntry| -> Option<u64> {
            let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse().ok()
        };
        threads.map_or(0, |all| all.flatten().filter_map(time).sum())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = remove(&self.dir);
    }
}

/// The lowest CPU that this process is not pinned to; `None` if it may run on all.
fn free_cpu() -> Result<Option<usize>, ContenderError> {
    let mine = sched_getaffinity(None).map_err(failed)?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let count = fs::read_to_string("/proc/stat").map_err(failed)?;
    let count = count.matches("\ncpu").count();
    Ok((0..count).find(|cpu| cpus < count && !mine.is_set(*cpu)))
}

/// Idle nanoseconds of all CPUs together, and the number of CPUs.
fn idle_ns() -> (u64, u64) {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let cpus = text.matches("\ncpu").count() as u64;
    let mut sum = 0;
    for cpu in 0..cpus {
        let states = fs::read_dir(format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle"));
        for state in states.into_iter().flatten().flatten() {
            let time = fs::read_to_string(state.path().join("time")).unwrap_or_default();
            sum += time.trim().parse().unwrap_or(0) * 1_000;
        }
    }
    if sum == 0 {
        let fields = text.lines().next().unwrap_or_default().split_whitespace();
        let ticks = fields.skip(4).take(2);
        sum = ticks
            .map(|ticks| ticks.parse().unwrap_or(0) * 10_000_000)
            .sum();
    }
    (sum, cpus.max(1))
}

/// Sends all messages, then waits for all answers.
fn produce(
    session: &mut Session,
    topic: &str,
    load: Load,
    producer: u64,
) -> Result<(), ContenderError> {
    let payload = load.payload(producer);
    let messages = load.messages / load.producers;
    let mut waiting = Vec::new();
    let mut next = 0;
    let mut call = Vec::with_capacity(load.batch);
    while next < messages {
        let until = messages.min(next + load.batch as u64);
        call.clear();
        call.extend((next..until).map(|number| {
            let value = payload.message(number);
            Intention::new(topic, Operation::Put { key: &[], value })
        }));
        waiting.push(session.send(&call).map_err(failed)?);
        next = until;
    }
    for pending in waiting {
        let verdicts = pending.wait().map_err(failed)?;
        if !verdicts.iter().all(weir::Verdict::is_valid) {
            return Err(failed("a put was not VALID"));
        }
    }
    Ok(())
}

impl Served {
    fn input(&self, input: usize) -> Result<(Load, &Server), ContenderError> {
        let (load, level) = self
            .inputs
            .get(&input)
            .ok_or(ContenderError::NotLoaded(input))?;
        let server = self.servers.get(level);
        Ok((*load, server.ok_or(ContenderError::NotLoaded(input))?))
    }

    /// Puts `load` into a new topic; with `read`, also returns its content.
    #[allow(clippy::cast_precision_loss)] // nanoseconds below 2^53
    fn pass(
        server: &Server,
        load: Load,
        number: u64,
        read: bool,
    ) -> Result<(Timed, u64), ContenderError> {
        let name = format!("lab{number}");
        let weir = Weir::connect(&server.url).map_err(failed)?;
        let topic = weir.topic(&name).map_err(failed)?;
        topic.ensure().map_err(failed)?;
        let clients: Result<Vec<Weir>, _> = (0..load.producers)
            .map(|_| Weir::connect(&server.url).map_err(failed))
            .collect();
        let clients = clients?;
        let mut sessions = Vec::new();
        for (producer, client) in (0..load.producers).zip(&clients) {
            let mut id = [0xab; 16];
            id.iter_mut()
                .zip(number.to_le_bytes())
                .for_each(|(to, from)| *to = from);
            if let Some(last) = id.last_mut() {
                *last = u8::try_from(producer).unwrap_or(u8::MAX);
            }
            sessions.push(client.session(ClientId(id)));
        }
        let disk = File::open(&server.dir).map_err(failed)?;
        rustix::fs::syncfs(&disk).map_err(failed)?;
        let ready = Barrier::new(sessions.len() + 1);
        let timed = std::thread::scope(|scope| {
            let (ready, name) = (&ready, &name);
            let producers: Vec<_> = (0..load.producers)
                .zip(&mut sessions)
                .map(|(producer, session)| {
                    scope.spawn(move || {
                        ready.wait();
                        produce(session, name, load, producer)
                    })
                })
                .collect();
            let (idle_before, cpus) = idle_ns();
            let server_before = server.cpu_ns();
            ready.wait();
            let watch = Stopwatch::start();
            for producer in producers {
                producer
                    .join()
                    .map_err(|_| failed("a producer panicked"))??;
            }
            let (wall_ns, cpu_ns) = watch.stop();
            let used = server.cpu_ns() - server_before;
            let idle = idle_ns().0 - idle_before;
            let extra = [
                ("server_us", used as f64 / 1e3 / load.messages as f64),
                ("idle", idle as f64 / (wall_ns * cpus) as f64),
            ];
            Ok::<Timed, ContenderError>(Timed {
                wall_ns,
                cpu_ns,
                touch: 0,
                extra: extra.map(|(name, value)| (name.to_owned(), value)).into(),
            })
        })?;
        let stored = topic
            .try_info()
            .map_err(failed)?
            .map_or(0, |info| info.last.0 - 1);
        if stored != load.messages {
            return Err(failed(format!("{stored} of {} are stored", load.messages)));
        }
        let mut content = 0u64;
        if read {
            for page in topic.pages(ReadFrom::Start).map_err(failed)? {
                for record in &page.map_err(failed)? {
                    let record = record.map_err(failed)?;
                    if record.kind == RecordKind::Put {
                        content = content.wrapping_add(part(b'r', record.value));
                    }
                }
            }
        }
        topic.destroy().map_err(failed)?;
        Ok((timed, content))
    }
}

impl Contender for Served {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let load = Load::read(fields)?;
        if load.batch > CALL_MESSAGES_MAX {
            return Err(ContenderError::Parameter("batch"));
        }
        let level: String = parameter(fields, "level")?;
        if !self.servers.contains_key(&level) {
            let server = Server::start(&level, fields, input)?;
            self.servers.insert(level.clone(), server);
        }
        self.inputs.insert(input, (load, level));
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        self.passes += 1;
        let (load, server) = self.input(input)?;
        server.signal(Signal::CONT)?;
        let (_, content) = Self::pass(server, load.for_check(), self.passes, true)?;
        server.signal(Signal::STOP)?;
        Ok(Answer {
            content,
            touch: load.messages,
            ..Answer::default()
        })
    }

    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let mut sum = Timed::default();
        for _ in 0..iterations {
            self.passes += 1;
            let (load, server) = self.input(input)?;
            server.signal(Signal::CONT)?;
            let (timed, _) = Self::pass(server, load, self.passes, false)?;
            server.signal(Signal::STOP)?;
            sum.wall_ns += timed.wall_ns;
            sum.cpu_ns += timed.cpu_ns;
            sum.touch = sum.touch.wrapping_add(load.messages);
            for (name, value) in timed.extra {
                *sum.extra.entry(name).or_default() += value;
            }
        }
        Ok(sum)
    }
}
