//! Changes of the members of a cluster, one at a time.
//!
//! Invariants: a number that a member has or had is never assigned to another directory; a learner
//! votes only after it has caught up; every change is committed before it is reported.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::alias::InstantOf;
use openraft::async_runtime::WatchReceiver;
use openraft::error::{ClientWriteError, RaftError};
use openraft::raft::Precondition;
use openraft::{ChangeMembers, Instant as _, Raft, RaftMetrics, ServerState};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use weir_store::replica::NodeIdentity;

use crate::convert::{NODES_MAX, REMOVED_MAX, index_of};
use crate::machine::StateMachine;
use crate::types::{LogId, Member, Membership, Types};
use crate::wire::{Join, JoinAnswer};

/// Limit on the bytes of a peer address.
pub(crate) const ADDRESS_BYTES_MAX: usize = 255;
/// Limit on the entries that a learner may lag when it becomes a voter.
const LAG_MAX: u64 = 64;

/// Time limit for new voters to catch up.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for the commit of a change.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for the remaining voters to reply before a voter is removed.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause before an unfinished change is resumed.
const FINISH_PAUSE: Duration = Duration::from_millis(100);
/// The highest number that a directory may request: a higher one would leave no numbers for others.
const NODE_MAX: u64 = 1 << 63;
/// Time limit for this node to show a committed change.
const SHOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a change is rejected: a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChangeError {
    /// The call may succeed later.
    Retry(String),
    /// Another node leads; its peers connect to this address.
    NotLeader(String),
    /// The call will not succeed.
    Rejected(String),
}

/// The members before a change.
struct Current {
    nodes: BTreeMap<u64, Member>,
    voters: BTreeSet<u64>,
    /// The voters after a change that is half committed; `None` if there is no such change.
    joint: Option<BTreeSet<u64>>,
    /// The membership entry of these members.
    entry: Option<LogId>,
}

impl ChangeError {
    fn retry(error: &impl std::fmt::Display) -> Self {
        Self::Retry(error.to_string())
    }
}

/// The members. The leader changes them.
pub(crate) struct Members {
    identity: NodeIdentity,
    raft: Raft<Types, StateMachine>,
    /// Fingerprint of the engine for programs of this node.
    engine: String,
    /// Whether this node acknowledges only entries that are synced.
    is_synced: bool,
    /// Held during a change.
    changes: Mutex<()>,
}

impl Members {
    pub(crate) fn new(
        identity: NodeIdentity,
        raft: Raft<Types, StateMachine>,
        engine: String,
        is_synced: bool,
    ) -> Self {
        Self {
            identity,
            raft,
            engine,
            is_synced,
            changes: Mutex::new(()),
        }
    }

    /// Fingerprint of the engine for programs of this node.
    pub(crate) fn engine(&self) -> &str {
        &self.engine
    }

    fn current(&self) -> Current {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let members = metrics.membership_config.membership();
        let nodes = members
            .nodes()
            .map(|(node, member)| (*node, member.clone()));
        Current {
            nodes: nodes.collect(),
            voters: members.voter_ids().collect(),
            joint: match members.get_joint_config().as_slice() {
                [_, .., last] => Some(last.clone()),
                _ => None,
            },
            entry: *metrics.membership_config.log_id(),
        }
    }

    /// The incarnation of the disk of a member; 0 if not known yet. `None` if the node is not a
    /// member.
    pub(crate) fn incarnation_of(&self, node: u64) -> Option<u64> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let members = metrics.membership_config.membership();
        members.get_node(&node).map(|member| member.incarnation)
    }

    /// The peer address of a member; `None` if the node is not a member.
    pub(crate) fn address_of(&self, node: u64) -> Option<String> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let members = metrics.membership_config.membership();
        members.get_node(&node).map(|member| member.peer.clone())
    }

    /// Checks that this node leads, and no change of the voters is unfinished.
    fn leads(&self) -> Result<(), ChangeError> {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let members = metrics.membership_config.membership();
        if metrics.state == ServerState::Leader && members.get_joint_config().len() > 1 {
            let text = "a change of the voters is being finished";
            return Err(ChangeError::Retry(text.to_owned()));
        }
        if metrics.state == ServerState::Leader {
            return Ok(());
        }
        let leader = metrics
            .current_leader
            .filter(|leader| *leader != metrics.id);
        match leader.and_then(|leader| members.get_node(&leader)) {
            Some(member) => Err(ChangeError::NotLeader(member.peer.clone())),
            None => Err(ChangeError::Retry(
                "no leader is known at present".to_owned(),
            )),
        }
    }

    /// Checks that a process belongs to this cluster, and that its node would apply and acknowledge
    /// entries as this node does.
    fn check_compatible(&self, join: &Join) -> Result<(), ChangeError> {
        if join
            .cluster
            .is_some_and(|cluster| cluster != self.identity.cluster)
        {
            let text = "the directory belongs to another cluster";
            return Err(ChangeError::Rejected(text.to_owned()));
        }
        if join.engine != self.engine {
            let name = |engine: &str| match engine {
                "" => "no engine".to_owned(),
                engine => format!("`{engine}`"),
            };
            return Err(ChangeError::Rejected(format!(
                "programs could have other outcomes on that node: it runs them by {}, and the \
                 cluster by {}; use one build of weir on machines whose CPUs have the same \
                 features",
                name(&join.engine),
                name(&self.engine)
            )));
        }
        if self.is_synced && !join.is_synced {
            let text = "this cluster syncs a write before it acknowledges the write, and that node \
                        would not; start the node with --durability group";
            return Err(ChangeError::Rejected(text.to_owned()));
        }
        Ok(())
    }

    /// Assigns a number to a directory, or records the new addresses of its node.
    pub(crate) async fn join(&self, join: &Join) -> Result<JoinAnswer, ChangeError> {
        let changing = self.changes.lock().await;
        match self.leads() {
            Err(ChangeError::NotLeader(peer)) => return Ok(JoinAnswer::NotLeader(peer)),
            other => other?,
        }
        let cluster = self.identity.cluster;
        self.check_compatible(join)?;
        check_addresses(&join.member)?;
        let current = self.current();
        let nodes = &current.nodes;
        if let Some(node) = current.joined_as(join) {
            self.until_committed(&current).await?;
            return Ok(JoinAnswer::Joined { cluster, node });
        }
        let known = nodes.get(&join.node);
        let node = match (join.cluster, known) {
            (Some(_), None) => {
                // Until the commit, another leader may undo the removal.
                self.until_committed(&current).await?;
                return Err(ChangeError::Rejected(not_a_member(join.node, nodes)));
            }
            (Some(_), Some(known)) => {
                if ![0, join.member.incarnation].contains(&known.incarnation) {
                    return Err(ChangeError::Rejected(other_disk(join.node)));
                }
                let moved = Member {
                    removed: known.removed.clone(),
                    ..join.member.clone()
                };
                if *known == moved {
                    // Until the commit, another leader may undo the earlier report.
                    self.until_committed(&current).await?;
                } else {
                    self.check_moved(join, &current).await?;
                    let moved = BTreeMap::from([(join.node, moved)]);
                    self.change(ChangeMembers::SetNodes(moved), true, &current)
                        .await?;
                }
                join.node
            }
            (None, Some(reserved)) if current.is_reserved_for(join) => {
                current.check_clients_are_free(join)?;
                let joined = Member {
                    removed: reserved.removed.clone(),
                    ..join.member.clone()
                };
                let joined = BTreeMap::from([(join.node, joined)]);
                self.change(ChangeMembers::SetNodes(joined), true, &current)
                    .await?;
                join.node
            }
            (None, Some(member)) => {
                let text = current.number_taken(join.node, member);
                return Err(ChangeError::Rejected(text));
            }
            (None, None) => {
                current.check_peer_is_free(&join.member.peer)?;
                current.check_clients_are_free(join)?;
                check_capacity(nodes)?;
                let node = match join.node {
                    0 => self.unused(nodes)?,
                    wanted => never_removed(wanted, nodes)?,
                };
                let added = BTreeMap::from([(node, join.member.clone())]);
                self.change(ChangeMembers::AddNodes(added), true, &current)
                    .await?;
                node
            }
        };
        drop(changing);
        Ok(JoinAnswer::Joined { cluster, node })
    }

    /// A number that no node ever had. The log is longer than it was when the last number was
    /// assigned.
    fn unused(&self, nodes: &BTreeMap<u64, Member>) -> Result<u64, ChangeError> {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let last = metrics.last_log_index.map_or(0, |last| index_of(last).0);
        let highest = nodes.keys().next_back().copied().unwrap_or_default();
        let removed = removed(nodes).last().copied().unwrap_or_default();
        let unused = last.max(highest).max(removed).checked_add(1);
        unused.ok_or_else(|| ChangeError::Rejected("no node number is left".to_owned()))
    }

    /// Reserves a number for a node that will listen at a peer address. The disk of that node is
    /// not known yet, so an empty directory may join under this number from that address only.
    pub(crate) async fn reserve(&self, peer: &str) -> Result<u64, ChangeError> {
        check_peer_address(peer)?;
        let changing = self.changes.lock().await;
        self.leads()?;
        let current = self.current();
        let mut members = current.nodes.iter();
        if let Some((node, _)) = members.find(|(_, member)| member.peer == peer) {
            let text = format!("node {node} has the peer address {peer}");
            return Err(ChangeError::Rejected(text));
        }
        check_capacity(&current.nodes)?;
        let node = self.unused(&current.nodes)?;
        let member = Member {
            peer: peer.to_owned(),
            ..Member::default()
        };
        let added = ChangeMembers::AddNodes(BTreeMap::from([(node, member)]));
        self.change(added, true, &current).await?;
        drop(changing);
        Ok(node)
    }

    /// Makes these members the voters and removes all other members.
    pub(crate) async fn set_voters(&self, voters: BTreeSet<u64>) -> Result<(), ChangeError> {
        let changing = self.changes.lock().await;
        self.leads()?;
        let mut current = self.current();
        if let Some(node) = voters.iter().find(|node| !current.nodes.contains_key(node)) {
            return Err(ChangeError::Rejected(format!(
                "node {node} is not a member"
            )));
        }
        for node in voters.difference(&current.voters) {
            let has_it = |metrics: &RaftMetrics<Types>| has_caught_up(metrics, *node).is_ok();
            let wait = self.raft.wait(Some(CATCH_UP_TIMEOUT));
            if wait.metrics(has_it, "a learner catches up").await.is_err() {
                has_caught_up(&self.raft.metrics().borrow_watched(), *node)?;
            }
        }
        self.until_answered(&voters).await?;
        let leaving = current.voters.difference(&voters).copied();
        let leaving: BTreeSet<u64> = leaving.collect();
        if let Some(note) = note_removal(&leaving, &current.nodes) {
            self.change(ChangeMembers::SetNodes(note), true, &current)
                .await?;
            current = self.current();
        }
        let voters = ChangeMembers::ReplaceAllVoters(voters);
        let changed = self.change(voters, false, &current).await;
        drop(changing);
        changed
    }

    /// Makes a learner a voter.
    pub(crate) async fn promote(&self, node: u64) -> Result<(), ChangeError> {
        let changing = self.changes.lock().await;
        self.leads()?;
        let current = self.current();
        if current.voters.contains(&node) {
            return Ok(());
        }
        if !current.nodes.contains_key(&node) {
            return Err(ChangeError::Rejected(format!(
                "node {node} is not a member"
            )));
        }
        has_caught_up(&self.raft.metrics().borrow_watched(), node)?;
        let promoted = ChangeMembers::AddVoterIds([node].into());
        let changed = self.change(promoted, true, &current).await;
        drop(changing);
        changed
    }

    /// Removes a node, voter or not.
    pub(crate) async fn remove(&self, node: u64) -> Result<(), ChangeError> {
        let changing = self.changes.lock().await;
        self.leads()?;
        let mut current = self.current();
        let is_voter = current.voters.contains(&node);
        if !current.nodes.contains_key(&node) {
            // The reply to an earlier request may have been lost.
            self.until_committed(&current).await?;
            let is_noted = removed(&current.nodes).contains(&node);
            let why = if is_noted { ": it was removed" } else { "" };
            return Err(ChangeError::Rejected(format!(
                "node {node} is not a member{why}"
            )));
        }
        if current.voters.len() == 1 && is_voter {
            let text = format!("node {node} is the only voter");
            return Err(ChangeError::Rejected(text));
        }
        if is_voter {
            let mut remaining = current.voters.clone();
            remaining.remove(&node);
            self.until_answered(&remaining).await?;
        }
        if let Some(note) = note_removal(&[node].into(), &current.nodes) {
            self.change(ChangeMembers::SetNodes(note), true, &current)
                .await?;
            current = self.current();
        }
        let without = [node].into();
        let changed = if is_voter {
            let without = ChangeMembers::RemoveVoters(without);
            self.change(without, false, &current).await
        } else {
            let without = ChangeMembers::RemoveNodes(without);
            self.change(without, true, &current).await
        };
        drop(changing);
        changed
    }

    /// Commits a change, if the members are still those before the change. Another leader may have
    /// changed them since.
    async fn change(
        &self,
        change: ChangeMembers<u64, Member>,
        retain: bool,
        current: &Current,
    ) -> Result<(), ChangeError> {
        let is_same = Precondition::LastMembershipLogId {
            last_membership_log_id: current.entry,
        };
        let changed = self.raft.change_membership_if(change, retain, [is_same]);
        let Ok(changed) = timeout(CHANGE_TIMEOUT, changed).await else {
            let text = "no majority has committed the change in time; it may still be committed";
            return Err(ChangeError::Retry(text.to_owned()));
        };
        let changed = changed.map_err(|error| change_error(&error))?;
        // The next change starts from the members of this change.
        self.until_shown(|metrics| {
            metrics.membership_config.log_id().as_ref() >= Some(changed.log_id())
        })
        .await
    }

    /// Waits until a majority of these voters has replied to a request that begins now. Without a
    /// majority, this change of voters would end all writes, and could not be reverted.
    async fn until_answered(&self, voters: &BTreeSet<u64>) -> Result<(), ChangeError> {
        let started = InstantOf::<Types>::now();
        let answers = |metrics: &RaftMetrics<Types>, node: u64| {
            node == metrics.id || has_answered(metrics, node, started)
        };
        let has_majority = |metrics: &RaftMetrics<Types>| {
            let answering = voters.iter().filter(|node| answers(metrics, **node));
            answering.count() * 2 > voters.len()
        };
        let wait = self.raft.wait(Some(ANSWER_TIMEOUT));
        if wait.metrics(has_majority, "voters answer").await.is_ok() {
            return Ok(());
        }
        let metrics = self.raft.metrics().borrow_watched().clone();
        let silent = voters.iter().filter(|node| !answers(&metrics, **node));
        let silent: Vec<_> = silent.map(u64::to_string).collect();
        Err(ChangeError::Retry(format!(
            "without a majority of the remaining voters, the cluster would accept no writes; these \
             voters do not answer: {}; start or remove them first",
            silent.join(", ")
        )))
    }

    /// Fails if another member answers at the new address of a node: it would get the requests for
    /// the node. A member that does not answer may have lost its address to the node.
    async fn check_moved(&self, join: &Join, current: &Current) -> Result<(), ChangeError> {
        let (node, peer) = (join.node, &join.member.peer);
        let mut others = current.nodes.iter().filter(|(other, _)| **other != node);
        let Some((&other, _)) = others.find(|(_, member)| member.peer == *peer) else {
            return Ok(());
        };
        let started = InstantOf::<Types>::now();
        let answers = |metrics: &RaftMetrics<Types>| {
            other == metrics.id || has_answered(metrics, other, started)
        };
        let wait = self.raft.wait(Some(ANSWER_TIMEOUT));
        if wait.metrics(answers, "a member answers").await.is_err() {
            return Ok(());
        }
        Err(ChangeError::Rejected(format!(
            "node {other} has the peer address {peer}, and answers there; correct `peer` or \
             `advertise` of node {node}"
        )))
    }

    /// Fails unless a voter answers a request that begins now, and has caught up with the log. A
    /// transfer to a different voter causes an election, which any voter may win.
    pub(crate) async fn until_can_lead(&self, node: u64) -> Result<(), ChangeError> {
        let started = InstantOf::<Types>::now();
        let answers = |metrics: &RaftMetrics<Types>| has_answered(metrics, node, started);
        let can =
            |metrics: &RaftMetrics<Types>| answers(metrics) && has_caught_up(metrics, node).is_ok();
        let wait = self.raft.wait(Some(ANSWER_TIMEOUT));
        if wait.metrics(can, "a voter can lead").await.is_ok() {
            return Ok(());
        }
        let metrics = self.raft.metrics().borrow_watched().clone();
        if !answers(&metrics) {
            let text = format!(
                "node {node} does not answer, or its disk is full; the leadership was not transferred"
            );
            return Err(ChangeError::Retry(text));
        }
        has_caught_up(&metrics, node)
    }

    /// Finishes every change of the voters that its leader, or its caller on this node, has left
    /// half committed. Ends with the consensus.
    pub(crate) async fn finish_changes(&self) {
        let mut metrics = self.raft.server_metrics();
        loop {
            let is_unfinished = {
                let metrics = metrics.borrow_and_update();
                let members = metrics.membership_config.membership();
                metrics.state == ServerState::Leader && members.get_joint_config().len() > 1
            };
            if !is_unfinished {
                if metrics.changed().await.is_err() {
                    return;
                }
                continue;
            }
            // A caller that still waits finishes its own change.
            let changing = self.changes.lock().await;
            let current = self.current();
            if let Some(voters) = &current.joint {
                let voters = ChangeMembers::ReplaceAllVoters(voters.clone());
                if let Err(why) = self.change(voters, false, &current).await {
                    tracing::debug!(?why, "a change of the voters is not finished yet");
                }
            }
            drop(changing);
            sleep(FINISH_PAUSE).await;
        }
    }

    /// Waits until the membership entry that a caller has seen is committed.
    async fn until_committed(&self, current: &Current) -> Result<(), ChangeError> {
        self.until_shown(|metrics| is_committed(metrics, current.entry))
            .await
    }

    async fn until_shown(
        &self,
        is_shown: impl Fn(&RaftMetrics<Types>) -> bool + Send,
    ) -> Result<(), ChangeError> {
        let wait = self.raft.wait(Some(SHOWN_TIMEOUT));
        wait.metrics(is_shown, "a change of the members")
            .await
            .map(drop)
            .map_err(|error| ChangeError::retry(&error))
    }
}

impl Current {
    /// The number that an earlier join assigned to an empty directory, if the reply to that join
    /// was lost.
    fn joined_as(&self, join: &Join) -> Option<u64> {
        let Member {
            peer, incarnation, ..
        } = &join.member;
        let is_same = |member: &Member| member.incarnation == *incarnation && member.peer == *peer;
        let mut nodes = self.nodes.iter();
        let joined = nodes.find(|(_, member)| is_same(member) && *incarnation != 0)?;
        join.cluster.is_none().then_some(*joined.0)
    }

    /// Whether the number that an empty directory requests is reserved for its address, for a node
    /// that has not joined yet.
    fn is_reserved_for(&self, join: &Join) -> bool {
        let is_same = |member: &Member| member.peer == join.member.peer;
        let reserved = self.nodes.get(&join.node);
        reserved.is_some_and(|member| self.is_reserved(join.node, member) && is_same(member))
    }

    /// Whether no node has joined under a number yet.
    fn is_reserved(&self, node: u64, member: &Member) -> bool {
        member.incarnation == 0 && !self.voters.contains(&node)
    }

    /// The reason for rejecting an empty directory that requests the number of a member.
    fn number_taken(&self, node: u64, member: &Member) -> String {
        if self.is_reserved(node, member) {
            let peer = &member.peer;
            return format!(
                "the number {node} is reserved for a node with the peer address {peer}; join from \
                 that address, or without a number"
            );
        }
        format!(
            "node {node} is a member, and an empty directory cannot be that node: it has forgotten \
             its votes; remove the node (`weir cluster rm {node}`) and join without a number \
             (setting `node`)"
        )
    }

    /// Fails if a member has the peer address of an empty directory.
    fn check_peer_is_free(&self, peer: &str) -> Result<(), ChangeError> {
        let taken = self.nodes.iter().find(|(_, member)| member.peer == peer);
        let Some((node, member)) = taken else {
            return Ok(());
        };
        let text = if self.is_reserved(*node, member) {
            format!(
                "the number {node} is reserved for the peer address {peer}; join with `--node {node}`"
            )
        } else {
            format!(
                "node {node} has the peer address {peer}, and an empty directory cannot be that \
                 node; remove the node (`weir cluster rm {node}`) or use another address"
            )
        };
        Err(ChangeError::Rejected(text))
    }

    /// Fails if another member has a client address of an empty directory: clients would reach the
    /// wrong node.
    fn check_clients_are_free(&self, join: &Join) -> Result<(), ChangeError> {
        let wanted: BTreeSet<_> = join.member.client.split_whitespace().collect();
        for (node, member) in &self.nodes {
            let mut addresses = member.client.split_whitespace();
            let taken = addresses.find(|address| wanted.contains(address));
            if let Some(address) = taken.filter(|_| *node != join.node) {
                let is_native = address.starts_with("weir");
                let option = if is_native { "--native" } else { "--http" };
                return Err(ChangeError::Rejected(format!(
                    "node {node} has the client address {address}; use another one (`{option} \
                     HOST:PORT`)"
                )));
            }
        }
        Ok(())
    }
}

/// Whether a membership entry is the newest committed one. The committed index does not show this:
/// another leader may have committed a later entry, and have removed this one.
fn is_committed(metrics: &RaftMetrics<Types>, entry: Option<LogId>) -> bool {
    *metrics.committed_membership_config.log_id() == entry
}

/// Whether a member has answered a request of this leader that began after `since`.
fn has_answered(metrics: &RaftMetrics<Types>, node: u64, since: InstantOf<Types>) -> bool {
    let heartbeat = metrics.heartbeat.as_ref();
    let answered = heartbeat.and_then(|nodes| *nodes.get(&node)?);
    answered.is_some_and(|time| *time > since)
}

/// Whether a text is `HOST:PORT`.
fn is_address(text: &str) -> bool {
    let port = text.rsplit_once(':').and_then(|(host, port)| {
        let port = port.parse::<u16>().ok().filter(|port| *port > 0);
        port.filter(|_| !host.is_empty())
    });
    let is_invalid = |letter: char| letter.is_whitespace() || letter.is_control();
    port.is_some() && text.len() <= ADDRESS_BYTES_MAX && !text.contains(is_invalid)
}

fn check_peer_address(peer: &str) -> Result<(), ChangeError> {
    if is_address(peer) {
        return Ok(());
    }
    let peer = peer.escape_debug();
    let text = format!("`{peer}` is not a peer address: give HOST:PORT");
    Err(ChangeError::Rejected(text))
}

/// Fails if a node that joins has addresses that no peer or client can use.
fn check_addresses(member: &Member) -> Result<(), ChangeError> {
    check_peer_address(&member.peer)?;
    let is_client = |word: &str| {
        let parts = word.split_once("://");
        parts.is_some_and(|(scheme, address)| {
            ["weir", "weirs", "http", "https"].contains(&scheme) && is_address(address)
        })
    };
    let mut words = member.client.split(' ');
    if member.client.is_empty() || words.all(is_client) {
        return Ok(());
    }
    let client = member.client.escape_debug();
    let text = format!("`{client}` are not client addresses: give weir://HOST:PORT");
    Err(ChangeError::Rejected(text))
}

/// Fails if the cluster has the maximum number of nodes.
fn check_capacity(nodes: &BTreeMap<u64, Member>) -> Result<(), ChangeError> {
    if nodes.len() < NODES_MAX {
        return Ok(());
    }
    Err(ChangeError::Rejected(format!(
        "the cluster has {NODES_MAX} nodes, which is the limit; remove one first (`weir cluster rm`)"
    )))
}

/// Fails if a learner has not caught up with the log.
fn has_caught_up(metrics: &RaftMetrics<Types>, node: u64) -> Result<(), ChangeError> {
    let replication = metrics.replication.as_ref();
    let matching = replication.and_then(|nodes| nodes.get(&node)?.as_ref());
    let matching = matching.map_or(0, |id| index_of(id.index).0);
    let last = metrics.last_log_index.map_or(0, |last| index_of(last).0);
    // A node without any entry may not be running at all.
    if matching == 0 || matching + LAG_MAX < last {
        let text = format!("node {node} has entry {matching} of {last}");
        return Err(ChangeError::Retry(text));
    }
    Ok(())
}

/// Numbers of removed nodes.
fn removed(nodes: &BTreeMap<u64, Member>) -> BTreeSet<u64> {
    let noted = nodes.values().flat_map(|member| &member.removed);
    noted.copied().collect()
}

/// Whether a node was removed from these members.
pub(crate) fn is_removed(node: u64, members: &Membership) -> bool {
    let mut noted = members.nodes().flat_map(|(_, member)| &member.removed);
    members.get_node(&node).is_none() && noted.any(|removed| *removed == node)
}

/// The number that an empty directory requests. Fails if a removed node may have had it.
fn never_removed(wanted: u64, nodes: &BTreeMap<u64, Member>) -> Result<u64, ChangeError> {
    if wanted > NODE_MAX {
        let text = format!("node number {wanted} is too large; the limit is {NODE_MAX}");
        return Err(ChangeError::Rejected(text));
    }
    let removed = removed(nodes);
    if removed.contains(&wanted) {
        return Err(ChangeError::Rejected(format!(
            "node {wanted} was removed, and a number is used once; join without a number (setting \
             `node`), or with another one"
        )));
    }
    if removed.len() as u64 >= REMOVED_MAX {
        return Err(ChangeError::Rejected(format!(
            "the cluster has removed {REMOVED_MAX} nodes, and does not know whether one of them was \
             node {wanted}; join without a number (setting `node`)"
        )));
    }
    Ok(wanted)
}

/// The remaining member with the lowest number, with a note of all removed nodes and of the nodes
/// to remove, and the members that had the note before, without it. The note is committed before
/// the removal, so a removed node is always noted. At the limit, the lowest numbers are omitted:
/// these nodes were removed first. `None` if there is nothing to note.
fn note_removal(
    leaving: &BTreeSet<u64>,
    nodes: &BTreeMap<u64, Member>,
) -> Option<BTreeMap<u64, Member>> {
    let (remaining, member) = nodes.iter().find(|(node, _)| !leaving.contains(node))?;
    if leaving.is_empty() {
        return None;
    }
    let mut noted = removed(nodes);
    noted.extend(leaving);
    while noted.len() as u64 > REMOVED_MAX {
        let first = noted.difference(leaving).next().copied();
        let Some(first) = first else { break };
        noted.remove(&first);
    }
    let with_note = |member: &Member, removed| Member {
        removed,
        ..member.clone()
    };
    let earlier = nodes
        .iter()
        .filter(|(_, member)| !member.removed.is_empty());
    let earlier = earlier.map(|(node, member)| (*node, with_note(member, Vec::new())));
    let mut changed: BTreeMap<_, _> = earlier.collect();
    let noted = noted.into_iter().collect();
    changed.insert(*remaining, with_note(member, noted));
    Some(changed)
}

/// The reason for rejecting the directory of a node that is not a member.
fn not_a_member(node: u64, nodes: &BTreeMap<u64, Member>) -> String {
    if removed(nodes).contains(&node) {
        return was_removed(node);
    }
    format!(
        "node {node} is no longer a member: it was removed, and its directory cannot join again; join \
         with an empty directory"
    )
}

/// The reason for rejecting a node that was removed.
pub(crate) fn was_removed(node: u64) -> String {
    format!(
        "node {node} was removed from the cluster; join with an empty directory, under a new number"
    )
}

/// The reason for rejecting a process whose disk is not that of the member with its number.
pub(crate) fn other_disk(node: u64) -> String {
    format!(
        "the process that claims to be node {node} has another disk than node {node} of the \
         cluster, for example a disk from before the cluster was restored from a backup; end that \
         process and destroy its directory, then join with an empty directory, without a number"
    )
}

/// The reason for rejecting a process that is not a member, and that expects another disk at the
/// node `called`.
pub(crate) fn earlier_cluster(node: u64, called: u64) -> String {
    format!(
        "the process that claims to be node {node} is of an earlier cluster with this id, in which \
         node {called} has another disk: this cluster was restored from a backup; end that process \
         and destroy its directory"
    )
}

fn change_error(error: &RaftError<Types, ClientWriteError<Types>>) -> ChangeError {
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => {
            match &forward.leader_node {
                Some(member) => ChangeError::NotLeader(member.peer.clone()),
                None => ChangeError::retry(error),
            }
        }
        error => ChangeError::retry(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir_store::LogIndex;
    use weir_store::replica::EntryId;

    use super::*;
    use crate::convert::log_id;
    use crate::types::StoredMembership;

    /// A reply that names an undone removal would end the node.
    #[test]
    fn an_entry_that_another_leader_has_removed_is_not_committed() {
        let entry = |term| {
            let index = LogIndex(10);
            Some(log_id(EntryId { term, index }))
        };
        let stored = |entry| Arc::new(StoredMembership::new(entry, Membership::default()));
        let mut metrics = RaftMetrics::<Types>::new_initial(1);
        metrics.membership_config = stored(entry(1));
        // The entries of the next leader are committed, and are not in this log yet.
        metrics.cluster_committed = entry(2);
        assert!(!is_committed(&metrics, entry(1)));
        metrics.committed_membership_config = stored(entry(1));
        assert!(is_committed(&metrics, entry(1)));
    }

    /// The notes of removed nodes are bounded. When they are full, a number that a removed node may
    /// have had is refused.
    #[test]
    fn a_number_is_refused_if_a_removed_node_may_have_had_it() {
        let mut nodes = BTreeMap::from([(1, Member::default())]);
        for node in 2..REMOVED_MAX + 3 {
            let member = Member::default();
            nodes.insert(node, member);
            let is_noted = |nodes: &BTreeMap<u64, Member>| removed(nodes).contains(&node);
            let noted = note_removal(&[node].into(), &nodes);
            nodes.extend(noted.into_iter().flatten());
            nodes.remove(&node);
            assert!(is_noted(&nodes), "{node}");
            let again = never_removed(node, &nodes);
            assert!(matches!(again, Err(ChangeError::Rejected(_))), "{again:?}");
            let unused = never_removed(NODE_MAX, &nodes);
            assert_eq!(unused.is_ok(), node < REMOVED_MAX + 1, "{node}");
        }
        // The number that was removed first is not noted any more, and not free.
        assert_eq!(removed(&nodes).first(), Some(&3));
        assert!(never_removed(2, &nodes).is_err());
        // One member has all notes.
        nodes.insert(0, Member::default());
        let noted = note_removal(&[1].into(), &nodes);
        nodes.extend(noted.into_iter().flatten());
        assert_eq!(nodes[&0].removed.len() as u64, REMOVED_MAX);
        assert_eq!(nodes[&0].removed.first(), Some(&1));
        assert!(nodes[&1].removed.is_empty());
    }
}
