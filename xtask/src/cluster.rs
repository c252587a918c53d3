//! A cluster of three nodes whose leader is killed, for the failover test of each language.
//!
//! The scenario of each language:
//! 1. A client connects to the address of the cluster and creates the topic `orders`. It opens a
//!    session, and a listener from the start.
//! 2. The session puts the values 0 to 299 under the key `k`, one at a time. After value 99, the
//!    listener reads the available records, and the test requests the kill; it continues to write
//!    while the leader is killed. After value 199, it waits until the leader has ended.
//! 3. The listener and a read from the start have the values 0 to 299, each once and in order, at
//!    the offsets 2 to 301. The key has the value 299.
//! 4. The test requests that all nodes other than the leader stop, so that no write can be
//!    committed. The session sends the value 300, and the client waits for RECEIVED. The test
//!    requests that the nodes continue, and gets the verdict VALID.
//!
//! The test starts `xtask cluster DIR`, which the variable `WEIR_CLUSTER` names, or its suite
//! starts the cluster and passes the address as argument. The test prints a line and reads the
//! answer: `kill` and `killed NODE`, `stop` and `stopped`, `continue` and `continued`.
//!
//! Invariants:
//! - The system selects the ports.
//! - No node outlives the value `Cluster`.
//! - A kill is acknowledged after the leader has ended.

use crate::served::Running;
use crate::wasm;
use anyhow::{Context as _, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

/// Maximum time until the nodes have ended in order.
const END_WITHIN: Duration = Duration::from_secs(30);

/// Three nodes on this machine.
pub(crate) struct Cluster {
    /// The addresses of all nodes, for clients.
    pub(crate) address: String,
    weir: PathBuf,
    directory: PathBuf,
    /// Process id of each running node by its number.
    nodes: BTreeMap<u64, u64>,
    notes: BufReader<ChildStderr>,
    process: Running,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // A stopped node does not end.
        drop(self.signal_nodes("CONT", None));
        // Ended in order, so that the command ends its nodes.
        if signal("TERM", self.process.0.id().into()).is_ok() {
            drop(self.process.ends_well(END_WITHIN));
        }
    }
}

fn signal(name: &str, process: u64) -> Result<Vec<u8>, String> {
    wasm::finish(Command::new("kill").args(["-s", name, &process.to_string()]))
}

impl Cluster {
    /// Starts a cluster in a new directory.
    pub(crate) fn start(weir: &Path, directory: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        let mut command = command(weir, directory);
        command.args(["cluster", "local", "--nodes", "3", "--port", "0"]);
        command.args(["--data", "nodes"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let process = command.spawn().context("cannot start `weir cluster`")?;
        let mut process = Running(process);
        let output = process.0.stdout.take().context("no output")?;
        let notes = process.0.stderr.take().context("no standard error")?;
        let mut cluster = Self {
            address: String::new(),
            weir: weir.to_owned(),
            directory: directory.to_owned(),
            nodes: BTreeMap::new(),
            notes: BufReader::new(notes),
            process,
        };
        for line in BufReader::new(output).lines() {
            let line = line?;
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["node", node, "pid", process, ..] => {
                    cluster.nodes.insert(node.parse()?, process.parse()?);
                }
                ["--at", address] => {
                    address.clone_into(&mut cluster.address);
                    return Ok(cluster);
                }
                _ => {}
            }
        }
        let mut why = String::new();
        cluster.notes.read_line(&mut why)?;
        bail!("`weir cluster local` did not start: {}", why.trim());
    }

    /// Kills the leader. Returns its number after it has ended.
    fn kill_leader(&mut self) -> anyhow::Result<u64> {
        let leader = self.leader()?;
        let process = self.nodes.get(&leader).context("an unknown node leads")?;
        signal("KILL", *process).map_err(anyhow::Error::msg)?;
        let (mut line, ended) = (String::new(), format!("node {leader} has ended"));
        while !line.contains(&ended) {
            line.clear();
            let read = self.notes.read_line(&mut line)?;
            anyhow::ensure!(read > 0, "`weir cluster local` has ended");
        }
        self.nodes.remove(&leader);
        Ok(leader)
    }

    /// Sends a signal to each running node, except for one. Returns the last error.
    fn signal_nodes(&self, name: &str, except: Option<u64>) -> anyhow::Result<()> {
        let mut sent = Ok(());
        for (node, process) in &self.nodes {
            if Some(*node) != except {
                sent = signal(name, *process).map_err(anyhow::Error::msg).and(sent);
            }
        }
        sent
    }

    /// The number of the leader; retries until there is one.
    fn leader(&self) -> anyhow::Result<u64> {
        let until = Instant::now() + Duration::from_mins(1);
        loop {
            let mut status = command(&self.weir, &self.directory);
            status.args(["cluster", "status", "-o", "jsonl"]);
            status.args(["--columns", "node,role", "--at", &self.address]);
            // It fails if a node does not answer, but lists all of them.
            let output = status
                .output()
                .context("cannot start `weir cluster status`")?;
            for line in String::from_utf8(output.stdout)?.lines() {
                let node: Value = serde_json::from_str(line)?;
                if node["role"] == "leader" {
                    return node["node"].as_u64().context("a node without number");
                }
            }
            anyhow::ensure!(Instant::now() < until, "no node leads the cluster");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Executes the request in each line and writes the answer, until the input ends. Returns how
    /// many nodes were killed.
    pub(crate) fn serve_requests(
        &mut self,
        input: impl BufRead,
        output: &mut impl Write,
    ) -> anyhow::Result<u64> {
        let mut killed = 0;
        for line in input.lines() {
            match line?.as_str() {
                "kill" => {
                    let node = self.kill_leader()?;
                    killed += 1;
                    writeln!(output, "killed {node}")?;
                }
                "stop" => {
                    self.signal_nodes("STOP", Some(self.leader()?))?;
                    writeln!(output, "stopped")?;
                }
                "continue" => {
                    self.signal_nodes("CONT", None)?;
                    writeln!(output, "continued")?;
                }
                other => bail!("no such request: {other}"),
            }
            output.flush()?;
        }
        Ok(killed)
    }
}

/// The command `weir` without the settings of the user.
fn command(weir: &Path, directory: &Path) -> Command {
    let mut command = Command::new(weir);
    command.current_dir(directory);
    command
        .env("HOME", directory)
        .env("XDG_CONFIG_HOME", directory);
    command.env("WEIR_SERVE_VOLATILE", "true");
    command.stdin(Stdio::null());
    command
}

/// Starts a cluster in a directory for the parent process, prints its address, and executes
/// requests until the input ends.
pub(crate) fn run(directory: &str) -> anyhow::Result<()> {
    // The suite has already built the command.
    let weir = std::env::current_exe()?.with_file_name("weir");
    let mut cluster = Cluster::start(&weir, Path::new(directory))?;
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", cluster.address)?;
    output.flush()?;
    cluster.serve_requests(std::io::stdin().lock(), &mut output)?;
    Ok(())
}
