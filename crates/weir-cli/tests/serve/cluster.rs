//! Tests a cluster of real processes, as documented: the leader is killed, writes continue, and the
//! node returns.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use weir::{
    ClientId, ClusterStatus, ConnectOptions, ConsequenceOffset, Consistency, ErrorCode, Intention,
    Operation, ReadFrom, StoreError, TopicReader, Weir, WeirError,
};

use crate::ports::RESERVED;
use crate::ports::reserve_port::reserve_port;
use crate::{TIMEOUT, ask, ask_with, free_address, weir};

/// Writes before the leader is killed, and after it.
const WRITES: u64 = 40;

/// `weir cluster local` and its nodes.
pub(crate) struct Cluster {
    child: Child,
    notes: BufReader<ChildStderr>,
    /// Addresses of all nodes, for clients.
    pub(crate) at: String,
    pub(crate) nodes: BTreeMap<u64, Node>,
    /// Nodes that this test has restarted.
    restarted: Vec<Child>,
}

/// The output of the command about a node.
pub(crate) struct Node {
    pub(crate) pid: u32,
    pub(crate) http: String,
    pub(crate) native: String,
}

impl Drop for Cluster {
    /// A failed test leaves no process.
    fn drop(&mut self) {
        for child in &mut self.restarted {
            let _ = child.kill();
            let _ = child.wait();
        }
        // Ended in order, so that the command ends its nodes.
        let _ = signal(self.child.id(), "TERM");
        let _ = self.child.wait();
    }
}

pub(crate) fn signal(pid: u32, name: &str) -> bool {
    let status = Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .status();
    status.is_ok_and(|status| status.success())
}

impl Cluster {
    pub(crate) fn start(place: &Path, count: u64) -> Self {
        Self::start_by(weir(place), place, count)
    }

    fn start_by(mut command: Command, place: &Path, count: u64) -> Self {
        command.args(["cluster", "local", "--data", "nodes", "--nodes"]);
        command.arg(count.to_string());
        // An existing cluster keeps its ports.
        if !place.join("nodes").exists() {
            command.args(["--port", &free_ports().to_string()]);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let notes = BufReader::new(child.stderr.take().unwrap());
        let mut started = Self {
            notes,
            at: String::new(),
            nodes: BTreeMap::new(),
            restarted: Vec::new(),
            child,
        };
        let mut lines = BufReader::new(started.child.stdout.take().unwrap()).lines();
        while started.at.is_empty() {
            let line = lines.next().expect("the cluster did not start").unwrap();
            let words: Vec<_> = line.split_whitespace().collect();
            match words[..] {
                ["node", number, "pid", pid, http, native] => {
                    let node = Node {
                        pid: pid.parse().unwrap(),
                        http: http.strip_prefix("http://").unwrap().to_owned(),
                        native: native.to_owned(),
                    };
                    started.nodes.insert(number.parse().unwrap(), node);
                }
                ["--at", at] => at.clone_into(&mut started.at),
                _ => panic!("{line}"),
            }
        }
        started
    }

    /// The status that a node reports.
    pub(crate) fn status(&self, node: u64) -> Option<ClusterStatus> {
        let status = Weir::connect(&self.nodes[&node].native)
            .ok()?
            .status()
            .ok()?;
        status.server?.cluster
    }

    pub(crate) fn leader(&self) -> u64 {
        loop {
            let mut statuses = self.nodes.keys().filter_map(|node| self.status(*node));
            if let Some(leader) = statuses.find(|status| status.role == "leader") {
                return leader.node;
            }
        }
    }

    /// Kills a node. Returns the command that restarts it.
    pub(crate) fn kill(&mut self, node: u64) -> String {
        self.end_by(node, "KILL")
    }

    /// Like `kill`, but in order.
    pub(crate) fn end(&mut self, node: u64) -> String {
        self.end_by(node, "TERM")
    }

    /// The next line of the command on standard error.
    pub(crate) fn next_note(&mut self) -> String {
        let mut line = String::new();
        self.notes.read_line(&mut line).unwrap();
        line
    }

    fn end_by(&mut self, node: u64, name: &str) -> String {
        assert!(signal(self.nodes[&node].pid, name));
        let line = self.next_note();
        let text = format!("node {node} has ended");
        assert!(line.contains(&text), "{line}");
        let (_, command) = line.trim().split_once("start it again: weir ").unwrap();
        command.to_owned()
    }

    pub(crate) fn restart(&mut self, place: &Path, command: &str) {
        let mut node = weir(place);
        node.args(command.split(' ')).stderr(Stdio::null());
        self.restarted.push(node.spawn().unwrap());
    }

    /// Waits until all nodes have applied equal entries, and compares the nodes.
    pub(crate) fn wait_until_equal(&self) {
        let until = Instant::now() + TIMEOUT;
        loop {
            let statuses: Vec<_> = self.nodes.keys().map(|node| self.status(*node)).collect();
            let all: Option<Vec<_>> = statuses.iter().cloned().collect();
            if let Some(all) = &all
                && all
                    .iter()
                    .all(|one| (one.applied, one.last) == (all[0].applied, all[0].applied))
            {
                assert!(all.iter().all(|one| one.digest == all[0].digest), "{all:?}");
                return;
            }
            assert!(Instant::now() < until, "{statuses:?}");
        }
    }
}

/// The value of the test key at one node, with this consistency.
fn value(
    at: &str,
    consistency: Consistency,
    patience: Duration,
) -> Result<Option<String>, WeirError> {
    let mut options = ConnectOptions::default();
    options.consistency = Some(consistency);
    options.patience = patience;
    let weir = Weir::connect_with(at, &options)?;
    let found = weir.topic("orders")?.get("k")?;
    Ok(found.map(|value| String::from_utf8(value.value().to_vec()).unwrap()))
}

/// The error of a read that must fail. A node refuses a linear read after 2 s without a majority,
/// and the client then retries until its patience ends.
pub(crate) fn refusal<T: Debug>(read: impl Fn(Duration) -> Result<T, WeirError>) -> WeirError {
    let mut patience = Duration::from_secs(3);
    loop {
        let error = read(patience).unwrap_err();
        // On a busy machine, the answer can be later than the patience.
        if error.code() != ErrorCode::Deadline || patience > TIMEOUT {
            return error;
        }
        patience *= 2;
    }
}

/// All values of a topic at one node.
pub(crate) fn values(at: &str, topic: &str) -> Vec<String> {
    let weir = Weir::connect(at).unwrap();
    let topic = weir.topic(topic).unwrap();
    let mut reader = topic.reader(ReadFrom::Start).unwrap();
    let mut values = Vec::new();
    while let Some(page) = reader.next_page().unwrap() {
        for record in &page {
            let record = record.unwrap();
            if record.offset > ConsequenceOffset(1) {
                values.push(String::from_utf8(record.value.to_vec()).unwrap());
            }
        }
    }
    values
}

/// Reads records up to offset `to`. Asserts that each record occurs once and in order.
pub(crate) fn read_up_to(listener: &mut TopicReader, received: &mut Vec<String>, to: u64) {
    // The position is that of the next record.
    while listener.position().0 <= to {
        assert!(
            listener.wait(Some(Instant::now() + TIMEOUT)),
            "{received:?}"
        );
        let Some(page) = listener.next_page().unwrap() else {
            continue;
        };
        for record in &page {
            let record = record.unwrap();
            if record.offset > ConsequenceOffset(1) {
                received.push(String::from_utf8(record.value.to_vec()).unwrap());
            }
        }
    }
}

fn put(value: &str) -> Intention<'_> {
    let value = value.as_bytes();
    Intention::new("orders", Operation::Put { key: b"k", value })
}

/// The terms of the records of `orders`, in the order of the records, as `weir tail` prints them.
fn printed_terms(place: &Path, at: &str) -> Vec<u64> {
    let mut tail = weir(place);
    tail.args(["tail", "orders", "--columns", "term", "--no-headers"]);
    let output = tail.args(["-o", "csv", "--at", at]).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    printed.lines().map(|term| term.parse().unwrap()).collect()
}

/// A node that does not lead redirects a write over HTTP to the leader.
fn check_redirects(cluster: &Cluster) {
    let until = Instant::now() + TIMEOUT;
    let (other, answer) = loop {
        let leader = cluster.leader();
        let other = cluster.nodes.keys().find(|node| **node != leader).unwrap();
        let other = &cluster.nodes[other];
        let line = "POST /v1/topics/orders/events?key=k";
        let answer = ask(&other.http, line, "x");
        let http = &cluster.nodes[&leader].http;
        let location = format!("location: http://{http}/v1/topics/orders/events?key=k\r\n");
        if answer.to_lowercase().contains(&location) {
            break (other, answer);
        }
        // On a busy machine, the leader may just have changed.
        assert!(Instant::now() < until, "{answer}");
    };
    assert!(answer.starts_with("HTTP/1.1 307 "), "{answer}");
    assert!(answer.contains("/problems/redirect"), "{answer}");
    // The leader decides whether a stream can be changed. The state of another node may be old.
    for (line, body) in [("POST /ds/absent", "x"), ("DELETE /ds/absent", "")] {
        let answer = ask_with(&other.http, line, "Content-Type: text/plain\r\n", body);
        assert!(answer.starts_with("HTTP/1.1 307 "), "{answer}");
    }
}

#[test]
fn a_cluster_that_loses_its_leader_keeps_acknowledged_writes() {
    let place = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(place.path(), 3);
    let weir_client = Weir::connect(&cluster.at).unwrap();
    let topic = weir_client.topic("orders").unwrap();
    topic.ensure().unwrap();
    let mut session = weir_client.session(ClientId([7; 16]));
    let mut listener = topic.listener(ReadFrom::Start).unwrap();
    let mut received = Vec::new();
    let mut write = |n: u64| {
        let verdicts = session.execute(&[put(&n.to_string())]).unwrap();
        assert!(verdicts[0].is_valid(), "{verdicts:?}");
    };
    (0..WRITES).for_each(&mut write);
    // The listener is active before its node is killed. The record before the values creates the
    // topic.
    read_up_to(&mut listener, &mut received, WRITES + 1);

    let first = cluster.leader();
    let command = cluster.kill(first);
    // The session continues at the new leader automatically.
    (WRITES..2 * WRITES).for_each(&mut write);
    assert_ne!(cluster.leader(), first);
    cluster.restart(place.path(), &command);
    (2 * WRITES..3 * WRITES).for_each(&mut write);
    cluster.wait_until_equal();
    let expected: Vec<_> = (0..3 * WRITES).map(|n| n.to_string()).collect();
    read_up_to(&mut listener, &mut received, 3 * WRITES + 1);
    assert_eq!(received, expected, "the records of the listener");
    for node in cluster.nodes.values() {
        assert_eq!(values(&node.native, "orders"), expected);
    }
    let terms = printed_terms(place.path(), &cluster.at);
    assert_eq!(terms.len(), expected.len() + 1);
    assert!(
        terms.is_sorted() && terms.first() < terms.last(),
        "{terms:?}"
    );

    check_redirects(&cluster);
    // A command in the directory of a node that does not lead is redirected too.
    let leader = cluster.leader();
    let other = cluster.nodes.keys().find(|node| **node != leader).unwrap();
    let directory = format!("nodes/node-{other}");
    let mut put = weir(place.path());
    put.args(["put", "orders", "y", "--key", "k", "--at", &directory]);
    let put = put.output().unwrap();
    assert!(put.status.success(), "{put:?}");

    // All records exist after all nodes have ended in order.
    drop(cluster);
    for node in 1..=3 {
        let directory = place.path().join(format!("nodes/node-{node}"));
        let found = weir::verify(&directory).unwrap();
        assert!(found.is_clean(), "{:?}", found.findings);
    }
}

/// The new leader has not seen the stream before.
#[test]
fn a_new_leader_removes_the_idle_streams_of_the_earlier_one() {
    let place = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(place.path(), 3);
    let leader = cluster.leader();
    let fields = "Content-Type: text/plain\r\nStream-TTL: 3\r\n";
    let answer = ask_with(&cluster.nodes[&leader].http, "PUT /ds/idle", fields, "");
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    cluster.kill(leader);
    let mut options = ConnectOptions::default();
    options.consistency = Some(Consistency::Linear);
    let client = Weir::connect_with(&cluster.at, &options).unwrap();
    // A request for the stream would remove it.
    let exists = || {
        let topics = client.topics(false);
        topics.is_err() || topics.is_ok_and(|all| all.iter().any(|info| info.name == "idle"))
    };
    let until = Instant::now() + TIMEOUT;
    while exists() {
        assert!(Instant::now() < until, "the idle stream is not removed");
    }
}

/// A client with one address and a persistent connection uses the nodes that join later.
#[test]
fn an_open_connection_uses_nodes_that_join_later() {
    let place = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(place.path(), 1);
    let client = Weir::connect(&cluster.nodes[&1].native).unwrap();
    let topic = client.topic("orders").unwrap();
    topic.ensure().unwrap();
    let mut session = client.session(ClientId([9; 16]));
    session.execute(&[put("1")]).unwrap();
    let native = cluster.nodes[&1].native.trim_start_matches("weir://");
    let mut connection = TcpStream::connect(native).unwrap();
    connection.set_read_timeout(Some(TIMEOUT)).unwrap();
    connection.write_all(b"|\n\n_request_hello\n|\n").unwrap();
    let first = cluster.status(1).unwrap().members[0].peer.clone();
    for directory in ["second", "third"] {
        let peer = free_address();
        let serve = format!(
            "serve --at {directory} --http off --native 127.0.0.1:0 --peer {peer} --join {first}"
        );
        cluster.restart(place.path(), &serve);
    }
    let until = Instant::now() + TIMEOUT;
    let votes = || {
        let members = cluster.status(1).unwrap().members;
        members.iter().filter(|one| one.votes).count()
    };
    while votes() < 3 {
        assert!(Instant::now() < until, "the nodes do not vote");
    }
    // The server notifies all connections at once, and sends its members before the responses to
    // later requests.
    let members = cluster.status(1).unwrap().members;
    let addresses = members.iter().flat_map(|member| &member.client);
    let natives: Vec<_> = addresses
        .filter_map(|address| address.strip_prefix("weir://"))
        .collect();
    assert_eq!(natives.len(), 3, "{members:?}");
    let mut sent = String::new();
    while !natives.iter().all(|native| sent.contains(*native)) {
        let mut part = [0; 4096];
        let size = connection.read(&mut part).unwrap();
        assert!(size > 0, "{sent}");
        sent.push_str(&String::from_utf8_lossy(&part[..size]));
    }
    session.execute(&[put("1")]).unwrap();
    topic.get("k").unwrap();
    cluster.kill(1);
    // Both the connection with a session and the connection without one.
    let verdicts = session.execute(&[put("2")]).unwrap();
    assert!(verdicts[0].is_valid(), "{verdicts:?}");
    assert!(topic.get("k").unwrap().is_some());
}

#[test]
fn leadership_is_transferred_and_a_removed_node_is_replaced() {
    let place = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(place.path(), 3);
    let client = Weir::connect(&cluster.at).unwrap();
    let topic = client.topic("orders").unwrap();
    topic.ensure().unwrap();
    let first = cluster.leader();
    let next = first % 3 + 1;
    let run = |words: &[&str], at: &str| {
        let output = weir(place.path()).args(words).args(["--at", at]).output();
        let output = output.unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    // Sent to a node that does not lead, which redirects the command.
    let at = cluster.nodes[&next].native.clone();
    let (done, printed) = run(&["cluster", "transfer", &next.to_string()], &at);
    assert!(done, "{printed}");
    assert_eq!(cluster.leader(), next);
    topic.put("k", "1").unwrap().ensure_valid().unwrap();

    let gone = next % 3 + 1;
    cluster.kill(gone);
    let (done, printed) = run(&["cluster", "rm", &gone.to_string(), "--yes"], &at);
    assert!(done, "{printed}");
    let members = cluster.status(next).unwrap().members;
    assert_eq!(members.len(), 2, "{members:?}");
    let (done, printed) = run(&["cluster", "rm", &gone.to_string(), "--yes"], &at);
    assert!(!done && printed.contains("is not a member"), "{printed}");

    // An empty directory replaces the old node, with its ports.
    std::fs::remove_dir_all(place.path().join(format!("nodes/node-{gone}"))).unwrap();
    let file = format!("nodes/node-{gone}.toml");
    let peers: Vec<_> = members.iter().map(|member| member.peer.as_str()).collect();
    let new = format!(
        "serve --at new --config {file} --node 9 --join {}",
        peers.join(",")
    );
    cluster.restart(place.path(), &new);
    topic.put("k", "2").unwrap().ensure_valid().unwrap();
    cluster.wait_until_equal();
    let until = Instant::now() + TIMEOUT;
    loop {
        let members = cluster.status(next).unwrap().members;
        if members.iter().any(|one| one.node == 9 && one.votes) {
            break;
        }
        assert!(Instant::now() < until, "{members:?}");
    }
}

/// The standard output of a command, which must succeed.
fn done(place: &Path, words: &[&str]) -> String {
    let output = weir(place).args(words).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {printed}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_number_is_reserved_for_a_node_that_joins_later_with_a_snapshot() {
    let place = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(place.path(), 1);
    let client = Weir::connect(&cluster.at).unwrap();
    let topic = client.topic("orders").unwrap();
    topic.ensure().unwrap();
    topic.put("k", "1").unwrap().ensure_valid().unwrap();
    let at = cluster.at.clone();
    let first = cluster.status(1).unwrap().members[0].peer.clone();
    let [own, other] = [(); 2].map(|()| free_address());
    for (peer, expected) in [
        ("nowhere", "is not a peer address"),
        (&*first, "node 1 has the peer address"),
    ] {
        let printed = refused(place.path(), &["cluster", "add", peer, "--at", &at]);
        assert!(printed.contains(expected), "{printed}");
    }
    let number = done(place.path(), &["cluster", "add", &own, "--at", &at]);
    let number = number.trim();
    let reserved: u64 = number.parse().unwrap();
    let members = cluster.status(1).unwrap().members;
    assert!(members.iter().any(|one| one.node == reserved && !one.votes));
    // No write waits for a node that has not joined.
    topic.put("k", "2").unwrap().ensure_valid().unwrap();
    // The number is reserved for that address, and for an empty directory.
    let join = |at: &'static str, peer: &str| {
        let words = [
            "cluster", "join", &first, "--at", at, "--peer", peer, "--node",
        ];
        let mut words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        words.push(number.to_owned());
        words
    };
    let words = join("new", &other);
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let printed = refused(place.path(), &words);
    assert!(
        printed.contains(&format!(
            "is reserved for a node with the peer address {own}"
        )),
        "{printed}"
    );
    done(place.path(), &["put", "t", "x", "--at", "own"]);
    let words = join("own", &own);
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let printed = refused(place.path(), &words);
    assert!(printed.contains("contains a store"), "{printed}");

    let words = ["cluster", "snapshot", "--at", &at, "-o", "json"];
    let made = weir(place.path()).args(words).output().unwrap();
    // The number that is only reserved is left out.
    assert_eq!(made.status.code(), Some(0));
    let made = String::from_utf8(made.stdout).unwrap();
    assert!(
        made.contains("\"node\":1") && made.contains("\"index\":"),
        "{made}"
    );
    let words = join("new", &own);
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    done(place.path(), &words);
    let printed = refused(place.path(), &words);
    assert!(printed.contains("already a node of a cluster"), "{printed}");
    // The directory contains the addresses of its cluster.
    let serve = format!("serve --at new --http :0 --native :0 --peer {own}");
    cluster.restart(place.path(), &serve);
    let until = std::time::Instant::now() + TIMEOUT;
    loop {
        let members = cluster.status(1).unwrap().members;
        if members.iter().any(|one| one.node == reserved && one.votes) {
            break;
        }
        assert!(std::time::Instant::now() < until, "{members:?}");
    }
    topic.put("k", "3").unwrap().ensure_valid().unwrap();
}

#[test]
fn a_read_of_a_key_returns_the_acknowledged_value_or_fails() {
    let place = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(place.path(), 3);
    let client = Weir::connect(&cluster.at).unwrap();
    let topic = client.topic("orders").unwrap();
    topic.ensure().unwrap();
    let leader = cluster.leader();
    let others: Vec<u64> = cluster.nodes.keys().copied().collect();
    let others: Vec<u64> = others.into_iter().filter(|node| *node != leader).collect();
    let (native, http) = {
        let follower = &cluster.nodes[&others[0]];
        (follower.native.clone(), follower.http.clone())
    };
    let pid = cluster.nodes[&others[0]].pid;
    for n in 0..20 {
        // The node misses the write, and must not respond before it has applied it.
        assert!(signal(pid, "STOP"));
        topic
            .put("k", n.to_string())
            .unwrap()
            .ensure_valid()
            .unwrap();
        assert!(signal(pid, "CONT"));
        let found = value(&native, Consistency::Linear, TIMEOUT).unwrap();
        assert_eq!(found, Some(n.to_string()));
    }
    assert!(signal(pid, "STOP"));
    topic.put("k", "last").unwrap().ensure_valid().unwrap();
    assert!(signal(pid, "CONT"));
    let answer = ask(&http, "GET /v1/topics/orders/keys/k", "");
    assert!(answer.ends_with("\r\nlast"), "{answer}");
    // Only the leader responds under its lease, so the client is redirected to it.
    let found = value(&native, Consistency::Leader, TIMEOUT).unwrap();
    assert_eq!(found.as_deref(), Some("last"));

    cluster.kill(leader);
    cluster.kill(others[1]);
    // Without a majority, no node can confirm what was acknowledged. The applied state can still be
    // read.
    let code = |error| match error {
        WeirError::Store(StoreError::Remote { code, .. }) => code,
        other => panic!("{other:?}"),
    };
    let refused = refusal(|patience| value(&native, Consistency::Linear, patience));
    assert_eq!(code(refused), ErrorCode::NoLeader);
    let answer = ask(&http, "GET /v1/topics/orders/keys/k", "");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    let found = value(&native, Consistency::Local, TIMEOUT).unwrap();
    assert_eq!(found.as_deref(), Some("last"));
    let line = "GET /v1/topics/orders/keys/k?consistency=local";
    let answer = ask(&http, line, "");
    assert!(answer.ends_with("\r\nlast"), "{answer}");
    // The node names the killed leader only until an election could have ended.
    let until = Instant::now() + TIMEOUT;
    loop {
        let answer = ask(&http, "POST /v1/topics/orders/events?key=k", "lost");
        if answer.starts_with("HTTP/1.1 503 ") {
            break;
        }
        assert!(answer.starts_with("HTTP/1.1 307 "), "{answer}");
        assert!(Instant::now() < until, "{answer}");
    }
    assert_eq!(cluster.status(others[0]).unwrap().leader, None);
}

#[test]
fn a_write_is_reported_as_received_before_a_majority_has_it() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(place.path(), 3);
    let mut options = ConnectOptions::default();
    options.received = true;
    let client = Weir::connect_with(&cluster.at, &options).unwrap();
    client.topic("orders").unwrap().ensure().unwrap();
    let mut session = client.session(ClientId([9; 16]));
    let mut plain = Weir::connect(&cluster.at)
        .unwrap()
        .session(ClientId([10; 16]));
    for session in [&mut session, &mut plain] {
        session.execute(&[put("first")]).unwrap();
    }
    let leader = cluster.leader();
    let others: Vec<_> = cluster
        .nodes
        .iter()
        .filter(|(node, _)| **node != leader)
        .collect();
    for (_, node) in &others {
        assert!(signal(node.pid, "STOP"));
    }
    // Queued at the leader; the outcome is not known yet.
    let pending = session.send(&[put("a"), put("b")]).unwrap();
    assert!(pending.wait_received(TIMEOUT));
    let outcomes = client.propose(&[put("c")]).unwrap();
    assert!(outcomes.wait_received(TIMEOUT));
    assert!(!pending.is_done() && !outcomes.is_done());
    // A client without that option is informed with the verdict.
    let plain_pending = plain.send(&[put("d")]).unwrap();
    assert!(!plain_pending.wait_received(Duration::from_millis(100)));
    for (_, node) in &others {
        assert!(signal(node.pid, "CONT"));
    }
    assert!(plain_pending.wait_received(TIMEOUT));
    for pending in [pending, plain_pending] {
        let verdicts = pending.wait().unwrap();
        assert!(verdicts.iter().all(weir::Verdict::is_valid), "{verdicts:?}");
    }
    // A leader without a majority may have stepped down meanwhile.
    drop(outcomes.wait());
}

/// The standard error of a command, which must fail.
fn refused(place: &Path, words: &[&str]) -> String {
    let mut command = weir(place);
    let output = command.args(words).stdout(Stdio::null()).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{words:?}: {text}");
    text
}

/// A node that has lost its votes is replaced. No advice makes a second cluster of its directory,
/// and a second cluster is reported.
#[test]
fn a_node_that_lost_its_vote_does_not_start_as_a_store_or_a_second_cluster() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let mut cluster = Cluster::start(place, 3);
    let client = Weir::connect(&cluster.at).unwrap();
    client.topic("orders").unwrap().ensure().unwrap();
    cluster.wait_until_equal();
    let lost = cluster.leader() % 3 + 1;
    let serve = cluster.kill(lost);
    let serve: Vec<_> = serve.split(' ').collect();
    let directory = format!("nodes/node-{lost}");
    let config = format!("{directory}.toml");
    let init = [
        "cluster", "init", "--at", &directory, "--config", &config, "--node",
    ];
    let init = |more: &[&str]| {
        let number = lost.to_string();
        let words = [&init[..], &[&number], more].concat();
        weir(place).args(words).output().unwrap()
    };
    let vote = place.join(&directory).join("cluster/vote");
    let remedy = "`weir cluster rm N --yes`";
    std::fs::write(&vote, []).unwrap();
    let printed = refused(place, &serve);
    assert!(printed.contains(remedy), "{printed}");
    std::fs::remove_file(&vote).unwrap();
    let put = ["put", "orders", "x", "--at", &directory];
    for words in [&serve[..], &put, &["status", "--at", &directory]] {
        let printed = refused(place, words);
        assert!(
            printed.contains("has lost its vote") && printed.contains(remedy),
            "{printed}"
        );
    }
    let made = init(&[]);
    let printed = String::from_utf8(made.stderr).unwrap();
    assert_eq!(made.status.code(), Some(65), "{printed}");
    assert!(printed.contains(remedy), "{printed}");

    // Without the files of the node, the state of the store still contains the members.
    std::fs::remove_dir_all(vote.parent().unwrap()).unwrap();
    let made = init(&[]);
    let printed = String::from_utf8(made.stderr).unwrap();
    assert!(!made.status.success(), "{printed}");
    assert!(printed.contains("with the voters 1, 2, 3"), "{printed}");
    assert!(printed.contains("cannot make nodes/node-"), "{printed}");
    let status = |at: &str| {
        let asked = weir(place).args(["cluster", "status", "--at", at]).output();
        let asked = asked.unwrap();
        (
            asked.status.code(),
            String::from_utf8(asked.stderr).unwrap(),
        )
    };
    let leader = cluster.nodes[&cluster.leader()].native.clone();
    let (code, printed) = status(&leader);
    assert_eq!(code, Some(1), "{printed}");
    assert!(init(&["--force"]).status.success());
    cluster.restart(place, &serve.join(" "));
    let until = Instant::now() + TIMEOUT;
    while cluster
        .status(lost)
        .is_none_or(|status| status.role != "leader")
    {
        assert!(Instant::now() < until, "the second cluster does not start");
    }
    let (code, printed) = status(&leader);
    assert_eq!(code, Some(1), "{printed}");
    let why = format!("node {lost} answers with other members");
    assert!(
        printed.contains(&why) && printed.contains(" lead: "),
        "{printed}"
    );
}

#[test]
fn a_directory_that_is_not_of_the_cluster_is_rejected_with_the_reason() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(place.path(), 1);
    let before = cluster.status(1).unwrap();
    let peer = before.members[0].peer.clone();
    let free = free_address();
    let check = |words: &[&str], expected: &str| {
        let printed = refused(place.path(), words);
        assert!(printed.contains(expected), "{words:?}: {printed}");
    };
    let serve = |at, more: &[&'static str]| {
        let mut words = vec!["serve", "--at", at, "--http", ":0", "--native", "off"];
        words.extend(more);
        words
    };
    let joining = |at, more: &[&'static str]| {
        let mut words = serve(at, more);
        words.extend(["--peer", &free, "--join", &peer]);
        words.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let joins = |at, more: &[&'static str], expected: &str| {
        let words = joining(at, more);
        check(
            &words.iter().map(String::as_str).collect::<Vec<_>>(),
            expected,
        );
    };
    let put = weir(place.path())
        .args(["put", "t", "x", "--at", "own", "-q"])
        .output();
    assert!(put.unwrap().status.success());
    joins("own", &[], "contains a store");
    joins(
        "empty",
        &["--node", "1"],
        "an empty directory cannot be that node",
    );
    check(
        &["cluster", "init", "--at", "nodes/node-1", "--peer", "7072"],
        "already a node of a cluster",
    );
    check(&serve("nodes/node-1", &[]), "no peer address is set");
    check(
        &serve("own", &["--peer", "7072"]),
        "is not a node of a cluster",
    );
    check(
        &serve("empty", &["--peer", ":0", "--join", "127.0.0.1:1"]),
        "port 0",
    );
    check(
        &serve(
            "empty",
            &["--peer", "0.0.0.0:7072", "--join", "127.0.0.1:1"],
        ),
        "has no TLS",
    );
    // None of these commands has changed the cluster.
    assert_eq!(cluster.status(1).unwrap().members.len(), 1);
    drop(cluster);
    check(
        &["put", "t", "x", "--at", "nodes/node-1"],
        "is node 1 of a cluster",
    );
}

/// Limits the size of each file that a process writes. The store treats a file that cannot grow as
/// a full disk. The first segments of the log have 4 MiB.
fn limit_files(pid: u32, limit: &str) {
    let status = Command::new("prlimit")
        .args(["--pid", &pid.to_string(), &format!("--fsize={limit}:")])
        .status();
    assert!(status.unwrap().success());
}

/// Fills the disk of a node while a session writes, and then frees space.
fn fills_and_recovers(of_the_leader: bool) {
    let place = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(place.path(), 3);
    let client = Weir::connect(&cluster.at).unwrap();
    client.topic("orders").unwrap().ensure().unwrap();
    let mut session = client.session(ClientId([8; 16]));
    let leader = cluster.leader();
    let full = if of_the_leader {
        leader
    } else {
        leader % 3 + 1
    };
    let node = &cluster.nodes[&full];
    limit_files(node.pid, "4194304");
    let large = "x".repeat(64 << 10);
    let mut write = || {
        let verdicts = session.execute(&[put(&large)]).unwrap();
        assert!(verdicts[0].is_valid(), "{verdicts:?}");
    };
    let role = || cluster.status(full).unwrap().role;
    let until = Instant::now() + TIMEOUT;
    // Every write is acknowledged, because the node with the full disk is a minority.
    while role() != "full" {
        write();
        assert!(Instant::now() < until, "the disk is not full");
    }
    (0..10).for_each(|_| write());
    assert_ne!(cluster.leader(), full);
    let found = value(&node.native, Consistency::Local, TIMEOUT).unwrap();
    assert_eq!(found.as_deref(), Some(&*large), "reads continue");
    let metrics = ask(&node.http, "GET /metrics", "");
    assert!(
        metrics.contains("\nweir_cluster_role{role=\"full\"} 1\n"),
        "{metrics}"
    );
    // A client that knows only this node is redirected to the leader, which this node must learn
    // first if it has led.
    let until = Instant::now() + TIMEOUT;
    loop {
        let answer = ask(&node.http, "POST /v1/topics/orders/events?key=k", "x");
        if answer.starts_with("HTTP/1.1 307 ") {
            break;
        }
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(Instant::now() < until, "{answer}");
    }

    limit_files(node.pid, "unlimited");
    cluster.wait_until_equal();
    assert_ne!(role(), "full");
    write();
    cluster.wait_until_equal();
}

#[test]
fn a_leader_with_a_full_disk_transfers_leadership_and_catches_up_when_space_is_free() {
    fills_and_recovers(true);
}

#[test]
fn a_follower_with_a_full_disk_serves_reads_and_catches_up_when_space_is_free() {
    fills_and_recovers(false);
}

#[test]
fn a_cluster_in_memory_reports_what_a_power_cut_loses() {
    for (level, synced) in [("memory", false), ("group", true)] {
        let place = tempfile::tempdir().unwrap();
        let mut command = weir(place.path());
        command.args(["--durability", level]);
        let cluster = Cluster::start_by(command, place.path(), 1);
        assert_eq!(cluster.status(1).unwrap().synced, synced);
        let metrics = ask(&cluster.nodes[&1].http, "GET /metrics", "");
        let line = format!("\nweir_cluster_synced {}\n", u8::from(synced));
        assert!(metrics.contains(&line), "{metrics}");
        assert!(metrics.contains("\nweir_cluster_diverged 0\n"), "{metrics}");
        let ahead = "\nweir_cluster_clock_ahead_seconds 0";
        assert!(metrics.contains(ahead), "{metrics}");
        let mut status = weir(place.path());
        let output = status
            .args(["cluster", "status", "--at", &cluster.at])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let printed = String::from_utf8(output.stderr).unwrap();
        let warns = printed.contains("a power cut of all nodes loses acknowledged writes");
        assert_eq!(warns, !synced, "{printed}");
    }
}

/// Reserves the ports that `weir cluster local` uses for three nodes. Returns the first port.
fn free_ports() -> u16 {
    let reserve = |port: u16| reserve_port(([127, 0, 0, 1], port).into()).ok();
    loop {
        let (socket, first) = reserve(0).unwrap();
        let offsets = [0, 10, 20].into_iter().flat_map(|node| node..node + 3);
        let others = offsets.skip(1).map(|offset| {
            let (socket, _) = reserve(first.port().checked_add(offset)?)?;
            Some(socket)
        });
        // Another process may use one of the ports.
        if let Some(others) = others.collect::<Option<Vec<_>>>() {
            let mut reserved = RESERVED.lock().unwrap();
            reserved.push(socket);
            reserved.extend(others);
            return first.port();
        }
    }
}

#[test]
fn the_readme_forms_a_cluster_that_loses_its_leader() {
    const README: &str = include_str!("../../../../README.md");
    let place = tempfile::tempdir().unwrap();
    let (_, lines) = README.split_once("```sh\nweir cluster local").unwrap();
    let lines = lines.split("```").next().unwrap();
    let first = free_ports();
    let port = |offset: u16| (first + offset).to_string();
    let lines = lines
        .replacen("./trial", &format!("./trial --port {first}"), 1)
        .replace("7071", &port(1))
        .replace("7081", &port(11))
        .replace("7091", &port(21));
    // A shell without a terminal has processes, but no jobs. The script also ends the processes
    // after a failure.
    assert!(lines.ends_with("kill %1 %2\n"), "{lines}");
    let lines = lines.replace("kill %1 %2\n", "");
    let lines = lines.replacen("> nodes.txt &\n", "> nodes.txt &\nfirst=$!\n", 1);
    let script = format!("trap 'kill $first $!; wait' EXIT\nweir cluster local{lines}");
    let program = Path::new(env!("CARGO_BIN_EXE_weir"));
    let path = format!(
        "{}:{}",
        program.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let mut shell = Command::new("sh");
    shell.args(["-ec", &script]).current_dir(place.path());
    shell
        .env_clear()
        .env("PATH", path)
        .env("HOME", place.path());
    let output = shell.stdin(Stdio::null()).output().unwrap();
    let (out, err) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert!(out.contains("{\"id\":1}"), "{out}{err}");
    // The records of both writers are on every disk, each complete.
    for node in 1..=3 {
        let directory = place.path().join(format!("trial/node-{node}"));
        let found = weir::verify(&directory).unwrap();
        assert!(found.is_clean(), "{:?}", found.findings);
    }
}
