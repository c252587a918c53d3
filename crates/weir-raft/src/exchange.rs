//! Exchanges reports with the other nodes: once before this node takes part, then periodically.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use openraft::Raft;
use openraft::async_runtime::WatchReceiver;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::client::{Peer, Peers};
use crate::machine::StateMachine;
use crate::members::was_removed;
use crate::reports::{Reports, is_ignored};
use crate::types::{Member, Types};

/// Pause between two rounds.
const PAUSE: Duration = Duration::from_secs(1);
/// Time limit for one exchange.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(1);

/// Exchanges reports once. The error is a sentence that says why the other node has not replied.
async fn exchange(reports: &Reports, node: u64, peer: &mut Peer) -> Result<(), String> {
    let (report, seen) = reports.for_peer(node);
    match timeout(EXCHANGE_TIMEOUT, peer.report(&report, &seen)).await {
        Ok(Ok((report, of_this_node))) => {
            reports.record(node, &report, &of_this_node);
            Ok(())
        }
        Ok(Err(error)) => {
            let why = error.to_string();
            reports.record_refusal(&why);
            Err(why)
        }
        Err(_) => Err("it did not answer in time".to_owned()),
    }
}

/// Logs when a node becomes unreachable or refuses reports, and when exchanges succeed again.
fn log_reachability(node: u64, member: &Member, was_reached: bool, reached: &Result<(), String>) {
    let peer = &member.peer;
    match reached {
        Ok(()) if !was_reached => {
            tracing::info!(node, peer, "reports are exchanged with a node again");
        }
        Err(error) if was_reached => {
            tracing::warn!(node, peer, error, "no reports are exchanged with a node");
        }
        _ => {}
    }
}

/// Requests the reports that all reachable members have seen of this node, before it takes part.
///
/// # Errors
/// A sentence, if the directory is an older copy.
pub(crate) async fn exchange_before_start(
    reports: &Arc<Reports>,
    peers: &Peers,
) -> Result<(), String> {
    if is_ignored() {
        return Ok(());
    }
    let Some(members) = reports.members() else {
        return Ok(());
    };
    let mut clients: Vec<_> = members
        .nodes()
        .filter(|(node, _)| **node != reports.node())
        .map(|(node, member)| (*node, peers.client(*node, member)))
        .collect();
    // The first round requests reports; the second round sends the report of this node.
    for _ in 0..2 {
        let mut requests = JoinSet::new();
        for (node, mut peer) in clients.drain(..) {
            let reports = Arc::clone(reports);
            requests.spawn(async move {
                let has_answered = exchange(&reports, node, &mut peer).await.is_ok();
                has_answered.then_some((node, peer))
            });
        }
        while let Some(answered) = requests.join_next().await {
            clients.extend(answered.ok().flatten());
        }
        if let Some(why) = reports.older() {
            return Err(why);
        }
    }
    reports.save().await;
    Ok(())
}

/// Periodically exchanges reports with all members. Ends the consensus if the directory of this
/// node is an older copy.
pub(crate) async fn watch(reports: Arc<Reports>, raft: Raft<Types, StateMachine>, peers: Peers) {
    let mut older = reports.subscribe();
    // With each client, whether the last exchange has succeeded.
    let mut clients: BTreeMap<u64, (Member, Peer, bool)> = BTreeMap::new();
    let mut is_removal_logged = false;
    loop {
        tokio::select! {
            biased;
            _ = older.wait_for(Option::is_some) => break,
            () = sleep(PAUSE) => {}
        }
        // The responses to the last reports contain the clocks of the other nodes. If this is the
        // first known wall clock, this call records it.
        reports.observe_clock();
        if is_ignored() {
            continue;
        }
        let metrics = raft.metrics().borrow_watched().clone();
        let members = metrics.membership_config.membership();
        clients.retain(|node, (known, ..)| members.get_node(node) == Some(known));
        for (node, member) in members.nodes() {
            if *node == metrics.id {
                continue;
            }
            let client = || (member.clone(), peers.client(*node, member), true);
            let (_, peer, is_reached) = clients.entry(*node).or_insert_with(client);
            let reached = exchange(&reports, *node, peer).await;
            log_reachability(*node, member, *is_reached, &reached);
            *is_reached = reached.is_ok();
        }
        // Not logged when the refusal arrives: before the start, the process may have no log yet.
        if reports.is_removed() && !std::mem::replace(&mut is_removal_logged, true) {
            tracing::error!("{}; end this process", was_removed(metrics.id));
        }
        reports.save().await;
    }
    if let Some(why) = reports.older() {
        tracing::error!("{why}");
    }
    // Shutdown fails if the core has already ended.
    drop(raft.shutdown().await);
}
