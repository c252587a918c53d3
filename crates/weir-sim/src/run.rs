//! Runs one simulation: starts a cluster, injects faults, heals it, and checks the invariants.

use std::fmt;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::change::Changes;
use crate::client::{Client, Oracle};
use crate::cluster::{Cluster, Crash, RunningNode};
use weir_raft::sim::Fault;

use crate::invariants::{InvariantChecks, agreement, members};
use crate::listener::Listener;
use crate::nemesis::{Nemesis, TICK};
use crate::network::Network;
use crate::random::Random;
use crate::report::{DiskFault, Planted, Report, Violation};
use crate::trace::Trace;
use crate::worker::Worker;

/// Length of the phase with faults, in simulated time.
const SAFETY: Duration = Duration::from_secs(8);
/// Time limit for the healed cluster to serve all clients, and again for catching up, in simulated
/// time.
const LIVENESS: Duration = Duration::from_secs(20);
/// Time limit for one call that forms the cluster.
const FORM_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause before that call is repeated.
const FORM_PAUSE: Duration = Duration::from_millis(50);
const CLIENTS: u64 = 3;
/// Members of the group, in histories that have one.
const WORKERS: u64 = 2;
/// Listeners of the topic, in histories that have some.
const LISTENERS: u64 = 2;
/// Time limit for a history in wall-clock time, a hundred times as long as most need. A history
/// that exceeds it never ends, because its simulated time has stopped.
const HISTORY_MAX: Duration = Duration::from_mins(5);

/// Runs the history of `seed` on a separate thread.
///
/// # Errors
/// The first invariant that was violated.
pub fn run(seed: u64, planted: Option<Planted>) -> Result<Report, Violation> {
    run_thread(seed, planted, None)
}

/// As [`run`], with a fault of the disk of one node.
///
/// # Errors
/// The first invariant that was violated.
pub fn run_with_disk_fault(seed: u64, fault: DiskFault) -> Result<Report, Violation> {
    run_thread(seed, None, Some(fault))
}

fn run_thread(
    seed: u64,
    planted: Option<Planted>,
    disk_fault: Option<DiskFault>,
) -> Result<Report, Violation> {
    let failed = |what: &dyn fmt::Debug| Violation::new("a simulation runs", format!("{what:?}"));
    let (sender, result) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().stack_size(8 << 20);
    let thread = thread.spawn(move || {
        // If the result is late, no caller waits for it.
        drop(sender.send(run_here(seed, planted, disk_fault)));
    });
    thread.map_err(|error| failed(&error))?;
    match result.recv_timeout(HISTORY_MAX) {
        Ok(result) => result,
        Err(RecvTimeoutError::Disconnected) => Err(failed(&"a panic")),
        Err(RecvTimeoutError::Timeout) => Err(Violation::new(
            "a history ends",
            format!("it still runs after {HISTORY_MAX:?} of real time"),
        )),
    }
}

fn run_here(
    seed: u64,
    planted: Option<Planted>,
    disk_fault: Option<DiskFault>,
) -> Result<Report, Violation> {
    if let Some(fault) = planted.and_then(fault_of) {
        weir_raft::sim::plant(fault);
    }
    if let Some(DiskFault::LostUnnoticed | DiskFault::OlderCopyUnnoticed) = disk_fault {
        weir_raft::sim::plant(Fault::ReportsIgnored);
    }
    if disk_fault == Some(DiskFault::FlippedBitUnchecked) {
        weir_store::disk::trust_payloads();
    }
    simulate(seed, history(seed, planted, disk_fault))?
}

/// Runs a history on this thread, in simulated time.
pub(crate) fn simulate<F: Future>(seed: u64, history: F) -> Result<F::Output, Violation> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let runtime =
        runtime.map_err(|error| Violation::new("a simulation runs", error.to_string()))?;
    weir_raft::sim::seed_thread(seed);
    Ok(runtime.block_on(history))
}

/// Maps a planted fault to the fault inside the node, if the node commits it.
fn fault_of(planted: Planted) -> Option<Fault> {
    match planted {
        Planted::VoteNotSaved => Some(Fault::VoteNotSaved),
        Planted::SyncReportedEarly => Some(Fault::SyncReportedEarly),
        Planted::TruncationKeepsWaiters => Some(Fault::TruncationKeepsWaiters),
        Planted::SnapshotWithoutMembership => Some(Fault::SnapshotWithoutMembership),
        Planted::SyncSkipped
        | Planted::LocalRead
        | Planted::LeaderByClock
        | Planted::ListenerResumesEarly
        | Planted::ListenerResumesLate => None,
    }
}

/// Whether a history has listeners. A fault of another part must be found without them.
fn has_listeners(planted: Option<Planted>, disk_fault: Option<DiskFault>) -> bool {
    use Planted::{ListenerResumesEarly, ListenerResumesLate};
    let is_of_listener = matches!(planted, Some(ListenerResumesEarly | ListenerResumesLate));
    disk_fault.is_none() && (planted.is_none() || is_of_listener)
}

async fn history(
    seed: u64,
    planted: Option<Planted>,
    disk_fault: Option<DiskFault>,
) -> Result<Report, Violation> {
    let mut random = Random::new(seed);
    let trace = Trace::new();
    let network = Network::new(random.fork(), trace.clone());
    let nodes = if random.chance(70) { 3 } else { 5 };
    let cluster = Cluster::new(nodes, random.fork(), network, trace.clone(), planted);
    // Every other history also has a group, and changes of the members.
    let has_group = seed % 2 == 1 && planted.is_none() && disk_fault.is_none();
    let result = phases(&cluster, &mut random, disk_fault, has_group).await;
    for id in cluster.ids() {
        cluster.crash(id, Crash::Kill).await;
    }
    result
}

async fn phases(
    cluster: &Cluster,
    random: &mut Random,
    disk_fault: Option<DiskFault>,
    has_group: bool,
) -> Result<Report, Violation> {
    for id in cluster.ids() {
        cluster.start(id).await?;
    }
    let forming = tokio::spawn(form(cluster.clone()));
    if cluster.planted.is_some() || disk_fault.is_some() {
        // A damaged disk must be one of the disks with which the cluster was formed, and a planted
        // fault must be found in a formed cluster.
        let formed = forming.await;
        formed.map_err(|error| Violation::new("a cluster is formed", error.to_string()))?;
    }
    let oracle = Oracle::default();
    let client = |id, random| Client {
        id,
        cluster: cluster.clone(),
        oracle: oracle.clone(),
        random,
    };
    let mut clients = Vec::new();
    for id in 1..=CLIENTS {
        clients.push(tokio::spawn(client(id, random.fork()).run()));
    }
    let mut checks = InvariantChecks::default();
    let mut nemesis = Nemesis::new(cluster.clone(), random.fork(), disk_fault);
    let mut changes = has_group.then(|| Changes::new(cluster.clone(), random.fork()));
    if has_group {
        for id in CLIENTS + 1..=CLIENTS + WORKERS {
            let client = client(id, random.fork());
            let worker = Worker { client, nonce: 0 };
            clients.push(tokio::spawn(worker.run()));
        }
    }
    if has_listeners(cluster.planted, disk_fault) {
        let first = CLIENTS + WORKERS + 1;
        for id in first..first + LISTENERS {
            let listener = Listener::new(client(id, random.fork()));
            clients.push(tokio::spawn(listener.run()));
        }
    }
    let until = Instant::now() + SAFETY;
    while Instant::now() < until {
        nemesis.tick().await?;
        if let Some(changes) = &mut changes {
            changes.tick().await?;
        }
        observe(cluster, &oracle, &mut checks)?;
    }
    nemesis.end().await?;
    if let Some(changes) = &mut changes {
        changes.end(LIVENESS).await?;
    }
    check_liveness(cluster, &oracle, &mut checks).await?;
    for client in clients {
        let ended = client.await;
        ended.map_err(|error| Violation::new("a client runs", error.to_string()))?;
    }
    check_agreement(cluster, &oracle, &mut checks).await?;
    let state = oracle.lock();
    Ok(Report {
        trace: cluster.trace.sum(),
        acknowledged: state.acknowledged.len() as u64,
        linear_reads: state.linear_reads,
        messages: cluster.network.messages(),
        power_cuts: nemesis.power_cuts,
        partitions: nemesis.partitions,
        bridges_of_five: nemesis.bridges_of_five,
        rolling_restarts: nemesis.rolling_restarts,
        clock_jumps: nemesis.clock_jumps,
        installs: checks.installs,
        checkpoints: nemesis.checkpoints,
        transfers: nemesis.transfers,
        claimed: state.claims.len() as u64,
        delivered: state.delivered.len() as u64,
        changes: changes.map_or(0, |changes| changes.completed),
        excluded: cluster.excluded_count(),
    })
}

/// Forms the cluster. A power cut can remove the first entry until the node has reported that the
/// cluster is formed, so the call is repeated until then.
async fn form(cluster: Cluster) {
    let members = cluster.members();
    loop {
        if let Some(first) = cluster.running(1) {
            cluster.trace.add("form", &[first.id, first.run], &[]);
            let formed = first.node.initialize(members.clone());
            if let Ok(Ok(())) = timeout(FORM_TIMEOUT, formed).await {
                return;
            }
        }
        // An earlier call may have formed the cluster after its error.
        let running = cluster.all_running();
        let is_member = |running: &RunningNode| running.node.status().applied.is_some();
        if running.iter().any(is_member) {
            return;
        }
        sleep(FORM_PAUSE).await;
    }
}

/// Checks the invariants that hold at every moment. Returns the violation that a client has found.
pub(crate) fn observe(
    cluster: &Cluster,
    oracle: &Oracle,
    checks: &mut InvariantChecks,
) -> Result<(), Violation> {
    for running in cluster.all_running() {
        checks.check(
            &running,
            cluster.is_off(running.id),
            cluster.is_older(running.id),
        )?;
    }
    match oracle.lock().violation.take() {
        Some(violation) => Err(violation),
        None => Ok(()),
    }
}

/// Waits until the healed cluster has acknowledged 10 more writes and 5 more linear reads.
pub(crate) async fn check_liveness(
    cluster: &Cluster,
    oracle: &Oracle,
    checks: &mut InvariantChecks,
) -> Result<(), Violation> {
    let progress = || {
        let state = oracle.lock();
        (state.acknowledged.len(), state.linear_reads)
    };
    let (writes, reads) = progress();
    let until = Instant::now() + LIVENESS;
    loop {
        cluster.end_refused().await;
        observe(cluster, oracle, checks)?;
        let (writes_now, reads_now) = progress();
        if writes_now >= writes + 10 && reads_now >= reads + 5 {
            oracle.lock().is_over = true;
            return Ok(());
        }
        if Instant::now() >= until {
            let (writes, reads) = (writes_now - writes, reads_now - reads);
            return Err(Violation::new(
                "liveness: a healed cluster serves",
                format!("{writes} writes and {reads} reads in {LIVENESS:?}"),
            ));
        }
        sleep(TICK).await;
    }
}

/// Waits until all nodes have applied the newest entry, then checks that their states agree and contain
/// every acknowledged write.
pub(crate) async fn check_agreement(
    cluster: &Cluster,
    oracle: &Oracle,
    checks: &mut InvariantChecks,
) -> Result<(), Violation> {
    let until = Instant::now() + LIVENESS;
    loop {
        cluster.end_refused().await;
        observe(cluster, oracle, checks)?;
        let usable = cluster.usable();
        let mut nodes = cluster.all_running();
        nodes.retain(|running| usable.contains(&running.id));
        let states: Vec<_> = nodes.iter().map(|running| running.node.status()).collect();
        let newest = states.iter().map(|status| status.last).max().flatten();
        let is_caught_up = |status: &weir_raft::Status| status.applied == newest;
        if nodes.len() == usable.len() && states.iter().all(is_caught_up) {
            agreement::check(&nodes)?;
            members::check_excluded(&cluster.excluded_running())?;
            members::check(&states, &cluster.ids())?;
            for running in &nodes {
                let records = agreement::records(running)?;
                oracle.lock().acknowledged.check(running.id, &records)?;
                oracle.lock().claims.check(running)?;
                oracle.lock().delivered.check(running.id, &records)?;
                oracle.lock().rejected.check(running.id, &records)?;
            }
            return Ok(());
        }
        if Instant::now() >= until {
            let states: Vec<_> = states.iter().map(|s| (s.node, s.role, s.applied)).collect();
            return Err(Violation::new(
                "liveness: all nodes catch up",
                format!("{states:?} in {LIVENESS:?}"),
            ));
        }
        sleep(TICK).await;
    }
}
