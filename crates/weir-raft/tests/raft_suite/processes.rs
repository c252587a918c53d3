//! Kills of real processes, one at a time or all together.
//!
//! A child process is this test program; an environment variable makes it a node. It reads commands
//! from standard input and prints one line for each.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use weir_core::intention::{Intention, Operation};
use weir_core::{ClientId, TopicOptions};
use weir_raft::{Member, Node, NodeConfig, Role};
use weir_store::OpenOptions;

use crate::cluster::{propose, records};

const CHILD: &str = "WEIR_TEST_NODE";
const CLUSTER: [u8; 16] = [0xd1; 16];
const CLIENT: ClientId = ClientId([0x22; 16]);
/// Prefix of each reply, because the test harness prints other text too.
const MARK: &str = "node> ";
const CYCLES: u64 = 6;
const WRITES: u64 = 15;
/// Time limit for an election; an election takes about a second.
const LEAD_PATIENCE: Duration = Duration::from_secs(5);
/// Longest time until all nodes of a new cluster listen.
const FORM_PATIENCE: Duration = Duration::from_mins(1);

/// Arguments: `directory node peer,peer,peer`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_is_a_node_until_it_is_killed() {
    let Ok(arguments) = std::env::var(CHILD) else {
        return;
    };
    let [directory, node, peers] = arguments.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{arguments}");
    };
    let node: u64 = node.parse().unwrap();
    let members: BTreeMap<u64, Member> = (1..)
        .zip(peers.split(','))
        .map(|(node, peer)| {
            let (peer, client) = (peer.to_owned(), String::new());
            let member = Member {
                peer,
                client,
                ..Member::default()
            };
            (node, member)
        })
        .collect();
    let listener = TcpListener::bind(&members[&node].peer).await.unwrap();
    let config = NodeConfig {
        node,
        cluster: CLUSTER,
        incarnation: 0,
    };
    let options = OpenOptions::default();
    let opened = Node::open(Path::new(directory), &options, config, listener).await;
    let opened = opened.unwrap();
    loop {
        let line = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).map(|_| line)
        });
        let line = line.await.unwrap().unwrap();
        let reply = match line.trim().split_once(' ') {
            _ if line.trim() == "form" => {
                format!("{}", opened.initialize(members.clone()).await.is_ok())
            }
            Some(("write", nonce)) => write(&opened, nonce.parse().unwrap()).await,
            Some(("applied", _)) => {
                let status = opened.status();
                let digest = opened.store().digest();
                let count = records(opened.store());
                let is_all = status.applied == status.last;
                format!("{is_all} {:?} {digest:?} {count}", status.applied)
            }
            Some(("is-leader", _)) => {
                let is_leader = opened.until(|status| status.role == Role::Leader);
                let in_time = tokio::time::timeout(LEAD_PATIENCE, is_leader).await;
                format!("{}", in_time.is_ok())
            }
            Some(("log", _)) => {
                let status = opened.status();
                format!("term {} last {:?}", status.term, status.last)
            }
            // Standard input has ended.
            _ => return,
        };
        println!("\n{MARK}{reply}");
    }
}

/// The first nonce creates the topic; later nonces put a record.
async fn write(node: &Node, nonce: u64) -> String {
    let (key, options) = (nonce.to_string(), TopicOptions::default());
    let operation = match nonce {
        1 => Operation::Create { options: &options },
        _ => Operation::Put {
            key: key.as_bytes(),
            value: b"value",
        },
    };
    let intention = Intention::new("orders", operation).under(CLIENT, nonce);
    let proposed = propose(node.store(), &intention);
    match tokio::time::timeout(Duration::from_secs(1), proposed).await {
        Ok(Ok(())) => "done".to_owned(),
        Ok(Err(error)) => format!("{:?}", error.code()),
        Err(_) => "no result".to_owned(),
    }
}

struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(directory: &Path, node: u64, peers: &str) -> Self {
        let arguments = format!("{} {node} {peers}", directory.display());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::child_is_a_node_until_it_is_killed"])
            .args(["--nocapture", "--test-threads=1"])
            .env(CHILD, arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let input = child.stdin.take().unwrap();
        Self {
            child,
            input,
            output,
        }
    }

    fn command(&mut self, command: &str) -> String {
        writeln!(self.input, "{command}").unwrap();
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.output.read_line(&mut line).unwrap();
            assert!(read > 0, "a node ended without a kill");
            if let Some(reply) = line.strip_prefix(MARK) {
                return reply.trim().to_owned();
            }
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Writes at one node after the other until one succeeds, and returns that node.
fn write_somewhere(nodes: &mut BTreeMap<u64, Process>, first: u64, nonce: u64) -> u64 {
    let mut node = first;
    loop {
        if let Some(process) = nodes.get_mut(&node)
            && process.command(&format!("write {nonce}")) == "done"
        {
            return node;
        }
        node = node % 3 + 1;
    }
}

/// Three addresses that were free at the time of the check. Their IP address is used by one test
/// only, so that no other socket takes them later.
fn free_addresses(ip: &str) -> String {
    let free: Vec<_> = (0..3)
        .map(|_| std::net::TcpListener::bind((ip, 0)).unwrap())
        .collect();
    let peers: Vec<_> = free
        .iter()
        .map(|listener| listener.local_addr().unwrap().to_string())
        .collect();
    peers.join(",")
}

/// Forms the cluster as soon as all nodes listen.
fn form(nodes: &mut BTreeMap<u64, Process>) {
    let end = Instant::now() + FORM_PATIENCE;
    while nodes.get_mut(&1).unwrap().command("form") != "true" {
        assert!(Instant::now() < end, "the nodes form no cluster");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn killed_processes_lose_and_duplicate_nothing() {
    let directories = tempfile::tempdir().unwrap();
    let peers = free_addresses("127.78.0.1");
    let start = |node: u64| {
        let directory = directories.path().join(node.to_string());
        Process::start(&directory, node, &peers)
    };
    let mut nodes: BTreeMap<u64, Process> = (1..=3).map(|node| (node, start(node))).collect();
    form(&mut nodes);
    let (mut nonce, mut leader) = (0, 1);
    for cycle in 0..CYCLES {
        for _ in 0..WRITES {
            nonce += 1;
            leader = write_somewhere(&mut nodes, leader, nonce);
        }
        // Kill one process, or all.
        let killed: Vec<u64> = if cycle % 3 == 2 {
            vec![1, 2, 3]
        } else {
            vec![leader]
        };
        for node in &killed {
            nodes.remove(node).unwrap().kill();
        }
        if killed.len() == 1 {
            for _ in 0..WRITES {
                nonce += 1;
                leader = write_somewhere(&mut nodes, leader, nonce);
            }
        }
        for node in killed {
            nodes.insert(node, start(node));
        }
    }
    nonce += 1;
    write_somewhere(&mut nodes, leader, nonce);
    let state = loop {
        let states: Vec<_> = nodes
            .values_mut()
            .map(|n| n.command("applied now"))
            .collect();
        let is_equal = states.iter().all(|state| *state == states[0]);
        if is_equal && states[0].starts_with("true ") {
            break states[0].clone();
        }
        std::thread::yield_now();
    };
    // Each nonce has one record, although some nonces were sent again.
    assert!(
        state.ends_with(&format!(" {nonce}")),
        "{state} after {nonce}"
    );
    for process in nodes.into_values() {
        process.kill();
    }
}

/// A follower lacks writes that the two others have acknowledged. One of the others loses its disk,
/// and the other one is down. If the empty disk voted, the follower would lead without these
/// writes.
#[test]
fn an_empty_disk_under_an_old_number_does_not_vote() {
    let directories = tempfile::tempdir().unwrap();
    let peers = free_addresses("127.78.0.2");
    let directory = |node: u64| directories.path().join(node.to_string());
    let start = |node: u64| Process::start(&directory(node), node, &peers);
    let mut nodes: BTreeMap<u64, Process> = (1..=3).map(|node| (node, start(node))).collect();
    form(&mut nodes);
    let mut leader = 1;
    for nonce in 1..=WRITES {
        leader = write_somewhere(&mut nodes, leader, nonce);
    }
    let stale = leader % 3 + 1;
    nodes.remove(&stale).unwrap().kill();
    for nonce in WRITES + 1..=2 * WRITES {
        leader = write_somewhere(&mut nodes, leader, nonce);
    }
    let emptied = 1 + 2 + 3 - stale - leader;
    nodes.remove(&leader).unwrap().kill();
    nodes.remove(&emptied).unwrap().kill();
    std::fs::remove_dir_all(directory(emptied)).unwrap();
    nodes.insert(emptied, start(emptied));
    nodes.insert(stale, start(stale));
    let candidate = nodes.get_mut(&stale).unwrap();
    assert_eq!(candidate.command("is-leader now"), "false");

    nodes.insert(leader, start(leader));
    let nonce = 2 * WRITES + 1;
    write_somewhere(&mut nodes, leader, nonce);
    assert_eq!(
        nodes.get_mut(&emptied).unwrap().command("log now"),
        "term 0 last None"
    );
    let applied = loop {
        let mut states =
            [leader, stale].map(|node| nodes.get_mut(&node).unwrap().command("applied now"));
        if states[0] == states[1] && states[0].starts_with("true ") {
            break std::mem::take(&mut states[0]);
        }
        std::thread::yield_now();
    };
    assert!(
        applied.ends_with(&format!(" {nonce}")),
        "{applied} after {nonce}"
    );
    for process in nodes.into_values() {
        process.kill();
    }
}
