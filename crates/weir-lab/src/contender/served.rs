//! The server of this project behind its native port, measured like the other servers: one process
//! on a separate CPU, and clients that send everything before they wait.
//!
//! The server is the program `weir` beside this one. It is stopped while others are measured.
//! Before each timed part, earlier writes are synced.

pub mod catch_up;
pub mod failover;
pub mod idle;
pub mod readers;
pub mod tail;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::sched_getaffinity;
use weir::{ClientId, ClusterStatus, Intention, Operation, ReadFrom, RecordKind, Session, Weir};

use super::program::write::transfer;
use super::program::{arguments, create, module};
use super::store::keys::status_in;
use super::store::{DISTINCT, Load, failed, remove, scratch};
use super::wire::part;
use super::{Contender, ContenderError, optional, parameter};
use crate::child::{beside, guarded, spawn_on};
use crate::clock::Stopwatch;
use crate::protocol::{Answer, Fields, Timed};

/// Maximum number of messages in a call.
const CALL_MESSAGES_MAX: usize = 1_000;

/// Puts of `producers` clients over the native port into one server, or into a cluster of `nodes`
/// servers, of which `down` do not run, at the durability `level` (a name of `weir serve`), with
/// `batch` messages in a call. All calls are sent before the first answer is awaited; with
/// `wait = "each"`, each is answered before the next is sent. With `program`, the topic has that
/// reference program. Reports `server_us` (CPU of all servers, microseconds a message), `busiest_us`
/// (CPU of the server that uses most) and `idle` (idle share of all CPUs).
#[derive(Debug, Default)]
pub struct Served {
    inputs: BTreeMap<usize, Input>,
    servers: BTreeMap<(String, u16), Server>,
    passes: u64,
}

/// The parameters of an input.
#[derive(Clone, Debug)]
struct Input {
    load: Load,
    /// Durability and number of nodes. Inputs with equal values share a server.
    server: (String, u16),
    program: String,
    /// Whether a client waits for each answer before it sends the next call.
    waits_for_each: bool,
}

/// Maximum time until all nodes of a cluster run and have applied everything.
const READY_TIMEOUT: Duration = Duration::from_mins(1);
/// Pause between two requests for the status of the nodes.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Options of the server besides its addresses. All connections of the lab come from one address,
/// and wait while others are measured.
const SETTINGS: [(&str, &str); 3] = [
    ("WEIR_SERVE_CONNECTIONS_MAX", "20000"),
    ("WEIR_SERVE_CONNECTIONS_PER_ADDRESS_MAX", "20000"),
    ("WEIR_SERVE_IDLE_TIMEOUT", "600s"),
];

/// A server, or all nodes of a cluster.
#[derive(Debug)]
struct Server {
    nodes: Vec<Node>,
    url: String,
    /// Address of the HTTP port of the first node.
    http: Option<String>,
    dir: PathBuf,
}

/// The process of a node.
#[derive(Debug)]
struct Node {
    process: Child,
    /// Its arguments.
    words: Vec<String>,
    /// Address of its native port.
    url: String,
}

impl Server {
    fn start(
        level: &str,
        nodes: u16,
        fields: &Fields,
        input: usize,
    ) -> Result<Server, ContenderError> {
        let down = nodes_down(fields, nodes)?;
        let dir = scratch(fields, "served", input)?;
        let mut server = Server {
            nodes: Vec::new(),
            url: String::new(),
            http: None,
            dir,
        };
        if nodes == 1 {
            let place = server.dir.display().to_string();
            let ports = ["--http", "127.0.0.1:0", "--native", "127.0.0.1:0"];
            let words = ["--at", &place, "--durability", level, "serve", "--volatile"];
            let words = words.into_iter().chain(ports).map(str::to_owned).collect();
            server.nodes.push(Node::start(words, &mut server.http)?);
            server.url = server.nodes.iter().map(|node| node.url.clone()).collect();
        } else {
            server.url = prepare_cluster(&server.dir, level, nodes)?;
            for number in 1..=nodes - down {
                let place = server.dir.join(format!("node-{number}"));
                let file = server.dir.join(format!("node-{number}.toml"));
                let (place, file) = (place.display().to_string(), file.display().to_string());
                let words = ["serve", "--at", &place, "--config", &file];
                let words = words.into_iter().chain(["--durability", level]);
                let words = words.map(str::to_owned).collect();
                server.nodes.push(Node::start(words, &mut server.http)?);
            }
        }
        server.signal(Signal::STOP)?;
        Ok(server)
    }

    fn signal(&self, signal: Signal) -> Result<(), ContenderError> {
        for node in &self.nodes {
            send(&node.process, signal)?;
        }
        Ok(())
    }

    /// The cluster status of each node that answers.
    fn cluster_status(&self) -> Vec<ClusterStatus> {
        self.nodes.iter().filter_map(Node::cluster_status).collect()
    }

    /// Waits until all nodes answer, have the same leader and have applied everything. Returns the
    /// number of the leader.
    fn wait_until_ready(&self) -> Result<u64, ContenderError> {
        let until = Instant::now() + READY_TIMEOUT;
        while Instant::now() < until {
            let all = self.cluster_status();
            let leader = all.first().and_then(|first| first.leader);
            let newest = all.iter().map(|node| node.last).max();
            let is_ready = all.len() == self.nodes.len()
                && all.iter().all(|node| node.leader == leader)
                && all.iter().all(|node| Some(node.applied) == newest);
            if let (Some(leader), true) = (leader, is_ready) {
                return Ok(leader);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Err(failed("not all nodes of the cluster are ready"))
    }

    /// The sum of a field in the status of all processes, in bytes.
    fn status(&self, name: &str) -> u64 {
        let of_one = |node: &Node| {
            let text = fs::read_to_string(format!("/proc/{}/status", node.process.id()));
            status_in(&text.unwrap_or_default(), name)
        };
        self.nodes.iter().map(of_one).sum()
    }

    /// CPU time of all threads of each process, in nanoseconds.
    fn cpu_ns(&self) -> Vec<u64> {
        self.nodes
            .iter()
            .map(|node| cpu_ns(&node.process))
            .collect()
    }

    /// CPU time since `before`, in nanoseconds: of all processes together, and of the process that
    /// used the most.
    fn cpu_since(&self, before: &[u64]) -> (u64, u64) {
        let now = self.cpu_ns();
        let used = || now.iter().zip(before).map(|(now, before)| now - before);
        (used().sum(), used().max().unwrap_or_default())
    }
}

impl Node {
    /// Starts `weir` with these arguments, and returns when it listens. If `http` is empty, it is set
    /// to the address of its HTTP port.
    fn start(words: Vec<String>, http: &mut Option<String>) -> Result<Node, ContenderError> {
        let lab = std::env::current_exe().map_err(failed)?;
        let weir = beside(&lab);
        let command_line: Vec<String> = std::iter::once(weir.display().to_string())
            .chain(words.iter().cloned())
            .collect();
        let command_line = guarded(&lab, &command_line);
        let (program, rest) = command_line
            .split_first()
            .ok_or_else(|| failed("no words"))?;
        let mut command = Command::new(program);
        command
            .args(rest)
            .env_remove("WEIR_AT")
            .envs(SETTINGS)
            .stderr(Stdio::piped())
            .process_group(0);
        let process = spawn_on(&mut command, free_cpu()?).map_err(|source| {
            let path = weir.display().to_string();
            ContenderError::Io { path, source }
        })?;
        let mut node = Node {
            process,
            words,
            url: String::new(),
        };
        let stderr = node.process.stderr.take();
        let mut output = String::new();
        let mut lines = BufReader::new(stderr.ok_or_else(|| failed("no pipe"))?);
        while node.url.is_empty() {
            let from = output.len();
            if lines.read_line(&mut output).map_err(failed)? == 0 {
                node.end();
                return Err(failed(format!("the server did not start: {output}")));
            }
            let line = output.get(from..).unwrap_or_default().trim();
            if let Some((_, address)) = line.split_once("HTTP at http://") {
                http.get_or_insert_with(|| address.to_owned());
            }
            if let Some((_, url)) = line.split_once("native at ") {
                url.clone_into(&mut node.url);
            }
        }
        // Further output of the server must not block it.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Ok(node)
    }

    /// The status of the cluster that this node reports; `None` if it does not answer.
    fn cluster_status(&self) -> Option<ClusterStatus> {
        cluster_status(&Weir::connect(&self.url).ok()?)
    }

    /// Kills the process and waits for its end.
    fn end(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            node.end();
        }
        let _ = remove(&self.dir);
    }
}

/// The cluster status of the node at the other end of a connection.
fn cluster_status(weir: &Weir) -> Option<ClusterStatus> {
    weir.status().ok()?.server?.cluster
}

fn send(process: &Child, signal: Signal) -> Result<(), ContenderError> {
    let id = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
    kill_process(id.ok_or_else(|| failed("no process"))?, signal).map_err(failed)
}

/// CPU time of all threads of a process, in nanoseconds.
fn cpu_ns(process: &Child) -> u64 {
    let threads = fs::read_dir(format!("/proc/{}/task", process.id()));
    let time = |thread: fs::DirEntry| -> Option<u64> {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    threads.map_or(0, |all| all.flatten().filter_map(time).sum())
}

/// Creates a cluster of `nodes` nodes below `dir` with `weir cluster local`, and shuts it down.
/// Returns the addresses of all nodes. Each node keeps its address when it is started again by
/// itself. Then the lab can stop it, measure its CPU time, and kill it.
fn prepare_cluster(dir: &Path, level: &str, nodes: u16) -> Result<String, ContenderError> {
    let lab = std::env::current_exe().map_err(failed)?;
    let weir = beside(&lab);
    let (place, count) = (dir.display().to_string(), nodes.to_string());
    let words = ["--durability", level, "cluster", "local", "--port", "0"];
    let words = words
        .into_iter()
        .chain(["--nodes", &count, "--data", &place]);
    let mut process = Command::new(&weir)
        .args(words)
        .env_remove("WEIR_AT")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|source| {
            let path = weir.display().to_string();
            ContenderError::Io { path, source }
        })?;
    let lines = BufReader::new(process.stdout.take().ok_or_else(|| failed("no pipe"))?).lines();
    let url = lines.map_while(std::io::Result::ok).find_map(|line| {
        let url = line.strip_prefix("--at ")?;
        Some(url.to_owned())
    });
    // The command shuts its nodes down before it ends.
    send(&process, Signal::TERM)?;
    process.wait().map_err(failed)?;
    url.ok_or_else(|| failed("the cluster did not start"))
}

/// The number of nodes of a cluster that are never started, which must leave a majority.
fn nodes_down(fields: &Fields, nodes: u16) -> Result<u16, ContenderError> {
    let Some(down) = optional::<u16>(fields, "down")? else {
        return Ok(0);
    };
    if down > (nodes - 1) / 2 {
        return Err(ContenderError::Parameter("down"));
    }
    Ok(down)
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

/// Sends all messages, then waits for all answers. With the program `balance`, each message is a
/// transfer, and there is one account for each distinct message.
fn produce(
    session: &mut Session,
    topic: &str,
    input: &Input,
    producer: u64,
) -> Result<(), ContenderError> {
    let load = input.load;
    let payload = load.payload(producer);
    let transfers: Vec<_> = match input.program.as_str() {
        "balance" => (0..DISTINCT).map(transfer).collect(),
        _ => Vec::new(),
    };
    let messages = load.messages / load.producers;
    let mut waiting = Vec::new();
    let mut next = 0;
    let mut call = Vec::with_capacity(load.batch);
    while next < messages {
        let until = messages.min(next + load.batch as u64);
        call.clear();
        call.extend((next..until).map(|number| {
            let turn = usize::try_from(number % DISTINCT as u64).unwrap_or_default();
            let (key, value) = match transfers.get(turn) {
                Some((key, value)) => (key.as_slice(), value.as_slice()),
                None => (&[][..], payload.message(number)),
            };
            Intention::new(topic, Operation::Put { key, value })
        }));
        let pending = session.send(&call).map_err(failed)?;
        if input.waits_for_each {
            accepted(pending)?;
        } else {
            waiting.push(pending);
        }
        next = until;
    }
    waiting.into_iter().try_for_each(accepted)
}

/// Waits for an answer. A verdict other than VALID is an error.
fn accepted(pending: weir::Pending) -> Result<(), ContenderError> {
    let verdicts = pending.wait().map_err(failed)?;
    if verdicts.iter().all(weir::Verdict::is_valid) {
        return Ok(());
    }
    Err(failed("a put was not VALID"))
}

impl Served {
    fn input(&self, input: usize) -> Result<(&Input, &Server), ContenderError> {
        let found = self
            .inputs
            .get(&input)
            .ok_or(ContenderError::NotLoaded(input))?;
        let server = self.servers.get(&found.server);
        Ok((found, server.ok_or(ContenderError::NotLoaded(input))?))
    }

    /// Puts the load of `input` into a new topic; with `read`, also returns its content.
    #[allow(clippy::cast_precision_loss)] // nanoseconds below 2^53
    fn pass(
        server: &Server,
        input: &Input,
        number: u64,
        read: bool,
    ) -> Result<(Timed, u64), ContenderError> {
        let load = input.load;
        let name = format!("lab{number}");
        // Nodes that were stopped may elect a leader first. Connecting waits for it.
        let weir = Weir::connect(&server.url).map_err(failed)?;
        create(
            &weir,
            &name,
            module(&input.program)?,
            arguments(&input.program),
        )?;
        let topic = weir.topic(&name).map_err(failed)?;
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
                        produce(session, name, input, producer)
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
            let (used, busiest) = server.cpu_since(&server_before);
            let idle = idle_ns().0 - idle_before;
            let extra = [
                ("server_us", used as f64 / 1e3 / load.messages as f64),
                ("busiest_us", busiest as f64 / 1e3 / load.messages as f64),
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
        // A transfer writes the balances of two accounts.
        let records = load.messages * if input.program == "balance" { 2 } else { 1 };
        if stored != records {
            return Err(failed(format!("{stored} records of {records} are stored")));
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
        let destroyed = topic.destroy().map_err(failed)?;
        destroyed.ensure_valid().map_err(failed)?;
        Ok((timed, content))
    }
}

impl Contender for Served {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let load = Load::read(fields)?;
        if load.batch > CALL_MESSAGES_MAX {
            return Err(ContenderError::Parameter("batch"));
        }
        let nodes = parameter(fields, "nodes").unwrap_or(1);
        if ![1, 3, 5, 7].contains(&nodes) {
            return Err(ContenderError::Parameter("nodes"));
        }
        let program = parameter(fields, "program").unwrap_or_else(|_| "plain".to_owned());
        module(&program)?;
        let server = (parameter(fields, "level")?, nodes);
        if !self.servers.contains_key(&server) {
            let started = Server::start(&server.0, nodes, fields, input)?;
            self.servers.insert(server.clone(), started);
        }
        let waits_for_each = match parameter(fields, "wait")
            .unwrap_or_else(|_| "end".to_owned())
            .as_str()
        {
            "each" => true,
            "end" => false,
            _ => return Err(ContenderError::Parameter("wait")),
        };
        let asked = Input {
            load,
            server,
            program,
            waits_for_each,
        };
        self.inputs.insert(input, asked);
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        self.passes += 1;
        let (input, server) = self.input(input)?;
        let short = Input {
            load: input.load.for_check(),
            ..input.clone()
        };
        server.signal(Signal::CONT)?;
        let (_, content) = Self::pass(server, &short, self.passes, true)?;
        server.signal(Signal::STOP)?;
        Ok(Answer {
            content,
            touch: input.load.messages,
            ..Answer::default()
        })
    }

    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let mut sum = Timed::default();
        for _ in 0..iterations {
            self.passes += 1;
            let (input, server) = self.input(input)?;
            server.signal(Signal::CONT)?;
            let (timed, _) = Self::pass(server, input, self.passes, false)?;
            server.signal(Signal::STOP)?;
            sum.wall_ns += timed.wall_ns;
            sum.cpu_ns += timed.cpu_ns;
            sum.touch = sum.touch.wrapping_add(input.load.messages);
            for (name, value) in timed.extra {
                *sum.extra.entry(name).or_default() += value;
            }
        }
        Ok(sum)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_of_the_nodes_runs() {
        let down = |down: &str, nodes| {
            let fields = Fields::from([("down".to_owned(), down.to_owned())]);
            nodes_down(&fields, nodes).ok()
        };
        assert_eq!(nodes_down(&Fields::new(), 3).unwrap(), 0);
        let found = [("1", 3), ("2", 3), ("2", 5), ("3", 5), ("1", 1), ("x", 3)];
        let found = found.map(|(count, nodes)| down(count, nodes));
        assert_eq!(found, [Some(1), None, Some(2), None, None, None]);
    }
}
