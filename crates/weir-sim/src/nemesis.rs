//! Injects faults, one after the other.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::cluster::{Cluster, Crash};
use crate::network::LinkConditions;
use crate::random::Random;
use crate::report::{DiskFault, Violation};

/// Pause between two checks of the nodes.
pub(crate) const TICK: Duration = Duration::from_millis(5);

/// Pause between two transfers in the phase of transfers.
const TRANSFER_EVERY: Duration = Duration::from_millis(30);

/// Injects faults; the caller calls [`tick`](Self::tick) repeatedly.
pub(crate) struct Nemesis {
    cluster: Cluster,
    random: Random,
    next: Instant,
    /// The time of each scheduled restart, and its node.
    restarts: Vec<(Instant, u64)>,
    /// Nodes whose power will be cut at one of their next writes.
    armed: BTreeSet<u64>,
    /// Nodes that must still be restarted, two at a time.
    rolling: Vec<u64>,
    /// The end of the phase in which every leader transfers its leadership, and the time of the
    /// next transfer.
    transfer_phase: Option<(Instant, Instant)>,
    /// The time and the kind of the damage to the disk of a node.
    disk_fault: Option<(Instant, DiskFault)>,
    /// The node whose disk was copied.
    copied: Option<u64>,
    pub(crate) power_cuts: u64,
    pub(crate) partitions: u64,
    pub(crate) bridges_of_five: u64,
    pub(crate) rolling_restarts: u64,
    pub(crate) clock_jumps: u64,
    pub(crate) checkpoints: u64,
    pub(crate) transfers: u64,
}

impl Nemesis {
    pub(crate) fn new(cluster: Cluster, mut random: Random, fault: Option<DiskFault>) -> Self {
        let disk_fault = fault.map(|fault| (Instant::now() + random.millis(2_000, 5_000), fault));
        Self {
            disk_fault,
            copied: None,
            cluster,
            random,
            next: Instant::now(),
            restarts: Vec::new(),
            armed: BTreeSet::new(),
            rolling: Vec::new(),
            transfer_phase: None,
            power_cuts: 0,
            partitions: 0,
            bridges_of_five: 0,
            rolling_restarts: 0,
            clock_jumps: 0,
            checkpoints: 0,
            transfers: 0,
        }
    }

    fn node(&mut self) -> u64 {
        let ids = self.cluster.ids();
        let which = usize::try_from(self.random.below(ids.len() as u64)).unwrap_or_default();
        ids[which]
    }

    /// Executes the faults and restarts that are due.
    pub(crate) async fn tick(&mut self) -> Result<(), Violation> {
        for id in self.cluster.off() {
            self.crash(id, Crash::PowerCut).await;
        }
        let now = Instant::now();
        let due: Vec<u64> = {
            let due = self.restarts.iter().filter(|(at, _)| *at <= now);
            due.map(|(_, id)| *id).collect()
        };
        self.restarts.retain(|(at, _)| *at > now);
        for id in due {
            self.cluster.start(id).await?;
        }
        if let Some((_, fault)) = self.disk_fault.filter(|(at, _)| *at <= now) {
            self.disk_fault = None;
            let is_copy = matches!(fault, DiskFault::OlderCopy | DiskFault::OlderCopyUnnoticed);
            let node = match self.copied {
                Some(copied) => copied,
                None => self.node(),
            };
            if is_copy && self.copied.is_none() {
                self.cluster.copy(node);
                self.copied = Some(node);
                self.disk_fault = Some((now + self.random.millis(50, 3_000), fault));
            } else {
                self.crash(node, Crash::Kill).await;
                self.cluster.damage(node, fault);
            }
        }
        self.cluster.end_refused().await;
        self.rolling_restart().await;
        self.transfer_often().await?;
        if now >= self.next {
            self.next = now + self.random.millis(50, 1_200);
            self.inject_fault().await;
        }
        sleep(TICK).await;
        Ok(())
    }

    /// Restarts the next two nodes of a rolling restart if all nodes run.
    async fn rolling_restart(&mut self) {
        if self.rolling.is_empty() || !self.restarts.is_empty() {
            return;
        }
        let rest = self.rolling.split_off(self.rolling.len().min(2));
        for id in std::mem::replace(&mut self.rolling, rest) {
            self.crash(id, Crash::Kill).await;
        }
        self.rolling_restarts += u64::from(self.rolling.is_empty());
    }

    /// Makes the leader transfer its leadership every 30 ms.
    async fn transfer_often(&mut self) -> Result<(), Violation> {
        let now = Instant::now();
        let Some((until, next)) = self.transfer_phase.filter(|(_, next)| *next <= now) else {
            return Ok(());
        };
        self.transfer_phase = (now < until).then(|| (until, next + TRANSFER_EVERY));
        let running = self.cluster.all_running();
        let leader = running.iter().find(|running| running.node.is_leader());
        let to = self.node();
        if let Some(leader) = leader.filter(|leader| leader.id != to) {
            self.transfers += 1;
            // The transfer fails if the core has just ended.
            drop(leader.node.transfer(to).await);
        }
        Ok(())
    }

    async fn crash(&mut self, id: u64, crash: Crash) {
        self.power_cuts += u64::from(crash == Crash::PowerCut);
        self.armed.remove(&id);
        self.cluster.crash(id, crash).await;
        let at = Instant::now() + self.random.millis(1, 1_500);
        self.restarts.push((at, id));
    }

    async fn inject_fault(&mut self) {
        let node = self.node();
        let action = self.random.below(17);
        self.cluster.trace.add("fault", &[action, node], &[]);
        match action {
            0 | 1 => self.crash(node, Crash::PowerCut).await,
            2 => self.crash(node, Crash::Kill).await,
            3 | 4 => {
                let operations = 1 + self.random.below(20);
                self.armed.insert(node);
                self.cluster.cut_soon(node, operations);
            }
            5 => {
                for id in self.cluster.ids() {
                    self.crash(id, Crash::PowerCut).await;
                }
            }
            6 | 7 => self.partition(node),
            8 => {
                let conditions = LinkConditions {
                    delay_us_max: 1_000 + self.random.below(100_000),
                    loss_percent: self.random.below(30),
                };
                self.cluster.network.set_conditions(conditions);
            }
            9 => {
                let hours = i64::try_from(self.random.below(51)).unwrap_or_default() - 25;
                self.clock_jumps += 1;
                self.cluster.jump_clock(node, hours * 3_600_000);
            }
            10 => self.bridge(node),
            11 => {
                self.rolling = self.cluster.ids();
                self.random.shuffle(&mut self.rolling);
            }
            12 => {
                let now = Instant::now();
                self.transfer_phase = Some((now + self.random.millis(100, 1_500), now));
            }
            13 | 14 => {
                for running in self.cluster.all_running() {
                    self.checkpoints += 1;
                    // The checkpoint fails if the power is cut meanwhile.
                    drop(running.node.checkpoint_simulated());
                }
            }
            _ => {
                self.cluster.network.heal();
                self.cluster.network.set_conditions(LinkConditions::NORMAL);
            }
        }
    }

    /// Creates two halves that are connected only through `bridge`: of five nodes, two on each
    /// side.
    fn bridge(&mut self, bridge: u64) {
        self.partitions += 1;
        let mut others = self.cluster.ids();
        self.bridges_of_five += u64::from(others.len() == 5);
        others.retain(|id| *id != bridge);
        self.random.shuffle(&mut others);
        let (left, right) = others.split_at(others.len() / 2);
        for (a, b) in left
            .iter()
            .flat_map(|a| right.iter().map(move |b| (*a, *b)))
        {
            self.cluster.network.cut(a, b);
            self.cluster.network.cut(b, a);
        }
    }

    /// Cuts links: around one node, in one direction, or at random in both.
    fn partition(&mut self, node: u64) {
        self.partitions += 1;
        let network = self.cluster.network.clone();
        let shape = self.random.below(4);
        let ids = self.cluster.ids();
        // In the last shape only this node connects the two halves.
        let side: Vec<bool> = ids.iter().map(|_| self.random.chance(50)).collect();
        for (a, a_side) in ids.iter().zip(&side) {
            for (b, b_side) in ids.iter().zip(&side) {
                let is_cut = match shape {
                    0 => *a == node || *b == node,
                    1 => *a == node,
                    2 => a_side != b_side,
                    _ => a_side != b_side && *a != node && *b != node,
                };
                if is_cut && a != b {
                    network.cut(*a, *b);
                }
            }
        }
    }

    /// Ends all faults.
    pub(crate) async fn end(&mut self) -> Result<(), Violation> {
        self.cluster.network.heal();
        self.cluster.network.set_conditions(LinkConditions::NORMAL);
        self.transfer_phase = None;
        for id in std::mem::take(&mut self.armed) {
            self.power_cuts += 1;
            self.cluster.crash(id, Crash::PowerCut).await;
        }
        for id in self.cluster.ids() {
            self.cluster.start(id).await?;
        }
        Ok(())
    }
}
