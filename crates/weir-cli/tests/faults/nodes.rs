//! The nodes: processes of `weir serve`, each with a disk that can be slow or full, and a clock
//! that can be set.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weir::{ClusterStatus, ConnectOptions, Weir};

use crate::TIMEOUT;
use crate::ports::reserve;
use crate::ports::reserve_port::reserve_port;
use crate::proxy::Links;

/// Timeout of a request to a node, which may be down.
const ASK_PATIENCE: Duration = Duration::from_secs(1);

struct Node {
    child: Option<Child>,
    /// Address for clients.
    client: String,
    /// Address for the other nodes.
    peer: String,
    /// Reserves the port at which the node listens for the proxy.
    _reserved: OwnedFd,
}

/// All nodes. Dropping this ends them.
pub(crate) struct Nodes {
    place: PathBuf,
    preload: String,
    by_id: BTreeMap<u64, Node>,
    pub(crate) links: Links,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.links.heal();
        for id in self.ids() {
            self.kill(id);
        }
    }
}

pub(crate) fn weir(place: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command
        .current_dir(place)
        .env_clear()
        .env("HOME", place)
        // Test directories may be in memory.
        .env("WEIR_SERVE_VOLATILE", "true")
        .stdin(Stdio::null());
    command
}

/// The preloaded libraries that delay syncs and set the clock.
fn preload(place: &Path) -> String {
    let slow = place.join("slow_disk.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/slow_disk.c");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]);
    let made = cc.arg(&slow).arg(source).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let places = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let mut found = places.map(|place| place.path().join("faketime/libfaketimeMT.so.1"));
    let faketime = found
        .find(|library| library.exists())
        .expect("`cargo xtask setup` installs the package faketime");
    format!("{}:{}", slow.display(), faketime.display())
}

impl Nodes {
    /// Creates a cluster of `count` nodes in `place`.
    pub(crate) fn start(place: &Path, count: u64) -> Self {
        let links = Links::default();
        let mut by_id = BTreeMap::new();
        for id in 1..=count {
            // A separate loopback address for each node, so that the proxy and the node can use
            // equal port numbers at different addresses.
            let host = [127, 0, 1, u8::try_from(id).unwrap()];
            let (proxy, port, reserved) = loop {
                let proxy = TcpListener::bind(SocketAddr::from((host, 0))).unwrap();
                let port = proxy.local_addr().unwrap().port();
                if let Ok((reserved, _)) = reserve_port(([127, 0, 0, 1], port).into()) {
                    break (proxy, port, reserved);
                }
            };
            let native = reserve(host);
            let host = native.ip();
            links.serve(id, proxy, ([127, 0, 0, 1], port).into());
            let text = format!(
                "[serve]\nhttp = \"off\"\nnative = \"{native}\"\npeer = \"127.0.0.1:{port}\"\n\
                 advertise = \"{host}\"\nlame_duck = \"0ms\"\n"
            );
            std::fs::write(place.join(format!("{id}.toml")), text).unwrap();
            let node = Node {
                child: None,
                client: native.to_string(),
                peer: format!("{host}:{port}"),
                _reserved: reserved,
            };
            by_id.insert(id, node);
        }
        let mut cluster = Self {
            place: place.to_owned(),
            preload: preload(place),
            by_id,
            links,
        };
        let mut init = weir(place);
        init.args(["cluster", "init", "--at", "node-1", "--config", "1.toml"]);
        let made = init.output().unwrap();
        assert!(made.status.success(), "{made:?}");
        for id in cluster.ids() {
            cluster.set_clock(id, 0);
            cluster.start_node(id);
            cluster.wait_until("a node votes", |cluster| {
                let status = cluster.status(1);
                status.is_some_and(|status| status.members.iter().any(|m| m.node == id && m.votes))
            });
        }
        cluster
    }

    pub(crate) fn ids(&self) -> Vec<u64> {
        self.by_id.keys().copied().collect()
    }

    /// Addresses for clients, starting with that of the node `first`.
    pub(crate) fn at(&self, first: u64) -> String {
        let (before, after): (Vec<_>, Vec<_>) = self.by_id.iter().partition(|(id, _)| **id < first);
        let all = after.into_iter().chain(before);
        let all: Vec<_> = all.map(|(_, node)| node.client.as_str()).collect();
        format!("weir://{}", all.join(","))
    }

    pub(crate) fn address(&self, id: u64) -> String {
        format!("weir://{}", self.by_id[&id].client)
    }

    fn serve(&self, id: u64, directory: &str) -> Command {
        let mut command = weir(&self.place);
        // A node joins through another node.
        let through = if id == 1 { 2 } else { 1 };
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.place.join(format!("{id}.log")));
        command
            .args([
                "serve",
                "--at",
                directory,
                "--config",
                &format!("{id}.toml"),
            ])
            .args(["--node", &id.to_string()])
            .args(["--join", &self.by_id[&through].peer])
            .env("LD_PRELOAD", &self.preload)
            .env("SLOW_SYNC_FILE", self.place.join(format!("{id}.slow")))
            .env(
                "FAKETIME_TIMESTAMP_FILE",
                self.place.join(format!("{id}.clock")),
            )
            .env("FAKETIME_NO_CACHE", "1")
            .env("DONT_FAKE_MONOTONIC", "1")
            .stdout(Stdio::null())
            .stderr(log.unwrap());
        command
    }

    pub(crate) fn start_node(&mut self, id: u64) {
        if self.by_id[&id].child.is_none() {
            let child = self.serve(id, &format!("node-{id}")).spawn().unwrap();
            self.by_id.get_mut(&id).unwrap().child = Some(child);
        }
    }

    pub(crate) fn kill(&mut self, id: u64) {
        if let Some(mut child) = self.by_id.get_mut(&id).unwrap().child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Ends a node in order, and asserts a clean exit.
    pub(crate) fn stop(&mut self, id: u64) {
        self.signal(id, "TERM");
        if let Some(mut child) = self.by_id.get_mut(&id).unwrap().child.take() {
            let until = Instant::now() + TIMEOUT;
            let status = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break status;
                }
                assert!(Instant::now() < until, "node {id} does not end");
                std::thread::sleep(Duration::from_millis(20));
            };
            assert!(status.success(), "node {id}: {status}");
        }
    }

    fn pid(&self, id: u64) -> Option<String> {
        self.by_id[&id]
            .child
            .as_ref()
            .map(|child| child.id().to_string())
    }

    pub(crate) fn signal(&self, id: u64, name: &str) {
        if let Some(pid) = self.pid(id) {
            let sent = Command::new("kill").args(["-s", name, &pid]).status();
            assert!(sent.unwrap().success());
        }
    }

    /// Limits the size of each file that a node writes. The node treats a file that cannot grow as
    /// a full disk.
    pub(crate) fn limit_files(&self, id: u64, limit: Option<u64>) {
        if let Some(pid) = self.pid(id) {
            let limit = limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
            let mut set = Command::new("prlimit");
            set.args(["--pid", &pid, &format!("--fsize={limit}:")]);
            assert!(set.status().unwrap().success());
        }
    }

    /// The size of the largest file in the log of a node.
    pub(crate) fn largest_segment(&self, id: u64) -> u64 {
        let log = self.place.join(format!("node-{id}/log"));
        let files = std::fs::read_dir(log).unwrap().flatten();
        let sizes = files.filter_map(|file| Some(file.metadata().ok()?.len()));
        sizes.max().unwrap()
    }

    /// Delays each sync of a node by `millis` milliseconds.
    pub(crate) fn slow_disk(&self, id: u64, millis: u64) {
        self.replace(&format!("{id}.slow"), &millis.to_string());
    }

    /// Sets the wall clock of a node ahead.
    pub(crate) fn set_clock(&self, id: u64, seconds: i64) {
        self.replace(&format!("{id}.clock"), &format!("{seconds:+}"));
    }

    /// Replaces a file by a rename, because the node may read it at any moment.
    fn replace(&self, name: &str, text: &str) {
        let new = self.place.join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, self.place.join(name)).unwrap();
    }

    /// Tries to start an empty directory under the number of a member, which must fail.
    pub(crate) fn start_blank(&self, id: u64) {
        let blank = self.place.join("blank");
        let mut child = self.serve(id, "blank").spawn().unwrap();
        let until = Instant::now() + TIMEOUT;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "a blank node {id} is not rejected");
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(!status.success(), "a blank node {id} runs");
        let log = std::fs::read_to_string(self.place.join(format!("{id}.log"))).unwrap();
        let why = "an empty directory cannot be that node";
        assert!(log.contains(why), "{log}");
        drop(std::fs::remove_dir_all(blank));
    }

    /// The status of a node, if it responds.
    pub(crate) fn status(&self, id: u64) -> Option<ClusterStatus> {
        let mut options = ConnectOptions::default();
        (options.connect_timeout, options.patience) = (ASK_PATIENCE, ASK_PATIENCE);
        let node = Weir::connect_with(&self.address(id), &options).ok()?;
        node.status().ok()?.server?.cluster
    }

    /// The leader of the highest term, if one responds.
    pub(crate) fn leader(&self) -> Option<u64> {
        let statuses = self.ids().into_iter().filter_map(|id| self.status(id));
        let leaders = statuses.filter(|status| status.role == "leader");
        leaders
            .max_by_key(|status| status.term)
            .map(|status| status.node)
    }

    fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !holds(self) {
            assert!(Instant::now() < deadline, "{what}: {:?}", self.statuses());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn statuses(&self) -> Vec<Option<ClusterStatus>> {
        self.ids().into_iter().map(|id| self.status(id)).collect()
    }

    /// Waits until all nodes have applied equal entries. Their digests must then be equal.
    pub(crate) fn wait_until_equal(&self) -> Result<(), String> {
        let until = Instant::now() + TIMEOUT;
        loop {
            let statuses = self.statuses();
            let all: Option<Vec<_>> = statuses.iter().cloned().collect();
            if let Some(all) = &all
                && all
                    .iter()
                    .all(|one| (one.applied, one.last) == (all[0].applied, all[0].applied))
            {
                let is_same = all.iter().all(|one| one.digest == all[0].digest);
                return is_same
                    .then_some(())
                    .ok_or(format!("digests differ: {all:?}"));
            }
            if Instant::now() >= until {
                return Err(format!("the nodes do not agree: {statuses:?}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
