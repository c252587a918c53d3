//! Tests what the commands for clusters print and refuse, and how commands use a cluster with a node
//! that does not respond.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;

use crate::cluster::{Cluster, signal};
use crate::weir;

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

fn free() -> String {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    port.local_addr().unwrap().to_string()
}

#[test]
fn a_stopped_node_delays_commands_and_is_unreachable_and_a_reserved_number_is_harmless() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let cluster = Cluster::start(place, 3);
    let status = format!("cluster status -o json --at {}", cluster.at);
    let (code, added, printed) = run(
        place,
        &format!("cluster add {} --at {}", free(), cluster.at),
    );
    assert_eq!(code, 0, "{printed}");
    let number = added.trim();
    assert!(
        printed.contains(&format!("--node {number} --join")),
        "{printed}"
    );
    let (code, out, printed) = run(place, &status);
    assert_eq!(code, 0, "{out}{printed}");
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
    let peer = free();
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
    // A cluster on one machine needs no other address.
    let line = format!("cluster init --at local --peer {peer}");
    let (code, _, printed) = run(place.path(), &line);
    assert_eq!((code, printed.contains("warning")), (0, false), "{printed}");
}

#[test]
fn a_node_that_joins_prints_why_it_waits() {
    let place = tempfile::tempdir().unwrap();
    let nobody = free();
    let line = format!("cluster join {nobody} --at new --peer {}", free());
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
    let line = format!("cluster join nowhere --at new --peer {}", free());
    fails(place.path(), &line, &["nowhere"]);
}
