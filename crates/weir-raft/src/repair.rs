//! Puts the state of the leader in the place of that of a node which has another one.
//!
//! The node stops applying, the leader sends its state after an entry that the node may have
//! applied already, the node applies up to that entry and takes the state. A topic that differs a
//! second time is stopped by the leader for all nodes: the same log has made two states of it again.
//!
//! Invariant: a state is only replaced by one after the same entry, so nothing is applied twice or
//! left out.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use openraft::Raft;
use openraft::async_runtime::WatchReceiver;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use weir_core::Intention;
use weir_core::intention::Operation;
use weir_store::replica::{Replica, StagedSnapshot};
use weir_store::{LogIndex, Store};

use crate::client::Peers;
use crate::convert::{entry_id, io_error};
use crate::gate::Gate;
use crate::machine::{StateMachine, StateMachineSnapshot, blocking};
use crate::types::Types;

/// How long a node may take to apply up to the entry of a state.
const APPLY_TIMEOUT: Duration = Duration::from_mins(1);
/// Pause before it is looked at again.
const APPLY_PAUSE: Duration = Duration::from_millis(5);

/// What a node needs to repair others, and to be repaired.
pub(crate) struct Repairs {
    pub(crate) gate: Gate,
    pub(crate) store: Arc<Store>,
    /// Topics that differed on a node since this one was opened.
    differed: Mutex<BTreeSet<String>>,
}

impl Repairs {
    pub(crate) fn new(gate: Gate, store: Arc<Store>) -> Self {
        Self {
            gate,
            store,
            differed: Mutex::default(),
        }
    }

    /// Sends the state of this leader to a node that has applied nothing after `applied`.
    pub(crate) async fn send(
        &self,
        node: u64,
        applied: LogIndex,
        raft: &Raft<Types, StateMachine>,
        replica: &Replica,
        peers: &Peers,
    ) -> Result<Vec<String>, String> {
        let metrics = raft.metrics().borrow_watched().clone();
        let members = metrics.membership_config.membership();
        let member = members.get_node(&node).cloned();
        let member = member.ok_or_else(|| "the caller is no member".to_owned())?;
        if metrics.current_leader != Some(metrics.id) {
            return Err("this node does not lead".to_owned());
        }
        let raft_index = applied.0.checked_sub(1);
        let wait = raft.wait(Some(APPLY_TIMEOUT));
        let waited = wait
            .applied_index_at_least(raft_index, "a node is repaired")
            .await;
        waited.map_err(|error| error.to_string())?;
        let source = replica.clone();
        let made = blocking(move || {
            source.checkpoint().map_err(io_error)?;
            source.ship().map_err(io_error)
        });
        let made = made.await.map_err(|error| error.to_string())?;
        let made = made.ok_or_else(|| "the snapshot that was made is not there".to_owned())?;
        let mut peer = peers.client(node, &member);
        let snapshot = StateMachineSnapshot::of(made);
        let restored = peer.restore(metrics.vote, snapshot).await;
        let topics = restored.map_err(|error| error.to_string())?;
        tracing::error!(
            node,
            ?topics,
            "a node had another state, and got that of the leader"
        );
        for topic in &topics {
            let is_again = !self.differed.lock().insert(topic.clone());
            if is_again {
                self.stop(topic).await;
            }
        }
        Ok(topics)
    }

    /// Stops a topic for all nodes.
    async fn stop(&self, topic: &str) {
        let stop = Intention::new(topic, Operation::Quarantine { stopped: true });
        let stopped = match self.store.propose(&[stop]) {
            Ok(proposal) => proposal.await.map(drop),
            Err(error) => Err(error),
        };
        match stopped {
            Ok(()) => tracing::error!(topic, "a topic differed on a node again, and is stopped"),
            Err(error) => tracing::error!(topic, %error, "a topic that differs was not stopped"),
        }
    }

    /// Puts a state that the leader has sent in the place of that of this node.
    pub(crate) async fn take(
        &self,
        staged: StagedSnapshot,
        replica: &Replica,
    ) -> Result<Vec<String>, String> {
        let index = staged.id().index;
        if !self.gate.raise(index) {
            return Err("this node has not asked for a state".to_owned());
        }
        let until = Instant::now() + APPLY_TIMEOUT;
        // openraft learns of an entry only with those after it, which wait at the gate.
        while replica.applied().last.is_none_or(|last| last.index < index) {
            if Instant::now() >= until {
                return Err("this node did not get so far in time".to_owned());
            }
            sleep(APPLY_PAUSE).await;
        }
        let replica = replica.clone();
        let restored = blocking(move || replica.restore(staged).map_err(io_error));
        restored.await.map_err(|error| error.to_string())
    }
}

/// Asks the leader for its state, and has it take the place of that of this node.
pub(crate) async fn ask(
    repairs: &Repairs,
    raft: &Raft<Types, StateMachine>,
    peers: &Peers,
) -> io::Result<()> {
    let closed = repairs.gate.close();
    let metrics = raft.metrics().borrow_watched().clone();
    // What may be on its way to be applied.
    let committed = metrics.local_committed.as_ref();
    let applied = committed.map_or(LogIndex::ZERO, |id| entry_id(id).index);
    let members = metrics.membership_config.membership();
    let leader = metrics.current_leader.filter(|node| *node != metrics.id);
    let found = leader.and_then(|node| Some((node, members.get_node(&node)?)));
    let repaired = match found {
        Some((node, member)) => {
            let mut peer = peers.client(node, member);
            // A new leader, perhaps this node, must apply what it commits.
            tokio::select! {
                repaired = peer.repair(applied) => repaired,
                () = until_another_leads(node, raft) => Err(io::Error::other("the leader has changed")),
            }
        }
        None => Err(io::Error::other("no leader is known at present")),
    };
    drop(closed);
    repaired
}

/// Waits until this node does not follow the leader `node` any more.
async fn until_another_leads(node: u64, raft: &Raft<Types, StateMachine>) {
    let mut metrics = raft.server_metrics();
    while metrics.borrow_and_update().current_leader == Some(node) {
        if metrics.changed().await.is_err() {
            return;
        }
    }
}
