//! The nodes of a simulation, their disks and their clocks.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use weir_raft::sim::SimParts;
use weir_raft::{Member, Node, NodeConfig};
use weir_store::disk::{Disk, SimDisk};
use weir_store::{Durability, OpenOptions};

use crate::clock::SimClock;
use crate::network::{Network, address};
use crate::random::Random;
use crate::report::{DiskFault, Planted, Violation};
use crate::trace::Trace;

const CLUSTER: [u8; 16] = [0x51; 16];
const SECTOR: usize = 512;
/// docs/formats/log.md, "Batch".
const BATCH_MAGIC: &[u8] = b"WBAT";
/// Bytes before the zeros at the end of a log; most bit flips hit one of them.
const NEWEST_BYTES: usize = 400;
/// The name of the only topic.
pub(crate) const TOPIC: &str = "ledger";
/// The name of the only group.
pub(crate) const GROUP: &str = "workers";

/// The part of a disk that remains after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    /// Everything that was synced, and any part of the other writes.
    PowerCut,
    /// Everything that was written.
    Kill,
}

struct Host {
    disk: SimDisk,
    /// The content of the disk when it was copied.
    copy: Option<SimDisk>,
    clock: SimClock,
    running: Option<RunningNode>,
    runs: u64,
    /// Incarnation of the disk, chosen when the disk is created.
    incarnation: u64,
    /// Whether the disk was damaged: the node may then refuse to open.
    is_damaged: bool,
    /// Whether the disk was replaced by an older copy: the node may then refuse to open, or end.
    is_older: bool,
    /// Whether the node refused to open, or its peers see that its disk is a new one.
    is_excluded: bool,
}

impl Host {
    fn new(id: u64) -> Self {
        Self {
            disk: SimDisk::new(),
            copy: None,
            clock: SimClock::default(),
            running: None,
            runs: 0,
            incarnation: id,
            is_damaged: false,
            is_older: false,
            is_excluded: false,
        }
    }
}

/// Whether a file is a segment of a log with entries.
fn has_batches(disk: &SimDisk, file: &str) -> bool {
    let content = disk.content(file).unwrap_or_default();
    content
        .chunks(SECTOR)
        .any(|sector| sector.starts_with(BATCH_MAGIC))
}

/// A node between a start and a crash.
#[derive(Clone)]
pub(crate) struct RunningNode {
    pub(crate) id: u64,
    pub(crate) run: u64,
    pub(crate) node: Arc<Node>,
}

/// All nodes. Clones share them.
#[derive(Clone)]
pub(crate) struct Cluster {
    hosts: Arc<Mutex<BTreeMap<u64, Host>>>,
    /// Number of nodes that were created, which is the highest number of a node.
    created: Arc<Mutex<u64>>,
    random: Arc<Mutex<Random>>,
    pub(crate) network: Network,
    pub(crate) trace: Trace,
    pub(crate) planted: Option<Planted>,
}

impl Cluster {
    pub(crate) fn new(
        nodes: u64,
        mut random: Random,
        network: Network,
        trace: Trace,
        planted: Option<Planted>,
    ) -> Self {
        let hosts = (1..=nodes).map(|id| (id, Host::new(id))).collect();
        Self {
            hosts: Arc::new(Mutex::new(hosts)),
            created: Arc::new(Mutex::new(nodes)),
            random: Arc::new(Mutex::new(random.fork())),
            network,
            trace,
            planted,
        }
    }

    fn hosts(&self) -> MutexGuard<'_, BTreeMap<u64, Host>> {
        self.hosts.lock()
    }

    fn random(&self) -> MutexGuard<'_, Random> {
        self.random.lock()
    }

    pub(crate) fn ids(&self) -> Vec<u64> {
        self.hosts().keys().copied().collect()
    }

    /// Creates one more node that is not started. Returns its number, which no node had before.
    pub(crate) fn add(&self) -> u64 {
        let mut created = self.created.lock();
        *created += 1;
        self.hosts().insert(*created, Host::new(*created));
        *created
    }

    /// Ends a node permanently.
    pub(crate) async fn discard(&self, id: u64) {
        self.crash(id, Crash::Kill).await;
        self.hosts().remove(&id);
    }

    pub(crate) fn members(&self) -> BTreeMap<u64, Member> {
        let member = |id: &u64| {
            let member = Member {
                peer: address(*id),
                ..Member::default()
            };
            (*id, member)
        };
        self.hosts().keys().map(member).collect()
    }

    /// The node, if it runs.
    pub(crate) fn running(&self, id: u64) -> Option<RunningNode> {
        self.hosts().get(&id)?.running.clone()
    }

    pub(crate) fn all_running(&self) -> Vec<RunningNode> {
        let hosts = self.hosts();
        hosts.values().filter_map(|p| p.running.clone()).collect()
    }

    /// Whether this run of the node has not ended.
    pub(crate) fn is_same_run(&self, running: &RunningNode) -> bool {
        let found = self.running(running.id);
        found.is_some_and(|found| found.run == running.run)
    }

    /// Sets the clocks of all nodes to the simulated time.
    pub(crate) fn set_clocks(&self) {
        let now_us = self.trace.now_us();
        for host in self.hosts().values() {
            host.clock.set(now_us);
        }
    }

    pub(crate) fn jump_clock(&self, id: u64, ahead_ms: i64) {
        if let Some(host) = self.hosts().get(&id) {
            host.clock.jump(ahead_ms);
        }
    }

    /// Cuts the power of a node at one of its next writes or syncs.
    pub(crate) fn cut_soon(&self, id: u64, operations: u64) {
        if let Some(host) = self.hosts().get(&id) {
            host.disk.cut_at(host.disk.counts().ops + operations);
        }
    }

    /// Nodes whose power was cut by [`cut_soon`](Self::cut_soon).
    pub(crate) fn off(&self) -> Vec<u64> {
        let hosts = self.hosts();
        let off = hosts.iter().filter(|(_, host)| host.disk.is_off());
        off.map(|(id, _)| *id).collect()
    }

    /// Whether the power of a node is cut.
    pub(crate) fn is_off(&self, id: u64) -> bool {
        let hosts = self.hosts();
        hosts.get(&id).is_some_and(|host| host.disk.is_off())
    }

    /// Copies the disk of a node.
    pub(crate) fn copy(&self, id: u64) {
        if let Some(host) = self.hosts().get_mut(&id) {
            host.copy = Some(host.disk.killed());
        }
    }

    /// Ends the nodes that have found that their disk is an older copy.
    pub(crate) async fn end_refused(&self) {
        let ended = |running: &RunningNode| running.node.status().role == weir_raft::Role::Ended;
        for running in self.all_running() {
            if ended(&running) && self.record_refusal(running.id) {
                self.crash(running.id, Crash::Kill).await;
            }
        }
    }

    /// Damages the disk of a stopped node.
    pub(crate) fn damage(&self, id: u64, fault: DiskFault) {
        let mut random = self.random().fork();
        let mut hosts = self.hosts();
        let Some(host) = hosts.get_mut(&id) else {
            return;
        };
        self.trace.add("damage", &[id], &[]);
        match fault {
            DiskFault::Lost => {
                host.disk = SimDisk::new();
                host.incarnation += 1_000;
                host.is_excluded = true;
            }
            DiskFault::LostUnnoticed => host.disk = SimDisk::new(),
            DiskFault::OlderCopy | DiskFault::OlderCopyUnnoticed => {
                host.is_older = true;
                if let Some(copy) = host.copy.take() {
                    host.disk = copy;
                }
            }
            DiskFault::FlippedBit | DiskFault::FlippedBitUnchecked => {
                host.is_damaged = true;
                // The reserved end of a file is zero, and so are most bytes of a short entry.
                let used = |file: &String| {
                    let content = host.disk.content(file).unwrap_or_default();
                    let bytes = content.iter().enumerate().filter(|(_, byte)| **byte != 0);
                    bytes.map(|(at, _)| at).collect::<Vec<_>>()
                };
                let mut logs = host.disk.files();
                logs.retain(|file| file.starts_with("log/") && has_batches(&host.disk, file));
                logs.sort();
                // Prefers the newest entries: a bad entry there looks like a torn write.
                let is_newest = random.chance(70);
                let file = if is_newest {
                    logs.last()
                } else {
                    random.pick(&logs)
                };
                let Some(file) = file else { return };
                let mut used = used(file);
                if is_newest {
                    used = used.split_off(used.len().saturating_sub(NEWEST_BYTES));
                }
                let byte = random.pick(&used).copied().unwrap_or_default();
                let bit = u8::try_from(random.below(8)).unwrap_or(0);
                host.disk.flip(file, byte, bit);
            }
        }
    }

    /// Nodes that take part: all except those whose disk was damaged or lost.
    pub(crate) fn usable(&self) -> Vec<u64> {
        let hosts = self.hosts();
        let usable = hosts.iter().filter(|(_, host)| !host.is_excluded);
        usable.map(|(id, _)| *id).collect()
    }

    /// Number of nodes that do not take part.
    pub(crate) fn excluded_count(&self) -> u64 {
        self.hosts()
            .values()
            .map(|host| u64::from(host.is_excluded))
            .sum()
    }

    /// Running nodes that do not take part.
    pub(crate) fn excluded_running(&self) -> Vec<RunningNode> {
        let hosts = self.hosts();
        let excluded = hosts.values().filter(|host| host.is_excluded);
        excluded.filter_map(|host| host.running.clone()).collect()
    }

    /// Starts a node if it does not run.
    pub(crate) async fn start(&self, id: u64) -> Result<(), Violation> {
        self.set_clocks();
        let (disk, clock, run, incarnation) = {
            let mut hosts = self.hosts();
            let Some(host) = hosts.get_mut(&id).filter(|p| {
                p.running.is_none() && !(p.is_excluded && (p.is_damaged || p.is_older))
            }) else {
                return Ok(());
            };
            host.runs += 1;
            let (disk, clock) = (host.disk.clone(), host.clock.clone());
            (disk, clock, host.runs, host.incarnation)
        };
        let (transport, acceptor) = self.network.attach(id);
        let mut syncs = self.random().fork();
        let options = OpenOptions {
            durability: match self.planted {
                Some(Planted::SyncSkipped) => Durability::Memory,
                _ => Durability::Group,
            },
            program: String::new(),
            // Histories are short; with small segments, a checkpoint purges nearly all entries.
            log_segment_bytes: 4 << 10,
            log_keep_bytes: Some(0),
            seed: Some((id << 32) | run),
            retention_every: None,
            clock: Arc::new(clock),
            ..OpenOptions::default()
        };
        let parts = SimParts {
            disk: Arc::new(disk) as Arc<dyn Disk>,
            options,
            config: NodeConfig {
                node: id,
                cluster: CLUSTER,
                incarnation,
            },
            transport,
            acceptor,
            sync_time: Box::new(move || match syncs.below(50) {
                0 => syncs.millis(5, 60),
                _ => syncs.micros(100, 3_000),
            }),
        };
        let node = match Node::open_simulated(parts).await {
            Ok(node) => node,
            // The power may also be cut during a start.
            Err(_) if self.off().contains(&id) => {
                self.crash(id, Crash::PowerCut).await;
                return Ok(());
            }
            Err(_) if self.record_refusal(id) => return Ok(()),
            Err(error) => {
                return Err(Violation::new(
                    "a node opens after a crash",
                    format!("node {id}: {error}"),
                ));
            }
        };
        self.trace.add("start", &[id, run], &[]);
        if let Some(host) = self.hosts().get_mut(&id) {
            let node = Arc::new(node);
            host.running = Some(RunningNode { id, run, node });
        }
        Ok(())
    }

    /// Whether the disk of a node was replaced by an older copy.
    pub(crate) fn is_older(&self, id: u64) -> bool {
        let hosts = self.hosts();
        hosts.get(&id).is_some_and(|host| host.is_older)
    }

    /// Records that a node did not open. Returns whether its disk was damaged.
    fn record_refusal(&self, id: u64) -> bool {
        let mut hosts = self.hosts();
        let host = hosts.get_mut(&id);
        let host = host.filter(|host| host.is_damaged || host.is_older);
        host.is_some_and(|host| {
            host.is_excluded = true;
            true
        })
    }

    /// Ends a node like a power cut or a killed process.
    pub(crate) async fn crash(&self, id: u64, crash: Crash) {
        self.trace
            .add("crash", &[id, u64::from(crash == Crash::Kill)], &[]);
        self.network.detach(id);
        let seed = self.random().next();
        let running = self.hosts().get_mut(&id).and_then(|host| {
            host.disk = match crash {
                Crash::Kill if !host.disk.is_off() => host.disk.killed(),
                _ => host.disk.power_cut(seed),
            };
            host.running.take()
        });
        // Later writes of this run reach neither the disk of the next run nor a peer.
        if let Some(running) = running {
            running.node.end_simulated().await;
        }
    }
}
