//! Chapter "failover": the leader of three nodes is killed while events are written. Writes
//! continue, and in the end all nodes have equal state.
//!
//! Invariant: all nodes have ended when the chapter ends.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use weir::{ClusterStatus, ConnectOptions, Weir};

use super::child::{TOPIC, put};
use super::crash::{Acknowledged, check, nothing_lost};
use super::facts::{Facts, seconds};
use super::output::{DemoOutput, check_interrupt, count, time};
use crate::interrupt::Interrupt;

/// Nodes of the cluster.
const NODES: usize = 3;
/// Events before the leader is killed, and as many after it.
const EVENTS: u64 = 200;
/// Maximum time until the nodes agree.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Pause between two polls of the nodes.
const PAUSE: Duration = Duration::from_millis(20);

/// Child processes. Dropping this ends them in order.
struct Processes(Vec<Child>);

impl Drop for Processes {
    fn drop(&mut self) {
        for child in self.0.iter().rev() {
            // The process may already have ended.
            drop(signal(child.id(), Signal::TERM));
        }
        for child in &mut self.0 {
            drop(child.wait());
        }
    }
}

fn signal(pid: u32, signal: Signal) -> anyhow::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    kill_process(pid.context("a process without a process id")?, signal)?;
    Ok(())
}

/// A cluster started by `weir cluster local`.
struct Cluster {
    processes: Processes,
    /// Addresses of all nodes.
    at: String,
    /// Process id and address of each node.
    nodes: BTreeMap<u64, (u32, String)>,
}

impl Cluster {
    fn start(directory: &Path) -> anyhow::Result<Self> {
        let mut command = weir()?;
        command.args(["cluster", "local", "--port", "0", "--nodes"]);
        command.arg(NODES.to_string()).arg("--data").arg(directory);
        let child = command.stdout(Stdio::piped()).spawn();
        let mut child = child.context("cannot start a cluster")?;
        let output = child.stdout.take().context("the cluster has no output")?;
        let mut started = Self {
            processes: Processes(vec![child]),
            at: String::new(),
            nodes: BTreeMap::new(),
        };
        for line in BufReader::new(output).lines() {
            let line = line?;
            let words: Vec<_> = line.split_whitespace().collect();
            match words[..] {
                ["node", node, "pid", pid, _, native] => {
                    let node = (node.parse()?, (pid.parse()?, native.to_owned()));
                    started.nodes.extend([node]);
                }
                ["--at", at] => {
                    at.clone_into(&mut started.at);
                    return Ok(started);
                }
                _ => {}
            }
        }
        anyhow::bail!("the cluster did not start; each node has a log in its directory")
    }

    /// Restarts a killed node.
    fn restart(&mut self, directory: &Path, node: u64) -> anyhow::Result<()> {
        let mut command = weir()?;
        let at = directory.join(format!("node-{node}"));
        command.arg("serve").arg("--at").arg(&at);
        command.arg("--config").arg(at.with_extension("toml"));
        let child = command.stdout(Stdio::null()).spawn();
        self.processes.0.push(child.context("cannot start a node")?);
        Ok(())
    }

    /// Statuses of the nodes that respond.
    fn statuses(&self) -> Vec<ClusterStatus> {
        let ask = |native: &str| Weir::connect(native).ok()?.status().ok()?.server?.cluster;
        let nodes = self.nodes.values();
        nodes.filter_map(|(_, native)| ask(native)).collect()
    }

    /// Polls all nodes until their statuses satisfy a condition.
    fn poll_until<T>(
        &self,
        interrupt: &Interrupt,
        wanted: impl Fn(&[ClusterStatus]) -> Option<T>,
    ) -> anyhow::Result<T> {
        let until = Instant::now() + TIMEOUT;
        loop {
            check_interrupt(interrupt)?;
            let statuses = self.statuses();
            if let Some(found) = wanted(&statuses) {
                return Ok(found);
            }
            ensure!(
                Instant::now() < until,
                "the nodes do not agree: {statuses:?}"
            );
            std::thread::sleep(PAUSE);
        }
    }
}

/// A command that runs this program without standard input and standard error.
fn weir() -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("cannot find this program again")?;
    let mut command = Command::new(program);
    // The demo may run in memory, and reports that.
    command.env("WEIR_SERVE_VOLATILE", "true");
    command.stdin(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

/// Kills the leader of three nodes while events are written.
pub(super) fn run(
    output: &mut DemoOutput,
    facts: &mut Facts,
    directory: &Path,
) -> anyhow::Result<()> {
    output.step("failover", |output| {
        let interrupt = output.interrupt();
        let mut cluster = Cluster::start(directory)?;
        // On a busy machine an election can take longer than the usual time limit.
        let mut options = ConnectOptions::default();
        options.connect_timeout = TIMEOUT;
        let client = Weir::connect_with(&cluster.at, &options)?;
        client.topic(TOPIC)?.ensure()?;
        let mut acknowledged = Acknowledged::default();
        let mut write = |nonce| -> anyhow::Result<()> {
            check_interrupt(interrupt)?;
            let (offset, _) = put(&client, 0, nonce)?;
            acknowledged[0].push(offset);
            Ok(())
        };
        (1..=EVENTS).try_for_each(&mut write)?;

        let leader = cluster.poll_until(interrupt, |statuses| {
            let mut leaders = statuses.iter().filter(|node| node.role == "leader");
            leaders.next().map(|leader| leader.node)
        })?;
        let (pid, _) = cluster.nodes.get(&leader).context("the leader is not a node of the cluster")?;
        signal(*pid, Signal::KILL).context("cannot kill the leader")?;
        let killed = Instant::now();
        write(EVENTS + 1)?;
        let resumed = killed.elapsed();
        (EVENTS + 2..=2 * EVENTS).try_for_each(&mut write)?;

        cluster.restart(directory, leader)?;
        let digests = cluster.poll_until(interrupt, |statuses| {
            let first = statuses.first().filter(|_| statuses.len() == NODES)?;
            let is_same = |node: &ClusterStatus| {
                (node.applied, node.last) == (first.applied, first.applied)
            };
            statuses.iter().all(is_same).then(|| {
                let digests: Vec<_> = statuses.iter().map(|node| node.digest.clone()).collect();
                digests
            })
        })?;
        let first = digests.first().context("no digest")?;
        ensure!(digests.iter().all(|digest| digest == first), "digests differ: {digests:?}");
        for (_, native) in cluster.nodes.values() {
            let found = check(&Weir::connect(native)?, &acknowledged)?;
            nothing_lost(&found)?;
            ensure!(found.events == 2 * EVENTS, "{} events", found.events);
        }
        facts.insert(
            "failover".into(),
            json!({"nodes": NODES, "acknowledged": 2 * EVENTS, "lost": 0,
                   "resumed_s": seconds(resumed), "digest": first}),
        );
        let line = format!(
            "leader of {NODES} nodes killed: writes resume after {}; {} events acknowledged, 0 lost, \
             0 duplicated, {NODES} equal digests",
            time(resumed),
            count(2 * EVENTS),
        );
        Ok((line, ()))
    })
}
