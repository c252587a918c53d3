//! Replaces the state of a node that differs from the state of the leader.
//!
//! The node stops applying. The leader sends its state after an entry that the node may have
//! applied already. The node applies up to that entry, and then replaces its state. If a topic
//! differs a second time, the leader stops it on all nodes: the same log has produced two different
//! states again. The leader trusts the names that the node reports (docs/decisions/0083).
//!
//! Invariant: the new state is after the same entry as the old one, so no entry is applied twice or
//! skipped.

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

/// Time limit for a node to apply up to the entry of the new state.
const APPLY_TIMEOUT: Duration = Duration::from_mins(1);
/// Pause between two checks of the applied entry.
const APPLY_PAUSE: Duration = Duration::from_millis(5);

/// State for repairing other nodes, and for being repaired.
pub(crate) struct Repairs {
    pub(crate) gate: Gate,
    pub(crate) store: Arc<Store>,
    /// Topics that differed on a node since this node was opened.
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
        let member = member.ok_or_else(|| "the caller is not a member".to_owned())?;
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
        let snapshot = blocking(move || {
            source.checkpoint().map_err(io_error)?;
            source.ship().map_err(io_error)
        });
        let snapshot = snapshot.await.map_err(|error| error.to_string())?;
        let snapshot = snapshot.ok_or_else(|| "the new snapshot is missing".to_owned())?;
        let mut peer = peers.client(node, &member);
        let snapshot = StateMachineSnapshot::of(snapshot);
        let restored = peer.restore(metrics.vote, snapshot).await;
        let topics = restored.map_err(|error| error.to_string())?;
        tracing::error!(
            node,
            ?topics,
            "the state of a node differed, and was replaced by that of the leader"
        );
        for topic in self.differed_again(&topics) {
            self.stop(topic).await;
        }
        Ok(topics)
    }

    /// Records the topics that a node has named, and returns those that had differed before.
    /// Ignores names of topics that do not exist on this node.
    fn differed_again<'a>(&self, topics: &'a [String]) -> Vec<&'a String> {
        let exists = |topic: &&String| {
            let state = self.store.topic_state(topic);
            state.is_some_and(|state| state.incarnation.is_some())
        };
        let mut differed = self.differed.lock();
        let named = topics.iter().filter(exists);
        named
            .filter(|topic| !differed.insert((*topic).clone()))
            .collect()
    }

    /// Stops a topic on all nodes.
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

    /// Replaces the state of this node with the state that the leader has sent.
    pub(crate) async fn install(
        &self,
        staged: StagedSnapshot,
        replica: &Replica,
    ) -> Result<Vec<String>, String> {
        let index = staged.id().index;
        if !self.gate.raise(index) {
            return Err("this node has not requested a state".to_owned());
        }
        let until = Instant::now() + APPLY_TIMEOUT;
        // openraft reports an entry as applied only with the entries after it, which wait at the
        // gate.
        while replica.applied().last.is_none_or(|last| last.index < index) {
            if Instant::now() >= until {
                return Err(
                    "this node did not apply up to the entry of the state in time".to_owned(),
                );
            }
            sleep(APPLY_PAUSE).await;
        }
        let replica = replica.clone();
        let restored = blocking(move || replica.restore(staged).map_err(io_error));
        restored.await.map_err(|error| error.to_string())
    }
}

/// Requests the state of the leader, which then replaces the state of this node.
pub(crate) async fn request(
    repairs: &Repairs,
    raft: &Raft<Types, StateMachine>,
    peers: &Peers,
) -> io::Result<()> {
    let closed = repairs.gate.close();
    let metrics = raft.metrics().borrow_watched().clone();
    // Includes entries that may be about to be applied.
    let committed = metrics.local_committed.as_ref();
    let applied = committed.map_or(LogIndex::ZERO, |id| entry_id(id).index);
    let members = metrics.membership_config.membership();
    let leader = metrics.current_leader.filter(|node| *node != metrics.id);
    let found = leader.and_then(|node| Some((node, members.get_node(&node)?)));
    let repaired = match found {
        Some((node, member)) => {
            let mut peer = peers.client(node, member);
            // A new leader, perhaps this node, must apply the entries that it commits.
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

/// Waits until this node no longer follows the leader `node`.
async fn until_another_leads(node: u64, raft: &Raft<Types, StateMachine>) {
    let mut metrics = raft.server_metrics();
    while metrics.borrow_and_update().current_leader == Some(node) {
        if metrics.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use weir_core::TopicOptions;
    use weir_store::OpenOptions;

    use super::*;

    #[test]
    fn only_existing_topics_can_differ_again() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), &OpenOptions::default()).unwrap();
        let options = &TopicOptions::default();
        for (topic, operation) in [
            ("t", Operation::Create { options }),
            ("destroyed", Operation::Create { options }),
            ("destroyed", Operation::Destroy),
        ] {
            let proposed = store.propose(&[Intention::new(topic, operation)]);
            proposed.unwrap().wait().unwrap();
        }
        let repairs = Repairs::new(Gate::default(), Arc::new(store));
        let named = ["absent", "destroyed", "", "t"].map(str::to_owned);
        assert!(repairs.differed_again(&named).is_empty());
        assert_eq!(repairs.differed_again(&named), ["t"]);
        assert_eq!(repairs.differed.lock().len(), 1);
    }
}
