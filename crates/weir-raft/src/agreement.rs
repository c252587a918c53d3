//! Compares the applied state of this node with that of the leader, and requests a repair if they
//! differ.
//!
//! Nodes that apply one log have one state. A fault of memory, disk or a program can make the state
//! of a node differ. Such a node would return wrong reads, and could be elected leader.
//!
//! Invariants: a divergence that was found is reported until the state is replaced, a later
//! comparison finds equal states, or the process ends; a state is replaced only if a majority has a
//! different state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use openraft::Raft;
use openraft::async_runtime::WatchReceiver;
use tokio::time::Instant;
use weir_core::Digest;
use weir_store::LogIndex;

use crate::client::{Peer, Peers};
use crate::machine::StateMachine;
use crate::repair::{self, Repairs};
use crate::types::Types;
use crate::wire::Agreement;

/// Pause between two comparisons.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause before a node that differs repeats a comparison that did not lead to a repair. Without
/// writes, there is no newer digest.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_mins(1);

/// Whether the state of this node differs from that of a leader, and how often it was repaired.
#[derive(Clone, Debug, Default)]
pub(crate) struct Diverged(Arc<(AtomicBool, AtomicU64)>);

impl Diverged {
    pub(crate) fn is_diverged(&self) -> bool {
        self.0.0.load(Ordering::Relaxed)
    }

    pub(crate) fn repairs(&self) -> u64 {
        self.0.1.load(Ordering::Relaxed)
    }

    fn set_diverged(&self) {
        self.0.0.store(true, Ordering::Relaxed);
    }

    /// Records that the state equals that of a leader: an ordinary snapshot has replaced it, or a
    /// leader whose state differed does not lead any more.
    fn set_equal(&self) {
        if self.0.0.swap(false, Ordering::Relaxed) {
            tracing::warn!("the state of this node equals that of the leader again");
        }
    }

    fn set_repaired(&self) {
        self.0.1.fetch_add(1, Ordering::Relaxed);
        self.0.0.store(false, Ordering::Relaxed);
    }
}

/// Repeatedly compares the newest digest, which `sample` returns with its entry, with that of the
/// leader. While the state differs, compares a digest again after `retry`.
pub(crate) async fn watch(
    sample: impl Fn() -> Option<(LogIndex, Digest)>,
    raft: Raft<Types, StateMachine>,
    peers: Peers,
    diverged: Diverged,
    repairs: Arc<Repairs>,
    retry: Duration,
) {
    let (mut compared, mut compared_at) = (LogIndex::ZERO, Instant::now());
    let mut known: Option<(u64, Peer)> = None;
    loop {
        tokio::time::sleep(PAUSE).await;
        if diverged.is_diverged() && compared_at.elapsed() >= retry {
            compared = LogIndex::ZERO;
        }
        let newest = sample().filter(|(index, _)| *index != compared);
        let Some((index, digest)) = newest else {
            continue;
        };
        let Some((leader, mut peer)) = leader(&raft, &peers, known.take()) else {
            continue;
        };
        // An unreachable leader is asked again in the next round.
        let Ok(agreement) = peer.compare(index, digest).await else {
            continue;
        };
        known = Some((leader, peer));
        (compared, compared_at) = (index, Instant::now());
        if agreement == Agreement::Equal {
            diverged.set_equal();
        }
        if agreement == Agreement::Different {
            tracing::error!(
                leader,
                index = index.0,
                %digest,
                "the state of this node differs from that of the leader"
            );
            diverged.set_diverged();
            if !is_outvoted(index, digest, leader, &raft, &peers).await {
                tracing::error!(
                    "this node keeps its state: no majority is known to have a different one; if \
                     only the leader has its state, transfer the leadership (`weir cluster \
                     transfer`)"
                );
                continue;
            }
            match repair::request(&repairs, &raft, &peers).await {
                Ok(()) => {
                    tracing::error!("the state of this node was replaced by that of the leader");
                    diverged.set_repaired();
                    compared = LogIndex::ZERO;
                }
                Err(error) => {
                    tracing::error!(%error, "this node did not receive the state of the leader");
                    // The request may have taken longer than the pause.
                    compared_at = Instant::now();
                }
            }
        }
    }
}

/// Whether a majority of the voters, including the leader, has a state that differs from that of
/// this node.
async fn is_outvoted(
    index: LogIndex,
    digest: Digest,
    leader: u64,
    raft: &Raft<Types, StateMachine>,
    peers: &Peers,
) -> bool {
    let metrics = raft.metrics().borrow_watched().clone();
    let members = metrics.membership_config.membership();
    let voters: Vec<u64> = members.voter_ids().collect();
    let mut differing = 1;
    for node in &voters {
        if [metrics.id, leader].contains(node) {
            continue;
        }
        if let Some(member) = members.get_node(node) {
            let asked = peers.client(*node, member).compare(index, digest).await;
            differing += usize::from(asked.is_ok_and(|found| found == Agreement::Different));
        }
    }
    differing * 2 > voters.len()
}

/// A client for the leader, if a leader is known and is another node.
fn leader(
    raft: &Raft<Types, StateMachine>,
    peers: &Peers,
    known: Option<(u64, Peer)>,
) -> Option<(u64, Peer)> {
    let metrics = raft.metrics();
    let metrics = metrics.borrow_watched();
    let leader = metrics.current_leader.filter(|node| *node != metrics.id)?;
    let known = known.filter(|(node, _)| *node == leader);
    known.or_else(|| {
        let members = metrics.membership_config.membership();
        Some((leader, peers.client(leader, members.get_node(&leader)?)))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use tokio::net::TcpListener;
    use weir_core::intention::{Intention, Operation};
    use weir_core::{Digest, TopicOptions};
    use weir_store::{Durability, LogIndex, OpenOptions};

    use super::{Diverged, RETRY_PAUSE, watch};
    use crate::gate::Gate;
    use crate::join::{JoinRequest, join};
    use crate::node::{Node, NodeConfig, Status};
    use crate::repair::Repairs;
    use crate::types::Member;
    use crate::wire::Agreement;

    async fn open(config: NodeConfig, listener: TcpListener) -> (tempfile::TempDir, Node) {
        let directory = tempfile::tempdir().unwrap();
        let options = OpenOptions {
            durability: Durability::Memory,
            ..OpenOptions::default()
        };
        let node = Node::open(directory.path(), &options, config, listener).await;
        (directory, node.unwrap())
    }

    async fn listen() -> (TcpListener, Member) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let member = Member {
            peer: listener.local_addr().unwrap().to_string(),
            ..Member::default()
        };
        (listener, member)
    }

    /// A leader that is the only voter, and a learner that has applied all entries of the leader.
    async fn pair() -> [(tempfile::TempDir, Node); 2] {
        let (listener, member) = listen().await;
        let config = NodeConfig {
            node: 1,
            cluster: [8; 16],
            incarnation: 0,
        };
        let (first, leader) = open(config, listener).await;
        leader
            .initialize(BTreeMap::from([(1, member)]))
            .await
            .unwrap();
        // A learner: then the only voter leads, also on a slow machine.
        let (listener, member) = listen().await;
        let request = JoinRequest {
            known: None,
            node: None,
            member,
            engine: String::new(),
            is_synced: false,
        };
        let members = [leader.address().to_string()];
        let joined = join(&members, &request, Duration::from_mins(1)).await;
        let (second, follower) = open(joined.unwrap(), listener).await;
        let options = &TopicOptions::default();
        let create = Intention::new("t", Operation::Create { options });
        let proposed = leader.store().propose(&[create]);
        proposed.unwrap().await.unwrap();
        for _ in 0..300 {
            let (key, value) = (b"k".as_slice(), b"v".as_slice());
            let put = Intention::new("t", Operation::Put { key, value });
            let proposed = leader.store().propose(&[put]);
            proposed.unwrap().await.unwrap();
        }
        let last = leader.status().last;
        let caught_up = |status: &Status| status.applied >= last;
        follower.until(caught_up).await.unwrap();
        [(first, leader), (second, follower)]
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_with_another_state_than_the_leader_is_found() {
        let [(_first, leader), (_second, follower)] = pair().await;
        let (index, digest) = leader.replica.digest_sample().unwrap();
        assert_eq!(index, LogIndex(256));
        assert_eq!(follower.replica.digest_sample(), Some((index, digest)));

        let status = leader.status();
        let (member, _) = &status.members[&status.node];
        let mut peer = follower.peers.client(status.node, member);
        for (index, digest, agreement) in [
            (index, digest, Agreement::Equal),
            (index, Digest(!digest.0), Agreement::Different),
            (LogIndex(512), digest, Agreement::Unknown),
            (LogIndex(255), digest, Agreement::Unknown),
        ] {
            assert_eq!(peer.compare(index, digest).await.unwrap(), agreement);
        }

        let watched = |digest| {
            let diverged = Diverged::default();
            let (raft, peers) = (follower.raft.clone(), follower.peers.clone());
            let sample = move || Some((index, digest));
            let repairs = Arc::clone(&follower.repairs);
            let watched = watch(sample, raft, peers, diverged.clone(), repairs, RETRY_PAUSE);
            (diverged, tokio::spawn(watched))
        };
        let (equal, first) = watched(digest);
        let (differs, second) = watched(Digest(digest.0 ^ 1));
        while !differs.is_diverged() {
            tokio::task::yield_now().await;
        }
        assert!(!equal.is_diverged());
        assert!(!follower.status().diverged && !leader.status().diverged);
        first.abort();
        second.abort();
        follower.close().await.unwrap();
        leader.close().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_equal_comparison_ends_a_divergence() {
        let [(_first, leader), (_second, follower)] = pair().await;
        let (index, digest) = leader.replica.digest_sample().unwrap();
        let is_equal = Arc::new(AtomicBool::new(false));
        let equal = Arc::clone(&is_equal);
        let sample = move || {
            let differs = !equal.load(Ordering::Relaxed);
            Some((index, Digest(digest.0 ^ u64::from(differs))))
        };
        let diverged = Diverged::default();
        // The repair fails: the gate that the port of the node checks is open.
        let repairs = Repairs::new(Gate::default(), Arc::clone(follower.store()));
        let task = tokio::spawn(watch(
            sample,
            follower.raft.clone(),
            follower.peers.clone(),
            diverged.clone(),
            Arc::new(repairs),
            Duration::ZERO,
        ));
        for expected in [true, false] {
            is_equal.store(!expected, Ordering::Relaxed);
            let changed = async {
                while diverged.is_diverged() != expected {
                    tokio::task::yield_now().await;
                }
            };
            let changed = tokio::time::timeout(Duration::from_mins(1), changed).await;
            changed.unwrap();
        }
        assert_eq!(diverged.repairs(), 0);
        task.abort();
        follower.close().await.unwrap();
        leader.close().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_failed_repair_is_repeated_without_a_newer_digest() {
        let [(_first, leader), (_second, follower)] = pair().await;
        let (index, digest) = leader.replica.digest_sample().unwrap();
        let sample = move || Some((index, Digest(!digest.0)));
        let diverged = Diverged::default();
        let (raft, peers) = (follower.raft.clone(), follower.peers.clone());
        // The node refuses the state: the gate that its port checks is open.
        let repairs = Arc::new(Repairs::new(Gate::default(), Arc::clone(follower.store())));
        let mut attempts = repairs.gate.subscribe();
        let watched = watch(
            sample,
            raft,
            peers,
            diverged.clone(),
            repairs,
            Duration::ZERO,
        );
        let task = tokio::spawn(watched);
        attempts.changed().await.unwrap();
        drop(attempts.wait_for(|limit| *limit == u64::MAX).await.unwrap());
        assert!(diverged.is_diverged());
        assert_eq!(diverged.repairs(), 0);
        // The node accepts the state from now on.
        let closed = follower.repairs.gate.close();
        let repaired = async {
            while diverged.repairs() == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), repaired)
            .await
            .unwrap();
        task.abort();
        drop(closed);
        follower.close().await.unwrap();
        leader.close().await.unwrap();
    }
}
