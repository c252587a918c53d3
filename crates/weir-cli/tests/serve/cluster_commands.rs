//! Tests what the commands for clusters print and refuse, and how commands use a cluster with a node
//! that does not respond.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use weir::{ReadFrom, Weir};

use crate::cluster::{Cluster, read_up_to, signal};
use crate::{TIMEOUT, ask, free_address, weir};

/// Runs a command. Returns its exit code, its standard output and its standard error.
fn run(place: &Path, line: &str) -> (i32, String, String) {
    let output = weir(place).args(line.split_whitespace()).output().unwrap();
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

fn fails(place: &Path, line: &str, texts: &[&str]) {
    let (code, out, printed) = run(place, line);
    assert_ne!(code, 0, "{line}: {out}{printed}");
    for text in texts {
        assert!(printed.contains(text), "{line}: {printed}");
    }
}

#[test]
fn a_stopped_node_delays_commands_and_is_unreachable_and_a_reserved_number_is_harmless() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let cluster = Cluster::start(place, 3);
    let status = format!("cluster status -o json --at {}", cluster.at);
    let (code, added, printed) = run(
        place,
        &format!("cluster add {} --at {}", free_address(), cluster.at),
    );
    assert_eq!(code, 0, "{printed}");
    let number = added.trim();
    assert!(
        printed.contains(&format!("--node {number} --join")),
        "{printed}"
    );
    let (out, _) = healthy(place, &status);
    assert!(out.contains("\"role\":\"reserved\""), "{out}");

    let one = format!(
        "status -o json --columns node,role --at {}",
        cluster.nodes[&2].native
    );
    let (_, out, printed) = run(place, &one);
    assert!(out.starts_with("{\"node\":2,\"role\":\""), "{out}{printed}");

    // The system still accepts connections for the first of the addresses.
    let stopped = cluster.nodes[&1].pid;
    assert!(signal(stopped, "STOP"));
    let (code, _, printed) = run(place, &format!("put t one --key k --at {}", cluster.at));
    assert_eq!(code, 0, "{printed}");
    let (code, out, printed) = run(place, &format!("get t --key k --at {}", cluster.at));
    assert_eq!((code, out.contains("one")), (0, true), "{out}{printed}");
    let (code, out, printed) = run(place, &status);
    assert!(signal(stopped, "CONT"));
    assert_eq!(code, 1, "{out}{printed}");
    assert!(out.contains("\"role\":\"unreachable\""), "{out}");

    // Advice for a change that the cluster rejects.
    let line = format!("cluster transfer 77 --at {}", cluster.at);
    fails(place, &line, &["weir cluster status"]);
}

/// Runs a command, which must succeed. Returns its standard output and its standard error.
fn succeeds(place: &Path, line: &str) -> (String, String) {
    let (code, out, printed) = run(place, line);
    assert_eq!(code, 0, "{line}: {out}{printed}");
    (out, printed)
}

/// Runs `weir cluster status` until it succeeds: on a busy machine, a node may not respond within
/// the 2 s of that command. Returns its standard output and its standard error.
fn healthy(place: &Path, line: &str) -> (String, String) {
    let until = Instant::now() + TIMEOUT;
    loop {
        let (code, out, printed) = run(place, line);
        if code == 0 {
            return (out, printed);
        }
        assert!(Instant::now() < until, "{line}: {out}{printed}");
    }
}

/// The removed node is the first address of its clients, and its process still runs.
#[test]
fn clients_of_a_removed_node_use_another_node() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let cluster = Cluster::start(place, 3);
    succeeds(place, &format!("put orders one --at {}", cluster.at));
    cluster.wait_until_equal();
    let leader = cluster.leader();
    let removed = leader % 3 + 1;
    let other = removed % 3 + 1;
    let host = |node: u64| cluster.nodes[&node].native.strip_prefix("weir://").unwrap();
    let at = format!("weir://{}", [removed, other, leader].map(host).join(","));
    let client = Weir::connect(&at).unwrap();
    let topic = client.topic("orders").unwrap();
    let mut listener = topic.listener(ReadFrom::Start).unwrap();
    let mut received = Vec::new();
    // The listener is active at the node before the removal.
    read_up_to(&mut listener, &mut received, 2);

    let of_leader = &cluster.nodes[&leader].native;
    succeeds(
        place,
        &format!("cluster rm {removed} --yes --at {of_leader}"),
    );
    let until = Instant::now() + TIMEOUT;
    while cluster.status(removed).unwrap().role != "removed" {
        assert!(Instant::now() < until, "the node does not learn it");
    }
    succeeds(place, &format!("put orders two --at {of_leader}"));
    succeeds(place, &format!("put created x --at {of_leader}"));
    read_up_to(&mut listener, &mut received, 3);
    assert_eq!(received, ["one", "two"]);
    // The state of the removed node has no such topic.
    let (out, _) = succeeds(place, &format!("topic ls --at {at}"));
    assert!(out.contains("created"), "{out}");
    let (out, _) = succeeds(place, &format!("tail orders --at {at}"));
    assert!(out.contains("two"), "{out}");
    succeeds(place, &format!("cluster transfer {other} --at {at}"));
    fails(
        place,
        &format!("cluster rm 999 --yes --at {at}"),
        &["is not a member"],
    );

    let (out, printed) = healthy(place, &format!("cluster status -o json --at {at}"));
    assert!(!out.contains(&format!("\"node\":{removed},")), "{out}");
    let note = format!("node {removed} was removed from the cluster");
    assert!(printed.contains(&note), "{printed}");

    let http = &cluster.nodes[&removed].http;
    for line in ["GET /v1/topics/orders/events", "GET /readyz"] {
        let answer = ask(http, line, "");
        assert!(answer.starts_with("HTTP/1.1 503 "), "{line}: {answer}");
        assert!(answer.contains("/problems/no-leader"), "{line}: {answer}");
    }
    for line in ["GET /healthz", "GET /metrics", "GET /v1/status"] {
        let answer = ask(http, line, "");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{line}: {answer}");
    }
    check_described_status(http);
}

/// Checks that the description lists the members of a status that are texts. All others are numbers.
fn check_described_status(http: &str) {
    let body = |line: &str| {
        let answer = ask(http, line, "");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str::<serde_json::Value>(body).unwrap()
    };
    let description = body("GET /openapi.json");
    let listed = &description["components"]["schemas"]["Status"]["properties"];
    for (name, value) in body("GET /v1/status").as_object().unwrap() {
        assert_eq!(value.is_string(), listed[name].is_object(), "{name}");
        assert!(value.is_string() || value.is_u64(), "{name}: {value}");
    }
}

#[test]
fn a_node_without_a_majority_is_not_reported_as_leader() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let mut cluster = Cluster::start(place, 3);
    let leader = cluster.leader();
    let at = cluster.nodes[&leader].native.clone();
    for node in (1..=3).filter(|node| *node != leader) {
        cluster.kill(node);
    }
    let until = Instant::now() + TIMEOUT;
    let alone = loop {
        let status = cluster.status(leader).unwrap();
        if status.role != "leader" && status.leader.is_none() {
            break status;
        }
        assert!(Instant::now() < until, "{status:?}");
    };
    // The term of the newest entry, by which the logs of the remaining nodes are compared.
    let last_term = alone.last_term.unwrap();
    assert!((1..=alone.term).contains(&last_term), "{alone:?}");
    let status = format!("cluster status -o json --at {at}");
    let (code, out, printed) = run(place, &status);
    assert_eq!(code, 5, "{out}{printed}");
    assert!(!out.contains("\"role\":\"leader\""), "{out}");
    let shown = format!("\"last_term\":{last_term},");
    assert!(out.contains(&shown), "{out}");
    let line = format!("status -o json --columns writable --at {at}");
    let (out, _) = succeeds(place, &line);
    assert!(out.contains("\"writable\":false"), "{out}");
    // The node still answers local reads.
    let answer = ask(&cluster.nodes[&leader].http, "GET /readyz", "");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");

    cluster.kill(leader);
    let (code, out, printed) = run(place, &status);
    assert_eq!(code, 5, "{out}{printed}");
    assert!(printed.contains("E503"), "{printed}");
}

#[test]
fn cluster_local_rejects_a_configuration_that_it_cannot_run() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let cluster = Cluster::start(place, 1);
    let local = |more: &str, texts: &[&str]| fails(place, &format!("cluster local {more}"), texts);
    let pid = format!("process {} has", cluster.nodes[&1].pid);
    local("--data nodes", &[&pid, "the cluster runs already"]);
    local("--data nodes --nodes 3", &["a cluster of 1 nodes"]);
    local("--data nodes --port 1", &["node-1.toml"]);
    local("--data other --port 65530", &["above 65535"]);
    let taken = cluster.nodes[&1].http.rsplit_once(':').unwrap().1;
    local(
        &format!("--data other --port {taken}"),
        &["cannot listen at"],
    );
    assert!(!place.join("other").exists());
    // A directory in place of a file makes its write fail. The cluster must not start with one node.
    std::fs::create_dir_all(place.join("part/node-2.toml")).unwrap();
    local("--data part --port 0", &["cannot create a cluster in part"]);
    assert!(!place.join("part/node-1.toml").exists());
    let (code, _, printed) = run(place, "put t one --at own");
    assert_eq!(code, 0, "{printed}");
    local("--data own", &["contains a store"]);
    drop(cluster);
    fails(
        place,
        "put t one --at nodes/node-1",
        &["weir serve --at nodes/node-1"],
    );
}

/// The command waits for node 1 when the process of node 2 ends.
#[test]
fn cluster_local_fails_at_once_if_a_node_ends_during_the_start_of_another() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    drop(Cluster::start(place, 3));
    // `weir serve` refuses an unknown key.
    let break_node = |number: u64| {
        let file = place.join(format!("nodes/node-{number}.toml"));
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text + "colour = 1\n").unwrap();
    };
    break_node(2);
    let expected = ["node 2 is not a part", "its process has ended"];
    fails(place, "cluster local --data nodes", &expected);
    // Node 1 alone has no majority, so the wait for it would not end.
    break_node(3);
    let expected = ["is not a part of the cluster", "its process has ended"];
    fails(place, "cluster local --data nodes", &expected);
}

#[test]
fn cluster_local_names_a_removed_node_and_does_not_start_it_again() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let mut cluster = Cluster::start(place, 3);
    let pids: Vec<_> = cluster.nodes.values().map(|node| node.pid).collect();
    let pids: Vec<_> = pids
        .iter()
        .map(|pid| format!("process {pid} has"))
        .collect();
    let expected: Vec<_> = pids.iter().map(String::as_str).collect();
    fails(place, "cluster local --data nodes", &expected);

    let remove = |cluster: &Cluster| {
        let leader = cluster.leader();
        let mut others = cluster.nodes.keys().filter(|node| **node != leader);
        let gone = *others.next().unwrap();
        let line = format!("cluster rm {gone} --yes --at {}", cluster.at);
        let (code, _, printed) = run(place, &line);
        assert_eq!(code, 0, "{printed}");
        gone
    };
    let gone = remove(&cluster);
    assert!(signal(cluster.nodes[&gone].pid, "TERM"));
    let line = cluster.next_note();
    let expected = format!("node {gone} was removed from the cluster");
    assert!(line.contains(&expected), "{line}");
    assert!(!line.contains("weir serve"), "{line}");
    drop(cluster);
    let cluster = Cluster::start(place, 3);
    assert_eq!(cluster.nodes.len(), 2);
    assert!(!cluster.nodes.contains_key(&gone));

    // All processes end together, so the command does not see that this node was removed.
    let gone = remove(&cluster);
    drop(cluster);
    let mut cluster = Cluster::start(place, 3);
    assert_eq!(cluster.nodes.len(), 1);
    let line = cluster.next_note();
    let expected = format!("node {gone} was removed from the cluster, so it is not started");
    assert!(line.contains(&expected), "{line}");
    assert!(!cluster.at.contains(','), "{}", cluster.at);
}

#[test]
fn cluster_init_prints_the_command_that_serves_and_warns_of_ports_that_clients_cannot_reach() {
    let place = tempfile::tempdir().unwrap();
    let peer = free_address();
    let line = format!("cluster init --at new --peer {peer} --advertise node.example");
    let (code, _, printed) = run(place.path(), &line);
    assert_eq!(code, 0, "{printed}");
    for text in [
        "created a new store in new",
        &format!("weir serve --at new --peer {peer} --advertise node.example"),
        "warning: --native listens at 127.0.0.1:7071",
        "`--http node.example:7070`",
    ] {
        assert!(printed.contains(text), "{text}: {printed}");
    }
    // Settings that are not set are not printed.
    assert!(!printed.contains("--peer-c"), "{printed}");
    let native = free_address();
    let line = format!("cluster init --at flags --peer {peer} --native {native} --http off");
    let (code, _, printed) = run(place.path(), &line);
    assert_eq!(code, 0, "{printed}");
    let serve = format!("weir serve --at flags --peer {peer} --native {native} --http off`");
    assert!(printed.contains(&serve), "{printed}");
    // A cluster on one machine needs no other address.
    let line = format!("cluster init --at local --peer {peer}");
    let (code, _, printed) = run(place.path(), &line);
    assert_eq!((code, printed.contains("warning")), (0, false), "{printed}");
    // Number 0 means any number when a node joins, and after the highest number no node could join.
    for number in ["0", "9223372036854775809"] {
        let line = format!("cluster init --at number --peer {peer} --node {number}");
        fails(place.path(), &line, &["--node"]);
        assert!(!place.path().join("number").exists());
    }
}

#[test]
fn a_join_with_the_client_address_of_another_member_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let cluster = Cluster::start(place, 1);
    let first = cluster.status(1).unwrap().members[0].peer.clone();
    let (native, http) = (&cluster.nodes[&1].native, &cluster.nodes[&1].http);
    let join = format!("cluster join {first} --at new --peer {}", free_address());
    let address = native.strip_prefix("weir://").unwrap();
    let line = format!("{join} --native {address} --http off");
    let expected = format!("node 1 has the client address {native}");
    fails(place, &line, &[&expected, "`--native HOST:PORT`"]);
    let line = format!("{join} --native off --http {http}");
    let expected = format!("node 1 has the client address http://{http}");
    fails(place, &line, &[&expected, "`--http HOST:PORT`"]);
    // The directory of a node joins no other cluster: after two inits there are two clusters.
    let ports = format!(
        "--http off --native {} --peer {}",
        free_address(),
        free_address()
    );
    succeeds(place, &format!("cluster init --at second {ports}"));
    let line = format!("cluster join {first} --at second {ports}");
    fails(place, &line, &["is already a node of a cluster"]);
    assert_eq!(cluster.status(1).unwrap().members.len(), 1);
}

#[test]
fn a_node_that_joins_prints_why_it_waits() {
    let place = tempfile::tempdir().unwrap();
    let nobody = free_address();
    let line = format!("cluster join {nobody} --at new --peer {}", free_address());
    let mut command = weir(place.path());
    command.args(line.split_whitespace()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut first = String::new();
    let mut printed = BufReader::new(child.stderr.take().unwrap());
    printed.read_line(&mut first).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let expected = format!("waiting for the cluster: {nobody}: Connection refused");
    assert!(first.contains(&expected), "{first}");
    // A name without an address is an error at once.
    let line = format!("cluster join nowhere --at new --peer {}", free_address());
    fails(place.path(), &line, &["nowhere"]);
}
