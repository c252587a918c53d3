//! Faults, one after the other.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::cluster::{Cluster, Crash};
use crate::network::Weather;
use crate::random::Random;
use crate::report::Violation;

/// How often the nodes are looked at.
pub(crate) const TICK: Duration = Duration::from_millis(5);

/// Injects faults; [`tick`](Self::tick) is called again and again.
pub(crate) struct Nemesis {
    cluster: Cluster,
    random: Random,
    next: Instant,
    /// When which node starts again.
    restarts: Vec<(Instant, u64)>,
    /// Nodes whose power will be cut at one of their next writes.
    armed: BTreeSet<u64>,
    pub(crate) power_cuts: u64,
    pub(crate) partitions: u64,
}

impl Nemesis {
    pub(crate) fn new(cluster: Cluster, random: Random) -> Self {
        Self {
            cluster,
            random,
            next: Instant::now(),
            restarts: Vec::new(),
            armed: BTreeSet::new(),
            power_cuts: 0,
            partitions: 0,
        }
    }

    fn node(&mut self) -> u64 {
        let ids = self.cluster.ids();
        let which = usize::try_from(self.random.below(ids.len() as u64)).unwrap_or_default();
        ids[which]
    }

    /// Does what is due.
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
        if now >= self.next {
            self.next = now + self.random.millis(50, 1_200);
            self.act().await;
        }
        sleep(TICK).await;
        Ok(())
    }

    async fn crash(&mut self, id: u64, crash: Crash) {
        self.power_cuts += u64::from(crash == Crash::PowerCut);
        self.armed.remove(&id);
        self.cluster.crash(id, crash).await;
        let at = Instant::now() + self.random.millis(1, 1_500);
        self.restarts.push((at, id));
    }

    async fn act(&mut self) {
        let node = self.node();
        let action = self.random.below(12);
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
                let weather = Weather {
                    delay_us_max: 1_000 + self.random.below(100_000),
                    loss_percent: self.random.below(30),
                };
                self.cluster.network.set_weather(weather);
            }
            9 => {
                let hours = i64::try_from(self.random.below(51)).unwrap_or_default() - 25;
                self.cluster.jump_clock(node, hours * 3_600_000);
            }
            _ => {
                self.cluster.network.heal();
                self.cluster.network.set_weather(Weather::FAIR);
            }
        }
    }

    /// Cuts links: around one node, in one direction, or at random in both.
    fn partition(&mut self, node: u64) {
        self.partitions += 1;
        let network = self.cluster.network.clone();
        let shape = self.random.below(4);
        let ids = self.cluster.ids();
        // In the last shape this node alone connects two halves.
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
        self.cluster.network.set_weather(Weather::FAIR);
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
