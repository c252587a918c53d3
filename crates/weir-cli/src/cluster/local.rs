//! `weir cluster local`: runs all nodes of a cluster on this machine, one process for each node.
//!
//! Each node has a directory and a configuration file below `--data`, so that each node can be
//! stopped and restarted alone. Invariant: no node outlives an orderly end of this command.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use weir::{ClusterStatus, ConnectOptions, ErrorCode, MemberStatus, Weir};
use weir_server::cluster::ClusterNode;
use weir_server::{Address, ServerConfig};

use crate::caller::Caller;
use crate::cluster::init;
use crate::cluster::reserve_port::reserve_port;
use crate::interrupt::ignores_hangup;
use crate::place;
use crate::report::{Failure, FailureContext, note, stdout};
use crate::settings::durability_text;

/// How often the command checks whether a node has ended, or a signal asks for the end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time until all nodes are members of the cluster.
const START_TIMEOUT: Duration = Duration::from_mins(2);
/// Maximum time for the orderly end of a node.
const END_TIMEOUT: Duration = Duration::from_secs(40);
/// Number of nodes, and first port, if no option names them.
const NODES: u16 = 3;
const PORT: u16 = 7070;
/// Difference between the first ports of two consecutive nodes.
const PORT_STEP: u16 = 10;
/// The line in the file of a node that was removed from the cluster.
const REMOVED_LINE: &str =
    "# Removed from the cluster: `weir cluster local` does not start this node.";

#[derive(Debug, Args)]
#[command(after_long_help = "\
Node N has its data in DIR/node-N, its settings in DIR/node-N.toml and its log in DIR/node-N.log. A
second call with an existing directory restarts its nodes. The command prints a line for each
node, then the address of all nodes for `--at`, and runs until Ctrl-C, SIGTERM or SIGHUP.
If a node ends, the command prints the command line that restarts this node. The command does not start
a node that was removed (`weir cluster rm`).

Examples:
  weir cluster local --nodes 3 --data ./trial
  weir put orders '{\"id\":1}' --at weir://127.0.0.1:7071,127.0.0.1:7081,127.0.0.1:7091
  kill -9 PID                                    with the pid of any node")]
pub(crate) struct LocalArgs {
    /// Number of nodes of a new cluster: 1, 3, 5 or 7 [default: 3]
    #[arg(long, value_name = "N", value_parser = nodes)]
    nodes: Option<u16>,
    /// Directory below which the nodes store all files
    #[arg(long, value_name = "DIR", default_value = "./weir-cluster")]
    data: PathBuf,
    /// First port of a new cluster; node N uses three ports from 10 (N - 1) higher; 0: any free
    /// ones [default: 7070]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
}

fn nodes(text: &str) -> Result<u16, String> {
    match text {
        "1" | "3" | "5" | "7" => text.parse().map_err(|_| text.to_owned()),
        _ => Err(
            "a cluster has 1, 3, 5 or 7 nodes: an even number tolerates no more failures than the \
             odd number below it"
                .to_owned(),
        ),
    }
}

/// One node: its directory and its ports.
#[derive(Clone, Debug)]
struct LocalNode {
    number: u64,
    directory: PathBuf,
    file: PathBuf,
    log: PathBuf,
    config: ServerConfig,
    /// The level of `--durability`. The nodes inherit a level from other sources.
    durability: Option<String>,
    /// Whether the node was removed from the cluster.
    is_removed: bool,
}

impl LocalNode {
    fn new(caller: &Caller, data: &Path, number: u64) -> Self {
        let durability = &caller.settings.durability;
        let level = || durability_text(durability.value);
        Self {
            number,
            directory: data.join(format!("node-{number}")),
            file: data.join(format!("node-{number}.toml")),
            log: data.join(format!("node-{number}.log")),
            config: ServerConfig::default(),
            durability: (durability.origin == "flag").then(level),
            is_removed: false,
        }
    }

    /// Notes in the file of the node that it was removed, so that no later call starts it.
    fn record_removal(&self) -> anyhow::Result<()> {
        let failed = || format!("cannot note the removal in {}", self.file.display());
        let file = std::fs::OpenOptions::new().append(true).open(&self.file);
        let mut file = file.failed(failed)?;
        writeln!(file, "{REMOVED_LINE}").failed(failed)
    }

    fn native(&self) -> String {
        let native = self.config.native.unwrap_or(Address(any_port(0)));
        native.to_string()
    }

    /// The command that starts the node, as a shell command.
    fn command(&self) -> String {
        let (directory, file) = (self.directory.display(), self.file.display());
        let mut command = format!("weir serve --at {directory} --config {file}");
        if let Some(level) = &self.durability {
            command += " --durability ";
            command += level;
        }
        command
    }
}

/// A started node.
struct StartedNode {
    node: LocalNode,
    child: Child,
    /// The exit status; `None` while the node runs.
    ended: Option<ExitStatus>,
    /// Whether [`poll_end`](Self::poll_end) has returned the exit status.
    is_reported: bool,
}

impl StartedNode {
    fn new(node: &LocalNode) -> anyhow::Result<Self> {
        let failed = || format!("cannot start node {}", node.number);
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&node.log);
        let mut command = Command::new(std::env::current_exe().failed(failed)?);
        command.arg("serve").arg("--at").arg(&node.directory);
        command.arg("--config").arg(&node.file);
        if let Some(level) = &node.durability {
            command.arg("--durability").arg(level);
        }
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            // These settings belong to one node, so the nodes do not inherit them.
            let of_one_node = [
                "HTTP",
                "NATIVE",
                "PEER",
                "NODE",
                "JOIN",
                "SOCKET",
                "ADVERTISE",
            ];
            let key = name_text.strip_prefix("WEIR_SERVE_");
            if key.is_some_and(|key| of_one_node.contains(&key)) {
                command.env_remove(&name);
            }
        }
        // Ctrl-C must reach this process only, which ends the nodes in order.
        command.process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(log.failed(failed)?).spawn().failed(failed)?;
        Ok(Self {
            node: node.clone(),
            child,
            ended: None,
            is_reported: false,
        })
    }

    /// Returns the exit status if the node has ended.
    fn check_end(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Returns the exit status once, after the node has ended.
    fn poll_end(&mut self) -> Option<ExitStatus> {
        let status = self.check_end()?;
        (!std::mem::replace(&mut self.is_reported, true)).then_some(status)
    }

    fn request_stop(&self) {
        if let (None, Some(pid)) = (
            self.ended,
            i32::try_from(self.child.id())
                .ok()
                .and_then(rustix::process::Pid::from_raw),
        ) {
            // The node may just have ended.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
}

/// All running nodes; dropping this ends them.
struct RunningNodes(Vec<StartedNode>);

impl Drop for RunningNodes {
    fn drop(&mut self) {
        for started in &self.0 {
            started.request_stop();
        }
        let until = Instant::now() + END_TIMEOUT;
        for started in &mut self.0 {
            while started.check_end().is_none() {
                if Instant::now() >= until {
                    drop(started.child.kill());
                }
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }
}

/// Runs `weir cluster local`.
pub(crate) fn run(caller: &Caller, args: &LocalArgs) -> anyhow::Result<ExitCode> {
    let what = || format!("cannot start a cluster in {}", args.data.display());
    let end = Arc::new(AtomicBool::new(false));
    let hangup = (!ignores_hangup()).then_some(SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
        signal_hook::flag::register(signal, Arc::clone(&end)).failed(what)?;
    }
    // Kept until the end: the system gives the ports to no other process while a node is down.
    let mut reserved = Vec::new();
    let nodes = prepare(caller, args, &mut reserved)?;
    check_free(&nodes)?;
    let Some(mut all) = start(caller, &nodes, &end)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let text = addresses(&all);
    let mut out = std::io::stdout();
    stdout(out.write_all(text.as_bytes()).and_then(|()| out.flush()))?;
    while !end.load(Ordering::Relaxed) {
        let mut ended = Vec::new();
        for started in &mut all.0 {
            if let Some(status) = started.poll_end() {
                ended.push((started.node.clone(), status));
            }
        }
        for (node, status) in ended {
            report_end(&all, &node, status)?;
        }
        if all.0.iter().all(|started| started.ended.is_some()) {
            let failure = Failure::new(
                ErrorCode::Unreachable,
                "all nodes that this command started have ended",
            );
            let logs = args.data.join("node-*.log");
            return Err(failure
                .because("each of their processes has ended")
                .advise(format!("read the causes in their logs: {}", logs.display()))
                .into());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    note(caller.quiet, "ending all nodes");
    Ok(ExitCode::SUCCESS)
}

/// Starts all nodes that were not removed, and waits until they vote. Returns `None` if the user
/// asked for the end.
fn start(
    caller: &Caller,
    nodes: &[LocalNode],
    end: &AtomicBool,
) -> anyhow::Result<Option<RunningNodes>> {
    let mut all = RunningNodes(Vec::new());
    let members = nodes.iter().filter(|node| !node.is_removed);
    for node in members.clone() {
        // A new node joins the earlier ones, so they must be running.
        let is_new = !ClusterNode::is_node(&node.directory)
            .failed(|| format!("cannot start node {}", node.number))?;
        all.0.push(StartedNode::new(node)?);
        if is_new && wait(&mut all, end, node)?.is_none() {
            return Ok(None);
        }
    }
    for node in members {
        match wait(&mut all, end, node)? {
            None => return Ok(None),
            Some(NodeState::Removed) => {
                let is_it = |started: &StartedNode| started.node.number == node.number;
                let (removed, others) = all.0.drain(..).partition(is_it);
                all.0 = others;
                drop(RunningNodes(removed));
                node.record_removal()?;
                let number = node.number;
                let text =
                    format!("node {number} was removed from the cluster, so it is not started");
                note(caller.quiet, &text);
            }
            Some(NodeState::Voter | NodeState::Starting) => {}
        }
    }
    Ok(Some(all))
}

/// A line for each node, and a line with the addresses of all nodes.
fn addresses(all: &RunningNodes) -> String {
    let mut text = String::new();
    for started in &all.0 {
        let config = &started.node.config;
        let http = config.http.unwrap_or(Address(any_port(0)));
        let _ = writeln!(
            text,
            "node {}  pid {}  http://{http}  weir://{}",
            started.node.number,
            started.child.id(),
            started.node.native()
        );
    }
    let hosts: Vec<_> = all.0.iter().map(|started| started.node.native()).collect();
    let _ = writeln!(text, "--at weir://{}", hosts.join(","));
    text
}

/// Prints that a node has ended, and how to restart the node if it was not removed.
fn report_end(all: &RunningNodes, node: &LocalNode, status: ExitStatus) -> anyhow::Result<()> {
    let number = node.number;
    let mut others = statuses(all);
    others.retain(|other| !other.members.is_empty() && member(other, number).is_none());
    if others.is_empty() {
        let command = node.command();
        let text = format!("node {number} has ended ({status}); start it again: {command}");
        note(false, &text);
        return Ok(());
    }
    // Another node may lag, so only the leader confirms a removal.
    if others.iter().any(|other| other.role == "leader") {
        node.record_removal()?;
    }
    let text = format!(
        "node {number} was removed from the cluster, and its process has ended ({status}); do not \
         start it again"
    );
    note(false, &text);
    Ok(())
}

const fn any_port(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// Reads the configuration of existing nodes, or creates the nodes. Adds the sockets that reserve
/// ports to `reserved`.
fn prepare(
    caller: &Caller,
    args: &LocalArgs,
    reserved: &mut Vec<OwnedFd>,
) -> anyhow::Result<Vec<LocalNode>> {
    let data = &args.data;
    let what = || format!("cannot create a cluster in {}", data.display());
    let mut nodes = Vec::new();
    for number in 1.. {
        let mut node = LocalNode::new(caller, data, number);
        if !node.file.exists() {
            break;
        }
        read(&mut node)?;
        nodes.push(node);
    }
    let refused = |why: String, advice: String| {
        Failure::new(ErrorCode::BadOption, what())
            .because(why)
            .advise(advice)
    };
    if nodes.is_empty() {
        if place::is_store(data).failed(what)? {
            let why = "the directory contains a store".to_owned();
            return Err(refused(why, "name another directory: `--data DIR`".to_owned()).into());
        }
        for (number, ports) in (1..).zip(ports(args, reserved)?) {
            let mut node = LocalNode::new(caller, data, number);
            let [http, native, peer] = ports.map(|port| Some(Address(any_port(port))));
            (node.config.http, node.config.native, node.config.peer) = (http, native, peer);
            nodes.push(node);
        }
        // The files keep the ports, so they are written only if the ports can be used.
        check_free(&nodes)?;
        std::fs::create_dir_all(data).failed(what)?;
        let peers: Vec<_> = nodes.iter().filter_map(|node| node.config.peer).collect();
        // The file of the first node is the last one: without it, the next call writes all of them.
        for node in nodes.iter().rev() {
            std::fs::write(&node.file, text(node, &peers)).failed(what)?;
        }
    }
    if let Some(wanted) = args.nodes
        && usize::from(wanted) != nodes.len()
    {
        let why = format!("the directory has a cluster of {} nodes", nodes.len());
        let advice = "omit `--nodes`, or name another directory: `--data DIR`";
        return Err(refused(why, advice.to_owned()).into());
    }
    if let Some(first) = nodes.first()
        && let (Some(wanted), Some(http)) = (args.port.filter(|port| *port > 0), first.config.http)
        && http.0.port() != wanted
    {
        let why = format!("its nodes use the ports in {}", first.file.display());
        let advice = "omit `--port`, edit the files of all nodes, or name another directory";
        return Err(refused(why, advice.to_owned()).into());
    }
    for node in &nodes {
        // Without its directory, the first node must not start another cluster.
        if ClusterNode::is_node(&node.directory).failed(what)? {
            return Ok(nodes);
        }
    }
    if let Some(first) = nodes.first() {
        let at = first.directory.display().to_string();
        init::init(caller, &at, &first.config, Some(first.number), false)?;
    }
    Ok(nodes)
}

/// Chooses three ports for each node. If the system selects the ports, adds the sockets that
/// reserve them to `reserved`.
fn ports(args: &LocalArgs, reserved: &mut Vec<OwnedFd>) -> anyhow::Result<Vec<[u16; 3]>> {
    let what = || format!("cannot create a cluster in {}", args.data.display());
    let (nodes, port) = (args.nodes.unwrap_or(NODES), args.port.unwrap_or(PORT));
    if port > 0 {
        let highest = u16::MAX - (nodes - 1) * PORT_STEP - 2;
        if port > highest {
            return Err(Failure::new(ErrorCode::BadOption, what())
                .because(format!(
                    "{nodes} nodes with their first port at {port} need ports above 65535"
                ))
                .advise(format!("give a port of at most {highest}: `--port PORT`"))
                .into());
        }
        let three = |node| [0, 1, 2].map(|more| port + node * PORT_STEP + more);
        return Ok((0..nodes).map(three).collect());
    }
    let mut free = Vec::new();
    for _ in 0..nodes {
        let mut three = [0; 3];
        for port in &mut three {
            let (socket, address) = reserve_port(any_port(0)).failed(what)?;
            *port = address.port();
            reserved.push(socket);
        }
        free.push(three);
    }
    Ok(free)
}

/// Checks that no process serves one of the nodes, and that the ports of the nodes are free.
fn check_free(nodes: &[LocalNode]) -> anyhow::Result<()> {
    let (mut open, mut pids) = (Vec::new(), Vec::new());
    for node in nodes {
        if let Some(pid) = place::owner(&node.directory) {
            let directory = node.directory.display();
            open.push(format!("process {pid} has {directory} open"));
            pids.push(pid.to_string());
        }
    }
    if !open.is_empty() {
        let what = "cannot start the cluster".to_owned();
        let (open, pids) = (open.join(", "), pids.join(" "));
        return Err(Failure::new(ErrorCode::Locked, what)
            .because(format!("{open}: the cluster runs already"))
            .advise(format!("use it, or end its processes first: `kill {pids}`"))
            .into());
    }
    for node in nodes.iter().filter(|node| !node.is_removed) {
        let ServerConfig {
            http, native, peer, ..
        } = &node.config;
        for address in [http, native, peer].into_iter().flatten() {
            if let Err(error) = TcpListener::bind(address.0) {
                let what = format!("cannot start node {}", node.number);
                return Err(Failure::new(ErrorCode::AddressTaken, what)
                    .because(format!("cannot listen at {address}: {error}"))
                    .advise(
                        "give another first port and another directory: `--port PORT --data DIR`",
                    )
                    .into());
            }
        }
    }
    Ok(())
}

/// The configuration file of a node.
fn text(node: &LocalNode, peers: &[Address]) -> String {
    let ServerConfig {
        http, native, peer, ..
    } = &node.config;
    let mut text = String::from("# Written by `weir cluster local`.\n[serve]\n");
    for (name, address) in [("http", http), ("native", native), ("peer", peer)] {
        if let Some(address) = address {
            let _ = writeln!(text, "{name} = \"{address}\"");
        }
    }
    if node.number > 1 {
        let others = peers
            .iter()
            .filter(|other| Some(**other) != node.config.peer);
        let others: Vec<_> = others.map(|other| format!("\"{other}\"")).collect();
        let _ = writeln!(
            text,
            "join = [{}]\nnode = {}",
            others.join(", "),
            node.number
        );
    }
    text
}

/// Reads the ports of a node from its configuration file, and whether it was removed.
fn read(node: &mut LocalNode) -> anyhow::Result<()> {
    let shown = node.file.display().to_string();
    let text = std::fs::read_to_string(&node.file).failed(|| format!("cannot read {shown}"))?;
    let wrong = |why: String| {
        Failure::new(ErrorCode::BadOption, format!("cannot use {shown}")).because(why)
    };
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| wrong(error.to_string()))?;
    let serve = table.get("serve").and_then(toml::Value::as_table);
    let mut config = ServerConfig::default();
    for name in ["http", "native", "peer"] {
        let key = ServerConfig::KEYS.iter().find(|key| key.name == name);
        let value = serve.and_then(|serve| serve.get(name)?.as_str());
        let (Some(key), Some(value)) = (key, value) else {
            return Err(wrong(format!("there is no key {name}")).into());
        };
        (key.set)(&mut config, value).map_err(|error| wrong(error.to_string()))?;
    }
    node.config = config;
    node.is_removed = text.lines().any(|line| line == REMOVED_LINE);
    Ok(())
}

/// What the cluster knows about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeState {
    /// The node does not vote yet, or no leader is known.
    Starting,
    Voter,
    Removed,
}

/// Waits until a node votes and knows a leader, or is found to be removed. Returns `None` if the
/// user asked for the end.
fn wait(
    all: &mut RunningNodes,
    end: &AtomicBool,
    node: &LocalNode,
) -> anyhow::Result<Option<NodeState>> {
    let until = Instant::now() + START_TIMEOUT;
    let failure = |node: &LocalNode| {
        let what = format!("node {} is not a part of the cluster", node.number);
        let log = node.log.display();
        Failure::new(ErrorCode::Unreachable, what).advise(format!("read the cause in {log}"))
    };
    while !end.load(Ordering::Relaxed) {
        // Another process could answer at the port of a node that has ended.
        for started in &mut all.0 {
            // The command waits for later nodes afterwards. Without them, this node may have no
            // majority.
            if let Some(status) = started.check_end()
                && started.node.number >= node.number
            {
                let why = format!("its process has ended ({status})");
                return Err(failure(&started.node).because(why).into());
            }
        }
        let state = state(all, node);
        if state != NodeState::Starting {
            return Ok(Some(state));
        }
        if Instant::now() >= until {
            let why = format!("it did not start within {} s", START_TIMEOUT.as_secs());
            return Err(failure(node).because(why).into());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(None)
}

/// The state of a node, as the leader knows it. If no node of this command leads, the node itself
/// must know a leader, which is a node that joined later.
fn state(all: &RunningNodes, node: &LocalNode) -> NodeState {
    // Checked first: the leader knows every node whose directory has a number.
    let has_joined = ClusterNode::is_node(&node.directory).is_ok_and(|is_node| is_node);
    let statuses = statuses(all);
    let own = statuses.iter().find(|status| status.node == node.number);
    let leader = own.and_then(|own| own.leader);
    if let Some(leading) = statuses.iter().find(|status| status.role == "leader") {
        return match member(leading, node.number) {
            None if has_joined => NodeState::Removed,
            Some(member) if member.votes && leader.is_some() => NodeState::Voter,
            _ => NodeState::Starting,
        };
    }
    let mut numbers = all.0.iter().map(|started| started.node.number);
    let leads_elsewhere = leader.is_some_and(|leader| numbers.all(|number| number != leader));
    let own = own.and_then(|own| member(own, node.number));
    match own {
        Some(own) if leads_elsewhere && own.votes => NodeState::Voter,
        _ => NodeState::Starting,
    }
}

/// A member, as the node with this status knows it.
fn member(status: &ClusterStatus, number: u64) -> Option<&MemberStatus> {
    status.members.iter().find(|member| member.node == number)
}

/// The status of each running node that answers.
fn statuses(all: &RunningNodes) -> Vec<ClusterStatus> {
    let mut options = ConnectOptions::default();
    options.connect_timeout = Duration::from_secs(1);
    options.patience = Duration::from_secs(1);
    let running = all.0.iter().filter(|started| started.ended.is_none());
    let status = |started: &StartedNode| {
        let url = format!("weir://{}", started.node.native());
        let status = Weir::connect_with(&url, &options).and_then(|weir| weir.status());
        status.ok()?.server?.cluster
    };
    running.filter_map(status).collect()
}
