//! Runs each command of the chapters on forming a cluster, upgrade, backup and a lost majority in
//! docs/operating/cluster.md, with the addresses and directories of the test.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use weir::{ClientId, ClusterStatus, Intention, Operation, Weir};

use crate::cluster::{Cluster, values};
use crate::{TIMEOUT, free_address, weir};

const PAGE: &str = include_str!("../../../../docs/operating/cluster.md");

/// The commands of a chapter.
fn commands(chapter: &str) -> Vec<&'static str> {
    let (_, text) = PAGE.split_once(&format!("\n## {chapter}\n")).unwrap();
    let text = text.split("\n## ").next().unwrap();
    let blocks = text.split("```").skip(1).step_by(2);
    // A block of TOML is a file.
    let lines = blocks
        .filter(|block| !block.starts_with("toml"))
        .flat_map(str::lines);
    lines
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect()
}

/// A server in the background.
struct Server {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Runs `weir serve ...`, and waits until it serves.
    fn start(place: &Path, line: &str) -> Self {
        let started = Self::spawn(place, line);
        started.wait("acknowledged");
        started
    }

    fn spawn(place: &Path, line: &str) -> Self {
        let words = line.strip_prefix("weir ").unwrap().split_whitespace();
        let mut command = weir(place);
        command.args(words).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let notes = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in notes.lines().map_while(Result::ok) {
                // The receiver may no longer exist.
                let _ = sender.send(line);
            }
        });
        Self { child, lines }
    }

    /// Waits for a line that contains this text.
    fn wait(&self, text: &str) -> String {
        let (mut printed, until) = (Vec::new(), Instant::now() + TIMEOUT);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|_| panic!("no {text}: {printed:?}"));
            if line.contains(text) {
                return line;
            }
            printed.push(line);
        }
    }

    fn signal(&self, name: &str) {
        assert!(crate::cluster::signal(self.child.id(), name));
    }
}

/// Runs a command, which must succeed.
fn run(place: &Path, line: &str) -> String {
    let words = line.strip_prefix("weir ").unwrap().split_whitespace();
    let output = weir(place).args(words).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {printed}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a line by the shell, with `weir` in its path. The line must succeed.
fn shell(place: &Path, line: &str) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-ec", line]).current_dir(place).env_clear();
    shell.env("HOME", place);
    shell.env("PATH", format!("{}:{path}", program.display()));
    let output = shell.stdin(Stdio::null()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {printed}");
    String::from_utf8(output.stdout).unwrap()
}

fn put(value: &str) -> Intention<'_> {
    let value = value.as_bytes();
    Intention::new("orders", Operation::Put { key: b"k", value })
}

fn status(at: &str) -> Option<ClusterStatus> {
    Weir::connect(&format!("weir://{at}"))
        .ok()?
        .status()
        .ok()?
        .server?
        .cluster
}

/// The steps with TLS, each on the machine that it names. A machine is a directory and an address of
/// loopback.
#[test]
fn machines_form_a_cluster_with_tls() {
    const CHAPTER: &str = "Form a cluster on several machines";
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let ports: Vec<_> = (0..3)
        .map(|_| free_address().split_off("127.0.0.1:".len()))
        .collect();
    // A free port has five digits, so it contains none of the ports of the page.
    let here = |text: &str| {
        let text = text.replace("10.0.0.", "127.0.0.");
        let ports = [":7070", ":7071", ":7072"].iter().zip(&ports);
        ports.fold(text, |text, (port, free)| {
            text.replace(port, &format!(":{free}"))
        })
    };
    let (_, toml) = PAGE.split_once("```toml\n").unwrap();
    let toml = toml.split("```").next().unwrap();
    let machines = [1, 2, 3].map(|n| place.join(format!("machine-{n}")));
    let mut servers: Vec<Server> = Vec::new();
    let mut of_client = Vec::new();
    for line in commands(CHAPTER) {
        let line = here(line);
        if line.starts_with("weir cert") || line.starts_with("weir token") {
            shell(place, &line);
            continue;
        }
        for (n, machine) in (1..)
            .zip(&machines)
            .filter(|(_, machine)| !machine.exists())
        {
            std::fs::create_dir(machine).unwrap();
            let copy = format!("cp -rp peers pki identities.toml {}", machine.display());
            shell(place, &copy);
            let text = here(&toml.replace("10.0.0.1", &format!("10.0.0.{n}")));
            std::fs::write(machine.join("weir.toml"), text).unwrap();
        }
        if line.starts_with("weir cluster init") {
            run(&machines[0], &line);
        } else if line.contains("--join") {
            for machine in &machines[1..] {
                servers.push(Server::start(machine, &line));
            }
        } else if line.starts_with("weir serve") {
            servers.push(Server::start(&machines[0], &line));
        } else {
            of_client.push(line);
        }
    }
    assert_eq!(servers.len(), 3);
    // Waits until the nodes that have joined vote.
    let exports: Vec<_> = of_client
        .iter()
        .filter(|line| line.starts_with("export"))
        .map(String::as_str)
        .collect();
    // The command fails while no majority responds.
    let status = format!(
        "{}\nweir cluster status -o json || true",
        exports.join("\n")
    );
    let until = Instant::now() + TIMEOUT;
    loop {
        let printed = shell(place, &status);
        if printed.matches("\"votes\":true").count() == 3 {
            break;
        }
        assert!(Instant::now() < until, "{printed}");
    }
    shell(place, &of_client.join("\n"));
    for n in 1..=3 {
        // Every node sends a client to the leader, at an address that works.
        let at = format!("export WEIR_AT=weirs://127.0.0.{n}:{}", ports[1]);
        let of_node = |line: &String| {
            if line.contains("WEIR_AT=") {
                at.clone()
            } else {
                line.clone()
            }
        };
        let lines: Vec<_> = of_client.iter().map(of_node).collect();
        shell(place, &lines.join("\n"));
    }
}

#[test]
fn nodes_are_upgraded_one_after_the_other() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let mut cluster = Cluster::start(place, 3);
    let client = Weir::connect(&cluster.at).unwrap();
    client.topic("orders").unwrap().ensure().unwrap();
    let mut session = client.session(ClientId([7; 16]));
    let mut written = Vec::new();
    let mut write = |what: String| {
        let verdicts = session.execute(&[put(&what)]).unwrap();
        assert!(verdicts[0].is_valid(), "{verdicts:?}");
        written.push(what);
    };
    write("first".to_owned());
    let leader = cluster.leader();
    let mut nodes: Vec<u64> = (1..=3).filter(|node| *node != leader).collect();
    nodes.push(leader);
    for node in nodes {
        let mut restart = None;
        for (step, line) in commands("Upgrade").into_iter().enumerate() {
            let line = line.replace("$AT", &cluster.at);
            match line.split_whitespace().next().unwrap() {
                "kill" => restart = Some(cluster.end(node)),
                _ if line.contains("serve") => {
                    cluster.restart(place, &restart.take().unwrap());
                    let until = Instant::now() + TIMEOUT;
                    while cluster.status(node).is_none() {
                        assert!(Instant::now() < until, "node {node} is not back");
                    }
                }
                _ if line.contains("transfer") => {
                    if cluster.leader() == node {
                        let other = (node % 3 + 1).to_string();
                        run(place, &line.replace(" 2 ", &format!(" {other} ")));
                        assert_eq!(cluster.leader().to_string(), other);
                    }
                }
                _ => {
                    cluster.wait_until_equal();
                    run(place, &line);
                }
            }
            write(format!("{node}-{step}"));
        }
    }
    cluster.wait_until_equal();
    for node in cluster.nodes.values() {
        assert_eq!(values(&node.native, "orders"), written);
    }
}

/// Two of three nodes are lost permanently: the remaining node becomes a new cluster.
#[test]
#[allow(clippy::too_many_lines, reason = "the steps of the page, in order")]
fn a_lost_majority_is_restored_from_a_backup_and_old_disks_are_rejected() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let mut cluster = Cluster::start(place, 3);
    let client = Weir::connect(&cluster.at).unwrap();
    let topic = client.topic("orders").unwrap();
    topic.ensure().unwrap();
    topic.put("k", "old").unwrap().ensure_valid().unwrap();
    cluster.wait_until_equal();
    let members = cluster.status(1).unwrap().members;
    let peers: Vec<_> = members.iter().map(|one| one.peer.clone()).collect();
    let left = cluster.nodes[&2].native.clone();
    (1..=3).for_each(|node| drop(cluster.kill(node)));
    drop((topic, client, cluster));

    let natives: Vec<_> = (0..3).map(|_| free_address()).collect();
    // The first machine is `place`.
    let machines = [".", "second", "third"].map(|name| place.join(name));
    for (machine, (native, peer)) in machines.iter().zip(natives.iter().zip(&peers)) {
        std::fs::create_dir_all(machine).unwrap();
        let text = format!("[serve]\nhttp = \"off\"\nnative = \"{native}\"\npeer = \"{peer}\"\n");
        std::fs::write(machine.join("weir.toml"), text).unwrap();
    }
    let mut servers: Vec<Server> = Vec::new();
    for line in commands("Backup and restore") {
        let mut line = line.to_owned();
        if line.starts_with("kill") {
            servers[0].signal("USR1");
            servers[0].wait("the store was backed up");
            // The node has no majority; its applied state can be read.
            assert_eq!(values(&left, "orders"), ["old"]);
            servers.clear();
            continue;
        }
        if line.starts_with("mkdir") {
            shell(place, &line);
            continue;
        }
        if line.contains("backups/weir-") {
            let mut found = place.join("backups").read_dir().unwrap();
            let name = found.next().unwrap().unwrap().file_name();
            let name = name.into_string().unwrap();
            line = line.replace("weir-20261120T093000Z", &name);
        }
        for (n, peer) in peers.iter().enumerate() {
            line = line.replace(&format!("10.0.0.{}:7072", n + 1), peer);
        }
        if !line.starts_with("weir serve") {
            run(place, &line);
        } else if line.contains("--at ./data") {
            let old = "--at nodes/node-2 --config nodes/node-2.toml";
            servers.push(Server::start(place, &line.replace("--at ./data", old)));
        } else if line.contains("--join") {
            for machine in &machines[1..] {
                servers.push(Server::start(machine, &line));
            }
        } else {
            servers.push(Server::start(place, &line));
        }
    }
    let until = Instant::now() + TIMEOUT;
    loop {
        let members = status(&natives[0]).unwrap().members;
        if members.iter().filter(|one| one.votes).count() == 3 {
            break;
        }
        assert!(Instant::now() < until, "{members:?}");
    }
    let client = Weir::connect(&format!("weir://{}", natives.join(","))).unwrap();
    client
        .topic("orders")
        .unwrap()
        .put("k", "new")
        .unwrap()
        .ensure_valid()
        .unwrap();
    let members = || {
        let members = status(&natives[0]).unwrap().members;
        members.into_iter().map(|one| one.node).collect::<Vec<_>>()
    };
    let before = members();

    // Old disks: one whose number a new node has, and one whose number no node has.
    for node in [1, 3] {
        let (peer, native) = (free_address(), free_address());
        let line =
            format!("weir serve --at nodes/node-{node} --http off --native {native} --peer {peer}");
        let old = Server::start(place, &line);
        // The old node requests votes, which no node grants.
        let printed = old.wait("the peer reported: ");
        let why = ["another node listens at this address", "has another disk"];
        assert!(why.iter().any(|why| printed.contains(why)), "{printed}");
        if node == 3 {
            // The log of the new node 1 says which process must end.
            let printed = servers[0].wait("a connection from 127.0.0.1 was refused");
            assert!(printed.contains("claims to be node 3"), "{printed}");
            assert!(!printed.contains("weir cluster rm"), "{printed}");
        }
        assert_ne!(status(&native).unwrap().role, "leader");
        drop(old);
    }
    assert_eq!(members(), before);
    client
        .topic("orders")
        .unwrap()
        .put("k", "newest")
        .unwrap()
        .ensure_valid()
        .unwrap();
    drop(servers);
    let verified = run(place, "weir verify ./new");
    assert!(!verified.is_empty());
}

/// The remaining node has entries that it does not know to be committed: after a power cut, the
/// file `committed`, which is never synced, may be lost. A backup would lack these entries.
#[test]
fn a_lost_majority_is_rebuilt_from_the_log_of_the_remaining_node() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let mut cluster = Cluster::start(place, 3);
    let client = Weir::connect(&cluster.at).unwrap();
    let topic = client.topic("orders").unwrap();
    topic.ensure().unwrap();
    topic.put("k", "old").unwrap().ensure_valid().unwrap();
    cluster.wait_until_equal();
    let members = cluster.status(1).unwrap().members;
    (1..=3).for_each(|node| drop(cluster.kill(node)));
    drop((topic, client, cluster));
    std::fs::remove_file(place.join("nodes/node-2/cluster/committed")).unwrap();

    // The first machine is `place`.
    let machines = [".", "second"].map(|name| place.join(name));
    let natives = [free_address(), free_address()];
    for ((machine, native), member) in machines.iter().zip(&natives).zip(&members) {
        std::fs::create_dir_all(machine).unwrap();
        let peer = &member.peer;
        let text = format!("[serve]\nhttp = \"off\"\nnative = \"{native}\"\npeer = \"{peer}\"\n");
        std::fs::write(machine.join("weir.toml"), text).unwrap();
    }
    let mut servers = Vec::new();
    for line in commands("A lost majority") {
        let line = line.replace("--at ./data", "--at nodes/node-2");
        let line = line.replace("10.0.0.1:7072", &members[0].peer);
        if !line.starts_with("weir serve") {
            run(place, &line);
        } else if line.contains("--join") {
            servers.push(Server::start(&machines[1], &line));
        } else {
            servers.push(Server::start(place, &line));
        }
    }
    assert_eq!(servers.len(), 2);
    let until = Instant::now() + TIMEOUT;
    loop {
        let voters = status(&natives[0]).map(|status| {
            let members = status.members.iter();
            members.filter(|member| member.votes).count()
        });
        if voters == Some(2) {
            break;
        }
        assert!(Instant::now() < until, "{voters:?} nodes vote");
    }
    let client = Weir::connect(&format!("weir://{}", natives.join(","))).unwrap();
    let topic = client.topic("orders").unwrap();
    let found = topic.get("k").unwrap().unwrap();
    assert_eq!(found.value(), b"old");
    topic.put("k", "new").unwrap().ensure_valid().unwrap();
}

/// The consensus of a node ends when the node finds that its directory is an older copy. The
/// process must then end, so that a service manager and an operator notice it.
#[test]
fn a_process_whose_consensus_has_ended_exits_with_the_reason() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let mut cluster = Cluster::start(place, 3);
    let client = Weir::connect(&cluster.at).unwrap();
    let topic = client.topic("orders").unwrap();
    topic.ensure().unwrap();
    cluster.wait_until_equal();
    let old = cluster.leader() % 3 + 1;
    let serve = format!("weir {}", cluster.end(old));
    let directory = place.join(format!("nodes/node-{old}"));
    let copy = place.join("copy");
    let mut copied = Command::new("cp");
    copied.arg("-rp").args([&directory, &copy]);
    assert!(copied.status().unwrap().success());
    // The other nodes save that the node has run again.
    let again = Server::start(place, &serve);
    topic.put("k", "x").unwrap().ensure_valid().unwrap();
    cluster.wait_until_equal();
    drop(again);
    let others = (1..=3).filter(|node| *node != old);
    let others: Vec<String> = others.map(|node| cluster.end(node)).collect();

    std::fs::remove_dir_all(&directory).unwrap();
    std::fs::rename(&copy, &directory).unwrap();
    // Without the other nodes, nothing shows that this directory is a copy.
    let mut copy = Server::start(place, &serve);
    for command in &others {
        cluster.restart(place, command);
    }
    copy.wait("is an older copy");
    copy.wait("the consensus of its node stopped");
    assert!(!copy.child.wait().unwrap().success());
}

/// After two inits there are two clusters, and a server of one does not join the other.
#[test]
fn a_server_that_ignores_join_warns_also_with_quiet() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let (native, peer) = (free_address(), free_address());
    let ports = format!("--at one --http off --native {native} --peer {peer}");
    run(place, &format!("weir cluster init {ports}"));
    let line = format!("weir serve -q {ports} --join {}", free_address());
    let server = Server::spawn(place, &line);
    let warning = server.wait("so `--join` has no effect");
    assert!(warning.contains("warning: "), "{warning}");
}
