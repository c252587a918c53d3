//! Changes of the members of a cluster, one at a time; each one ends before the next begins.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use weir_raft::Member;

use crate::cluster::Cluster;
use crate::network::address;
use crate::random::Random;
use crate::report::Violation;

/// The minimum and the maximum of voters in a cluster.
const VOTERS: (usize, usize) = (3, 5);
/// Time limit for a leader to execute one step.
const STEP_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause before a change is retried.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug)]
enum Change {
    Add(u64),
    Remove(u64),
}

/// The current change, and the time of the next one.
pub(crate) struct Changes {
    cluster: Cluster,
    random: Random,
    next: Instant,
    current: Option<(Change, JoinHandle<()>)>,
    pub(crate) completed: u64,
}

impl Changes {
    pub(crate) fn new(cluster: Cluster, random: Random) -> Self {
        Self {
            cluster,
            random,
            next: Instant::now() + STEP_TIMEOUT,
            current: None,
            completed: 0,
        }
    }

    /// Ends a finished change, or begins a change that is due.
    pub(crate) async fn tick(&mut self) -> Result<(), Violation> {
        self.collect().await;
        if self.current.is_some() || Instant::now() < self.next {
            return Ok(());
        }
        let ids = self.cluster.ids();
        let adds = ids.len() <= VOTERS.0 || (ids.len() < VOTERS.1 && self.random.chance(50));
        let change = if adds {
            let id = self.cluster.add();
            self.cluster.start(id).await?;
            Change::Add(id)
        } else {
            Change::Remove(self.random.pick(&ids).copied().unwrap_or_default())
        };
        let (kind, id) = match change {
            Change::Add(id) => (0, id),
            Change::Remove(id) => (1, id),
        };
        self.cluster.trace.add("change", &[kind, id], &[]);
        let task = tokio::spawn(execute(self.cluster.clone(), change));
        self.current = Some((change, task));
        Ok(())
    }

    async fn collect(&mut self) {
        let Some((change, _)) = self.current.take_if(|(_, task)| task.is_finished()) else {
            return;
        };
        // The removal is committed, so no node relies on the removed node.
        if let Change::Remove(id) = change {
            self.cluster.discard(id).await;
        }
        self.completed += 1;
        self.next = Instant::now() + self.random.millis(100, 2_000);
    }

    /// Waits for the current change, after the faults.
    pub(crate) async fn end(&mut self, within: Duration) -> Result<(), Violation> {
        let until = Instant::now() + within;
        self.next = until + within;
        while let Some((change, _)) = &self.current {
            if Instant::now() >= until {
                return Err(Violation::new(
                    "liveness: a change of the members is committed",
                    format!("{change:?} in {within:?}"),
                ));
            }
            sleep(PAUSE).await;
            self.collect().await;
        }
        Ok(())
    }
}

/// Retries the change with the current leader until it is committed.
async fn execute(cluster: Cluster, change: Change) {
    loop {
        // The next step sees the result of a late step.
        if let Ok(true) = timeout(STEP_TIMEOUT, step(&cluster, change)).await {
            return;
        }
        sleep(PAUSE).await;
    }
}

/// Whether the change is committed.
async fn step(cluster: &Cluster, change: Change) -> bool {
    let running = cluster.all_running();
    let leader = running.iter().find(|running| running.node.is_leader());
    let Some(node) = leader.map(|leader| &leader.node) else {
        return false;
    };
    let members = node.status().members;
    match change {
        Change::Add(id) => {
            if !members.contains_key(&id) {
                let member = Member {
                    peer: address(id),
                    ..Member::default()
                };
                if node.add_learner(id, member).await.is_err() {
                    return false;
                }
            }
            let voters = members.iter().filter(|(_, (_, votes))| *votes);
            let voters = voters.map(|(voter, _)| *voter).chain([id]);
            node.change_voters(voters).await.is_ok()
        }
        Change::Remove(id) => {
            if members.contains_key(&id) {
                return node.remove(id).await.is_ok();
            }
            // An earlier step has removed the node, perhaps in an entry that is not committed yet.
            let last = node.status().last;
            let is_committed = |status: &weir_raft::Status| status.committed >= last;
            node.until(is_committed).await.is_ok() && node.is_leader()
        }
    }
}
