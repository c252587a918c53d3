//! Histories with fixed faults: what one setting of the consensus is for (docs/decisions/0066), and
//! rolling restarts in every order.
//!
//! The histories of [`run`](crate::run) heal every fault before they check liveness. A scenario of
//! a setting keeps its fault.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::client::{Client, Oracle};
use crate::cluster::{Cluster, Crash, RunningNode};
use crate::invariants::InvariantChecks;
use crate::nemesis::TICK;
use crate::network::Network;
use crate::random::Random;
use crate::report::Violation;
use crate::run::{check_agreement, check_liveness, observe, simulate};
use crate::trace::Trace;

/// Time limit for an election, in simulated time.
const ELECTION_MAX: Duration = Duration::from_secs(20);
/// Clients that write during rolling restarts.
const CLIENTS: u64 = 2;
/// Writes that the other nodes must acknowledge while two nodes are stopped.
const WRITES: usize = 3;

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
    /// All nodes are restarted two at a time, in each of the six orders that end with one node. The
    /// seed selects that node, so five consecutive seeds have all 30 orders.
    RollingRestarts,
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
        Scenario::RollingRestarts => rolling_restarts(&cluster, seed, &mut random).await,
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

/// The orders in which nodes can be restarted two at a time, with `last` alone at the end.
fn restart_orders(ids: &[u64], last: u64) -> Vec<[Vec<u64>; 3]> {
    let paired: Vec<u64> = ids.iter().copied().filter(|id| *id != last).collect();
    let mut orders = Vec::new();
    for (at, a) in paired.iter().enumerate() {
        for b in paired.iter().skip(at + 1) {
            let first = vec![*a, *b];
            let rest = paired.iter().copied().filter(|id| !first.contains(id));
            let second: Vec<u64> = rest.collect();
            orders.push([first, second, vec![last]]);
        }
    }
    orders
}

/// Restarts two nodes at a time while clients write. The two nodes before may still lag.
async fn rolling_restarts(
    cluster: &Cluster,
    seed: u64,
    random: &mut Random,
) -> Result<(), Violation> {
    let (oracle, mut checks) = (Oracle::default(), InvariantChecks::default());
    let mut clients = Vec::new();
    for id in 1..=CLIENTS {
        let client = Client {
            id,
            cluster: cluster.clone(),
            oracle: oracle.clone(),
            random: random.fork(),
        };
        clients.push(tokio::spawn(client.run()));
    }
    let ids = cluster.ids();
    let last = 1 + seed % ids.len() as u64;
    for order in restart_orders(&ids, last) {
        for group in order {
            for id in &group {
                cluster.crash(*id, Crash::Kill).await;
            }
            until_written(cluster, &oracle, &mut checks, &group).await?;
            for id in group {
                cluster.start(id).await?;
            }
        }
        // The log is purged, so a node that lags may need a snapshot.
        for running in cluster.all_running() {
            drop(running.node.checkpoint_simulated());
        }
    }
    check_liveness(cluster, &oracle, &mut checks).await?;
    for client in clients {
        let ended = client.await;
        ended.map_err(|error| Violation::new("a client runs", error.to_string()))?;
    }
    check_agreement(cluster, &oracle, &mut checks).await
}

/// Waits until more writes are acknowledged while these nodes are stopped.
async fn until_written(
    cluster: &Cluster,
    oracle: &Oracle,
    checks: &mut InvariantChecks,
    stopped: &[u64],
) -> Result<(), Violation> {
    let written = || oracle.lock().acknowledged.len();
    let (wanted, until) = (written() + WRITES, Instant::now() + ELECTION_MAX);
    while written() < wanted {
        observe(cluster, oracle, checks)?;
        if Instant::now() >= until {
            return Err(Violation::new(
                "liveness: a majority accepts writes",
                format!("no {WRITES} writes in {ELECTION_MAX:?} without the nodes {stopped:?}"),
            ));
        }
        sleep(TICK).await;
    }
    Ok(())
}
