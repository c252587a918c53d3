//! Short histories that each show what one setting of the consensus is for (docs/decisions/0066).
//!
//! The histories of [`run`](crate::run) heal every fault before they check liveness. A scenario
//! keeps its fault.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::cluster::{Cluster, Crash, RunningNode};
use crate::nemesis::TICK;
use crate::network::Network;
use crate::random::Random;
use crate::report::Violation;
use crate::run::simulate;
use crate::trace::Trace;

/// Time limit for an election, in simulated time.
const ELECTION_MAX: Duration = Duration::from_secs(20);

/// A scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// One of five nodes is stopped, and the leader reaches only one of the other three. That node
    /// reaches all of them, and rejects other leaders while it receives requests of this leader.
    PartialPartition,
    /// A leader is removed from the cluster, and its process keeps running.
    RemovedLeader,
    /// A follower is cut off for ten seconds.
    CutOffFollower,
}

/// Runs a scenario on a separate thread.
///
/// # Errors
/// The invariant that was violated.
pub fn run_scenario(seed: u64, scenario: Scenario) -> Result<(), Violation> {
    let failed = |why: &str| Violation::new("a simulation runs", why.to_owned());
    let thread = std::thread::Builder::new().stack_size(8 << 20);
    let thread = thread.spawn(move || simulate(seed, history(seed, scenario)));
    let ended = thread.map_err(|error| failed(&error.to_string()))?.join();
    ended.map_err(|_| failed("a panic"))??
}

async fn history(seed: u64, scenario: Scenario) -> Result<(), Violation> {
    let mut random = Random::new(seed);
    let trace = Trace::new();
    let network = Network::new(random.fork(), trace.clone());
    let cluster = Cluster::new(5, random.fork(), network, trace, None);
    for id in cluster.ids() {
        cluster.start(id).await?;
    }
    if let Some(first) = cluster.running(1) {
        let formed = first.node.initialize(cluster.members()).await;
        formed.map_err(|error| Violation::new("a cluster is formed", error.to_string()))?;
    }
    let leader = leader_among(&cluster, &cluster.ids()).await?;
    let mut others = cluster.ids();
    others.retain(|id| *id != leader.id);
    let result = match scenario {
        Scenario::PartialPartition => partial_partition(&cluster, leader.id, &others).await,
        Scenario::RemovedLeader => removed_leader(&cluster, &leader, &others).await,
        Scenario::CutOffFollower => cut_off_follower(&cluster, &leader, &others).await,
    };
    for id in cluster.ids() {
        cluster.crash(id, Crash::Kill).await;
    }
    result
}

/// Waits until one of these nodes leads and has committed an entry of its term.
async fn leader_among(cluster: &Cluster, ids: &[u64]) -> Result<RunningNode, Violation> {
    let until = Instant::now() + ELECTION_MAX;
    while Instant::now() < until {
        let leads = |running: &RunningNode| {
            let status = running.node.status();
            let committed = status.committed.map(|id| id.term);
            running.node.is_leader() && committed == Some(status.term)
        };
        let running = cluster.all_running().into_iter();
        let mut running = running.filter(|running| ids.contains(&running.id));
        if let Some(leader) = running.find(leads) {
            return Ok(leader);
        }
        sleep(TICK).await;
    }
    Err(Violation::new(
        "liveness: nodes that reach each other elect a leader",
        format!("none of {ids:?} leads in {ELECTION_MAX:?}"),
    ))
}

fn cut(cluster: &Cluster, node: u64, from: &[u64]) {
    for other in from {
        cluster.network.cut(node, *other);
        cluster.network.cut(*other, node);
    }
}

async fn partial_partition(
    cluster: &Cluster,
    leader: u64,
    others: &[u64],
) -> Result<(), Violation> {
    let [lost, majority @ ..] = others else {
        return Ok(());
    };
    cluster.crash(*lost, Crash::Kill).await;
    // The first node of the majority still receives requests of the leader.
    cut(cluster, leader, majority.get(1..).unwrap_or_default());
    leader_among(cluster, majority).await.map(drop)
}

async fn removed_leader(
    cluster: &Cluster,
    leader: &RunningNode,
    others: &[u64],
) -> Result<(), Violation> {
    let removed = leader.node.remove(leader.id).await;
    removed.map_err(|error| Violation::new("a leader is removed", error.to_string()))?;
    leader_among(cluster, others).await.map(drop)
}

async fn cut_off_follower(
    cluster: &Cluster,
    leader: &RunningNode,
    others: &[u64],
) -> Result<(), Violation> {
    let [follower, rest @ ..] = others else {
        return Ok(());
    };
    let term = leader.node.status().term;
    cut(cluster, *follower, &[rest, &[leader.id]].concat());
    sleep(Duration::from_secs(10)).await;
    cluster.network.heal();
    sleep(Duration::from_secs(2)).await;
    for running in cluster.all_running() {
        let now = running.node.status().term;
        if now != term {
            return Err(Violation::new(
                "a node that returns does not depose the leader",
                format!("node {} has term {now}, not {term}", running.id),
            ));
        }
    }
    Ok(())
}
