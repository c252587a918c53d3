//! Changes of the members of a cluster, one at a time.
//!
//! Invariants: a number that a member has or had is given to no other directory; a
//! learner votes only after it has caught up; every change is committed before it
//! is reported.

use std::collections::{BTreeMap, BTreeSet};

use openraft::async_runtime::WatchReceiver;
use openraft::error::{ClientWriteError, RaftError};
use openraft::{ChangeMembers, Raft, ServerState};
use tokio::sync::Mutex;
use weir_store::replica::NodeIdentity;

use crate::convert::{REMOVED_MAX, index_of};
use crate::machine::StateMachine;
use crate::types::{Member, Types};
use crate::wire::{Join, JoinAnswer};

/// Entries that a learner may lack when it becomes a voter.
const LAG_MAX: u64 = 64;

/// Why a change is not made: a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Declined {
    /// The call may succeed later.
    Later(String),
    /// Another node leads; its peers connect to this address.
    Elsewhere(String),
    /// It will not succeed.
    Never(String),
}

impl Declined {
    fn later(error: &impl std::fmt::Display) -> Self {
        Self::Later(error.to_string())
    }
}

/// The members, as the leader changes them.
pub(crate) struct Members {
    identity: NodeIdentity,
    raft: Raft<Types, StateMachine>,
    /// Fingerprint of the engine for programs of this node.
    engine: String,
    /// Held while a change is under way.
    changes: Mutex<()>,
}

impl Members {
    pub(crate) fn new(
        identity: NodeIdentity,
        raft: Raft<Types, StateMachine>,
        engine: String,
    ) -> Self {
        Self {
            identity,
            raft,
            engine,
            changes: Mutex::new(()),
        }
    }

    /// Fingerprint of the engine for programs of this node.
    pub(crate) fn engine(&self) -> &str {
        &self.engine
    }

    fn nodes(&self) -> (BTreeMap<u64, Member>, BTreeSet<u64>) {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let members = metrics.membership_config.membership();
        let nodes = members
            .nodes()
            .map(|(node, member)| (*node, member.clone()));
        (nodes.collect(), members.voter_ids().collect())
    }

    /// Which disk a member has, if it is one; 0: not known yet.
    pub(crate) fn incarnation_of(&self, node: u64) -> Option<u64> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let members = metrics.membership_config.membership();
        members.get_node(&node).map(|member| member.incarnation)
    }

    /// Whether this node leads.
    fn leads(&self) -> Result<(), Declined> {
        let metrics = self.raft.metrics().borrow_watched().clone();
        if metrics.state == ServerState::Leader {
            return Ok(());
        }
        let leader = metrics
            .current_leader
            .filter(|leader| *leader != metrics.id);
        let members = metrics.membership_config.membership();
        match leader.and_then(|leader| members.get_node(&leader)) {
            Some(member) => Err(Declined::Elsewhere(member.peer.clone())),
            None => Err(Declined::Later("no leader is known at present".to_owned())),
        }
    }

    /// Gives a directory a number, or takes note of where its node is now.
    pub(crate) async fn join(&self, join: &Join) -> Result<JoinAnswer, Declined> {
        let changing = self.changes.lock().await;
        match self.leads() {
            Err(Declined::Elsewhere(peer)) => return Ok(JoinAnswer::Elsewhere(peer)),
            other => other?,
        }
        let cluster = self.identity.cluster;
        if join.cluster.is_some_and(|theirs| theirs != cluster) {
            let text = "the directory belongs to another cluster";
            return Err(Declined::Never(text.to_owned()));
        }
        if join.engine != self.engine {
            let name = |engine: &str| match engine {
                "" => "no engine".to_owned(),
                engine => format!("`{engine}`"),
            };
            return Err(Declined::Never(format!(
                "programs could have other outcomes on that node: it runs them by {}, and the \
                 cluster by {}; use one build of weir on machines whose CPUs have the same \
                 features",
                name(&join.engine),
                name(&self.engine)
            )));
        }
        let (nodes, _) = self.nodes();
        let known = nodes.get(&join.node);
        let node = match (join.cluster, known) {
            (Some(_), None) => {
                return Err(Declined::Never(format!(
                    "node {} is no member any more: it was removed, and its directory cannot come \
                     back; join with an empty directory",
                    join.node
                )));
            }
            (Some(_), Some(known)) => {
                if ![0, join.member.incarnation].contains(&known.incarnation) {
                    return Err(Declined::Never(other_disk(join.node)));
                }
                let moved = Member {
                    removed: known.removed.clone(),
                    ..join.member.clone()
                };
                if *known != moved {
                    let moved = BTreeMap::from([(join.node, moved)]);
                    self.change(ChangeMembers::SetNodes(moved)).await?;
                }
                join.node
            }
            (None, Some(_)) => {
                return Err(Declined::Never(format!(
                    "node {} is a member, and an empty directory cannot be that node: it has \
                     forgotten its votes; remove the node (`weir cluster rm {0}`) and join \
                     without a number",
                    join.node
                )));
            }
            (None, None) => {
                let peer = &join.member.peer;
                let taken = nodes.iter().find(|(_, member)| member.peer == *peer);
                if let Some((node, _)) = taken {
                    return Err(Declined::Never(format!(
                        "node {node} has the peer address {peer}, and an empty directory cannot be \
                         that node; remove the node (`weir cluster rm {node}`) or use another \
                         address"
                    )));
                }
                let node = match join.node {
                    0 => self.unused(&nodes),
                    wanted => never_removed(wanted, &nodes)?,
                };
                let added = BTreeMap::from([(node, join.member.clone())]);
                self.change(ChangeMembers::AddNodes(added)).await?;
                node
            }
        };
        drop(changing);
        Ok(JoinAnswer::Joined { cluster, node })
    }

    /// A number that no node ever had: the log is longer than when the last one was
    /// given.
    fn unused(&self, nodes: &BTreeMap<u64, Member>) -> u64 {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let last = metrics.last_log_index.map_or(0, |last| index_of(last).0);
        let highest = nodes.keys().next_back().copied().unwrap_or_default();
        let removed = removed(nodes).last().copied().unwrap_or_default();
        last.max(highest).max(removed) + 1
    }

    /// Makes a learner a voter.
    pub(crate) async fn promote(&self, node: u64) -> Result<(), Declined> {
        let changing = self.changes.lock().await;
        self.leads()?;
        let (nodes, voters) = self.nodes();
        if voters.contains(&node) {
            return Ok(());
        }
        if !nodes.contains_key(&node) {
            return Err(Declined::Never(format!("node {node} is no member")));
        }
        let metrics = self.raft.metrics().borrow_watched().clone();
        let replication = metrics.replication.unwrap_or_default();
        let matching = replication.get(&node).copied().flatten();
        let matching = matching.map_or(0, |id| index_of(id.index).0);
        let last = metrics.last_log_index.map_or(0, |last| index_of(last).0);
        if matching + LAG_MAX < last {
            let text = format!("node {node} has entry {matching} of {last}");
            return Err(Declined::Later(text));
        }
        let promoted = ChangeMembers::AddVoterIds([node].into());
        let changed = self.change(promoted).await;
        drop(changing);
        changed
    }

    /// Removes a node, voter or not.
    pub(crate) async fn remove(&self, node: u64) -> Result<(), Declined> {
        let changing = self.changes.lock().await;
        self.leads()?;
        let (nodes, voters) = self.nodes();
        if !nodes.contains_key(&node) {
            return Err(Declined::Never(format!("node {node} is no member")));
        }
        if voters.len() == 1 && voters.contains(&node) {
            let text = format!("node {node} is the only voter");
            return Err(Declined::Never(text));
        }
        if let Some(note) = note_removal(node, &nodes) {
            self.change(ChangeMembers::SetNodes(note)).await?;
        }
        if voters.contains(&node) {
            let without = ChangeMembers::RemoveVoters([node].into());
            let changed = self.raft.change_membership(without, false).await;
            changed.map(drop).map_err(|error| declined(&error))?;
        } else {
            let without = ChangeMembers::RemoveNodes([node].into());
            self.change(without).await?;
        }
        drop(changing);
        Ok(())
    }

    async fn change(&self, change: ChangeMembers<u64, Member>) -> Result<(), Declined> {
        let changed = self.raft.change_membership(change, true).await;
        changed.map(drop).map_err(|error| declined(&error))
    }
}

/// Numbers of removed nodes.
fn removed(nodes: &BTreeMap<u64, Member>) -> BTreeSet<u64> {
    let noted = nodes.values().flat_map(|member| &member.removed);
    noted.copied().collect()
}

/// A number that an empty directory wants, unless a removed node may have had it.
fn never_removed(wanted: u64, nodes: &BTreeMap<u64, Member>) -> Result<u64, Declined> {
    let removed = removed(nodes);
    if removed.contains(&wanted) {
        return Err(Declined::Never(format!(
            "node {wanted} was removed, and a number is used once; join without a number, or with \
             another one"
        )));
    }
    if removed.len() as u64 >= REMOVED_MAX {
        return Err(Declined::Never(format!(
            "the cluster has removed {REMOVED_MAX} nodes, and does not know whether one of them was \
             node {wanted}; join without a number"
        )));
    }
    Ok(wanted)
}

/// The member that stays and has the lowest number, with a note of a node that is to be
/// removed and of all nodes that were removed before. The note is committed before the
/// removal: there is no moment without it.
fn note_removal(node: u64, nodes: &BTreeMap<u64, Member>) -> Option<BTreeMap<u64, Member>> {
    let (keeper, member) = nodes.iter().find(|(stays, _)| **stays != node)?;
    let mut noted = removed(nodes);
    if (noted.len() as u64) < REMOVED_MAX {
        noted.insert(node);
    }
    let member = Member {
        removed: noted.into_iter().collect(),
        ..member.clone()
    };
    Some(BTreeMap::from([(*keeper, member)]))
}

/// Why a node is refused that has another disk than the member of its number.
pub(crate) fn other_disk(node: u64) -> String {
    format!(
        "node {node} has another disk than the one that the cluster knows: it has forgotten its \
         votes and what it acknowledged; remove it (`weir cluster rm {node} --yes`), then join with \
         an empty directory, under a new number"
    )
}

fn declined(error: &RaftError<Types, ClientWriteError<Types>>) -> Declined {
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => {
            match &forward.leader_node {
                Some(member) => Declined::Elsewhere(member.peer.clone()),
                None => Declined::later(error),
            }
        }
        error => Declined::later(error),
    }
}
